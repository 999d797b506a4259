//! Chooses the session whose first waiting task starts next, by the manager's rules (T-1).
//!
//! The chooser sees only the first waiting task of each session, so no policy can change the order of one session's
//! tasks. Shares belong to tenants: a tenant gains nothing by opening more sessions. Among the sessions of one
//! tenant, arrival decides.

use super::Tenant;
use super::policy::{DispatchPolicy, DispatchRules, Share};
use crate::slots::SessionId;
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::time::Duration;

/// Maximum number of tenants with an account. All accounts are dropped when there would be more, and when the device
/// idles.
const MAX_ACCOUNTS: usize = 4096;

/// Divisor of the waiting time that is taken off a task's expected time under [`DispatchPolicy::ShortestFirst`].
const WAIT_DIVISOR: u32 = 8;

/// The first waiting task of a session.
#[derive(Debug, Clone, Copy)]
pub(super) struct Head<'a> {
    pub(super) session: SessionId,
    pub(super) tenant: &'a Tenant,
    /// When the task was submitted.
    pub(super) since: Duration,
    /// Device time that the profile predicts; `None` for a kind without measurements.
    pub(super) expected: Option<Duration>,
}

/// The rules, and the tenants' accounts that they need.
#[derive(Debug)]
pub(super) struct Chooser {
    rules: DispatchRules,
    accounts: BTreeMap<Tenant, Account>,
    /// The tenant whose turn it is under deficit round-robin. It has got its quantum for this turn.
    turn: Option<Tenant>,
    turns: u64,
}

#[derive(Debug, Default, Clone, Copy)]
struct Account {
    /// Device time that the tenant may still use in its turn, in ns; below 0 if a task took longer than expected.
    deficit: i64,
    /// Number of the tenant's last start; 0 if no task of it has started.
    last_start: u64,
}

impl Chooser {
    pub(super) fn new(rules: DispatchRules) -> Self {
        Self { rules, accounts: BTreeMap::new(), turn: None, turns: 0 }
    }

    pub(super) fn rules(&self) -> &DispatchRules {
        &self.rules
    }

    /// Replaces the rules and forgets all accounts.
    pub(super) fn set_rules(&mut self, rules: DispatchRules) {
        *self = Self::new(rules);
    }

