//! Launches that the device refuses and whose events the program dropped. The program is told before it gets stale
//! bytes.

use super::{Setup, start};
use fpga_client::{
    ArgValue, Buffer, ClError, Client, Context, HostTarget, Initial, Kernel, Operation, Program, Queue,
};
use std::sync::Arc;

/// PoCL refuses the first kernel for a range of fewer dimensions, Intel's runtimes the second for too much local
/// memory.
const SOURCE: &str = "
    __attribute__((reqd_work_group_size(4, 2, 1)))
    kernel void required(global uint *x) { x[get_global_id(0)] = 7; }
    kernel void scratch(global uint *x, local uint *l) { l[0] = x[0]; x[0] = l[0] + 7; }";

/// `CL_DEVICE_LOCAL_MEM_SIZE`
const LOCAL_MEM_SIZE: u32 = 0x1023;

struct Refused {
    queue: Arc<Queue>,
    other: Arc<Queue>,
    kernels: [Arc<Kernel>; 2],
}

impl Refused {
    fn new(context: &Arc<Context>, program: &Arc<Program>, buffer: &Arc<Buffer>) -> Self {
        let device = &context.devices()[0];
        let local = device.info(LOCAL_MEM_SIZE).unwrap();
        let local = u64::from_le_bytes(local.try_into().unwrap());
        let kernels = ["required", "scratch"].map(|name| Kernel::new(program, name).unwrap());
        for kernel in &kernels {
            kernel.set_arg(0, ArgValue::Buffer(Arc::clone(buffer))).unwrap();
        }
        kernels[1].set_arg(1, ArgValue::NullOfSize(local + 4096)).unwrap();
        let queue = || Queue::new(context, device, 0).unwrap();
        Self { queue: queue(), other: queue(), kernels }
    }

    /// Launches the kernels that are refused, drops their events, and returns when the client knows of the failure.
    fn launch(&self) {
        let [required, scratch] = &self.kernels;
        let launch = |kernel, global, local| Operation::NdRange { kernel, offset: &[], global, local };
        self.queue.enqueue(launch(required, &[8], &[4]), &[]).unwrap();
        self.queue.enqueue(launch(scratch, &[1], &[1]), &[]).unwrap();
        self.queue.flush().unwrap();
        self.other.enqueue(Operation::Marker, &[]).unwrap().wait().unwrap();
    }

    fn read(&self, buffer: &Arc<Buffer>) -> Result<(), ClError> {
        let mut bytes = vec![0; buffer.size()];
        // SAFETY: the bytes live until the read has ended, for which this waits.
        let target = unsafe { HostTarget::borrowed(bytes.as_mut_ptr(), bytes.len()) };
        let read = Operation::Read { buffer, offset: 0, target };
        self.queue.enqueue(read, &[]).unwrap().wait_for_status()
    }
}

/// Checks that refused launches are reported, with buffers that lie at the manager and with buffers in shared
/// memory, which are read without a message.
fn is_heard_of(client: &Client) {
    let device = Arc::clone(&client.platforms()[0].devices()[0]);
    let context = Context::new(&[device]).unwrap();
    let program = Program::with_source(&context, SOURCE.as_bytes().to_vec()).unwrap();
    program.build(&[], "").unwrap();
    for size in [64, 1 << 20] {
        let buffer = Buffer::new(&context, 0, size, Initial::Nothing).unwrap();
        let refused = Refused::new(&context, &program, &buffer);
        refused.launch();
        let told = refused.queue.finish().unwrap_err();
        assert!([ClError::INVALID_WORK_GROUP_SIZE, ClError::OUT_OF_RESOURCES].contains(&told), "{told}");
        assert_eq!(refused.queue.finish(), Ok(()));
        refused.launch();
        assert_eq!(refused.read(&buffer), Err(told), "{size} bytes");
        assert_eq!(refused.read(&buffer), Ok(()));
        refused.launch();
        let map = refused.queue.map(&buffer, fpga_client::cl::MAP_READ, 0, 4, &[]).unwrap();
        assert_eq!(map.event.wait_for_status(), Err(told), "{size} bytes");
        refused.launch();
        let marker = refused.queue.enqueue(Operation::Marker, &[]).unwrap();
        assert_eq!(marker.wait(), Err(ClError::EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST));
        assert_eq!(refused.queue.finish(), Ok(()));
    }
}

#[test]
fn a_refused_launch_is_heard_of_by_the_ring_and_by_the_stream() {
    let setup = Setup::of(start(&["--insecure-tcp", "--listen", "tcp://127.0.0.1:0"]));
    is_heard_of(&setup.client);
    is_heard_of(&Client::with_managers(setup.manager.tcp_address()).unwrap());
}

#[test]
fn a_refused_launch_in_a_tenants_process_is_heard_of() {
    is_heard_of(&Setup::of(start(&["--isolate", "process"])).client);
}
