use super::*;

#[test]
fn addresses_survive_a_round_trip_and_others_are_refused_with_what_to_write() {
    for text in ["unix:/run/fpga/dm0.sock", "tcp://127.0.0.1:0", "tcp://[::1]:80"] {
        assert_eq!(text.parse::<Address>().unwrap().to_string(), text);
    }
    for text in ["", "/run/x", "unix:x", "tcp://", "tcp://:1", "tcp://h:x", "127.0.0.1:1"] {
        assert!(text.parse::<Address>().unwrap_err().to_string().contains("write `unix:"), "{text}");
    }
}

#[test]
fn a_stale_socket_is_replaced_a_live_one_and_a_file_are_left_alone() {
    let dir = tempfile::tempdir().unwrap();
    let address = Address::Unix(dir.path().join("s"));
    let Address::Unix(path) = &address else { unreachable!() };
    drop(UnixListener::bind(path).unwrap());
    let (listener, _, file) = address.bind(Callers::OwnerAndGroup).unwrap();
    assert_eq!(std::fs::metadata(path).unwrap().mode() & 0o777, 0o660);
    UnixStream::connect(path).unwrap();
    assert!(matches!(address.bind(Callers::OwnerAndGroup), Err(ListenError::InUse(_))));
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1, "nothing temporary is left");
    drop((listener, file));
    assert!(!path.exists());
    std::fs::write(path, "precious").unwrap();
    assert!(matches!(address.bind(Callers::OwnerAndGroup), Err(ListenError::NotASocket(_))));
    assert_eq!(std::fs::read_to_string(path).unwrap(), "precious");
}

#[test]
fn a_socket_that_another_manager_made_in_the_meantime_is_not_removed() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("s");
    let address = Address::Unix(path.clone());
    let (first, _, first_file) = address.bind(Callers::OwnerAndGroup).unwrap();
    drop(first);
    let (_second, _, _second_file) = address.bind(Callers::OwnerAndGroup).unwrap();
    drop(first_file);
    assert!(path.exists());
}

#[test]
fn a_free_port_is_told() {
    let (_listener, bound, _) =
        "tcp://127.0.0.1:0".parse::<Address>().unwrap().bind(Callers::OwnerAndGroup).unwrap();
    assert!(!bound.to_string().ends_with(":0"));
}
