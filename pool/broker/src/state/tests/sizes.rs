//! Jobs that have more bytes than they have named.

use super::*;
use fpga_cluster::pool::policy::Order;

impl Bench {
    /// A job of so many bytes asks for a slot, and shows a ticket.
    fn want_bytes(&mut self, job: u128, bytes: u64, ticket: Option<SealedTicket>) -> Vec<Output> {
        let wanted = Wanted { accelerator: "aes".into(), work: Work::Run { bytes }, bundle: None };
        let outputs = self.want_with(job, wanted, ticket);
        self.state.policy.check();
        outputs
    }

    /// A job of a byte that gets a slot at once, with its ticket.
    fn holder(&mut self, job: u128) -> (Lease, SealedTicket) {
        let outputs = self.want_bytes(job, 1, None);
        let ticket = |output: &Output| match output {
            Output::ToClient(_, ToClient::Ticket(sealed, _)) => Some(*sealed),
            _ => None,
        };
        let ticket = outputs.iter().find_map(ticket).unwrap();
        let (_, lease) = prepares(&outputs).remove(0);
        self.hold(1, &lease);
        (lease, ticket)
    }

    /// A lease ends that has used so many bytes. Returns the jobs that get the slot.
    fn free_after(&mut self, lease: &Lease, bytes: u64) -> Vec<u128> {
        let outputs = self.slot_report(1, lease.slot, SlotStatus::Free, SlotCause::Drained, used(bytes));
        self.state.policy.check();
        let next = prepares(&outputs);
        next.iter().for_each(|(manager, lease)| self.hold(*manager, lease));
        next.iter().map(|(_, lease)| lease.job.0).collect()
    }
}

fn used(bytes: u64) -> Usage {
    Usage { bytes, actions: 1, busy: Millis(1) }
}

#[test]
fn a_job_that_names_a_byte_and_streams_on_is_recalled_for_another_and_its_ticket_counts_no_more() {
    let mut bench = Bench::new("");
    bench.register(1, vec![SlotStatus::Free]);
    let (lease, ticket) = bench.holder(1);
    bench.pass(Millis::from_secs(1));
    assert_eq!(recalls(&bench.report_usage(1, &lease, used(100_000_000))), 0, "nobody waits");
    assert_eq!(recalls(&bench.run(2)), 1);
    bench.pass(Millis::from_secs(1));
    // The client's Want comes before its manager's report. By its ticket the job would be the first one.
    bench.want_bytes(1, 1, Some(ticket));
    bench.run(3);
    assert_eq!(bench.free_after(&lease, 100_000_000), [2]);
    // Until its further bytes are done it keeps the place that they have got, however often it asks.
    bench.want_bytes(1, 2, Some(ticket));
    assert_eq!([bench.free_after(&lease, 10), bench.free_after(&lease, 10)], [[1], [3]]);
}

#[test]
fn bytes_beyond_that_are_told_at_the_end_count_for_a_job_that_has_asked_again_already() {
    let mut bench = Bench::new("");
    bench.register(1, vec![SlotStatus::Free]);
    let (lease, ticket) = bench.holder(1);
    bench.pass(Millis::from_secs(1));
    bench.run(2);
    bench.want_bytes(1, 1, Some(ticket));
    assert_eq!(bench.free_after(&lease, 4_000_002), [2]);
    assert_eq!(bench.free_after(&lease, 10), [1], "it waits for its further bytes");
}

#[test]
fn a_last_piece_that_is_filled_up_is_not_beyond_and_a_job_that_lost_its_slot_keeps_its_place() {
    let mut bench = Bench::new("");
    bench.register(1, vec![SlotStatus::Free]);
    let (lease, ticket) = bench.holder(1);
    bench.pass(Millis::from_secs(1));
    bench.run(2);
    assert_eq!(recalls(&bench.report_usage(1, &lease, used(4_000_001))), 0);
    bench.want_bytes(1, 1, Some(ticket));
    assert_eq!(bench.free_after(&lease, 4_000_001), [1]);
}

#[test]
fn bytes_beyond_queue_again_at_their_size() {
    let jobs = PoolPolicy { order: Order::Size, ..PoolPolicy::shared(Thresholds::new(Vec::new()).unwrap()) };
    let mut bench = Bench::with_jobs(jobs, GoalRules::default(), Millis::from_secs(5), "");
    bench.register(1, vec![SlotStatus::Free]);
    let (lease, ticket) = bench.holder(1);
    bench.want_bytes(2, 1_000_000, None);
    bench.report_usage(1, &lease, used(50_000_000));
    bench.want_bytes(1, 1, Some(ticket));
    bench.want_bytes(3, 49_000_000, None);
    bench.want_bytes(4, 51_000_000, None);
    assert_eq!([(); 4].map(|()| bench.free_after(&lease, 10)), [[2], [3], [1], [4]]);
}

#[test]
fn bytes_that_a_job_adds_to_its_wish_count_for_the_quota_and_what_was_admitted_does_not_again() {
    let mut bench = Bench::new("[default]\nwaiting-bytes = 10\n");
    bench.register(1, vec![SlotStatus::Free]);
    let (lease, ticket) = bench.holder(1);
    let refused = |outputs: Vec<Output>| {
        let ended = cancelled(&outputs);
        assert!(ended.iter().all(|(_, why, _)| *why == CancelCause::Quota), "{ended:?}");
        !ended.is_empty()
    };
    assert!(!refused(bench.want_bytes(2, 10, None)));
    assert!(!refused(bench.want_bytes(2, 9, None)));
    assert!(refused(bench.want_bytes(2, 11, None)), "more than before");
    assert!(!refused(bench.want_bytes(3, 10, None)));
    // The lease of the first job ends: its byte was admitted, and more bytes were not.
    assert_eq!(bench.free_after(&lease, 0), [3]);
    assert!(!refused(bench.want_bytes(4, 10, None)));
    assert!(!refused(bench.want_bytes(1, 1, Some(ticket))), "the quota is used up, and the job comes back");
    assert!(refused(bench.want_bytes(1, 2, Some(ticket))));
}
