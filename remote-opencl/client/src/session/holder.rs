//! Who has a session: a program with its OpenCL calls, or the holder of a lease of a lent slot.

use std::fmt;

/// Who has a session.
pub(crate) enum Holder {
    /// A program.
    Program,
    /// The holder of a lease, which is told what happens to the lease.
    Lease(Box<dyn Fn(Notice) + Send + Sync>),
}

/// What happens to a lease.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Notice {
    /// The manager wants the slot back: what was flushed before runs to its end, nothing else starts.
    Yield,
    /// The manager is gone, or has ended the session; the text says why.
    Lost(String),
}

impl Holder {
    /// Whether commands may be sent without a flush, where that is faster. The tasks of a lease are the steps of a
    /// job, so that only the holder says where one ends.
    pub(crate) fn sends_early(&self) -> bool {
        matches!(self, Self::Program)
    }

    /// Passes a Yield on. Returns false if the session has no lease.
    pub(crate) fn takes_yield(&self) -> bool {
        match self {
            Self::Program => false,
            Self::Lease(notify) => {
                notify(Notice::Yield);
                true
            }
        }
    }

    /// Tells that the session is lost.
    pub(crate) fn lost(&self, why: &str) {
        if let Self::Lease(notify) = self {
            notify(Notice::Lost(why.to_owned()));
        }
    }
}

impl fmt::Debug for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Program => "Program",
            Self::Lease(_) => "Lease",
        })
    }
}
