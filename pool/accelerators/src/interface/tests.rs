use super::*;

fn spec() -> InterfaceSpec {
    InterfaceSpec {
        kernel: "scale".to_owned(),
        block_bytes: 8,
        output_bytes_per_block: 16,
        output_bytes_at_end: 4,
        tail: Tail::Partial,
        state_bytes: 4,
        pure: true,
        parameters: vec![Parameter { name: "factor".to_owned(), bytes: 4 }],
        work_group_size: 64,
        work_items_per_block: Some(2),
    }
}

#[test]
fn a_wrong_value_is_refused_with_what_to_write() {
    Interface::new(spec()).unwrap();
    for (change, message) in [
        ((|s| s.kernel = "9th".to_owned()) as fn(&mut InterfaceSpec), "for example aes_256_ctr"),
        (|s| s.kernel = String::new(), "a letter first"),
        (|s| s.kernel = "ünder".to_owned(), "a letter first"),
        (|s| s.kernel = "x".repeat(65), "at most 64"),
        (|s| s.block_bytes = 0, "blockBytes 0 is not possible; write 1 to 4000000"),
        (|s| s.block_bytes = 4_000_001, "write 1 to 4000000"),
        (|s| s.output_bytes_per_block = 4_000_001, "outputBytesPerBlock 4000001 is not possible; write 0 to"),
        (|s| s.output_bytes_at_end = 65_537, "outputBytesAtEnd 65537 is not possible; write 0 to 65536"),
        (|s| s.state_bytes = 65_537, "stateBytes 65537 is not possible; write 0 to 65536"),
        (|s| s.work_group_size = 0, "workGroupSize 0 is not possible; write 1 to 1024"),
        (|s| s.work_items_per_block = Some(0), "workItemsPerBlock 0 is not possible; write 1 to 65536"),
        (|s| (s.output_bytes_per_block, s.output_bytes_at_end) = (0, 0), "write outputBytesPerBlock or"),
        (|s| s.output_bytes_per_block = 12, "write a multiple, or `tail: ZeroFilled`"),
        (|s| s.state_bytes = 0, "write stateBytes"),
        (|s| s.work_items_per_block = None, "write workItemsPerBlock, or `workGroupSize: 1`"),
        (|s| s.parameters = vec![s.parameters[0].clone(); 17], "write at most 16"),
        (|s| s.parameters = vec![s.parameters[0].clone(); 2], "write another name"),
        (|s| s.parameters[0].name = "Key".to_owned(), "write lower-case letters"),
        (|s| s.parameters[0].name = "_key".to_owned(), "a letter first"),
        (|s| s.parameters[0].bytes = 0, "bytes of a parameter 0 is not possible; write 1 to 65536"),
    ] {
        let mut wrong = spec();
        change(&mut wrong);
        let error = Interface::new(wrong).unwrap_err().to_string();
        assert!(error.contains(message), "{error}");
    }
}

#[test]
fn an_interface_in_json_is_checked_when_it_is_read() {
    let interface = Interface::new(spec()).unwrap();
    let json = serde_json::to_value(&interface).unwrap();
    assert_eq!(serde_json::from_value::<Interface>(json.clone()).unwrap(), interface);
    let mut wrong = json;
    wrong["blockBytes"] = 0.into();
    let error = serde_json::from_value::<Interface>(wrong).unwrap_err().to_string();
    assert!(error.contains("write 1 to 4000000"), "{error}");
}