    /// The session whose head starts next. Repeated calls return the same session until something changes.
    ///
    /// `heads` must be in the order of their arrival.
    pub(super) fn choose<'a>(
        &mut self,
        mut heads: impl Iterator<Item = Head<'a>>,
        now: Duration,
    ) -> Option<SessionId> {
        let chosen = match self.rules.policy {
            // `min_by_key` returns the first of equal elements: the one that arrived first.
            DispatchPolicy::Fifo => heads.next(),
            DispatchPolicy::RoundRobin => heads.min_by_key(|head| self.account(head.tenant).last_start),
            DispatchPolicy::DeficitRoundRobin => return self.choose_by_deficit(heads),
            DispatchPolicy::Priority => heads.min_by_key(|head| Reverse(self.priority(head, now))),
            DispatchPolicy::ShortestFirst => heads.min_by_key(|head| {
                let waited = now.saturating_sub(head.since);
                head.expected.unwrap_or_default().saturating_sub(waited / WAIT_DIVISOR)
            }),
            DispatchPolicy::EarliestDeadline => {
                heads.min_by_key(|head| head.since.saturating_add(self.share(head.tenant).deadline))
            }
        };
        chosen.map(|head| head.session)
    }

    /// Charges the tenant of a task with slots that has started, and whose device time is expected to be `expected`.
    pub(super) fn started(&mut self, tenant: &Tenant, expected: Option<Duration>) {
        if !self.keeps_accounts() {
            return;
        }
        self.turns += 1;
        let turn = self.turns;
        if self.accounts.len() >= MAX_ACCOUNTS && !self.accounts.contains_key(tenant) {
            self.accounts.clear();
        }
        let price = self.price(expected);
        let account = self.accounts.entry(tenant.clone()).or_default();
        account.last_start = turn;
        account.deficit = account.deficit.saturating_sub(price);
    }

    /// Replaces the expected time by the measured one on the tenant's account, when a task with slots has ended.
    pub(super) fn ended(&mut self, tenant: &Tenant, expected: Option<Duration>, took: Duration) {
        let correction = self.price(expected).saturating_sub(ns(took));
        if let Some(account) = self.accounts.get_mut(tenant) {
            account.deficit = account.deficit.saturating_add(correction);
        }
    }

    /// Clears all accounts: no task waits or runs.
    pub(super) fn idle(&mut self) {
        self.accounts.clear();
        self.turn = None;
    }

    fn keeps_accounts(&self) -> bool {
        matches!(self.rules.policy, DispatchPolicy::RoundRobin | DispatchPolicy::DeficitRoundRobin)
    }

    /// The price of a task at its start, in ns: its expected time, or a quantum if that is unknown.
    fn price(&self, expected: Option<Duration>) -> i64 {
        ns(expected.unwrap_or(self.rules.quantum))
    }

    fn share(&self, tenant: &Tenant) -> Share {
        self.rules.share(tenant)
    }

    fn account(&self, tenant: &Tenant) -> Account {
        self.accounts.get(tenant).copied().unwrap_or_default()
    }

    fn priority(&self, head: &Head<'_>, now: Duration) -> u128 {
        let waited = now.saturating_sub(head.since).as_nanos();
        u128::from(self.share(head.tenant).priority) + waited / self.rules.ageing.as_nanos().max(1)
    }

    /// Deficit round-robin (Shreedhar and Varghese 1995) over device time. When a tenant's turn comes, it gets weight
    /// × quantum, and it keeps the turn while that pays for its next task. A task pays its expected time at its
    /// start; its end settles the difference to the measured time.
    fn choose_by_deficit<'a>(&mut self, heads: impl Iterator<Item = Head<'a>>) -> Option<SessionId> {
        let mut waiting: BTreeMap<&Tenant, Head<'a>> = BTreeMap::new();
        for head in heads {
            waiting.entry(head.tenant).or_insert(head);
        }
        // A tenant without waiting tasks saves nothing for later.
        for (tenant, account) in &mut self.accounts {
            if account.deficit > 0 && !waiting.contains_key(tenant) {
                account.deficit = 0;
            }
        }
        let affordable = |chooser: &Self, head: &Head<'_>| {
            chooser.account(head.tenant).deficit >= chooser.price(head.expected)
        };
        if let Some(head) = self.turn.as_ref().and_then(|turn| waiting.get(turn))
            && affordable(self, head)
        {
            return Some(head.session);
        }
        // Skip the rounds in which no tenant could afford its task, all but the last.
        let rounds = waiting.values().map(|head| self.rounds_to_afford(head)).min()?;
        if rounds > 1 {
            for tenant in waiting.keys() {
                self.top_up(tenant, rounds - 1);
            }
        }
        // One round, from the tenant after the one whose turn it was: at least one tenant can afford its task.
        let after = self.turn.take();
        let later = waiting.iter().filter(|(tenant, _)| after.as_ref().is_none_or(|after| **tenant > after));
        let earlier =
            waiting.iter().filter(|(tenant, _)| after.as_ref().is_some_and(|after| **tenant <= after));
        for (tenant, head) in later.chain(earlier) {
            self.top_up(tenant, 1);
            if affordable(self, head) {
                self.turn = Some((*tenant).clone());
                return Some(head.session);
            }
        }
        None
    }

    /// Number of turns, at least 1, until the tenant can afford its next task.
    fn rounds_to_afford(&self, head: &Head<'_>) -> i64 {
        let lacking = self.price(head.expected).saturating_sub(self.account(head.tenant).deficit);
        let per_turn = self.per_turn(head.tenant);
        lacking.saturating_add(per_turn - 1).checked_div(per_turn).unwrap_or(1).max(1)
    }

    fn per_turn(&self, tenant: &Tenant) -> i64 {
        ns(self.rules.quantum).saturating_mul(i64::from(self.share(tenant).weight.get())).max(1)
    }

    fn top_up(&mut self, tenant: &Tenant, turns: i64) {
        let more = self.per_turn(tenant).saturating_mul(turns);
        let account = self.accounts.entry(tenant.clone()).or_default();
        account.deficit = account.deficit.saturating_add(more);
    }
}

fn ns(duration: Duration) -> i64 {
    i64::try_from(duration.as_nanos()).unwrap_or(i64::MAX)
}
