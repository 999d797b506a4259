//! `kubectl fpga pool`: the slots that boards lend to the pool, who has them, and which jobs wait, and why.

pub(crate) mod broker;
pub(crate) mod json;
mod tables;

use crate::connection::ConnectArgs;
use crate::output::{Colours, Format, print, print_json};
use anyhow::Result;
use broker::BrokerArgs;
use clap::ValueEnum;
use std::process::ExitCode;
use std::time::{SystemTime, UNIX_EPOCH};

/// Examples in the output of `--help`.
pub const EXAMPLES: &str = "Examples:
  kubectl fpga pool                       # how many slots there are of each kind, and who uses them
  kubectl fpga pool jobs                  # the waiting jobs, and why each of them waits
  kubectl fpga pool slots                 # every lent slot, and the job that has it
  kubectl fpga pool groups                # goals, and what is forecast of them
  kubectl fpga pool jobs -n team-a -o json
  kubectl fpga pool --broker http://127.0.0.1:9480          # a broker outside of a cluster";

/// Arguments of `pool`.
#[derive(Debug, clap::Args)]
pub struct PoolArgs {
    /// What is shown.
    #[arg(value_enum, value_name = "WHAT", default_value_t = What::Classes)]
    what: What,
    /// Format of the output. `json` has all, whatever WHAT is.
    #[arg(short, long, env = "FPGA_OUTPUT", value_enum, default_value_t = Format::Table)]
    output: Format,
    #[command(flatten)]
    broker: BrokerArgs,
}

/// What is shown of the pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum What {
    /// Kinds of slots: how many there are, and how many are in use.
    Classes,
    /// Waiting jobs, the oldest first, and why each waits.
    Jobs,
    /// Lent slots with the leases that they have.
    #[value(alias = "leases")]
    Slots,
    /// Namespaces with their waiting jobs and held slots.
    Tenants,
    /// Groups with their goals, and what is forecast of them.
    Groups,
}

impl PoolArgs {
    /// Prints what the active broker knows.
    ///
    /// # Errors
    /// There is no broker, none is active, or none believes the user.
    pub async fn run(&self, connect: &ConnectArgs) -> Result<ExitCode> {
        let mut pool = self.broker.look(connect).await?;
        if let Some(namespace) = &connect.namespace {
            pool.jobs.retain(|job| job.tenant == *namespace);
            pool.tenants.retain(|tenant| tenant.tenant == *namespace);
            pool.groups.retain(|group| group.tenant == *namespace);
        }
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let now_ms = u64::try_from(now.as_millis()).unwrap_or(u64::MAX);
        if self.output == Format::Json {
            print_json(&json::pool(&pool))?;
            return Ok(ExitCode::SUCCESS);
        }
        let (table, nothing) = match self.what {
            What::Classes => {
                (tables::classes(&pool), "No board lends a slot: see pool.slots of the chart.\n")
            }
            What::Jobs => (tables::jobs(&pool, now_ms), "No job waits.\n"),
            What::Slots => (tables::slots(&pool), "No board lends a slot: see pool.slots of the chart.\n"),
            What::Tenants => (tables::tenants(&pool), "No namespace has used the pool.\n"),
            What::Groups => (tables::groups(&pool), "No group is open.\n"),
        };
        print(&if table.is_empty() { nothing.to_owned() } else { table.render(Colours::of_stdout()) })?;
        if self.what == What::Jobs && pool.waiting > pool.jobs.len() as u64 && connect.namespace.is_none() {
            print(&format!("{} more jobs wait.\n", pool.waiting - pool.jobs.len() as u64))?;
        }
        Ok(ExitCode::SUCCESS)
    }
}
