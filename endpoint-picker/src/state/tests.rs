use super::*;
use crate::function::Function;
use fpga_core::bitstream::BitstreamId;
use fpga_core::cordon::CordonedBoards;
use fpga_core::device::Health;
use fpga_core::fixtures::{mk_bitstream, mk_board, mk_state};
use fpga_core::node_state::{DeviceState, NodeState};
use fpga_node_stream::server::receiver::{Taken, UnknownNode};
use proptest::prelude::*;

pub(super) const T0: MonotonicTime = MonotonicTime(1_000_000);
const WRITTEN: Seen = Seen::Annotation { age: Millis::ZERO };

pub(super) fn address(number: u16) -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], number))
}

pub(super) fn function(bitstream: &str, replicas: &[(u16, &str)]) -> Function {
    let replica = |(port, node): &(u16, &str)| Replica {
        address: address(*port),
        hosts: Vec::new(),
        pod: Some(format!("pod-{port}").into()),
        node: Some((*node).into()),
        boards: Vec::new(),
        asks_for_board: true,
    };
    Function {
        bitstream: Some(BitstreamId::Name(bitstream.to_owned())),
        max_waiting: None,
        replicas: replicas.iter().map(replica).collect(),
    }
}

pub(super) fn name(name: &str) -> FunctionName {
    FunctionName::new("default", name)
}

/// The state of a node with one board with one slot, and the bitstream in it.
fn node_state(seq: u64, loaded: Option<&str>) -> NodeState {
    let indexes = if loaded.is_some() { [0].as_slice() } else { &[] };
    NodeState {
        seq,
        devices: vec![DeviceState { slots: 1, ..mk_board("board-0", indexes) }],
        bitstreams: loaded.iter().map(|name| mk_bitstream(name, 5_000)).collect(),
        ..mk_state()
    }
}

/// Two functions with two replicas each, on the same two nodes, and the bitstream of one on each node.
pub(super) fn two_nodes() -> State {
    let mut state = State::default();
    state.set_function(&name("sobel"), &function("sobel", &[(1, "a"), (2, "b")]), T0);
    state.set_function(&name("matmul"), &function("matmul", &[(3, "a"), (4, "b")]), T0);
    for (node, uid, loaded) in [("a", "ua", "sobel"), ("b", "ub", "matmul")] {
        state.set_node(node, uid, T0);
        assert_eq!(state.learn(node, uid, &node_state(1, Some(loaded)), WRITTEN, T0), Ok(Taken::Yes));
    }
    state
}

pub(super) fn choose(state: &mut State, function: &str, now: MonotonicTime) -> Result<Choice, Refusal> {
    let function = name(function);
    let request = Request { function: Some(&function), subset: None, most: 3, max_waiting: 10 };
    state.choose(request, now)
}

fn ports(choice: &Choice) -> Vec<u16> {
    choice.endpoints.iter().map(SocketAddr::port).collect()
}

#[test]
fn a_request_goes_to_the_board_with_its_bitstream_and_the_other_replica_is_next() {
    let mut state = two_nodes();
    let sobel = choose(&mut state, "sobel", T0).unwrap();
    assert_eq!((ports(&sobel), sobel.basis), (vec![1, 2], Basis::Resident));
    let matmul = choose(&mut state, "matmul", T0).unwrap();
    assert_eq!((ports(&matmul), matmul.basis), (vec![4, 3], Basis::Resident));
    let third = choose(&mut state, "sobel", T0).unwrap();
    assert_eq!(third.basis, Basis::Queue, "both boards are busy");
    state.end(matmul.assignment, T0);
    let fourth = choose(&mut state, "sobel", T0).unwrap();
    assert_eq!(state.census(T0).in_flight, 3);
    assert_eq!(
        fourth.basis,
        if third.assignment.replica == sobel.assignment.replica { Basis::Load } else { Basis::Queue }
    );
}

