use super::*;
use fpga_cluster::allocation::Shortage;
use fpga_core::cordon::CordonedBoards;
use fpga_core::fixtures::{mk_board, mk_state};
use fpga_core::matching::Rejection;
use fpga_core::node_state::DeviceState;
use fpga_core::units::Millis;
use proptest::prelude::*;

const LIMIT: u32 = 16;

/// A node with these healthy, idle boards.
fn mk_node(boards: &[&str]) -> NodeState {
    NodeState { devices: boards.iter().map(|id| mk_board(id, &[])).collect(), ..mk_state() }
}

fn mk_owner(pod: &str) -> Owner {
    Owner { namespace: "shop".into(), pod: pod.into(), uid: format!("uid-{pod}"), container: "main".into() }
}

fn ids(instances: &[&str]) -> BTreeSet<InstanceId> {
    instances.iter().map(|id| InstanceId::from((*id).to_owned())).collect()
}

fn holder(owner: &Owner, instances: &[&str]) -> Holder {
    Holder {
        namespace: owner.namespace.clone(),
        pod: owner.pod.clone(),
        container: owner.container.clone(),
        instances: ids(instances),
    }
}

/// The plugin's state with short ways to the events.
#[derive(Default)]
struct Bed(Allocations);

impl Bed {
    fn allocate(&mut self, id: &str, instances: &[&str]) -> AllocationId {
        let id = AllocationId::of(id);
        let acts = self.0.decide(Event::Allocated { id: id.clone(), instances: ids(instances) }).unwrap();
        assert_eq!(acts, [Act::MakeFolder(id.clone())]);
        id
    }

    fn start(
        &mut self,
        instances: &[&str],
        owner: &Owner,
        boards: &[&str],
        token: &str,
    ) -> Result<Vec<Act>, Refusal> {
        self.start_on(&mk_node(boards), instances, owner, token)
    }

    fn start_on(
        &mut self,
        node: &NodeState,
        instances: &[&str],
        owner: &Owner,
        token: &str,
    ) -> Result<Vec<Act>, Refusal> {
        let requirement = Requirement::default();
        self.0.decide(Event::Starts(Start {
            instances: &ids(instances),
            owner: owner.clone(),
            workload: None,
            requirement: &requirement,
            meanings: &Meanings::default(),
            node,
            limit: LIMIT,
            token: Token::of(token),
        }))
    }

    fn list(&mut self, holders: &[Holder]) -> Vec<Act> {
        self.0.decide(Event::Listed(holders)).unwrap()
    }

    fn claim(&self, id: &AllocationId) -> Claim {
        self.0.claims().find(|(of, _)| *of == id).unwrap().1.clone()
    }
}

#[test]
fn a_container_gets_a_board_when_it_starts_and_keeps_board_and_token_when_it_starts_again() {
    let (mut bed, owner) = (Bed::default(), mk_owner("cart"));
    let id = bed.allocate("a1", &["b0-1"]);
    let acts = bed.start(&["b0-1"], &owner, &["b0", "b1"], "t1").unwrap();
    let claim = bed.claim(&id);
    assert_eq!(
        claim,
        Claim {
            owner: owner.clone(),
            boards: ["b0".into()].into(),
            token: Token::of("t1"),
            workload: None,
            bitstreams: BTreeMap::new()
        }
    );
    assert_eq!(acts, [Act::Grant(id.clone(), claim.clone())]);
    let again = bed.start(&["b0-1"], &owner, &["b1", "b0"], "t2").unwrap();
    assert_eq!(again, [Act::Grant(id, claim)]);
}

#[test]
fn a_container_that_starts_again_without_its_board_gets_another_one_and_loses_the_first() {
    let (mut bed, owner) = (Bed::default(), mk_owner("cart"));
    let id = bed.allocate("a1", &["b0-1"]);
    bed.start(&["b0-1"], &owner, &["b0"], "t1").unwrap();
    let acts = bed.start(&["b0-1"], &owner, &["b1"], "t2").unwrap();
    let before = Claim {
        owner: owner.clone(),
        boards: ["b0".into()].into(),
        token: Token::of("t1"),
        workload: None,
        bitstreams: BTreeMap::new(),
    };
    let after = Claim { boards: ["b1".into()].into(), ..before.clone() };
    assert_eq!(acts, [Act::Revoke(id.clone(), before), Act::Grant(id, after)]);
}

