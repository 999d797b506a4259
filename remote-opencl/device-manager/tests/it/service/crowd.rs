//! Many sessions on few slots, and kernels that need each other.

use crate::harness::{Client, Manager, Ready, after};
use crate::service::{INCREASE, ints, scalar};
use fpga_protocol::v1::kernel_arg::Value;

const POLICIES: [&str; 6] = ["fifo", "round-robin", "drr", "priority", "sjf", "edf"];

/// Three bitstreams whose kernels multiply by different factors.
async fn bitstreams(manager: &Manager) -> Vec<Vec<u8>> {
    let mut client = Client::connect(manager).await;
    let context = client.context().await;
    let mut all = Vec::new();
    for factor in 2..5 {
        let source = format!("kernel void scale(global int *a) {{ a[get_global_id(0)] *= {factor}; }}");
        let program = client.source(context, &source).await;
        assert_eq!(client.build(program).await.0, 0);
        all.push(client.binary(program).await);
    }
    all
}

#[tokio::test]
async fn sessions_that_fight_for_slots_all_get_their_results_in_order() {
    const ROUNDS: usize = 40;
    const SESSIONS: i32 = 4;
    let manager = Manager::start(&["--slots", "2", "--reconfiguration-time", "1ms"]);
    let bitstreams = bitstreams(&manager).await;
    let session = async |first: i32| {
        let mut client = Client::connect(&manager).await;
        let context = client.context().await;
        let queue = client.queue(context, 0).await;
        let mut kernels = Vec::new();
        for bitstream in &bitstreams {
            let (program, _) = client.program_from(context, bitstream).await;
            kernels.push(client.kernel(program, "scale").await);
        }
        let buffer = client.buffer(context, 40).await;
        let mut expected = Vec::new();
        // All rounds are flushed at once: a task that overtakes another changes the results.
        for round in 0..ROUNDS {
            let value = first + i32::try_from(round).unwrap();
            let kind = round % kernels.len();
            let commands = vec![
                client.write(queue, buffer, ints([value; 10])).await,
                client.launch(queue, kernels[kind], vec![Value::Buffer(buffer)], 10),
                client.read(queue, buffer, 40),
            ];
            expected.push((commands[2].event, value * (i32::try_from(kind).unwrap() + 2)));
            // A task without kernels must not run before the one with kernels that it follows.
            for command in commands {
                client.flush(vec![command]).await;
            }
        }
        for (event, value) in expected {
            let (completion, data) = client.completion(event).await;
            assert_eq!((completion.status, data), (0, ints([value; 10])));
        }
    };
    futures::future::join_all((0..SESSIONS).map(|number| session(number * 1000))).await;
}

#[tokio::test]
async fn a_task_that_needs_more_bitstreams_than_there_are_slots_runs_in_parts() {
    let manager = Manager::start(&["--slots", "2", "--reconfiguration-time", "1ms"]);
    let bitstreams = bitstreams(&manager).await;
    let mut client = Client::connect(&manager).await;
    let context = client.context().await;
    let queue = client.queue(context, 0).await;
    let buffer = client.buffer(context, 4).await;
    let mut commands = vec![client.write(queue, buffer, ints([1])).await];
    for bitstream in &bitstreams {
        let (program, _) = client.program_from(context, bitstream).await;
        let kernel = client.kernel(program, "scale").await;
        commands.push(client.launch(queue, kernel, vec![Value::Buffer(buffer)], 1));
    }
    let read = client.read(queue, buffer, 4);
    let event = read.event;
    commands.push(read);
    client.flush(commands).await;
    assert_eq!(client.completion(event).await.1, ints([2 * 3 * 4]));
}

#[tokio::test]
async fn many_launches_in_flight_complete_once_each() {
    const LAUNCHES: i32 = 5000;
    let manager = Manager::start(&[]);
    let mut client = Client::connect(&manager).await;
    let Ready { queue, kernel, buffer } = client.ready(INCREASE, "increase", 4).await;
    let mut events = Vec::new();
    for at in 0..LAUNCHES {
        let args =
            if at == 0 { vec![Value::Buffer(buffer), scalar(&1_i32.to_le_bytes())] } else { Vec::new() };
        let launch = client.launch(queue, kernel, args, 1);
        events.push(launch.event);
        client.flush(vec![launch]).await;
    }
    let read = client.read(queue, buffer, 4);
    let last = read.event;
    client.flush(vec![read]).await;
    assert_eq!(client.completion(last).await.1, ints([LAUNCHES]));
    for event in events {
        assert_eq!(client.status(event).await, 0);
    }
}

