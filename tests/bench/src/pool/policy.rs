//! The policies for jobs, as the broker's flags and as `fpga-sim` has them.

use super::machines::Machines;
use anyhow::{Context as _, Result};
use clap::Parser;
use fpga_cluster::pool::policy::PoolPolicy;
use fpga_pool::policy_args::PolicyArgs;
use std::fmt;

/// W of the paper, in milliseconds per megabyte.
const WAIT_MS: f64 = 10.0;
/// E of the broker, in bytes.
const FIRST_QUEUE: f64 = 1e6;

/// A policy (P-4).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, clap::ValueEnum)]
pub(super) enum Policy {
    /// First in, first out.
    Fifo,
    /// Shortest job first.
    Sjf,
    /// Resource-aware.
    Ra,
    /// Workload-aware.
    Wa,
    /// Workload-and-resource-aware.
    Wra,
}

/// The broker's flags of its policy.
#[derive(Debug, Parser)]
struct Flags {
    #[command(flatten)]
    policy: PolicyArgs,
}

impl Policy {
    /// The broker's flags. What counts bytes or time is as much smaller or longer as the machines are.
    pub fn flags(self, machines: &Machines) -> Vec<String> {
        let wait_us = WAIT_MS * 1e3 * machines.smaller * machines.stretch();
        let first_queue = (FIRST_QUEUE / machines.smaller).max(1.0);
        [
            "--job-policy".to_owned(),
            self.to_string().to_lowercase(),
            "--locality-wait".to_owned(),
            format!("{wait_us:.0}us"),
            "--first-queue".to_owned(),
            format!("{first_queue:.0}"),
        ]
        .to_vec()
    }

    /// What the broker makes of these flags.
    pub fn of_broker(self, machines: &Machines) -> Result<PoolPolicy> {
        let flags = ["broker".to_owned()].into_iter().chain(self.flags(machines));
        let flags = Flags::try_parse_from(flags).context("the broker would not take the flags")?;
        Ok(flags.policy.settings()?.jobs)
    }
}

impl fmt::Display for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Fifo => "FIFO",
            Self::Sjf => "SJF",
            Self::Ra => "RA",
            Self::Wa => "WA",
            Self::Wra => "WRA",
        })
    }
}
