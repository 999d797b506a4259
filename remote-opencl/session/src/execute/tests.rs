//! The contents of a buffer after a write of which the vendor has refused a part, and commands that fail after they were
//! enqueued, over PoCL.

use super::{Executor, Measured, Notify};
use crate::buffer::Buffer;
use crate::commands::{Body, Operation, Tracing, Watched};
use crate::context::Context;
use crate::dependencies::{DependencyTracker, EventId, Fence, Item, QueueId, QueueOrder};
use crate::governor::Budget;
use crate::helper_thread::HelperThread;
use crate::inventory::{BoardDevices, Inventory};
use crate::queue::Queue;
use crate::quiesce::QuiesceLock;
use crate::report::Report;
use crate::task::Need;
use crate::transfers::Source;
use bytes::Bytes;
use fpga_board::dispatch::TaskId;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, OnceLock};

const SIZE: usize = 1 << 16;

#[derive(Clone)]
struct Ends(Sender<(EventId, i32)>);

impl Notify for Ends {
    fn ended(&self, event: EventId, status: i32) {
        self.0.send((event, status)).unwrap();
    }

    fn piece_ended(&self, _event: EventId) {}

    fn told(&self, _task: TaskId, event: EventId, status: i32) {
        self.ended(event, status);
    }
}

struct Setup {
    queue: Arc<Queue>,
    buffer: Arc<Buffer>,
    dependencies: DependencyTracker<Box<Body>>,
    executor: Executor<Ends>,
    ends: Receiver<(EventId, i32)>,
}

impl Setup {
    fn new() -> Self {
        // Read once: a runtime may list no device while another thread loads it.
        static INVENTORY: OnceLock<Inventory> = OnceLock::new();
        let device = INVENTORY.get_or_init(|| Inventory::read(BoardDevices::All).unwrap()).device(1).unwrap();
        let context = Arc::new(Context::new(vec![device.clone()], Vec::new()).unwrap());
        let queue = Arc::new(Queue::new(context.clone(), device, 0).unwrap());
        let buffer = Arc::new(Buffer::new(context, opencl_sys::CL_MEM_READ_WRITE, SIZE).unwrap());
        let (sender, ends) = channel();
        let executor = Executor::new(Arc::<HelperThread>::default(), Measured::Shown, Ends(sender));
        Self { queue, buffer, dependencies: DependencyTracker::default(), executor, ends }
    }

    /// Runs a command to its end and returns its status.
    fn run(&mut self, event: u64, operation: Operation) -> i32 {
        let item = self.item(event, Watched::Yes, operation);
        let mut reports = self.start(vec![item]);
        if reports.is_empty() {
            reports = self.finish(event, 0);
        }
        status_of(event, &reports)
    }

    fn item(&self, event: u64, watched: Watched, operation: Operation) -> Item<Box<Body>> {
        let body = Body {
            queue: self.queue.clone(),
            operation,
            need: Need::Nothing,
            kind: None,
            hold: None,
            message: Arc::new(Budget::default().hold(0)),
            received_at: 0,
            watched,
            tracing: Tracing::Off,
            span: None,
        };
        Item {
            event: EventId(event),
            queue: QueueId(1),
            order: QueueOrder::InOrder,
            fence: Fence::None,
            wait: Vec::new(),
            body: Ok(Box::new(body)),
        }
    }

    /// Starts commands as one task.
    fn start(&mut self, items: Vec<Item<Box<Body>>>) -> Vec<Report> {
        let step = self.dependencies.flush(items).unwrap();
        let board = QuiesceLock::default();
        let used = board.enter().unwrap();
        let mut reports = Vec::new();
        self.executor.start((TaskId(1), &used), step.ready, &mut self.dependencies, &mut reports);
        reports
    }

    /// Waits for the end of a command; `failure` is its status if it is negative, else the vendor's.
    fn finish(&mut self, event: u64, failure: i32) -> Vec<Report> {
        let (ended, status) = self.ends.recv_timeout(fpga_test_kit::patience()).unwrap();
        assert_eq!(ended, EventId(event));
        let mut reports = Vec::new();
        self.executor.finish(ended, status.min(failure), &mut self.dependencies, &mut reports);
        reports
    }

    fn write(&self, pieces: &[usize]) -> Operation {
        let pieces = pieces.iter().map(|length| Bytes::from(vec![0xA5; *length])).collect();
        Operation::Write {
            buffer: self.buffer.clone(),
            offset: 0,
            source: Source::Pieces(pieces),
            size: SIZE,
        }
    }
}

/// The status of the command in the only report.
#[track_caller]
fn status_of(event: u64, reports: &[Report]) -> i32 {
    match reports {
        [Report::Ended(ended)] if ended.event == EventId(event) && ended.earlier.is_empty() => ended.status,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_buffer_of_whose_first_write_a_piece_was_refused_is_zeroed_before_its_next_use() {
    let mut setup = Setup::new();
    // The second piece goes beyond the buffer's end.
    let partly = setup.write(&[SIZE / 2, SIZE]);
    assert!(setup.run(1, partly) < 0);
    let zeroes = setup.buffer.own_contents().unwrap();
    assert!(zeroes.is_some(), "the second half counts as written, and is whatever was there");
}

#[test]
fn a_buffer_whose_first_write_was_taken_whole_needs_no_zeroes() {
    let mut setup = Setup::new();
    let whole = setup.write(&[SIZE / 2, SIZE / 2]);
    assert_eq!(setup.run(1, whole), 0);
    assert!(setup.buffer.own_contents().unwrap().is_none());
}

#[test]
fn of_commands_before_one_that_failed_in_the_vendors_hands_the_client_is_told_apart() {
    const OUT_OF_RESOURCES: i32 = -5;
    let mut setup = Setup::new();
    let items = [(1, Watched::No), (2, Watched::No), (3, Watched::Yes)].map(|(event, watched)| {
        let write = setup.write(&[SIZE]);
        setup.item(event, watched, write)
    });
    assert!(setup.start(items.into()).is_empty(), "all are running");
    let failed = setup.finish(3, OUT_OF_RESOURCES);
    assert_eq!(status_of(3, &failed), OUT_OF_RESOURCES);
    // The last of the others has a callback of its own now, and the first is told with it.
    let others = setup.finish(2, 0);
    let [Report::Ended(ended)] = others.as_slice() else { panic!("{others:?}") };
    assert_eq!((ended.event, ended.status, ended.earlier.as_slice()), (EventId(2), 0, &[EventId(1)][..]));
}
