//! Chooses the session whose first waiting task starts next, by the manager's rules (T-1).
//!
//! It sees the heads of the sessions only, so that no policy can change the order of one session's tasks. Shares are
//! the tenants': a tenant gains nothing by opening more sessions. Among a tenant's own sessions arrival decides.

use super::Tenant;
use super::policy::{Policy, Rules, Share};
use crate::slots::SessionId;
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::time::Duration;

/// Tenants that are remembered while they wait for nothing; more are forgotten, as is everybody when the device idles.
const MAX_ACCOUNTS: usize = 4096;

/// The part of the waiting time by which a task counts as shorter under [`Policy::ShortestFirst`].
const PATIENCE: u32 = 8;

/// The first waiting task of a session.
#[derive(Debug, Clone, Copy)]
pub(super) struct Head<'a> {
    pub(super) session: SessionId,
    pub(super) tenant: &'a Tenant,
    /// When it came.
    pub(super) since: Duration,
    /// Device time by the profile; nothing where there is none.
    pub(super) expected: Option<Duration>,
}

/// The rules, and what they have to remember of the tenants.
#[derive(Debug)]
pub(super) struct Chooser {
    rules: Rules,
    accounts: BTreeMap<Tenant, Account>,
    /// Whose turn it is under deficit round-robin; it has got its quantum.
    turn: Option<Tenant>,
    turns: u64,
}

#[derive(Debug, Default, Clone, Copy)]
struct Account {
    /// Device time that the tenant may still take in its turn, in ns; below 0 where a task took more than expected.
    deficit: i64,
    /// Number of the last start; 0 if never.
    last_start: u64,
}

impl Chooser {
    pub(super) fn new(rules: Rules) -> Self {
        Self { rules, accounts: BTreeMap::new(), turn: None, turns: 0 }
    }

    pub(super) fn rules(&self) -> &Rules {
        &self.rules
    }

    /// Chooses by other rules from now on. What was taken under the old ones is forgotten.
    pub(super) fn set_rules(&mut self, rules: Rules) {
        *self = Self::new(rules);
    }

    /// The session to start next. Asked again before anything has changed, it says the same.
    ///
    /// `heads` come in the order of their arrival.
    pub(super) fn choose<'a>(
        &mut self,
        mut heads: impl Iterator<Item = Head<'a>>,
        now: Duration,
    ) -> Option<SessionId> {
        let chosen = match self.rules.policy {
            // The first of equals in each: the one that came first.
            Policy::Fifo => heads.next(),
            Policy::RoundRobin => heads.min_by_key(|head| self.account(head.tenant).last_start),
            Policy::DeficitRoundRobin => return self.choose_by_deficit(heads),
            Policy::Priority => heads.min_by_key(|head| Reverse(self.priority(head, now))),
            Policy::ShortestFirst => heads.min_by_key(|head| {
                let waited = now.saturating_sub(head.since);
                head.expected.unwrap_or_default().saturating_sub(waited / PATIENCE)
            }),
            Policy::EarliestDeadline => {
                heads.min_by_key(|head| head.since.saturating_add(self.share(head.tenant).deadline))
            }
        };
        chosen.map(|head| head.session)
    }

    /// A task with slots has started, which should take so much.
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

    /// A task that has started has ended, and took so much of the device.
    pub(super) fn ended(&mut self, tenant: &Tenant, expected: Option<Duration>, took: Duration) {
        let correction = self.price(expected).saturating_sub(ns(took));
        if let Some(account) = self.accounts.get_mut(tenant) {
            account.deficit = account.deficit.saturating_add(correction);
        }
    }

    /// Nothing waits and nothing runs: nobody owes anybody anything.
    pub(super) fn idle(&mut self) {
        self.accounts.clear();
        self.turn = None;
    }

    fn keeps_accounts(&self) -> bool {
        matches!(self.rules.policy, Policy::RoundRobin | Policy::DeficitRoundRobin)
    }

    /// What a task costs at its start: its expected time, or a quantum where nobody knows.
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

    /// Deficit round-robin (Shreedhar and Varghese 1995) over device time: a tenant whose turn comes gets weight ×
    /// quantum and keeps the turn while that lasts for its next task. Tasks are paid by their expected time at the
    /// start; what they really took is settled at the end.
    fn choose_by_deficit<'a>(&mut self, heads: impl Iterator<Item = Head<'a>>) -> Option<SessionId> {
        let mut waiting: BTreeMap<&Tenant, Head<'a>> = BTreeMap::new();
        for head in heads {
            waiting.entry(head.tenant).or_insert(head);
        }
        // Who wants nothing saves nothing.
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
        // Rounds in which nobody could afford anything are skipped, all but the last.
        let rounds = waiting.values().map(|head| self.rounds_to_afford(head)).min()?;
        if rounds > 1 {
            for tenant in waiting.keys() {
                self.top_up(tenant, rounds - 1);
            }
        }
        // One round from the tenant after the one whose turn it was: somebody can afford its task.
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

    /// How many turns a tenant needs, at least one, until it can afford its next task.
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
