//! The client in Rust over a real device manager and PoCL (or the runtime in RUNTIME). The C programs
//! over the ICD use the same code.

mod full;
mod half_open;
mod includes;
mod long_transfers;
mod proof;
mod reconnect;
mod shared_memory;
mod unheard;

use fpga_client::cl::{MAP_WRITE, MEM_COPY_HOST_PTR, QUEUE_PROFILING_ENABLE};
use fpga_client::{
    ArgValue, Buffer, ClError, Client, Context, Device, Event, HostSource, HostTarget, Initial, Kernel,
    Operation, Program, Queue,
};
use fpga_test_kit::{Manager, patience};
use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, Signal, sigaction};
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::time::Duration;

const SOURCE: &str = "
    kernel void add(global const float *a, global const float *b, global float *sum, float scale) {
        size_t i = get_global_id(0);
        sum[i] = scale * (a[i] + b[i]);
    }
    kernel void spin(global uint *x, uint rounds) {
        uint v = x[0];
        for (uint i = 0; i < rounds; i++) v = v * 1664525u + 1013904223u;
        x[0] = v;
    }";

/// Starts a manager that takes programs from source.
fn start(args: &[&str]) -> Manager {
    start_in(&[], args)
}

/// Starts a manager with environment variables.
fn start_in(variables: &[(&str, &str)], args: &[&str]) -> Manager {
    let from_source = ["--source-as-bitstream", "--reconfiguration-time", "1ms"];
    Manager::start_in(variables, &[&from_source, args].concat())
}

struct Setup {
    manager: Manager,
    client: Client,
    device: Arc<Device>,
    context: Arc<Context>,
    queue: Arc<Queue>,
}

impl Setup {
    fn new() -> Self {
        Self::of(start(&[]))
    }

    fn of(manager: Manager) -> Self {
        let client = Client::with_managers(manager.address()).unwrap();
        let device = Arc::clone(&client.platforms()[0].devices()[0]);
        let context = Context::new(&[Arc::clone(&device)]).unwrap();
        let queue = Queue::new(&context, &device, QUEUE_PROFILING_ENABLE).unwrap();
        Self { manager, client, device, context, queue }
    }

    fn program(&self) -> Arc<Program> {
        let program = Program::with_source(&self.context, SOURCE.as_bytes().to_vec()).unwrap();
        program.build(&[], "").unwrap();
        program
    }

    fn floats(&self, values: &[f32]) -> Arc<Buffer> {
        let bytes = to_bytes(values);
        Buffer::new(&self.context, MEM_COPY_HOST_PTR, bytes.len(), Initial::Copy(&bytes)).unwrap()
    }

    fn read(&self, buffer: &Arc<Buffer>) -> Vec<u8> {
        let mut bytes = vec![0; buffer.size()];
        // SAFETY: the bytes live until the read has ended, for which this waits.
        let target = unsafe { HostTarget::borrowed(bytes.as_mut_ptr(), bytes.len()) };
        let read = Operation::Read { buffer, offset: 0, target };
        self.queue.enqueue(read, &[]).unwrap().wait_for_status().unwrap();
        bytes
    }

    fn add(&self, program: &Arc<Program>, count: usize) {
        let a: Vec<f32> = (0..count).map(|n| f32::from(u16::try_from(n % 1000).unwrap())).collect();
        let (left, right) = (self.floats(&a), self.floats(&a));
        let sum = Buffer::new(&self.context, 0, count * 4, Initial::Nothing).unwrap();
        let kernel = Kernel::new(program, "add").unwrap();
        for (index, buffer) in (0..).zip([&left, &right, &sum]) {
            kernel.set_arg(index, ArgValue::Buffer(Arc::clone(buffer))).unwrap();
        }
        kernel.set_arg(3, ArgValue::Scalar(&0.5f32.to_le_bytes())).unwrap();
        let range = Operation::NdRange { kernel: &kernel, offset: &[], global: &[count], local: &[] };
        let event = self.queue.enqueue(range, &[]).unwrap();
        assert!(self.read(&sum) == to_bytes(&a), "wrong sums");
        let times = event.profiling().unwrap();
        assert!(times.queued <= times.submitted && times.submitted <= times.started, "{times:?}");
        assert!(times.started <= times.ended, "{times:?}");
    }
}

fn to_bytes(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_le_bytes()).collect()
}

#[test]
fn kernels_from_source_and_from_its_binaries_compute() {
    let setup = Setup::new();
    assert!(setup.client.platforms()[0].info(0x0902).unwrap().starts_with(b"Portable Computing Language"));
    let program = setup.program();
    setup.add(&program, 1000);
    setup.add(&program, 300_000);
    let binaries = program.binaries().unwrap();
    let (from_binary, statuses) =
        Program::with_binaries(&setup.context, &[(Arc::clone(&setup.device), &binaries[0])]).unwrap();
    assert_eq!(statuses, [0]);
    from_binary.build(&[], "").unwrap();
    setup.add(&from_binary, 1000);
}

