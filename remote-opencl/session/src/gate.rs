//! Decides whether a session may have the device reconfigured to a bitstream (B-8). The gate is a trait, so
//! that the node plugin can decide; without one, a flag does.
//!
//! The gate is asked once per session and bitstream, when a program is made of the bitstream. The dispatch decides
//! when the bitstream is loaded.

use crate::catalogue::Catalogue;
use crate::dispatcher::Dispatcher;
use crate::metrics::Metrics;
use clap::ValueEnum;
use fpga_board::dispatch::Tenant;
use fpga_board::slots::SessionId;
use fpga_core::bitstream::{BitstreamId, Digest};
use fpga_core::gate::{Origin, Others, Residency};
use parking_lot::Mutex;
use std::collections::HashSet;
use std::fmt;
use std::sync::Arc;

/// Most bitstreams per session whose permission is remembered.
const MAX_REMEMBERED: usize = 1024;

/// The gate that is set by a flag. Resident bitstreams are free to all, since nothing is reconfigured for them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum MayReconfigure {
    /// Every session.
    Always,
    /// No session.
    Never,
    /// Sessions that ask while no kernels of other sessions run or wait.
    WhenIdle,
}

/// Decides about reconfigurations.
pub trait Gate: fmt::Debug + Send + Sync {
    /// Decides whether this session may reconfigure this device to this bitstream, now and as long as the
    /// session lives. It must not block; a decision that takes time is [`GateAnswer::Later`].
    fn may_reconfigure(&self, question: &Question) -> GateAnswer;
}

/// A session's wish to reconfigure the device.
#[derive(Debug, Clone)]
pub struct Question {
    /// Session that asks.
    pub session: SessionId,
    /// Tenant of the session.
    pub tenant: Tenant,
    /// Digest of the token that the session has shown; `None` if it was proved otherwise.
    pub token: Option<Digest>,
    /// Id of the device on its node.
    pub device: String,
    /// Bitstream to load.
    pub bitstream: Digest,
    /// Name or digest of the bitstream.
    pub name: BitstreamId,
    /// Where the bitstream comes from.
    pub origin: Origin,
    /// Whether a slot has the bitstream.
    pub residency: Residency,
    /// Whether other sessions use the device.
    pub others: Others,
}

/// A gate's answer.
pub enum GateAnswer {
    /// The decision.
    Now(Verdict),
    /// A function that returns the decision. It runs on a thread of its own and may take long; later messages
    /// of the session wait.
    Later(Box<dyn FnOnce() -> Verdict + Send>),
}

/// A decision.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// The session may.
    Allowed,
    /// The session may not, for this reason, which the client gets.
    Refused(String),
}

/// A refusal with its reason, worded for logs.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("this session may not reconfigure device {device} to bitstream {bitstream}: {reason}")]
pub struct ReconfigurationRefusal {
    device: String,
    bitstream: BitstreamId,
    reason: String,
}

/// A session's access to the gate. Clones share what is remembered.
#[derive(Debug, Clone)]
pub struct Asker {
    /// The gate that decides.
    pub gate: Arc<dyn Gate>,
    /// The dispatcher, which knows the resident bitstreams.
    pub dispatcher: Arc<Dispatcher>,
    /// Names of bitstreams.
    pub catalogue: Arc<Catalogue>,
    /// Counts refusals.
    pub metrics: Metrics,
    /// Id of the device.
    pub device: String,
    /// Session that asks.
    pub session: SessionId,
    /// Tenant of the session.
    pub tenant: Tenant,
    /// Digest of the token that the session has shown; `None` if it was proved otherwise.
    pub token: Option<Digest>,
    /// Bitstreams that the session may have.
    pub allowed: Arc<Mutex<HashSet<Digest>>>,
}

/// The result of asking the gate.
pub enum Asked {
    /// The decision.
    Decided(Result<(), ReconfigurationRefusal>),
    /// A function that waits for the decision.
    Later(Box<dyn FnOnce() -> Result<(), ReconfigurationRefusal> + Send>),
}

