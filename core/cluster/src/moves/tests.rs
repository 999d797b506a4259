use super::*;
use proptest::prelude::*;

const NOW: WallTime = WallTime(1_790_000_000_000);
const POLICY: MovePolicy = MovePolicy { per_interval: 2, per_hour: 3, cool_down: Millis::from_secs(600) };

fn candidate(pod: &str, deployment: &str) -> Candidate {
    let deployment = Deployment { uid: deployment.into(), rollout: Rollout::Complete, ready: 2 };
    Candidate {
        pod: pod.into(),
        namespace: "shop".into(),
        cause: Cause::BoardLost { board: "dm0".into(), since: Millis::from_secs(90) },
        readiness: Readiness::Ready,
        workload: Workload::Deployment(deployment),
        disruption: Disruption::Allowed,
        replacement: Replacement::AfterThePod,
        destination: Destination::Somewhere,
    }
}

fn saved_cold_starts(saved: u32) -> SavedColdStarts {
    SavedColdStarts {
        board: "dm0".into(),
        per_hour: 1_200,
        saved,
        best: "dm0 of n2".into(),
        saved_at_best: 700,
    }
}

fn with_ready(ready: u32, readiness: Readiness) -> Candidate {
    let deployment = Deployment { uid: "d".into(), rollout: Rollout::Complete, ready };
    Candidate { workload: Workload::Deployment(deployment), readiness, ..candidate("a", "d") }
}

fn past(workload: &str, ago: Millis, progress: Progress) -> PastMove {
    PastMove { namespace: "other".into(), workload: workload.into(), at: NOW - ago, progress }
}

/// The namespaces where one alone has pods with boards.
fn alone() -> BTreeSet<&'static str> {
    ["shop"].into()
}

/// What becomes of the only candidate.
fn verdict(candidate: Candidate, past: &[PastMove]) -> Result<(), Held> {
    let decision = decide(&[candidate], past, &alone(), &POLICY, NOW);
    decision.held.into_iter().next().map_or(Ok(()), |(_, held)| Err(held))
}

#[test]
fn only_pods_of_a_deployment_that_goes_on_without_them_are_moved() {
    let of = |kind: Option<&str>| Candidate {
        workload: Workload::Other { kind: kind.map(str::to_owned) },
        ..candidate("a", "d")
    };
    let rolling = Deployment { uid: "d".into(), rollout: Rollout::Underway, ready: 9 };
    let rolling = Candidate { workload: Workload::Deployment(rolling), ..candidate("a", "d") };
    let forbidden = Disruption::Forbidden("budget".into());
    for (what, candidate, expected) in [
        ("two Ready pods", candidate("a", "d"), Ok(())),
        ("a StatefulSet", of(Some("StatefulSet")), Err(Held::NoDeployment(Some("StatefulSet".into())))),
        ("a bare pod", of(None), Err(Held::NoDeployment(None))),
        ("a rollout", rolling, Err(Held::RollingOut)),
        ("the only Ready pod", with_ready(1, Readiness::Ready), Err(Held::TooFewReady(1))),
        ("a pod that serves nobody", with_ready(0, Readiness::NotReady), Ok(())),
        (
            "the only Ready pod, whose replacement comes first",
            Candidate {
                replacement: Replacement::BeforeThePod(CountOwner::Owner),
                ..with_ready(1, Readiness::Ready)
            },
            Ok(()),
        ),
        (
            "a replacement that comes first, and an autoscaler",
            Candidate {
                replacement: Replacement::BeforeThePod(CountOwner::Autoscaler("web".into())),
                ..candidate("a", "d")
            },
            Err(Held::Autoscaled("web".into())),
        ),
        (
            "a budget",
            Candidate { disruption: forbidden, ..candidate("a", "d") },
            Err(Held::DisruptionBudget("budget".into())),
        ),
        (
            "no place to go",
            Candidate { destination: Destination::Nowhere, ..candidate("a", "d") },
            Err(Held::NowhereToGo),
        ),
    ] {
        assert_eq!(verdict(candidate, &[]), expected, "{what}");
    }
}

#[test]
fn a_workload_is_moved_again_only_after_its_last_move_has_ended_and_the_cool_down_is_over() {
    let day = Millis::from_secs(24 * 3_600);
    for (what, past, expected) in [
        ("another workload's", past("e", Millis::ZERO, Progress::Underway), Ok(())),
        ("never Ready again", past("d", day, Progress::Underway), Err(Held::MoveUnderway)),
        (
            "a minute ago",
            past("d", Millis::from_secs(60), Progress::Ended),
            Err(Held::CoolingDown(Millis::from_secs(540))),
        ),
        ("long ago", past("d", Millis::from_secs(600), Progress::Ended), Ok(())),
    ] {
        assert_eq!(verdict(candidate("a", "d"), &[past]), expected, "{what}");
    }
    let later = PastMove { at: NOW + day, ..past("d", Millis::ZERO, Progress::Ended) };
    let held = verdict(candidate("a", "d"), &[later]);
    assert_eq!(held, Err(Held::CoolingDown(POLICY.cool_down)), "a clock that was ahead");
}

