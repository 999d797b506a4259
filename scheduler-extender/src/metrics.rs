//! The metrics at `/metrics`. kube-scheduler ignores failed prioritize calls silently; the metrics count them.

use crate::index::{NodeIndex, Source};
use crate::ports::metrics::PortMetrics;
use crate::wire::Mode;
use fpga_core::matching::Rejection;
use fpga_core::staleness::{Freshness, Knowledge};
use fpga_core::units::{Millis, MonotonicTime};
use fpga_net::label_texts;
use fpga_node_stream::server::receiver::StreamRefusal;
use prometheus_client::encoding::{EncodeLabelSet, EncodeLabelValue, LabelValueEncoder};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Registry, Unit};
use std::fmt::{self, Write as _};
use std::sync::atomic::AtomicU64;
use std::time::Duration;

/// Upper bounds of the latency buckets in seconds: a good answer takes less than a millisecond, kube-scheduler gives
/// up after 5 s by default.
const LATENCY_BUCKETS: [f64; 13] =
    [0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.5, 1.0, 5.0];

/// A verb of the extender protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Verb {
    /// Decides which nodes fit the pod.
    Filter,
    /// Scores the nodes.
    Prioritize,
    /// Narrows the nodes on which evicting pods would help.
    Preempt,
}

/// Kind of an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ErrorKind {
    /// The request can't be decoded.
    Malformed,
    /// The body is longer than allowed.
    TooLarge,
    /// The body did not arrive whole or in time.
    Interrupted,
    /// Other requests used the whole memory budget of requests.
    Busy,
    /// The nodes of the cluster are not known yet.
    NotSynced,
    /// The pod's requirement can't be understood.
    Requirement,
    /// The answer can't be encoded.
    Answer,
    /// The client closed the connection before the answer.
    Abandoned,
}

/// Outcome of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Outcome {
    /// An answer with status 200.
    Answered,
    /// An answer with another status.
    Refused(ErrorKind),
}

/// Form of the candidates in the request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ModeLabel {
    /// The form [`Mode`].
    Of(Mode),
    /// The request could not be decoded, or its verb has no such form.
    Unknown,
}

/// Labels of a request.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct RequestLabels {
    verb: Verb,
    mode: ModeLabel,
    outcome: Outcome,
}

/// Labels of an error.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct ErrorLabels {
    verb: Verb,
    kind: ErrorKind,
}

/// Label of a rejection.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct RejectionLabels {
    reason: RejectionLabel,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct RejectionLabel(Rejection);

/// Label of a node count.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct FreshnessLabels {
    state: FreshnessLabel,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct FreshnessLabel(Freshness);

/// Origin of a state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum StateSource {
    /// The annotation.
    Annotation,
    /// The collector's own stream.
    Stream,
}

/// Label of values per origin.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct SourceLabels {
    source: StateSource,
}

/// A percentile of the ages of states.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum AgeRank {
    /// The median.
    Median,
    /// The 99th percentile.
    Percentile99,
    /// The greatest age.
    Oldest,
}

/// Labels of an age.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct AgeLabels {
    source: StateSource,
    rank: AgeRank,
}

/// Label of a refused stream.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct StreamRefusalLabels {
    reason: StreamRefusal,
}

/// All metrics of the extender.
#[derive(Debug)]
pub struct Metrics {
    requests: Family<RequestLabels, Histogram, fn() -> Histogram>,
    errors: Family<ErrorLabels, Counter>,
    rejections: Family<RejectionLabels, Counter>,
    nodes: Family<FreshnessLabels, Gauge>,
    /// Counters by [`StateSource`], outside a family since streams bring ten thousand states a second.
    states: [Counter; 2],
    nodes_by_source: Family<SourceLabels, Gauge>,
    state_age: Family<AgeLabels, Gauge<f64, AtomicU64>>,
    refused_streams: Family<StreamRefusalLabels, Counter>,
    /// Streams of collectors that are open.
    pub streams: Gauge,
    /// Filter calls with one node: kube-scheduler reused an older decision, or the cluster is that small.
    pub single_node_filters: Counter,
    /// Annotations that could not be read.
    pub unreadable_states: Counter,
    /// Annotations that were not newer than the one before.
    pub outdated_states: Counter,
    /// Failures of the watch on nodes.
    pub watch_errors: Counter,
    /// Failures of the watches on Bitstreams and namespaces.
    pub library_watch_errors: Counter,
    /// Writes of the library's version to a node.
    pub library_versions_written: Counter,
    /// Metrics of the ports, for events before there is a request.
    pub ports: PortMetrics,
}

