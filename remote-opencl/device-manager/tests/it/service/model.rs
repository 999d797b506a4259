//! Modelled boards: `--model FILE`.

use crate::harness::{Client, Manager};
use crate::service::{INCREASE, OUT_OF_ORDER, PROFILING, ints, scalar};
use fpga_protocol::v1;
use fpga_protocol::v1::kernel_arg::Value;
use fpga_test_kit::processes::processor_time;
use nix::time::{ClockId, clock_gettime};
use std::time::Duration;

/// A work item of `increase` takes 1 ms, one of `other` 2 ms, a launch of `lasting` 2 s, and a bitstream 30 ms.
const MODEL: &str = r#"
board = "a board of the tests"
reconfiguration = "30ms"

[[kernel]]
name = "increase"
items_per_second = 1000

[[kernel]]
name = "other"
items_per_second = 500

[[kernel]]
name = "lasting"
launch = "2s"
"#;

const MS: u64 = 1_000_000;

/// A manager with [`MODEL`].
fn modelled(args: &[&str]) -> (Manager, tempfile::TempDir) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.toml");
    std::fs::write(&path, MODEL).unwrap();
    let mut all = vec!["--model", path.to_str().unwrap(), "--source-as-bitstream"];
    all.extend(args);
    (Manager::start(&all), folder)
}

/// A session with one kernel and a buffer of numbers.
struct Session {
    client: Client,
    queue: u64,
    kernel: u64,
    buffer: u64,
}

impl Session {
    async fn new(manager: &Manager, kernel: &str, properties: u64) -> Self {
        let mut client = Client::connect(manager).await;
        let context = client.context().await;
        let queue = client.queue(context, PROFILING | properties).await;
        let program = client.source(context, &INCREASE.replace("increase", kernel)).await;
        assert_eq!(client.build(program).await.0, 0);
        let kernel = client.kernel(program, kernel).await;
        let buffer = client.buffer(context, 400).await;
        let zeros = client.write(queue, buffer, ints([0; 100])).await;
        assert_eq!(client.run(zeros).await, 0);
        Self { client, queue, kernel, buffer }
    }

    /// A launch over this many work items.
    fn launch(&mut self, items: u64) -> v1::Command {
        let args = vec![Value::Buffer(self.buffer), scalar(&5_i32.to_le_bytes())];
        self.client.launch(self.queue, self.kernel, args, items)
    }

    /// Flushes the commands as one task. Returns the event of the last one.
    async fn flush(&mut self, commands: Vec<v1::Command>) -> u64 {
        let last = commands.last().unwrap().event;
        self.client.flush(commands).await;
        last
    }

    async fn ended(&mut self, event: u64) -> v1::Completion {
        let (completion, _) = self.client.completion(event).await;
        assert_eq!(completion.status, 0);
        let moments = [
            completion.queued_ns,
            completion.submitted_ns,
            completion.started_ns,
            completion.ended_ns,
            now_ns(),
        ];
        assert!(moments.is_sorted(), "its end is told when it is over: {moments:?}");
        completion
    }
}

/// The clock of the manager.
fn now_ns() -> u64 {
    u64::try_from(Duration::from(clock_gettime(ClockId::CLOCK_MONOTONIC).unwrap()).as_nanos()).unwrap()
}

#[tokio::test]
async fn a_kernel_takes_the_time_of_the_model_and_its_result_is_right() {
    let (manager, _model) = modelled(&["--slots", "1"]);
    let mut session = Session::new(&manager, "increase", 0).await;
    for (items, load) in [(50, 30 * MS), (100, 0)] {
        let launch = session.launch(items);
        let event = session.flush(vec![launch]).await;
        let ended = session.ended(event).await;
        assert_eq!(ended.ended_ns - ended.started_ns, items * MS);
        assert_eq!(ended.started_ns - ended.submitted_ns, load, "the bitstream is loaded once");
    }
    let read = session.client.read(session.queue, session.buffer, 400);
    let event = read.event;
    session.client.flush(vec![read]).await;
    let (_, data) = session.client.completion(event).await;
    assert_eq!(data, ints((0..100).map(|place| if place < 50 { 10 } else { 5 })));
    let text = manager.metrics_text();
    assert!(
        text.contains("fpga_device_manager_modelled_board_info{board=\"a board of the tests\"} 1"),
        "{text}"
    );
}