#[test]
fn of_each_workload_one_pod_is_moved_at_a_time_and_the_most_urgent_first() {
    let urgent = Candidate { cause: Cause::NotPrepared, ..candidate("z", "e") };
    let long_lost = Candidate {
        cause: Cause::BoardLost { board: "dm1".into(), since: Millis::from_secs(900) },
        ..candidate("y", "f")
    };
    let wanted = Candidate { cause: Cause::BoardWanted { board: "dm1".into() }, ..candidate("0", "i") };
    let cold = |deployment: &str, saved: u32| Candidate {
        cause: Cause::ColdStarts(saved_cold_starts(saved)),
        ..candidate("c", deployment)
    };
    let candidates =
        [candidate("a", "d"), candidate("b", "d"), long_lost, urgent, cold("g", 60), cold("h", 90), wanted];
    let policy = MovePolicy { per_interval: 9, per_hour: 9, ..POLICY };
    let decision = decide(&candidates, &[], &alone(), &policy, NOW);
    assert_eq!(decision.moves, [3, 2, 0, 6, 5, 4]);
    assert_eq!(decision.held, [(1, Held::MoveUnderway)]);
}

#[test]
fn interval_and_hour_are_bounded() {
    let candidates = ["d", "e", "f", "g"].map(|deployment| candidate(deployment, deployment));
    let ended = |seconds: u64| past("x", Millis::from_secs(seconds), Progress::Ended);
    let decision = decide(&candidates, &[ended(3_600)], &alone(), &POLICY, NOW);
    assert_eq!(decision.moves, [0, 1]);
    assert_eq!(decision.held, [(2, Held::IntervalSpent), (3, Held::IntervalSpent)]);
    let decision = decide(&candidates, &[ended(10), ended(3_599)], &alone(), &POLICY, NOW);
    assert_eq!(decision.moves, [0]);
    assert_eq!(decision.held[0], (1, Held::HourSpent));
}

#[test]
fn one_namespace_can_not_spend_the_hour_of_the_others() {
    let of = |namespace: &str, number: usize| {
        let name = format!("{namespace}{number}");
        Candidate { namespace: namespace.into(), cause: Cause::NotPrepared, ..candidate(&name, &name) }
    };
    let greedy = (0..20).map(|number| of("greedy", number));
    let candidates: Vec<Candidate> = greedy.chain([of("quiet", 0)]).collect();
    let policy = MovePolicy { per_interval: 20, per_hour: 12, ..POLICY };
    let both = BTreeSet::from(["greedy", "quiet"]);
    let decision = decide(&candidates, &[], &both, &policy, NOW);
    assert_eq!(decision.moves, [0, 1, 10, 11, 12, 13, 20], "six by their UIDs, and the other's");
    assert!(decision.held.iter().all(|(_, held)| *held == Held::NamespaceHourSpent), "{decision:?}");
    let alone = decide(&candidates[..20], &[], &BTreeSet::from(["greedy"]), &policy, NOW);
    assert_eq!(alone.moves.len(), 12, "there is nobody else");
    let one = MovePolicy { per_hour: 1, ..policy };
    assert_eq!(decide(&candidates, &[], &both, &one, NOW).moves.len(), 1, "an hour of one move is of use");
}

#[test]
fn what_people_read_says_what_a_move_saves_and_which_rule_holds_a_pod() {
    assert_eq!(
        Cause::ColdStarts(saved_cold_starts(600)).to_string(),
        "of 1200 cold starts per hour on its board dm0, 600 fewer are to be expected with it on another board, 700 \
         on dm0 of n2"
    );
    for (held, words) in [
        (Held::NoDeployment(Some("Job".into())), "pods of a Job are left alone"),
        (Held::TooFewReady(1), "has 1 Ready pods, and 2 are needed"),
        (Held::DisruptionBudget("web".into()), "PodDisruptionBudget web forbids"),
    ] {
        assert!(held.to_string().contains(words), "{held}");
    }
}

prop_compose! {
    fn any_candidate()(
        pod in 0..40_u32, deployment in 0..6_u32, kind in 0..4, ready in 0..4_u32, is_ready: bool, rolls in 0..4,
        budget in 0..4, is_lost: bool, since in 0..1_000_000_u64, comes_first in 0..4, place in 0..4,
        namespace in 0..3_u32,
    ) -> Candidate {
        let rollout = if rolls == 0 { Rollout::Underway } else { Rollout::Complete };
        let deployment = Deployment { uid: format!("d{deployment}"), rollout, ready };
        Candidate {
            pod: format!("p{pod}"),
            namespace: format!("n{namespace}"),
            cause: if is_lost { Cause::BoardLost { board: "b".into(), since: Millis(since) } } else { Cause::NotPrepared },
            readiness: if is_ready { Readiness::Ready } else { Readiness::NotReady },
            workload: match kind {
                0 => Workload::Other { kind: None },
                _ => Workload::Deployment(deployment),
            },
            disruption: if budget == 0 { Disruption::Forbidden("x".into()) } else { Disruption::Allowed },
            replacement: match comes_first {
                0 => Replacement::BeforeThePod(CountOwner::Owner),
                1 => Replacement::BeforeThePod(CountOwner::Autoscaler("web".into())),
                _ => Replacement::AfterThePod,
            },
            destination: if place == 0 { Destination::Nowhere } else { Destination::Somewhere },
        }
    }
}