#[test]
fn what_the_vendor_refuses_comes_back_as_its_error() {
    let setup = Setup::new();
    let broken = Program::with_source(&setup.context, b"kernel void k( {".to_vec()).unwrap();
    assert_eq!(broken.build(&[], "").unwrap_err(), ClError::BUILD_PROGRAM_FAILURE);
    assert!(!broken.build_info(&setup.device).unwrap().log.is_empty());
    let garbage = Program::with_binaries(&setup.context, &[(Arc::clone(&setup.device), b"not a binary")]);
    let failed = match garbage {
        Err(error) => error.error,
        Ok((program, _)) => program.build(&[], "").unwrap_err(),
    };
    assert!([ClError::INVALID_BINARY, ClError::BUILD_PROGRAM_FAILURE].contains(&failed), "{failed}");
    setup.add(&setup.program(), 100);
}

#[test]
fn a_call_that_is_longer_than_any_message_is_an_error_of_its_own_and_the_session_goes_on() {
    for ring in ["auto", "off"] {
        let setup = Setup::of(start(&["--command-ring", ring]));
        let program = setup.program();
        let options = format!("-DLONG={}", "1".repeat(5 << 20));
        assert_eq!(program.build(&[], &options).unwrap_err(), ClError::OUT_OF_RESOURCES);
        setup.add(&program, 100);
    }
}

#[test]
fn the_two_programs_that_break_simple_schedulers_end() {
    let setup = Setup::new();
    let other = Queue::new(&setup.context, &setup.device, 0).unwrap();
    for _ in 0..20 {
        let user = Event::user(&setup.context).unwrap();
        let ready = setup.queue.enqueue(Operation::Marker, &[]).unwrap();
        let waits = setup.queue.enqueue(Operation::Marker, &[Arc::clone(&user)]).unwrap();
        setup.queue.flush().unwrap();
        ready.wait().unwrap();
        user.set_user_status(0).unwrap();
        waits.wait().unwrap();

        let a = setup.queue.enqueue(Operation::Marker, &[]).unwrap();
        let b = other.enqueue(Operation::Marker, &[a]).unwrap();
        let c = setup.queue.enqueue(Operation::Marker, &[b]).unwrap();
        other.flush().unwrap();
        c.wait().unwrap();
        other.finish().unwrap();
    }
}

#[test]
fn large_transfers_and_maps_come_through_whole() {
    let setup = Setup::new();
    let len = 5 << 20 | 3;
    let bytes: Vec<u8> = (0..len).map(|n: usize| u8::try_from(n % 251).unwrap()).collect();
    let buffer = Buffer::new(&setup.context, 0, len, Initial::Nothing).unwrap();
    let data = HostSource::owned(bytes.clone());
    setup.queue.enqueue(Operation::Write { buffer: &buffer, offset: 0, data }, &[]).unwrap();
    assert!(setup.read(&buffer) == bytes);
    let mapped = setup.queue.map(&buffer, MAP_WRITE, 1 << 20, 1 << 20, &[]).unwrap();
    mapped.event.wait().unwrap();
    // SAFETY: the map has completed, so these bytes belong to the test until the unmap.
    let region = unsafe { std::slice::from_raw_parts_mut(mapped.address as *mut u8, 1 << 20) };
    assert!(*region == bytes[1 << 20..2 << 20]);
    region.fill(255);
    setup.queue.unmap(&buffer, mapped.address, &[]).unwrap();
    let changed = setup.read(&buffer);
    assert!(changed[..1 << 20] == bytes[..1 << 20] && changed[2 << 20..] == bytes[2 << 20..]);
    assert!(changed[1 << 20..2 << 20].iter().all(|byte| *byte == 255));
}

#[test]
fn a_killed_manager_is_an_error_and_never_a_sigpipe() {
    // As in a C program. Rust's runtime ignores SIGPIPE at start, which would hide a signal.
    let default = SigAction::new(SigHandler::SigDfl, SaFlags::empty(), SigSet::empty());
    // SAFETY: this replaces only the disposition that the standard library set, which ignores the signal.
    unsafe { sigaction(Signal::SIGPIPE, &default) }.unwrap();
    for kill_after in [0, 5, 20] {
        let mut setup = Setup::new();
        let bytes = vec![7; 64 << 20];
        let buffer = Buffer::new(&setup.context, 0, bytes.len(), Initial::Nothing).unwrap();
        let kernel = Kernel::new(&setup.program(), "spin").unwrap();
        kernel.set_arg(0, ArgValue::Buffer(Arc::clone(&buffer))).unwrap();
        kernel.set_arg(1, ArgValue::Scalar(&u32::MAX.to_le_bytes())).unwrap();
        let range = Operation::NdRange { kernel: &kernel, offset: &[], global: &[1], local: &[] };
        let runs = setup.queue.enqueue(range, &[]).unwrap();
        setup.queue.flush().unwrap();
        let data = HostSource::owned(bytes);
        let write = setup.queue.enqueue(Operation::Write { buffer: &buffer, offset: 0, data }, &[]).unwrap();
        let (sender, waited) = channel();
        std::thread::spawn(move || sender.send(write.wait_for_status()));
        // The manager ends before, in the middle of, and after the transfer.
        std::thread::sleep(Duration::from_millis(kill_after));
        setup.manager.kill();
        assert_eq!(waited.recv_timeout(patience()).unwrap(), Err(ClError::OUT_OF_RESOURCES));
        assert_eq!(runs.wait_for_status(), Err(ClError::OUT_OF_RESOURCES));
        // A second attempt writes to the closed socket again.
        assert!(setup.queue.enqueue(Operation::Marker, &[]).is_err());
        assert!(setup.queue.flush().is_err());
    }
}
