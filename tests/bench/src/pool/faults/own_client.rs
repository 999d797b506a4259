//! The client in this program: its bundle and its group run beside the round's programs, and no fault kills it.

use super::super::text::Text;
use super::group::Span;
use super::job::home;
use super::{bundle, group};
use anyhow::{Context as _, Result};
use fpga_acc::{Config, Pool};
use fpga_tests::testbed::pool::{PoolBed, TENANTS};
use std::time::Instant;
use tokio::sync::watch;
use tokio::task::JoinSet;

/// The tenant of the bundle and the group.
pub(super) const TENANT: &str = TENANTS[0];

/// The client's work in a round. Dropping it gives the work up.
pub(super) struct OwnClient {
    pool: Pool,
    running: JoinSet<Result<Ended>>,
    mended: watch::Sender<bool>,
}

/// What has ended, with the right outputs.
#[derive(Debug)]
enum Ended {
    /// The bundle, and when each of its jobs ended.
    Bundle(Vec<Instant>),
    /// The group, and when each of its actions was in it.
    Group(Vec<Span>),
}

/// When all parts of the client's work were done, each with the right output.
#[derive(Debug, Default)]
pub(super) struct Ends {
    /// The jobs of the bundle.
    pub bundle: Vec<Instant>,
    /// The actions of the group.
    pub actions: Vec<Span>,
}

impl OwnClient {
    /// Connects to the pool as a process of a drawn node, and opens the group and the bundle.
    pub fn start(bed: &PoolBed, text: &Text, drawn: (u64, u64)) -> Result<Self> {
        let config = Config {
            token_file: Some(bed.token_file(TENANT)),
            node: Some(home(&(drawn, "node of the own client"))),
            ..Config::of(&bed.broker_address())?
        };
        let (pool, mut running) = (Pool::connect(config)?, JoinSet::new());
        let (mended, is_mended) = watch::channel(false);
        let group = group::run(pool.clone(), text.clone(), drawn, is_mended);
        running.spawn(async move { group.await.map(Ended::Group) });
        let bundle = bundle::run(pool.clone(), text.clone(), drawn);
        running.spawn(async move { bundle.await.map(Ended::Bundle) });
        Ok(Self { pool, running, mended })
    }

    /// Says that the fault is mended: the group submits no more actions.
    pub fn mended(&self) {
        self.mended.send_replace(true);
    }

    /// Waits for the ends of the bundle and the group, and closes the connection.
    pub async fn ends(mut self) -> Result<Ends> {
        let mut ends = Ends::default();
        while let Some(ended) = self.running.join_next().await {
            match ended?? {
                Ended::Bundle(jobs) => ends.bundle = jobs,
                Ended::Group(actions) => ends.actions = actions,
            }
        }
        // Closing blocks: it waits for the last message to the broker.
        let pool = self.pool;
        tokio::task::spawn_blocking(move || pool.close()).await.context("the pool does not close")?;
        Ok(ends)
    }
}
