//! The faults.

use super::MANAGERS;
use super::cut::Cut;
use super::draw;
use super::job::Jobs;
use anyhow::Result;
use fpga_tests::testbed::pool::PoolBed;
use nix::sys::signal::Signal;
use std::fmt;
use std::time::Duration;

/// What happens to what.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, clap::ValueEnum)]
pub(super) enum Kind {
    /// The broker is killed, and started again after a while.
    BrokerKilled,
    /// A manager is killed, and started again after a while.
    ManagerKilled,
    /// Both.
    BothKilled,
    /// A client is killed.
    ClientKilled,
    /// A client is stopped, and goes on after a while.
    ClientStopped,
    /// The broker is stopped, and goes on after a while.
    BrokerStopped,
    /// A manager is stopped, and goes on after a while. The processes that it has started are not stopped.
    ManagerStopped,
    /// No packet reaches the broker for a while, nor comes from it.
    BrokerCut,
    /// No packet of clients of other nodes reaches a manager for a while, nor comes from it.
    ManagerCut,
}

/// A fault of a round.
#[derive(Debug, Clone, Copy)]
pub(super) struct Fault {
    /// What happens.
    pub kind: Kind,
    /// Time from the start of the round's jobs.
    pub after: Duration,
    /// Time until what was killed is started again, what was stopped goes on, or what was cut off is connected.
    pub lasts: Duration,
    /// The manager.
    manager: u8,
    /// Chooses the client.
    client: f64,
}

impl Kind {
    pub const ALL: [Self; 9] = [
        Self::BrokerKilled,
        Self::ManagerKilled,
        Self::BothKilled,
        Self::ClientKilled,
        Self::ClientStopped,
        Self::BrokerStopped,
        Self::ManagerStopped,
        Self::BrokerCut,
        Self::ManagerCut,
    ];

    /// The longest time until the fault is mended. Clients and connections are silent for 5 s until they count as gone,
    /// and jobs without a client for 10 s.
    fn longest(self) -> Duration {
        Duration::from_secs(match self {
            Self::BrokerKilled | Self::ManagerKilled | Self::BothKilled => 3,
            Self::ClientKilled => 0,
            Self::ClientStopped | Self::ManagerStopped | Self::ManagerCut => 9,
            Self::BrokerStopped | Self::BrokerCut => 14,
        })
    }
}

impl Fault {
    /// The fault of a round: all kinds have their turns.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "between 0 and the number of managers"
    )]
    pub fn draw(kinds: &[Kind], (seed, round): (u64, u64)) -> Self {
        let of = |what: &str| draw(&(seed, round, what));
        let turn = usize::try_from(round).unwrap_or(0) % kinds.len().max(1);
        let kind = kinds.get(turn).copied().unwrap_or(Kind::BrokerKilled);
        Self {
            kind,
            after: Duration::from_millis(50) + Duration::from_millis(1500).mul_f64(of("after")),
            lasts: kind.longest().mul_f64(of("lasts")),
            manager: (of("manager") * f64::from(MANAGERS)) as u8,
            client: of("client"),
        }
    }

    /// Lets the fault happen, and mends it after its time.
    pub async fn happen(self, bed: &mut PoolBed, jobs: &mut Jobs) -> Result<()> {
        let Self { kind, lasts, manager, client, .. } = self;
        let index = usize::from(manager);
        match kind {
            Kind::BrokerKilled => {
                bed.kill_broker().await;
                tokio::time::sleep(lasts).await;
                bed.start_broker().await
            }
            Kind::ManagerKilled => {
                bed.kill_manager(index).await;
                tokio::time::sleep(lasts).await;
                bed.restart_manager(index).await
            }
            Kind::BothKilled => {
                bed.kill_manager(index).await;
                bed.kill_broker().await;
                tokio::time::sleep(lasts).await;
                bed.start_broker().await?;
                bed.restart_manager(index).await
            }
            Kind::ClientKilled => jobs.signal(client, Signal::SIGKILL),
            Kind::ClientStopped => {
                jobs.signal(client, Signal::SIGSTOP)?;
                tokio::time::sleep(lasts).await;
                jobs.signal(client, Signal::SIGCONT)
            }
            Kind::BrokerStopped => {
                bed.signal_broker(Signal::SIGSTOP)?;
                tokio::time::sleep(lasts).await;
                bed.signal_broker(Signal::SIGCONT)
            }
            Kind::ManagerStopped => {
                bed.signal_manager(index, Signal::SIGSTOP)?;
                tokio::time::sleep(lasts).await;
                bed.signal_manager(index, Signal::SIGCONT)
            }
            Kind::BrokerCut => Cut::of(bed.broker_socket()).lasts(lasts).await,
            Kind::ManagerCut => Cut::of(bed.manager_address(manager)).lasts(lasts).await,
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::BrokerKilled => "broker killed",
            Self::ManagerKilled => "manager killed",
            Self::BothKilled => "broker and manager killed",
            Self::ClientKilled => "client killed",
            Self::ClientStopped => "client stopped",
            Self::BrokerStopped => "broker stopped",
            Self::ManagerStopped => "manager stopped",
            Self::BrokerCut => "broker cut off",
            Self::ManagerCut => "manager cut off",
        })
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { kind, after, lasts, .. } = self;
        write!(f, "{kind} after {:.1} s, for {:.1} s", after.as_secs_f64(), lasts.as_secs_f64())
    }
}
