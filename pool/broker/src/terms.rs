//! Where the term of the active broker is kept.

use fpga_pool_leases::broker::SwapOutcome;
use fpga_pool_leases::ids::Term;
use tokio::sync::mpsc;

/// Where terms are kept.
#[derive(Debug)]
pub enum Terms {
    /// In this process: there is one broker. It learns later terms from managers.
    Memory,
    /// In the Lease.
    Lease(mpsc::Sender<Swap>),
}

/// A term that is to be replaced.
#[derive(Debug, Clone, Copy)]
pub struct Swap {
    /// The term that must be found.
    pub expected: Term,
    /// The new term.
    pub next: Term,
}

impl Terms {
    /// Replaces a term. The outcome comes later, as an `Input::Swapped`, if there is none.
    pub fn swap(&self, expected: Term, next: Term) -> Option<SwapOutcome> {
        match self {
            Self::Memory => Some(SwapOutcome::Done),
            Self::Lease(swaps) => match swaps.try_send(Swap { expected, next }) {
                Ok(()) => None,
                Err(_) => Some(SwapOutcome::Failed),
            },
        }
    }
}