/// Two kernels: `wait_for` ends when `set` has run.
pub const WAIT_AND_SET: &str =
    "kernel void wait_for(global volatile int *flag) { while (atomic_add(flag, 0) == 0) {} }
    kernel void set(global volatile int *flag) { atomic_xchg(flag, 1); }";

/// A session with two queues, and a buffer that its kernels share.
pub struct Pair {
    pub client: Client,
    queues: [u64; 2],
    kernels: [u64; 2],
    buffer: u64,
}

impl Pair {
    async fn new(manager: &Manager, source: &str, kernels: [&str; 2], bytes: u64) -> Self {
        Self::of(Client::connect(manager).await, source, kernels, bytes).await
    }

    pub async fn of(mut client: Client, source: &str, kernels: [&str; 2], bytes: u64) -> Self {
        let context = client.context().await;
        let queues = [client.queue(context, 0).await, client.queue(context, 0).await];
        let program = client.source(context, source).await;
        let (status, build) = client.build(program).await;
        assert_eq!(status, 0, "{:?}", build.devices);
        let kernels = [client.kernel(program, kernels[0]).await, client.kernel(program, kernels[1]).await];
        let buffer = client.buffer(context, bytes).await;
        Self { client, queues, kernels, buffer }
    }

    /// Flushes a launch of one of the kernels on its queue.
    pub async fn start(&mut self, which: usize, more: &[Value]) -> u64 {
        let args = [&[Value::Buffer(self.buffer)], more].concat();
        let launch = self.client.launch(self.queues[which], self.kernels[which], args, 1);
        let event = launch.event;
        self.client.flush(vec![launch]).await;
        event
    }

    /// Sets the buffer's first integer to 1 without a task that needs a slot.
    pub async fn write_flag(&mut self) {
        let write = self.client.write(self.queues[1], self.buffer, ints([1])).await;
        assert_eq!(self.client.run(write).await, 0);
    }
}

pub async fn until_metrics(manager: &Manager, in_use: u32, waiting: u32) {
    manager.counts(&format!("fpga_device_manager_slots_in_use {in_use}")).await;
    manager.counts(&format!("fpga_device_manager_tasks_waiting {waiting}")).await;
}

#[tokio::test]
async fn a_kernel_that_waits_for_one_of_a_later_task_ends_while_another_session_waits_under_every_policy() {
    for policy in POLICIES {
        for slots in [1, 2] {
            // PoCL needs as many threads as kernels run at the same time.
            let threads = [("POCL_MAX_PTHREAD_COUNT", "8")];
            let args = ["--slots", &slots.to_string(), "--policy", policy];
            let manager = Manager::start_in(&threads, &args);
            let mut holders = Vec::new();
            for number in 1..=slots {
                let mut holder = Pair::new(&manager, WAIT_AND_SET, ["wait_for", "set"], 4).await;
                let waits = holder.start(0, &[]).await;
                holders.push((holder, waits));
                until_metrics(&manager, number, 0).await;
            }
            let mut other = Client::connect(&manager).await;
            let Ready { queue, kernel, buffer } = other.ready(INCREASE, "increase", 4).await;
            let args = vec![Value::Buffer(buffer), scalar(&7_i32.to_le_bytes())];
            let commands = vec![other.launch(queue, kernel, args, 1), other.read(queue, buffer, 4)];
            let read = commands[1].event;
            other.flush(commands).await;
            until_metrics(&manager, slots, 1).await;
            for (holder, waits) in &mut holders {
                let sets = holder.start(1, &[]).await;
                assert_eq!(holder.client.status(sets).await, 0, "{policy}, {slots} slots");
                assert_eq!(holder.client.status(*waits).await, 0, "{policy}, {slots} slots");
            }
            assert_eq!(other.completion(read).await.1, ints([7]), "{policy}, {slots} slots");
        }
    }
}

