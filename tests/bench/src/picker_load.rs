//! `make picker-load`: requests through a real Envoy and a real endpoint picker while clients are killed at random, the
//! picker is killed and started again, states of nodes get old, and hostile clients send headers and bodies without end.
//! At the end no request may be in flight, none but those of killed clients may have failed, and neither Envoy nor the
//! picker may have more memory than before.

mod clients;
mod hostile;

use anyhow::{Context as _, Result};
use clap::Parser;
use clients::{Clients, Outcomes};
use fpga_tests::testbed::chance::Chance;
use fpga_tests::testbed::memory::memory_mib;
use fpga_tests::testbed::process::Process;
use fpga_tests::testbed::routed_function::RoutedFunction;
use fpga_tests::testbed::wait;
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// Replicas of the function, each on a node of its own.
const REPLICAS: u8 = 3;
/// Time between two states of a node. After three of them the last one is stale.
const HEARTBEAT: Duration = Duration::from_secs(5);
/// Longest time until no request is in flight when all clients have ended.
const REST: Duration = Duration::from_secs(60);
/// Requests before the picker is killed, and as many before memory is measured.
const WARM_UP: u64 = 20;
/// Memory that may be added at rest: what allocators keep of the busiest moment.
const MORE_MIB: f64 = 24.0;
/// Memory at the busiest moment.
const MOST_MIB: f64 = 256.0;

/// Kills clients and the picker under load, and looks whether requests are counted exactly; exits with 1 if not.
#[derive(Debug, Parser)]
#[command(after_help = "Example: fpga-picker-load --requests 100000 --seed 42")]
pub struct Args {
    /// Number of requests.
    #[arg(long, env = "PICKER_LOAD_REQUESTS", default_value_t = 500_000, value_parser = clap::value_parser!(u64).range(1_000..=10_000_000))]
    requests: u64,
    /// Number of clients at a time.
    #[arg(long, default_value_t = 32, value_parser = clap::value_parser!(u16).range(1..=512))]
    clients: u16,
    /// Of how many requests one is cut: its client is killed at a random moment.
    #[arg(long, default_value_t = 25, value_parser = clap::value_parser!(u64).range(2..=10_000))]
    cut: u64,
    /// Number of hostile clients at a time.
    #[arg(long, default_value_t = 16, value_parser = clap::value_parser!(u16).range(0..=256))]
    hostile: u16,
    /// Seed of all random choices.
    #[arg(long, env = "PICKER_LOAD_SEED", default_value_t = 1)]
    seed: u64,
}

/// The memory of Envoy and the picker, in MiB.
#[derive(Debug, Clone, Copy)]
struct Memory {
    envoy: f64,
    picker: f64,
}

/// What was wanted and what was found.
#[derive(Debug, Default)]
struct Verdicts {
    rows: Vec<String>,
    bad: usize,
}

impl Verdicts {
    fn check(&mut self, what: &str, wanted: &str, found: &str, good: bool) {
        self.bad += usize::from(!good);
        let verdict = if good { "good" } else { "BAD" };
        self.rows.push(format!("| {what} | {wanted} | {found} | {verdict} |"));
    }
}

