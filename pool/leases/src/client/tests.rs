use super::*;
use crate::ids::BundleUuid;
use crate::lease::{Bundle, Endpoint};
use fpga_core::units::{Millis, WallTime};

const BROKER: ConnectionId = ConnectionId(1);
const NOW: MonotonicTime = MonotonicTime(1_000);
const JOB: JobUuid = JobUuid(5);

fn wanted(bytes: u64) -> Wanted {
    Wanted { accelerator: "aes".into(), work: Work::Run { bytes }, bundle: None }
}

fn endpoint() -> Endpoint {
    Endpoint { address: "a:1".into(), key: None, socket: None }
}

/// A job with so many steps of ten bytes, connected to a broker.
fn job(steps: u64, repetition: Repetition) -> Job {
    let mut job = Job::new(JOB, wanted(steps * 10), repetition, Rules::default());
    for step in (0..steps).map(StepNumber) {
        assert_eq!(job.handle(Event::Submit { step, bytes: 10 }, NOW), []);
    }
    job.handle(Event::Finish, NOW);
    assert_eq!(job.handle(Event::BrokerConnected(BROKER), NOW), [want(steps * 10, None)]);
    job
}

fn want(bytes: u64, ticket: Option<Ticket>) -> Action {
    attempt(1, bytes, ticket)
}

fn attempt(number: u64, bytes: u64, ticket: Option<Ticket>) -> Action {
    let (wanted, attempt) = (wanted(bytes), Attempt(number));
    Action::ToBroker(ClientToBroker::Want { job: JOB, wanted, ticket, attempt })
}

fn offer(job: &mut Job, lease: u128) -> Vec<Action> {
    let offer = BrokerToClient::Offer { job: JOB, lease: LeaseId(lease), endpoint: endpoint() };
    job.handle(Event::Broker(BROKER, offer), NOW)
}

fn from_manager(job: &mut Job, message: ManagerToClient) -> Vec<Action> {
    let (ManagerToClient::Attached { lease }
    | ManagerToClient::Gone { lease }
    | ManagerToClient::Yield { lease }
    | ManagerToClient::StepDone { lease, .. }
    | ManagerToClient::StepRefused { lease, .. }) = message;
    job.handle(Event::Manager(lease, message), NOW)
}

fn attached(job: &mut Job, lease: u128) -> Vec<Action> {
    assert!(matches!(offer(job, lease)[..], [Action::Attach { .. }]));
    from_manager(job, ManagerToClient::Attached { lease: LeaseId(lease) })
}

fn step(lease: u128, step: u64) -> Action {
    let lease = LeaseId(lease);
    Action::ToManager(lease, ClientToManager::Step { lease, step: StepNumber(step) })
}

fn done(job: &mut Job, lease: u128, step: u64) -> Vec<Action> {
    from_manager(job, ManagerToClient::StepDone { lease: LeaseId(lease), step: StepNumber(step) })
}

fn refused(job: &mut Job, lease: u128, step: u64) -> Vec<Action> {
    from_manager(job, ManagerToClient::StepRefused { lease: LeaseId(lease), step: StepNumber(step) })
}

fn released(lease: u128) -> [Action; 2] {
    let lease = LeaseId(lease);
    [Action::ToManager(lease, ClientToManager::Release { lease }), Action::CloseManager(lease)]
}

#[test]
fn a_job_sends_two_steps_ahead_and_releases_its_slot_after_the_last() {
    let mut job = job(3, Repetition::Allowed);
    assert_eq!(attached(&mut job, 1), [step(1, 0), step(1, 1)]);
    assert_eq!(done(&mut job, 1, 0), [Action::Deliver(StepNumber(0)), step(1, 2)]);
    assert_eq!(done(&mut job, 1, 1), [Action::Deliver(StepNumber(1))]);
    let [release, close] = released(1);
    let last = [Action::Deliver(StepNumber(2)), release, close, Action::Ended(End::Done)];
    assert_eq!(done(&mut job, 1, 2), last);
}

