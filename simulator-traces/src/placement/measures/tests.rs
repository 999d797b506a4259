use super::*;
use crate::placement::collector::Collector;
use crate::placement::options::{Freshness, Reconfigures};
use std::num::NonZeroU32;

fn measures() -> Measures {
    Measures::new(Micros::from_secs(300.0), Micros::from_secs(30.0), Micros::ZERO, SimTime::BEGIN)
}

fn node() -> Node {
    let collector = Collector::new(&Freshness::default(), 2, "board", Reconfigures::Slot).unwrap();
    Node::new(NonZeroU32::new(2).unwrap(), collector, (Micros::ZERO, 0.0))
}

fn broken(result: Result<impl Sized, ScenarioError>, part: &str) {
    match result.map(|_| ()) {
        Err(ScenarioError::Invariant(what)) => assert!(what.contains(part), "{what}"),
        other => panic!("{part}: {other:?}"),
    }
}

#[test]
fn a_request_that_never_leaves_stops_the_run() {
    let mut measures = measures();
    measures.arrived(SimTime::from_secs(1.0));
    broken(measures.finish(&[node()], SimTime::from_secs(2.0), false), "1 requests came, 0 left");
}

#[test]
fn a_stay_that_is_not_what_it_says_breaks_littles_law() {
    let mut measures = measures();
    measures.arrived(SimTime::from_secs(1.0));
    measures.left(SimTime::BEGIN, SimTime::from_secs(2.0));
    broken(measures.finish(&[node()], SimTime::from_secs(2.0), false), "Little's law");
}

#[test]
fn work_that_no_slot_did_stops_the_run() {
    let mut one = node();
    one.done.service = Micros::from_secs(1.0);
    broken(measures().finish(&[one], SimTime::from_secs(2.0), false), "slots were used for");
}

#[test]
fn a_request_that_began_without_having_come_stops_the_run() {
    let mut one = node();
    one.done.started = 1;
    broken(measures().finish(&[one], SimTime::from_secs(2.0), false), "has begun");
}

#[test]
fn more_slot_time_than_there_is_stops_the_run() {
    let mut one = node();
    one.busy = 3;
    let mut measures = measures();
    let looked = (0..20).try_for_each(|_| measures.look(std::slice::from_ref(&one), None));
    broken(looked, "slot");
    assert!(self::measures().look(&[node()], None).is_ok());
}
