//! Random programs on buffers in shared memory. Whether commands are executed in place, staged or sent, the bytes
//! are those of a model, and the same without shared memory.

use super::{Setup, start};
use fpga_client::cl::{MAP_READ, MAP_WRITE, MAP_WRITE_INVALIDATE_REGION, MEM_ALLOC_HOST_PTR};
use fpga_client::{
    ArgValue, Buffer, Client, Event, HostSource, HostTarget, Initial, Kernel, Operation, Program, Queue,
};
use fpga_test_kit::{Manager, patience, until};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use proptest::prelude::*;
use std::sync::Arc;

const SIZE: usize = 1_200_000;
/// Offset of the sub-buffer in the first buffer.
const ORIGIN: usize = 8192;
const BUFFERS: usize = 3;

const SOURCE: &[u8] =
    b"kernel void bump(global uchar *x, uchar by) { size_t i = get_global_id(0); x[i] = x[i] * 3 + by; }";

#[derive(Debug, Clone)]
enum Step {
    Write { buffer: usize, at: Region, seed: u8 },
    Read { buffer: usize, at: Region },
    Fill { buffer: usize, at: Region, byte: u8 },
    Copy { from: usize, to: usize, at: Region },
    Kernel { buffer: usize, by: u8 },
    Map { buffer: usize, at: Region, access: u64, byte: u8 },
}

/// Whether the program waits for a command before it goes on.
type Blocking = bool;

#[derive(Debug, Clone, Copy)]
struct Region {
    offset: usize,
    size: usize,
}

/// Bytes of the buffers: 0 and 1 are root buffers, 2 is a sub-buffer of 0.
struct Model([Vec<u8>; 2]);

impl Model {
    fn of(&mut self, buffer: usize, at: Region) -> &mut [u8] {
        let begin = at.offset + if buffer == 2 { ORIGIN } else { 0 };
        &mut self.0[buffer % 2][begin..begin + at.size]
    }
}

fn region() -> impl Strategy<Value = Region> {
    let size = prop_oneof![1..200usize, 16_000..17_000usize, 60_000..100_000usize, 520_000..SIZE - ORIGIN];
    size.prop_flat_map(|size| (0..=SIZE - ORIGIN - size).prop_map(move |offset| Region { offset, size }))
}

fn step() -> impl Strategy<Value = (Step, Blocking)> {
    let access = prop_oneof![Just(MAP_READ), Just(MAP_WRITE), Just(MAP_WRITE_INVALIDATE_REGION)];
    let step = prop_oneof![
        3 => (0..BUFFERS, region(), any::<u8>()).prop_map(|(buffer, at, seed)| Step::Write { buffer, at, seed }),
        3 => (0..BUFFERS, region()).prop_map(|(buffer, at)| Step::Read { buffer, at }),
        1 => (0..BUFFERS, region(), any::<u8>()).prop_map(|(buffer, at, byte)| Step::Fill { buffer, at, byte }),
        // Source and target are different buffers.
        1 => (0..2usize, region()).prop_map(|(from, at)| Step::Copy { from, to: 1 - from, at }),
        3 => (0..BUFFERS, any::<u8>()).prop_map(|(buffer, by)| Step::Kernel { buffer, by }),
        2 => (0..BUFFERS, region(), access, any::<u8>())
            .prop_map(|(buffer, at, access, byte)| Step::Map { buffer, at, access, byte }),
    ];
    (step, any::<Blocking>())
}

/// A queue on which every command comes after the one before, by the queue's order or by its wait list.
struct Chain {
    queue: Arc<Queue>,
    last: Option<Arc<Event>>,
    out_of_order: bool,
}

impl Chain {
    fn enqueue(&mut self, operation: Operation<'_>, blocking: Blocking) {
        let event = self.queue.enqueue(operation, &self.wait()).unwrap();
        self.then(event, blocking);
    }

    fn wait(&self) -> Vec<Arc<Event>> {
        self.last.iter().filter(|_| self.out_of_order).cloned().collect()
    }