impl Metrics {
    /// Registers all under `fpga_extender_`.
    pub fn register(registry: &mut Registry) -> Self {
        let registry = registry.sub_registry_with_prefix("fpga_extender");
        let states = Family::<SourceLabels, Counter>::default();
        let states_of = |source| states.get_or_create(&SourceLabels { source }).clone();
        let metrics = Self {
            requests: Family::new_with_constructor(|| Histogram::new(LATENCY_BUCKETS)),
            errors: Family::default(),
            rejections: Family::default(),
            nodes: Family::default(),
            states: [StateSource::Annotation, StateSource::Stream].map(states_of),
            nodes_by_source: Family::default(),
            state_age: Family::default(),
            refused_streams: Family::default(),
            streams: Gauge::default(),
            single_node_filters: Counter::default(),
            unreadable_states: Counter::default(),
            outdated_states: Counter::default(),
            watch_errors: Counter::default(),
            library_watch_errors: Counter::default(),
            library_versions_written: Counter::default(),
            ports: PortMetrics::register(registry),
        };
        let help = "Time from a request's headers to its answer";
        registry.register_with_unit("request_duration", help, Unit::Seconds, metrics.requests.clone());
        registry.register("errors", "Requests without a proper answer", metrics.errors.clone());
        registry.register("rejections", "Nodes rejected by filter", metrics.rejections.clone());
        registry.register("nodes", "Nodes known, by what their state is worth", metrics.nodes.clone());
        registry.register("states", "Node states taken, by what brought them", states);
        let help = "Nodes with a state, by what brought it";
        registry.register("nodes_by_source", help, metrics.nodes_by_source.clone());
        let help = "Age of the states that decisions see, by what brought them";
        registry.register_with_unit("state_age", help, Unit::Seconds, metrics.state_age.clone());
        registry.register("streams", "Open streams of collectors", metrics.streams.clone());
        let help = "Streams of collectors refused or ended";
        registry.register("streams_refused", help, metrics.refused_streams.clone());
        let counters = [
            ("single_node_filters", "Filter calls with one node", &metrics.single_node_filters),
            ("unreadable_states", "Node states that can't be read", &metrics.unreadable_states),
            ("outdated_states", "Node states ignored for a newer one", &metrics.outdated_states),
            ("watch_errors", "Failures of the watch on nodes", &metrics.watch_errors),
            (
                "library_watch_errors",
                "Failures of the watches on Bitstreams and namespaces",
                &metrics.library_watch_errors,
            ),
            (
                "library_versions_written",
                "Writes of the library's version to a node, so that rejected pods are tried again",
                &metrics.library_versions_written,
            ),
        ];
        for (name, help, counter) in counters {
            registry.register(name, help, counter.clone());
        }
        metrics
    }

    /// Counts a request and its duration.
    pub fn answered(&self, verb: Verb, mode: ModeLabel, outcome: Outcome, took: Duration) {
        self.requests.get_or_create(&RequestLabels { verb, mode, outcome }).observe(took.as_secs_f64());
    }

    /// Counts an error.
    pub fn error(&self, verb: Verb, kind: ErrorKind) {
        self.errors.get_or_create(&ErrorLabels { verb, kind }).inc();
    }

    /// Counts the rejections of a filter.
    pub fn filtered(&self, verdicts: &[Result<(), Rejection>]) {
        let mut counts = [0_u64; Rejection::ALL.len()];
        for rejection in verdicts.iter().filter_map(|verdict| verdict.err()) {
            counts[rejection as usize] += 1;
        }
        for (reason, count) in Rejection::ALL.into_iter().zip(counts).filter(|(_, count)| *count > 0) {
            let labels = RejectionLabels { reason: RejectionLabel(reason) };
            self.rejections.get_or_create(&labels).inc_by(count);
        }
    }

    /// Counts a state that was taken into the index.
    pub fn took_state(&self, source: StateSource) {
        self.states[source as usize].inc();
    }

    /// Counts a stream that was refused or ended.
    pub fn refused_stream(&self, reason: StreamRefusal) {
        self.refused_streams.get_or_create(&StreamRefusalLabels { reason }).inc();
    }

