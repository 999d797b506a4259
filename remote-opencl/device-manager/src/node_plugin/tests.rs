use super::*;
use fpga_board::dispatch::policy::DispatchRules;
use fpga_core::bitstream::BitstreamId;
use fpga_core::gate::{Others, Residency};
use fpga_session::reporting::Reports;
use std::io::{BufRead as _, BufReader, Write as _};
use std::num::NonZeroU32;
use std::os::unix::net::UnixListener;
use std::thread;

/// What a plugin writes to each connection in turn.
type Lines = &'static [&'static str];

const ALLOWED: &str = "{\"version\":1,\"answer\":\"allowed\"}\n";
const WAIT: &str = "{\"version\":1,\"answer\":{\"wait\":\"others go first\"}}\n";
const REFUSED: &str = "{\"version\":1,\"answer\":{\"refused\":\"not listed\"}}\n";

fn gate(socket: &Path, patience: Duration) -> NodePluginGate {
    let rules = DispatchRules::default();
    NodePluginGate::new(socket, patience, Arc::new(Dispatcher::new(NonZeroU32::MIN, rules, Reports::off())))
}

fn question(origin: Origin) -> Question {
    let bitstream = Digest::from_bytes([2; 32]);
    Question {
        session: SessionId(1),
        tenant: Tenant::new("shop"),
        token: Some(Digest::from_bytes([1; 32])),
        device: "dm0".to_owned(),
        bitstream,
        name: BitstreamId::Digest(bitstream),
        origin,
        residency: Residency::Absent,
        others: Others::Idle,
    }
}

fn verdict(gate: &NodePluginGate, question: &Question) -> Verdict {
    match gate.may_reconfigure(question) {
        GateAnswer::Now(verdict) => verdict,
        GateAnswer::Later(later) => later(),
    }
}

/// Answers the next connection so, and returns its request.
fn answer(listener: &UnixListener, line: &str) -> GateRequest {
    let (mut stream, _) = listener.accept().unwrap();
    let mut request = Vec::new();
    BufReader::new(&stream).read_until(b'\n', &mut request).unwrap();
    stream.write_all(line.as_bytes()).unwrap();
    GateRequest::parse(&request).unwrap()
}

/// Asks a plugin that answers its connections so. Returns the verdict and the requests.
fn asked(lines: Lines, origin: Origin) -> (Verdict, Vec<GateRequest>) {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("gate.sock");
    let listener = UnixListener::bind(&socket).unwrap();
    let plugin = thread::spawn(move || lines.iter().map(|line| answer(&listener, line)).collect());
    let verdict = verdict(&gate(&socket, Duration::from_secs(60)), &question(origin));
    (verdict, plugin.join().unwrap())
}

#[test]
fn the_plugin_decides_and_is_asked_again_while_it_says_wait_or_ends_in_the_middle_of_an_answer() {
    let cases: [(Lines, Verdict); 5] = [
        (&[ALLOWED], Verdict::Allowed),
        (&[REFUSED], Verdict::Refused("not listed".to_owned())),
        (&[WAIT, WAIT, ALLOWED], Verdict::Allowed),
        (&["", "{\"version\":1,\"answer\":\"allo", "{}\n", ALLOWED], Verdict::Allowed),
        (&["{\"version\":1,\"answer\":\"all", REFUSED], Verdict::Refused("not listed".to_owned())),
    ];
    for (lines, expected) in cases {
        let (verdict, requests) = asked(lines, Origin::Client);
        assert_eq!(verdict, expected, "{lines:?}");
        assert_eq!(requests.len(), lines.len());
        assert!(requests.iter().all(|request| {
            (request.token, request.board.as_str()) == (Digest::from_bytes([1; 32]), "dm0")
        }));
    }
}

#[test]
fn a_build_from_source_holds_the_board_and_waits_for_nobody() {
    let (verdict, _) = asked(&[WAIT], Origin::Source);
    let Verdict::Refused(reason) = verdict else { panic!("{verdict:?}") };
    let waited = reason.strip_prefix("others go first; after ").and_then(|rest| rest.split_once(" s"));
    let seconds: u64 = waited.unwrap_or_else(|| panic!("{reason}")).0.parse().unwrap();
    // A gate that waited would refuse after its patience of 60 s.
    assert!(seconds < 50, "{reason}");
}

#[test]
fn a_plugin_that_is_away_or_says_nothing_refuses_nobody_for_longer_than_the_patience() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("gate.sock");
    let away = verdict(&gate(&socket, Duration::from_millis(300)), &question(Origin::Client));
    let Verdict::Refused(reason) = away else { panic!("{away:?}") };
    assert!(
        reason.contains("the node plugin gives no answer") && reason.contains("try again later"),
        "{reason}"
    );
    let listener = UnixListener::bind(&socket).unwrap();
    let silent = verdict(&gate(&socket, Duration::from_millis(300)), &question(Origin::Client));
    assert!(matches!(silent, Verdict::Refused(reason) if reason.contains("try again later")));
    drop(listener);
}

#[test]
fn where_the_last_question_has_no_answer_the_verdict_has_the_reason_that_the_plugin_gave_before() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("gate.sock");
    let listener = UnixListener::bind(&socket).unwrap();
    let asked =
        thread::spawn(move || verdict(&gate(&socket, Duration::from_secs(2)), &question(Origin::Client)));
    answer(&listener, WAIT);
    // The next connection is neither taken nor refused.
    let verdict = asked.join().unwrap();
    drop(listener);
    let Verdict::Refused(reason) = verdict else { panic!("{verdict:?}") };
    assert!(reason.starts_with("others go first; after ") && reason.contains("try again later"), "{reason}");
}

#[test]
fn a_session_without_a_token_is_refused_and_a_tenant_has_so_many_open_questions() {
    let gate = gate(Path::new("/nowhere"), Duration::ZERO);
    let no_token = Question { token: None, ..question(Origin::Client) };
    assert!(matches!(gate.may_reconfigure(&no_token), GateAnswer::Now(Verdict::Refused(_))));
    let mut open: Vec<GateAnswer> =
        (0..MAX_OPEN).map(|_| gate.may_reconfigure(&question(Origin::Client))).collect();
    assert!(open.iter().all(|answer| matches!(answer, GateAnswer::Later(_))));
    let answer = gate.may_reconfigure(&question(Origin::Client));
    assert!(matches!(&answer, GateAnswer::Now(Verdict::Refused(reason)) if reason.contains("too many")));
    let other = Question { tenant: Tenant::new("mill"), ..question(Origin::Client) };
    assert!(matches!(gate.may_reconfigure(&other), GateAnswer::Later(_)));
    open.pop();
    assert!(matches!(gate.may_reconfigure(&question(Origin::Client)), GateAnswer::Later(_)));
}
