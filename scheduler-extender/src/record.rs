//! Writes decisions to a file as they are made, for [`replay`](crate::replay) and the simulator: `--record FILE`.
//!
//! A decision passes its inputs to a thread that writes them, and goes on. Decisions that the thread can't keep up
//! with are dropped and counted. The size is bounded: a full file is renamed to `FILE.1` and replaces the previous
//! one. [`fpga_core::record`] defines the lines.

mod writer;

use crate::clock::Clock;
use crate::explain::Names;
use crate::index::Node;
use anyhow::Context as _;
use fpga_core::decide::DecisionRules;
use fpga_core::expected_load::Expected;
use fpga_core::node_facts::NodeFacts;
use fpga_core::record::{Asked, NodeSnapshot, RecordedAnswer};
use fpga_core::redistribution::FreeTime;
use fpga_net::label_texts;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{SyncSender, TrySendError, sync_channel};
use std::thread::JoinHandle;
use tracing::{error, info};
use writer::Writer;

/// Most decisions that wait to be written.
pub const MAX_WAITING: usize = 1024;
/// Most candidates in all waiting decisions together: each keeps a node's state in memory.
pub const MAX_WAITING_CANDIDATES: usize = 250_000;
/// Least value of [`RecordArgs::record_max_bytes`]: a decision over 5,000 nodes with all their states fits into half
/// of it.
const MIN_BYTES: u64 = 64 << 20;

/// The file of the recording, and its size.
#[derive(Debug, Clone, clap::Args)]
#[command(next_help_heading = "Recording")]
pub struct RecordArgs {
    /// Record every decision for FPGA pods with all its inputs, for `replay`; an existing file becomes FILE.1.
    #[arg(long, env = "FPGA_RECORD", value_name = "FILE")]
    pub record: Option<PathBuf>,
    /// Most bytes of FILE and FILE.1 together, at least 64 MiB.
    #[arg(long, env = "FPGA_RECORD_MAX_BYTES", value_name = "BYTES", default_value_t = 512 << 20,
        value_parser = clap::value_parser!(u64).range(MIN_BYTES..))]
    pub record_max_bytes: u64,
}

/// A decision and its inputs.
#[derive(Debug)]
pub struct Item {
    /// The request.
    pub asked: Asked,
    /// The rules in force.
    pub rules: DecisionRules,
    /// Names of the candidates.
    pub names: Names,
    /// The node of each candidate; `None` if the extender does not know it.
    pub nodes: Vec<Option<Kept>>,
    /// The load expected on each candidate; empty if none is expected at all.
    pub expected: Vec<Expected>,
    /// The free time of all boards of the cluster, if load had to be redistributed.
    pub free_time: Option<FreeTime>,
    /// The answer.
    pub answer: RecordedAnswer,
}

/// A node at the time of a decision.
#[derive(Debug, Clone)]
pub struct Kept(pub Arc<Node>);

/// Passes decisions to the thread that writes them.
#[derive(Debug)]
pub struct Recorder {
    sender: Option<SyncSender<Item>>,
    waiting: Arc<AtomicUsize>,
    metrics: RecordMetrics,
    writer: Option<JoinHandle<()>>,
}

/// The metrics of the recording.
#[derive(Debug, Clone, Default)]
pub struct RecordMetrics {
    recording: Gauge,
    written: Counter,
    bytes: Counter,
    rotations: Counter,
    dropped: Family<DroppedLabels, Counter>,
}

/// Why a decision was not recorded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Dropped {
    /// The thread can't keep up with the decisions.
    Busy,
    /// The file can't be written any more.
    Failed,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct DroppedLabels {
    reason: Dropped,
}

impl RecordArgs {
    /// Starts recording, with `--record`.
    ///
    /// # Errors
    /// The file can't be written, or no thread started.
    pub fn start(self, clock: &Clock, registry: &mut Registry) -> anyhow::Result<Option<Recorder>> {
        let Some(path) = self.record else { return Ok(None) };
        let started = Recorder::start(path.clone(), self.record_max_bytes, clock.clone(), registry);
        let recorder = started.with_context(|| {
            format!(
                "can't record to {}; give --record a file in a folder that may be written",
                path.display()
            )
        })?;
        info!(file = %path.display(), max_bytes = self.record_max_bytes, "Recording decisions");
        Ok(Some(recorder))
    }
}

impl RecordMetrics {
    fn register(registry: &mut Registry) -> Self {
        let all = Self::default();
        let registry = registry.sub_registry_with_prefix("fpga_extender");
        let help = "1 while decisions are recorded, 0 after the file could not be written";
        registry.register("recording", help, all.recording.clone());
        let counters = [
            ("recorded_decisions", "Decisions written to the recording", &all.written),
            ("recorded_bytes", "Bytes written to the recording", &all.bytes),
            ("record_rotations", "Times that a full recording was put aside", &all.rotations),
        ];
        for (name, help, counter) in counters {
            registry.register(name, help, counter.clone());
        }
        let help = "Decisions that are missing in the recording";
        registry.register("record_dropped", help, all.dropped.clone());
        all
    }
}

