//! The times of the lease protocol, on a paused clock.

use super::*;
use bytes::Bytes;
use fpga_board::dispatch::Tenant;
use fpga_board::dispatch::policy::DispatchRules;
use fpga_core::units::WallTime;
use fpga_pool_leases::ids::{GroupUuid, JobUuid, Term};
use fpga_pool_leases::lease::{Goal, Group, Lease, Work};
use fpga_pool_leases::messages::ManagerToBroker;
use fpga_pool_leases::timing;
use fpga_session::config::Config;
use fpga_session::dispatcher::Dispatcher;
use fpga_session::governor::{Governor, Limits};
use fpga_session::quotas::Quotas;
use fpga_session::reporting::Reports;
use fpga_session::settings::{Current, Settings};
use fpga_session::shutdown::Shutdown;
use fpga_session::store::BitstreamStore;
use std::cell::Cell;
use tokio::sync::mpsc::Receiver;
use tokio::time::timeout;
use tonic::Code;

const RUN: Work = Work::Run { bytes: 100 };

/// A lender of two slots, registered with a broker.
struct Pool {
    lender: Lender,
    bitstream: Digest,
    connection: ConnectionId,
    broker: Receiver<ManagerToBroker>,
    incarnation: Incarnation,
}

impl Pool {
    async fn start() -> Self {
        let slots = NonZeroU32::new(2).unwrap();
        let store = Arc::new(BitstreamStore::in_memory(1 << 20));
        let bitstream = store.insert(Bytes::from_static(b"a bitstream")).unwrap();
        let dispatcher = Dispatcher::new(slots, DispatchRules::default(), Reports::off());
        let settings = Settings::new(Current::default());
        let config = Config::without_listeners(dispatcher, settings.clone(), store);
        let limits = Limits { lasting: 1 << 20, passing: 1 << 20 };
        let governor = Governor::new(limits, limits);
        let board = Shared {
            quotas: Quotas::new(settings, config.metrics.clone(), governor.clone()),
            config,
            inventory: Arc::default(),
            router: Arc::default(),
            sides: Default::default(),
            governor,
            helper_thread: Arc::default(),
            shutdown: Shutdown::new(),
        };
        let lending = Lending {
            slots,
            of_board: slots,
            endpoint: Endpoint { address: "127.0.0.1:1".into(), key: None, socket: None },
            longest_step: Duration::from_secs(1),
            metrics: PoolMetrics::default(),
        };
        let lender = Lender::new(&lending, Arc::new(board), None, Vec::new, Handle::current()).unwrap();
        let timers = lender.clone();
        tokio::spawn(async move { timers.keep_time().await });
        let (connection, mut broker) = lender.register();
        let Some(ManagerToBroker::Register { incarnation, .. }) = broker.recv().await else {
            panic!("no Register")
        };
        Self { lender, bitstream, connection, broker, incarnation }
    }

    /// A client that holds a slot.
    async fn client(&mut self, id: u128, slot: u32, work: Work) -> Attachment {
        let lease = Lease {
            id: LeaseId(id),
            incarnation: self.incarnation,
            slot: SlotIndex(slot),
            job: JobUuid(id),
            tenant: Tenant::new("jobs"),
            digest: self.bitstream,
            work,
            first_arrival: WallTime(1),
        };
        let prepare = BrokerToManager::Prepare { term: Term(1), lease, usage_every: None };
        self.lender.broker_says(self.connection, prepare);
        while self.broker.recv().await.unwrap() != (ManagerToBroker::Prepared { lease: LeaseId(id) }) {}
        self.lender.attach(LeaseId(id)).unwrap()
    }
}

#[tokio::test(start_paused = true)]
async fn a_client_that_is_heard_keeps_its_slot_and_a_silent_one_loses_it_after_the_time_of_the_protocol() {
    let mut pool = Pool::start().await;
    let (mut heard, mut silent) = (pool.client(7, 0, RUN).await, pool.client(8, 1, RUN).await);
    let since = Instant::now();
    let lost = silent.ended(|| since, || {}).await;
    assert_eq!((lost.code(), since.elapsed()), (Code::Aborted, timing::SILENT.into()));
    // Its time began when the other client's did.
    let kept = timeout(Duration::from_secs(3600), heard.ended(Instant::now, || {})).await;
    assert!(kept.is_ok(), "nobody told the lender that it was heard");

    let mut heard = pool.client(9, 0, RUN).await;
    let kept = timeout(Duration::from_secs(3600), heard.ended(Instant::now, || {})).await;
    assert!(kept.is_err(), "{kept:?}");
}

#[tokio::test(start_paused = true)]
async fn without_a_broker_for_a_minute_a_group_is_asked_to_yield_and_a_run_goes_on() {
    let mut pool = Pool::start().await;
    let goal = Goal::Throughput { actions_per_hour: 3600 };
    let group = Work::Group(Group { id: GroupUuid(1), goal, least: 0, most: 1 });
    let (mut member, mut run) = (pool.client(7, 0, group).await, pool.client(8, 1, RUN).await);
    let since = Instant::now();
    pool.lender.broker_closed(pool.connection);
    let (asked, run_asked) = (Cell::new(None), Cell::new(false));
    let member = async {
        let ended = member.ended(Instant::now, || asked.set(Some(since.elapsed()))).await;
        assert_eq!(ended.code(), Code::Aborted, "it does not yield");
    };
    let run = timeout(Duration::from_secs(3600), run.ended(Instant::now, || run_asked.set(true)));
    let ((), run) = tokio::join!(member, run);
    assert!(run.is_err() && !run_asked.get(), "{run:?}");
    assert_eq!(asked.get(), Some(timing::ORPHAN.into()));
}
