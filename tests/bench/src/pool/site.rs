//! The live machines: a broker, managers with modelled boards, and the pool as the processes of each node see it.

use super::machines::Machines;
use super::priority;
use crate::modelled::Late;
use anyhow::Result;
use fpga_acc::{Config, Pool};
use fpga_tests::testbed::pool::{PoolBed, Sharing, node_name};
use fpga_tests::testbed::wait;
use std::time::Duration;

const START: Duration = Duration::from_secs(60);

/// The live machines.
#[derive(Debug)]
pub(super) struct Site {
    bed: PoolBed,
    machines: Machines,
}

impl Site {
    /// Starts the broker and the managers.
    pub async fn start(machines: &Machines, broker_flags: Vec<String>) -> Result<Self> {
        let mut bed = PoolBed::start_for(machines.nodes, broker_flags).await?;
        let (slots, model) = (machines.slots, Some(machines.model()));
        for _ in 0..machines.boards {
            bed.start_manager_with(&Sharing { slots, lent: slots, model: model.clone() }).await?;
        }
        let site = Self { bed, machines: *machines };
        site.is_ready().await?;
        priority::raise(site.bed.manager_processes())?;
        Ok(site)
    }

    /// Replaces the broker by one with other flags, which knows of no job.
    pub async fn replace_broker(&mut self, flags: Vec<String>) -> Result<()> {
        self.bed.replace_broker(flags).await?;
        self.is_ready().await
    }

    /// The pool as the processes of each node see it.
    pub fn homes(&self) -> Result<Vec<Pool>> {
        let home = |home| {
            let config = Config {
                token_file: Some(self.bed.home_token(home)),
                node: Some(node_name(home)),
                ..Config::of(&self.bed.broker_address())?
            };
            Ok(Pool::connect(config)?)
        };
        (0..self.machines.nodes).map(home).collect()
    }

    /// How many commands ended later than modelled, since the managers' start.
    pub async fn late(&self) -> Result<Late> {
        Late::of(async |metric| self.bed.metric_of_managers(&format!("fpga_device_manager_{metric}")).await)
            .await
    }

    /// Waits until the broker grants, and knows all slots.
    async fn is_ready(&self) -> Result<()> {
        let slots = f64::from(self.machines.boards * self.machines.slots);
        wait::until_within("all slots at the broker", START, async || {
            self.bed.check_running()?;
            let is_active = self.bed.metric("fpga_pool_active").await? == 1.0;
            let is_there = self.bed.metric("fpga_pool_slots").await? == slots;
            Ok((is_active && is_there).then_some(()))
        })
        .await
    }
}