impl Args {
    /// Runs the load, prints the table, and returns failure if something is not as wanted.
    ///
    /// # Errors
    /// A prerequisite is missing, or the test bed itself fails.
    pub async fn run(self) -> Result<ExitCode> {
        let Self { requests, clients, cut, hostile, seed } = self;
        let mut bed = RoutedFunction::start(REPLICAS).await?;
        bed.publish(0, HEARTBEAT).await?;
        let chance = Chance::new(seed);
        let load = Clients { url: bed.url(), address: bed.envoy_address(), clients, cut };
        let mut all = Outcomes::default();

        println!(
            "{requests} requests, {clients} clients at a time, one request in {cut} is cut, seed {seed}"
        );
        let warm_up = (requests / WARM_UP).max(500);
        all += load.send(warm_up, chance.clone()).await?;
        // The picker is killed while requests go on.
        let (sent, restarted) = tokio::join!(load.send(warm_up, chance.clone()), async {
            tokio::time::sleep(Duration::from_millis(100)).await;
            bed.restart_picker().await
        });
        restarted.context("the picker does not come back")?;
        all += sent?;
        bed.publish(1, HEARTBEAT).await?;
        all += load.send(warm_up, chance.clone()).await?;
        rest(&bed).await?;
        let before = memory(&bed, "VmRSS")?;

        let rest_of_them = requests.saturating_sub(3 * warm_up);
        let begun = Instant::now();
        let trouble = hostile::send(bed.envoy_address(), hostile);
        let (sent, hostile) = tokio::select! {
            sent = load.send(rest_of_them, chance.clone()) => (sent?, None),
            hostile = trouble => (Outcomes::default(), Some(hostile)),
        };
        if let Some(error) = hostile {
            return Err(error.context("the hostile clients ended"));
        }
        let seconds = begun.elapsed().as_secs_f64();
        all += sent;
        let most = memory(&bed, "VmHWM")?;
        let (in_flight, streams) = rest(&bed).await?;
        let after = memory(&bed, "VmRSS")?;
        let stale = bed.picker.labelled(&bed.http, "fpga_picker_choices_total", "in_flight").await?;
        bed.stop().await;

        let mut verdicts = Verdicts::default();
        verdicts.check("requests in flight at the end", "0", &in_flight.to_string(), in_flight == 0.0);
        verdicts.check("streams of Envoy at the end", "0", &streams.to_string(), streams == 0.0);
        verdicts.check(
            "requests that failed, of those whose client lived",
            "0",
            &format!("{} of {}", all.failed, all.answered + all.failed),
            all.failed == 0,
        );
        verdicts.check("clients killed", "more than 0", &all.cut.to_string(), all.cut > 0);
        verdicts.check(
            "choices by requests in flight, since states were stale",
            "-",
            &stale.to_string(),
            true,
        );
        for (name, before, after, most) in [
            ("Envoy", before.envoy, after.envoy, most.envoy),
            ("the picker", before.picker, after.picker, most.picker),
        ] {
            verdicts.check(
                &format!("memory of {name} at rest, before and after"),
                &format!("at most {MORE_MIB} MiB more"),
                &format!("{before:.1} and {after:.1} MiB"),
                after <= before + MORE_MIB,
            );
            verdicts.check(
                &format!("memory of {name} at most"),
                &format!("{MOST_MIB} MiB"),
                &format!("{most:.1} MiB"),
                most <= MOST_MIB,
            );
        }
        println!("{:.0} requests/s in the last part", rest_of_them as f64 / seconds.max(0.001));
        println!("| what | wanted | found | |\n|---|---|---|---|\n{}", verdicts.rows.join("\n"));
        Ok(if verdicts.bad == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }
}

/// Waits until no request is in flight, and returns the requests and streams that there are then, or at the deadline.
async fn rest(bed: &RoutedFunction) -> Result<(f64, f64)> {
    let look = async || {
        let metrics = bed.picker.metrics(&bed.http).await?;
        let figures =
            (metrics.metric("fpga_picker_requests_in_flight"), metrics.metric("fpga_picker_streams"));
        anyhow::Ok(figures)
    };
    let rested = wait::until_within("all requests to end", REST, async || {
        let (in_flight, streams) = look().await?;
        Ok((in_flight == 0.0 && streams == 0.0).then_some((in_flight, streams)))
    });
    match rested.await {
        Ok(figures) => Ok(figures),
        Err(_) => look().await,
    }
}

fn memory(bed: &RoutedFunction, field: &str) -> Result<Memory> {
    let of = |process: &Process| memory_mib(process.pid(), field);
    Ok(Memory { envoy: of(&bed.envoy)?, picker: of(bed.picker.process())? })
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_command_line_is_consistent() {
        use clap::CommandFactory as _;
        super::Args::command().debug_assert();
    }
}
