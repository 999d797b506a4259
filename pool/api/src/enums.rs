//! Reasons.

use crate::wire::id_bytes;
use crate::{Malformed, v1};
use fpga_pool_leases::ids::{LeaseId, Term};
use fpga_pool_leases::messages::{CancelCause, Refusal, SlotCause};

/// Conversions between an enum of the wire and one of the protocol, variant by variant.
macro_rules! enums {
    ($wire:ident <=> $own:ident { $($variant:ident),+ $(,)? }) => {
        impl TryFrom<v1::$wire> for $own {
            type Error = Malformed;

            fn try_from(wire: v1::$wire) -> Result<Self, Malformed> {
                match wire {
                    v1::$wire::Unspecified => Err(Malformed::Missing(stringify!($wire))),
                    $(v1::$wire::$variant => Ok(Self::$variant),)+
                }
            }
        }

        impl From<$own> for v1::$wire {
            fn from(own: $own) -> Self {
                match own {
                    $($own::$variant => Self::$variant,)+
                }
            }
        }
    };
}

enums!(SlotCause <=> SlotCause {
    Attached, NotAttached, Released, Closed, Silent, Recalled, YieldOverdue, Misbehaved, Idle, Busy, Drained, Killed,
    NotReaped, LoadFailed, Probed, Unchanged, Used,
});

enums!(CancelCause <=> CancelCause { NoFittingSlot, Full, Quota, Foreign, Incomplete });

/// The reason of a refusal.
pub fn refusal(refused: &v1::Refused) -> Result<Refusal, Malformed> {
    match refused.why() {
        v1::Refusal::Unspecified => Err(Malformed::Missing("Refused.why")),
        v1::Refusal::OldTerm => Ok(Refusal::OldTerm { max_term: Term(refused.max_term) }),
        v1::Refusal::OtherIncarnation => Ok(Refusal::OtherIncarnation),
        v1::Refusal::NoSuchSlot => Ok(Refusal::NoSuchSlot),
        v1::Refusal::NotFree => Ok(Refusal::NotFree),
        v1::Refusal::Ended => Ok(Refusal::Ended),
        v1::Refusal::BadBitstream if refused.no_file => Ok(Refusal::NoFile),
        v1::Refusal::BadBitstream => Ok(Refusal::BadBitstream),
        v1::Refusal::LoadFailed => Ok(Refusal::LoadFailed),
        v1::Refusal::Recalled => Ok(Refusal::Recalled),
    }
}

/// A refusal as it is sent. A broker that does not know [`Refusal::NoFile`] takes it for [`Refusal::BadBitstream`], and asks
/// for the bitstream again as late.
pub fn refused(lease: LeaseId, why: Refusal) -> v1::Refused {
    let (sent, max_term) = match why {
        Refusal::OldTerm { max_term } => (v1::Refusal::OldTerm, max_term),
        Refusal::OtherIncarnation => (v1::Refusal::OtherIncarnation, Term::default()),
        Refusal::NoSuchSlot => (v1::Refusal::NoSuchSlot, Term::default()),
        Refusal::NotFree => (v1::Refusal::NotFree, Term::default()),
        Refusal::Ended => (v1::Refusal::Ended, Term::default()),
        Refusal::BadBitstream | Refusal::NoFile => (v1::Refusal::BadBitstream, Term::default()),
        Refusal::LoadFailed => (v1::Refusal::LoadFailed, Term::default()),
        Refusal::Recalled => (v1::Refusal::Recalled, Term::default()),
    };
    let no_file = why == Refusal::NoFile;
    v1::Refused { lease: id_bytes(lease.0), why: sent.into(), max_term: max_term.0, no_file }
}
