use super::*;
use crate::fixtures::{mk_bitstream, mk_device, mk_state};
use crate::library::{AllowedNamespaces, LibraryBitstream, LibraryVariant};
use crate::node_state::{DigestPrefix, RecentBitstream};

const NOW: MonotonicTime = MonotonicTime(100_000);
const ASKING: u8 = 1;
const OTHER: u8 = 2;

fn digest(byte: u8) -> Digest {
    Digest::from_bytes([byte; 32])
}

fn container(namespace: &str, pod: &str, boards: &[&str]) -> AllocatedContainer {
    let (namespace, pod, uid) = (namespace.to_owned(), pod.to_owned(), format!("uid-of-{pod}"));
    let boards = boards.iter().map(|id| (*id).to_owned()).collect();
    AllocatedContainer { namespace, pod, uid, boards, given: BTreeMap::new() }
}

/// The pod `shop/cart` with the board `dm0`, and `mill/wheel` with `dm0` and `dm1`.
fn two_pods() -> Allocated {
    let asking = (digest(ASKING), container("shop", "cart", &["dm0"]));
    Allocated([asking, (digest(OTHER), container("mill", "wheel", &["dm0", "dm1"]))].into())
}

fn alone() -> Allocated {
    Allocated([(digest(ASKING), container("shop", "cart", &["dm0"]))].into())
}

/// A node with the board `dm0`, an a10 with four slots.
fn in_part() -> NodeState {
    NodeState { devices: vec![mk_device("intel", "a10", "1")], ..mk_state() }
}

/// The same board, with one slot and reconfigured as a whole.
fn as_whole() -> NodeState {
    let mut state = in_part();
    (state.devices[0].slots, state.devices[0].reconfigured_part) = (1, ReconfiguredPart::Board);
    state
}

fn variant(board: &str, byte: u8, region_size: u32) -> LibraryVariant {
    let board = Some(board.to_owned());
    let boards = BoardKind { vendor: Some("intel".to_owned()), board, shell: Some("1".to_owned()) };
    LibraryVariant { boards, digest: digest(byte), region_size }
}

/// A library with bitstreams for all (10), for the namespace `mill` alone (20), for another kind of board (30), and with
/// a large region (40).
fn library() -> Library {
    let mut library = Library::new(Some("library".to_owned()));
    let mut insert = |namespace: &str, name: &str, allowed, variant| {
        library.insert(namespace, name, LibraryBitstream { allowed, variants: vec![variant] });
    };
    insert("library", "sobel", AllowedNamespaces::All, variant("a10", 10, 1));
    insert("library", "secret", AllowedNamespaces::Same, variant("a10", 25, 1));
    insert("mill", "own", AllowedNamespaces::Same, variant("a10", 20, 1));
    insert("library", "other-board", AllowedNamespaces::All, variant("s10", 30, 1));
    insert("library", "large", AllowedNamespaces::All, variant("a10", 40, 5));
    library
}

fn request(bitstream: u8) -> GateRequest {
    GateRequest {
        token: digest(ASKING),
        board: "dm0".to_owned(),
        bitstream: digest(bitstream),
        origin: Origin::Client,
        residency: Residency::Absent,
        others: Others::Idle,
    }
}

fn board(state: &NodeState) -> GateBoard<'_> {
    GateBoard { state: Some(state), reservation: None, moves: Moves::Off }
}

fn verdict(allocated: &Allocated, state: &NodeState, request: &GateRequest) -> GateVerdict {
    decide(allocated, Some(&library()), board(state), request, NOW).verdict
}

fn claim(namespace: &str, pod: &str, bitstream: u8) -> Claim {
    Claim { uid: format!("uid-of-{pod}"), pod: format!("{namespace}/{pod}"), bitstream: digest(bitstream) }
}

fn first(first: Claim, stage: Stage, until: u64) -> Reservation {
    Reservation { first, stage, since: NOW, until: MonotonicTime(until), next: None }
}

fn first_of_other(bitstream: u8, stage: Stage, until: u64) -> Reservation {
    first(claim("mill", "wheel", bitstream), stage, until)
}

