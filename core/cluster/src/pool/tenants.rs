//! What the tenants of a pool may have, and whose turn it is to get a slot.
//!
//! Turns are a deficit round-robin (Shreedhar and Varghese 1995) over slot time: when a tenant's turn comes, it gets
//! weight × quantum, and it keeps the turn while that pays for its next job. A job pays the time that its bytes are
//! expected to take at its start, and the difference to the measured time at its end.

use super::{AcceleratorId, Bytes, TenantId};
use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::time::Duration;

/// What a tenant of the pool may have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TenantRules {
    /// Share of the slot time, while other tenants wait as well, in proportion to their weights.
    pub weight: NonZeroU32,
    /// Maximum number of waiting jobs.
    pub waiting_jobs: usize,
    /// Maximum number of bytes of all waiting jobs.
    pub waiting_bytes: u64,
    /// Maximum number of slots that jobs and groups hold at the same time.
    pub held_slots: u32,
}

impl Default for TenantRules {
    /// Weight 1 and no quotas.
    fn default() -> Self {
        Self {
            weight: NonZeroU32::MIN,
            waiting_jobs: usize::MAX,
            waiting_bytes: u64::MAX,
            held_slots: u32::MAX,
        }
    }
}

/// A quota refuses a job. The message says what to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum QuotaError {
    /// The maximum number of the tenant's jobs waits already.
    #[error(
        "{quota} jobs of the namespace wait, as many as its quota allows: wait until one of them starts, cancel one, \
         or have the quota of waiting jobs raised"
    )]
    WaitingJobs {
        /// The quota.
        quota: usize,
    },
    /// The tenant's waiting jobs would have too many bytes.
    #[error(
        "the job of {size} bytes and the namespace's waiting jobs of {waiting} bytes exceed its quota of {quota} bytes: \
         wait until some of them start, split the job, or have the quota of bytes raised"
    )]
    WaitingBytes {
        /// Bytes of the job.
        size: u64,
        /// Bytes that wait already.
        waiting: u64,
        /// The quota.
        quota: u64,
    },
    /// The tenant may hold no slot at all, or fewer than it asks for.
    #[error(
        "the namespace may hold {quota} slots, and this needs {wanted}: ask for fewer, or have the quota of slots raised"
    )]
    HeldSlots {
        /// Number of slots asked for.
        wanted: u32,
        /// The quota.
        quota: u32,
    },
}

impl TenantRules {
    /// Whether a tenant with `jobs` waiting jobs of `bytes` bytes may add `more` of `size` bytes.
    ///
    /// # Errors
    /// [`QuotaError`].
    pub fn admit(&self, (jobs, more): (usize, usize), bytes: u64, size: Bytes) -> Result<(), QuotaError> {
        if self.held_slots == 0 {
            return Err(QuotaError::HeldSlots { wanted: 1, quota: 0 });
        }
        if jobs.saturating_add(more) > self.waiting_jobs {
            return Err(QuotaError::WaitingJobs { quota: self.waiting_jobs });
        }
        if bytes.saturating_add(size.0) > self.waiting_bytes {
            let quota = self.waiting_bytes;
            return Err(QuotaError::WaitingBytes { size: size.0, waiting: bytes, quota });
        }
        Ok(())
    }
}

/// The accounts of all tenants.
#[derive(Debug)]
pub(super) struct Tenants {
    accounts: BTreeMap<TenantId, Account>,
    /// The tenant whose turn it is. It has got its quantum for this turn.
    turn: Option<TenantId>,
    /// Number of times that no job waited. A balance lasts as long as somebody waits.
    epoch: u64,
    speeds: BTreeMap<AcceleratorId, Speed>,
}

#[derive(Debug, Clone, Copy, Default)]
struct Account {
    rules: TenantRules,
    held: u32,
    /// Balance of slot time, in ns.
    balance: i64,
    epoch: u64,
}

/// Slot time and bytes of an accelerator's last jobs.
#[derive(Debug, Clone, Copy)]
struct Speed {
    nanos: u64,
    bytes: u64,
}

/// A tenant's next job, with its price in ns.
#[derive(Debug, Clone, Copy)]
pub(super) struct Turn<T> {
    pub(super) tenant: TenantId,
    pub(super) price: i64,
    pub(super) next: T,
}

/// The price that a running job has paid.
#[derive(Debug, Clone, Copy)]
pub(super) struct Paid {
    price: i64,
    epoch: u64,
}

/// What a tenant of weight 1 gets in its turn, in ns.
const QUANTUM: i64 = 1_000_000_000;

/// The greatest price, in ns: 36 years. Sums of a few prices do not overflow.
const MOST_PRICE: i64 = 1 << 60;

/// An accelerator that has not run yet is expected to process 1 GB/s.
const UNKNOWN: Speed = Speed { nanos: 1, bytes: 1 };

/// Bytes that a measured speed counts at most: older jobs count less and less.
const SPEED_BYTES: u64 = 1 << 33;

