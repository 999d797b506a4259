//! Waiting for a condition, with a deadline that says what did not come true. Nothing in the test bed sleeps and hopes.

use anyhow::{Result, bail};
use std::time::Duration;
use tokio::time::Instant;

/// How long between two looks.
const PERIOD: Duration = Duration::from_millis(50);

/// Looks again and again until `probe` gives `Some`, or the time is up.
///
/// # Errors
/// The time is up (with the last error of `probe`, if it had one): an error of `probe` is not final.
pub async fn until<T>(
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
