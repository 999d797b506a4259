//! Explores the protocol, and sees that the exploration finds a rule's breach.

use fpga_pool_leases::exploration::world::{Clients, Jobs, Setup};
use fpga_pool_leases::exploration::{Invariant, Limits, Move, Report, Side, explore};
use fpga_pool_leases::manager::{LoadOutcome, SlotTimer, Timer};
use fpga_pool_leases::rules::{Rule, Rules};
use std::ops::ControlFlow;

const FULL: Setup = Setup {
    clients: 2,
    jobs: Jobs::Groups,
    slots: 1,
    brokers: 2,
    steps: 1,
    faults: 3,
    clients_are: Clients::Waiting,
    rules: Rules::ALL,
};
const SMALL: Setup = Setup { clients: 1, brokers: 1, ..FULL };
const TWO_FAULTS: Setup = Setup { faults: 2, ..SMALL };
/// A bundle of two jobs, and as many slots.
const BUNDLE: Setup = Setup { jobs: Jobs::Bundle, slots: 2, brokers: 1, faults: 2, ..FULL };
/// A job of three bytes in two steps.
const RUN: Setup = Setup { jobs: Jobs::Runs, steps: 2, faults: 2, ..SMALL };
const LIMITS: Limits =
    Limits { depth: u32::MAX, states: 3_000_000, timed_one_in: u64::MAX, only: |_| true, watched: None };

fn run(setup: &Setup, limits: &Limits) -> Report {
    let report = explore(setup, limits, |_| ControlFlow::Continue(()));
    println!(
        "{} states, {} moves, depth {}, complete: {}, runs in true time: {}, longest: {:?}",
        report.states, report.moves, report.depth, report.is_complete, report.timed_runs, report.longest
    );
    report
}

fn assert_unbroken(report: &Report) {
    if let Some(trace) = &report.broken {
        panic!("\n{trace}");
    }
}

/// No invariant breaks in so many states near an uneventful run.
fn assert_sound_near(setup: &Setup, states: usize) {
    let report = run(setup, &Limits { states, timed_one_in: 100, ..LIMITS });
    assert_unbroken(&report);
    assert!(report.states >= states && report.timed_runs > 0);
}

#[test]
fn no_invariant_breaks_near_an_uneventful_run() {
    for setup in [&FULL, &TWO_FAULTS, &BUNDLE, &RUN] {
        assert_sound_near(setup, 5_000);
    }
}

/// The large explorations.
mod timing {
    use super::*;

    #[test]
    #[ignore = "visits half a million states: make test-timing"]
    fn no_invariant_breaks_in_many_states_near_an_uneventful_run() {
        for (setup, states) in [(&FULL, 150_000), (&TWO_FAULTS, 150_000), (&BUNDLE, 100_000), (&RUN, 100_000)]
        {
            assert_sound_near(setup, states);
        }
    }

    #[test]
    #[ignore = "takes half a minute: make test-timing"]
    fn no_invariant_breaks_in_any_state_of_one_client_and_one_broker_without_faults() {
        let report = run(&Setup { faults: 0, ..SMALL }, &Limits { timed_one_in: 100, ..LIMITS });
        assert_unbroken(&report);
        assert!(report.is_complete && report.timed_runs > 0);
    }

    #[test]
    #[ignore = "takes half a minute: make test-timing"]
    fn without_the_comparison_of_terms_a_former_broker_is_obeyed_again() {
        let only = |what| match what {
            Move::Arrives(..)
            | Move::ManagerConnects(_)
            | Move::Grants(..)
            | Move::LeaseExpires(_)
            | Move::SwapAnswered(_)
            | Move::LoadEnds(_, LoadOutcome::Loaded) => true,
            Move::ManagerTimer(timer) => matches!(timer, Timer::Slot(_, SlotTimer::Attach)),
            // The manager's first connection, and its second one beside the second client's.
            Move::Cut(connection) => connection.0 == 0 || connection.0 == 2,
            Move::Notices(_, side) => side == Side::Dialer,
            Move::ClientConnects(client, broker) => client == broker,
            Move::BrokerTimer(_, timer) => matches!(timer, fpga_pool_leases::broker::Timer::Settled),
            _ => false,
        };
        let mut breach = Breach::of(&[Rule::LaterTermsWin], Invariant::TermsGrow).with(2, 2, 3).only(only);
        breach.setup.clients_are = Clients::Away;
        breach.find();
    }
}

/// A rule that is off, and the world and moves in which its breach is near.
struct Breach {
    off: &'static [Rule],
    invariant: Invariant,
    setup: Setup,
    only: fn(Move) -> bool,
}

impl Breach {
    /// In the world of one client and one broker, without faults.
    const fn of(rule: &'static [Rule], invariant: Invariant) -> Self {
        Self { off: rule, invariant, setup: Setup { faults: 0, ..SMALL }, only: |_| true }
    }

    const fn among(self, setup: Setup) -> Self {
        Self { setup, ..self }
    }

    const fn with(self, clients: usize, brokers: usize, faults: u32) -> Self {
        Self { setup: Setup { clients, brokers, faults, ..self.setup }, ..self }
    }

    const fn only(self, only: fn(Move) -> bool) -> Self {
        Self { only, ..self }
    }

