//! Nodes with ten boards of two vendors and four bitstreams on each, whose states come by annotation and by stream.

use super::{ask, service, show};
use fpga_core::decide::{AntiHerd, DecisionRules};
use fpga_core::device::{Health, ReconfiguredPart};
use fpga_core::node_state::{
    Buckets, DeviceState, DigestPrefix, LeftOut, NodeState, RecentBitstream, decode, encode, encode_whole,
};
use fpga_core::units::{Millis, WallTime};
use fpga_node_stream::server::receiver::Taken;
use serde_json::{Value, json};
use std::collections::{BTreeMap, HashSet};

/// Origin of a state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    Annotation,
    Stream,
}

/// Ten boards of a node, Intel and Xilinx by turns. The Intel boards were used for `intel_percent` of the window, the
/// others for three quarters of it. The bitstreams of board `n` of node `a` are called `a-n-0` to `a-n-3`.
fn ten_boards(node: &str, intel_percent: u64) -> NodeState {
    let window = Millis::from_secs(300);
    let board = |number: u32| {
        let is_intel = number.is_multiple_of(2);
        let percent = if is_intel { intel_percent } else { 75 };
        DeviceState {
            id: format!("dm{number}"),
            vendor: if is_intel { "intel" } else { "xilinx" }.to_owned(),
            platform: if is_intel { "Intel(R) FPGA SDK for OpenCL(TM)" } else { "Xilinx" }.to_owned(),
            board: if is_intel { "pac_a10" } else { "xilinx_u250_gen3x16_xdma_4_1_202210_1" }.to_owned(),
            shell: "1.2.1".to_owned(),
            slots: 4,
            reconfigured_part: ReconfiguredPart::Slot,
            loaded: (number * 4..number * 4 + 4).collect(),
            usage: Millis(window.0 * 4 * percent / 100),
            reconfiguration: Millis::ZERO,
            queued: 0,
            health: Health::Healthy,
        }
    };
    let devices: Vec<DeviceState> = (0..10).map(board).collect();
    let bitstream = |number: u32| RecentBitstream {
        name: Some(format!("{node}-{}-{}", number / 4, number % 4)),
        digest: Some(DigestPrefix::from_bytes([number.to_le_bytes()[0]; 16])),
        last_used_ago: Millis(123_456),
    };
    let usage = Millis(devices.iter().map(|device| device.usage.0).sum());
    NodeState {
        boot: 1,
        seq: 1,
        heartbeat: Millis::from_secs(60),
        measured_at: WallTime(1_760_000_000_000),
        window,
        usage,
        reconfiguration: Millis::ZERO,
        devices,
        bitstreams: (0..40).map(bitstream).collect(),
        buckets: Buckets {
            bucket: Millis::from_secs(10),
            usage: vec![Millis(usage.0 / 30); 30],
            reconfiguration: Vec::new(),
        },
        plugin: None,
        cordons: BTreeMap::new(),
        left_out: LeftOut::default(),
    }
}

fn request(labels: &Value, annotations: &Value) -> Value {
    let metadata =
        json!({"name": "p", "namespace": "d", "uid": "u", "labels": labels, "annotations": annotations});
    json!({"Pod": {"metadata": metadata}, "NodeNames": ["a", "b"]})
}

#[tokio::test]
async fn ten_boards_of_two_vendors_are_told_apart_by_annotation_and_by_stream() {
    for way in [Way::Annotation, Way::Stream] {
        let rules = DecisionRules {
            weights: "0-1-0".parse().unwrap(),
            anti_herd: AntiHerd::Off,
            ..DecisionRules::default()
        };
        let (router, app) = service(rules);
        // The Intel boards of a are nearly idle, but a as a whole is busier than b.
        let states = [
            ("a", ten_boards("a", 5)),
            (
                "b",
                NodeState {
                    devices: ten_boards("b", 50).devices.into_iter().take(1).collect(),
                    usage: Millis(600_000),
                    buckets: Buckets { usage: vec![Millis(20_000); 30], ..ten_boards("b", 50).buckets },
                    ..ten_boards("b", 50)
                },
            ),
        ];
        for (name, state) in &states {
            match way {
                Way::Annotation => show(&app, name, &[], Some(&encode(state).unwrap().text)),
                Way::Stream => {
                    show(&app, name, &[], None);
                    let read = decode(&encode_whole(state).unwrap().text).unwrap();
                    let taken = app.index.stream(name, &format!("uid-{name}"), read, app.clock.read());
                    assert_eq!(taken, Ok(Taken::Yes));
                }
            }
        }
        app.index.listed(&HashSet::from(["a", "b"].map(str::to_owned)));
        app.expectations.listed(&HashSet::new());

        let passes = async |labels: Value, annotations: Value| {
            let answer = ask(&router, "/filter", &request(&labels, &annotations)).await;
            answer["NodeNames"]
                .as_array()
                .unwrap()
                .iter()
                .map(|name| name.as_str().unwrap().to_owned())
                .collect::<Vec<_>>()
        };
        let loaded = |name: &str| json!({"fpga-scheduling.io/loaded-bitstreams": name});
        for board in 0..10 {
            let vendor = if board % 2 == 0 { "intel" } else { "xilinx" };
            let labels = json!({"fpga-scheduling.io/fpga-vendor": vendor});
            let name = format!("a-{board}-3");
            assert_eq!(passes(labels, loaded(&name)).await, ["a"], "{way:?} {name}");
        }
        let intel = json!({"fpga-scheduling.io/fpga-vendor": "intel"});
        let xilinx = json!({"fpga-scheduling.io/fpga-vendor": "xilinx"});
        assert_eq!(passes(intel.clone(), loaded("a-1-0")).await, [""; 0], "it is on a Xilinx board: {way:?}");
        let platform = json!({"fpga-scheduling.io/platform": "Xilinx"});
        assert_eq!(passes(xilinx, platform).await, ["a"], "{way:?}");
        assert_eq!(passes(intel.clone(), json!({})).await, ["a", "b"], "{way:?}");

        let scores = ask(&router, "/prioritize", &request(&intel, &json!({}))).await;
        let scores: Vec<u64> =
            scores.as_array().unwrap().iter().map(|node| node["Score"].as_u64().unwrap()).collect();
        assert_eq!(scores, [10, 5], "Intel boards at 5 % are better than one at 50 %: {way:?}");
    }
}