/// The state of a node with two boards with one slot each, and the bitstreams in them.
fn two_boards(seq: u64, loaded: [&str; 2], second: Health) -> NodeState {
    let board = |id, index| DeviceState { slots: 1, ..mk_board(id, &[index]) };
    NodeState {
        seq,
        devices: vec![board("board-0", 0), DeviceState { health: second, ..board("board-1", 1) }],
        bitstreams: loaded.map(|name| mk_bitstream(name, 5_000)).into(),
        ..mk_state()
    }
}

/// A function with a replica on these boards of the node `a`, and one on the only board of `b`, both with another
/// function's bitstream but for board-1.
fn one_with_boards(boards: &[&str]) -> State {
    let mut state = two_nodes();
    let mut sobel = function("sobel", &[(1, "a"), (2, "b")]);
    sobel.replicas[0].boards = boards.iter().map(|board| (*board).into()).collect();
    state.set_function(&name("sobel"), &sobel, T0);
    let of_a = two_boards(2, ["matmul", "sobel"], Health::Healthy);
    assert_eq!(state.learn("a", "ua", &of_a, WRITTEN, T0), Ok(Taken::Yes));
    state
}

#[test]
fn a_replicas_second_board_serves_its_requests_as_the_first_does() {
    let mut state = one_with_boards(&["board-0", "board-1"]);
    let ask = |state: &mut State| {
        let choice = choose(state, "sobel", T0).unwrap();
        (choice.endpoints[0].port(), choice.basis, choice.board.clone(), choice.assignment)
    };
    let (port, basis, board, warm) = ask(&mut state);
    assert_eq!((port, basis, board.as_deref()), (1, Basis::Resident, Some("board-1")), "the warm one");
    let (port, basis, board, _) = ask(&mut state);
    assert_eq!((port, basis, board.as_deref()), (1, Basis::Load, Some("board-0")));
    let (port, basis, board, _) = ask(&mut state);
    assert_eq!((port, basis, board), (2, Basis::Load, None), "a replica with one board is told of none");
    assert_eq!(ask(&mut state).1, Basis::Queue);
    assert_eq!((state.in_flight_at(address(1)), state.functions(4.0, T0)[1].replicas[0].slots), (3, 2));
    state.end(warm, T0);
    assert_eq!(state.in_flight_at(address(1)), 2);
}

#[test]
fn a_replicas_board_that_is_unhealthy_or_not_known_is_not_what_its_requests_go_to() {
    let mut state = one_with_boards(&["board-0", "board-1", "board-7"]);
    let sick = two_boards(3, ["sobel", "sobel"], Health::Unhealthy);
    assert_eq!(state.learn("a", "ua", &sick, WRITTEN, T0), Ok(Taken::Yes));
    let bases: Vec<(u16, Option<Arc<str>>)> = (0..3)
        .map(|_| choose(&mut state, "sobel", T0).unwrap())
        .map(|choice| (choice.endpoints[0].port(), choice.board))
        .collect();
    let board_0: Option<Arc<str>> = Some("board-0".into());
    assert_eq!(bases[..2], [(1, board_0), (2, None)]);
    assert_ne!(bases[2].1, Some("board-1".into()));
    let later = T0 + Millis::from_secs(200);
    let unknown = choose(&mut state, "sobel", later).unwrap();
    assert_eq!(unknown.basis, Basis::InFlight, "without fresh states the replicas are compared as wholes");
}