#[test]
fn a_yielding_job_ends_what_has_started_and_wants_a_slot_for_the_rest_with_its_ticket() {
    let mut job = job(3, Repetition::Allowed);
    let ticket = Ticket { job: JOB, first_arrival: WallTime(7) };
    job.handle(Event::Broker(BROKER, BrokerToClient::Ticket(ticket)), NOW);
    attached(&mut job, 1);
    assert_eq!(from_manager(&mut job, ManagerToClient::Yield { lease: LeaseId(1) }), []);
    assert_eq!(done(&mut job, 1, 0), [Action::Deliver(StepNumber(0))]);
    let [release, close] = released(1);
    let last = [Action::Deliver(StepNumber(1)), release, close, want(10, Some(ticket))];
    assert_eq!(done(&mut job, 1, 1), last);
    assert_eq!(attached(&mut job, 2), [step(2, 2)]);
}

#[test]
fn a_step_that_is_refused_after_a_yield_has_not_run_and_runs_under_the_next_lease() {
    let mut job = job(2, Repetition::Forbidden);
    attached(&mut job, 1);
    assert_eq!(done(&mut job, 1, 0), [Action::Deliver(StepNumber(0))]);
    // The refusal may be heard before the Yield, and says the same.
    let [release, close] = released(1);
    assert_eq!(refused(&mut job, 1, 1), [release, close, want(10, None)]);
    assert_eq!(refused(&mut job, 1, 1), []);
    assert_eq!(attached(&mut job, 2), [step(2, 1)]);
}

#[test]
fn a_groups_job_takes_no_more_steps_than_it_sends_at_once_and_gives_back_what_is_not_under_way() {
    let mut job = Job::new(JOB, wanted(0), Repetition::Allowed, Rules::default());
    job.handle(Event::BrokerConnected(BROKER), NOW);
    assert_eq!(job.room(), 0, "a job without a slot runs nothing");
    attached(&mut job, 1);
    assert_eq!(job.room(), 2);
    for number in 0..2 {
        let submit = Event::Submit { step: StepNumber(number), bytes: 10 };
        assert_eq!(job.handle(submit, NOW), [step(1, number)]);
    }
    assert_eq!((job.room(), job.withdraw()), (0, vec![]));
    done(&mut job, 1, 0);
    assert_eq!(job.room(), 1);
    from_manager(&mut job, ManagerToClient::Yield { lease: LeaseId(1) });
    assert_eq!(job.room(), 0, "a job that yields takes nothing more");
    job.handle(Event::ManagerClosed(LeaseId(1)), NOW);
    assert_eq!((job.withdraw(), job.withdraw()), (vec![StepNumber(1)], vec![]));
    // The step is another job's now.
    attached(&mut job, 2);
    assert_eq!(done(&mut job, 2, 1), []);
}

#[test]
fn a_job_that_loses_its_manager_repeats_the_steps_under_way_and_drops_their_former_results() {
    let mut job = job(2, Repetition::Allowed);
    attached(&mut job, 1);
    let lost = job.handle(Event::ManagerClosed(LeaseId(1)), NOW);
    assert_eq!(lost, [Action::CloseManager(LeaseId(1)), want(20, None)]);
    assert_eq!(done(&mut job, 1, 0), []);
    assert_eq!(attached(&mut job, 2), [step(2, 0), step(2, 1)]);
    assert_eq!(done(&mut job, 1, 0), []);
    assert_eq!(done(&mut job, 2, 0), [Action::Deliver(StepNumber(0))]);
    assert_eq!(done(&mut job, 2, 0), []);
}

#[test]
fn a_step_that_must_not_run_twice_ends_its_job_when_the_lease_is_lost() {
    let mut job = job(2, Repetition::Forbidden);
    attached(&mut job, 1);
    let lost = job.handle(Event::ManagerClosed(LeaseId(1)), NOW);
    assert_eq!(lost, [Action::CloseManager(LeaseId(1)), Action::Ended(End::Lost(StepNumber(0)))]);
}

