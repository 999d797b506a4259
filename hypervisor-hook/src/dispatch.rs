//! The background thread: numbers events, sends them in batches, repeats what was not acknowledged, and keeps the
//! collector's idea of the devices fresh.
//!
//! Numbers are given here and not where events are reported: a sum's range is then a range of its own, and numbers
//! have no gaps whatever was merged.

use crate::config::Config;
use crate::connection::{Answer, Call, Connection, Failure, Link};
use crate::devices::Wanted;
use crate::reporter::Shared;
use fpga_core::event::{Event, Identity};
use hyper::body::Bytes;
use hyper::{Method, StatusCode};
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::Receiver;
use std::time::Duration;
use tokio::time::Instant;
use tracing::{debug, info, warn};

/// State of the background thread.
pub(crate) struct Dispatch {
    config: Config,
    shared: Arc<Shared>,
    receiver: Receiver<Event>,
    connection: Connection,
    reporter: u64,
    next_seq: u64,
    /// Numbered, not yet acknowledged, oldest first.
    pending: VecDeque<Event>,
    backoff: Backoff,
    /// When device statuses are sent again though nothing changed.
    next_refresh: Instant,
    collector: Collector,
}

/// What is known of the collector; only for the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Collector {
    Unknown,
    Answers,
    Away,
}

/// The reporter was told to stop.
struct Stopped;

/// What became of a call.
enum Outcome {
    /// It was done.
    Done,
    /// It never will be, for what it says.
    Refused(Answer),
}

/// Growing pauses with jitter.
#[derive(Debug)]
struct Backoff {
    min: Duration,
    max: Duration,
    pause: Duration,
    random: u64,
}

impl Dispatch {
    pub(crate) fn new(config: Config, shared: Arc<Shared>, receiver: Receiver<Event>) -> Self {
        let reporter = shared.reporter;
        Self {
            connection: Connection::new(&config),
            backoff: Backoff::new(config.backoff_min, config.backoff_max, reporter),
            next_refresh: Instant::now() + config.device_interval,
            config,
            shared,
            receiver,
            reporter,
            next_seq: 1,
            pending: VecDeque::new(),
            collector: Collector::Unknown,
        }
    }

    /// Runs until the reporter is told to stop.
    pub(crate) async fn run(mut self) {
        while !self.shared.is_stopped() {
            if self.round().await.is_err() {
                break;
            }
        }
        let waiting = self.pending.len() + self.shared.queue.len();
        if waiting > 0 {
            warn!(events = waiting, "Reporter stopped before all events were acknowledged");
        }
    }

    /// Sends all that was reported before it began, then pauses.
    async fn round(&mut self) -> Result<(), Stopped> {
        let flush = self.shared.flush_wanted();
        let already = self.pending.len();
        self.shared.queue.drain(&self.receiver, &mut self.pending);
        self.number(already);
        self.send_devices().await?;
        let idle = self.pending.is_empty();
        while !self.pending.is_empty() {
            let count = self.pending.len().min(self.config.batch_events.max(1));
            self.send_batch(count).await?;
            self.send_devices().await?;
        }
        self.shared.flushed(flush);
        self.pause(idle).await;
        Ok(())
    }

    /// Gives numbers to the pending events from index `from` on.
    fn number(&mut self, from: usize) {
        for event in self.pending.iter_mut().skip(from) {
            let first_seq = self.next_seq;
            let count = match &mut event.merged {
                Some(merged) => {
                    merged.first_seq = first_seq;
                    u64::from(merged.count).max(1)
                }
                None => 1,
            };
            self.next_seq += count;
            event.identity = Some(Identity { reporter: self.reporter, seq: self.next_seq - 1 });
        }
        self.shared.set_pending(self.pending.len());
    }

    /// Sends the first `count` pending events until they are acknowledged or refused for what they say.
    async fn send_batch(&mut self, count: usize) -> Result<(), Stopped> {
        let events = &self.pending.make_contiguous()[..count];
        let body = match serde_json::to_vec(events) {
            Ok(body) => Bytes::from(body),
            // Events are plain data, all of which JSON can say; should that change, they must not stop the rest.
            Err(error) => {
                warn!(%error, "Events can't be written as JSON");
                self.refuse(count);
                return Ok(());
            }
        };
        let call = Call { method: Method::POST, path: "/v1/events".to_owned(), body };
        match self.call(&call).await? {
            Outcome::Done => {
                self.pending.drain(..count);
                self.shared.counters.sent.fetch_add(count as u64, Ordering::Relaxed);
            }
            // One bad event among many: halves find it in a few requests.
            Outcome::Refused(_) if count > 1 => Box::pin(self.send_batch(count / 2)).await?,
            Outcome::Refused(answer) => {
                warn!(status = %answer.status, answer = %answer.text, "Collector refused an event");
                self.refuse(1);
            }
        }
        self.shared.set_pending(self.pending.len());
        Ok(())
    }

    fn refuse(&mut self, count: usize) {
        self.pending.drain(..count);
        self.shared.counters.refused.fetch_add(count as u64, Ordering::Relaxed);
    }

    /// Tells the collector of every device that it has not confirmed.
    async fn send_devices(&mut self) -> Result<(), Stopped> {
        if Instant::now() >= self.next_refresh {
            self.shared.devices.confirm_none();
            self.next_refresh = Instant::now() + self.config.device_interval;
        }
        for device in self.shared.devices.unconfirmed() {
            let path = format!("/v1/devices/{}", percent_encode(&device.id));
            let call = match &device.wanted {
                Wanted::Gone => Call { method: Method::DELETE, path, body: Bytes::new() },
                Wanted::Status(status) => match serde_json::to_vec(status) {
                    Ok(body) => Call { method: Method::PUT, path, body: body.into() },
                    Err(error) => {
                        warn!(%error, "A device status can't be written as JSON");
                        continue;
                    }
                },
            };
            if let Outcome::Refused(answer) = self.call(&call).await? {
                warn!(device = %device.id, status = %answer.status, answer = %answer.text, "Collector refused a device");
            }
            // A refused status would be refused again; the next refresh tries it once more.
            self.shared.devices.confirm(&device);
        }
        Ok(())
    }

