//! The bundle of a round: jobs that wait for their first slots together, and whose outputs are known.

use super::super::text::{COUNTER, KEY, Text};
use super::{draw, reference};
use anyhow::{Context as _, Result};
use fpga_acc::{Job, Pool, Request};
use futures::future::try_join_all;
use std::time::Instant;

/// Jobs of a bundle.
pub(super) const JOBS: u32 = 2;
/// Bytes of each job: it takes from 1.6 to 2.4 s in a slot, and has hardly ended when the fault begins.
const LEAST_BYTES: f64 = 16e6;
const MOST_BYTES: f64 = 24e6;
/// Bytes of the text between the beginnings of two jobs.
const APART: usize = 4_000_000;

/// Opens the jobs together and streams the bytes of each. Returns when each has ended, all with the right output.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "between 16 and 24 million")]
pub(super) async fn run(pool: Pool, text: Text, (seed, round): (u64, u64)) -> Result<Vec<Instant>> {
    let bytes = LEAST_BYTES + (MOST_BYTES - LEAST_BYTES) * draw(&(seed, round, "bytes of the bundle"));
    let bytes = bytes as usize;
    // Outputs that change places are wrong: the jobs have different bytes.
    let texts: Vec<Text> = (0..JOBS as usize).map(|job| reference::part(&text, job * APART, bytes)).collect();
    let request =
        Request::new("aes-256-ctr", bytes as u64).argument("key", &KEY).argument("counter", &COUNTER);
    let jobs = pool.open_many(&request, JOBS).await.context("the bundle does not get its slots")?;
    let streams = jobs.into_iter().zip(texts).map(|(job, text)| async move {
        let ended = stream(job, &text).await;
        ended.with_context(|| format!("a job of a bundle, of {bytes} bytes"))
    });
    try_join_all(streams).await
}

/// Streams the text through a job, and returns when the last byte has come.
async fn stream(mut job: Job, text: &Text) -> Result<Instant> {
    let mut output = Vec::with_capacity(text.secret.len());
    job.stream(&*text.plain, &mut output).await?;
    let ended = Instant::now();
    reference::check(&output, &text.secret)?;
    job.close().await?;
    Ok(ended)
}