#[test]
fn a_job_may_learn_late_that_its_steps_may_run_again() {
    let mut job = job(1, Repetition::Forbidden);
    job.set_repetition(Repetition::Allowed);
    attached(&mut job, 1);
    let lost = job.handle(Event::ManagerClosed(LeaseId(1)), NOW);
    assert_eq!(lost, [Action::CloseManager(LeaseId(1)), want(10, None)]);
}

#[test]
fn a_silent_manager_is_lost_after_five_seconds_without_a_sign_of_life() {
    let mut job = job(1, Repetition::Allowed);
    attached(&mut job, 1);
    job.handle(Event::ManagerAlive(LeaseId(1)), NOW + Millis(4000));
    assert_eq!(job.tick(NOW + Millis(8999)), []);
    assert_eq!(job.tick(NOW + Millis(9000)), [Action::CloseManager(LeaseId(1)), want(10, None)]);
    assert_eq!(job.next_deadline(), None);
}

#[test]
fn a_manager_that_answers_pings_and_not_the_attach_is_lost_after_five_seconds() {
    let mut job = job(1, Repetition::Allowed);
    offer(&mut job, 1);
    job.handle(Event::ManagerAlive(LeaseId(1)), NOW + Millis(4000));
    from_manager(&mut job, ManagerToClient::Yield { lease: LeaseId(1) });
    assert_eq!(job.tick(NOW + Millis(4999)), []);
    assert_eq!(job.tick(NOW + Millis(5000)), [Action::CloseManager(LeaseId(1)), want(10, None)]);
}

#[test]
fn a_job_takes_its_first_offer_and_declines_others() {
    let mut job = job(1, Repetition::Allowed);
    offer(&mut job, 1);
    assert_eq!(offer(&mut job, 1), []);
    let declined = [Action::Decline { lease: LeaseId(2), endpoint: endpoint() }];
    assert_eq!(offer(&mut job, 2), declined);
    job.handle(Event::Cancel, NOW);
    assert!(matches!(offer(&mut job, 3)[..], [Action::Decline { .. }]));
}

#[test]
fn a_job_whose_lease_is_gone_wants_another_one() {
    let mut job = job(1, Repetition::Allowed);
    offer(&mut job, 1);
    let gone = from_manager(&mut job, ManagerToClient::Gone { lease: LeaseId(1) });
    assert_eq!(gone, [Action::CloseManager(LeaseId(1)), want(10, None)]);
}

#[test]
fn a_cancelled_job_is_over_at_once_wherever_it_is() {
    let cancel = Action::ToBroker(ClientToBroker::Cancel { job: JOB });
    let over = Action::Ended(End::Cancelled);
    assert_eq!(job(1, Repetition::Allowed).handle(Event::Cancel, NOW), [cancel, over.clone()]);
    let mut running = job(1, Repetition::Allowed);
    attached(&mut running, 1);
    let [release, close] = released(1);
    assert_eq!(running.handle(Event::Cancel, NOW), [release, close, over]);
    assert_eq!(running.handle(Event::Cancel, NOW), []);
}

#[test]
fn the_first_ticket_counts_and_others_jobs_tickets_do_not() {
    let mut job = job(1, Repetition::Allowed);
    for (of, at) in [(JobUuid(9), 1), (JOB, 2), (JOB, 3)] {
        let ticket = Ticket { job: of, first_arrival: WallTime(at) };
        job.handle(Event::Broker(BROKER, BrokerToClient::Ticket(ticket)), NOW);
    }
    assert_eq!(job.ticket().map(|ticket| ticket.first_arrival), Some(WallTime(2)));
}