    /// Repeats `call` until the collector has done it or refuses what it says.
    async fn call(&mut self, call: &Call) -> Result<Outcome, Stopped> {
        loop {
            let (trouble, asked) = match self.try_call(call).await? {
                Ok(answer) if answer.status.is_success() => {
                    self.collector_answers();
                    return Ok(Outcome::Done);
                }
                Ok(answer) if refuses_content(answer.status) => {
                    self.collector_answers();
                    return Ok(Outcome::Refused(answer));
                }
                // Gone already is as good as gone.
                Ok(answer) if call.method == Method::DELETE && answer.status == StatusCode::NOT_FOUND => {
                    return Ok(Outcome::Done);
                }
                Ok(answer) => (format!("{}: {}", answer.status, answer.text), answer.retry_after),
                Err(failure) => (failure.to_string(), None),
            };
            self.shared.counters.retries.fetch_add(1, Ordering::Relaxed);
            if self.collector == Collector::Away {
                debug!(collector = %self.config.endpoint, %trouble, "Collector still does not take reports");
            } else {
                warn!(collector = %self.config.endpoint, %trouble, "Collector does not take reports; trying again");
                self.collector = Collector::Away;
            }
            // After what it asked for (429, 503), not all at the same moment.
            let pause = asked.unwrap_or_default() + self.backoff.next();
            tokio::select! {
                () = tokio::time::sleep(pause) => {}
                () = self.shared.stopped() => return Err(Stopped),
            }
        }
    }

    async fn try_call(&mut self, call: &Call) -> Result<Result<Answer, Failure>, Stopped> {
        let Self { connection, shared, .. } = self;
        let on_close = {
            let shared = Arc::clone(shared);
            move || shared.queue.wake()
        };
        let exchange = async {
            if connection.open(on_close).await? == Link::Made {
                shared.devices.confirm_none();
            }
            connection.send(call).await
        };
        tokio::select! {
            result = exchange => Ok(result),
            () = shared.stopped() => Err(Stopped),
        }
    }

    fn collector_answers(&mut self) {
        self.backoff.reset();
        if self.collector != Collector::Answers {
            info!(collector = %self.config.endpoint, "Collector takes reports");
            self.collector = Collector::Answers;
        }
    }

    /// Gathers for a while after work, and for a longer while after none; a half full queue, a flush and a connection
    /// that ended cut it short.
    async fn pause(&mut self, idle: bool) {
        let pause = if idle { self.config.idle } else { self.config.gather };
        // Whether it was cut short makes no difference.
        let _ = tokio::time::timeout(pause, self.shared.queue.woken()).await;
        if self.lost_the_collector() {
            // It went away in silence: go and see whether another one is there, if there is a device to tell of.
            self.shared.devices.confirm_none();
            self.collector = Collector::Unknown;
        }
    }

    /// Whether a collector that knew the devices is no longer connected.
    fn lost_the_collector(&self) -> bool {
        self.collector == Collector::Answers && !self.connection.is_open()
    }
}

impl Backoff {
    fn new(min: Duration, max: Duration, seed: u64) -> Self {
        let min = min.max(Duration::from_millis(1));
        Self { min, max: max.max(min), pause: min, random: seed | 1 }
    }

    fn reset(&mut self) {
        self.pause = self.min;
    }

    /// Between half of the pause and the whole, so that reporters that lost one collector don't come back as one.
    fn next(&mut self) -> Duration {
        // xorshift64: jitter needs no better.
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        let half = self.pause / 2;
        let span = u64::try_from(half.as_nanos()).unwrap_or(u64::MAX).max(1);
        let pause = half + Duration::from_nanos(self.random % span);
        self.pause = (self.pause * 2).min(self.max);
        pause
    }
}

/// Whether trying the same content again is of no use.
fn refuses_content(status: StatusCode) -> bool {
    matches!(
        status,
        StatusCode::BAD_REQUEST | StatusCode::PAYLOAD_TOO_LARGE | StatusCode::UNPROCESSABLE_ENTITY
    )
}

fn percent_encode(text: &str) -> String {
    use std::fmt::Write as _;
    text.bytes().fold(String::with_capacity(text.len()), |mut path, byte| {
        if byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~') {
            path.push(char::from(byte));
        } else {
            // Writing to a String can't fail.
            let _ = write!(path, "%{byte:02X}");
        }
        path
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_to_the_limit_and_differ() {
        let mut backoff = Backoff::new(Duration::from_millis(50), Duration::from_secs(2), 7);
        let pauses: Vec<_> = (0..20).map(|_| backoff.next()).collect();
        assert!(pauses[0] >= Duration::from_millis(25) && pauses[0] < Duration::from_millis(50));
        assert!(
            pauses[10..]
                .iter()
                .all(|pause| *pause >= Duration::from_secs(1) && *pause < Duration::from_secs(2))
        );
        assert!(pauses[10..].windows(2).any(|pair| pair[0] != pair[1]));
        backoff.reset();
        assert!(backoff.next() < Duration::from_millis(50));
    }

    #[test]
    fn an_odd_device_id_stays_one_part_of_the_path() {
        assert_eq!(percent_encode("dm0"), "dm0");
        assert_eq!(percent_encode("a/b ?"), "a%2Fb%20%3F");
    }
}
