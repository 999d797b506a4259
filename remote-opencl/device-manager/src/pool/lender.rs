//! The owner of the lease protocol's state machine: the clock, the actions, and all that happens to lent slots.
//!
//! Every event goes through one lock, under which the machine decides and its actions are carried out; an action that
//! takes time runs on its own, and its end is another event. The lock is held for a moment only, so that sessions on
//! their threads may tell of their tasks.

mod actions;
mod attachment;
mod brokers;
mod watch;

use super::metrics::PoolMetrics;
use super::processes::LeaseProcesses;
use super::slot::{LENDER, LentSlot};
use crate::former::FormerProcess;
use fpga_board::slots::{SessionId, SlotIndex};
use fpga_core::bitstream::Digest;
use fpga_core::units::{Millis, MonotonicTime};
use fpga_pool_leases::ids::{ConnectionId, Incarnation, LeaseId};
use fpga_pool_leases::lease::Endpoint;
use fpga_pool_leases::manager::{self, Event, Manager};
use fpga_pool_leases::messages::{BrokerToManager, ClientToManager, SlotStatus};
use fpga_pool_leases::rules::Rules;
use fpga_session::segments::Key;
use fpga_session::session::Shared;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::io;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;
use tokio::runtime::Handle;
use tokio::sync::{Notify, watch as tokio_watch};
use tokio::time::Instant;
use watch::SlotWatch;

pub use attachment::Attachment;

use attachment::{Standing, connection_of};
use brokers::BrokerLink;

/// What the manager lends.
#[derive(Debug, Clone)]
pub struct Lending {
    /// Number of lent slots, the last ones of the board.
    pub slots: NonZeroU32,
    /// Number of all slots of the board.
    pub of_board: NonZeroU32,
    /// Where clients find the manager.
    pub endpoint: Endpoint,
    /// The longest time that a step takes.
    pub longest_step: Duration,
    /// Counts what happens to the lent slots.
    pub metrics: PoolMetrics,
}

/// The lender of a manager's slots. Clones share it.
#[derive(Debug, Clone)]
pub struct Lender(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    state: Mutex<State>,
    slots: Vec<LentSlot>,
    board: Arc<Shared>,
    processes: Option<Arc<dyn LeaseProcesses>>,
    metrics: PoolMetrics,
    epoch: Instant,
    /// Notified when a timer is due earlier than before.
    sooner: Notify,
    /// Runs the actions that take time.
    runtime: Handle,
    /// Finds the tenant processes of former managers that still run.
    former: fn() -> Vec<FormerProcess>,
}

#[derive(Debug)]
struct State {
    machine: Manager,
    clients: HashMap<ConnectionId, Client>,
    broker: Option<BrokerLink>,
    last_broker: u64,
    /// The session that last attached to each slot.
    last_sessions: Vec<Option<SessionId>>,
    /// Number of loads that run in each slot.
    loads: Vec<usize>,
    /// Busy time of each slot that is counted and not told yet: less than a millisecond.
    busy_rests: Vec<Duration>,
    /// When the timer's task wakes.
    wakes_at: Option<MonotonicTime>,
}

/// A session with a lease.
#[derive(Debug)]
struct Client {
    lease: LeaseId,
    standing: tokio_watch::Sender<Standing>,
}

impl Lender {
    /// Lends slots of a board. Actions that take time run on `runtime`. `former` finds the tenant processes of former
    /// managers that still run: they are ended before the lender registers with a broker.
    ///
    /// # Errors
    /// The system has no random numbers.
    pub fn new(
        lending: &Lending,
        board: Arc<Shared>,
        processes: Option<Arc<dyn LeaseProcesses>>,
        former: fn() -> Vec<FormerProcess>,
        runtime: Handle,
    ) -> io::Result<Self> {
        let config = manager::Config {
            incarnation: incarnation()?,
            endpoint: lending.endpoint.clone(),
            slots: lending.slots.get(),
            longest_step: lending.longest_step.into(),
        };
        let (machine, first) = Manager::new(config, Rules::ALL);
        let count = lending.slots.get() as usize;
        let state = State {
            machine,
            clients: HashMap::new(),
            broker: None,
            last_broker: 0,
            last_sessions: vec![None; count],
            loads: vec![0; count],
            busy_rests: vec![Duration::ZERO; count],
            wakes_at: None,
        };
        let first_slot = lending.of_board.get().saturating_sub(lending.slots.get());
        let inner = Arc::new_cyclic(|inner| Inner {
            state: Mutex::new(state),
            slots: (0..lending.slots.get())
                .map(|slot| {
                    let watch = SlotWatch::new(inner.clone(), SlotIndex(slot));
                    LentSlot::new(&board.config, SlotIndex(first_slot + slot), Arc::new(watch))
                })
                .collect(),
            board,
            processes,
            metrics: lending.metrics.clone(),
            epoch: Instant::now(),
            sooner: Notify::new(),
            runtime,
            former,
        });
        let lender = Self(inner);
        lender.begin(first);
        Ok(lender)
    }

    /// Lets a client attach to the slot of its lease; `None` if the lease is gone.
    #[must_use]
    pub fn attach(&self, lease: LeaseId) -> Option<Attachment> {
        let session = self.0.board.config.dispatcher.new_session();
        let connection = connection_of(session);
        let (sender, standing) = tokio_watch::channel(Standing::Asks);
        let mut state = self.0.state.lock();
        state.clients.insert(connection, Client { lease, standing: sender });
        self.0.handle(&mut state, Event::Client(connection, ClientToManager::Attach { lease }));
        let held = state.held(lease);
        let (Standing::Holds, Some((slot, held))) = (*standing.borrow(), held) else {
            state.clients.remove(&connection);
            self.0.metrics.gone.inc();
            return None;
        };
        if let Some(last) = state.last_sessions.get_mut(slot) {
            *last = Some(session);
        }
        drop(state);
        self.0.metrics.leases.inc();
        let shared = Arc::new(self.0.slots.get(slot)?.shared(&self.0.board, held.digest));
        Some(Attachment { lender: self.clone(), session, tenant: held.tenant, shared, standing })
    }