    /// Sets the gauges of nodes and ages; to be called before the metrics are encoded.
    pub fn count_nodes(&self, index: &NodeIndex, now: MonotonicTime) {
        let kinds = [Freshness::Fresh, Freshness::Stale, Freshness::Absent, Freshness::Unreadable];
        let mut counts = [0_i64; 4];
        let mut ages = [Vec::new(), Vec::new()];
        for node in index.read().values() {
            counts[node.facts.knowledge.freshness(now) as usize] += 1;
            if let Knowledge::Known(received) = &node.facts.knowledge {
                let source =
                    if node.source == Source::Stream { StateSource::Stream } else { StateSource::Annotation };
                ages[source as usize].push(received.age(now));
            }
        }
        for (source, mut ages) in [StateSource::Annotation, StateSource::Stream].into_iter().zip(ages) {
            ages.sort_unstable();
            self.show_ages(source, &ages);
        }
        for kind in kinds {
            let labels = FreshnessLabels { state: FreshnessLabel(kind) };
            self.nodes.get_or_create(&labels).set(counts[kind as usize]);
        }
    }
}

impl Metrics {
    /// Sets the gauges of `source` from `ages`, which are sorted.
    fn show_ages(&self, source: StateSource, ages: &[Millis]) {
        let nodes = i64::try_from(ages.len()).unwrap_or(i64::MAX);
        self.nodes_by_source.get_or_create(&SourceLabels { source }).set(nodes);
        for (rank, of_hundred) in [(AgeRank::Median, 50), (AgeRank::Percentile99, 99), (AgeRank::Oldest, 100)]
        {
            let labels = AgeLabels { source, rank };
            let place = (ages.len() * of_hundred).div_ceil(100).saturating_sub(1);
            match ages.get(place) {
                Some(age) => {
                    let age = Duration::from(*age).as_secs_f64();
                    self.state_age.get_or_create(&labels).set(age);
                }
                None => {
                    self.state_age.remove(&labels);
                }
            }
        }
    }
}

impl Verb {
    /// The verb's name in paths and labels.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Filter => "filter",
            Self::Prioritize => "prioritize",
            Self::Preempt => "preempt",
        }
    }
}

impl EncodeLabelValue for Verb {
    fn encode(&self, encoder: &mut LabelValueEncoder<'_>) -> Result<(), fmt::Error> {
        encoder.write_str(self.name())
    }
}

label_texts! {
    StateSource {
        Annotation => "annotation",
        Stream => "stream",
    }
    AgeRank {
        Median => "median",
        Percentile99 => "p99",
        Oldest => "oldest",
    }
    ErrorKind {
        Malformed => "malformed",
        TooLarge => "too_large",
        Busy => "busy",
        Interrupted => "interrupted",
        NotSynced => "not_synced",
        Requirement => "requirement",
        Answer => "answer",
        Abandoned => "abandoned",
    }
}

impl EncodeLabelValue for Outcome {
    fn encode(&self, encoder: &mut LabelValueEncoder<'_>) -> Result<(), fmt::Error> {
        match self {
            Self::Answered => encoder.write_str("answered"),
            Self::Refused(kind) => kind.encode(encoder),
        }
    }
}

impl EncodeLabelValue for ModeLabel {
    fn encode(&self, encoder: &mut LabelValueEncoder<'_>) -> Result<(), fmt::Error> {
        encoder.write_str(match self {
            Self::Of(Mode::Names) => "names",
            Self::Of(Mode::Full) => "full",
            Self::Unknown => "unknown",
        })
    }
}

impl EncodeLabelValue for RejectionLabel {
    fn encode(&self, encoder: &mut LabelValueEncoder<'_>) -> Result<(), fmt::Error> {
        encoder.write_str(match self.0 {
            Rejection::UnknownNode => "unknown_node",
            Rejection::Unlabelled => "unlabelled",
            Rejection::NoDevice => "no_device",
            Rejection::TooFewBoards => "too_few_boards",
            Rejection::Utilization => "utilization",
            Rejection::NoInstance => "no_instance",
            Rejection::LoadedElsewhere => "loaded_elsewhere",
            Rejection::NotRedistributable => "not_redistributable",
            Rejection::PluginLate => "plugin_late",
            Rejection::KeptOff => "kept_off",
            Rejection::MovedOff => "moved_off",
            Rejection::Vendor => "vendor",
            Rejection::Board => "board",
            Rejection::Shell => "shell",
            Rejection::Platform => "platform",
            Rejection::Slots => "slots",
            Rejection::InvalidBitstream => "invalid_bitstream",
            Rejection::NotLoaded => "not_loaded",
            Rejection::Unhealthy => "unhealthy",
            Rejection::Cordoned => "cordoned",
            Rejection::NoSingleDevice => "no_single_device",
            Rejection::NotFresh => "not_fresh",
            Rejection::Misunderstood => "misunderstood",
        })
    }
}

impl EncodeLabelValue for FreshnessLabel {
    fn encode(&self, encoder: &mut LabelValueEncoder<'_>) -> Result<(), fmt::Error> {
        encoder.write_str(self.0.name())
    }
}
