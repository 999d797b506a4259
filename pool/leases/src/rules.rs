//! The rules of the protocol that a test can switch off, to see that the exploration finds the breach.
//!
//! Without the feature `exploration` every rule holds, and the question costs nothing.

/// A rule of the protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Rule {
    /// Manager: only a free slot is reserved.
    OnlyFreeSlotsAreReserved,
    /// Manager: a slot is free only when the last task has ended.
    DrainWaitsForTasks,
    /// Manager: a slot is free after a kill only when the process is reaped.
    KillIsAwaited,
    /// Manager: a restarted manager reaps the children of its former life before it registers.
    ReapBeforeRegister,
    /// Manager: only the holder's steps run.
    OnlyTheHolderRuns,
    /// Manager: a silent client loses its slot.
    SilenceDrains,
    /// Manager: a client that does not yield in time loses its slot.
    YieldHasADeadline,
    /// Manager and broker: an older term gives way to a later one.
    LaterTermsWin,
    /// Broker: a slot counts as taken until its manager says otherwise.
    TakenUntilReported,
    /// Broker: a report counts on the manager's current connection only.
    CurrentConnectionOnly,
    /// Broker: a Want of a former connection of the client changes nothing.
    LaterAttemptsWin,
    /// Broker: a lease is offered when it is prepared.
    OfferAfterPrepared,
    /// Client: results of former leases are dropped.
    FormerResultsAreDropped,
    /// Client: every Want carries the job's ticket.
    WantsCarryTheTicket,
    /// Client: a job that loses its lease wants another one.
    LostLeaseIsWantedAgain,
}

/// The rules that hold.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct Rules {
    /// A bit for each rule that is switched off.
    #[cfg(feature = "exploration")]
    off: u32,
}

impl Rules {
    /// All rules hold.
    pub const ALL: Self = Self {
        #[cfg(feature = "exploration")]
        off: 0,
    };

    /// All rules but these.
    #[cfg(feature = "exploration")]
    #[must_use]
    pub fn without(rules: &[Rule]) -> Self {
        Self { off: rules.iter().fold(0, |off, rule| off | 1 << *rule as u32) }
    }

    /// Whether a rule holds.
    #[must_use]
    pub(crate) fn hold(self, rule: Rule) -> bool {
        #[cfg(feature = "exploration")]
        return self.off & (1 << rule as u32) == 0;
        #[cfg(not(feature = "exploration"))]
        {
            let _ = rule;
            true
        }
    }
}
