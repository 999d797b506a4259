//! The metrics of the configuration: whether the file is in force, and the weights.

use crate::settings::Policy;
use fpga_core::score::PerSignal;
use fpga_core::units::WallTime;
use fpga_net::label_texts;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::{Registry, Unit};
use std::sync::atomic::AtomicU64;
use std::time::Duration;

/// The result of judging a content of the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Outcome {
    /// The content is in force.
    Taken,
    /// The content is invalid.
    Refused,
}

/// Label of contents by their result.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct OutcomeLabels {
    outcome: Outcome,
}

/// Label of a signal's weight.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct SignalLabels {
    signal: &'static str,
}

/// The metrics of the configuration.
#[derive(Debug, Default)]
pub struct ConfigMetrics {
    valid: Gauge,
    changes: Family<OutcomeLabels, Counter>,
    taken_at: Gauge<f64, AtomicU64>,
    weights: Family<SignalLabels, Gauge<f64, AtomicU64>>,
    /// Events that the API server refused.
    pub event_errors: Counter,
}

impl ConfigMetrics {
    /// Registers all metrics under `fpga_extender_` and sets those of `policy`, which is in force.
    pub fn register(&self, registry: &mut Registry, policy: &Policy) {
        self.valid.set(1);
        self.show(policy);
        let registry = registry.sub_registry_with_prefix("fpga_extender");
        let help = "Whether what the configuration file has now is in force: 0 if it can't be understood";
        registry.register("config_valid", help, self.valid.clone());
        let help = "Contents of the configuration file since the start, by what became of them";
        registry.register("config_changes", help, self.changes.clone());
        let help = "When the configuration file was last taken, since the epoch; 0 if not since the start";
        registry.register_with_unit("config_taken", help, Unit::Seconds, self.taken_at.clone());
        registry.register("weight", "Weights in force", self.weights.clone());
        let help = "Events on the configuration that the API server did not take";
        registry.register("config_event_errors", help, self.event_errors.clone());
    }

    pub(super) fn taken(&self, policy: &Policy, at: WallTime) {
        self.valid.set(1);
        self.changes.get_or_create(&OutcomeLabels { outcome: Outcome::Taken }).inc();
        self.taken_at.set(Duration::from(at - WallTime::UNIX_EPOCH).as_secs_f64());
        self.show(policy);
    }

    pub(super) fn refused(&self) {
        self.valid.set(0);
        self.changes.get_or_create(&OutcomeLabels { outcome: Outcome::Refused }).inc();
    }

    fn show(&self, policy: &Policy) {
        for (signal, weight) in PerSignal::NAMES.zip(policy.rules.weights.per_signal()).into_array() {
            self.weights.get_or_create(&SignalLabels { signal }).set(weight);
        }
    }
}

label_texts! {
    Outcome {
        Taken => "taken",
        Refused => "refused",
    }
}
