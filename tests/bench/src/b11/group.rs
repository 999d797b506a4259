//! A cluster with functions of one kind, and the loads that they get there.

use super::client::{Answered, Client, Requests};
use super::paper::{self, Load, UseCase};
use super::report::Row;
use super::{Arm, Site};
use crate::modelled::{Late, of_managers};
use crate::report::Sorted;
use anyhow::{Context as _, Result};
use fpga_tests::testbed::cluster::{BoardSpec, Cluster, ClusterSpec, ExtenderAway, NodeCache};
use fpga_tests::testbed::invoke::Case;
use fpga_tests::testbed::workload::Workload;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, sleep, sleep_until};

/// Time of a load before it is measured.
const WARM_UP: Duration = Duration::from_secs(1);

/// What runs in a cluster of its own.
#[derive(Debug)]
pub(super) struct Group {
    pub use_case: UseCase,
    pub arm: Arm,
    /// The loads, one after the other.
    pub loads: Vec<Load>,
}

/// A ready function.
#[derive(Debug)]
struct Placed {
    address: String,
    /// Number of its board.
    board: usize,
}

/// The device managers' counters, summed.
#[derive(Debug, Clone, Copy)]
struct Counters {
    slot_seconds: f64,
    late: Late,
}

impl Group {
    /// Starts the cluster, measures, and stops it.
    pub async fn run(&self, site: &Site) -> Result<Vec<Row>> {
        let folder = tempfile::tempdir().context("can't make a temporary folder")?;
        let model = folder.path().join("board.toml");
        std::fs::write(&model, self.use_case.model())
            .with_context(|| format!("can't write {}", model.display()))?;
        let cluster = start(site, &model.display().to_string()).await?;
        let case = Arc::new(self.use_case.case()?);
        let mut rows = Vec::new();
        match self.arm {
            Arm::Scheduled => {
                for load in self.loads.iter().copied() {
                    rows.push(self.measure_while_placed(&cluster, site, &case, load).await?);
                }
            }
            Arm::Shared => {
                self.measure_placed(&cluster, site, &case, &paper::SHARED, &mut rows).await?;
            }
            Arm::Exclusive => {
                self.measure_placed(&cluster, site, &case, &paper::EXCLUSIVE, &mut rows).await?;
            }
        }
        cluster.stop().await;
        Ok(rows)
    }

    /// Places the functions on these boards, and measures one load after the other.
    async fn measure_placed(
        &self,
        cluster: &Cluster,
        site: &Site,
        case: &Arc<Case>,
        boards: &[usize],
        rows: &mut Vec<Row>,
    ) -> Result<()> {
        let mut placed = Vec::new();
        for (function, board) in boards.iter().copied().enumerate() {
            cluster.create(&self.workload(site, function).on(&node_name(board))).await?;
            placed.push(Placed { address: warm(cluster, site, case, function).await?, board });
        }
        for load in self.loads.iter().copied() {
            let from = Instant::now();
            let arrivals = self.arrivals(load);
            let start =
                |(placed, per_second): (&Placed, &u32)| self.client(site, case, placed, *per_second, from);
            let clients = placed.iter().zip(&arrivals).map(start).collect();
            rows.push(self.measure(cluster, site, load, &placed, clients, from).await?);
        }
        Ok(())
    }

    /// Creates one function after the other, each with its load, and measures when all are there.
    async fn measure_while_placed(
        &self,
        cluster: &Cluster,
        site: &Site,
        case: &Arc<Case>,
        load: Load,
    ) -> Result<Row> {
        let from = Instant::now();
        let (mut placed, mut clients) = (Vec::new(), Vec::new());
        for (function, per_second) in self.arrivals(load).into_iter().enumerate() {
            cluster.create(&self.workload(site, function)).await?;
            let node = cluster.node_of(&name(function)).await?;
            let board = (0..paper::BOARDS).find(|board| node_name(*board) == node);
            let board = board.with_context(|| format!("there is no node {node}"))?;
            let function = Placed { address: warm(cluster, site, case, function).await?, board };
            clients.push(self.client(site, case, &function, per_second, from));
            placed.push(function);
            sleep(site.stage).await;
        }
        self.measure(cluster, site, load, &placed, clients, from).await
    }

