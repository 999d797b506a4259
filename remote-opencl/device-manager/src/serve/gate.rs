//! Flags about reconfigurations and about what survives a lost connection.

use clap::Args;
use fpga_net::duration;
use fpga_session::gate::MayReconfigure;
use std::time::Duration;

/// Flags about reconfigurations.
#[derive(Debug, Clone, Args)]
pub struct GateArgs {
    /// Which sessions may have the device reconfigured: all, none, or those that ask while no other session's
    /// kernels run or wait. A refused session gets `CL_OUT_OF_RESOURCES`; resident bitstreams are free to all.
    #[arg(long, env = "FPGA_MAY_RECONFIGURE", default_value = "always")]
    pub may_reconfigure: MayReconfigure,

    /// How long a session whose client wants to resume it (FPGA_RECONNECT=resume) is kept after its connection
    /// was lost; 0s: not at all.
    #[arg(long, env = "FPGA_RECONNECT_GRACE", default_value = "10s", value_parser = duration::parse)]
    pub reconnect_grace: Duration,

    /// Accelerators of --bitstreams that the slots hold from the start, by name.
    #[arg(long, env = "FPGA_PRELOAD", value_name = "NAME", value_delimiter = ',', requires = "bitstreams")]
    pub preload: Vec<String>,
}
