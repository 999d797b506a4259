//! The programs of users and operators.

use clap::{Command, CommandFactory as _};

/// The command lines of all programs, in the order of the chapters.
pub fn all() -> Vec<Command> {
    [
        fpga_scheduler_extender::args::Args::command().name("fpga-scheduler-extender"),
        fpga_collector::Args::command().name("fpga-collector"),
        fpga_node_plugin::Args::command().name("fpga-node-plugin"),
        fpga_device_manager::args::Args::command().name("fpga-device-manager"),
        fpga_endpoint_picker::args::Args::command().name("fpga-endpoint-picker"),
        fpga_registry::args::Args::command().name("fpga-registry"),
        fpga_pool::args::Args::command().name("fpga-pool"),
        fpga_acc::cli::Args::command().name("fpga-acc"),
        kubectl_fpga::args::Args::command().name("kubectl-fpga").bin_name("kubectl fpga"),
        fpga_sim::args::Args::command().name("fpga-sim"),
    ]
    .into_iter()
    .map(|mut command| {
        command.build();
        command
    })
    .collect()
}

/// The command and those below it that its help shows, each with the words by which it is called.
pub fn with_subcommands(command: &Command) -> Vec<(String, &Command)> {
    let name = command.get_bin_name().unwrap_or_else(|| command.get_name());
    let mut all = vec![(name.to_owned(), command)];
    for sub in command.get_subcommands().filter(|sub| !sub.is_hide_set() && sub.get_name() != "help") {
        all.extend(with_subcommands(sub));
    }
    all
}
