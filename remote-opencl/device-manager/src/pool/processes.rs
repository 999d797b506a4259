//! The processes of leased sessions, as the lender needs them.

use fpga_board::slots::SessionId;

/// Processes that each serve one leased session.
pub trait LeaseProcesses: std::fmt::Debug + Send + Sync {
    /// Whether the session's process lives, or has not been waited for.
    fn has_process(&self, session: SessionId) -> bool;
    /// Ends the session's process, whatever it runs. [`Self::has_process`] tells when it has ended.
    fn end_process(&self, session: SessionId);
}
