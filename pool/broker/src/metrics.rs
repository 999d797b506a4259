//! The metrics at `/metrics`.

use fpga_core::units::Millis;
use fpga_net::label_texts;
use fpga_pool_api::v1;
use fpga_pool_leases::messages::{CancelCause, Refusal};
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::{Registry, Unit};
use std::sync::atomic::AtomicU64;
use std::time::Duration;

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct CauseLabels {
    cause: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct PeerLabels {
    peer: Peer,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct SlotLabels {
    board: String,
    state: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct TenantLabels {
    tenant: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct GroupLabels {
    tenant: String,
    goal: &'static str,
}

/// Which kind of peer a stream belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Peer {
    /// A device manager.
    Manager,
    /// A client of jobs.
    Client,
}

label_texts! {
    Peer { Manager => "manager", Client => "client" }
}

/// The metrics of a broker.
#[derive(Debug, Clone)]
pub struct Metrics {
    /// Decisions that were carried out: jobs that got a slot.
    pub grants: Counter,
    /// Leases whose end was asked for.
    pub recalls: Counter,
    /// 1 if this broker grants.
    pub active: Gauge,
    refusals: Family<CauseLabels, Counter>,
    cancelled: Family<CauseLabels, Counter>,
    refused_messages: Family<CauseLabels, Counter>,
    streams: Family<PeerLabels, Gauge>,
    waits: Histogram,
    decisions: Histogram,
    slots: Family<SlotLabels, Gauge>,
    waiting: Family<TenantLabels, Gauge>,
    held: Family<TenantLabels, Gauge>,
    groups: Family<GroupLabels, Gauge>,
    longest_wait: Gauge<f64, AtomicU64>,
}

impl Metrics {
    /// Metrics that `registry` shows.
    pub fn register(registry: &mut Registry) -> Self {
        let metrics = Self {
            grants: Counter::default(),
            recalls: Counter::default(),
            active: Gauge::default(),
            refusals: Family::default(),
            cancelled: Family::default(),
            refused_messages: Family::default(),
            streams: Family::default(),
            // 1 ms to 4 hours.
            waits: Histogram::new(exponential_buckets(0.001, 4.0, 12)),
            // 1 µs to 1 s.
            decisions: Histogram::new(exponential_buckets(1e-6, 4.0, 10)),
            slots: Family::default(),
            waiting: Family::default(),
            held: Family::default(),
            groups: Family::default(),
            longest_wait: Gauge::default(),
        };
        let of = metrics.clone();
        registry.register("grants", "Jobs that got a slot", of.grants);
        registry.register("recalls", "Leases whose end was asked for", of.recalls);
        registry.register("active", "1 if this broker grants", of.active);
        registry.register("refusals", "Leases that a device manager refused", of.refusals);
        registry.register("cancelled_jobs", "Waiting jobs that won't get a slot", of.cancelled);
        registry.register("refused_messages", "What peers sent against the protocol", of.refused_messages);
        registry.register("streams", "Open streams", of.streams);
        registry.register_with_unit("wait", "Time from first arrival to offer", Unit::Seconds, of.waits);
        registry.register_with_unit("decision", "Time for a message", Unit::Seconds, of.decisions);
        registry.register("slots", "Lent slots by kind of board and state", of.slots);
        registry.register("waiting_jobs", "Waiting jobs by namespace", of.waiting);
        registry.register("held_slots", "Slots that jobs and groups hold, by namespace", of.held);
        registry.register(
            "groups",
            "Open groups by namespace, and what is forecast of their goals",
            of.groups,
        );
        registry.register_with_unit(
            "longest_wait",
            "Time since the first arrival of the job that has waited for longest",
            Unit::Seconds,
            of.longest_wait,
        );
        metrics
    }

    /// Counts an offer of a job that has waited so long.
    pub fn offered(&self, waited: Millis) {
        self.waits.observe(Duration::from(waited).as_secs_f64());
    }

    /// Counts the time that a message took.
    pub fn decided(&self, took: Duration) {
        self.decisions.observe(took.as_secs_f64());
    }

    /// Counts a refused lease.
    pub fn refused(&self, why: Refusal) {
        let cause = match why {
            Refusal::OldTerm { .. } => "old_term",
            Refusal::OtherIncarnation => "other_incarnation",
            Refusal::NoSuchSlot => "no_such_slot",
            Refusal::NotFree => "not_free",
            Refusal::Ended => "ended",
            Refusal::BadBitstream => "bad_bitstream",
            Refusal::LoadFailed => "load_failed",
            Refusal::NoFile => "no_file",
            Refusal::Recalled => "recalled",
        };
        self.refusals.get_or_create(&CauseLabels { cause }).inc();
    }

    /// Counts a job that won't get a slot.
    pub fn cancelled(&self, why: CancelCause) {
        let cause = match why {
            CancelCause::NoFittingSlot => "no_fitting_slot",
            CancelCause::Full => "full",
            CancelCause::Quota => "quota",
            CancelCause::Foreign => "foreign",
            CancelCause::Incomplete => "incomplete",
        };
        self.cancelled.get_or_create(&CauseLabels { cause }).inc();
    }

    /// Counts a ticket that no broker of the pool has made.
    pub fn refused_ticket(&self) {
        self.refused_message("ticket");
    }

    /// Counts what a peer sent against the protocol.
    pub fn refused_message(&self, cause: &'static str) {
        self.refused_messages.get_or_create(&CauseLabels { cause }).inc();
    }

    /// A stream begins.
    pub fn stream_begins(&self, peer: Peer) {
        self.streams.get_or_create(&PeerLabels { peer }).inc();
    }

    /// A stream ends.
    pub fn stream_ends(&self, peer: Peer) {
        self.streams.get_or_create(&PeerLabels { peer }).dec();
    }

    /// Forgets what shows the present of a pool: another broker shows it now.
    pub fn forget(&self) {
        self.set_slots([]);
        self.set_tenants([]);
        self.set_groups([]);
        self.set_longest_wait(None);
    }

    /// Replaces the numbers of slots, by kind of board and state.
    pub fn set_slots(&self, slots: impl IntoIterator<Item = ((String, &'static str), i64)>) {
        self.slots.clear();
        for ((board, state), count) in slots {
            self.slots.get_or_create(&SlotLabels { board, state }).set(count);
        }
    }

    /// Replaces what tenants have: their waiting jobs and held slots.
    pub fn set_tenants(&self, tenants: impl IntoIterator<Item = (String, u64, u32)>) {
        self.waiting.clear();
        self.held.clear();
        for (tenant, waiting, held) in tenants {
            let labels = TenantLabels { tenant };
            self.waiting.get_or_create(&labels).set(i64::try_from(waiting).unwrap_or(i64::MAX));
            self.held.get_or_create(&labels).set(i64::from(held));
        }
    }
    /// Replaces the numbers of groups, by what becomes of their goals and by tenant.
    pub fn set_groups(&self, groups: impl IntoIterator<Item = (v1::Outlook, String)>) {
        self.groups.clear();
        for (outlook, tenant) in groups {
            let goal = match outlook {
                v1::Outlook::Unspecified => "unknown",
                v1::Outlook::Kept => "kept",
                v1::Outlook::Missed => "missed",
            };
            self.groups.get_or_create(&GroupLabels { tenant, goal }).inc();
        }
    }

    /// Replaces the longest time for which a job has waited; none waits without one.
    pub fn set_longest_wait(&self, longest: Option<Millis>) {
        self.longest_wait.set(longest.map_or(0.0, |longest| Duration::from(longest).as_secs_f64()));
    }
}
