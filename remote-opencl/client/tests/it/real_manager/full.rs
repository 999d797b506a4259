//! A board that is reconfigured as a whole, used by programs that share memory and a command ring with the manager,
//! by programs that can resume their sessions, and by programs over TCP. The manager re-creates objects without the
//! programs noticing.

use super::start;
use fpga_client::cl::{MAP_WRITE, MEM_ALLOC_HOST_PTR, MEM_COPY_HOST_PTR};
use fpga_client::{
    ArgValue, Buffer, Client, Context, HostTarget, Initial, Kernel, Operation, Program, Queue,
};
use std::sync::Arc;

/// Enough words that they travel in shared memory or in chunks.
const WORDS: usize = 1 << 17;

/// A program with its own bitstream, and the expected content of its buffers.
struct User {
    queue: Arc<Queue>,
    kernel: Arc<Kernel>,
    buffers: [Arc<Buffer>; 2],
    expected: u32,
}

impl User {
    fn new(client: &Client, number: u32) -> Self {
        let device = Arc::clone(&client.platforms()[0].devices()[0]);
        let context = Context::new(&[Arc::clone(&device)]).unwrap();
        let queue = Queue::new(&context, &device, 0).unwrap();
        let source = format!(
            "kernel void advance(global uint *x, uint by) {{ x[get_global_id(0)] += by + {number}; }}"
        );
        let program = Program::with_source(&context, source.into_bytes()).unwrap();
        program.build(&[], "").unwrap();
        let kernel = Kernel::new(&program, "advance").unwrap();
        let bytes = bytes_of(number);
        let buffers = [0, MEM_ALLOC_HOST_PTR].map(|flags| {
            let flags = flags | MEM_COPY_HOST_PTR;
            Buffer::new(&context, flags, bytes.len(), Initial::Copy(&bytes)).unwrap()
        });
        kernel.set_arg(1, ArgValue::Scalar(&100u32.to_le_bytes())).unwrap();
        Self { queue, kernel, buffers, expected: number }
    }

    /// Launches the kernel on both buffers, maps one, and reads both.
    fn step(&mut self, number: u32) {
        for buffer in &self.buffers {
            self.kernel.set_arg(0, ArgValue::Buffer(Arc::clone(buffer))).unwrap();
            let range =
                Operation::NdRange { kernel: &self.kernel, offset: &[], global: &[WORDS], local: &[] };
            self.queue.enqueue(range, &[]).unwrap();
        }
        self.expected += 100 + number;
        let [first, second] = &self.buffers;
        let mapped = self.queue.map(second, MAP_WRITE, 0, second.size(), &[]).unwrap();
        mapped.event.wait().unwrap();
        // SAFETY: the map has completed, so these bytes belong to the test until the unmap.
        let words = unsafe { std::slice::from_raw_parts_mut(mapped.address as *mut u8, second.size()) };
        assert!(words == bytes_of(self.expected));
        words.copy_from_slice(&bytes_of(self.expected));
        self.queue.unmap(second, mapped.address, &[]).unwrap();
        for buffer in [first, second] {
            let mut bytes = vec![0; buffer.size()];
            // SAFETY: the bytes live until the read has ended, for which this waits.
            let target = unsafe { HostTarget::borrowed(bytes.as_mut_ptr(), bytes.len()) };
            let read = Operation::Read { buffer, offset: 0, target };
            self.queue.enqueue(read, &[]).unwrap().wait_for_status().unwrap();
            assert!(bytes == bytes_of(self.expected));
        }
    }
}

fn bytes_of(number: u32) -> Vec<u8> {
    number.to_le_bytes().repeat(WORDS)
}

#[test]
fn programs_of_all_ways_take_turns_on_a_board_that_is_reconfigured_as_a_whole() {
    for isolate in ["protocol", "process"] {
        take_turns(isolate);
    }
}

fn take_turns(isolate: &str) {
    let manager = start(&[
        "--reconfiguration",
        "full",
        "--slots",
        "1",
        "--isolate",
        isolate,
        "--listen",
        "tcp://127.0.0.1:0",
        "--insecure-tcp",
    ]);
    let client = |address: &str| Client::with_managers(address).unwrap();
    let clients = [
        client(manager.address()),
        client(manager.address()).resuming(),
        client(manager.tcp_address()),
        client(manager.tcp_address()).resuming(),
    ];
    let mut users: Vec<_> = (1..).zip(&clients).map(|(number, client)| User::new(client, number)).collect();
    for _ in 0..3 {
        for (number, user) in (1..).zip(&mut users) {
            user.step(number);
        }
    }
}
