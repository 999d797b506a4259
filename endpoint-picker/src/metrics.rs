//! The metrics at `/metrics`.

use crate::state::{Basis, Census, Choice, Refusal};
use fpga_net::label_texts;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Registry, Unit};
use std::time::Duration;

/// Upper bounds of the buckets of a choice's duration, in seconds: it takes microseconds.
const CHOICE_BUCKETS: [f64; 9] = [2e-6, 5e-6, 1e-5, 2.5e-5, 5e-5, 1e-4, 5e-4, 1e-3, 1e-2];

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct BasisLabels {
    basis: Basis,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RefusalLabels {
    reason: RefusalReason,
}

/// Why a request or a stream was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum RefusalReason {
    /// The functions of the cluster are not known yet.
    NotReady,
    /// No Service is a function of this name.
    UnknownFunction,
    /// No replica is ready, or none among the candidates.
    NoEndpoint,
    /// Too many requests of the function wait.
    TooManyWaiting,
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

label_texts! {
    Basis { Resident => "resident", Load => "load", Queue => "queue", InFlight => "in_flight" }
    RefusalReason {
        NotReady => "not_ready", UnknownFunction => "unknown_function", NoEndpoint => "no_endpoint",
        TooManyWaiting => "too_many_waiting", TooManyHeaders => "too_many_headers", Malformed => "malformed",
        TooManyStreams => "too_many_streams",
    }
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
    /// Errors of the watches on the API server.
    pub watch_errors: Counter,
    /// States of nodes that could not be read.
    pub unreadable_states: Counter,
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
            watch_errors: Counter::default(),
            unreadable_states: Counter::default(),
        };
        let registry = registry.sub_registry_with_prefix("fpga_picker");
        registry.register(
            "choices",
            "Requests with an endpoint, by what the choice is based on: in_flight means that nothing fresh is known",
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
        registry.register("watch_errors", "Errors of the watches", metrics.watch_errors.clone());
        registry.register(
            "unreadable_states",
            "States of nodes that could not be read",
            metrics.unreadable_states.clone(),
        );
        metrics
    }

    /// Counts a choice, or that there was none.
    pub fn picked(&self, chosen: &Result<Choice, Refusal>, took: Duration) {
        match chosen {
            Ok(choice) => {
                self.choices.get_or_create(&BasisLabels { basis: choice.basis }).inc();
                self.choice_seconds.observe(took.as_secs_f64());
            }
            Err(error) => self.refused(match error {
                Refusal::NotReady => RefusalReason::NotReady,
                Refusal::UnknownFunction => RefusalReason::UnknownFunction,
                Refusal::NoEndpoint => RefusalReason::NoEndpoint,
                Refusal::TooManyWaiting => RefusalReason::TooManyWaiting,
            }),
        }
    }

    /// Counts a refusal.
    pub fn refused(&self, reason: RefusalReason) {
        self.refusals.get_or_create(&RefusalLabels { reason }).inc();
    }

    /// Takes the numbers of the moment.
    pub fn take_census(&self, census: Census) {
        let set = |gauge: &Gauge, value: usize| gauge.set(i64::try_from(value).unwrap_or(i64::MAX));
        set(&self.in_flight, census.in_flight);
        set(&self.functions, census.functions);
        set(&self.replicas, census.replicas);
        let boards = |board| self.boards.get_or_create_owned(&KnowledgeLabels { board });
        set(&boards(KnowledgeLabel::Fresh), census.fresh_boards);
        set(&boards(KnowledgeLabel::Unknown), census.unknown_boards);
    }
}
