//! Tenants that share a device: their shares (T-1) and their quotas.

use crate::harness::{Board, Client, Manager, traced};
use crate::service::board::{PARTIAL, Scaler, images};
use crate::service::crowd::{Pair, WAIT_AND_SET, until_metrics};
use crate::service::{INCREASE, ints, scalar};
use fpga_protocol::v1;
use fpga_protocol::v1::call::Method;
use fpga_protocol::v1::kernel_arg::Value;
use fpga_test_kit::until_async;
use serde_json::Value as Event;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Keeps one core busy for a time in proportion to `rounds`.
pub const SPIN: &str = "kernel void spin(global ulong *a, ulong rounds) {
    ulong x = a[0] + 88172645463325252ul;
    for (ulong i = 0; i < rounds; i++) { x ^= x << 13; x ^= x >> 7; x ^= x << 17; }
    a[0] = x;
}";

pub fn tenants_file(text: &str) -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("tenants.json");
    std::fs::write(&path, text).unwrap();
    (folder, path)
}

/// Replaces a file, as Kubernetes replaces mounted configuration.
fn replace(path: &PathBuf, text: &str) {
    let new = path.with_extension("new");
    std::fs::write(&new, text).unwrap();
    std::fs::rename(new, path).unwrap();
}

fn quota(quota: &str) -> String {
    format!("{{\"default\": {{\"quota\": {quota}}}}}")
}