#[test]
fn a_cordoned_board_is_known_and_gets_requests_only_while_no_other_replica_has_an_idle_slot() {
    let mut state = two_nodes();
    let mut cordoned = node_state(2, Some("sobel"));
    cordoned.cordon(&CordonedBoards::parse(r#"{"board-0":{"reason":"fan","sinceMs":5}}"#).unwrap());
    assert_eq!(state.learn("a", "ua", &cordoned, WRITTEN, T0), Ok(Taken::Yes));
    assert_eq!(state.census(T0).unknown_boards, 0);
    assert_eq!(state.functions(4.0, T0)[1].recommended_replicas, 1, "one board is in rotation");
    let first = choose(&mut state, "sobel", T0).unwrap();
    assert_eq!((ports(&first), first.basis), (vec![2, 1], Basis::Load));
    let second = choose(&mut state, "sobel", T0).unwrap();
    assert_eq!((ports(&second)[0], second.basis), (1, Basis::Cordoned));
    let replica = &state.functions(4.0, T0)[1].replicas[0];
    assert_eq!((replica.fresh, replica.slots, replica.in_flight), (true, 1, 1));
    assert_eq!(replica.cordons, [("board-0".to_owned(), "fan".to_owned())].into());

    // The board answers no more, and is unknown, in rotation or not.
    let mut sick = NodeState { seq: 3, ..node_state(3, Some("sobel")) };
    sick.devices[0].health = Health::Unhealthy;
    sick.cordon(&CordonedBoards::parse(r#"{"board-0":{"sinceMs":5}}"#).unwrap());
    assert_eq!(state.learn("a", "ua", &sick, WRITTEN, T0), Ok(Taken::Yes));
    assert!(!state.functions(4.0, T0)[1].replicas[0].fresh);
    assert_eq!(state.learn("a", "ua", &node_state(4, Some("sobel")), WRITTEN, T0), Ok(Taken::Yes));
    assert!(state.functions(4.0, T0)[1].replicas[0].cordons.is_empty(), "the board is back");
}

#[test]
fn a_pod_that_asks_for_no_board_is_on_none() {
    let mut state = two_nodes();
    let mut plain = function("sobel", &[(1, "a"), (2, "b")]);
    plain.replicas[0].asks_for_board = false;
    state.set_function(&name("sobel"), &plain, T0);
    let replica = |state: &State| state.functions(4.0, T0)[1].replicas[0].clone();
    assert_eq!((replica(&state).board, replica(&state).slots), (None, 0));
    for _ in 0..4 {
        choose(&mut state, "sobel", T0).unwrap();
    }
    assert!(replica(&state).in_flight > 0, "the pod still serves requests");
    let board = state.board_ids[&BoardName { node: "a".into(), device: "board-0".into() }];
    assert_eq!(state.boards[&board].tracked.in_flight(), 0);
}

#[test]
fn requests_stay_counted_when_a_replica_gets_other_boards() {
    let mut state = one_with_boards(&["board-0", "board-1"]);
    let held: Vec<Assignment> = (0..2).map(|_| choose(&mut state, "sobel", T0).unwrap().assignment).collect();
    let on = |state: &State, device: &str| {
        let id = state.board_ids.get(&BoardName { node: "a".into(), device: device.into() });
        id.map_or(0, |id| state.boards[id].tracked.in_flight())
    };
    assert_eq!((on(&state, "board-0"), on(&state, "board-1")), (1, 1));
    let mut changed = function("sobel", &[(1, "a"), (2, "b")]);
    changed.replicas[0].boards = vec!["board-1".into(), "board-2".into()];
    state.set_function(&name("sobel"), &changed, T0);
    assert_eq!((on(&state, "board-0"), on(&state, "board-1"), on(&state, "board-2")), (0, 2, 0));
    held.iter().for_each(|held| state.end(*held, T0));
    assert_eq!((on(&state, "board-1"), state.census(T0).in_flight), (0, 0));
}

#[test]
fn without_a_fresh_state_the_fewest_requests_in_flight_decide() {
    let mut state = two_nodes();
    let later = T0 + Millis::from_secs(200);
    assert_eq!(state.census(later).unknown_boards, 2);
    let bases: Vec<(u16, Basis)> = (0..4)
        .map(|_| choose(&mut state, "sobel", later).unwrap())
        .map(|choice| (choice.endpoints[0].port(), choice.basis))
        .collect();
    assert_eq!(bases, [1, 2, 1, 2].map(|port| (port, Basis::InFlight)));
    let now = later + Millis(1);
    let again = state.learn("a", "ua", &node_state(1, None), WRITTEN, now);
    assert_eq!(again, Ok(Taken::Outdated), "the same annotation, told again, makes nothing fresh");
    state.set_node("a", "new-uid", now);
    assert_eq!(state.learn("a", "ua", &node_state(2, None), WRITTEN, now), Err(UnknownNode::Uid));
    assert_eq!(
        state.learn("a", "new-uid", &node_state(1, None), WRITTEN, now),
        Ok(Taken::Yes),
        "another node"
    );
    assert_eq!(state.census(now).fresh_boards, 1);
}

#[test]
fn the_newer_of_annotation_and_stream_counts_and_a_lost_stream_leaves_the_annotation() {
    let mut state = two_nodes();
    let mut learn = |seq, seen, at| {
        let taken = state.learn("a", "ua", &node_state(seq, None), seen, at).unwrap();
        let census = state.census(at);
        (taken, census.nodes_by_annotation, census.nodes_by_stream)
    };
    assert_eq!(learn(5, Seen::Stream, T0), (Taken::Yes, 1, 1));
    assert_eq!(learn(4, WRITTEN, T0), (Taken::Outdated, 1, 1), "the annotation was overtaken");
    assert_eq!(learn(5, Seen::Stream, T0), (Taken::Outdated, 1, 1), "a repeat makes nothing younger");
    assert_eq!(learn(6, WRITTEN, T0), (Taken::Yes, 2, 0), "the stream is lost");
    assert_eq!(learn(7, Seen::Stream, T0), (Taken::Yes, 1, 1), "and comes back");
    let later = T0 + Millis::from_secs(200);
    assert_eq!(learn(6, WRITTEN, later), (Taken::Outdated, 0, 0), "that annotation is known, and as old");
    assert_eq!(learn(2, Seen::Stream, later), (Taken::Yes, 0, 1), "a stale state outdates nothing");
}

#[test]
fn an_annotation_is_as_old_as_it_was_at_first_sight() {
    let mut state = two_nodes();
    state.set_node("c", "uc", T0);
    let stale = Seen::Annotation { age: node_state(1, None).stale_after() };
    assert_eq!(state.learn("c", "uc", &node_state(1, None), stale, T0), Ok(Taken::Yes));
    assert_eq!(state.census(T0).nodes_by_annotation, 2, "of the three, one was written long ago");
    assert_eq!(state.learn("c", "uc", &node_state(2, None), stale, T0), Ok(Taken::Yes));
    assert_eq!(state.census(T0).nodes_by_annotation, 3);
}

#[test]
fn requests_in_flight_are_counted_exactly_through_all_changes() {
    let mut state = two_nodes();
    let first = choose(&mut state, "sobel", T0).unwrap();
    let second = choose(&mut state, "sobel", T0).unwrap();
    assert_eq!(state.in_flight_at(address(1)) + state.in_flight_at(address(2)), 2);
    // The boards of the pods become known otherwise than by the node.
    let mut changed = function("sobel", &[(1, "a"), (2, "b")]);
    changed.replicas[0].boards = vec!["board-7".into()];
    state.set_function(&name("sobel"), &changed, T0);
    assert_eq!(state.census(T0).in_flight, 2);
    state.end(first.assignment, T0);
    assert_eq!(state.census(T0).in_flight, 1);
    // The pod of the other one is gone, and with it its request.
    state.set_function(&name("sobel"), &function("sobel", &[(9, "a")]), T0);
    assert_eq!(state.census(T0).in_flight, 0);
    state.end(second.assignment, T0);
    state.end(first.assignment, T0);
    assert_eq!(state.census(T0).in_flight, 0, "what is gone ends once");
    assert_eq!(ports(&choose(&mut state, "sobel", T0).unwrap()), [9]);
    state.remove_function(&name("sobel"), T0);
    state.remove_function(&name("matmul"), T0);
    state.forget_node("a", T0);
    state.forget_node("b", T0);
    assert_eq!(state.census(T0), Census::default());
    assert!(state.boards.is_empty() && state.board_ids.is_empty() && state.hosts.is_empty());
}

#[test]
fn a_new_pod_with_an_old_ones_address_begins_without_its_requests() {
    let mut state = two_nodes();
    for _ in 0..4 {
        choose(&mut state, "sobel", T0).unwrap();
    }
    let mut changed = function("sobel", &[(1, "a"), (2, "b")]);
    changed.replicas[0].pod = Some("another".into());
    state.set_function(&name("sobel"), &changed, T0);
    assert_eq!(state.in_flight_at(address(1)), 0);
    assert_eq!(state.census(T0).in_flight, state.in_flight_at(address(2)));
}

#[test]
fn only_candidates_are_chosen_and_they_tell_the_function_where_nothing_else_does() {
    let mut state = two_nodes();
    let mut choose = |function: Option<&str>, ports: &[u16]| {
        let (function, subset) = (function.map(name), ports.iter().map(|port| address(*port)).collect());
        let request =
            Request { function: function.as_ref(), subset: Some(&subset), most: 3, max_waiting: 10 };
        state.choose(request, T0).map(|choice| choice.endpoints.iter().map(SocketAddr::port).collect())
    };
    assert_eq!(choose(Some("sobel"), &[2, 77]), Ok(vec![2]));
    assert_eq!(choose(None, &[4]), Ok(vec![4]));
    for (function, ports) in
        [(Some("sobel"), [].as_slice()), (Some("sobel"), &[3, 4]), (None, &[77]), (None, &[])]
    {
        assert_eq!(choose(function, ports), Err(Refusal::NoEndpoint), "{function:?} {ports:?}");
    }
}

#[test]
fn a_gateway_may_name_a_pod_by_another_address_and_port_than_ours_and_gets_its_own_back() {
    let mut state = two_nodes();
    let at = |text: &str| -> SocketAddr { text.parse().unwrap() };
    let mut changed = function("sobel", &[(1, "a"), (2, "b")]);
    for (number, replica) in changed.replicas.iter_mut().enumerate() {
        replica.address = at(&format!("10.0.0.{number}:8080"));
        replica.hosts = vec![replica.address.ip(), format!("fd00::{number}").parse().unwrap()];
    }
    state.set_function(&name("sobel"), &changed, T0);
    let mut choose = |function: Option<&str>, candidates: &[&str]| {
        let (function, subset) = (function.map(name), candidates.iter().map(|text| at(text)).collect());
        let request =
            Request { function: function.as_ref(), subset: Some(&subset), most: 3, max_waiting: 10 };
        let choice = state.choose(request, T0)?;
        let first = choice.endpoints[0];
        assert_eq!(state.served(choice.assignment, first, T0), choice.assignment, "it is the replica's own");
        assert_eq!(state.in_flight_at(first), 1);
        state.end(choice.assignment, T0);
        Ok(choice.endpoints.iter().map(ToString::to_string).collect::<Vec<_>>())
    };
    for function in [Some("sobel"), None] {
        assert_eq!(choose(function, &["[fd00::1]:9000"]).unwrap(), ["[fd00::1]:9000"]);
        assert_eq!(
            choose(function, &["10.0.0.1:9000", "10.0.0.0:9000"]).unwrap(),
            ["10.0.0.0:9000", "10.0.0.1:9000"]
        );
        // One address for each pod: the one that is ours, else the least port.
        assert_eq!(choose(function, &["10.0.0.1:9001", "10.0.0.1:8080"]).unwrap(), ["10.0.0.1:8080"]);
        assert_eq!(choose(function, &["10.0.0.1:9002", "10.0.0.1:9001"]).unwrap(), ["10.0.0.1:9001"]);
        assert_eq!(choose(function, &["10.0.0.7:8080"]), Err(Refusal::NoEndpoint));
    }
    state.remove_function(&name("sobel"), T0);
    assert_eq!(state.in_flight_at(at("[fd00::1]:9000")), 0);
    assert_eq!(state.hosts.len(), 1, "the other function's");
}

#[test]
fn too_many_waiting_requests_no_replica_and_no_function_are_told_apart() {
    let mut state = two_nodes();
    assert_eq!(choose(&mut state, "other", T0), Err(Refusal::UnknownFunction));
    let mut limited = function("sobel", &[(1, "a"), (2, "b")]);
    limited.max_waiting = Some(1);
    state.set_function(&name("sobel"), &limited, T0);
    let taken: Vec<_> = (0..3).map(|_| choose(&mut state, "sobel", T0).unwrap()).collect();
    assert_eq!(choose(&mut state, "sobel", T0), Err(Refusal::TooManyWaiting));
    state.end(taken[0].assignment, T0);
    assert!(choose(&mut state, "sobel", T0).is_ok());
    state.set_function(&name("matmul"), &function("matmul", &[]), T0);
    assert_eq!(choose(&mut state, "matmul", T0), Err(Refusal::NoEndpoint));
}

#[test]
fn a_function_can_lower_the_limit_of_waiting_requests_and_cannot_raise_it() {
    let waiting = |limit_of_function| {
        let mut state = two_nodes();
        let function =
            Function { max_waiting: limit_of_function, ..function("sobel", &[(1, "a"), (2, "b")]) };
        state.set_function(&name("sobel"), &function, T0);
        let slots = 2;
        (0..100).take_while(|_| choose(&mut state, "sobel", T0).is_ok()).count() - slots
    };
    assert_eq!([None, Some(4), Some(11), Some(usize::MAX)].map(waiting), [10, 4, 10, 10]);
}

#[test]
fn a_replica_that_the_gateway_went_past_is_avoided_for_a_while() {
    let mut state = two_nodes();
    let choice = choose(&mut state, "sobel", T0).unwrap();
    let other = state.served(choice.assignment, address(2), T0);
    assert_ne!(other, choice.assignment);
    assert_eq!((state.in_flight_at(address(1)), state.in_flight_at(address(2))), (0, 1));
    assert_eq!(ports(&choose(&mut state, "sobel", T0).unwrap()), [2]);
    let later = T0 + AVOIDED_FOR;
    assert_eq!(ports(&choose(&mut state, "sobel", later).unwrap()), [1, 2]);
    assert_eq!(state.served(other, address(99), T0), other, "nobody knows this one");
    let served = state.served(other, address(1), later);
    assert_eq!(state.served(served, address(1), later), served);
    state.served(served, address(2), later);
    assert_eq!(choose(&mut state, "sobel", later).unwrap().endpoints.len(), 2, "all are avoided, so none is");
}

proptest! {
    #[test]
    fn counts_are_exact_whatever_happens(
        steps in prop::collection::vec((0_u8..6, 0_usize..8, 0_u64..3_000), 0..80),
    ) {
        let mut state = two_nodes();
        let (mut now, mut held, mut seq) = (T0, Vec::<Assignment>::new(), 1);
        for (what, which, later) in steps {
            now += Millis(later);
            match what {
                0 | 1 => {
                    let function = if which % 2 == 0 { "sobel" } else { "matmul" };
                    let choice = choose(&mut state, function, now);
                    held.extend(choice.map(|choice| choice.assignment));
                }
                2 if !held.is_empty() => {
                    let replica = held.swap_remove(which % held.len());
                    state.end(replica, now);
                }
                3 if !held.is_empty() => {
                    let place = which % held.len();
                    held[place] = state.served(held[place], address([1, 2, 3, 4, 99][usize::try_from(later % 5).unwrap()]), now);
                }
                4 => {
                    seq += 1;
                    let loaded = [None, Some("sobel"), Some("matmul")][which % 3];
                    state.learn("a", "ua", &node_state(seq, loaded), WRITTEN, now).unwrap();
                }
                _ => {
                    let all = [(1, "a"), (2, "b")];
                    let mut changed = function("sobel", &all[..1 + which % 2]);
                    let boards: [&[&str]; 4] = [&[], &["board-0"], &["board-0", "board-1"], &["board-1"]];
                    changed.replicas[0].boards = boards[which / 2].iter().map(|board| (*board).into()).collect();
                    state.set_function(&name("sobel"), &changed, now);
                    held.retain(|held| state.replicas.contains_key(&held.replica));
                }
            }
            prop_assert_eq!(state.census(now).in_flight, held.len());
            let of_functions: usize = state.functions.values().map(|function| function.in_flight).sum();
            prop_assert_eq!(of_functions, held.len());
            let of_uses = |entry: &ReplicaEntry| entry.boards.iter().map(|used| used.in_flight).sum::<usize>();
            prop_assert!(state.replicas.values().all(|entry| of_uses(entry) == entry.in_flight));
            let of_boards: usize = state.boards.values().map(|board| board.tracked.in_flight()).sum();
            prop_assert_eq!(of_boards, held.len());
        }
    }
}
