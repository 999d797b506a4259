//! The race of connection attempts to several managers: a silent manager delays no other.

use crate::wire::timeouts;
use std::sync::atomic::{AtomicBool, Ordering};
use tokio::sync::Notify;

/// The state shared by connection attempts that race each other.
#[derive(Debug)]
pub(crate) struct ConnectionRace {
    answered: AtomicBool,
    first_answer: Notify,
}

/// Whether a manager has sent anything yet.
#[derive(Debug, Default)]
pub(crate) struct HasSent(AtomicBool);

impl HasSent {
    /// Notes that the manager has sent something.
    pub(crate) fn set(&self) {
        self.0.store(true, Ordering::Release);
    }
}

impl ConnectionRace {
    /// `others_answer`: whether there are sessions with other managers already.
    pub(crate) fn new(others_answer: bool) -> Self {
        Self { answered: AtomicBool::new(others_answer), first_answer: Notify::new() }
    }

    /// Notes that a manager has answered.
    pub(crate) fn manager_answered(&self) {
        self.answered.store(true, Ordering::Release);
        self.first_answer.notify_waiters();
    }

    /// Ends some time after another manager has answered, unless this one has sent something. So a manager that
    /// accepts connections and sends nothing, such as a stopped process, delays no other. It never ends if this is
    /// the only manager.
    pub(crate) async fn silence_timeout(&self, has_sent: &HasSent) {
        let first_answer = self.first_answer.notified();
        if !self.answered.load(Ordering::Acquire) {
            first_answer.await;
        }
        tokio::time::sleep(timeouts::silence()).await;
        if has_sent.0.load(Ordering::Acquire) {
            std::future::pending::<()>().await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;
    use tokio::time::{Instant, timeout};

    const HOUR: Duration = Duration::from_secs(3_600);

    #[tokio::test(start_paused = true)]
    async fn a_silent_manager_has_a_second_after_another_one_has_answered() {
        let (race, has_sent) = (ConnectionRace::new(false), HasSent::default());
        let begin = Instant::now();
        let answered = async {
            tokio::time::sleep(HOUR).await;
            race.manager_answered();
        };
        tokio::join!(race.silence_timeout(&has_sent), answered);
        assert_eq!(begin.elapsed(), HOUR + timeouts::silence());
        race.silence_timeout(&has_sent).await;
        assert_eq!(begin.elapsed(), HOUR + 2 * timeouts::silence());
    }

    #[tokio::test(start_paused = true)]
    async fn a_manager_that_is_alone_or_has_sent_something_has_more_time() {
        let (alone, has_sent) = (ConnectionRace::new(false), HasSent::default());
        timeout(HOUR, alone.silence_timeout(&has_sent)).await.unwrap_err();
        has_sent.set();
        timeout(HOUR, ConnectionRace::new(true).silence_timeout(&has_sent)).await.unwrap_err();
    }
}
