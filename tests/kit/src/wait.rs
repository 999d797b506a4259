//! Waiting for a condition, and a clock that only the test moves. No test waits for a time to pass.

use std::fmt::Display;
use std::time::{Duration, Instant};

/// Pause between two looks.
const PERIOD: Duration = Duration::from_millis(5);

/// The limit of each wait: 60 s, or the seconds of `FPGA_TEST_PATIENCE`. A test passes before it, or fails.
#[must_use]
pub fn patience() -> Duration {
    let seconds = std::env::var("FPGA_TEST_PATIENCE").ok().map(|text| {
        text.parse().unwrap_or_else(|_| panic!("FPGA_TEST_PATIENCE={text} is no number of seconds; write 60"))
    });
    Duration::from_secs(seconds.unwrap_or(60))
}

/// What a look at a condition finds.
pub trait Look {
    /// What the wait returns.
    type Value;

    /// The value, or what was there instead.
    ///
    /// # Errors
    /// The condition does not hold yet.
    fn found(self) -> Result<Self::Value, String>;
}

/// Whether the condition holds.
impl Look for bool {
    type Value = ();

    fn found(self) -> Result<(), String> {
        if self { Ok(()) } else { Err(String::new()) }
    }
}

/// A value, once there is one.
impl<T> Look for Option<T> {
    type Value = T;

    fn found(self) -> Result<T, String> {
        self.ok_or_else(String::new)
    }
}

/// A value, or what was there instead.
impl<T, E: Display> Look for Result<T, E> {
    type Value = T;

    fn found(self) -> Result<T, String> {
        self.map_err(|error| error.to_string())
    }
}

/// Looks until the condition holds, and blocks the thread meanwhile.
///
/// # Panics
/// The condition does not hold within [`patience`]. The message has `what` and what was there instead.
pub fn until<L: Look>(what: impl Display, mut look: impl FnMut() -> L) -> L::Value {
    let since = Instant::now();
    loop {
        match look().found() {
            Ok(value) => return value,
            Err(instead) => end_if_over(since, &what, &instead),
        }
        std::thread::sleep(PERIOD);
    }
}

/// Like [`until`], while the other tasks of the runtime run.
///
/// # Panics
/// Like [`until`]. A look that does not end is no exception.
pub async fn until_async<L: Look>(what: impl Display, mut look: impl AsyncFnMut() -> L) -> L::Value {
    let since = Instant::now();
    loop {
        let left = patience().saturating_sub(since.elapsed());
        match tokio::time::timeout(left, look()).await.map(Look::found) {
            Ok(Ok(value)) => return value,
            Ok(Err(instead)) => end_if_over(since, &what, &instead),
            Err(_) => end_if_over(since, &what, "the last look did not end"),
        }
        // Not by tokio's clock, which may be paused.
        tokio::task::spawn_blocking(|| std::thread::sleep(PERIOD)).await.unwrap();
    }
}

/// Runs a test on a paused clock of tokio, which only [`tokio::time::advance`] moves, also while the test waits for a
/// peer. The test must run on tokio's runtime of one thread. tokio rounds timers up to the next millisecond, so a limit is
/// over 1 ms after its time.
///
/// # Panics
/// The test does not end within [`patience`], by the real clock.
pub async fn on_paused_clock<T>(test: impl Future<Output = T>) -> T {
    tokio::time::pause();
    let (running, ended) = std::sync::mpsc::channel::<()>();
    // While a blocking task runs, tokio does not advance the clock.
    let overdue = tokio::task::spawn_blocking(move || ended.recv_timeout(patience()));
    let value = tokio::select! {
        value = test => value,
        _ = overdue => panic!("the test has not ended within {:?}", patience()),
    };
    drop(running);
    value
}

fn end_if_over(since: Instant, what: &impl Display, instead: &str) {
    let patience = patience();
    if since.elapsed() >= patience {
        let instead = if instead.is_empty() { String::new() } else { format!("\nInstead: {instead}") };
        panic!("waited {patience:?} in vain for: {what}{instead}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_returns_what_the_first_look_that_succeeds_found() {
        let mut looks = 0;
        let found = until("three looks", || {
            looks += 1;
            (looks == 3).then_some(looks)
        });
        assert_eq!(found, 3);
    }

    #[tokio::test]
    async fn a_paused_clock_stands_still_until_the_test_moves_it() {
        let hour = Duration::from_secs(3600);
        on_paused_clock(async {
            let begin = tokio::time::Instant::now();
            let sleep = tokio::spawn(tokio::time::sleep(hour));
            let mut looks = 0;
            until_async("ten looks", async || {
                looks += 1;
                looks == 10
            })
            .await;
            assert_eq!(begin.elapsed(), Duration::ZERO);
            tokio::time::advance(hour + Duration::from_millis(1)).await;
            sleep.await.unwrap();
        })
        .await;
    }

    #[test]
    fn a_wait_in_vain_says_what_was_there_instead() {
        let failure = std::panic::catch_unwind(|| {
            let long_ago = Instant::now().checked_sub(patience()).unwrap();
            end_if_over(long_ago, &"a door", "a wall");
        });
        let text = failure.unwrap_err().downcast::<String>().unwrap();
        assert!(text.ends_with("in vain for: a door\nInstead: a wall"), "{text}");
    }
}