impl Tenants {
    pub(super) fn new() -> Self {
        Self { accounts: BTreeMap::new(), turn: None, epoch: 0, speeds: BTreeMap::new() }
    }

    pub(super) fn rules(&self, tenant: TenantId) -> TenantRules {
        self.accounts.get(&tenant).map_or_else(TenantRules::default, |account| account.rules)
    }

    pub(super) fn set_rules(&mut self, tenant: TenantId, rules: TenantRules) {
        self.account(tenant).rules = rules;
    }

    /// Number of slots that the tenant holds.
    pub(super) fn held(&self, tenant: TenantId) -> u32 {
        self.accounts.get(&tenant).map_or(0, |account| account.held)
    }

    /// Whether the tenant may hold so many more slots.
    pub(super) fn may_hold(&self, tenant: TenantId, more: usize) -> bool {
        more <= self.rules(tenant).held_slots.saturating_sub(self.held(tenant)) as usize
    }

    pub(super) fn hold(&mut self, tenant: TenantId) {
        self.account(tenant).held += 1;
    }

    pub(super) fn release(&mut self, tenant: TenantId) {
        self.account(tenant).held -= 1;
    }

    /// The tenant whose turn it is.
    pub(super) fn turn(&self) -> Option<TenantId> {
        self.turn
    }

    /// The slot time that a job is expected to take, in ns.
    pub(super) fn price(&self, accelerator: AcceleratorId, size: Bytes) -> i64 {
        let speed = self.speeds.get(&accelerator).copied().unwrap_or(UNKNOWN);
        let nanos = u128::from(size.0) * u128::from(speed.nanos) / u128::from(speed.bytes.max(1));
        i64::try_from(nanos).unwrap_or(MOST_PRICE).clamp(1, MOST_PRICE)
    }

    /// Takes the price of a job that starts from the tenant's balance.
    pub(super) fn pay(&mut self, tenant: TenantId, price: i64) -> Paid {
        let account = self.account(tenant);
        account.balance = account.balance.saturating_sub(price);
        Paid { price, epoch: self.epoch }
    }

    /// Replaces what a job has paid by the time that it held its slot.
    pub(super) fn settle(&mut self, tenant: TenantId, paid: Paid, held: Duration) {
        // A balance of before everybody was served is forgotten.
        if paid.epoch == self.epoch {
            let account = self.account(tenant);
            account.balance = account.balance.saturating_add(paid.price).saturating_sub(nanos(held));
        }
    }

    /// Learns from a job how fast an accelerator is.
    pub(super) fn learn(&mut self, accelerator: AcceleratorId, processed: Bytes, held: Duration) {
        if processed.0 == 0 {
            return;
        }
        let speed = self.speeds.entry(accelerator).or_insert(Speed { nanos: 0, bytes: 0 });
        speed.nanos = speed.nanos.saturating_add(nanos(held).unsigned_abs());
        speed.bytes = speed.bytes.saturating_add(processed.0);
        while speed.bytes > SPEED_BYTES {
            speed.nanos /= 2;
            speed.bytes /= 2;
        }
    }

    /// The tenant has no waiting job left: it saves nothing for later.
    pub(super) fn has_none_waiting(&mut self, tenant: TenantId) {
        let account = self.account(tenant);
        account.balance = account.balance.min(0);
    }

    /// No job waits: what tenants owe concerns nobody any longer.
    pub(super) fn nobody_waits(&mut self) {
        self.epoch += 1;
        self.turn = None;
    }

    /// Whether the turn of the tenant whose turn it is pays for its next job.
    pub(super) fn can_pay(&mut self, tenant: TenantId, price: i64) -> bool {
        self.account(tenant).balance >= price
    }

    /// Chooses among tenants, which are in the order of their numbers. A tenant that was not asked gets nothing.
    pub(super) fn choose<T: Copy>(&mut self, tenants: &[Turn<T>]) -> Option<Turn<T>> {
        if let Some(current) = tenants.iter().find(|one| Some(one.tenant) == self.turn)
            && self.can_pay(current.tenant, current.price)
        {
            return Some(*current);
        }
        // The order of turns begins after the tenant whose turn it was.
        let after = self.turn.map_or(0, |turn| tenants.partition_point(|one| one.tenant <= turn));
        let (earlier, later) = tenants.split_at_checked(after).unwrap_or((tenants, &[]));
        let in_turn = || later.iter().chain(earlier);
        // A tenant goes on with what is left of a turn that it had to interrupt, for want of a job that fits.
        let able = in_turn().find(|one| self.can_pay(one.tenant, one.price)).copied();
        let chosen = able.or_else(|| {
            // Skip the rounds in which no tenant can pay for its job, all but the last.
            let rounds = tenants.iter().map(|one| self.rounds_to_pay(one)).min()?;
            if rounds > 1 {
                for one in tenants {
                    self.top_up(one.tenant, rounds - 1);
                }
            }
            in_turn().copied().find(|one| {
                self.top_up(one.tenant, 1);
                self.can_pay(one.tenant, one.price)
            })
        })?;
        self.turn = Some(chosen.tenant);
        Some(chosen)
    }

