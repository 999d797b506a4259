//! Whether a session may have the device reconfigured to a bitstream (B-8): a question with an interface, so that a
//! registry can answer it. Alone a flag does.
//!
//! It is asked once per session and bitstream, when a program is made of it, and not at all where the bitstream is
//! resident: nothing has to be reconfigured then. When the load happens is the dispatch's business.

use crate::catalogue::Catalogue;
use crate::dispatcher::{Dispatcher, SessionId, Tenant};
use crate::humane;
use crate::metrics::Metrics;
use crate::objects::lock;
use clap::{Args, ValueEnum};
use fpga_core::bitstream::{BitstreamId, Digest};
use std::collections::HashSet;
use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Most bitstreams of a session of which the answer is remembered.
const MAX_REMEMBERED: usize = 1024;

/// The flags.
#[derive(Debug, Clone, Args)]
pub struct GateArgs {
    /// Which sessions may have the device reconfigured: all, none, or those that come while no other session's kernels
    /// run or wait. Who may not gets `CL_OUT_OF_RESOURCES`, and what is resident is free to all.
    #[arg(long, env = "FPGA_MAY_RECONFIGURE", default_value = "always")]
    pub may_reconfigure: MayReconfigure,

    /// How long a session whose client wants it so (FPGA_RECONNECT=resume) is kept after its connection was lost; 0s:
    /// not at all.
    #[arg(long, env = "FPGA_RECONNECT_GRACE", default_value = "10s", value_parser = humane::duration)]
    pub reconnect_grace: Duration,

    /// Accelerators of --bitstreams that the slots hold from the start, by name.
    #[arg(long, env = "FPGA_PRELOAD", value_name = "NAME", value_delimiter = ',', requires = "bitstreams")]
    pub preload: Vec<String>,
}

/// Who answers where no registry does: a flag.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum MayReconfigure {
    /// Every session.
    Always,
    /// No session.
    Never,
    /// A session that comes while no kernels of others run or wait.
    WhenIdle,
}

/// Answers the question.
pub trait Gate: fmt::Debug + Send + Sync {
    /// May this session reconfigure this device to this bitstream, now and for as long as the session lives? Must not
    /// block: what takes time is [`Answer::Later`].
    fn may_reconfigure(&self, question: &Question) -> Answer;
}

/// What is asked.
#[derive(Debug, Clone)]
pub struct Question {
    /// Who asks.
    pub session: SessionId,
    /// Whose session that is.
    pub tenant: Tenant,
    /// Id of the device on its node.
    pub device: String,
    /// What is to be loaded.
    pub bitstream: Digest,
    /// What that is called.
    pub name: BitstreamId,
    /// What other sessions do on the device.
    pub others: Others,
}

/// What other sessions do on the device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Others {
    /// Nothing that needs a slot.
    Idle,
    /// Their kernels run or wait.
    Busy,
}

/// What the one who answers says.
pub enum Answer {
    /// This.
    Now(Verdict),
    /// What this says, which is called on a thread of its own and may take its time. What the session sends meanwhile
    /// waits.
    Later(Box<dyn FnOnce() -> Verdict + Send>),
}

/// Yes, or no and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// It may.
    Allowed,
    /// It may not, for that reason, which the client is told.
    Refused(String),
}

/// Why a session may not have what it wants; in words for whoever reads logs.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("this session may not reconfigure device {device} to bitstream {bitstream}: {reason}")]
pub struct Refusal {
    device: String,
    bitstream: BitstreamId,
    reason: String,
}

/// A session's way to the gate. Clones remember together.
#[derive(Debug, Clone)]
pub struct Asker {
    /// Who answers.
    pub gate: Arc<dyn Gate>,
    /// Who knows what is resident.
    pub dispatcher: Arc<Dispatcher>,
    /// Names of bitstreams.
    pub catalogue: Arc<Catalogue>,
    /// Counts refusals.
    pub metrics: Metrics,
    /// Id of the device.
    pub device: String,
    /// Who asks.
    pub session: SessionId,
    /// For whom.
    pub tenant: Tenant,
    /// What it may.
    pub allowed: Arc<Mutex<HashSet<Digest>>>,
}

/// What came of asking.
pub enum Asked {
    /// The answer.
    Decided(Result<(), Refusal>),
    /// It comes of this, which may take its time.
    Later(Box<dyn FnOnce() -> Result<(), Refusal> + Send>),
}

impl Gate for MayReconfigure {
    fn may_reconfigure(&self, question: &Question) -> Answer {
        Answer::Now(match (self, question.others) {
            (Self::Always, _) | (Self::WhenIdle, Others::Idle) => Verdict::Allowed,
            (Self::Never, _) => Verdict::Refused("no session may (--may-reconfigure=never)".to_owned()),
            (Self::WhenIdle, Others::Busy) => Verdict::Refused(
                "kernels of other sessions run or wait (--may-reconfigure=when-idle)".to_owned(),
            ),
        })
    }
}

impl Asker {
    /// Whether the session may have these bitstreams.
    #[must_use]
    pub fn ask(&self, bitstreams: &[Digest]) -> Asked {
        let mut open: Vec<(Digest, Box<dyn FnOnce() -> Verdict + Send>)> = Vec::new();
        for &bitstream in bitstreams {
            if lock(&self.allowed).contains(&bitstream) || self.dispatcher.is_resident(bitstream) {
                continue;
            }
            let question = Question {
                session: self.session,
                tenant: self.tenant.clone(),
                device: self.device.clone(),
                bitstream,
                name: self.catalogue.id_of(bitstream),
                others: self.dispatcher.others(self.session),
            };
            match self.gate.may_reconfigure(&question) {
                Answer::Now(verdict) => {
                    if let Err(refusal) = self.note(bitstream, verdict) {
                        return Asked::Decided(Err(refusal));
                    }
                }
                Answer::Later(later) => open.push((bitstream, later)),
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

    /// The same, on a thread that may wait.
    ///
    /// # Errors
    /// The refusal.
    pub fn ask_and_wait(&self, bitstreams: &[Digest]) -> Result<(), Refusal> {
        match self.ask(bitstreams) {
            Asked::Decided(decided) => decided,
            Asked::Later(later) => later(),
        }
    }

    fn note(&self, bitstream: Digest, verdict: Verdict) -> Result<(), Refusal> {
        match verdict {
            Verdict::Allowed => {
                let mut allowed = lock(&self.allowed);
                // Who has so many is asked again.
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
                Err(Refusal { device: self.device.clone(), bitstream: name, reason })
            }
        }
    }
}

impl fmt::Debug for Answer {
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
