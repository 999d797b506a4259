//! A board that is reconfigured as a whole between tasks (T-2): all contexts of the vendor are destroyed and
//! made again, and sessions notice only the delay.

use crate::harness::{Client, Manager, after};
use crate::service::{INCREASE, ints, scalar};
use bytes::Bytes;
use fpga_protocol::v1;
use fpga_protocol::v1::call::Method;
use fpga_protocol::v1::command::Operation;
use fpga_protocol::v1::data::Form;
use fpga_protocol::v1::kernel_arg::Value;
use fpga_test_kit::until_async;

const FULL: [&str; 8] =
    ["--reconfiguration", "full", "--slots", "1", "--reconfiguration-time", "1ms", "--isolate", "protocol"];

const FULL_OF_PROCESSES: [&str; 8] =
    ["--reconfiguration", "full", "--slots", "1", "--reconfiguration-time", "1ms", "--isolate", "process"];

/// Number of elements of a buffer.
const COUNT: u64 = 1000;

/// Source of a bitstream whose kernel computes `a * factor + summand + other`.
fn source(factor: i32) -> String {
    format!(
        "kernel void advance(global int *a, global const int *other, int summand) {{
            size_t i = get_global_id(0);
            a[i] = a[i] * {factor} + summand + other[i];
        }}"
    )
}

async fn bitstreams(factors: &[i32]) -> Vec<Vec<u8>> {
    let manager = Manager::start(&[]);
    let mut client = Client::connect(&manager).await;
    let context = client.context().await;
    let mut binaries = Vec::new();
    for factor in factors {
        let program = client.source(context, &source(*factor)).await;
        assert_eq!(client.build(program).await.0, 0);
        binaries.push(client.binary(program).await);
    }
    binaries
}

/// A session with a kernel of each bitstream, and the expected contents of its buffer.
struct Session {
    client: Client,
    queues: [u64; 2],
    kernels: Vec<u64>,
    buffer: u64,
    region: u64,
    other: u64,
    expected: Vec<i32>,
    last: u64,
}

impl Session {
    async fn new(manager: &Manager, bitstreams: &[Vec<u8>], first: i32) -> Self {
        let mut client = Client::connect(manager).await;
        let context = client.context().await;
        let queues = [client.queue(context, 0).await, client.queue(context, 1).await];
        let mut kernels = Vec::new();
        for bitstream in bitstreams {
            let (program, _) = client.program_from(context, bitstream).await;
            kernels.push(client.kernel(program, "advance").await);
        }
        let buffer = client.buffer(context, 4 * COUNT).await;
        let region = client.id();
        let size = 4 * (COUNT - 256);
        client
            .cast(Method::CreateSubBuffer(v1::CreateSubBuffer {
                buffer: region,
                parent: buffer,
                flags: 0,
                origin: 1024,
                size,
            }))
            .await;
        // Never written, so it must stay zero.
        let other = client.buffer(context, 4 * COUNT).await;
        let expected: Vec<i32> = (0..1000).map(|n| n * first).collect();
        let write = client.write(queues[0], buffer, ints(expected.clone())).await;
        let last = write.event;
        client.flush(vec![write]).await;
        Self { client, queues, kernels, buffer, region, other, expected, last }
    }

    /// Runs one of the kernels, on either queue, over the whole buffer or the region.
    async fn step(&mut self, which: usize, factor: i32, summand: i32, on_region: bool) {
        let buffer = if on_region { self.region } else { self.buffer };
        let (from, count) = if on_region { (256, COUNT - 256) } else { (0, COUNT) };
        let args = vec![Value::Buffer(buffer), Value::Buffer(self.other), scalar(&summand.to_le_bytes())];
        let queue = self.queues[usize::from(on_region)];
        let launch = self.client.launch(queue, self.kernels[which], args, count);
        let launch = after(launch, &[self.last]);
        self.last = launch.event;
        self.client.flush(vec![launch]).await;
        for number in &mut self.expected[from..] {
            *number = number.wrapping_mul(factor).wrapping_add(summand);
        }
    }

    async fn check(&mut self) {
        let read = self.client.read(self.queues[0], self.buffer, 4 * COUNT);
        let read = after(read, &[self.last]);
        let event = read.event;
        self.client.flush(vec![read]).await;
        let (completion, data) = self.client.completion(event).await;
        assert_eq!(completion.status, 0);
        assert!(data == ints(self.expected.clone()), "the bytes of a session are wrong");
    }
}

