//! A leased slot: the session with its manager, and the two threads that work on it.
//!
//! The first thread opens the session, prepares the accelerator and starts each step that comes; the second one waits for
//! the ends of the steps, in order. So the bytes of the next step move while one computes.

mod board;
mod in_order;

use crate::step::Step;
use board::{Board, BoardError, UnderWay};
use bytes::Bytes;
use fpga_accelerators::{Arguments, Interface};
use fpga_client::{Lease, LeaseError, LeasedSession, Notice};
use fpga_core::bitstream::Digest;
use fpga_foreign_process::spawn_with_signals_blocked;
use fpga_net::tls::PinnedKey;
use fpga_pool_leases::ids::{LeaseId, StepNumber};
use fpga_pool_leases::lease::Endpoint;
use fpga_pool_leases::timing;
use in_order::InOrder;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

/// What the threads of a slot report.
pub(crate) enum SlotEvent {
    /// The session is open: the job holds the slot.
    Opened(Arc<LeasedSession>),
    /// The manager wants the slot back.
    Yield,
    /// A step has ended.
    Done(Done),
    /// A step came after the manager's Yield, and has not run.
    Refused(StepNumber),
    /// The threads end: there is no session, or not any more.
    Ended(SlotEnd),
}

/// What a step has left.
#[derive(Debug)]
pub(crate) struct Done {
    pub(crate) step: StepNumber,
    pub(crate) output: Bytes,
    /// The accelerator's state after the step; empty if it has none.
    pub(crate) state: Bytes,
}

/// How a slot ends.
#[derive(Debug)]
pub(crate) enum SlotEnd {
    /// The manager does not know the lease.
    Gone,
    /// The manager is gone or has ended the session, or the session was closed.
    Lost(String),
    /// The board does not do what it should.
    Failed(String),
}

/// What a slot is to do.
pub(crate) struct Work {
    /// The bitstream that is loaded.
    pub(crate) digest: Digest,
    pub(crate) interface: Arc<Interface>,
    pub(crate) arguments: Arc<Arguments>,
    pub(crate) continuity: Continuity,
}

/// What steps have to do with each other.
pub(crate) enum Continuity {
    /// They are chunks of one stream: each begins with the state that the former one left.
    Stream {
        /// The state with which the first step begins; empty for zeros.
        state: Bytes,
    },
    /// Each is a stream by itself, and begins with zeros.
    None,
}

/// A slot and what it is taken for.
pub(crate) struct LeasedSlot {
    /// `None` if the slot is only taken to give it up.
    pub(crate) work: Option<Work>,
    /// The steps. The slot is given up when their sender is gone.
    pub(crate) steps: Receiver<Step>,
}

/// Takes what the threads report.
pub(crate) type Report = Arc<dyn Fn(SlotEvent) + Send + Sync>;

/// The addresses of a manager and the keys that belong to them, in the order in which they are tried.
pub(crate) fn addresses(endpoint: &Endpoint, is_local: bool) -> Vec<(String, Option<PinnedKey>)> {
    let socket = endpoint.socket.as_ref().filter(|_| is_local);
    let near = socket.map(|path| (format!("unix:{path}"), None));
    let far = (!endpoint.address.is_empty())
        .then(|| (format!("tcp://{}", endpoint.address), endpoint.key.map(PinnedKey)));
    near.into_iter().chain(far).collect()
}

/// Whether bytes that go to the address leave this machine. A name counts as another machine's, whatever it stands for.
fn leaves_machine(address: &str) -> bool {
    let Some(address) = address.strip_prefix("tcp://") else { return false };
    !address.parse::<SocketAddr>().is_ok_and(|address| address.ip().is_loopback())
}

/// Starts the threads of a slot.
pub(crate) fn start(
    lease: LeaseId,
    addresses: Vec<(String, Option<PinnedKey>)>,
    slot: LeasedSlot,
    report: &Report,
) {
    let in_thread = Arc::clone(report);
    let body = move || {
        let end = work(lease, &addresses, slot, &in_thread);
        in_thread(SlotEvent::Ended(end));
    };
    if let Err(error) = spawn_with_signals_blocked("fpga-acc-slot", body) {
        report(SlotEvent::Ended(SlotEnd::Lost(format!("no thread can be started: {error}"))));
    }
}