    fn then(&mut self, event: Arc<Event>, blocking: Blocking) {
        if blocking {
            event.wait().unwrap();
        }
        self.last = Some(event);
    }
}

fn run(
    setup: &Setup,
    program: &Arc<Program>,
    steps: &[(Step, Blocking)],
    out_of_order: bool,
) -> Result<(), TestCaseError> {
    let queue = Queue::new(&setup.context, &setup.device, u64::from(out_of_order)).unwrap();
    let new = |flags| Buffer::new(&setup.context, flags, SIZE, Initial::Nothing).unwrap();
    let (first, second) = (new(0), new(MEM_ALLOC_HOST_PTR));
    let part = Buffer::sub(&first, 0, ORIGIN, SIZE - ORIGIN).unwrap();
    let buffers = [first, second, part];
    let kernel = Kernel::new(program, "bump").unwrap();
    let mut model = Model([vec![0; SIZE], vec![0; SIZE]]);
    let mut reads: Vec<(usize, Vec<u8>, Vec<u8>)> = Vec::new();
    let mut wrong_maps = Vec::new();
    let mut chain = Chain { queue, last: None, out_of_order };
    for (index, (step, blocking)) in steps.iter().enumerate() {
        match step.clone() {
            Step::Write { buffer, at, seed } => {
                let bytes: Vec<u8> = (0..=252).cycle().map(|n| seed.wrapping_add(n)).take(at.size).collect();
                model.of(buffer, at).copy_from_slice(&bytes);
                let data = HostSource::owned(bytes);
                chain.enqueue(
                    Operation::Write { buffer: &buffers[buffer], offset: at.offset, data },
                    *blocking,
                );
            }
            Step::Read { buffer, at } => {
                let mut result = vec![0; at.size];
                // SAFETY: the vector's memory stays in place, in `reads`, until the queue is finished below.
                let target = unsafe { HostTarget::borrowed(result.as_mut_ptr(), result.len()) };
                chain.enqueue(
                    Operation::Read { buffer: &buffers[buffer], offset: at.offset, target },
                    *blocking,
                );
                reads.push((index, result, model.of(buffer, at).to_vec()));
            }
            Step::Fill { buffer, at, byte } => {
                model.of(buffer, at).fill(byte);
                let (offset, size) = (at.offset, at.size);
                let fill = Operation::Fill { buffer: &buffers[buffer], pattern: &[byte], offset, size };
                chain.enqueue(fill, *blocking);
            }
            Step::Copy { from, to, at } => {
                let bytes = model.of(from, at).to_vec();
                model.of(to, at).copy_from_slice(&bytes);
                chain.enqueue(
                    Operation::Copy {
                        source: &buffers[from],
                        target: &buffers[to],
                        source_offset: at.offset,
                        target_offset: at.offset,
                        size: at.size,
                    },
                    *blocking,
                );
            }
            Step::Kernel { buffer, by } => {
                let size = buffers[buffer].size();
                for byte in model.of(buffer, Region { offset: 0, size }) {
                    *byte = byte.wrapping_mul(3).wrapping_add(by);
                }
                kernel.set_arg(0, ArgValue::Buffer(Arc::clone(&buffers[buffer]))).unwrap();
                kernel.set_arg(1, ArgValue::Scalar(&[by])).unwrap();
                chain.enqueue(
                    Operation::NdRange { kernel: &kernel, offset: &[], global: &[size], local: &[] },
                    *blocking,
                );
            }
            Step::Map { buffer, at, access, byte } => {
                let buffer_ = &buffers[buffer];
                let mapped = chain.queue.map(buffer_, access, at.offset, at.size, &chain.wait()).unwrap();
                chain.then(Arc::clone(&mapped.event), true);
                // SAFETY: the map has completed, so these bytes belong to the test until the unmap.
                let bytes = unsafe { std::slice::from_raw_parts_mut(mapped.address as *mut u8, at.size) };
                let expected = model.of(buffer, at);
                if access != MAP_WRITE_INVALIDATE_REGION && bytes != expected {
                    wrong_maps.push(index);
                }
                if access != MAP_READ {
                    bytes.fill(byte);
                    expected.fill(byte);
                }
                let unmapped = chain.queue.unmap(buffer_, mapped.address, &chain.wait()).unwrap();
                chain.then(unmapped, *blocking);
            }
        }
    }
    // Before any assertion: the targets of the reads must live until the queue has finished.
    chain.queue.finish().unwrap();
    prop_assert!(wrong_maps.is_empty(), "maps {wrong_maps:?}");
    for (index, read, expected) in &reads {
        prop_assert!(read == expected, "read of step {index}");
    }
    for (buffer, expected) in buffers.iter().zip(&model.0) {
        prop_assert!(setup.read(buffer) == *expected, "what is left in the end");
    }
    Ok(())
}