/// Waits for a counter to be at least this. Tenant processes report theirs every second.
async fn counts_at_least(manager: &Manager, what: &str, least: u64) {
    until_async(what, async || counted(manager, what) >= least).await;
}

fn counted(manager: &Manager, what: &str) -> u64 {
    let text = manager.metrics_text();
    let name = format!("fpga_device_manager_{what}_total ");
    let line = text.lines().find_map(|line| line.strip_prefix(&name));
    line.unwrap_or_else(|| panic!("no {what} in {text}")).parse().unwrap()
}

#[tokio::test]
async fn sessions_with_different_bitstreams_take_turns_on_one_slot_and_their_bytes_stay_right() {
    let factors = [3, 5, -7];
    let bitstreams = bitstreams(&factors).await;
    for way in [FULL, FULL_OF_PROCESSES] {
        take_turns(&Manager::start(&way), &factors, &bitstreams).await;
    }
}

async fn take_turns(manager: &Manager, factors: &[i32], bitstreams: &[Vec<u8>]) {
    let mut sessions = Vec::new();
    for first in 1..4 {
        sessions.push(Session::new(manager, bitstreams, first).await);
    }
    let mut random = 12_345_u32;
    let mut next = |below: u32| {
        random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (random >> 16) % below
    };
    for round in 0..60 {
        let session = &mut sessions[next(3) as usize];
        let which = next(3) as usize;
        session.step(which, factors[which], i32::try_from(next(100)).unwrap(), next(3) == 0).await;
        if next(4) == 0 {
            session.check().await;
        }
        if round == 30 {
            // A session that ends in the middle does not disturb the others.
            sessions.remove(0);
            sessions.push(Session::new(manager, bitstreams, 9).await);
        }
    }
    for session in &mut sessions {
        session.check().await;
    }
    let switches = counted(manager, "reconfigurations");
    assert!(switches >= 10, "{switches} reconfigurations");
    counts_at_least(manager, "contexts_destroyed", 2 * switches).await;
}

#[tokio::test]
async fn it_goes_with_every_other_way_to_serve() {
    let bitstreams = bitstreams(&[3, 5]).await;
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let (store, trace) = (path("store"), path("trace.json"));
    // The store is used twice: the second manager finds the bitstreams that clients sent to the first.
    let ways: [&[&str]; 7] = [
        &["--store", &store],
        &["--store", &store],
        &["--shared-memory", "off"],
        &["--command-ring", "off"],
        &["--trace", &trace],
        &["--policy", "drr", "--may-reconfigure", "always"],
        &["--source-as-bitstream", "--reconnect-grace", "1s"],
    ];
    for (number, way) in ways.into_iter().enumerate() {
        let mut manager = Manager::start(&[&FULL[..], way].concat());
        let mut client = Client::connect(&manager).await;
        let context = client.context().await;
        let (_, missing) = client.program_from(context, &bitstreams[0]).await;
        assert_eq!(missing, usize::from(number != 1), "{way:?}");
        let mut sessions =
            [Session::new(&manager, &bitstreams, 1).await, Session::new(&manager, &bitstreams, 2).await];
        for (which, factor) in [(0, 3), (1, 5), (0, 3)] {
            for session in &mut sessions {
                session.step(which, factor, 7, false).await;
                session.check().await;
            }
        }
        assert!(counted(&manager, "reconfigurations") >= 3, "{way:?}");
        drop((client, sessions));
        manager.has_no_session().await;
        assert!(manager.terminate().success(), "{way:?}");
    }
}

#[tokio::test]
async fn images_sources_and_past_events_are_there_after_the_contexts_were_destroyed() {
    let bitstreams = bitstreams(&[3, 5]).await;
    for way in [FULL, FULL_OF_PROCESSES] {
        all_is_there(&Manager::start(&way), &bitstreams).await;
    }
}