impl Gate for MayReconfigure {
    fn may_reconfigure(&self, question: &Question) -> GateAnswer {
        if question.residency == Residency::Resident {
            return GateAnswer::Now(Verdict::Allowed);
        }
        GateAnswer::Now(match (self, question.others) {
            (Self::Always, _) | (Self::WhenIdle, Others::Idle) => Verdict::Allowed,
            (Self::Never, _) => Verdict::Refused("no session may (--may-reconfigure=never)".to_owned()),
            (Self::WhenIdle, Others::Busy) => Verdict::Refused(
                "kernels of other sessions run or wait (--may-reconfigure=when-idle)".to_owned(),
            ),
        })
    }
}

impl Asker {
    /// Asks whether the session may have these bitstreams, which the client has.
    #[must_use]
    pub fn ask(&self, bitstreams: &[Digest]) -> Asked {
        self.ask_for(bitstreams, Origin::Client)
    }

    /// Asks whether the session may have these bitstreams. A file of the node is one, whoever sends it.
    fn ask_for(&self, bitstreams: &[Digest], origin: Origin) -> Asked {
        let mut open: Vec<(Digest, Box<dyn FnOnce() -> Verdict + Send>)> = Vec::new();
        for &bitstream in bitstreams {
            if self.allowed.lock().contains(&bitstream) {
                continue;
            }
            let question = Question {
                session: self.session,
                tenant: self.tenant.clone(),
                token: self.token,
                device: self.device.clone(),
                bitstream,
                name: self.catalogue.id_of(bitstream),
                origin: self.catalogue.origin(bitstream, origin),
                residency: self.dispatcher.residency(bitstream),
                others: self.dispatcher.others(self.session),
            };
            match self.gate.may_reconfigure(&question) {
                GateAnswer::Now(verdict) => {
                    if let Err(refusal) = self.note(bitstream, verdict) {
                        return Asked::Decided(Err(refusal));
                    }
                }
                GateAnswer::Later(later) => open.push((bitstream, later)),
            }
        }
        if open.is_empty() {
            return Asked::Decided(Ok(()));
        }
        let asker = self.clone();
        Asked::Later(Box::new(move || {
            open.into_iter().try_for_each(|(bitstream, later)| asker.note(bitstream, later()))
        }))
    }

    /// Asks whether the session may have these bitstreams, which are built from source, on a thread that may wait.
    ///
    /// # Errors
    /// The refusal.
    pub fn ask_for_source(&self, bitstreams: &[Digest]) -> Result<(), ReconfigurationRefusal> {
        match self.ask_for(bitstreams, Origin::Source) {
            Asked::Decided(decided) => decided,
            Asked::Later(later) => later(),
        }
    }

    fn note(&self, bitstream: Digest, verdict: Verdict) -> Result<(), ReconfigurationRefusal> {
        match verdict {
            Verdict::Allowed => {
                let mut allowed = self.allowed.lock();
                // A session with that many bitstreams asks again.
                if allowed.len() >= MAX_REMEMBERED {
                    allowed.clear();
                }
                allowed.insert(bitstream);
                Ok(())
            }
            Verdict::Refused(reason) => {
                self.metrics.reconfiguration_refusals.inc();
                let name = self.catalogue.id_of(bitstream);
                tracing::info!(
                    session = self.session.0,
                    tenant = self.tenant.as_str(),
                    bitstream = %name,
                    reason,
                    "A reconfiguration was refused"
                );
                Err(ReconfigurationRefusal { device: self.device.clone(), bitstream: name, reason })
            }
        }
    }
}

impl fmt::Debug for GateAnswer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Now(verdict) => f.debug_tuple("Now").field(verdict).finish(),
            Self::Later(_) => f.write_str("Later"),
        }
    }
}

impl fmt::Debug for Asked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Decided(decided) => f.debug_tuple("Decided").field(decided).finish(),
            Self::Later(_) => f.write_str("Later"),
        }
    }
}

#[cfg(test)]
mod tests;
