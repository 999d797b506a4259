//! The metrics at `/metrics`.

use crate::state::{Census, Choice, Refusal, StateSource};
use fpga_net::http;
use fpga_net::label_texts;
use fpga_node_stream::server::receiver::{StreamRefusal, Taken};
use fpga_picker_api::FunctionView;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Registry, Unit};
use std::sync::atomic::AtomicU64;
use std::time::Duration;

/// Upper bounds of the buckets of a choice's duration, in seconds: it takes microseconds.
const CHOICE_BUCKETS: [f64; 9] = [2e-6, 5e-6, 1e-5, 2.5e-5, 5e-5, 1e-4, 5e-4, 1e-3, 1e-2];

/// Most functions with metrics of their own: those with the most demand.
pub const MOST_FUNCTIONS: usize = 1_000;

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct BasisLabels {
    basis: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RefusalLabels {
    reason: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct FunctionLabels {
    namespace: String,
    function: String,
}

/// Why a request or a stream was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum RefusalReason {
    /// The decision gives no endpoint.
    Decision(Refusal),
    /// Too many headers.
    TooManyHeaders,
    /// The messages make no sense.
    Malformed,
    /// Too many streams at once.
    TooManyStreams,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct KnowledgeLabels {
    board: KnowledgeLabel,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum KnowledgeLabel {
    Fresh,
    Unknown,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct SourceLabels {
    source: StateSource,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct NodeStreamLabels {
    reason: StreamRefusal,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct NodeConnectionLabels {
    reason: http::Refusal,
}

impl RefusalReason {
    const fn name(self) -> &'static str {
        match self {
            Self::Decision(refusal) => refusal.name(),
            Self::TooManyHeaders => "too_many_headers",
            Self::Malformed => "malformed",
            Self::TooManyStreams => "too_many_streams",
        }
    }
}

label_texts! {
    StateSource { Annotation => "annotation", Stream => "stream" }
    KnowledgeLabel { Fresh => "fresh", Unknown => "unknown" }
}

/// The metrics of the picker.
#[derive(Debug, Clone)]
pub struct Metrics {
    choices: Family<BasisLabels, Counter>,
    refusals: Family<RefusalLabels, Counter>,
    choice_seconds: Histogram,
    /// Requests that another endpoint than the first served.
    pub served_elsewhere: Counter,
    /// Streams of gateways that are open.
    pub streams: Gauge,
    in_flight: Gauge,
    functions: Gauge,
    replicas: Gauge,
    boards: Family<KnowledgeLabels, Gauge>,
    per_second: Family<FunctionLabels, Gauge<f64, AtomicU64>>,
    mean_in_flight: Family<FunctionLabels, Gauge<f64, AtomicU64>>,
    recent_in_flight: Family<FunctionLabels, Gauge<f64, AtomicU64>>,
    recent_seen: Family<FunctionLabels, Gauge<f64, AtomicU64>>,
    requests: Family<FunctionLabels, Counter>,
    recommended_replicas: Family<FunctionLabels, Gauge>,
    functions_left_out: Gauge,
    /// Errors of the watches on the API server.
    pub watch_errors: Counter,
    /// States of nodes that could not be read.
    pub unreadable_states: Counter,
    states: Family<SourceLabels, Counter>,
    outdated_states: Family<SourceLabels, Counter>,
    nodes: Family<SourceLabels, Gauge>,
    /// Streams of nodes that are open.
    pub node_streams: Gauge,
    refused_node_streams: Family<NodeStreamLabels, Counter>,
    refused_node_connections: Family<NodeConnectionLabels, Counter>,
}

impl Metrics {
    /// The metrics, which `registry` encodes.
    pub fn register(registry: &mut Registry) -> Self {
        let metrics = Self {
            choices: Family::default(),
            refusals: Family::default(),
            choice_seconds: Histogram::new(CHOICE_BUCKETS),
            served_elsewhere: Counter::default(),
            streams: Gauge::default(),
            in_flight: Gauge::default(),
            functions: Gauge::default(),
            replicas: Gauge::default(),
            boards: Family::default(),
            per_second: Family::default(),
            mean_in_flight: Family::default(),
            recent_in_flight: Family::default(),
            recent_seen: Family::default(),
            requests: Family::default(),
            recommended_replicas: Family::default(),
            functions_left_out: Gauge::default(),
            watch_errors: Counter::default(),
            unreadable_states: Counter::default(),
            states: Family::default(),
            outdated_states: Family::default(),
            nodes: Family::default(),
            node_streams: Gauge::default(),
            refused_node_streams: Family::default(),
            refused_node_connections: Family::default(),
        };
        let registry = registry.sub_registry_with_prefix("fpga_picker");
        registry.register(
            "choices",
            "Requests with an endpoint, by what the choice is based on: in_flight means that nothing fresh is known of the replica's boards, cordoned that they are out of rotation",
            metrics.choices.clone(),
        );
        registry.register("refusals", "Requests without an endpoint", metrics.refusals.clone());
        registry.register_with_unit(
            "choice",
            "Time to choose an endpoint",
            Unit::Seconds,
            metrics.choice_seconds.clone(),
        );
        registry.register(
            "served_elsewhere",
            "Requests that another endpoint than the first choice served",
            metrics.served_elsewhere.clone(),
        );
        registry.register("streams", "Open streams of gateways", metrics.streams.clone());
        registry.register("requests_in_flight", "Requests in flight", metrics.in_flight.clone());
        registry.register("functions", "Functions that are known", metrics.functions.clone());
        registry.register("replicas", "Replicas that take requests", metrics.replicas.clone());
        registry.register(
            "boards",
            "Boards of replicas, by knowledge of their slots",
            metrics.boards.clone(),
        );
        registry.register(
            "function_requests_per_second",
            "Requests of a function per second, averaged over about 5 minutes",
            metrics.per_second.clone(),
        );
        registry.register(
            "function_requests_in_flight",
            "Requests of a function in flight, averaged over about 5 minutes",
            metrics.mean_in_flight.clone(),
        );
        registry.register(
            "function_recent_requests_in_flight",
            "Requests of a function in flight, averaged over about 15 seconds; after a picker died, the sum over all pickers is \
             too low for as long",
            metrics.recent_in_flight.clone(),
        );
        registry.register(
            "function_recent_seen",
            "Part of the about 15 seconds for which the picker has looked: averages of several pickers are added by it",
            metrics.recent_seen.clone(),
        );
        registry.register(
            "function_requests",
            "Requests of a function since the picker knows it",
            metrics.requests.clone(),
        );
        registry.register(
            "function_recommended_replicas",
            "Replicas that a function should have by its demand, of a budget of --replicas-per-function for each",
            metrics.recommended_replicas.clone(),
        );
        registry.register(
            "functions_left_out",
            "Functions without metrics of their own, since others have more demand",
            metrics.functions_left_out.clone(),
        );
        registry.register("watch_errors", "Errors of the watches", metrics.watch_errors.clone());
        registry.register(
            "unreadable_states",
            "States of nodes that could not be read",
            metrics.unreadable_states.clone(),
        );
        registry.register("states", "States of nodes that were taken", metrics.states.clone());
        registry.register(
            "outdated_states",
            "States of nodes that were not newer than what was known",
            metrics.outdated_states.clone(),
        );
        registry.register("nodes", "Nodes with a fresh state, by its way", metrics.nodes.clone());
        registry.register("node_streams", "Open streams of nodes", metrics.node_streams.clone());
        registry.register(
            "node_streams_refused",
            "Streams of nodes that were refused, or ended before their time",
            metrics.refused_node_streams.clone(),
        );
        registry.register(
            "node_connections_refused",
            "Connections for streams of nodes that were refused, or ended before their time",
            metrics.refused_node_connections.clone(),
        );
        metrics
    }

    /// Counts a choice, or that there was none.
    pub fn picked(&self, chosen: &Result<Choice, Refusal>, took: Duration) {
        match chosen {
            Ok(choice) => {
                self.choices.get_or_create(&BasisLabels { basis: choice.basis.name() }).inc();
                self.choice_seconds.observe(took.as_secs_f64());
            }
            Err(refusal) => self.refused(RefusalReason::Decision(*refusal)),
        }
    }

    /// Counts a refusal.
    pub fn refused(&self, reason: RefusalReason) {
        self.refusals.get_or_create(&RefusalLabels { reason: reason.name() }).inc();
    }

    /// Counts a state of a node.
    pub fn took_state(&self, source: StateSource, taken: Taken) {
        let counters = match taken {
            Taken::Yes => &self.states,
            Taken::Outdated => &self.outdated_states,
        };
        counters.get_or_create(&SourceLabels { source }).inc();
    }

    /// Counts a stream of a node that was refused, or ended before its time.
    pub fn refused_node_stream(&self, reason: StreamRefusal) {
        self.refused_node_streams.get_or_create(&NodeStreamLabels { reason }).inc();
    }

    /// Counts a connection for streams of nodes that was refused, or ended before its time.
    pub fn refused_node_connection(&self, reason: http::Refusal) {
        self.refused_node_connections.get_or_create(&NodeConnectionLabels { reason }).inc();
    }

    /// Takes the numbers of the moment.
    pub fn take_census(&self, census: Census) {
        let set = |gauge: &Gauge, value: usize| gauge.set(i64::try_from(value).unwrap_or(i64::MAX));
        set(&self.in_flight, census.in_flight);
        set(&self.functions, census.functions);
        set(&self.replicas, census.replicas);
        let nodes = |source| self.nodes.get_or_create_owned(&SourceLabels { source });
        set(&nodes(StateSource::Annotation), census.nodes_by_annotation);
        set(&nodes(StateSource::Stream), census.nodes_by_stream);
        let boards = |board| self.boards.get_or_create_owned(&KnowledgeLabels { board });
        set(&boards(KnowledgeLabel::Fresh), census.fresh_boards);
        set(&boards(KnowledgeLabel::Unknown), census.unknown_boards);
    }

    /// Takes the demand for functions, of which at most [`MOST_FUNCTIONS`] have metrics.
    pub fn take_functions(&self, mut functions: Vec<FunctionView>) {
        let left_out = functions.len().saturating_sub(MOST_FUNCTIONS);
        self.functions_left_out.set(i64::try_from(left_out).unwrap_or(i64::MAX));
        if left_out > 0 {
            functions.sort_by(|a, b| b.mean_in_flight.total_cmp(&a.mean_in_flight));
            functions.truncate(MOST_FUNCTIONS);
        }
        self.per_second.clear();
        self.mean_in_flight.clear();
        self.recent_in_flight.clear();
        self.recent_seen.clear();
        self.requests.clear();
        self.recommended_replicas.clear();
        for function in functions {
            let labels = FunctionLabels { namespace: function.namespace, function: function.name };
            self.per_second.get_or_create(&labels).set(function.per_second);
            self.mean_in_flight.get_or_create(&labels).set(function.mean_in_flight);
            self.recent_in_flight.get_or_create(&labels).set(function.recent_in_flight);
            self.recent_seen.get_or_create(&labels).set(function.recent_seen);
            self.requests.get_or_create(&labels).inc_by(function.requests);
            self.recommended_replicas.get_or_create(&labels).set(function.recommended_replicas.into());
        }
    }
}
