//! Waits for a condition, with a limit and an error that names the condition. The test bed doesn't rely on fixed sleeps.

use anyhow::{Result, bail};
use fpga_test_kit::patience;
use std::time::Duration;
use tokio::time::Instant;

/// Pause between two probes.
const PERIOD: Duration = Duration::from_millis(50);

/// Calls `probe` until it returns `Some`, or [`patience`] is over.
///
/// # Errors
/// The time is over; an error of `probe` is not final, and the last one is included.
pub async fn until<T>(what: &str, probe: impl AsyncFnMut() -> Result<Option<T>>) -> Result<T> {
    until_within(what, patience(), probe).await
}

/// Like [`until`], for what lasts longer than a test's patience by its nature.
///
/// # Errors
/// Like [`until`].
pub async fn until_within<T>(
    what: &str,
    time: Duration,
    mut probe: impl AsyncFnMut() -> Result<Option<T>>,
) -> Result<T> {
    let deadline = Instant::now() + time;
    let mut last_error = None;
    loop {
        match tokio::time::timeout_at(deadline, probe()).await {
            Ok(Ok(Some(value))) => return Ok(value),
            Ok(Ok(None)) => last_error = None,
            Ok(Err(error)) => last_error = Some(error),
            Err(_) => last_error = last_error.or_else(|| Some(anyhow::anyhow!("the last look did not end"))),
        }
        if Instant::now() + PERIOD >= deadline {
            match last_error {
                Some(error) => bail!("waited {time:?} for {what} in vain: {error:#}"),
                None => bail!("waited {time:?} for {what} in vain"),
            }
        }
        tokio::time::sleep(PERIOD).await;
    }
}
