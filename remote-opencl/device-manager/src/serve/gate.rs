//! Flags about reconfigurations and about what survives a lost connection.

use crate::handshake::Access;
use crate::node_plugin::NodePluginGate;
use anyhow::bail;
use clap::Args;
use fpga_net::duration;
use fpga_session::dispatcher::Dispatcher;
use fpga_session::gate::{Gate, MayReconfigure};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// Flags about reconfigurations.
#[derive(Debug, Clone, Args)]
pub struct GateArgs {
    /// Which sessions may have the device reconfigured: all, none, or those that ask while no other session's
    /// kernels run or wait. A refused session gets `CL_OUT_OF_RESOURCES`; resident bitstreams are free to all.
    #[arg(long, env = "FPGA_MAY_RECONFIGURE", default_value = "always")]
    pub may_reconfigure: MayReconfigure,

    /// Socket of the node plugin (gate/gate.sock in its --run-dir), which then decides instead: it knows which container
    /// has which token and boards, and which bitstreams the library lists. Every session must show a token. A refused
    /// session gets `CL_OUT_OF_RESOURCES`.
    #[arg(long, env = "FPGA_GATE_SOCKET", value_name = "PATH", conflicts_with = "may_reconfigure")]
    pub gate_socket: Option<PathBuf>,

    /// How long a session may wait for the node plugin's permission: for another session's reconfiguration, for pods that
    /// are moved off the board, or for a plugin that does not answer. Then it is refused, and may try later.
    #[arg(long, env = "FPGA_GATE_TIMEOUT", default_value = "30s", value_parser = duration::parse)]
    pub gate_timeout: Duration,

    /// How long a session whose client wants to resume it (FPGA_RECONNECT=resume) is kept after its connection
    /// was lost; 0s: not at all.
    #[arg(long, env = "FPGA_RECONNECT_GRACE", default_value = "10s", value_parser = duration::parse)]
    pub reconnect_grace: Duration,

    /// Accelerators of --bitstreams that the slots hold from the start, by name.
    #[arg(long, env = "FPGA_PRELOAD", value_name = "NAME", value_delimiter = ',', requires = "bitstreams")]
    pub preload: Vec<String>,
}

impl GateArgs {
    /// The gate: the node plugin, or the flag.
    ///
    /// # Errors
    /// The node plugin is to decide about sessions that need no token.
    pub(super) fn open(
        &self,
        access: &Access,
        dispatcher: &Arc<Dispatcher>,
    ) -> anyhow::Result<Arc<dyn Gate>> {
        match (&self.gate_socket, access) {
            (None, _) => Ok(Arc::new(self.may_reconfigure)),
            (Some(socket), Access::Token(_)) => {
                Ok(Arc::new(NodePluginGate::new(socket, self.gate_timeout, Arc::clone(dispatcher))))
            }
            (Some(_), Access::Connection | Access::TokenOrConnection(_)) => {
                bail!(
                    "--gate-socket: the node plugin knows sessions by their tokens; write --tokens, without --tokens-optional"
                )
            }
        }
    }
}