    /// Number of turns, at least 1, until the tenant can pay for its next job.
    fn rounds_to_pay<T>(&mut self, one: &Turn<T>) -> i64 {
        let account = self.account(one.tenant);
        let (lacking, per_turn) = (one.price.saturating_sub(account.balance), account.per_turn());
        lacking.saturating_add(per_turn - 1).checked_div(per_turn).unwrap_or(1).max(1)
    }

    fn top_up(&mut self, tenant: TenantId, turns: i64) {
        let account = self.account(tenant);
        account.balance = account.balance.saturating_add(account.per_turn().saturating_mul(turns));
    }

    fn account(&mut self, tenant: TenantId) -> &mut Account {
        let account = self.accounts.entry(tenant).or_default();
        if account.epoch != self.epoch {
            account.epoch = self.epoch;
            account.balance = 0;
        }
        account
    }
}

fn nanos(time: Duration) -> i64 {
    i64::try_from(time.as_nanos()).unwrap_or(i64::MAX)
}

impl Account {
    fn per_turn(&self) -> i64 {
        QUANTUM.saturating_mul(i64::from(self.rules.weight.get()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: i64 = 1_000_000_000;

    fn turn(tenant: u32, price: i64) -> Turn<()> {
        Turn { tenant: TenantId(tenant), price, next: () }
    }

    /// The tenants that get the next slots, if each always has a job at this price.
    fn chosen(tenants: &mut Tenants, turns: &[Turn<()>], times: usize) -> Vec<u32> {
        let mut next = || {
            let turn = tenants.choose(turns)?;
            tenants.pay(turn.tenant, turn.price);
            Some(turn.tenant.0)
        };
        (0..times).map_while(|_| next()).collect()
    }

    #[test]
    fn a_turn_lasts_as_long_as_the_quantum_pays() {
        let mut tenants = Tenants::new();
        let rules = TenantRules { weight: NonZeroU32::new(2).unwrap(), ..TenantRules::default() };
        tenants.set_rules(TenantId(2), rules);
        let turns = [turn(1, SECOND / 2), turn(2, SECOND / 2)];
        // Two jobs in a turn of weight 1, four in a turn of weight 2.
        assert_eq!(chosen(&mut tenants, &turns, 12), [1, 1, 2, 2, 2, 2, 1, 1, 2, 2, 2, 2]);
        assert_eq!(chosen(&mut tenants, &[], 1), [0; 0]);
    }

    #[test]
    fn jobs_that_cost_more_than_a_quantum_need_several_turns() {
        let mut tenants = Tenants::new();
        // Ten thousand turns for one job of the first tenant: the second has so many jobs meanwhile.
        let turns = [turn(1, 10_000 * SECOND), turn(2, SECOND)];
        let first = chosen(&mut tenants, &turns, 20_002);
        assert_eq!(first.iter().filter(|tenant| **tenant == 1).count(), 2);
        assert_eq!(chosen(&mut Tenants::new(), &[turn(1, MOST_PRICE)], 3), [1, 1, 1]);
    }

    #[test]
    fn a_tenant_whose_turn_is_interrupted_gains_nothing_by_it() {
        let mut tenants = Tenants::new();
        // The tenants never have a job that fits the same slot.
        for _ in 0..1000 {
            for tenant in [1, 2] {
                assert_eq!(chosen(&mut tenants, &[turn(tenant, SECOND / 100)], 1), [tenant]);
            }
        }
        assert!([1, 2].iter().all(|tenant| tenants.account(TenantId(*tenant)).balance <= SECOND));
    }

    #[test]
    fn the_measured_time_replaces_the_expected_one() {
        let mut tenants = Tenants::new();
        let aes = AcceleratorId(1);
        assert_eq!(tenants.price(aes, Bytes(4_000_000)), 4_000_000);
        tenants.learn(aes, Bytes(1_000), Duration::from_nanos(20_000));
        assert_eq!(tenants.price(aes, Bytes(4_000_000)), 80_000_000);
        assert_eq!(tenants.price(aes, Bytes(u64::MAX)), MOST_PRICE);
        let paid = tenants.pay(TenantId(1), SECOND);
        tenants.settle(TenantId(1), paid, Duration::from_secs(3));
        assert_eq!(tenants.account(TenantId(1)).balance, -3 * SECOND);
    }

    #[test]
    fn a_balance_lasts_as_long_as_somebody_waits() {
        let mut tenants = Tenants::new();
        let paid = tenants.pay(TenantId(1), SECOND);
        tenants.has_none_waiting(TenantId(1));
        assert_eq!(tenants.account(TenantId(1)).balance, -SECOND);
        tenants.nobody_waits();
        // The price was forgotten, so the measured time is.
        tenants.settle(TenantId(1), paid, Duration::from_secs(3));
        assert_eq!(tenants.account(TenantId(1)).balance, 0);
    }
}