#[test]
fn who_asks_for_what_decides_before_anything_else() {
    let busy = |request| GateRequest { others: Others::Busy, ..request };
    let resident = |request| GateRequest { residency: Residency::Resident, ..request };
    let stranger = GateRequest { token: digest(9), ..request(10) };
    let elsewhere = GateRequest { board: "dm1".to_owned(), ..request(10) };
    let of_node = |byte| GateRequest { origin: Origin::OfNode, ..request(byte) };
    let source = |byte| GateRequest { origin: Origin::Source, ..request(byte) };
    let of_other = |byte| GateRequest { token: digest(OTHER), ..request(byte) };
    for (what, request, expected) in [
        ("a listed bitstream", request(10), None),
        ("while others are busy, in another slot", busy(request(10)), None),
        ("an own bitstream", of_other(20), None),
        ("a forged token", stranger.clone(), Some("no container of this node has the session's token")),
        ("a forged token, resident", resident(stranger), Some("no container of this node")),
        ("another board", elsewhere, Some("shop/cart does not have the board dm1; it has dm0;")),
        (
            "another namespace's bitstream",
            request(20),
            Some("no bitstream with this digest for pods of the namespace shop"),
        ),
        ("another namespace's, resident", resident(request(20)), Some("no bitstream with this digest")),
        ("a closed bitstream of the library", request(25), Some("not for pods of the namespace shop")),
        ("a closed bitstream on the node", of_node(25), Some("not for pods of the namespace shop")),
        ("an unlisted bitstream", request(99), Some("kubectl fpga bitstream push")),
        ("an unlisted file of the node", of_node(99), None),
        ("a program from source", source(99), None),
        (
            "a bitstream for other boards",
            request(30),
            Some("for intel s10 1, and the board dm0 is intel a10 1"),
        ),
        ("a region that is too large", request(40), Some("takes 5 slots, and the board dm0 has 4")),
    ] {
        let verdict = verdict(&two_pods(), &in_part(), &request);
        match (expected, &verdict) {
            (None, verdict) => assert_eq!(*verdict, GateVerdict::Allowed, "{what}"),
            (Some(part), GateVerdict::Refused(reason)) => {
                assert!(reason.to_string().contains(part), "{what}: {reason}");
            }
            (Some(_), other) => panic!("{what}: {other:?}"),
        }
    }
}

#[test]
fn what_a_container_was_given_it_may_load_on_that_board_unless_the_library_withholds_it() {
    let mut allocated = alone();
    let asking = allocated.0.get_mut(&digest(ASKING)).unwrap();
    // `mill` gives 50 to all, and the pod names it with its namespace.
    asking.given =
        [("dm0".to_owned(), [digest(50), digest(25)].into()), ("dm1".to_owned(), [digest(60)].into())].into();
    for (byte, origin, is_allowed) in [
        (50, Origin::Client, true),
        (50, Origin::OfNode, true),
        (25, Origin::Client, false),
        (60, Origin::Client, false),
    ] {
        let verdict = verdict(&allocated, &in_part(), &GateRequest { origin, ..request(byte) });
        assert_eq!(verdict == GateVerdict::Allowed, is_allowed, "{byte} {origin:?}: {verdict:?}");
    }
}

#[test]
fn without_a_library_any_bitstream_may_be_had_and_the_boards_state_is_waited_for() {
    let (allocated, state) = (two_pods(), in_part());
    let allowed = decide(&allocated, None, board(&state), &request(99), NOW);
    assert_eq!(allowed, GateDecision { verdict: GateVerdict::Allowed, reservation: None });
    let unknown = GateVerdict::Wait(WaitReason::UnknownBoard("dm0".to_owned()));
    let no_state = GateBoard { state: None, reservation: None, moves: Moves::Off };
    assert_eq!(decide(&allocated, None, no_state, &request(99), NOW).verdict, unknown);
    let no_board = NodeState { devices: Vec::new(), ..state };
    assert_eq!(decide(&allocated, None, board(&no_board), &request(99), NOW).verdict, unknown);
}

#[test]
fn a_whole_board_is_taken_from_nobody_whose_kernels_run() {
    let state = as_whole();
    let busy = GateRequest { others: Others::Busy, ..request(10) };
    let resident = GateRequest { residency: Residency::Resident, ..busy.clone() };
    let refused = GateVerdict::Refused(GateRefusal::OthersBusy(vec!["mill/wheel".to_owned()]));
    let waits = GateVerdict::Wait(WaitReason::Moving(vec!["mill/wheel".to_owned()]));
    let nobody: Option<(Stage, u64)> = None;
    for (what, allocated, moves, request, expected, first) in [
        ("busy", two_pods(), Moves::Off, &busy, &refused, nobody),
        ("busy, moves are on", two_pods(), Moves::On, &busy, &waits, Some((Stage::Moving, 103_000))),
        (
            "idle",
            two_pods(),
            Moves::Off,
            &request(10),
            &GateVerdict::Allowed,
            Some((Stage::Loading, 105_000)),
        ),
        ("resident", two_pods(), Moves::Off, &resident, &GateVerdict::Allowed, nobody),
        ("busy by the pod itself", alone(), Moves::Off, &busy, &GateVerdict::Allowed, nobody),
    ] {
        let board = GateBoard { moves, ..board(&state) };
        let decision = decide(&allocated, Some(&library()), board, request, NOW);
        assert_eq!(decision.verdict, *expected, "{what}");
        let reserved = decision.reservation.map(|reservation| {
            assert_eq!((reservation.first, reservation.next), (claim("shop", "cart", 10), None));
            (reservation.stage, reservation.until.0)
        });
        assert_eq!(reserved, first, "{what}");
    }
}