impl Recorder {
    /// Starts recording to the file at `path`.
    ///
    /// # Errors
    /// The file can't be opened, or no thread started.
    pub fn start(path: PathBuf, max_bytes: u64, clock: Clock, registry: &mut Registry) -> io::Result<Self> {
        let metrics = RecordMetrics::register(registry);
        let writer = Writer::open(path, max_bytes, clock, metrics.clone())?;
        let waiting = Arc::new(AtomicUsize::new(0));
        let (sender, receiver) = sync_channel(MAX_WAITING);
        let taken = Arc::clone(&waiting);
        let thread = std::thread::Builder::new().name("record".into()).spawn(move || {
            if let Err(error) = writer.run(&receiver, &taken) {
                error!(%error, "Recording has ended: the file can't be written");
            }
        })?;
        metrics.recording.set(1);
        Ok(Self { sender: Some(sender), waiting, metrics, writer: Some(thread) })
    }

    /// Passes a decision to the thread, or counts it as dropped. Never waits.
    pub fn record(&self, item: Item) {
        let Some(sender) = &self.sender else { return };
        let candidates = item.nodes.len();
        let waiting = self.waiting.fetch_add(candidates, Ordering::Relaxed);
        // A single decision is accepted whatever its size.
        let sent = if waiting > 0 && waiting + candidates > MAX_WAITING_CANDIDATES {
            self.waiting.fetch_sub(candidates, Ordering::Relaxed);
            Err(Dropped::Busy)
        } else {
            sender.try_send(item).map_err(|unsent| {
                self.waiting.fetch_sub(candidates, Ordering::Relaxed);
                match unsent {
                    TrySendError::Full(_) => Dropped::Busy,
                    TrySendError::Disconnected(_) => Dropped::Failed,
                }
            })
        };
        if let Err(reason) = sent {
            self.metrics.dropped.get_or_create(&DroppedLabels { reason }).inc();
        }
    }
}

impl Drop for Recorder {
    /// Writes all waiting decisions.
    fn drop(&mut self) {
        self.sender = None;
        if let Some(writer) = self.writer.take() {
            // The panic handler has reported a panic of the thread; nothing more can be done about it.
            let _ = writer.join();
        }
    }
}

label_texts! {
    Dropped {
        Busy => "busy",
        Failed => "failed",
    }
}

impl NodeSnapshot for Kept {
    fn facts(&self) -> &NodeFacts {
        &self.0.facts
    }

    fn source(&self) -> &'static str {
        self.0.source.name()
    }

    fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fpga_core::record::Verb;
    use fpga_core::requirement::Requirement;
    use fpga_core::units::{MonotonicTime, WallTime};

    /// A recorder whose writer never takes anything.
    fn stuck(room: usize) -> (Recorder, std::sync::mpsc::Receiver<Item>) {
        let (sender, items) = sync_channel(room);
        let (waiting, metrics) = (Arc::default(), RecordMetrics::default());
        (Recorder { sender: Some(sender), waiting, metrics, writer: None }, items)
    }

    fn item(candidates: usize) -> Item {
        let asked = Asked {
            verb: Verb::Filter,
            at: WallTime(1),
            now: MonotonicTime(1),
            namespace: "d".into(),
            pod: "p".into(),
            uid: "u".into(),
            owner: None,
            requirement: Requirement::default(),
        };
        let (names, nodes) = (Names::default(), vec![None; candidates]);
        Item {
            asked,
            rules: DecisionRules::default(),
            names,
            nodes,
            expected: Vec::new(),
            free_time: None,
            answer: RecordedAnswer::Scores(Vec::new()),
        }
    }

    fn dropped(recorder: &Recorder, reason: Dropped) -> u64 {
        recorder.metrics.dropped.get_or_create(&DroppedLabels { reason }).get()
    }

    #[test]
    fn what_can_not_be_written_in_time_is_dropped_and_counted() {
        let (recorder, items) = stuck(2);
        (0..5).for_each(|_| recorder.record(item(1)));
        assert_eq!((items.try_iter().count(), dropped(&recorder, Dropped::Busy)), (2, 3));
        drop(items);
        recorder.record(item(1));
        assert_eq!(dropped(&recorder, Dropped::Failed), 1);
    }

    #[test]
    fn large_decisions_fill_the_queue_earlier_but_one_alone_is_always_taken() {
        let (recorder, items) = stuck(10);
        recorder.record(item(2 * MAX_WAITING_CANDIDATES));
        recorder.record(item(1));
        assert_eq!((items.try_iter().count(), dropped(&recorder, Dropped::Busy)), (1, 1));
    }
}