#[tokio::test]
#[ignore = "channels exist on the FPGA emulator only: make test-opencl"]
async fn kernels_joined_by_a_channel_in_several_tasks_end_while_another_session_always_waits() {
    const SOURCE: &str = "#pragma OPENCL EXTENSION cl_intel_channels : enable
        channel int between __attribute__((depth(4)));
        kernel void produce(global int *a, int n) {
            for (int i = 0; i < n; i++) write_channel_intel(between, i);
        }
        kernel void consume(global int *a, int n) {
            for (int i = 0; i < n; i++) a[i] = read_channel_intel(between) + 1;
        }";
    const COUNT: i32 = 1000;
    for policy in POLICIES {
        let manager = Manager::start(&["--slots", "1", "--policy", policy]);
        let mut joined = Pair::new(&manager, SOURCE, ["produce", "consume"], 4000).await;
        let mut other = Client::connect(&manager).await;
        let Ready { queue, kernel, buffer } = other.ready(INCREASE, "increase", 4).await;
        let produced = joined.start(0, &[scalar(&COUNT.to_le_bytes())]).await;
        until_metrics(&manager, 1, 0).await;
        let mut others = Vec::new();
        for _ in 0..20 {
            let args = vec![Value::Buffer(buffer), scalar(&1_i32.to_le_bytes())];
            let launch = other.launch(queue, kernel, args, 1);
            others.push(launch.event);
            other.flush(vec![launch]).await;
        }
        until_metrics(&manager, 1, 20).await;
        let consumed = joined.start(1, &[scalar(&COUNT.to_le_bytes())]).await;
        for event in [produced, consumed] {
            assert_eq!(joined.client.status(event).await, 0, "{policy}");
        }
        for event in others {
            assert_eq!(other.status(event).await, 0, "{policy}");
        }
        let read = joined.client.read(joined.queues[1], joined.buffer, 4000);
        let event = read.event;
        joined.client.flush(vec![read]).await;
        assert_eq!(joined.client.completion(event).await.1, ints(1..=COUNT), "{policy}");
    }
}

/// Kernels joined by a channel hang if they run one after the other.
#[tokio::test]
#[ignore = "channels exist on the FPGA emulator only: make test-opencl"]
async fn kernels_joined_by_a_channel_run_at_the_same_time() {
    const SOURCE: &str = "#pragma OPENCL EXTENSION cl_intel_channels : enable
        channel int between __attribute__((depth(4)));
        kernel void produce(global const int *a, int n) {
            for (int i = 0; i < n; i++) write_channel_intel(between, a[i]);
        }
        kernel void consume(global int *a, int n) {
            for (int i = 0; i < n; i++) a[i] = read_channel_intel(between) + 1;
        }";
    const COUNT: i32 = 1000;
    let manager = Manager::start(&["--slots", "1"]);
    let mut client = Client::connect(&manager).await;
    let context = client.context().await;
    let (one, two) = (client.queue(context, 0).await, client.queue(context, 0).await);
    let program = client.source(context, SOURCE).await;
    let (status, build) = client.build(program).await;
    assert_eq!(status, 0, "{:?}", build.devices);
    let (produce, consume) =
        (client.kernel(program, "produce").await, client.kernel(program, "consume").await);
    let (source, target) = (client.buffer(context, 4000).await, client.buffer(context, 4000).await);
    let count = || scalar(&COUNT.to_le_bytes());
    for flushes in [1, 2] {
        let write = client.write(one, source, ints(0..COUNT)).await;
        let produced = client.launch(one, produce, vec![Value::Buffer(source), count()], 1);
        let consumed = client.launch(two, consume, vec![Value::Buffer(target), count()], 1);
        let (first, second) = (produced.event, consumed.event);
        let read = client.read(one, target, 4000);
        let event = read.event;
        let commands = vec![write, produced, consumed, after(read, &[first, second])];
        if flushes == 1 {
            client.flush(commands).await;
        } else {
            for command in commands {
                client.flush(vec![command]).await;
            }
        }
        let (completion, data) = client.completion(event).await;
        assert_eq!((completion.status, data), (0, ints(1..=COUNT)));
    }
}