    /// Measures the load of clients that run, and stops them.
    async fn measure(
        &self,
        cluster: &Cluster,
        site: &Site,
        load: Load,
        placed: &[Placed],
        clients: Vec<Client>,
        from: Instant,
    ) -> Result<Row> {
        // Whole seconds after the clients' start: each of them sends its rate's number of requests in each second.
        let begin = from + Duration::from_secs((from.elapsed() + WARM_UP).as_secs() + 1);
        let time = Duration::from_secs(site.seconds.into());
        sleep_until(begin).await;
        let before = Counters::read(cluster).await?;
        sleep_until(begin + time).await;
        let after = Counters::read(cluster).await?;
        cluster.check_running()?;
        let mut answers = Vec::new();
        for client in clients {
            let measured = |answered: &Answered| answered.sent >= begin && answered.sent < begin + time;
            answers.extend(client.stop().await?.into_iter().filter(measured).map(|answered| answered.took));
        }
        let arrivals = self.arrivals(load);
        Ok(Row {
            load,
            arm: self.arm,
            boards: placed.iter().map(|placed| placed.board).collect(),
            sent: arrivals.iter().copied().map(f64::from).sum(),
            admitted: admitted(&arrivals, placed, self.use_case.board_time()),
            processed: answers.len() as f64 / time.as_secs_f64(),
            mean: answers.iter().sum::<Duration>() / u32::try_from(answers.len().max(1))?,
            times: Sorted::new(answers),
            utilisation: 100.0 * (after.slot_seconds - before.slot_seconds) / time.as_secs_f64(),
            late: after.late - before.late,
        })
    }

    fn workload(&self, site: &Site, number: usize) -> Workload {
        let function = self.use_case.function();
        let bitstream = site.bitstreams.join(format!("{function}.bitstream"));
        Workload::function(&name(number), &site.programs.join(function.name()), &bitstream)
            .requires("fpga-vendor", site.runtime.vendor())
            .env("WORKERS", site.connections.to_string())
    }

    fn client(
        &self,
        site: &Site,
        case: &Arc<Case>,
        placed: &Placed,
        per_second: u32,
        from: Instant,
    ) -> Client {
        Client::start(Requests {
            case: Arc::clone(case),
            address: placed.address.clone(),
            per_second,
            connections: site.connections,
            from,
        })
    }

    /// Requests per second for each function of the arm.
    fn arrivals(&self, load: Load) -> Vec<u32> {
        let all = self.use_case.arrivals(load).unwrap_or_default();
        all.into_iter().take(self.arm.functions()).collect()
    }
}

impl Counters {
    async fn read(cluster: &Cluster) -> Result<Self> {
        let slot_seconds = of_managers(cluster, "slot_seconds_total").await?;
        Ok(Self { slot_seconds, late: Late::read(cluster).await? })
    }
}

/// Requests per second that the boards can serve of these arrivals.
fn admitted(arrivals: &[u32], placed: &[Placed], board_time: Duration) -> f64 {
    let of_board = |board: usize| -> f64 {
        let here = arrivals.iter().zip(placed).filter(|(_, placed)| placed.board == board);
        here.map(|(arrivals, _)| f64::from(*arrivals)).sum()
    };
    (0..paper::BOARDS).map(|board| of_board(board).min(1.0 / board_time.as_secs_f64())).sum()
}

async fn start(site: &Site, model: &str) -> Result<Cluster> {
    let board = |index: usize| BoardSpec {
        // The whole board, in turns.
        slots: 1,
        bitstreams: Some(site.bitstreams.clone()),
        collector_args: ["--min-write-interval", "500ms"].map(str::to_owned).to_vec(),
        device_manager_args: ["--model", model].map(str::to_owned).to_vec(),
        ..BoardSpec::new(&node_name(index), Some(site.runtime))
    };
    Cluster::start(ClusterSpec {
        boards: (0..paper::BOARDS).map(board).collect(),
        weights: "0.5-2-2-1".to_owned(),
        node_cache: NodeCache::Capable,
        extender_away: ExtenderAway::Wait,
        extender_args: Vec::new(),
    })
    .await
}

/// The address of a function that is ready, all of whose processes have served a request: a runtime builds a kernel at its
/// first launch in a session.
async fn warm(cluster: &Cluster, site: &Site, case: &Case, function: usize) -> Result<String> {
    let address = cluster.ready_address(&name(function)).await?;
    for _ in 0..2 {
        // As many at a time as there are processes.
        let requests = (0..site.connections).map(|_| case.invoke(cluster.http(), &address));
        futures::future::try_join_all(requests).await?;
    }
    Ok(address)
}

fn node_name(board: usize) -> String {
    format!("board-{}", ["a", "b", "c"].get(board).unwrap_or(&"none"))
}

fn name(function: usize) -> String {
    format!("function-{}", function + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_board_admits_what_it_gets_up_to_what_it_can_do() {
        let placed: Vec<Placed> =
            paper::SHARED.map(|board| Placed { address: String::new(), board }).into_iter().collect();
        let ms = Duration::from_millis;
        assert!((admitted(&[20, 15, 10, 5, 5], &placed, ms(10)) - 55.0).abs() < 1e-9);
        // 75 on B and 80 on A are more than 50; 35 on C are not.
        assert!((admitted(&[60, 50, 35, 30, 15], &placed, ms(20)) - 135.0).abs() < 1e-9);
    }
}