    /// Searches, and prints the shortest trace.
    fn find(self) {
        let (off, invariant) = (self.off, self.invariant);
        let setup = Setup { rules: Rules::without(off), ..self.setup };
        let timed_one_in = if invariant == Invariant::OnceAtLast { 1 } else { u64::MAX };
        let limits = Limits { timed_one_in, only: self.only, watched: Some(invariant), ..LIMITS };
        let report = run(&setup, &limits);
        let trace = report.broken.unwrap_or_else(|| panic!("nothing breaks {invariant:?} without {off:?}"));
        println!("Without {off:?}:\n{trace}\n");
        let states = report.states.min(100_000);
        let sound = run(&Setup { rules: Rules::ALL, ..setup }, &Limits { states, ..limits });
        assert_unbroken(&sound);
    }
}

#[test]
fn a_slot_that_is_free_before_its_tasks_have_ended_breaks_i2() {
    Breach::of(&[Rule::DrainWaitsForTasks], Invariant::FreeIsIdle).find();
    Breach::of(&[Rule::KillIsAwaited], Invariant::FreeIsIdle).find();
    Breach::of(&[Rule::ReapBeforeRegister], Invariant::FreeIsIdle).with(1, 1, 1).find();
}

fn is_timer(what: Move) -> bool {
    matches!(what, Move::ManagerTimer(_) | Move::BrokerTimer(..) | Move::ClientTimer(_))
}

#[test]
fn a_manager_that_runs_anybodys_steps_breaks_i1() {
    let only = |what| match what {
        Move::ManagerTimer(timer) => matches!(timer, Timer::Slot(_, SlotTimer::Silent)),
        other => !is_timer(other) && !matches!(other, Move::Recalls(..)),
    };
    Breach::of(&[Rule::OnlyTheHolderRuns], Invariant::OneLease).with(2, 1, 0).only(only).find();
}

#[test]
fn i1_breaks_only_if_the_broker_frees_by_time_and_the_manager_reserves_what_is_not_free() {
    let both = &[Rule::TakenUntilReported, Rule::OnlyFreeSlotsAreReserved];
    let only = |what| {
        let is_timer = matches!(what, Move::ManagerTimer(_) | Move::ClientTimer(_));
        !is_timer && !matches!(what, Move::Recalls(..) | Move::StepEnds(..))
    };
    Breach::of(both, Invariant::OneLease).with(2, 1, 0).only(only).find();
    Breach::of(&[Rule::TakenUntilReported], Invariant::BrokersCountRight).find();
    for alone in both {
        let setup = Setup { clients: 2, faults: 0, rules: Rules::without(&[*alone]), ..SMALL };
        let limits = Limits { states: 100_000, only, watched: Some(Invariant::OneLease), ..LIMITS };
        assert_unbroken(&run(&setup, &limits));
    }
}

#[test]
fn a_broker_that_believes_a_former_connection_counts_wrong() {
    let only = |what| match what {
        Move::ManagerTimer(timer) => matches!(timer, Timer::Slot(_, SlotTimer::Attach)),
        other => !is_timer(other) && !matches!(other, Move::Recalls(..)),
    };
    let breach = Breach::of(&[Rule::CurrentConnectionOnly], Invariant::BrokersCountRight);
    breach.with(2, 1, 1).only(only).find();
}

#[test]
fn an_offer_before_prepared_is_an_offer_of_nothing() {
    Breach::of(&[Rule::OfferAfterPrepared], Invariant::OffersAreLoaded).find();
}

#[test]
fn an_offer_before_prepared_tears_a_bundle() {
    let breach = Breach::of(&[Rule::OfferAfterPrepared], Invariant::BundlesAreWhole);
    breach.among(Setup { faults: 0, ..BUNDLE }).find();
}

#[test]
fn a_former_result_that_counts_leaves_a_want_with_bytes_that_are_done() {
    let breach = Breach::of(&[Rule::FormerResultsAreDropped], Invariant::WantsSayTheRest);
    breach.among(Setup { faults: 0, ..RUN }).find();
}

#[test]
fn results_of_former_leases_break_i3() {
    let only = |what| !matches!(what, Move::Recalls(..));
    Breach::of(&[Rule::FormerResultsAreDropped], Invariant::AtMostOnce).only(only).find();
}

#[test]
fn a_job_that_does_not_ask_again_never_ends() {
    Breach::of(&[Rule::LostLeaseIsWantedAgain], Invariant::OnceAtLast).find();
}

#[test]
fn a_want_that_comes_late_hides_its_job_from_the_broker() {
    let only = |what| !matches!(what, Move::ManagerTimer(_) | Move::Recalls(..) | Move::StepEnds(..));
    Breach::of(&[Rule::LaterAttemptsWin], Invariant::OnceAtLast).with(1, 1, 1).only(only).find();
}

#[test]
fn a_want_without_its_ticket_breaks_i5() {
    Breach::of(&[Rule::WantsCarryTheTicket], Invariant::ArrivalStays).with(1, 1, 1).find();
}

#[test]
fn without_an_end_of_silence_a_dead_client_breaks_i4() {
    Breach::of(&[Rule::SilenceDrains], Invariant::DeadClientsLoseSlots).with(1, 1, 1).find();
}

#[test]
fn without_a_deadline_for_a_yield_a_deaf_client_breaks_i6() {
    Breach::of(&[Rule::YieldHasADeadline], Invariant::RecallsEnd).find();
}
