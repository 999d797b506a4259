//! The demo of the pool: jobs of two tenants, also from a node without a board, on the slots that two boards lend.
//!
//! Everything is real but the boards' times: the broker, the device managers, the library that programs use, and the
//! results, each of which is verified.

mod check;
mod jobs;
mod picture;
mod run;

use super::next::Demo;
use super::progress::Progress;
use crate::testbed::pool::{PoolBed, Sharing};
use crate::testbed::web::Web;
use anyhow::{Result, bail};
use jobs::JOBS;
use picture::View;
use run::Running;
use std::process::ExitCode;
use std::time::Duration;
use tokio::time::Instant;

/// Time that the jobs may take; on an idle machine they take 20 s.
const LIMIT: Duration = Duration::from_secs(120);
/// Number of boards.
const BOARDS: usize = 2;
/// Seconds for which the boards are made; shorter demos have faster boards.
const SECONDS: u16 = 60;
/// Interval at which the picture is drawn in a demo of that length, and at least.
const PERIOD: Duration = Duration::from_secs(2);
const SHORTEST_PERIOD: Duration = Duration::from_millis(250);

/// Bytes per second of a slot, slow enough to watch, and the same on every machine.
const AES: f64 = 4e6;
const SHA: f64 = 4e6;
const OPTIONS: f64 = 2e6;
/// Bytes of a work item of AES (a block) and of the options (a scenario), and of a launch of SHA-256, which has one.
const ITEM: f64 = 16.0;
const LAUNCH: f64 = 4e6;

/// The boards' model, with boards that are so many times as fast.
fn model(speed: f64) -> String {
    let (aes, options) = (speed * AES / ITEM, speed * OPTIONS / ITEM);
    let sha = Duration::from_secs_f64(LAUNCH / SHA / speed).as_millis();
    format!(
        "board = \"the pool demo's\"\nreconfiguration = \"500ms\"\n\
         [[kernel]]\nbitstream = \"aes-256-ctr\"\nitems_per_second = {aes:e}\n\
         [[kernel]]\nbitstream = \"sha-256\"\nlaunch = \"{sha}ms\"\n\
         [[kernel]]\nbitstream = \"value-at-risk\"\nitems_per_second = {options:e}\n"
    )
}

/// Runs the demo, which takes less than so many seconds.
pub(super) async fn play(seconds: u16) -> Result<ExitCode> {
    let speed = f64::from(SECONDS) / f64::from(seconds);
    let period = PERIOD.div_f64(speed).clamp(SHORTEST_PERIOD, PERIOD);
    let megabytes = |rate: f64| rate * speed / 1e6;
    let mut progress = Progress::new();
    progress.say(&format!(
        "kube-fpga demo of the pool: {} jobs of two tenants, one of them with a deadline; {BOARDS} boards that lend a slot each\n\
         The boards are modelled (AES {:.0} MB/s, SHA-256 {:.0} MB/s, options {:.0} MB/s, 500 ms to load a bitstream); the results \
         are real.",
        JOBS.len(),
        megabytes(AES),
        megabytes(SHA),
        megabytes(OPTIONS),
    ));
    progress.step("broker, and two device managers");
    let mut bed = PoolBed::start().await?;
    progress.say(&format!("    logs: {}", bed.logs().display()));
    let sharing = Sharing { slots: 1, lent: 1, model: Some(model(speed)) };
    for _ in 0..BOARDS {
        bed.start_manager_with(&sharing).await?;
    }
    let web = Web::start_for_pool(&bed).await?;
    progress.keep(&format!("\n    Watch it live:  {}#/pool\n", web.url()));
    progress.step("the jobs, which come within the first seconds");
    let mut running = Running::start(&bed, speed)?;
    let deadline = Instant::now() + LIMIT;
    while !running.are_over_within(period).await {
        bed.check_running()?;
        if Instant::now() > deadline {
            bail!("the jobs did not end within {LIMIT:?}; the logs are in {}", bed.logs().display());
        }
        let view = View::of(&bed.look().await?, running.lines());
        progress.draw(&picture::draw(&view));
    }
    let metric = async |name: &str| bed.metric(name).await;
    let (grants, recalls) =
        (metric("fpga_pool_grants_total").await?, metric("fpga_pool_recalls_total").await?);
    progress.step("all jobs have ended");
    let summary = running.summary();
    progress.say(&format!("\n{summary}"));
    progress.say(&format!("    slots granted {grants}, of them recalled {recalls}"));
    web.stop().await;
    drop(bed);
    progress.say(&format!("    the demo took {:.0} s", progress.elapsed().as_secs_f64()));
    progress.say(&Demo::Pool.what_next());
    Ok(if summary.is_good() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
