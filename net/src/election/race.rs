//! The race for the Lease.
//!
//! Writes carry the version that was read, so that of two replicas one alone succeeds. Who holds the Lease acts only for
//! [`Timing::renew_deadline`] after it was last written, which ends before anybody else takes it.

use super::fencing::{Fencing, Requests};
use super::{LeaseFacts, LeaseStep, ObservedLease, decide};
use crate::jitter::Jitter;
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};
use k8s_openapi::jiff::Timestamp;
use kube::api::PostParams;
use kube::{Api, Client};
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::Instant;
use tracing::{info, warn};

/// Times of the election.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timing {
    /// Time after which a Lease that nobody renews is taken.
    pub duration: Duration,
    /// Time between two attempts to take or renew it.
    pub retry: Duration,
}

impl Timing {
    /// Times for a Lease of this duration, in kube-scheduler's proportions: 15, 10 and 2 seconds.
    #[must_use]
    pub fn of(duration: Duration) -> Self {
        Self { duration, retry: duration * 2 / 15 }
    }

    /// Time for which the holder acts after the last renewal.
    #[must_use]
    pub fn renew_deadline(&self) -> Duration {
        self.duration * 2 / 3
    }
}

/// Whether this replica may write.
#[derive(Debug, Clone)]
pub struct Leadership(watch::Receiver<Option<Instant>>);

impl Leadership {
    /// Whether this replica holds the Lease, and long enough for a request.
    #[must_use]
    pub fn is_held(&self) -> bool {
        self.held_until().is_some_and(|until| Instant::now() < until)
    }

    /// The end of the time for which this replica holds the Lease if it can't renew it; `None` if it does not hold it.
    #[must_use]
    pub fn held_until(&self) -> Option<Instant> {
        *self.0.borrow()
    }

    /// Waits until the Lease is taken, renewed or lost. Never returns once the race has ended.
    pub async fn changed(&mut self) {
        if self.0.changed().await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}

/// A replica that races for the Lease.
#[derive(Debug)]
pub struct Election {
    leases: Api<Lease>,
    name: &'static str,
    me: String,
    timing: Timing,
    started: Instant,
    observed: Option<ObservedLease>,
    until: watch::Sender<Option<Instant>>,
    requests: Requests,
}

impl Election {
    /// The race for the Lease `namespace`/`name` as `me`, and whether it is won.
    #[must_use]
    pub fn new(
        client: Client,
        namespace: &str,
        name: &'static str,
        me: String,
        timing: Timing,
    ) -> (Self, Leadership) {
        let (until, held) = watch::channel(None);
        let leases = Api::namespaced(client, namespace);
        let (started, requests) = (Instant::now(), Requests::none());
        let election = Self { leases, name, me, timing, started, observed: None, until, requests };
        (election, Leadership(held))
    }

    /// The fencing token in this race's Lease.
    #[must_use]
    pub fn fencing(&mut self) -> Fencing {
        let (fencing, requests) = Requests::channel();
        self.requests = requests;
        fencing
    }

    /// Takes and renews the Lease until `stop` is true, and gives it back then.
    pub async fn run(mut self, mut stop: watch::Receiver<bool>) {
        let mut jitter = Jitter::new();
        loop {
            let asked = Instant::now();
            match tokio::time::timeout(self.timing.renew_deadline() / 2, self.attempt()).await {
                Ok(Ok(true)) => self.hold(asked + self.timing.renew_deadline()),
                Ok(Ok(false)) => self.lose(),
                Ok(Err(error)) => warn!(%error, "The lease could not be asked for, trying again"),
                Err(_) => warn!("The API server does not answer for the lease, trying again"),
            }
            let pause = tokio::time::sleep(self.timing.retry.mul_f64(0.9 + 0.2 * jitter.fraction()));
            tokio::select! {
                () = pause => {}
                // The Lease has one writer in this process, so that writers do not outdate each other's versions.
                Some(request) = self.requests.next() => {
                    request.carry_out(&self.leases, self.name, &self.me).await;
                }
                () = stopped(&mut stop) => break,
            }
        }
        if self.until.send_replace(None).is_some() {
            self.give_back().await;
        }
    }