#[tokio::test]
async fn a_task_that_waits_for_a_slot_begins_after_the_modelled_end_of_the_one_before_it() {
    let (manager, _model) = modelled(&["--slots", "1"]);
    let mut first = Session::new(&manager, "lasting", 0).await;
    let mut second = Session::new(&manager, "other", 0).await;
    let launch = first.launch(100);
    let of_first = first.flush(vec![launch]).await;
    manager.counts("fpga_device_manager_slots_in_use 1").await;
    let launch = second.launch(10);
    let of_second = second.flush(vec![launch]).await;
    let (first, second) = (first.ended(of_first).await, second.ended(of_second).await);
    assert!(second.queued_ns < first.ended_ns, "it waits");
    assert!(second.submitted_ns >= first.ended_ns);
    assert_eq!(second.started_ns - second.submitted_ns, 30 * MS);
    assert_eq!(second.ended_ns - second.started_ns, 20 * MS);
}

#[tokio::test]
async fn as_many_kernels_run_at_once_as_there_are_slots() {
    let (manager, _model) = modelled(&["--slots", "2"]);
    let mut sessions = Vec::new();
    for _ in 0..2 {
        sessions.push(Session::new(&manager, "lasting", 0).await);
    }
    let mut events = Vec::new();
    for session in &mut sessions {
        let launch = session.launch(100);
        events.push(session.flush(vec![launch]).await);
    }
    let mut spans = Vec::new();
    for (session, event) in sessions.iter_mut().zip(events) {
        let ended = session.ended(event).await;
        spans.push((ended.started_ns, ended.ended_ns));
    }
    assert!(spans[0].0 < spans[1].1 && spans[1].0 < spans[0].1, "{spans:?} overlap");
}

#[tokio::test]
async fn later_tasks_of_a_queue_and_those_that_wait_for_an_event_end_after_a_modelled_kernel() {
    let (manager, _model) = modelled(&["--slots", "2"]);
    let mut session = Session::new(&manager, "increase", OUT_OF_ORDER).await;
    let launch = session.launch(80);
    let first = session.flush(vec![launch]).await;
    // A task of its own, which needs no slot.
    let read = session.client.read(session.queue, session.buffer, 400);
    let read = crate::service::after(read, &[first]);
    let read = session.flush(vec![read]).await;
    let (first, read) = (session.ended(first).await, session.ended(read).await);
    assert!(read.started_ns >= first.ended_ns, "{read:?} reads the result of {first:?}");
}

#[tokio::test]
async fn a_slot_in_use_takes_no_processor_time() {
    let (manager, _model) = modelled(&["--slots", "1"]);
    let mut session = Session::new(&manager, "lasting", 0).await;
    let launch = session.launch(1);
    let event = session.flush(vec![launch]).await;
    session.ended(event).await;
    let before = processor_time(manager.id()).unwrap();
    let launch = session.launch(100);
    let event = session.flush(vec![launch]).await;
    let ended = session.ended(event).await;
    let took = Duration::from_nanos(ended.ended_ns - ended.started_ns);
    let used = processor_time(manager.id()).unwrap() - before;
    assert!(used < took / 2, "{used:?} of processor time in {took:?}");
}

#[tokio::test]
async fn the_slot_of_a_client_that_has_gone_is_free_after_the_modelled_time() {
    let (manager, _model) = modelled(&["--slots", "1"]);
    let mut gone = Session::new(&manager, "lasting", 0).await;
    let mut next = Session::new(&manager, "increase", 0).await;
    let launch = gone.launch(100);
    gone.flush(vec![launch]).await;
    // The kernel starts with that.
    manager.counts("fpga_device_manager_reconfigurations_total 1").await;
    drop(gone);
    let launch = next.launch(1);
    let event = next.flush(vec![launch]).await;
    let ended = next.ended(event).await;
    assert!(ended.submitted_ns - ended.queued_ns > MS, "it waits for the kernel of the other client");
}

#[tokio::test]
async fn a_kernel_that_the_model_lacks_is_counted_and_takes_its_own_time() {
    let (manager, _model) = modelled(&["--slots", "1"]);
    let mut session = Session::new(&manager, "unknown", 0).await;
    let launch = session.launch(100);
    let event = session.flush(vec![launch]).await;
    session.ended(event).await;
    manager.counts("fpga_device_manager_modelled_kernels_unknown_total 1").await;
}
