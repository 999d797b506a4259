//! Many sessions on few slots, and kernels that need each other.

use crate::harness::{Client, Manager, Ready, after};
use crate::{INCREASE, ints, scalar};
use fpga_protocol::v1::kernel_arg::Value;

/// Three bitstreams that differ in what they do.
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
        // Everything at once: what is right only by the queue's order shows if a task overtakes another.
        for round in 0..ROUNDS {
            let value = first + i32::try_from(round).unwrap();
            let kind = round % kernels.len();
            let commands = vec![
                client.write(queue, buffer, ints([value; 10])).await,
                client.launch(queue, kernels[kind], vec![Value::Buffer(buffer)], 10),
                client.read(queue, buffer, 40),
            ];
            expected.push((commands[2].event, value * (i32::try_from(kind).unwrap() + 2)));
            // A task without kernels may not run before the one with kernels that it follows.
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

/// Kernels joined by a channel hang if they run one after the other.
#[tokio::test]
#[ignore = "channels exist on the FPGA emulator only: FPGA_TEST_RUNTIME=intel-fpga cargo test -- --ignored"]
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