#[test]
fn any_program_on_shared_memory_computes_what_a_model_does_and_so_it_does_without() {
    for manager in [start(&[]), start(&["--shared-memory", "off"])] {
        let setup = Setup::of(manager);
        let program = Program::with_source(&setup.context, SOURCE.to_vec()).unwrap();
        program.build(&[], "").unwrap();
        let mut runner =
            proptest::test_runner::TestRunner::new(ProptestConfig { cases: 64, ..ProptestConfig::default() });
        let programs = (prop::collection::vec(step(), 1..30), any::<bool>());
        let result =
            runner.run(&programs, |(steps, out_of_order)| run(&setup, &program, &steps, out_of_order));
        result.unwrap();
    }
}

#[test]
fn a_buffer_in_memory_that_another_one_left_is_zero() {
    let setup = Setup::new();
    for round in 0..20 {
        let size = 70_000 + round * 5_000;
        let buffer = Buffer::new(&setup.context, 0, size, Initial::Nothing).unwrap();
        assert!(setup.read(&buffer).iter().all(|byte| *byte == 0), "round {round}");
        let data = HostSource::owned(vec![0xA5; size]);
        setup.queue.enqueue(Operation::Write { buffer: &buffer, offset: 0, data }, &[]).unwrap();
    }
}

#[test]
fn mapped_memory_stays_when_the_manager_has_gone() {
    let mut setup = Setup::new();
    let buffer = Buffer::new(&setup.context, MEM_ALLOC_HOST_PTR, 1 << 20, Initial::Nothing).unwrap();
    let mapped = setup.queue.map(&buffer, MAP_WRITE, 0, 1 << 20, &[]).unwrap();
    mapped.event.wait().unwrap();
    setup.manager.kill();
    // SAFETY: the region is mapped, and was not unmapped yet.
    let bytes = unsafe { std::slice::from_raw_parts_mut(mapped.address as *mut u8, 1 << 20) };
    bytes.fill(1);
    assert!(bytes.iter().all(|byte| *byte == 1));
}