    fn hold(&self, until: Instant) {
        if self.until.send_replace(Some(until)).is_none() {
            info!(me = self.me, "This replica leads");
        }
    }

    fn lose(&self) {
        if self.until.send_replace(None).is_some() {
            warn!(me = self.me, "Another replica leads");
        }
    }

    /// Takes or renews the Lease if that is due. True if this replica holds it now.
    async fn attempt(&mut self) -> kube::Result<bool> {
        let Some(mut lease) = self.leases.get_opt(self.name).await? else {
            let metadata = ObjectMeta { name: Some(self.name.into()), ..ObjectMeta::default() };
            let spec = Some(self.spec(&LeaseSpec::default()));
            let lease = Lease { metadata, spec };
            return won(self.leases.create(&PostParams::default(), &lease).await);
        };
        let now = self.started.elapsed();
        let observed = ObservedLease::read(facts(&lease), self.observed.take(), now);
        let step = decide(&observed, &self.me, now);
        self.observed = Some(observed);
        if step == LeaseStep::Wait {
            return Ok(false);
        }
        lease.spec = Some(self.spec(&lease.spec.take().unwrap_or_default()));
        won(self.leases.replace(self.name, &PostParams::default(), &lease).await)
    }

    /// The Lease in this replica's hand, after it was as `before` says.
    fn spec(&self, before: &LeaseSpec) -> LeaseSpec {
        let now = Some(MicroTime(Timestamp::now()));
        let is_mine = before.holder_identity.as_deref() == Some(&self.me);
        let transitions = before.lease_transitions.unwrap_or(0);
        LeaseSpec {
            holder_identity: Some(self.me.clone()),
            lease_duration_seconds: Some(i32::try_from(self.timing.duration.as_secs()).unwrap_or(i32::MAX)),
            acquire_time: if is_mine { before.acquire_time.clone() } else { now.clone() },
            renew_time: now,
            lease_transitions: Some(if is_mine { transitions } else { transitions.saturating_add(1) }),
            ..LeaseSpec::default()
        }
    }

    /// Lets the next replica take the Lease at once. A failure costs its duration.
    async fn give_back(&self) {
        let give = async {
            let Some(mut lease) = self.leases.get_opt(self.name).await? else { return Ok(()) };
            if facts(&lease).holder == self.me {
                if let Some(spec) = &mut lease.spec {
                    spec.holder_identity = Some(String::new());
                }
                self.leases.replace(self.name, &PostParams::default(), &lease).await?;
            }
            Ok::<_, kube::Error>(())
        };
        match tokio::time::timeout(self.timing.retry, give).await {
            Ok(Ok(())) => info!(me = self.me, "The lease is given back"),
            Ok(Err(error)) => warn!(%error, "The lease is not given back"),
            Err(_) => warn!("The lease is not given back: the API server does not answer"),
        }
    }
}

async fn stopped(stop: &mut watch::Receiver<bool>) {
    // An error means that the sender is gone, which is an end as well.
    let _ = stop.wait_for(|stop| *stop).await;
}

fn facts(lease: &Lease) -> LeaseFacts {
    let spec = lease.spec.clone().unwrap_or_default();
    let seconds = u64::try_from(spec.lease_duration_seconds.unwrap_or(0)).unwrap_or(0);
    LeaseFacts {
        holder: spec.holder_identity.unwrap_or_default(),
        duration: Duration::from_secs(seconds),
        renewed: spec.renew_time.map(|time| time.0.to_string()).unwrap_or_default(),
    }
}

/// Whether a write of the Lease succeeded. That another replica was faster is no error.
fn won(written: kube::Result<Lease>) -> kube::Result<bool> {
    match written {
        Ok(_) => Ok(true),
        Err(kube::Error::Api(status)) if status.code == 409 => Ok(false),
        Err(error) => Err(error),
    }
}
