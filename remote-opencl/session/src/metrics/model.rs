//! Metrics of a modelled board.

use super::PREFIX;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::Registry;

/// The metrics of a modelled board. Clones share the counters.
#[derive(Debug, Clone, Default)]
pub struct ModelMetrics {
    /// Commands that ended at modelled times.
    pub commands: Counter,
    /// Commands that ended later than modelled, by more than 1 % and 1 ms, and tasks that began too late.
    pub late_commands: Counter,
    /// Launches of kernels that the model doesn't have.
    pub unknown_kernels: Counter,
}

impl ModelMetrics {
    /// Registers the metrics, and the name of the board as `fpga_device_manager_modelled_board_info`.
    pub fn register(registry: &mut Registry, board: &str) -> Self {
        let registry = registry.sub_registry_with_prefix(PREFIX);
        let metrics = Self::default();
        registry.register(
            "modelled_board",
            "The board whose times this manager models: there is no such board here",
            Info::new([("board", board.to_owned())]),
        );
        registry.register(
            "modelled_commands",
            "Commands that ended at modelled times",
            metrics.commands.clone(),
        );
        registry.register(
            "modelled_commands_late",
            "Commands that ended later than modelled; above 1 % of all, the machine is too slow for the model",
            metrics.late_commands.clone(),
        );
        registry.register(
            "modelled_kernels_unknown",
            "Launches of kernels that the model has no time for, which took as long as the runtime",
            metrics.unknown_kernels.clone(),
        );
        metrics
    }
}