#[test]
fn a_hundred_sessions_leave_no_memory_and_no_descriptors() {
    let manager = start(&[]);
    let processes = [manager.id(), std::process::id()];
    let descriptors = || processes.map(|id| std::fs::read_dir(format!("/proc/{id}/fd")).unwrap().count());
    let segments = || {
        processes.map(|id| {
            let maps = std::fs::read_to_string(format!("/proc/{id}/maps")).unwrap();
            maps.lines().filter(|line| line.contains("memfd:fpga-segment")).count()
        })
    };
    let session_is_over = || {
        until("the end of the session", || manager.sessions() == 0);
        until("unmapped segments", || {
            if segments() == [0, 0] { Ok(()) } else { Err(format!("{:?}", segments())) }
        });
    };
    let mut before = [0, 0];
    for round in 0..100 {
        let client = Client::with_managers(manager.address()).unwrap();
        let device = Arc::clone(&client.platforms()[0].devices()[0]);
        let context = fpga_client::Context::new(&[Arc::clone(&device)]).unwrap();
        let queue = Queue::new(&context, &device, 0).unwrap();
        let buffer = Buffer::new(&context, 0, 4 << 20, Initial::Nothing).unwrap();
        queue
            .enqueue(Operation::Fill { buffer: &buffer, pattern: &[7], offset: 0, size: 4 << 20 }, &[])
            .unwrap();
        let mut bytes = vec![0; 4 << 20];
        // SAFETY: the bytes live until the read has ended, for which this waits.
        let target = unsafe { HostTarget::borrowed(bytes.as_mut_ptr(), bytes.len()) };
        let read = queue.enqueue(Operation::Read { buffer: &buffer, offset: 0, target }, &[]).unwrap();
        read.wait().unwrap();
        assert!(bytes.iter().all(|byte| *byte == 7));
        assert!(segments().iter().all(|count| *count > 0), "the two processes share no memory");
        drop((read, buffer, queue, context, device, client));
        if round == 10 {
            session_is_over();
            before = descriptors();
        }
    }
    session_is_over();
    until(format!("no more descriptors than {before:?}"), || {
        let now = descriptors();
        if now[0] <= before[0] && now[1] <= before[1] { Ok(()) } else { Err(format!("{now:?}")) }
    });
}

#[test]
fn threads_share_a_session_and_its_memory_without_mixing_their_bytes() {
    let setup = Setup::new();
    let program = Program::with_source(&setup.context, SOURCE.to_vec()).unwrap();
    program.build(&[], "").unwrap();
    std::thread::scope(|scope| {
        for thread in 0..4_u8 {
            let (setup, program) = (&setup, &program);
            scope.spawn(move || {
                let queue = Queue::new(&setup.context, &setup.device, 0).unwrap();
                let kernel = Kernel::new(program, "bump").unwrap();
                for round in 0..20_u8 {
                    let size = 600_000 + usize::from(thread) * 300_000;
                    let value = thread * 50 + round;
                    let buffer = Buffer::new(&setup.context, 0, size, Initial::Nothing).unwrap();
                    let data = HostSource::owned(vec![value; size]);
                    queue.enqueue(Operation::Write { buffer: &buffer, offset: 0, data }, &[]).unwrap();
                    kernel.set_arg(0, ArgValue::Buffer(Arc::clone(&buffer))).unwrap();
                    kernel.set_arg(1, ArgValue::Scalar(&[1])).unwrap();
                    let range =
                        Operation::NdRange { kernel: &kernel, offset: &[], global: &[size], local: &[] };
                    queue.enqueue(range, &[]).unwrap();
                    let mut bytes = vec![0; size];
                    // SAFETY: the bytes live until the read has ended, for which this waits.
                    let target = unsafe { HostTarget::borrowed(bytes.as_mut_ptr(), size) };
                    let read =
                        queue.enqueue(Operation::Read { buffer: &buffer, offset: 0, target }, &[]).unwrap();
                    let data = HostSource::owned(vec![0xFF; size]);
                    queue.enqueue(Operation::Write { buffer: &buffer, offset: 0, data }, &[]).unwrap();
                    read.wait().unwrap();
                    let expected = value.wrapping_mul(3).wrapping_add(1);
                    assert!(bytes.iter().all(|byte| *byte == expected), "thread {thread}, round {round}");
                }
                queue.finish().unwrap();
            });
        }
    });
}

