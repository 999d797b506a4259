//! Properties that hold for any sequence of pods.

use super::*;
use crate::per_slot::PerSlot;
use crate::rank::ranks;
use proptest::prelude::*;

prop_compose! {
    fn any_placed()(
        pods in prop::collection::vec((0..3_u64, 0..400_000_u64, 0..400_000_u64, 0..3_u64), 0..30),
    ) -> Vec<(PlacedPod, Millis, MonotonicTime)> {
        let pods = pods.into_iter().enumerate();
        pods.map(|(i, (node, elapsed, seen, owner))| {
            (owned(&i.to_string(), &format!("o{owner}"), &format!("n{node}")), Millis(elapsed), MonotonicTime(seen))
        }).collect()
    }
}

proptest! {
    #[test]
    fn no_more_is_expected_than_e_per_pod_and_nothing_after_a_window(
        placed in any_placed(), mean in 1_u64..100_000, usage in 0_u64..100_000, at in 0_u64..500_000, wait in 0_u64..100_000,
    ) {
        let mut all = where_a_pod_uses(mean, "o0");
        let mut on_n0 = 0;
        for (pod, elapsed, seen) in placed {
            on_n0 += u64::from(pod.node == "n0");
            all.bound(&pod, elapsed, seen);
        }
        let state = received(mk_busy(usage, 0), at);
        let now = MonotonicTime(at + wait);
        let expected = all.on("n0", &state, &AskedKind::ANY, now);
        prop_assert!(expected.usage.0 <= mean * on_n0 + 1 && expected.pods <= on_n0 as f64);
        prop_assert_eq!(all.on("n0", &state, &AskedKind::ANY, MonotonicTime(400_000 + WINDOW)), Expected::default());
    }

    #[test]
    fn a_cached_forecast_equals_a_new_one_until_its_inputs_change(
        pods in prop::collection::vec((0..WINDOW + 1_000, prop::option::of(0..3_usize), 0..3_u8), 1..12),
        used in prop::collection::vec(0..20_000_u64, 1..30), last_used in 0..WINDOW, known: [bool; 3],
        steps in prop::collection::vec((0..40_000_u64, 0..8_u8), 1..30),
    ) {
        let mut all = ExpectedLoads::default();
        let owners = ["rs-0", "rs-1", "rs-2"];
        let states = [10_000, 20_000, 30_000].map(|usage| received(mk_busy(usage, 0), 0));
        let learn = |all: &mut ExpectedLoads, known: [bool; 3]| {
            for (owner, known) in owners.iter().zip(known) {
                let place = format!("settled-{owner}");
                all.gone(&place);
                if known {
                    all.bound(&owned(&place, owner, &place), Millis(WINDOW), MonotonicTime::START);
                }
            }
            let place = |name: &str| owners.iter().position(|owner| name == format!("settled-{owner}"));
            let learnt = all.learnt(|name| Some(&states[place(name)?]), MonotonicTime::START);
            all.expect(&learnt);
        };
        learn(&mut all, known);
        for (index, (elapsed, owner, bitstream)) in pods.iter().enumerate() {
            let owner = owner.map(|owner| owners[owner].to_owned());
            let bitstreams = match bitstream {
                0 => Vec::new(),
                1 => vec!["sobel".parse().unwrap()],
                _ => vec!["mm".parse().unwrap()],
            };
            let placed = PlacedPod { owner, bitstreams, ..pod(&format!("p{index}"), "n") };
            all.bound(&placed, Millis(*elapsed), MonotonicTime::START);
        }
        let mut state = mk_busy(0, 0);
        state.buckets.usage = used.into_iter().map(Millis).collect();
        state.bitstreams = vec![mk_bitstream("sobel", last_used)];
        let (mut at, mut now) = (0, 0);
        for (step, (passes, event)) in steps.into_iter().enumerate() {
            now += passes;
            match event {
                0 => {
                    state.seq += 1;
                    state.buckets.usage.insert(0, Millis(passes / 3));
                    at = now;
                }
                1 => all.gone(&format!("p{step}")),
                2 => {
                    all.bound(&owned(&format!("new-{step}"), "rs-1", "n"), Millis::ZERO, MonotonicTime(now));
                }
                3 => learn(&mut all, [step % 2 == 0, true, step % 3 == 0]),
                _ => {}
            }
            let received = received(state.clone(), at);
            let before = all.on("n", &received, &AskedKind::ANY, MonotonicTime(now));
            if let Some((index, _)) = all.nodes.get("n") {
                all.forecasts.forget(index);
            }
            let anew = all.on("n", &received, &AskedKind::ANY, MonotonicTime(now));
            prop_assert!(before.usage.0.abs_diff(anew.usage.0) <= 1, "{before:?} is {anew:?}");
            prop_assert!((before.unknown - anew.unknown).abs() < 1e-6, "{before:?} is {anew:?}");
            prop_assert_eq!((before.shown, before.pods.round()), (anew.shown, anew.pods.round()));
        }
    }

    #[test]
    fn pods_that_came_and_went_leave_nothing(placed in any_placed(), assumed in prop::collection::vec(0..40_u64, 0..20)) {
        let mut all = ExpectedLoads::default();
        for uid in assumed {
            assume(&mut all, &uid.to_string(), None, &["n0", "n2"], MonotonicTime(uid * 1_000));
        }
        let uids: Vec<String> = placed.iter().map(|(pod, ..)| pod.uid.clone()).collect();
        for (pod, elapsed, seen) in placed {
            all.bound(&pod, elapsed, seen);
        }
        prop_assert_eq!(all.pods(), uids.len());
        uids.iter().for_each(|uid| all.gone(uid));
        all.expire_assumed(MonotonicTime(100_000));
        prop_assert_eq!((all.pods(), all.assumed_pods(), all.nodes.len(), all.assumed_by_age.len()), (0, 0, 0, 0));
    }

    #[test]
    fn an_unknown_pod_more_costs_a_rank_and_never_lowers_a_load(
        measured in prop::collection::vec(0_u64..40, 2..30), unknown in prop::collection::vec(0_u8..6, 30),
        shown in prop::collection::vec(0_u64..20, 30), which in any::<prop::sample::Index>(),
    ) {
        let measured: Vec<PerSlot> = measured.into_iter().map(PerSlot).collect();
        let which = which.index(measured.len());
        let expected = |more: f64| -> Vec<ExpectedPerSlot> {
            (0..measured.len()).map(|i| ExpectedPerSlot {
                unknown: f64::from(unknown[i]) + if i == which { more } else { 0.0 },
                shown: PerSlot(shown[i]),
                ..ExpectedPerSlot::default()
            }).collect()
        };
        let (before, after) = (loads(&measured, &expected(0.0)), loads(&measured, &expected(1.0)));
        prop_assert!(before.iter().zip(&measured).all(|(load, measured)| load >= measured));
        for (i, (before, after)) in before.iter().zip(&after).enumerate() {
            let fine = if i == which { after >= before } else { after == before };
            prop_assert!(fine, "{i}: {before:?} became {after:?}");
        }
        // With unknown pods on this node only, and no usage shown: its load is above as many others as it has pods, as
        // far as there are others.
        let pods = unknown[which] + 1;
        let alone: Vec<ExpectedPerSlot> = (0..measured.len())
            .map(|i| ExpectedPerSlot { unknown: if i == which { pods.into() } else { 0.0 }, ..ExpectedPerSlot::default() })
            .collect();
        let load = loads(&measured, &alone)[which];
        let others = || measured.iter().enumerate().filter(|(i, _)| *i != which).map(|(_, load)| *load);
        let not_below = others().filter(|other| *other >= measured[which]).count();
        let passed = others().filter(|other| *other >= measured[which] && *other < load).count();
        prop_assert!(passed >= not_below.min(pods.into()), "{load:?} passes {passed} of {not_below}");
        if not_below > 0 {
            let mut raised = measured.clone();
            raised[which] = load;
            let rank = |loads: &[PerSlot]| ranks(&loads.iter().map(|load| load.0).collect::<Vec<_>>())[which];
            prop_assert!(rank(&raised) < rank(&measured));
        }
    }
}