async fn all_is_there(manager: &Manager, bitstreams: &[Vec<u8>]) {
    let mut witness = Client::connect(manager).await;
    let context = witness.context().await;
    let queue = witness.queue(context, 0).await;
    let pixels: Vec<u8> = (0..32 * 16 * 4).map(|n: u32| n.to_le_bytes()[0]).collect();
    let image = witness.id();
    let reply = witness
        .call(Method::CreateImage(v1::CreateImage {
            image,
            context,
            flags: 1,
            // CL_RGBA, CL_UNSIGNED_INT8 and CL_MEM_OBJECT_IMAGE2D
            format: Some(v1::ImageFormat { order: 0x10B5, r#type: 0x10DA }),
            shape: Some(v1::ImageShape {
                r#type: 0x10F1,
                width: 32,
                height: 16,
                ..v1::ImageShape::default()
            }),
            initial: Some(v1::Data { form: Some(Form::Inline(Bytes::from(pixels.clone()))) }),
        }))
        .await;
    assert_eq!(reply.status, 0);
    let program = witness.source(context, INCREASE).await;
    assert_eq!(witness.build(program).await.0, 0);
    let kernel = witness.kernel(program, "increase").await;
    let buffer = witness.buffer(context, 40).await;
    let write = witness.write(queue, buffer, ints(0..10)).await;
    let args = vec![Value::Buffer(buffer), scalar(&7_i32.to_le_bytes())];
    let launch = witness.launch(queue, kernel, args, 10);
    let past = launch.event;
    witness.flush(vec![write, launch]).await;
    assert_eq!(witness.status(past).await, 0);

    let mut other = Session::new(manager, bitstreams, 1).await;
    for round in 0..4 {
        other.step(round % 2, [3, 5][round % 2], 1, false).await;
        other.check().await;
    }
    // One reconfiguration for each of its programs and each of its steps.
    manager.counts("fpga_device_manager_reconfigurations_total 6").await;

    // The same handles, the same arguments, and an earlier event to wait for.
    let again = after(witness.launch(queue, kernel, Vec::new(), 10), &[past]);
    let read = witness.read(queue, buffer, 40);
    let region = v1::ImageRegion { origin: vec![0, 0, 0], size: vec![32, 16, 1] };
    let read_image = witness
        .command(queue, Operation::ReadImage(v1::ReadImage { image, region: Some(region), into: None }));
    let (numbers, picture) = (read.event, read_image.event);
    witness.flush(vec![again, read, read_image]).await;
    let (completion, data) = witness.completion(numbers).await;
    assert_eq!((completion.status, data), (0, ints(14..24)));
    let (completion, data) = witness.completion(picture).await;
    assert_eq!(completion.status, 0);
    assert!(data == pixels, "the image is another");
}

#[tokio::test]
async fn what_the_vendor_refuses_to_make_again_is_an_error_and_neither_a_hang_nor_anothers_loss() {
    let bitstreams = bitstreams(&[3, 5]).await;
    // Loses one object after the other of two sessions with contexts, queues, programs, kernels and buffers.
    for lost in [1, 2, 4, 5, 6, 7, 8, 9, 11, 15] {
        // From the fifth switch on; making the four programs takes the switches before.
        let lost = format!("5:{lost}");
        let mut manager = Manager::start_in(&[("FPGA_TEST_LOSE_OBJECT", lost.as_str())], &FULL);
        let mut sessions = Vec::new();
        for first in [1, 2] {
            let mut session = Session::new(&manager, &bitstreams, first).await;
            // Its objects are made when its write has ended. Else one of them may come between those of the next session,
            // and the number of the lost object would mean an object of the one session in some switches and of the other
            // session in others.
            assert_eq!(session.client.status(session.last).await, 0);
            sessions.push(session);
        }
        let mut failures = [0, 0];
        for (session, failed) in sessions.iter_mut().zip(&mut failures) {
            for which in [0, 1] {
                session.step(which, 1, 1, false).await;
                let launched = session.last;
                let read = session.client.read(session.queues[0], session.buffer, 4);
                let read_event = read.event;
                session.client.flush(vec![read]).await;
                // An answer comes, whether success or error.
                *failed += i32::from(session.client.status(launched).await < 0);
                *failed += i32::from(session.client.status(read_event).await < 0);
            }
        }
        assert!(manager.is_running(), "object {lost}");
        assert!(failures.contains(&0), "object {lost}: only whose it was has failures: {failures:?}");
        drop(sessions);
        manager.has_no_session().await;
        assert!(manager.terminate().success());
    }
}
