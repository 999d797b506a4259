use super::*;
use crate::intake;
use fpga_core::ledger::MAX_REPORTERS;

const LENGTH: Millis = Millis::from_secs(300);
const NOW: WallTime = WallTime(1_760_000_000_000);
const SILENCE: Silence = Silence { unhealthy_after: Millis::from_secs(45) };
/// A step longer than the window.
const STEP: Millis = Millis::from_secs(3600);

fn status() -> DeviceStatus {
    intake::device("dm0", br#"{"id":"dm0","vendor":"intel","slots":4,"health":"healthy"}"#).unwrap()
}

/// A record of a 30-s task from `reporter` that ended at `end`.
fn task(reporter: u64, seq: u64, end: WallTime) -> Record {
    let body = format!(
        r#"{{"timestamp_ms":{},"duration_ms":30000,"reconfiguration_ms":0,"bitstream_identifier":"sobel","reporter":{reporter},"seq":{seq},"device":"dm0"}}"#,
        end.0
    );
    Record::Events(intake::events(body.as_bytes()).unwrap())
}

/// A state with a healthy board that was busy for 30 s.
fn busy() -> State {
    let mut state = State::new(LENGTH).unwrap();
    state.apply(&Record::Device(Box::new(status())), NOW);
    state.apply(&task(1, 1, NOW), NOW);
    state
}

fn publish(state: &State, now: WallTime) -> NodeState {
    state.node_state(now, Millis::from_secs(60), Some(SILENCE))
}

/// A forward and a back step, and the wall time just after each.
fn steps() -> [(ClockStep, WallTime); 2] {
    [(ClockStep::Forward(STEP), NOW + STEP), (ClockStep::Back(STEP), NOW - STEP)]
}

#[test]
fn gaps_between_tasks_are_published_by_bitstream_and_a_board_that_leaves_takes_its_own() {
    let mut state = State::new(LENGTH).unwrap();
    state.apply(&task(1, 1, NOW), NOW);
    state.apply(&Record::Device(Box::new(status())), NOW);
    for seq in 2..=5 {
        let end = NOW + Millis(seq * 40_000);
        state.apply(&task(1, seq, end), end);
        state.apply(&task(1, seq, end), end);
    }
    let after = NOW + Millis(5 * 40_000);
    for (step, by) in [(ClockStep::Forward(STEP), STEP), (ClockStep::Back(STEP), Millis::ZERO)] {
        state.apply(&Record::Clock(step), after + by);
    }
    // Of five tasks the first came before its board, so four uses and three gaps of 40 s are left; a task begins 30 s
    // before its end. Repeated events count once.
    let expected = r#"{"v":1,"boards":{"dm0":{"used":[{"name":"sobel","idleMs":32000,"gaps":[[30,48]]}]}}}"#;
    assert_eq!(state.reuse_text(after + Millis(2_000)), expected);
    let restored: State = serde_json::from_str(&serde_json::to_string(&state).unwrap()).unwrap();
    assert_eq!(restored.reuse_text(after + Millis(2_000)), expected);
    state.apply(&Record::Gone("dm0".into()), after);
    assert_eq!(state.reuse_text(after), r#"{"v":1}"#);
}

#[test]
fn devices_and_starts_alone_leave_room_for_what_the_annotation_tells() {
    let published = publish(&busy(), NOW);
    let mut state = State::new(LENGTH).unwrap();
    state.apply(&Record::Boot(1), NOW);
    state.apply(&Record::Device(Box::new(status())), NOW);
    assert!(state.is_untouched());
    state.apply(&Record::Seed(Box::new(published)), NOW);
    assert!(!state.is_untouched(), "an annotation is taken over once");
    assert_eq!(publish(&state, NOW).usage, Millis(30_000));
    assert!(!busy().is_untouched());
}

#[test]
fn a_step_of_the_clock_makes_no_device_silent_and_no_task_old() {
    for (step, after) in steps() {
        let mut state = busy();
        state.apply(&Record::Clock(step), after);
        assert_eq!(state.lost_devices(after, SILENCE), Vec::<String>::new(), "{step:?}");
        let published = publish(&state, after);
        assert_eq!(published.devices[0].health, Health::Healthy, "{step:?}");
        assert_eq!((published.usage, published.measured_at), (Millis(30_000), after));

        let later = after + SILENCE.unhealthy_after + Millis(1);
        assert_eq!(
            publish(&state, later).devices[0].health,
            Health::Unhealthy,
            "time goes on after {step:?}"
        );
        assert_eq!(state.lost_devices(after + LENGTH + Millis(1), SILENCE), ["dm0"]);
        assert_eq!(publish(&state, after + LENGTH + Millis(2_000)).usage, Millis::ZERO);
    }
}

#[test]
fn a_step_of_the_clock_forgets_no_reporter_and_counts_no_event_twice() {
    for (step, after) in steps() {
        let mut state = busy();
        for reporter in 1..=MAX_REPORTERS as u64 {
            state.apply(&task(reporter, 1, NOW), NOW);
        }
        state.apply(&Record::Clock(step), after);
        let Record::Events(another) = task(9_999, 1, after) else { unreachable!() };
        assert!(state.make_room(&another, after).is_err(), "all of them reported a moment ago: {step:?}");
        assert_eq!(state.apply(&task(1, 1, NOW), after).duplicates, 1);
        assert!(state.make_room(&another, after + LENGTH).is_ok(), "{step:?}");
    }
}

#[test]
fn an_event_that_was_under_way_during_a_step_counts_with_its_age() {
    for (step, after) in steps() {
        let mut state = busy();
        state.apply(&Record::Clock(step), after);
        state.apply(&task(1, 2, NOW), after);
        assert_eq!(publish(&state, after).usage, Millis(60_000), "{step:?}");
        assert_eq!(state.window().counters().too_old, 0);
    }
}

#[test]
fn a_restart_after_a_step_goes_on_where_it_was() {
    for (step, after) in steps() {
        let mut state = busy();
        state.apply(&Record::Clock(step), after);
        state.apply(&task(1, 2, after), after);
        let text = serde_json::to_string(&state).unwrap();
        let mut again: State = serde_json::from_str(&text).unwrap();
        assert_eq!(again, state);
        let later = after + Millis(5_000);
        again.apply(&Record::Boot(2), later);
        again.hear_all(later);
        assert_eq!((publish(&again, later).usage, again.clock_steps()), (Millis(60_000), 1));
    }
}

#[test]
fn a_clock_that_went_back_between_two_collectors_ages_nothing() {
    let mut state = busy();
    let before = NOW - STEP;
    state.apply(&Record::Boot(2), before);
    assert_eq!((state.clock_steps(), state.moment(before).now), (1, state.window().latest()));
    state.apply(&task(1, 2, before), before);
    assert_eq!(publish(&state, before).usage, Millis(60_000));
    assert_eq!(publish(&state, before + LENGTH + Millis(2_000)).usage, Millis::ZERO);
}
