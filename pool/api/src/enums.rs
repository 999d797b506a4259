//! Reasons.

use crate::{Malformed, v1};
use fpga_pool_leases::ids::Term;
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

enums!(CancelCause <=> CancelCause { NoFittingSlot, Full, Quota, Foreign });

/// The reason of a refusal, with the highest term that the manager has accepted.
pub fn refusal(why: v1::Refusal, max_term: Term) -> Result<Refusal, Malformed> {
    match why {
        v1::Refusal::Unspecified => Err(Malformed::Missing("Refused.why")),
        v1::Refusal::OldTerm => Ok(Refusal::OldTerm { max_term }),
        v1::Refusal::OtherIncarnation => Ok(Refusal::OtherIncarnation),
        v1::Refusal::NoSuchSlot => Ok(Refusal::NoSuchSlot),
        v1::Refusal::NotFree => Ok(Refusal::NotFree),
        v1::Refusal::Ended => Ok(Refusal::Ended),
        v1::Refusal::BadBitstream => Ok(Refusal::BadBitstream),
        v1::Refusal::LoadFailed => Ok(Refusal::LoadFailed),
        v1::Refusal::Recalled => Ok(Refusal::Recalled),
    }
}

/// The parts of a refusal as they are sent.
pub fn refusal_parts(why: Refusal) -> (v1::Refusal, Term) {
    let none = Term::default();
    match why {
        Refusal::OldTerm { max_term } => (v1::Refusal::OldTerm, max_term),
        Refusal::OtherIncarnation => (v1::Refusal::OtherIncarnation, none),
        Refusal::NoSuchSlot => (v1::Refusal::NoSuchSlot, none),
        Refusal::NotFree => (v1::Refusal::NotFree, none),
        Refusal::Ended => (v1::Refusal::Ended, none),
        Refusal::BadBitstream => (v1::Refusal::BadBitstream, none),
        Refusal::LoadFailed => (v1::Refusal::LoadFailed, none),
        Refusal::Recalled => (v1::Refusal::Recalled, none),
    }
}