prop_compose! {
    fn any_past()(
        workload in 0..6_u32, ago in 0..8_000_000_u64, is_underway: bool, namespace in 0..3_u32,
    ) -> PastMove {
        let progress = if is_underway { Progress::Underway } else { Progress::Ended };
        PastMove { namespace: format!("n{namespace}"), ..past(&format!("d{workload}"), Millis(ago), progress) }
    }
}

proptest! {
    #[test]
    fn no_budget_is_exceeded_and_nobody_is_moved_who_must_not_be(
        candidates in prop::collection::vec(any_candidate(), 0..20),
        past in prop::collection::vec(any_past(), 0..8),
        per_interval in 0..5_usize,
        per_hour in 0..8_usize,
    ) {
        let policy = MovePolicy { per_interval, per_hour, ..POLICY };
        let namespaces = ["n0", "n1", "n2"].into();
        let decision = decide(&candidates, &past, &namespaces, &policy, NOW);
        let recent = past.iter().filter(|past| NOW - past.at < HOUR).count();
        prop_assert!(decision.moves.len() <= per_interval);
        prop_assert!(decision.moves.is_empty() || recent + decision.moves.len() <= per_hour);
        prop_assert_eq!(decision.moves.len() + decision.held.len(), candidates.len());
        let mut moved = BTreeSet::new();
        for index in &decision.moves {
            let candidate = &candidates[*index];
            let Workload::Deployment(deployment) = &candidate.workload else {
                return Err(TestCaseError::fail("no Deployment"));
            };
            prop_assert!(moved.insert(&deployment.uid), "two pods of one Deployment");
            prop_assert_eq!(deployment.rollout, Rollout::Complete);
            prop_assert_eq!(&candidate.disruption, &Disruption::Allowed);
            prop_assert_eq!(candidate.destination, Destination::Somewhere);
            let serves_on = match &candidate.replacement {
                Replacement::BeforeThePod(owner) => *owner == CountOwner::Owner,
                Replacement::AfterThePod => deployment.ready >= 2 || candidate.readiness == Readiness::NotReady,
            };
            prop_assert!(serves_on, "{:?}", candidate);
            for past in past.iter().filter(|past| past.workload == deployment.uid) {
                prop_assert_eq!(past.progress, Progress::Ended);
                prop_assert!(NOW - past.at >= policy.cool_down);
            }
        }
    }

    /// Workloads of some namespaces ask again and again, in any order, and each of their moves ends at once.
    #[test]
    fn a_namespace_that_asks_all_the_time_leaves_as_many_moves_to_others_as_it_has(
        per_hour in 1..20_usize,
        asks in prop::collection::vec((0..4_u32, 0..600_u64), 1..80),
    ) {
        let policy = MovePolicy { per_interval: 1, per_hour, cool_down: Millis::ZERO };
        let (mut done, mut now): (Vec<PastMove>, WallTime) = (Vec::new(), NOW);
        for (namespace, seconds) in asks {
            now += Millis::from_secs(seconds);
            let namespace = format!("n{namespace}");
            let asking = Candidate { namespace: namespace.clone(), ..candidate("a", "d") };
            let namespaces = ["n0", "n1", "n2", "n3"].into();
            let decision = decide(std::slice::from_ref(&asking), &done, &namespaces, &policy, now);
            let in_hour = |done: &[PastMove]| -> Vec<String> {
                done.iter().filter(|past| now - past.at < HOUR).map(|past| past.namespace.clone()).collect()
            };
            let of_namespace = |done: &[PastMove]| in_hour(done).iter().filter(|of| **of == namespace).count();
            let (left, had) = (per_hour - in_hour(&done).len(), of_namespace(&done));
            match decision.held.as_slice() {
                [] => {
                    done.push(PastMove { namespace: namespace.clone(), at: now, ..past("d", Millis::ZERO, Progress::Ended) });
                    prop_assert!(had < left, "{had} of {per_hour}, and {left} left");
                    prop_assert!(of_namespace(&done) <= per_hour.div_ceil(2));
                }
                [(_, Held::HourSpent)] => prop_assert_eq!(left, 0),
                [(_, Held::NamespaceHourSpent)] => prop_assert!(left > 0 && had >= left),
                other => return Err(TestCaseError::fail(format!("{other:?}"))),
            }
        }
    }
}