#[test]
fn of_two_conflicting_requests_the_first_wins_and_the_other_is_told_what_it_waits_for() {
    let state = as_whole();
    let mut loaded = as_whole();
    let bitstream = RecentBitstream { digest: Some(DigestPrefix::from(&digest(30))), ..mk_bitstream("x", 0) };
    (loaded.bitstreams, loaded.devices[0].loaded) = (vec![bitstream], vec![0]);
    let waits =
        GateVerdict::Wait(WaitReason::Conflict { pod: "mill/wheel".to_owned(), bitstream: digest(30) });
    let (loading, moving) = (Stage::Loading, Stage::Moving);
    let own = first(claim("shop", "cart", 30), moving, 100_001);
    for (what, state, first, expected, stays) in [
        ("another's load", &state, first_of_other(30, loading, 100_001), &waits, true),
        ("another's wait", &state, first_of_other(30, moving, 100_001), &waits, true),
        (
            "another's load of the same",
            &state,
            first_of_other(10, loading, 100_001),
            &GateVerdict::Allowed,
            false,
        ),
        ("its time is over", &state, first_of_other(30, loading, 100_000), &GateVerdict::Allowed, false),
        ("it is loaded", &loaded, first_of_other(30, loading, 100_001), &GateVerdict::Allowed, false),
        ("others have yet to go", &loaded, first_of_other(30, moving, 100_001), &waits, true),
        ("an own one", &state, own, &GateVerdict::Allowed, false),
    ] {
        let board = GateBoard { reservation: Some(&first), ..board(state) };
        let decision = decide(&two_pods(), Some(&library()), board, &request(10), NOW);
        assert_eq!(decision.verdict, *expected, "{what}");
        let reserved = decision.reservation.unwrap();
        let own = claim("shop", "cart", 10);
        let (comes_first, comes_next) = if stays { (first.first, Some(own)) } else { (own, None) };
        assert_eq!(reserved.first, comes_first, "{what}");
        assert_eq!(reserved.next.map(|(next, _)| next), comes_next, "{what}");
    }
    let text = waits.answer();
    assert!(matches!(text, GateAnswer::Wait(reason) if reason.starts_with("another request has the board")));
}

#[test]
fn a_request_that_is_refused_or_takes_nothing_leaves_the_first_one_where_it_is() {
    let (state, first) = (as_whole(), first_of_other(30, Stage::Moving, 100_001));
    let ended = first_of_other(30, Stage::Moving, 100_000);
    let resident = GateRequest { residency: Residency::Resident, ..request(10) };
    let of_first = GateRequest { token: digest(OTHER), others: Others::Busy, ..request(10) };
    for (request, before, after) in [
        (request(99), &first, Some(&first)),
        (resident, &first, Some(&first)),
        (of_first, &first, Some(&first)),
        (request(99), &ended, None),
    ] {
        let board = GateBoard { reservation: Some(before), ..board(&state) };
        let decision = decide(&two_pods(), Some(&library()), board, &request, NOW);
        assert_eq!(decision.reservation.as_ref(), after, "{request:?}");
    }
}

#[test]
fn a_pod_that_asks_again_and_again_gives_way_to_the_one_that_waits() {
    let (state, allocated, library) = (as_whole(), two_pods(), library());
    let mut reservation = None;
    let mut ask = |token: u8, bitstream: u8, others: Others, seconds: u64| {
        let request = GateRequest { token: digest(token), others, ..request(bitstream) };
        let board = GateBoard { reservation: reservation.as_ref(), moves: Moves::On, ..board(&state) };
        let decision = decide(&allocated, Some(&library), board, &request, MonotonicTime(1_000 * seconds));
        reservation = decision.reservation;
        decision.verdict
    };
    let waits_for = |pod: &str, bitstream| {
        GateVerdict::Wait(WaitReason::Conflict { pod: pod.to_owned(), bitstream: digest(bitstream) })
    };
    // The second one is for the namespace of the other pod alone.
    let (cart, wheel) = (10, 20);
    for seconds in 0..5 {
        assert_eq!(ask(ASKING, cart, Others::Idle, seconds), GateVerdict::Allowed, "at {seconds} s");
        assert_eq!(ask(OTHER, wheel, Others::Idle, seconds), waits_for("shop/cart", cart), "at {seconds} s");
    }
    assert_eq!(ask(ASKING, cart, Others::Idle, 5), waits_for("mill/wheel", wheel), "its time is over");
    assert_eq!(
        ask(OTHER, wheel, Others::Busy, 6),
        GateVerdict::Wait(WaitReason::Moving(vec!["shop/cart".into()]))
    );
    for seconds in 7..306 {
        let waits = ask(OTHER, wheel, Others::Busy, seconds);
        assert!(matches!(waits, GateVerdict::Wait(WaitReason::Moving(_))), "at {seconds} s: {waits:?}");
        assert_eq!(
            ask(ASKING, cart, Others::Idle, seconds),
            waits_for("mill/wheel", wheel),
            "at {seconds} s"
        );
    }
    assert_eq!(ask(OTHER, wheel, Others::Busy, 306), waits_for("shop/cart", cart), "five minutes are over");
    // The one whose turn it is does not ask any more.
    assert_eq!(ask(OTHER, wheel, Others::Idle, 309), GateVerdict::Allowed);
}
