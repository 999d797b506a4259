use super::*;
use clap::Parser as _;
use std::io::Write as _;
use tempfile::NamedTempFile;

/// Two idle nodes. One has the bitstream and was used more: with 1-2-2 both are equal, with 4-1-1 it is better.
const RECORDING: &str = r#"{"header":{"format":"kube-fpga-record","version":2,"program":"x","startedAtMs":0}}
{"rules":{}}
{"node":{"number":0,"name":"loaded","knowledge":{"known":{"receivedAtMs":0,"ageThenMs":0,"state":{"boot":1,"seq":1,"heartbeatMs":60000,"measuredAtMs":0,"windowMs":300000,"usageMs":5,"reconfigurationMs":0,"devices":[{"id":"d","slots":1,"healthy":true}],"bitstreams":[{"name":"sobel","lastUsedAgoMs":0}],"window":{"bucketMs":10000,"usageMs":[5]}}}}}}
{"node":{"number":1,"name":"idle","knowledge":{"known":{"receivedAtMs":0,"ageThenMs":0,"state":{"boot":1,"seq":1,"heartbeatMs":60000,"measuredAtMs":0,"windowMs":300000,"usageMs":0,"reconfigurationMs":0,"devices":[{"id":"d","slots":1,"healthy":true}],"window":{"bucketMs":10000}}}}}}
{"decision":{"verb":"filter","atMs":1760000000000,"nowMs":5,"namespace":"d","pod":"p","uid":"u","requirement":{"slots":1,"bitstreams":["sobel"]},"candidates":[0,1,"stranger"],"answer":{"rejected":{"unknownNode":[2]}}}}
{"decision":{"verb":"prioritize","atMs":1760000001000,"nowMs":6,"namespace":"d","pod":"p","uid":"u","requirement":{"slots":1,"bitstreams":["sobel"]},"candidates":[0,1],"answer":{"scores":[8,8]}}}
"#;

#[derive(clap::Parser)]
struct Command {
    #[command(flatten)]
    replay: ReplayArgs,
}

fn replay(recording: &str, args: &[&str]) -> (Result<(), String>, String) {
    let mut file = NamedTempFile::new().unwrap();
    file.write_all(recording.as_bytes()).unwrap();
    let command = Command::try_parse_from(["x", file.path().to_str().unwrap()].iter().chain(args)).unwrap();
    let mut out = Vec::new();
    let result = command.replay.replay(&mut out).map_err(|error| format!("{error:#}"));
    (result, String::from_utf8(out).unwrap())
}

#[test]
fn what_comes_out_as_recorded_is_fine() {
    let (result, out) = replay(RECORDING, &[]);
    assert_eq!(result, Ok(()), "{out}");
    assert_eq!(out, "2 decisions for 1 pods on 3 nodes over 1 s: 2 came out as recorded, 0 otherwise.\n");
}

#[test]
fn a_recording_of_version_1_is_replayed_by_its_rule_and_that_is_told() {
    let (result, out) = replay(&RECORDING.replace(r#""version":2"#, r#""version":1"#), &[]);
    assert_eq!(result, Ok(()), "{out}");
    assert!(out.contains("2 of them were recorded when whole nodes were compared"), "{out}");
}

#[test]
fn a_difference_is_an_error_and_is_shown() {
    let other =
        RECORDING.replace("[8,8]", "[7,8]").replace("{\"unknownNode\"", "{\"board\":[0],\"unknownNode\"");
    let (result, out) = replay(&other, &[]);
    assert_eq!(result, Err("2 of 2 decisions came out otherwise than they were recorded".to_owned()));
    for line in [
        "d/p filter at 2025-10-09T08:53:20.000Z:",
        "  - loaded: rejected: FPGA board does not match",
        "  + loaded: passes",
        "d/p prioritize at 2025-10-09T08:53:21.000Z:",
        "  - loaded: score 7",
        "  + loaded: score 8",
    ] {
        assert!(out.lines().any(|there| there == line), "{out} has no {line}");
    }
    let (_, json) = replay(&other, &["-o", "json"]);
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(
        (&json["differences"], &json["differing"][1]["nodes"][0]["recorded"]),
        (&2.into(), &"score 7".into())
    );
}

#[test]
fn other_weights_show_who_would_have_gone_elsewhere() {
    let (result, out) = replay(RECORDING, &["--weights", "4-1-1"]);
    assert_eq!(result, Ok(()));
    assert!(
        out.contains("d/p  2025-10-09T08:53:21.000Z  loaded,idle (8)  loaded (9)  same    maybe elsewhere"),
        "{out}"
    );
    assert!(out.contains("Of 1 pods, by our scores 0 would have gone elsewhere and 1 might have"), "{out}");
    let (_, out) =
        replay(RECORDING, &["--weights", "4-1-1", "--max-score", "2", "--unlabelled-nodes", "pass"]);
    assert!(out.contains("loaded (2)  +stranger"), "{out}");
    let (_, json) = replay(RECORDING, &["--weights", "4-1-1", "-o", "json"]);
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(json["whatIf"][0]["now"], serde_json::json!({"score": 9, "nodes": ["loaded"]}), "{json}");
}

#[test]
fn the_settings_of_a_file_are_tried_out_and_flags_win() {
    let mut config = NamedTempFile::new().unwrap();
    config.write_all(b"maxScore: 100\n").unwrap();
    let config = ["--config", config.path().to_str().unwrap()];
    let (result, out) = replay(RECORDING, &config);
    assert!(result.is_ok() && out.contains("0 would have gone elsewhere and 0 might"), "{out}");
    let (_, json) = replay(RECORDING, &[config[0], config[1], "-o", "json"]);
    assert!(json.contains("\"score\": 80"), "{json}");
    let (_, json) = replay(RECORDING, &[config[0], config[1], "--max-score", "1", "-o", "json"]);
    assert!(!json.contains("\"score\": 80"), "{json}");
    assert!(Command::try_parse_from(["x", "f", "--config", "/nonexistent"]).is_err());
}

#[test]
fn one_pod_alone_can_be_looked_at() {
    let (result, _) = replay(RECORDING, &["--pod", "d/p"]);
    assert_eq!(result, Ok(()));
    let (result, _) = replay(RECORDING, &["--pod", "d/other"]);
    assert_eq!(result, Err("there is no decision for pod d/other in the recording".to_owned()));
    assert!(
        Command::try_parse_from(["x", "f", "--pod", "p"])
            .is_err_and(|error| error.to_string().contains("NAMESPACE/NAME"))
    );
}

#[test]
fn the_last_line_may_be_cut_off_and_no_other() {
    let cut = &RECORDING[..RECORDING.len() - 40];
    let (result, out) = replay(cut, &[]);
    assert_eq!(result, Ok(()));
    assert!(out.contains("1 decisions") && out.contains("in the middle of a line"), "{out}");
    let (result, _) = replay(&format!("{cut}\n"), &[]);
    assert!(result.is_err_and(|error| error.contains(", line 6: it is no line of a recording")));
    let (result, _) = replay("hello\n", &[]);
    assert!(result.is_err_and(|error| error.contains("line 1")));
}
