//! Waiting for a future on a thread.

use crate::error::Error;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

/// Wakes the thread that waits.
struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Blocks the thread until the future is ready, at most for `limit`. The future is dropped then, which cancels what it
/// waits for.
///
/// # Errors
/// [`Error::TimedOut`], else the future's own.
pub fn wait<T>(future: impl Future<Output = Result<T, Error>>, limit: Option<Duration>) -> Result<T, Error> {
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let mut context = Context::from_waker(&waker);
    let mut future = pin!(future);
    let since = Instant::now();
    loop {
        if let Poll::Ready(output) = future.as_mut().poll(&mut context) {
            return output;
        }
        match limit.map(|limit| (limit, limit.saturating_sub(since.elapsed()))) {
            None => thread::park(),
            Some((limit, Duration::ZERO)) => return Err(Error::TimedOut(limit)),
            Some((_, left)) => thread::park_timeout(left),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_ends_with_the_future_or_with_its_limit() {
        let (sender, receiver) = tokio::sync::oneshot::channel();
        let answering = thread::spawn(move || sender.send(5).unwrap());
        let answer = async { receiver.await.map_err(|_| Error::Cancelled) };
        assert!(matches!(wait(answer, None), Ok(5)));
        answering.join().unwrap();
        let limit = Duration::from_millis(20);
        let never = wait(std::future::pending::<Result<(), Error>>(), Some(limit));
        assert!(matches!(never, Err(Error::TimedOut(after)) if after == limit));
    }
}
