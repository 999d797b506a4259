//! The collector's metrics, for Prometheus.

use crate::state::State;
use fpga_net::http::Refusal;
use fpga_net::label_texts;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::{Registry, Unit};
use std::sync::atomic::Ordering;

/// All metrics of the collector; clones share their values.
#[derive(Debug, Clone)]
pub struct Metrics {
    /// Events, by result.
    pub events: Family<EventLabels, Counter>,
    /// Refused requests, by reason.
    pub refused: Family<RefusedLabels, Counter>,
    /// Time to write a group of records to disk.
    pub commit: Histogram,
    /// Number of requests that share one commit.
    pub group: Histogram,
    /// Failed snapshots and commits.
    pub checkpoint_failures: Counter,
    pub snapshots: Counter,
    /// Bytes in the journal.
    pub journal_bytes: Gauge,
    /// Records read from the journal at the start.
    pub recovered_records: Counter,
    /// Bytes at the journal's end that are not a whole record.
    pub torn_bytes: Counter,
    /// Damaged snapshots that were renamed.
    pub damaged_snapshots: Counter,
    /// Writes of the annotation, by outcome.
    pub publications: Family<PublicationLabels, Counter>,
    /// Writes of the node's labels, by outcome.
    labellings: Family<PublicationLabels, Counter>,
    /// Number of items left out of the last annotation to fit its bound.
    pub truncated: Gauge,
    /// Open streams to extender replicas.
    pub streams: Gauge,
    replicas_left_out: Gauge,
    stream_updates: Family<StreamUpdateLabels, Counter>,
    stream_failures: Family<StreamFailureLabels, Counter>,
    refused_connections: Family<ConnectionLabels, Counter>,
    anomalies: Family<AnomalyLabels, Counter>,
    devices: Gauge,
    /// Devices that are out of rotation.
    pub cordoned: Gauge,
    reporters: Gauge,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct EventLabels {
    pub result: EventResult,
}

/// The result of counting an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum EventResult {
    /// The event was counted.
    Accepted,
    /// The event had been counted before.
    Duplicate,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct RefusedLabels {
    pub reason: RefusedReason,
}

/// Reason why a request was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum RefusedReason {
    /// The body is not valid.
    Malformed,
    TooLarge,
    /// The body did not arrive in time or broke off.
    Incomplete,
    /// Too many requests at once, or too little memory for them.
    Busy,
    /// More bytes per second than the limit.
    Rate,
    /// The peer may not report.
    Peer,
    /// Too many reporters or devices.
    NoRoom,
    /// The checkpoint can't be written.
    Storage,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ConnectionLabels {
    reason: Refusal,
}

/// Label of anomalies that the window, the ledger and the time line count.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct AnomalyLabels {
    kind: Anomaly,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Anomaly {
    FromFuture,
    TooOld,
    ProgressSkipped,
    ClockJump,
    GapGivenUp,
}

/// Label of writes of the annotation and of labels.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct PublicationLabels {
    pub outcome: PublicationOutcome,
}

/// The outcome of a write of the annotation or of labels.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum PublicationOutcome {
    /// The write succeeded.
    Written,
    /// The node object is another one now (409).
    Conflict,
    /// The API server asks for later retries (429).
    Throttled,
    /// The API server denies access (401, 403).
    Forbidden,
    /// No such node exists (404).
    NoSuchNode,
    /// The API server refused for another reason (other 4xx).
    Refused,
    /// The API server failed (5xx).
    ServerError,
    /// The API server can't be reached.
    Unreachable,
    /// The state doesn't fit into the annotation.
    DoesNotFit,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct StreamUpdateLabels {
    outcome: StreamOutcome,
}

/// The result of sending a state to a replica.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum StreamOutcome {
    /// The replica's decisions use the state.
    Taken,
    /// The replica has a state at least as new.
    Outdated,
    /// The replica could not decode the state.
    Unreadable,
    /// No answer was requested.
    Unanswered,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct StreamFailureLabels {
    reason: StreamFailure,
}

/// Reason why a stream ended or did not begin.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum StreamFailure {
    /// The replica could not be reached.
    Unreachable,
    /// The TLS handshake failed, for the replica's certificate or the collector's.
    Tls,
    /// The replica did not answer in time.
    Timeout,
    /// The token is missing or wrong.
    Token,
    /// The replica does not know the node, or knows another node of this name.
    Node,
    /// The node has a newer stream.
    Replaced,
    /// The replica ended the stream, is ending, or is not ready.
    Ended,
}

label_texts! {
    EventResult {
        Accepted => "accepted",
        Duplicate => "duplicate",
    }
    RefusedReason {
        Malformed => "malformed",
        TooLarge => "too_large",
        Incomplete => "incomplete",
        Busy => "busy",
        Rate => "rate",
        Peer => "peer",
        NoRoom => "no_room",
        Storage => "storage",
    }
    Anomaly {
        FromFuture => "from_future",
        TooOld => "too_old",
        ProgressSkipped => "progress_skipped",
        ClockJump => "clock_jump",
        GapGivenUp => "gap_given_up",
    }
    StreamOutcome {
        Taken => "taken",
        Outdated => "outdated",
        Unreadable => "unreadable",
        Unanswered => "unanswered",
    }
    StreamFailure {
        Unreachable => "unreachable",
        Tls => "tls",
        Timeout => "timeout",
        Token => "token",
        Node => "node",
        Replaced => "replaced",
        Ended => "ended",
    }
    PublicationOutcome {
        Written => "written",
        Conflict => "conflict",
        Throttled => "throttled",
        Forbidden => "forbidden",
        NoSuchNode => "no_such_node",
        Refused => "refused",
        ServerError => "server_error",
        Unreachable => "unreachable",
        DoesNotFit => "does_not_fit",
    }
}

