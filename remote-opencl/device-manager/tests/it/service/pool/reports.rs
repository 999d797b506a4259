//! What the broker is told of leases while they last, and what becomes of them without a broker.

use super::{Pool, Worker};
use crate::harness::Client;
use fpga_core::units::Millis;
use fpga_pool_leases::ids::{GroupUuid, Term};
use fpga_pool_leases::lease::{Goal, Group, Lease, Usage, Work};
use fpga_pool_leases::messages::{BrokerToManager, ManagerToBroker, SlotCause, SlotStatus};

impl Pool {
    /// A client that holds slot 0 for a group, whose usage the broker asks for every 10 ms.
    async fn member(&mut self, id: u128) -> Client {
        let goal = Goal::Throughput { actions_per_hour: 3600 };
        let work = Work::Group(Group { id: GroupUuid(1), goal, least: 0, most: 1 });
        let lease = Lease { work, ..self.stream.lease(id, 0, self.digest()) };
        let usage_every = Some(Millis(10));
        self.stream.say(BrokerToManager::Prepare { term: Term(1), lease: lease.clone(), usage_every }).await;
        assert_eq!(self.stream.next().await, ManagerToBroker::Prepared { lease: lease.id });
        let client = Client::with_lease(self.manager.channel().await, id).await.unwrap();
        self.stream.report_of(SlotCause::Attached).await;
        client
    }
}

#[tokio::test]
async fn many_short_steps_lose_no_busy_time() {
    let mut pool = Pool::start(&["--slots", "2", "--pool-slots", "1"]).await;
    let client = pool.holder(7, 0).await;
    let mut worker = Worker::new(client, &pool.bitstream, "brief").await;
    let steps = 40;
    for _ in 0..steps {
        let read = worker.step().await;
        worker.ends_well(read).await;
    }
    drop(worker);
    let used = pool.stream.freed().await.usage;
    assert_eq!(used.actions, steps);
    // A step takes 0.6 ms or more, and usage is told in whole milliseconds.
    assert!(used.busy >= Millis(24), "{used:?}");
}

#[tokio::test]
async fn the_usage_of_a_lease_is_told_while_it_runs_as_often_as_the_broker_asked() {
    let mut pool = Pool::start(&["--slots", "2", "--pool-slots", "1"]).await;
    let client = pool.member(7).await;
    let mut worker = Worker::new(client, &pool.bitstream, "brief").await;
    // At least 36 ms, without a pause of a second, which would be reported as well.
    for _ in 0..60 {
        let read = worker.step().await;
        worker.ends_well(read).await;
    }
    let mut used = Usage::default();
    for _ in 0..2 {
        let report = pool.stream.report_of(SlotCause::Used).await;
        assert!(matches!(report.status, SlotStatus::Held(..)), "{report:?}");
        assert!(
            report.usage.actions > used.actions && report.usage.busy >= used.busy,
            "{report:?} after {used:?}"
        );
        used = report.usage;
    }
}
