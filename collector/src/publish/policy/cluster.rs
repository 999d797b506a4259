//! Simulation of 5,000 busy nodes: the number of writes of all policies together, with the intervals that an extender
//! demands and without.

use super::*;
use fpga_core::node_state::{Buckets, LeftOut};
use fpga_core::units::WallTime;

const NODES: usize = 5_000;
const ALONE: Intervals = Intervals { min: Duration::from_secs(10), heartbeat: Duration::from_secs(60) };
/// Maximum time between two looks of a publisher.
const POLL_INTERVAL: Duration = Duration::from_secs(5);

struct Cluster {
    begin: Instant,
    nodes: Vec<(Policy, Duration)>,
    random: u64,
}

impl Cluster {
    /// A cluster whose nodes all made their first write within one minute.
    fn start(intervals: Intervals) -> Self {
        let mut cluster = Self { begin: Instant::now(), nodes: Vec::new(), random: 1 };
        for index in 0..NODES {
            let at = Duration::from_millis(index as u64 * 12);
            let mut policy = Policy::new(intervals);
            policy.wrote(state(at), cluster.begin + at, cluster.jitter());
            cluster.nodes.push((policy, at));
        }
        cluster
    }

    fn jitter(&mut self) -> f64 {
        self.random =
            self.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.random >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// Changes the intervals of all nodes at `at`.
    fn set_intervals(&mut self, intervals: Intervals, at: Duration) {
        for index in 0..NODES {
            let jitter = self.jitter();
            let (policy, next) = &mut self.nodes[index];
            policy.set_intervals(intervals, self.begin + at, jitter);
            *next = at;
        }
    }

    /// Number of writes in each second from `from` to `until`.
    fn run(&mut self, from: Duration, until: Duration) -> Vec<usize> {
        let seconds = usize::try_from((until - from).as_secs()).unwrap();
        let mut writes = vec![0; seconds];
        for index in 0..NODES {
            while self.nodes[index].1 < until {
                let jitter = self.jitter();
                let (policy, next) = &mut self.nodes[index];
                let now = *next;
                *next += match policy.decide(&state(now), self.begin + now) {
                    Decision::Wait(wait) => wait.clamp(Duration::from_millis(200), POLL_INTERVAL),
                    Decision::Write(_) => {
                        policy.wrote(state(now), self.begin + now, jitter);
                        if let Some(second) = now.checked_sub(from) {
                            writes[usize::try_from(second.as_secs()).unwrap()] += 1;
                        }
                        Duration::from_millis(200)
                    }
                };
            }
        }
        writes
    }
}

/// The state of a busy node, which differs at each time.
fn state(at: Duration) -> NodeState {
    let measured_at = WallTime::UNIX_EPOCH + at.into();
    NodeState {
        boot: 1,
        seq: 1,
        heartbeat: Millis(60_000),
        measured_at,
        window: Millis(300_000),
        usage: Millis(100_000 + measured_at.0 * 7_919 % 400_000),
        reconfiguration: Millis(measured_at.0 * 104_729 % 60_000),
        devices: Vec::new(),
        bitstreams: Vec::new(),
        buckets: Buckets { bucket: Millis(10_000), ..Buckets::default() },
        plugin: None,
        cordons: std::collections::BTreeMap::new(),
        left_out: LeftOut::default(),
    }
}

fn mean(writes: &[usize]) -> f64 {
    writes.iter().sum::<usize>() as f64 / writes.len() as f64
}

#[test]
fn five_thousand_busy_nodes_write_twenty_times_a_second_with_streams_and_never_as_a_wall() {
    let seconds = Duration::from_secs;
    let dictated = Intervals::dictated(pacing::write_interval(NODES).into());
    // All nodes start within a minute, as after an installation, and then find the extender.
    let mut cluster = Cluster::start(ALONE);
    cluster.set_intervals(dictated, seconds(60));
    cluster.run(seconds(60), seconds(120));
    for (from, until) in [(120, 420), (420, 1_200)] {
        let writes = cluster.run(seconds(from), seconds(until));
        let most = *writes.iter().max().unwrap();
        println!("with streams, {from} to {until} s: {:.1} a second, at most {most}", mean(&writes));
        assert!((10.0..=20.0).contains(&mean(&writes)), "{}", mean(&writes));
        assert!(most <= 60, "{most} writes in one second");
    }

    // All replicas are lost at once: the nodes write by their own intervals, but not all at the same moment.
    cluster.set_intervals(ALONE, seconds(1_200));
    let writes = cluster.run(seconds(1_200), seconds(1_300));
    let most = *writes.iter().max().unwrap();
    println!("without: {:.1} a second, at most {most}", mean(&writes));
    let stated = (NODES as f64 / 15.0)..=(NODES as f64 / 10.0);
    assert!(stated.contains(&mean(&writes)), "{}", mean(&writes));
    assert!(most <= NODES / 5, "{most} writes in one second: they come as a wall");

    // The replicas are back: each node writes once to declare the longer heartbeat, no more often than before.
    cluster.set_intervals(dictated, seconds(1_300));
    let writes = cluster.run(seconds(1_300), seconds(1_360));
    let most = *writes.iter().max().unwrap();
    println!("while streams begin: {:.1} a second, at most {most}", mean(&writes));
    assert!(most <= NODES / 10, "{most} writes in one second: they come as a wall");
    let writes = cluster.run(seconds(1_360), seconds(2_000));
    assert!(mean(&writes) <= 20.0, "{}", mean(&writes));
}