/// The manager is stopped meanwhile, so a thread that asked it would hang.
#[test]
fn maps_writes_and_reads_of_an_idle_buffer_ask_nobody() {
    const LEN: usize = 8 << 20;
    let setup = Setup::new();
    let buffer = Buffer::new(&setup.context, MEM_ALLOC_HOST_PTR, LEN, Initial::Nothing).unwrap();
    setup
        .queue
        .enqueue(Operation::Fill { buffer: &buffer, pattern: &[7], offset: 0, size: LEN }, &[])
        .unwrap();
    setup.queue.finish().unwrap();
    let stopped = Stopped::new(&setup.manager);
    let (done, is_done) = std::sync::mpsc::channel();
    let (queue, idle) = (Arc::clone(&setup.queue), Arc::clone(&buffer));
    std::thread::spawn(move || {
        for round in 0..50_u8 {
            let mapped = queue.map(&idle, MAP_READ | MAP_WRITE, 0, LEN, &[]).unwrap();
            mapped.event.wait().unwrap();
            // SAFETY: the map has completed, so these bytes belong to the test until the unmap.
            let bytes = unsafe { std::slice::from_raw_parts_mut(mapped.address as *mut u8, LEN) };
            assert_eq!(bytes[LEN - 1], 7 + round);
            bytes[LEN - 1] += 1;
            queue.unmap(&idle, mapped.address, &[]).unwrap().wait().unwrap();
        }
        let data = HostSource::owned(vec![1; LEN / 2]);
        queue.enqueue(Operation::Write { buffer: &idle, offset: 0, data }, &[]).unwrap().wait().unwrap();
        let mut read = vec![0; LEN / 2];
        // SAFETY: the bytes live until the read has ended, for which this waits.
        let target = unsafe { HostTarget::borrowed(read.as_mut_ptr(), read.len()) };
        queue.enqueue(Operation::Read { buffer: &idle, offset: 0, target }, &[]).unwrap().wait().unwrap();
        assert!(read.iter().all(|byte| *byte == 1));
        done.send(()).unwrap();
    });
    let alone = is_done.recv_timeout(patience());
    drop(stopped);
    assert!(alone.is_ok(), "something waits for the manager");
    // The device sees the bytes that were written.
    let copy = Buffer::new(&setup.context, 0, LEN, Initial::Nothing).unwrap();
    let all =
        Operation::Copy { source: &buffer, target: &copy, source_offset: 0, target_offset: 0, size: LEN };
    setup.queue.enqueue(all, &[]).unwrap();
    let seen = setup.read(&copy);
    assert_eq!((seen[0], seen[LEN / 2], seen[LEN - 1]), (1, 7, 57));
}

/// Stops a manager's process until this is dropped.
struct Stopped(Pid);

impl Stopped {
    fn new(manager: &Manager) -> Self {
        manager.signal(Signal::SIGSTOP);
        Self(manager.pid())
    }
}

impl Drop for Stopped {
    fn drop(&mut self) {
        let _ = kill(self.0, Signal::SIGCONT);
    }
}

#[test]
fn a_non_blocking_transfer_waits_for_no_shared_memory() {
    let setup = Setup::new();
    // The first buffer lies at the manager. The second is in use, so it can't be written in place.
    let buffers =
        [20_000, 1 << 20].map(|size| Buffer::new(&setup.context, 0, size, Initial::Nothing).unwrap());
    let stopped = Stopped::new(&setup.manager);
    let (sender, receiver) = std::sync::mpsc::channel();
    let queue = Arc::clone(&setup.queue);
    let enqueuing = std::thread::spawn(move || {
        let [small, large] = &buffers;
        queue
            .enqueue(Operation::Fill { buffer: large, pattern: &[1], offset: 0, size: 1 << 20 }, &[])
            .unwrap();
        for buffer in &buffers {
            let data = HostSource::owned(vec![7; small.size()]);
            queue.enqueue(Operation::Write { buffer, offset: 0, data }, &[]).unwrap();
        }
        sender.send(()).unwrap();
        buffers
    });
    let returned = receiver.recv_timeout(patience());
    drop(stopped);
    returned.expect("an enqueue call waits for the manager");
    let [small, large] = enqueuing.join().unwrap();
    assert!(setup.read(&small).iter().all(|byte| *byte == 7));
    let bytes = setup.read(&large);
    assert!(bytes[..20_000].iter().all(|byte| *byte == 7) && bytes[20_000..].iter().all(|byte| *byte == 1));
}
