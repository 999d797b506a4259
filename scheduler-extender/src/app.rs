//! The state that all requests share.

use crate::board_pods::BoardPods;
use crate::clock::Clock;
use crate::config::Config;
use crate::expectations::Expectations;
use crate::explain::Explanations;
use crate::index::NodeIndex;
use crate::library::LibraryIndex;
use crate::metrics::Metrics;
use crate::record::Recorder;
use crate::settings::Policy;
use crate::wire::MAX_WORKING_BYTES;
use fpga_core::decide::{AntiHerd, DecisionRules};
use fpga_net::http::Budget;
use prometheus_client::registry::Registry;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// State that all requests share.
#[derive(Debug)]
pub struct App {
    /// Nodes of the cluster.
    pub index: Arc<NodeIndex>,
    /// Usage that is expected of pods placed a moment ago.
    pub expectations: Arc<Expectations>,
    /// Pods that ask for boards, by their nodes.
    pub board_pods: Arc<BoardPods>,
    /// Bitstreams of the cluster.
    pub library: Arc<LibraryIndex>,
    /// Configuration in force, which may change.
    pub config: Arc<Config>,
    /// Latest decisions, for people.
    pub explanations: Explanations,
    /// Writes decisions to a file, with `--record`.
    pub recorder: Option<Recorder>,
    /// Metrics that requests, watches and streams update.
    pub metrics: Arc<Metrics>,
    /// Registry that `/metrics` encodes.
    pub registry: Registry,
    /// Source of the time.
    pub clock: Clock,
    /// Memory budget of all requests for decisions.
    pub budget: Budget,
    /// Memory budget of people's requests, so that they take nothing from decisions.
    pub reading_budget: Budget,
    was_ready: AtomicBool,
    is_ending: AtomicBool,
}

/// The budget of people's requests is the budget of decisions divided by this.
const READING_PART: usize = 2;

impl App {
    /// A service without nodes, with `rules` for good.
    #[must_use]
    pub fn new(rules: DecisionRules, clock: Clock) -> Self {
        Self::with_config(Config::fixed(Policy { rules, ..Policy::default() }), clock)
    }

    /// A service without nodes, with a configuration that may change.
    #[must_use]
    pub fn with_config(config: Config, clock: Clock) -> Self {
        let mut registry = Registry::default();
        config.metrics().register(&mut registry, &config.policy());
        let config = Arc::new(config);
        let metrics = Arc::new(Metrics::register(&mut registry));
        let expectations = Arc::new(Expectations::register(&mut registry));
        let index = Arc::new(NodeIndex::default());
        let explanations = Explanations::default();
        let [budget, reading_budget] = budgets(Budget::default_bytes(None));
        Self {
            index,
            expectations,
            board_pods: Arc::default(),
            library: Arc::default(),
            config,
            explanations,
            recorder: None,
            metrics,
            registry,
            clock,
            budget,
            reading_budget,
            was_ready: AtomicBool::default(),
            is_ending: AtomicBool::default(),
        }
    }

    /// Sets the bytes that all requests for decisions may hold together; people's requests may hold half as many.
    #[must_use]
    pub fn with_bytes_in_flight(mut self, bytes: usize) -> Self {
        [self.budget, self.reading_budget] = budgets(bytes);
        self
    }

    /// Whether the extender knows all nodes and Bitstreams, and with anti-herd all pods, and is not about to end. Once ready, the
    /// extender stays ready when anti-herd is switched on later: a decision by measurements alone is better than
    /// none.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        if self.is_ending() {
            return false;
        }
        let needs_pods = || self.config.policy().rules.anti_herd == AntiHerd::On;
        if self.knows_cluster() && (self.expectations.is_synced() || !needs_pods()) {
            self.was_ready.store(true, Ordering::Relaxed);
        }
        self.was_ready.load(Ordering::Relaxed)
    }

    /// Whether nodes and Bitstreams are known: without them no decision is possible.
    #[must_use]
    pub fn knows_cluster(&self) -> bool {
        self.index.is_synced() && self.library.is_settled()
    }

    /// Makes [`Self::is_ready`] return false, so that no new client is sent here. Requests are still answered.
    pub fn begin_to_end(&self) {
        self.is_ending.store(true, Ordering::Relaxed);
    }

    /// Whether the process is about to end.
    #[must_use]
    pub fn is_ending(&self) -> bool {
        self.is_ending.load(Ordering::Relaxed)
    }
}

/// The budgets of decisions and of people's requests.
fn budgets(bytes: usize) -> [Budget; 2] {
    [Budget::new(bytes), Budget::new(bytes / READING_PART)]
}

/// The longest body that fits into a budget of `budget` bytes together with the memory for its decision.
#[must_use]
pub fn longest_body(budget: usize) -> usize {
    budget.saturating_sub(MAX_WORKING_BYTES)
}
