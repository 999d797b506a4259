//! The background thread: it numbers events, sends them in batches, repeats those that are not acknowledged, and
//! keeps the collector's knowledge of the devices up to date.
//!
//! Events get their numbers here and not when they are reported, so that a sum has a range of its own and the numbers
//! have no gaps, whatever was merged.
//!
//! Events and each device have a [`RetryTimer`] of their own. So a collector that takes no events now (full disk) still
//! gets device statuses, and one that takes no further device still gets the events. Only an unreachable collector
//! delays everything.

use crate::config::Config;
use crate::connection::{Answer, Call, Connection, Failure, Link};
use crate::devices::{Unconfirmed, Wanted};
use crate::retry_timer::RetryTimer;
use crate::shared::Shared;
use fpga_core::device::DeviceAnswer;
use fpga_core::event::{Event, Identity};
use hyper::body::Bytes;
use hyper::{Method, StatusCode};
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::Receiver;
use tokio::time::Instant;
use tracing::{debug, info, warn};

pub(crate) struct Dispatch {
    config: Config,
    shared: Arc<Shared>,
    receiver: Receiver<Event>,
    connection: Connection,
    reporter: u64,
    next_seq: u64,
    /// Numbered events that are not acknowledged, oldest first. Events that are reported meanwhile stay in the queue,
    /// which is bounded.
    pending: VecDeque<Event>,
    /// Number of the newest flush that was requested before the pending events were taken from the queue.
    flush: u64,
    /// When unchanged device statuses are sent again.
    next_refresh: Instant,
    collector: Collector,
    /// Pauses while the collector can't be reached.
    reach: RetryTimer,
    /// Pauses while the collector takes no events.
    events: RetryTimer,
    /// Pauses for each device that the collector did not take the last time.
    devices: HashMap<String, RetryTimer>,
}

/// The last known state of the collector, for the log and for detecting a lost connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Collector {
    Unknown,
    Answers,
    Away,
}

struct Stopped;

enum Outcome {
    /// The collector did it.
    Done(Answer),
    /// The collector refused the content, so a repetition is of no use.
    Refused(Answer),
    /// The collector can't do it now.
    NotNow(Answer),
    /// No answer came.
    Unreachable,
}