impl Metrics {
    /// Registers all metrics in `registry`.
    pub fn register(registry: &mut Registry) -> Self {
        let registry = registry.sub_registry_with_prefix("fpga_collector");
        let metrics = Self {
            events: Family::default(),
            refused: Family::default(),
            commit: Histogram::new(exponential_buckets(0.0001, 2.0, 14)),
            group: Histogram::new(exponential_buckets(1.0, 2.0, 9)),
            checkpoint_failures: Counter::default(),
            snapshots: Counter::default(),
            journal_bytes: Gauge::default(),
            recovered_records: Counter::default(),
            torn_bytes: Counter::default(),
            damaged_snapshots: Counter::default(),
            publications: Family::default(),
            labellings: Family::default(),
            truncated: Gauge::default(),
            streams: Gauge::default(),
            replicas_left_out: Gauge::default(),
            stream_updates: Family::default(),
            stream_failures: Family::default(),
            refused_connections: Family::default(),
            anomalies: Family::default(),
            devices: Gauge::default(),
            cordoned: Gauge::default(),
            reporters: Gauge::default(),
        };
        let m = &metrics;
        registry.register("events", "Events by what became of them", m.events.clone());
        registry.register("requests_refused", "Requests refused by reason", m.refused.clone());
        registry.register_with_unit(
            "checkpoint_commit",
            "Time to make a group of records last",
            Unit::Seconds,
            m.commit.clone(),
        );
        registry.register("checkpoint_group_requests", "Requests that shared one commit", m.group.clone());
        registry.register(
            "checkpoint_failures",
            "Commits and snapshots that failed",
            m.checkpoint_failures.clone(),
        );
        registry.register("checkpoint_snapshots", "Snapshots written", m.snapshots.clone());
        registry.register_with_unit(
            "checkpoint_journal",
            "Size of the journal",
            Unit::Bytes,
            m.journal_bytes.clone(),
        );
        registry.register("recovered_records", "Records read at the start", m.recovered_records.clone());
        registry.register_with_unit(
            "recovered_torn",
            "Bytes at the journal's end that were no whole record",
            Unit::Bytes,
            m.torn_bytes.clone(),
        );
        registry.register(
            "recovered_damaged_snapshots",
            "Damaged snapshots put aside",
            m.damaged_snapshots.clone(),
        );
        registry.register("publications", "Writes of the annotation by outcome", m.publications.clone());
        registry.register("labellings", "Writes of the node's labels by outcome", m.labellings.clone());
        registry.register(
            "published_truncated",
            "Things left out of the last annotation to fit its bound",
            m.truncated.clone(),
        );
        registry.register("streams", "Open streams to extender replicas", m.streams.clone());
        let help = "Replicas beyond the 128 of a target that get a stream";
        registry.register("replicas_left_out", help, m.replicas_left_out.clone());
        registry.register(
            "stream_updates",
            "Streamed states by what became of them",
            m.stream_updates.clone(),
        );
        let help = "Streams to extender replicas that ended or did not begin";
        registry.register("stream_failures", help, m.stream_failures.clone());
        let help = "Connections refused, or ended by us before their time";
        registry.register("connections_refused", help, m.refused_connections.clone());
        registry.register("anomalies", "Events and clock steps that needed correction", m.anomalies.clone());
        registry.register("devices", "Devices of the node", m.devices.clone());
        registry.register(
            "devices_cordoned",
            "Devices of the node that people have taken out of rotation",
            m.cordoned.clone(),
        );
        registry.register("reporters", "Reporters that are remembered", m.reporters.clone());
        metrics
    }

    pub fn refuse(&self, reason: RefusedReason) {
        self.refused.get_or_create(&RefusedLabels { reason }).inc();
    }

    pub fn refuse_connection(&self, refusal: Refusal) {
        self.refused_connections.get_or_create(&ConnectionLabels { reason: refusal }).inc();
    }

    pub fn count_events(&self, result: EventResult, events: u64) {
        self.events.get_or_create(&EventLabels { result }).inc_by(events);
    }

    pub fn count_publication(&self, outcome: PublicationOutcome) {
        self.publications.get_or_create(&PublicationLabels { outcome }).inc();
    }

    pub fn count_labelling(&self, outcome: PublicationOutcome) {
        self.labellings.get_or_create(&PublicationLabels { outcome }).inc();
    }

    pub fn count_update(&self, outcome: StreamOutcome) {
        self.stream_updates.get_or_create(&StreamUpdateLabels { outcome }).inc();
    }

    pub fn replicas_left_out(&self, replicas: usize) {
        self.replicas_left_out.set(i64::try_from(replicas).unwrap_or(i64::MAX));
    }

    pub fn count_stream_failure(&self, reason: StreamFailure) {
        self.stream_failures.get_or_create(&StreamFailureLabels { reason }).inc();
    }

    /// Copies the counters and sizes that the state holds.
    pub fn take_over(&self, state: &State) {
        let counters = state.window().counters();
        let anomalies = [
            (Anomaly::FromFuture, counters.from_future),
            (Anomaly::TooOld, counters.too_old),
            (Anomaly::ProgressSkipped, counters.progress_skipped),
            (Anomaly::ClockJump, state.clock_steps()),
            (Anomaly::GapGivenUp, state.ledger().gaps_given_up()),
        ];
        for (kind, count) in anomalies {
            self.anomalies.get_or_create(&AnomalyLabels { kind }).inner().store(count, Ordering::Relaxed);
        }
        let gauge = |count: usize| i64::try_from(count).unwrap_or(i64::MAX);
        self.devices.set(gauge(state.devices()));
        self.reporters.set(gauge(state.ledger().reporters()));
    }
}