#[test]
fn bytes_beyond_the_declared_ones_are_wanted_at_their_size_and_without_the_ticket() {
    let mut job = Job::new(JOB, wanted(10), Repetition::Allowed, Rules::default());
    job.handle(Event::BrokerConnected(BROKER), NOW);
    let tell = |job: &mut Job, at| {
        let ticket = Ticket { job: JOB, first_arrival: WallTime(at) };
        job.handle(Event::Broker(BROKER, BrokerToClient::Ticket(ticket)), NOW);
        Some(ticket)
    };
    let submit = |job: &mut Job, step| {
        job.handle(Event::Submit { step: StepNumber(step), bytes: 10 }, NOW);
    };
    let first = tell(&mut job, 7);
    // As long as declared bytes are left, the ticket counts.
    attached(&mut job, 1);
    assert_eq!(job.handle(Event::ManagerClosed(LeaseId(1)), NOW)[1..], [want(10, first)]);
    attached(&mut job, 2);
    (0..4).for_each(|step| submit(&mut job, step));
    done(&mut job, 2, 0);
    from_manager(&mut job, ManagerToClient::Yield { lease: LeaseId(2) });
    done(&mut job, 2, 1);
    let [release, close] = released(2);
    assert_eq!(done(&mut job, 2, 2), [Action::Deliver(StepNumber(2)), release, close, want(10, None)]);
    // That is a new arrival, which the job keeps until those bytes are done, too.
    let second = tell(&mut job, 9);
    assert_eq!(job.handle(Event::BrokerConnected(BROKER), NOW), [attempt(2, 10, second)]);
    attached(&mut job, 3);
    done(&mut job, 3, 3);
    // Nothing waits: it may be any number of bytes.
    let yielded = from_manager(&mut job, ManagerToClient::Yield { lease: LeaseId(3) });
    assert_eq!(yielded[2..], [attempt(2, 1, None)]);
}

#[test]
fn a_job_without_bytes_keeps_its_ticket() {
    let mut job = Job::new(JOB, wanted(0), Repetition::Allowed, Rules::default());
    job.handle(Event::Submit { step: StepNumber(0), bytes: 0 }, NOW);
    job.handle(Event::BrokerConnected(BROKER), NOW);
    let ticket = Ticket { job: JOB, first_arrival: WallTime(7) };
    job.handle(Event::Broker(BROKER, BrokerToClient::Ticket(ticket)), NOW);
    attached(&mut job, 1);
    let lost = job.handle(Event::ManagerClosed(LeaseId(1)), NOW);
    assert_eq!(lost[1..], [want(0, Some(ticket))]);
}

#[test]
fn a_former_connection_to_a_broker_says_nothing() {
    let mut job = job(1, Repetition::Allowed);
    assert_eq!(job.handle(Event::BrokerConnected(ConnectionId(2)), NOW), [attempt(2, 10, None)]);
    assert_eq!(offer(&mut job, 1), []);
    job.handle(Event::BrokerClosed(BROKER), NOW);
    assert_eq!(job.broker_connection(), Some(ConnectionId(2)));
}

#[test]
fn a_job_asks_with_its_bundle_until_it_or_another_one_of_the_bundle_has_an_offer() {
    let bundle = Some(Bundle { id: BundleUuid(9), size: 2 });
    let wanted_so = |bundle| Wanted { bundle, ..wanted(10) };
    let asks = |number, bundle| {
        let (wanted, attempt) = (wanted_so(bundle), Attempt(number));
        [Action::ToBroker(ClientToBroker::Want { job: JOB, wanted, ticket: None, attempt })]
    };
    let new = || Job::new(JOB, wanted_so(bundle), Repetition::Allowed, Rules::default());
    let mut job = new();
    assert_eq!(job.handle(Event::BrokerConnected(BROKER), NOW), asks(1, bundle));
    assert_eq!(job.ask_by_itself(), []);
    offer(&mut job, 1);
    assert_eq!((job.bundle(), job.ask_by_itself()), (None, vec![]));
    assert_eq!(from_manager(&mut job, ManagerToClient::Gone { lease: LeaseId(1) })[1..], asks(1, None));
    // The own Offer is lost.
    let mut job = new();
    job.handle(Event::BrokerConnected(BROKER), NOW);
    job.leave_bundle();
    assert_eq!(job.ask_by_itself(), asks(1, None));
    assert_eq!(job.ask_by_itself(), []);
}