    /// Lets the timers of the protocol fire, for ever.
    pub async fn keep_time(&self) {
        loop {
            let next = {
                let mut state = self.0.state.lock();
                let now = self.0.now();
                let actions = state.machine.tick(now);
                self.0.act_all(&mut state, actions);
                state.wakes_at = state.machine.next_deadline();
                state.wakes_at
            };
            let next = next.map(|at| self.0.instant(at));
            tokio::select! {
                () = self.0.sooner.notified() => {}
                () = tokio::time::sleep_until(next.unwrap_or_else(Instant::now)), if next.is_some() => {}
            }
        }
    }

    /// Starts the tasks of leased sessions that running tasks may be waiting for, for ever.
    pub async fn start_stalled(&self, every: Duration) {
        let of_slot = async |slot: &LentSlot| loop {
            let dispatcher = slot.dispatcher();
            dispatcher.tasks_wait().await;
            tokio::time::sleep(every).await;
            // Every grant is delivered to its session.
            self.0.board.router.deliver(dispatcher.start_stalled(), LENDER, dispatcher);
        };
        futures::future::join_all(self.0.slots.iter().map(of_slot)).await;
    }

    /// Lends no more, since the manager drains: the broker is told nothing more, and the clients are asked to give their
    /// slots up.
    pub fn drain(&self) {
        let mut state = self.0.state.lock();
        let connection = state.new_broker();
        state.broker = None;
        self.0.handle(&mut state, Event::BrokerConnected(connection));
        for lease in state.leases() {
            self.0.handle(&mut state, Event::Broker(connection, BrokerToManager::Recall { lease }));
        }
    }

    /// The bitstream that each lent slot has, in order.
    pub(super) fn loaded(&self) -> impl Iterator<Item = Option<Digest>> + '_ {
        self.0.slots.iter().map(LentSlot::loaded)
    }

    /// Notes when a client was heard last: by a byte of its connection.
    pub(super) fn heard(&self, client: ConnectionId, at: Instant) {
        let mut state = self.0.state.lock();
        let at = self.0.time(at);
        let actions = state.machine.handle(Event::ClientAlive(client), at);
        self.0.act_all(&mut state, actions);
    }

    /// Notes that a client has gone. Its session may still have tasks.
    pub(super) fn closed(&self, client: ConnectionId) {
        let mut state = self.0.state.lock();
        self.0.handle(&mut state, Event::ClientClosed(client));
    }

    /// Notes that a session has ended, and its tasks with it.
    pub(super) fn forget(&self, client: ConnectionId) {
        let mut state = self.0.state.lock();
        self.0.handle(&mut state, Event::ClientClosed(client));
        state.clients.remove(&client);
    }
}

impl Inner {
    fn now(&self) -> MonotonicTime {
        self.time(Instant::now())
    }

    fn time(&self, at: Instant) -> MonotonicTime {
        MonotonicTime::after(at.saturating_duration_since(self.epoch))
    }

    fn instant(&self, at: MonotonicTime) -> Instant {
        self.epoch + Duration::from(at - MonotonicTime::default())
    }

    /// Lets the machine decide on an event, and carries its actions out.
    fn handle(self: &Arc<Self>, state: &mut State, event: Event) {
        let actions = state.machine.handle(event, self.now());
        self.act_all(state, actions);
        let next = state.machine.next_deadline();
        if next.is_some_and(|next| state.wakes_at.is_none_or(|wakes_at| next < wakes_at)) {
            state.wakes_at = next;
            self.sooner.notify_one();
        }
    }
}

impl State {
    /// Busy time in whole milliseconds. What is left counts with the next steps of the slot, so that many short steps
    /// lose nothing.
    fn whole_millis(&mut self, slot: SlotIndex, busy: Duration) -> Millis {
        let Some(rest) = self.busy_rests.get_mut(slot.0 as usize) else { return busy.into() };
        let all = busy.saturating_add(*rest);
        let whole = Millis::from(all);
        *rest = all.saturating_sub(whole.into());
        whole
    }

    fn statuses(&self) -> Vec<SlotStatus> {
        (0..).map_while(|slot| self.machine.slot(SlotIndex(slot))).collect()
    }

    /// The slot that a lease holds, and the lease.
    fn held(&self, id: LeaseId) -> Option<(usize, fpga_pool_leases::lease::Lease)> {
        self.statuses().into_iter().enumerate().find_map(|(slot, status)| match status {
            SlotStatus::Held(lease, _) if lease.id == id => Some((slot, lease)),
            _ => None,
        })
    }

    /// The leases that have not ended.
    fn leases(&self) -> Vec<LeaseId> {
        let of = |status| match status {
            SlotStatus::Reserved(lease) | SlotStatus::Held(lease, _) => Some(lease.id),
            SlotStatus::Free | SlotStatus::Draining(_) | SlotStatus::Bad => None,
        };
        self.statuses().into_iter().filter_map(of).collect()
    }
}

/// An id for this life of the process.
fn incarnation() -> io::Result<Incarnation> {
    let key = Key::random()?;
    let bytes = key.bytes().first_chunk::<16>().ok_or(io::ErrorKind::UnexpectedEof)?;
    Ok(Incarnation(u128::from_be_bytes(*bytes)))
}

#[cfg(test)]
mod tests;
