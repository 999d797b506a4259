//! Measurements, which depend on the machine.

use super::sharing::{SPIN, tenants_file};
use crate::harness::{Client, Manager, Ready};
use crate::service::scalar;
use fpga_protocol::v1::kernel_arg::Value;
use std::time::Duration;

/// A session with a kernel that spins for `rounds` rounds.
struct Spinner {
    client: Client,
    queue: u64,
    kernel: u64,
    buffer: u64,
    rounds: u64,
}

impl Spinner {
    async fn new(mut client: Client, rounds: u64) -> Self {
        let Ready { queue, kernel, buffer } = client.ready(SPIN, "spin", 8).await;
        Self { client, queue, kernel, buffer, rounds }
    }

    async fn start(&mut self) -> u64 {
        let args = vec![Value::Buffer(self.buffer), scalar(&self.rounds.to_le_bytes())];
        let launch = self.client.launch(self.queue, self.kernel, args, 1);
        let event = launch.event;
        self.client.flush(vec![launch]).await;
        event
    }
}

/// What each of four tenants has used, and their tasks.
#[derive(Debug, Clone, Copy)]
struct Had {
    device_seconds: [f64; 4],
    tasks: [usize; 4],
    /// Tasks that have arrived: they have ended, run or wait.
    arrived: usize,
}

impl Had {
    fn read(manager: &Manager, keys: [&str; 4]) -> Self {
        let text = manager.metrics_text();
        let value = |name: &str| {
            let line =
                text.lines().find_map(|line| line.strip_prefix("fpga_device_manager_")?.strip_prefix(name));
            line.unwrap_or(" 0")[1..].to_owned()
        };
        let of = |name: &str, key: &str| value(&format!("tenant_{name}_total{{tenant=\"{key}\"}}"));
        let tasks = keys.map(|key| of("tasks", key).parse().unwrap());
        let now: usize =
            ["tasks_waiting", "slots_in_use"].map(|name| value(name).parse::<usize>().unwrap()).iter().sum();
        let device_seconds = keys.map(|key| of("device_seconds", key).parse().unwrap());
        Self { device_seconds, tasks, arrived: tasks.iter().sum::<usize>() + now }
    }

    fn all(&self) -> usize {
        self.tasks.iter().sum()
    }
}

/// Gives four tenants work on one slot at all times. Returns the part of the busy time that each had, over
/// about a thousand tasks.
///
/// The measurement begins when all tasks have arrived, and uses the manager's own counts. So a client that
/// the machine delays cannot leave a tenant without work, which would give its share to the others.
async fn shares_under(policy: &str) -> [f64; 4] {
    const TASKS_EACH: usize = 800;
    /// Up to this number of ended tasks, all tenants have work.
    const LAST_OF_EACH: usize = TASKS_EACH - 20;
    const ENOUGH: usize = 1000;
    /// Weights 1 to 4, and rounds in millions.
    const ROUNDS: [u64; 4] = [8, 1, 4, 2];
    let keys = ["alice", "bob", "carol", "dave"];
    let folder = tempfile::tempdir().unwrap();
    for key in keys {
        std::fs::write(folder.path().join(key), format!("token-of-{key}-0123456789")).unwrap();
    }
    let weights: Vec<_> =
        (1..).zip(keys).map(|(weight, key)| format!("\"{key}\": {{\"weight\": {weight}}}")).collect();
    let text = format!("{{\"policy\": \"{policy}\", \"tenants\": {{{}}}}}", weights.join(", "));
    let (_tenants, path) = tenants_file(&text);
    let tokens = folder.path().to_str().unwrap();
    let manager = Manager::start(&["--slots", "1", "--tenants", path.to_str().unwrap(), "--tokens", tokens]);
    let mut spinners = Vec::new();
    // Two sessions each, so that the next task of one waits while the other's runs.
    for _ in 0..2 {
        for (key, rounds) in keys.iter().zip(ROUNDS) {
            let token = format!("token-of-{key}-0123456789");
            let client = Client::with_token(manager.channel().await, &token).await;
            spinners.push(Spinner::new(client, rounds * 1_000_000).await);
        }
    }
    for round in 1..=TASKS_EACH / 2 {
        for spinner in &mut spinners {
            spinner.start().await;
        }
        // One round after the other; otherwise the order of arrival would be that of the clients' threads.
        while Had::read(&manager, keys).arrived < round * spinners.len() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }
    let from = Had::read(&manager, keys);
    let mut until = from;
    while until.all() - from.all() < ENOUGH {
        tokio::time::sleep(Duration::from_millis(20)).await;
        let now = Had::read(&manager, keys);
        if now.tasks.iter().any(|tasks| *tasks > LAST_OF_EACH) {
            break;
        }
        until = now;
    }
    let tasks = until.all() - from.all();
    assert!(tasks >= 200, "too few tasks to tell: {tasks} after {from:?}");
    let used: [f64; 4] = std::array::from_fn(|at| until.device_seconds[at] - from.device_seconds[at]);
    let sum: f64 = used.iter().sum();
    println!("{policy}: {tasks} tasks, {sum:.2} s of device time");
    used.map(|used| used / sum)
}

#[tokio::test]
#[ignore = "measures the machine: make test-timing"]
async fn shares_of_always_backlogged_tenants_follow_their_weights_under_drr_and_their_task_lengths_under_fifo()
 {
    let drr = shares_under("drr").await;
    let fifo = shares_under("fifo").await;
    println!("due under drr: [0.1, 0.2, 0.3, 0.4]; drr: {drr:.3?}; fifo: {fifo:.3?}");
    for (weight, share) in (1_u32..).zip(drr) {
        let due = f64::from(weight) / 10.0;
        assert!((share - due).abs() < 0.05 * due.max(0.2), "{drr:?}");
    }
    assert!(fifo[0] > 0.4, "first in, first out gives most to the longest tasks: {fifo:?}");
}
