//! The metrics at `/metrics`.

use fpga_cluster::moves::Held;
use fpga_net::label_texts;
use fpga_registry_api::MoveOutcome;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OutcomeLabels {
    outcome: OutcomeLabel,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct HeldLabels {
    reason: &'static str,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum OutcomeLabel {
    Suggested,
    Begun,
    Raised,
    Evicted,
    Stuck,
    Ended,
    GivenUp,
}

impl OutcomeLabel {
    const ALL: [Self; 7] =
        [Self::Suggested, Self::Begun, Self::Raised, Self::Evicted, Self::Stuck, Self::Ended, Self::GivenUp];
}

label_texts! {
    OutcomeLabel {
        Suggested => "suggested",
        Begun => "begun",
        Raised => "raised",
        Evicted => "evicted",
        Stuck => "stuck",
        Ended => "ended",
        GivenUp => "given_up",
    }
}

/// The metrics of the registry.
#[derive(Debug, Clone, Default)]
pub struct Metrics {
    /// 1 on the replica that leads.
    pub leads: Gauge,
    /// Errors of the watches on the API server.
    pub watch_errors: Counter,
    /// Statuses of Bitstreams that were written.
    pub status_writes: Counter,
    /// Writes that the API server refused or did not answer.
    pub write_errors: Counter,
    moves: Family<OutcomeLabels, Counter>,
    held: Family<HeldLabels, Gauge>,
}

impl Metrics {
    /// Metrics that `registry` shows.
    pub fn register(registry: &mut Registry) -> Self {
        let metrics = Self::default();
        let Self { leads, watch_errors, status_writes, write_errors, moves, held } = &metrics;
        registry.register("leads", "1 on the replica that leads, 0 on others", leads.clone());
        registry.register("watch_errors", "Errors of the watches on the API server", watch_errors.clone());
        registry.register("status_writes", "Statuses of Bitstreams that were written", status_writes.clone());
        registry.register(
            "write_errors",
            "Writes that the API server refused or did not answer",
            write_errors.clone(),
        );
        registry.register("moves", "Moves by what became of them", moves.clone());
        // The first of an outcome is an increase, too, which Prometheus sees only from a sample with 0 on.
        for outcome in OutcomeLabel::ALL {
            drop(moves.get_or_create(&OutcomeLabels { outcome }));
        }
        registry.register(
            "held_moves",
            "Pods that had better be elsewhere and stay for now, by the reason",
            held.clone(),
        );
        metrics
    }

    /// Counts a move that has come to this.
    pub fn moved(&self, outcome: &MoveOutcome) {
        let outcome = match outcome {
            MoveOutcome::Suggested => OutcomeLabel::Suggested,
            MoveOutcome::Begun => OutcomeLabel::Begun,
            MoveOutcome::Raised => OutcomeLabel::Raised,
            MoveOutcome::Evicted => OutcomeLabel::Evicted,
            MoveOutcome::Stuck(_) => OutcomeLabel::Stuck,
            MoveOutcome::Ended => OutcomeLabel::Ended,
            MoveOutcome::GivenUp(_) => OutcomeLabel::GivenUp,
        };
        self.moves.get_or_create(&OutcomeLabels { outcome }).inc();
    }

    /// Shows why pods stay.
    pub fn held<'h>(&self, held: impl Iterator<Item = &'h Held>) {
        self.held.clear();
        for held in held {
            self.held.get_or_create(&HeldLabels { reason: held.name() }).inc();
        }
    }
}