#[test]
fn a_board_out_of_rotation_gets_no_new_container_and_keeps_those_that_it_has() {
    let (mut bed, owner) = (Bed::default(), mk_owner("cart"));
    let id = bed.allocate("a1", &["b0-1"]);
    bed.start(&["b0-1"], &owner, &["b0"], "t1").unwrap();
    let claim = bed.claim(&id);
    let cordoned = |boards: &[&str]| {
        let mut node = mk_node(boards);
        node.cordon(&CordonedBoards::parse(r#"{"b0":{"reason":"fan","sinceMs":5}}"#).unwrap());
        node
    };
    let again = bed.start_on(&cordoned(&["b0", "b1"]), &["b0-1"], &owner, "t2").unwrap();
    assert_eq!(again, [Act::Grant(id, claim)], "a container that starts again keeps its board");
    bed.allocate("a2", &["b0-2"]);
    let other = mk_owner("other");
    let refused = bed.start_on(&cordoned(&["b0"]), &["b0-2"], &other, "t3");
    assert_eq!(refused, Err(Refusal::Shortage(Shortage { rejection: Rejection::Cordoned, boards: 1 })));
    let acts = bed.start_on(&cordoned(&["b0", "b1"]), &["b0-2"], &other, "t3").unwrap();
    assert!(matches!(&acts[..], [Act::Grant(_, claim)] if claim.boards == ["b1".into()].into()), "{acts:?}");
}

#[test]
fn a_burst_spreads_over_the_boards() {
    let mut bed = Bed::default();
    for number in 0..4 {
        let (instance, pod) = (format!("b0-{number}"), format!("p{number}"));
        bed.allocate(&pod, &[&instance]);
        bed.start(&[&instance], &mk_owner(&pod), &["b0", "b1"], &pod).unwrap();
    }
    let boards: Vec<_> = bed.0.claims().flat_map(|(_, claim)| claim.boards.clone()).collect();
    assert_eq!(boards, ["b0", "b1", "b0", "b1"]);
}

#[test]
fn a_burst_of_100_pods_over_four_boards_gives_each_board_25_and_no_more_than_one_instance_apart_at_any_time()
{
    let mut bed = Bed::default();
    let boards = ["b0", "b1", "b2", "b3"];
    for number in 0..100_u32 {
        let (instance, pod) = (format!("b0-{number}"), format!("p{number}"));
        bed.allocate(&pod, &[&instance]);
        bed.start(&[&instance], &mk_owner(&pod), &boards, &pod).unwrap();
        let instances = boards.map(|board| bed.0.instances(board));
        let (least, most) = (instances.iter().min().unwrap(), instances.iter().max().unwrap());
        assert!(most - least <= 1, "{instances:?}");
    }
    assert_eq!(
        boards.map(|board| bed.0.instances(board)),
        [25; 4],
        "load refuses none, beyond the limit either"
    );
}

#[test]
fn on_a_node_with_two_kinds_of_boards_each_pod_gets_boards_of_its_kind_and_two_are_two() {
    let of = |board: &str, id| DeviceState { board: board.into(), ..mk_board(id, &[]) };
    let boards = vec![of("a10", "a0"), of("a10", "a1"), of("s10", "s0"), of("s10", "s1"), of("s10", "s2")];
    let node = NodeState { devices: boards, ..mk_state() };
    let mut allocations = Allocations::default();
    let mut start = |pod: String, kind: Option<&str>, boards: u32| {
        let id = AllocationId::of(&pod);
        let instances = ids(&[&format!("x-{pod}")]);
        allocations.decide(Event::Allocated { id, instances: instances.clone() }).unwrap();
        let requirement = Requirement { board: kind.map(str::to_owned), boards, ..Requirement::default() };
        let start = Start {
            instances: &instances,
            owner: mk_owner(&pod),
            workload: None,
            requirement: &requirement,
            meanings: &Meanings::default(),
            node: &node,
            limit: LIMIT,
            token: Token::of(&pod),
        };
        let acts = allocations.decide(Event::Starts(start))?;
        let Some(Act::Grant(_, claim)) = acts.last() else { unreachable!("a start grants") };
        Ok::<_, Refusal>(claim.boards.clone())
    };
    for number in 0..30 {
        let of_a10 = start(format!("a{number}"), Some("a10"), 1).unwrap();
        assert!(of_a10.iter().all(|board| board.starts_with('a')) && of_a10.len() == 1);
        let of_s10 = start(format!("s{number}"), Some("s10"), 2).unwrap();
        assert!(of_s10.iter().all(|board| board.starts_with('s')) && of_s10.len() == 2);
    }
    let shortage = start("three".to_owned(), Some("a10"), 3).unwrap_err();
    assert_eq!(shortage, Refusal::Shortage(Shortage { rejection: Rejection::TooFewBoards, boards: 3 }));
    // 30 instances on two boards and 60 on three: one of any kind goes where fewest are.
    assert_eq!(start("any".to_owned(), None, 1).unwrap(), ["a0".to_owned()].into());
    let instances = ["a0", "a1", "s0", "s1", "s2"].map(|board| allocations.instances(board));
    assert_eq!(instances, [16, 15, 20, 20, 20]);
}

#[test]
fn a_pod_is_told_why_each_of_its_containers_has_its_boards_also_after_it_started_again() {
    let (mut bed, owner) = (Bed::default(), mk_owner("cart"));
    bed.allocate("a1", &["b0-1"]);
    bed.start(&["b0-1"], &owner, &["b0", "b1"], "t1").unwrap();
    let reason = "main: b0 (0 % used, 0 containers) before b1 (0 % used, 0 containers)";
    assert_eq!(bed.0.reasons_of(&owner.uid), reason);
    bed.start(&["b0-1"], &owner, &["b0", "b1"], "t2").unwrap();
    assert_eq!(bed.0.reasons_of(&owner.uid), reason);
    bed.start(&["b0-1"], &owner, &["b1"], "t3").unwrap();
    assert_eq!(bed.0.reasons_of(&owner.uid), "main: b1 (0 % used, 0 containers)");
    assert_eq!(bed.0.reasons_of("another"), "");
}

#[test]
fn a_container_gets_as_many_boards_as_it_asks_for_and_its_pod_has_those_of_all_its_containers() {
    let (mut bed, owner) = (Bed::default(), mk_owner("cart"));
    let sidecar = Owner { container: "sidecar".into(), ..owner.clone() };
    let two = Requirement { boards: 2, ..Requirement::default() };
    for (id, owner, requirement) in [("a1", &owner, &two), ("a2", &sidecar, &Requirement::default())] {
        let instances = ids(&[id]);
        bed.allocate(id, &[id]);
        let start = Start {
            instances: &instances,
            owner: owner.clone(),
            workload: None,
            requirement,
            meanings: &Meanings::default(),
            node: &mk_node(&["b0", "b1", "b2"]),
            limit: LIMIT,
            token: Token::of(id),
        };
        bed.0.decide(Event::Starts(start)).unwrap();
    }
    assert_eq!(bed.claim(&AllocationId::of("a1")).boards, ["b0".into(), "b1".into()].into());
    assert_eq!(bed.0.boards_of(&owner.uid), ["b0", "b1", "b2"].into());
    assert_eq!((bed.0.instances("b0"), bed.0.instances("b2"), bed.0.instances("b3")), (1, 1, 0));
}

#[test]
fn a_container_that_starts_again_keeps_the_board_that_it_uses_itself_for_more_than_it_allows() {
    let (mut bed, owner) = (Bed::default(), mk_owner("cart"));
    bed.allocate("a1", &["b0-1"]);
    let at_most = Requirement { max_utilization: Some("0.5".parse().unwrap()), ..Requirement::default() };
    let busy = DeviceState { usage: Millis::from_secs(1200), ..mk_board("b0", &[]) };
    let used = NodeState { devices: vec![busy, mk_board("b1", &[])], ..mk_state() };
    for (node, token) in [(mk_node(&["b0"]), "t1"), (used, "t2")] {
        let start = Start {
            instances: &ids(&["b0-1"]),
            owner: owner.clone(),
            workload: None,
            requirement: &at_most,
            meanings: &Meanings::default(),
            node: &node,
            limit: LIMIT,
            token: Token::of(token),
        };
        bed.0.decide(Event::Starts(start)).unwrap();
        assert_eq!(bed.0.boards_of(&owner.uid), ["b0"].into());
    }
}

#[test]
fn who_can_not_start_is_told_why_and_nothing_changes() {
    let (mut bed, owner) = (Bed::default(), mk_owner("cart"));
    assert_eq!(bed.start(&["b0-1"], &owner, &["b0"], "t1"), Err(Refusal::UnknownAllocation));
    bed.allocate("a1", &["b0-1"]);
    let before = bed.0.clone();
    let refusal = bed.start(&["b0-1"], &owner, &[], "t1").unwrap_err();
    assert_eq!(refusal, Refusal::Shortage(Shortage { rejection: Rejection::NoDevice, boards: 1 }));
    assert_eq!(bed.0, before);
}

#[test]
fn an_owner_that_is_not_listed_is_looked_up_and_only_its_end_revokes_the_token() {
    let (mut bed, owner) = (Bed::default(), mk_owner("cart"));
    let id = bed.allocate("a1", &["b0-1"]);
    bed.start(&["b0-1"], &owner, &["b0"], "t1").unwrap();
    assert_eq!(bed.list(&[holder(&owner, &["b0-1"])]), []);
    assert_eq!(
        bed.list(&[]),
        [Act::Look(id.clone(), owner.clone())],
        "after its restart the kubelet lists nobody"
    );
    assert_eq!(bed.list(&[holder(&owner, &["b0-1"])]), []);
    let claim = bed.claim(&id);
    let acts = bed.0.decide(Event::Ended(&id)).unwrap();
    assert_eq!(acts, [Act::Revoke(id.clone(), claim), Act::RemoveFolder(id.clone())]);
    assert_eq!(bed.0.decide(Event::Ended(&id)).unwrap(), []);
}

#[test]
fn an_owner_that_is_listed_all_the_time_is_looked_up_now_and_then() {
    let (mut bed, owner) = (Bed::default(), mk_owner("job"));
    let id = bed.allocate("a1", &["b0-1"]);
    bed.start(&["b0-1"], &owner, &["b0"], "t1").unwrap();
    let listed = holder(&owner, &["b0-1"]);
    for _ in 0..2 {
        for _ in 1..LISTS_UNTIL_LOOK {
            assert_eq!(bed.list(std::slice::from_ref(&listed)), []);
        }
        assert_eq!(bed.list(std::slice::from_ref(&listed)), [Act::Look(id.clone(), owner.clone())]);
    }
}

#[test]
fn instances_that_another_pod_has_now_are_no_sign_of_life_of_the_first_one() {
    let (mut bed, first, second) = (Bed::default(), mk_owner("cart"), mk_owner("shelf"));
    let old = bed.allocate("a1", &["b0-1"]);
    bed.start(&["b0-1"], &first, &["b0"], "t1").unwrap();
    let new = bed.allocate("a2", &["b0-1"]);
    bed.start(&["b0-1"], &second, &["b0"], "t2").unwrap();
    assert_ne!(bed.claim(&old).token, bed.claim(&new).token);
    assert_eq!(bed.list(&[holder(&second, &["b0-1"])]), [Act::Look(old, first)]);
}

#[test]
fn an_allocation_whose_container_never_started_is_removed_after_a_while() {
    let mut bed = Bed::default();
    let id = bed.allocate("a1", &["b0-1"]);
    let listed = holder(&mk_owner("cart"), &["b0-1"]);
    for _ in 0..2 * LISTS_WITHOUT_OWNER {
        assert_eq!(bed.list(std::slice::from_ref(&listed)), [], "its image is being pulled");
    }
    for _ in 1..LISTS_WITHOUT_OWNER {
        assert_eq!(bed.list(&[]), []);
    }
    assert_eq!(bed.list(&[]), [Act::RemoveFolder(id)]);
}

#[test]
fn a_token_is_not_shown_in_logs() {
    assert_eq!(format!("{:?}", Token::of("secret")), "Token(…)");
}

/// A step of a kubelet with four instances and pods that come and go.
#[derive(Debug, Clone)]
enum Step {
    Allocate { instance: usize },
    Start { instance: usize, boards: Vec<bool> },
    End { instance: usize },
    List,
    RestartPlugin,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        3 => (0_usize..4).prop_map(|instance| Step::Allocate { instance }),
        4 => (0_usize..4, prop::collection::vec(any::<bool>(), 3)).prop_map(|(instance, boards)| Step::Start { instance, boards }),
        2 => (0_usize..4).prop_map(|instance| Step::End { instance }),
        4 => Just(Step::List),
        1 => Just(Step::RestartPlugin),
    ];
    prop::collection::vec(step, 0..80)
}

const INSTANCES: [&str; 4] = ["i0", "i1", "i2", "i3"];
const BOARDS: [&str; 3] = ["b0", "b1", "b2"];

/// The node as the acts leave it: for each board the tokens that its manager knows, and the folders.
#[derive(Debug, Default, PartialEq)]
struct Disk {
    tokens: BTreeSet<(String, String)>,
    folders: BTreeSet<AllocationId>,
}

impl Disk {
    fn carry_out(&mut self, act: &Act) {
        let tokens = |claim: &Claim| {
            let token = claim.token.secret().to_owned();
            claim.boards.iter().map(|board| (board.clone(), token.clone())).collect::<Vec<_>>()
        };
        match act {
            Act::MakeFolder(id) => drop(self.folders.insert(id.clone())),
            Act::RemoveFolder(id) => drop(self.folders.remove(id)),
            Act::Grant(id, claim) => {
                assert!(self.folders.contains(id), "a grant is written into a folder");
                self.tokens.extend(tokens(claim));
            }
            Act::Revoke(_, claim) => {
                for token in tokens(claim) {
                    self.tokens.remove(&token);
                }
            }
            Act::Look(..) => {}
        }
    }
}

proptest! {
    /// Whatever happens in whatever order: managers know exactly the tokens of the claims, no two claims share one, and a
    /// pod that lives keeps its claim.
    #[test]
    fn managers_know_the_tokens_of_claims_and_a_living_pod_keeps_its_claim(steps in steps()) {
        let (mut state, mut disk) = (Allocations::default(), Disk::default());
        // The pod that has the instance, and whether it has been started.
        let mut pods: [Option<(Owner, bool)>; 4] = Default::default();
        for (number, step) in steps.into_iter().enumerate() {
            let mut events = Vec::new();
            match step {
                Step::Allocate { instance } => {
                    if pods[instance].is_some() { continue; }
                    pods[instance] = Some((mk_owner(&format!("p{number}")), false));
                    let id = AllocationId::of(&format!("a{number}"));
                    let instances = ids(&[INSTANCES[instance]]);
                    events.push(state.decide(Event::Allocated { id, instances }).unwrap());
                }
                Step::Start { instance, boards } => {
                    let Some((owner, started)) = &mut pods[instance] else { continue };
                    let present = BOARDS.iter().zip(boards).filter(|(_, is)| *is).map(|(board, _)| *board);
                    let present: Vec<&str> = present.collect();
                    let requirement = Requirement::default();
                    let before = state.clone();
                    let result = state.decide(Event::Starts(Start {
                        instances: &ids(&[INSTANCES[instance]]),
                        owner: owner.clone(),
                        workload: None,
                        requirement: &requirement,
                        meanings: &Meanings::default(),
                        node: &mk_node(&present),
                        limit: LIMIT,
                        token: Token::of(&format!("t{number}")),
                    }));
                    match result {
                        Ok(acts) => {
                            *started = true;
                            let of_owner = state.claims().find(|(_, claim)| claim.owner == *owner).unwrap().1;
                            prop_assert!(of_owner.boards.iter().all(|board| present.contains(&board.as_str())));
                            events.push(acts);
                        }
                        Err(_) => {
                            prop_assert!(present.is_empty());
                            prop_assert_eq!(&state, &before);
                        }
                    }
                }
                Step::End { instance } => pods[instance] = None,
                Step::List => {
                    let living = pods.iter().zip(INSTANCES).filter_map(|(pod, instance)| {
                        pod.as_ref().map(|(owner, _)| holder(owner, &[instance]))
                    });
                    let acts = state.decide(Event::Listed(&living.collect::<Vec<_>>())).unwrap();
                    let looks: Vec<_> = acts.iter().filter_map(|act| match act {
                        Act::Look(id, owner) => Some((id.clone(), owner.clone())),
                        _ => None,
                    }).collect();
                    events.push(acts);
                    for (id, owner) in looks {
                        let lives = pods.iter().flatten().any(|(living, _)| *living == owner);
                        prop_assert!(!lives, "who is listed is not looked up");
                        events.push(state.decide(Event::Ended(&id)).unwrap());
                    }
                }
                Step::RestartPlugin => {
                    let saved = serde_json::to_string(&state).unwrap();
                    state = serde_json::from_str(&saved).unwrap();
                    events.push(state.recover());
                }
            }
            events.iter().flatten().for_each(|act| disk.carry_out(act));

            let claims: Vec<&Claim> = state.claims().map(|(_, claim)| claim).collect();
            let expected: BTreeSet<(String, String)> = claims.iter()
                .flat_map(|claim| claim.boards.iter().map(|board| (board.clone(), claim.token.secret().to_owned())))
                .collect();
            prop_assert_eq!(&disk.tokens, &expected);
            prop_assert_eq!(disk.folders.iter().collect::<Vec<_>>(), state.ids().collect::<Vec<_>>());
            let tokens: BTreeSet<&str> = claims.iter().map(|claim| claim.token.secret()).collect();
            prop_assert_eq!(tokens.len(), claims.len());
            for (owner, _) in pods.iter().flatten().filter(|(_, started)| *started) {
                prop_assert!(claims.iter().any(|claim| claim.owner == *owner));
            }
        }
    }
}