impl Dispatch {
    pub(crate) fn new(config: Config, shared: Arc<Shared>, receiver: Receiver<Event>) -> Self {
        let reporter = shared.reporter;
        let timer = || RetryTimer::new(config.backoff_min, config.backoff_max);
        Self {
            connection: Connection::new(&config),
            next_refresh: Instant::now() + config.device_interval,
            reach: timer(),
            events: timer(),
            devices: HashMap::new(),
            config,
            shared,
            receiver,
            reporter,
            next_seq: 1,
            pending: VecDeque::new(),
            flush: 0,
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

    /// Sends whatever may be sent now, then pauses.
    async fn round(&mut self) -> Result<(), Stopped> {
        if self.pending.is_empty() {
            self.flush = self.shared.flush_wanted();
            self.shared.queue.drain(&self.receiver, &mut self.pending);
            self.number();
        }
        let idle = self.pending.is_empty();
        self.send_devices().await?;
        while !self.pending.is_empty() && self.reach.left().is_zero() && self.events.left().is_zero() {
            let count = self.pending.len().min(self.config.batch_events.max(1));
            self.send_batch(count).await?;
            self.send_devices().await?;
        }
        if self.pending.is_empty() && self.all_devices_were_told() {
            self.shared.flushed(self.flush);
        }
        self.pause(idle).await;
        Ok(())
    }

    /// Numbers the pending events.
    fn number(&mut self) {
        for event in &mut self.pending {
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

    /// Sends the first `count` pending events. They stay pending until they are acknowledged or refused as invalid.
    async fn send_batch(&mut self, count: usize) -> Result<(), Stopped> {
        let events = &self.pending.make_contiguous()[..count];
        let body = match serde_json::to_vec(events) {
            Ok(body) => Bytes::from(body),
            // Events are plain data, which JSON can always represent. Should that change, these must not hold up the
            // rest.
            Err(error) => {
                warn!(%error, "Events can't be written as JSON");
                self.refuse(count);
                return Ok(());
            }
        };
        let call = Call { method: Method::POST, path: "/v1/events".to_owned(), body };
        match self.call(&call).await? {
            Outcome::Done(_) => {
                self.events_answered();
                self.pending.drain(..count);
                self.shared.counters.sent.fetch_add(count as u64, Ordering::Relaxed);
            }
            // One of several events is invalid: halving finds it in a few requests.
            Outcome::Refused(_) if count > 1 => Box::pin(self.send_batch(count / 2)).await?,
            Outcome::Refused(answer) => {
                self.events_answered();
                warn!(status = %answer.status, answer = %answer.text, "Collector refused an event");
                self.refuse(1);
            }
            Outcome::NotNow(answer) => {
                if !self.events.is_failing() {
                    let (status, text) = (answer.status, &answer.text);
                    warn!(collector = %self.config.endpoint, %status, answer = %text, "Collector takes no events now; trying again");
                }
                self.events.failed(answer.retry_after);
            }
            Outcome::Unreachable => {}
        }
        self.shared.set_pending(self.pending.len());
        Ok(())
    }

    fn events_answered(&mut self) {
        if self.events.is_failing() {
            info!(collector = %self.config.endpoint, "Collector takes events again");
        }
        self.events.succeeded();
    }

    fn refuse(&mut self, count: usize) {
        self.pending.drain(..count);
        self.shared.counters.refused.fetch_add(count as u64, Ordering::Relaxed);
    }

    /// Sends the status of every device that the collector has not confirmed, except those whose pause has not
    /// passed.
    async fn send_devices(&mut self) -> Result<(), Stopped> {
        if Instant::now() >= self.next_refresh {
            self.shared.devices.confirm_none();
            self.next_refresh = Instant::now() + self.config.device_interval;
        }
        if !self.reach.left().is_zero() {
            return Ok(());
        }
        for device in self.shared.devices.unconfirmed() {
            if self.devices.get(&device.id).is_some_and(|timer| !timer.left().is_zero()) {
                continue;
            }
            let Some(call) = call_for(&device) else {
                self.shared.devices.confirm(&device);
                continue;
            };
            match self.call(&call).await? {
                Outcome::Done(answer) => {
                    let DeviceAnswer { rotation } = serde_json::from_str(&answer.text).unwrap_or_default();
                    rotation
                        .into_iter()
                        .for_each(|rotation| self.shared.devices.answered(&device.id, rotation));
                }
                // A refused status would be refused again; the next refresh sends it once more.
                Outcome::Refused(answer) => {
                    warn!(device = %device.id, status = %answer.status, answer = %answer.text, "Collector refused a device");
                }
                Outcome::NotNow(answer) => {
                    self.device_must_wait(&device, &answer);
                    continue;
                }
                Outcome::Unreachable => return Ok(()),
            }
            self.devices.remove(&device.id);
            self.shared.devices.confirm(&device);
        }
        Ok(())
    }

    fn device_must_wait(&mut self, device: &Unconfirmed, answer: &Answer) {
        let (min, max) = (self.config.backoff_min, self.config.backoff_max);
        let timer = self.devices.entry(device.id.clone()).or_insert_with(|| {
            let (status, text) = (answer.status, &answer.text);
            warn!(device = %device.id, %status, answer = %text, "Collector does not take a device now; trying again");
            RetryTimer::new(min, max)
        });
        timer.failed(answer.retry_after);
    }

    /// Whether the collector has answered for each device. Devices that it can't take now don't delay a flush.
    fn all_devices_were_told(&self) -> bool {
        self.shared.devices.unconfirmed().iter().all(|device| self.devices.contains_key(&device.id))
    }

    /// Makes `call` once, and records whether the collector could be reached.
    async fn call(&mut self, call: &Call) -> Result<Outcome, Stopped> {
        let answer = match self.try_call(call).await? {
            Ok(answer) => answer,
            Err(failure) => {
                self.shared.counters.retries.fetch_add(1, Ordering::Relaxed);
                self.reach.failed(None);
                if self.collector == Collector::Away {
                    debug!(collector = %self.config.endpoint, %failure, "Collector still can't be reached");
                } else {
                    warn!(collector = %self.config.endpoint, %failure, "Collector can't be reached; trying again");
                    self.collector = Collector::Away;
                }
                return Ok(Outcome::Unreachable);
            }
        };
        self.reach.succeeded();
        if self.collector != Collector::Answers {
            info!(collector = %self.config.endpoint, "Collector answers");
            self.collector = Collector::Answers;
        }
        // A device that the collector does not know counts as removed.
        let is_gone = call.method == Method::DELETE && answer.status == StatusCode::NOT_FOUND;
        Ok(if answer.status.is_success() || is_gone {
            Outcome::Done(answer)
        } else if refuses_content(answer.status) {
            Outcome::Refused(answer)
        } else {
            self.shared.counters.retries.fetch_add(1, Ordering::Relaxed);
            Outcome::NotNow(answer)
        })
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

    /// Pauses for `gather` after work, and for `idle` without any. A half full queue, a flush, and the end of the
    /// connection cut the pause short. An unreachable collector is tried again when the [`RetryTimer`] for it has
    /// run out.
    async fn pause(&mut self, idle: bool) {
        let unreachable_for = self.reach.left();
        let pause = if !unreachable_for.is_zero() {
            unreachable_for
        } else if idle {
            self.config.idle
        } else {
            self.config.gather.max(self.events.left().min(self.config.idle))
        };
        // A timeout and a wakeup are treated alike.
        let _ = tokio::time::timeout(pause, self.shared.queue.woken()).await;
        if self.lost_the_collector() {
            // The connection ended between requests. Statuses are sent again, which connects to a new collector if
            // there is a device to report.
            self.shared.devices.confirm_none();
            self.collector = Collector::Unknown;
        }
    }

    /// Whether the connection to a collector that answered has ended.
    fn lost_the_collector(&self) -> bool {
        self.collector == Collector::Answers && !self.connection.is_open()
    }
}

/// The request that reports `device`; `None` if its status can't be encoded.
fn call_for(device: &Unconfirmed) -> Option<Call> {
    let path = format!("/v1/devices/{}", percent_encode(&device.id));
    match &device.wanted {
        Wanted::Gone => Some(Call { method: Method::DELETE, path, body: Bytes::new() }),
        Wanted::Status(status) => match serde_json::to_vec(status) {
            Ok(body) => Some(Call { method: Method::PUT, path, body: body.into() }),
            Err(error) => {
                warn!(%error, "A device status can't be written as JSON");
                None
            }
        },
    }
}

/// Whether a repetition with the same content is of no use.
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
    fn an_odd_device_id_stays_one_part_of_the_path() {
        assert_eq!(percent_encode("dm0"), "dm0");
        assert_eq!(percent_encode("a/b ?"), "a%2Fb%20%3F");
    }
}