#[tokio::test]
async fn over_the_quota_of_memory_and_buffers_the_standards_errors_come_and_the_session_goes_on() {
    let (_folder, path) = tenants_file(&quota(r#"{"memory": "1MiB", "buffers": 3}"#));
    let manager = Manager::start(&["--tenants", path.to_str().unwrap()]);
    let mut one = Client::connect(&manager).await;
    let mut two = Client::connect(&manager).await;
    let (context, other) = (one.context().await, two.context().await);
    let create = |client: &mut Client, context, size| {
        let buffer = client.id();
        (buffer, v1::CreateBuffer { buffer, context, flags: 1, size, initial: None, storage: None })
    };
    let (first, large) = create(&mut one, context, 1 << 20);
    assert_eq!(one.call(Method::CreateBuffer(large)).await.status, 0);
    let (_, more) = create(&mut two, other, 1);
    assert_eq!(two.call(Method::CreateBuffer(more)).await.status, -4, "both sessions are one tenant's");
    one.cast(Method::Release(v1::Release { objects: vec![first], events: vec![] })).await;
    for expected in [0, 0, 0, -5] {
        let (_, small) = create(&mut one, context, 16);
        assert_eq!(one.call(Method::CreateBuffer(small)).await.status, expected);
    }
    for line in ["Memory\"} 1", "Buffers\"} 1"] {
        manager.counts(&format!("fpga_device_manager_quota_refusals_total{{quota=\"{line}")).await;
    }
    drop(one);
    // The tenant gets a session's share back when the session has ended.
    until_async("the memory of the session that has ended", async || {
        let (_, again) = create(&mut two, other, 1 << 20);
        two.call(Method::CreateBuffer(again)).await.status == 0
    })
    .await;
}

#[tokio::test]
async fn programs_sessions_and_uploads_have_their_quotas() {
    let quotas = quota(r#"{"programs": 2, "sessions": 1, "upload": "64KiB"}"#);
    let (_folder, path) = tenants_file(&quotas);
    let manager = Manager::start(&["--tenants", path.to_str().unwrap()]);
    let mut client = Client::connect(&manager).await;
    let status = Client::refused(manager.channel().await).await;
    assert_eq!(status.code(), tonic::Code::ResourceExhausted, "{status}");
    let context = client.context().await;
    let queue = client.queue(context, 0).await;
    let buffer = client.buffer(context, 1 << 20).await;

    // An upload that is too long fails its command, and its bytes are not kept; a shorter one succeeds.
    for (length, expected) in [(65_537, -5), (65_536, 0)] {
        let write = client.write(queue, buffer, vec![7; length]).await;
        assert_eq!(client.run(write).await, expected, "{length}");
    }

    client.source(context, SPIN).await;
    client.source(context, SPIN).await;
    let create = |program| {
        let source = Some(v1::Data { form: Some(v1::data::Form::Inline(SPIN.into())) });
        Method::CreateProgramWithSource(v1::CreateProgramWithSource {
            program,
            context,
            source,
            prints: false,
        })
    };
    let third = client.id();
    assert_eq!(client.call(create(third)).await.status, -5);
}

#[tokio::test]
async fn waiting_tasks_have_a_quota() {
    let images = images(&[3]).await;
    let board = Board::new();
    let (_folder, path) = tenants_file(&quota(r#"{"queued-tasks": 2}"#));
    let manager = board.manager(&[PARTIAL, &["--tenants", path.to_str().unwrap()]].concat());
    let mut session = Scaler::new(&manager, &images[0], 3).await;
    board.controls.never_end(true);
    // One that runs, one that waits in its queue, and one that exceeds the quota.
    let (first, second, third) = (session.start().await, session.start().await, session.start().await);
    assert_eq!(session.ended(third).await, [-5, -5]);
    board.controls.never_end(false);
    assert_eq!([session.ended(first).await, session.ended(second).await], [[0, 0]; 2]);
}

#[tokio::test]
async fn a_changed_file_counts_without_a_restart_and_a_broken_one_changes_nothing() {
    let (_folder, path) = tenants_file(&quota(r#"{"memory": "1MiB"}"#));
    let manager = Manager::start(&["--tenants", path.to_str().unwrap()]);
    let mut client = Client::connect(&manager).await;
    let context = client.context().await;
    let allowed = async |client: &mut Client| {
        let buffer = client.id();
        let size = 2 << 20;
        let create = v1::CreateBuffer { buffer, context, flags: 1, size, initial: None, storage: None };
        let made = client.call(Method::CreateBuffer(create)).await.status == 0;
        client.cast(Method::Release(v1::Release { objects: vec![buffer], events: vec![] })).await;
        made
    };
    assert!(!allowed(&mut client).await);
    replace(&path, "{ this is no JSON");
    manager.counts("fpga_device_manager_settings_refusals_total 1").await;
    assert!(!allowed(&mut client).await);
    replace(&path, r#"{"policy": "sjf", "default": {"quota": {"memory": "4MiB"}}}"#);
    until_async("the new file to count", async || allowed(&mut client).await).await;
    manager.counts("fpga_device_manager_settings_changes_total 1").await;
}

#[tokio::test]
async fn results_are_right_and_in_order_whatever_the_policy() {
    for policy in ["fifo", "round-robin", "drr", "priority", "sjf", "edf"] {
        let manager = Manager::start(&["--slots", "1", "--policy", policy]);
        let session = async |first: i32| {
            let mut client = Client::connect(&manager).await;
            let context = client.context().await;
            let program = client.source(context, INCREASE).await;
            assert_eq!(client.build(program).await.0, 0);
            let kernel = client.kernel(program, "increase").await;
            let queue = client.queue(context, 0).await;
            let buffer = client.buffer(context, 4).await;
            let mut reads = Vec::new();
            for round in 0..50 {
                let one = scalar(&1_i32.to_le_bytes());
                let mut commands = vec![client.launch(queue, kernel, vec![Value::Buffer(buffer), one], 1)];
                if round == 0 {
                    commands.insert(0, client.write(queue, buffer, ints([first])).await);
                }
                let read = client.read(queue, buffer, 4);
                reads.push((read.event, first + round + 1));
                commands.push(read);
                client.flush(commands).await;
            }
            for (event, expected) in reads {
                assert_eq!(client.completion(event).await.1, ints([expected]), "{policy}");
            }
        };
        futures::future::join_all((0..4).map(|number| session(number * 1000))).await;
    }
}

/// The order in which the tasks of alice, bob and carol start, two each, when the only slot becomes free.
/// They arrive in this order, and each policy starts them in a different one.
///
/// Under `sjf` each tenant has run a task before, from which the manager knows how long the tenant's kernel takes: a
/// kind of task is the kernel and its range, without the contents of buffers.
async fn order_under(policy: &str, more: &[&str]) -> String {
    let names = ["alice", "bob", "carol"];
    let folder = tempfile::tempdir().unwrap();
    let token = |name: &str| format!("token-of-{name}-0123456789");
    for name in names.iter().chain(&["zoe"]) {
        std::fs::write(folder.path().join(name), token(name)).unwrap();
    }
    // Under `drr` the first to arrive has the turn. A task then costs many turns, of which bob needs fewest.
    let shares = r#""alice": {"deadline": "30s", "weight": 1},
        "bob": {"priority": 1, "deadline": "10s", "weight": 10000},
        "carol": {"priority": 2, "deadline": "20s", "weight": 100}"#;
    let text = format!(
        "{{\"policy\": \"{policy}\", \"ageing\": \"1h\", \"quantum\": \"1us\", \"tenants\": {{{shares}}}}}"
    );
    let (_tenants, path) = tenants_file(&text);
    let (tokens, tenants) = (folder.path().to_str().unwrap(), path.to_str().unwrap());
    let traces = tempfile::tempdir().unwrap();
    let trace = traces.path().join("trace.json");
    let args = ["--slots", "1", "--tokens", tokens, "--tenants", tenants, "--trace", trace.to_str().unwrap()];
    let args = [&args, more].concat();
    let manager = Manager::start_in(&[("POCL_MAX_PTHREAD_COUNT", "4")], &args);
    let connect = async |name: &str| Client::with_token(manager.channel().await, &token(name)).await;

    let mut pairs = Vec::new();
    for name in names {
        let kernel = format!("wait_for_{name}");
        let source = WAIT_AND_SET.replace("wait_for", &kernel);
        pairs.push(Pair::of(connect(name).await, &source, [&kernel, "set"], 4).await);
    }
    let [alice, bob, carol] = &mut pairs[..] else { panic!("three tenants") };
    let mut earlier_tasks = 0;
    if policy == "sjf" {
        earlier_tasks = names.len();
        // Alice's task is expected to be so long that the time that she waits does not make it the shortest.
        let mut at_least = Duration::ZERO;
        for pair in [carol, alice, bob] {
            at_least = 2 * hold_slot(&manager, pair, at_least).await + Duration::from_millis(250);
        }
    } else {
        for pair in [alice, bob, carol] {
            pair.write_flag().await;
        }
    }
    // The flags are set from here on, so the tasks whose order is tested are short.
    until_metrics(&manager, 0, 0).await;
    let mut holder = Pair::of(connect("zoe").await, WAIT_AND_SET, ["wait_for", "set"], 4).await;
    let held = holder.start(0, &[]).await;
    until_metrics(&manager, 1, 0).await;
    let (mut waiting, mut events) = (0, Vec::new());
    for (which, pair) in pairs.iter_mut().enumerate() {
        for _ in 0..2 {
            events.push((which, pair.start(0, &[]).await));
            waiting += 1;
            until_metrics(&manager, 1, waiting).await;
        }
    }
    holder.start(1, &[]).await;
    assert_eq!(holder.client.status(held).await, 0);
    for (which, event) in events {
        assert_eq!(pairs[which].client.status(event).await, 0);
    }
    // Those of zoe, the one that holds the slot and the one that ends it, have their holds before the six.
    let earlier_tasks = earlier_tasks + 2;
    order_of_starts(&trace, earlier_tasks + 2 * names.len()).await.split_off(earlier_tasks).join(" ")
}

/// Runs a task that holds the slot for `at_least`. Returns a time for which the task held the slot at most.
async fn hold_slot(manager: &Manager, pair: &mut Pair, at_least: Duration) -> Duration {
    let before = Instant::now();
    let held = pair.start(0, &[]).await;
    until_metrics(manager, 1, 0).await;
    tokio::time::sleep(at_least).await;
    pair.write_flag().await;
    assert_eq!(pair.client.status(held).await, 0);
    until_metrics(manager, 0, 0).await;
    before.elapsed()
}

/// The tenants of `tasks` tasks in the order in which the dispatcher started them, from the uses of slots in a trace.
async fn order_of_starts(trace: &Path, tasks: usize) -> Vec<String> {
    let events = traced(trace, |events| uses_of_slots(events).count() == tasks).await;
    let tenant_of = |args: &Event| args["tenant"].as_str().unwrap().to_owned();
    let starts: BTreeMap<_, _> =
        uses_of_slots(&events).map(|args| (args["hold"].as_u64(), tenant_of(args))).collect();
    starts.into_values().collect()
}

fn uses_of_slots(events: &[Event]) -> impl Iterator<Item = &Event> {
    events.iter().filter(|event| event["cat"] == "slot").map(|event| &event["args"])
}

/// A test for each policy: the order of tenants in the manager's process, and of tenants in processes of their own.
macro_rules! each_policy_starts_the_tasks_of_tenants_in_its_own_order {
    ($($name:ident: $policy:literal $expected:literal)*) => {
        $(#[tokio::test]
        async fn $name() {
            for isolation in [&[][..], &["--isolate", "process"]] {
                assert_eq!(order_under($policy, isolation).await, $expected, "{isolation:?}");
            }
        })*
    };
}

// All orders differ, so that a manager with another policy fails the test.
each_policy_starts_the_tasks_of_tenants_in_its_own_order! {
    order_under_fifo: "fifo" "alice alice bob bob carol carol"
    order_under_round_robin: "round-robin" "alice bob carol alice bob carol"
    order_under_drr: "drr" "alice bob bob carol carol alice"
    order_under_priority: "priority" "carol carol bob bob alice alice"
    order_under_sjf: "sjf" "carol carol alice alice bob bob"
    order_under_edf: "edf" "bob bob carol carol alice alice"
}