fn work(
    lease: LeaseId,
    addresses: &[(String, Option<PinnedKey>)],
    LeasedSlot { work, steps }: LeasedSlot,
    report: &Report,
) -> SlotEnd {
    let session = match open(lease, addresses, report) {
        Ok(session) => session,
        Err(LeaseError::Gone(_)) => return SlotEnd::Gone,
        Err(error) => return SlotEnd::Lost(error.to_string()),
    };
    let Some(work) = work else {
        session.close();
        return SlotEnd::Lost("given up".to_owned());
    };
    let board = match Board::prepare(&session, &work) {
        Ok(board) => board,
        Err(error) => return end_of(&session, error.to_string()),
    };
    let (under_way, ends) = channel();
    let collecting = (Arc::clone(&session), Arc::clone(report));
    let collector = move || collect(&ends, &collecting.0, &collecting.1);
    if let Err(error) = spawn_with_signals_blocked("fpga-acc-ends", collector) {
        return end_of(&session, format!("no thread can be started: {error}"));
    }
    match feed(board, &steps, &under_way) {
        Ok(()) => SlotEnd::Lost("given up".to_owned()),
        Err(error) => end_of(&session, error.to_string()),
    }
}

/// Opens the session at the first address that answers, and reports that.
fn open(
    lease: LeaseId,
    addresses: &[(String, Option<PinnedKey>)],
    report: &Report,
) -> Result<Arc<LeasedSession>, LeaseError> {
    let mut result = Err(LeaseError::Connect("the broker named no address of the manager".to_owned()));
    for (address, key) in addresses {
        if key.is_none() && leaves_machine(address) {
            let why = "it names no key, and a lease is no secret without TLS";
            result = Err(LeaseError::Connect(format!("the manager at {address} is not asked: {why}")));
            continue;
        }
        let lease = Lease {
            address: address.clone(),
            key: *key,
            id: lease.0.to_be_bytes(),
            silence: Duration::from_millis(timing::SILENT.0),
        };
        let report = Arc::clone(report);
        let events = Arc::new(InOrder::new(move |event| report(event)));
        let noticed = Arc::clone(&events);
        let opened = LeasedSession::open(&lease, move |notice| {
            noticed.notice(match notice {
                Notice::Yield => SlotEvent::Yield,
                Notice::Lost(why) => SlotEvent::Ended(SlotEnd::Lost(why)),
            });
        });
        result =
            opened.map(Arc::new).inspect(|session| events.opened(SlotEvent::Opened(Arc::clone(session))));
        if !matches!(result, Err(LeaseError::Connect(_) | LeaseError::Address(_))) {
            break;
        }
    }
    result
}

/// Starts the steps that come, until no more come.
fn feed(mut board: Board, steps: &Receiver<Step>, under_way: &Sender<UnderWay>) -> Result<(), BoardError> {
    for step in steps {
        let started = board.start(&step)?;
        if under_way.send(started).is_err() {
            // The collector has ended, and says why.
            break;
        }
    }
    Ok(())
}

/// Reports the ends of steps, in order, until one fails.
fn collect(ends: &Receiver<UnderWay>, session: &LeasedSession, report: &Report) {
    for step in ends {
        let number = step.number();
        match step.finish() {
            Ok(done) => report(SlotEvent::Done(done)),
            Err(error) if error.is_refusal() => report(SlotEvent::Refused(number)),
            Err(error) => return report(SlotEvent::Ended(end_of(session, error.to_string()))),
        }
    }
}

/// The end of a slot after an error: a session that is lost explains any error.
fn end_of(session: &LeasedSession, why: String) -> SlotEnd {
    if session.platforms().iter().any(|platform| platform.is_available()) {
        session.close();
        SlotEnd::Failed(why)
    } else {
        SlotEnd::Lost(why)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_on_the_node_of_the_slot_takes_the_socket_first() {
        let endpoint = Endpoint {
            address: "board.svc:9470".into(),
            key: Some([5; 32]),
            socket: Some("/run/fpga/dm.sock".into()),
        };
        let far = ("tcp://board.svc:9470".to_owned(), Some(PinnedKey([5; 32])));
        let near = ("unix:/run/fpga/dm.sock".to_owned(), None);
        assert_eq!(addresses(&endpoint, true), [near, far.clone()]);
        assert_eq!(addresses(&endpoint, false), [far]);
    }

    #[test]
    fn only_what_stays_on_the_machine_may_lack_a_key() {
        for address in ["unix:/run/fpga/dm.sock", "tcp://127.0.0.1:9482", "tcp://[::1]:9482"] {
            assert!(!leaves_machine(address), "{address}");
        }
        for address in ["tcp://10.0.0.1:9482", "tcp://board.svc:9482", "tcp://[fd00::1]:9482"] {
            assert!(leaves_machine(address), "{address}");
            let report: Report = Arc::new(|_| ());
            let refused = open(LeaseId(1), &[(address.to_owned(), None)], &report).err().unwrap();
            assert!(refused.to_string().contains("names no key"), "{refused}");
        }
    }
}
