//! The compared policies: each idea of S-11 alone, and combinations.

/// A compared policy.
#[derive(Debug)]
pub(super) struct Policy {
    pub table: Table,
    pub name: &'static str,
    pub changes: &'static [&'static str],
    /// Whether the policy was selected on the tuning week, and so is reported on the other week.
    pub chosen: bool,
}

/// The tables in which a policy is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Table {
    /// All tables: the baseline and the bound.
    All,
    /// Table A: the scheduler alone.
    A,
    /// Table B: with a request router.
    B,
}

/// The scenario that the policies change.
pub(super) const BASE: &str = "kind = \"placement\"\n[placement]\nweights = \"0-0-0\"\n";
pub(super) const BASELINE: &str = "0-0-0";
pub(super) const BOUND: &str = "oracle";

const ANY: &str = "routing.reach=any";
const LOADED: &str = "routing.policy=loaded";
const PREDICTED: &str = "slots.eviction=predicted";
/// The router sees the uses on all boards.
const SHARED: &str = "slots.remembers=cluster";
const TOGETHER: &str = "slots.queue=same-bitstream";
const MOVES: &str = "placement.move_minutes=60";
/// Units don't move; only replicas are distributed by demand each hour.
const NO_MOVES: &str = "placement.moves=0";
const TWO: &str = "placement.replicas=2";
const FOUR: &str = "placement.replicas=4";
const EIGHT: &str = "placement.replicas=8";

const AWARE: &str = "placement.weights=1-2-2";
/// Free slots have a weight too.
const FREE: &str = "placement.weights=0.5-2-2-1-0-0";
const FREE_FINE: &str = "placement.weights=1-2-2-0.5-0-0";
const FINE: &str = "placement.max_score=100";
const HERD: &str = "placement.anti_herd=on";
/// The extender's `weight` in kube-scheduler's configuration is 10, so another plugin has a tenth of that weight.
const TEN: &str = "placement.others_weight=0.1";
const ANNOTATED: &str = "freshness.interval_s=10";
const LATE: &str = "freshness.delay_ms=300";

const fn all(name: &'static str, changes: &'static [&'static str]) -> Policy {
    Policy { table: Table::All, name, changes, chosen: true }
}

const fn a(name: &'static str, changes: &'static [&'static str]) -> Policy {
    Policy { table: Table::A, name, changes, chosen: false }
}

const fn b(name: &'static str, changes: &'static [&'static str]) -> Policy {
    Policy { table: Table::B, name, changes, chosen: false }
}

impl Policy {
    const fn chosen(self) -> Self {
        Self { chosen: true, ..self }
    }
}

pub(super) const POLICIES: &[Policy] = &[
    all(BASELINE, &[]),
    all(BOUND, &[ANY, LOADED, "slots.eviction=clairvoyant"]),
    a("1-2-2", &[AWARE]),
    a("1-2-2, weight 10", &[AWARE, TEN]).chosen(),
    a("1-2-2, weight 10, anti-herd", &[AWARE, TEN, HERD]),
    a("1-2-2, weight 10, anti-herd, annotations only", &[AWARE, TEN, HERD, ANNOTATED, LATE]),
    a("loaded instead of recent", &["placement.weights=0-2-2-0-0-1", TEN]),
    a("0.5-2-2-1 (free slots), weight 10", &[FREE, TEN]),
    a("same bitstream first", &[TOGETHER]).chosen(),
    a("two replicas, no router", &[TWO]),
    a("moves", &[MOVES]),
    a("predicted eviction", &[PREDICTED]).chosen(),
    a("predicted eviction, fixed 60 s", &[PREDICTED, "slots.horizon_s=60"]),
    a("predicted eviction, same bitstream first", &[PREDICTED, TOGETHER]),
    a("predicted eviction, moves", &[PREDICTED, MOVES]).chosen(),
    a("predicted eviction, 1-2-2, weight 10, anti-herd", &[PREDICTED, AWARE, TEN, HERD]).chosen(),
    a("predicted eviction, 0.5-2-2-1, weight 10, anti-herd (shipped)", &[PREDICTED, FREE, TEN, HERD])
        .chosen(),
    a(
        "predicted eviction, 1-2-2-0.5 in steps of 1/100, weight 1, anti-herd",
        &[PREDICTED, FREE_FINE, FINE, TEN, HERD],
    ),
    a("predicted eviction, 1-2-2, weight 10, anti-herd, moves", &[PREDICTED, AWARE, TEN, HERD, MOVES])
        .chosen(),
    b("2 replicas, LRU", &[LOADED, TWO]),
    b("4 replicas, LRU", &[LOADED, FOUR]).chosen(),
    b("any node, LRU", &[LOADED, ANY]),
    b("2 replicas, predicted", &[LOADED, TWO, PREDICTED, SHARED]).chosen(),
    b("4 replicas, predicted", &[LOADED, FOUR, PREDICTED, SHARED]).chosen(),
    b("8 replicas, predicted", &[LOADED, EIGHT, PREDICTED, SHARED]).chosen(),
    b("any node, predicted", &[LOADED, ANY, PREDICTED, SHARED]).chosen(),
    b("4 replicas, predicted, each board by itself", &[LOADED, FOUR, PREDICTED]).chosen(),
    b("4 replicas, predicted, least busy instead of loaded", &[FOUR, "routing.policy=least-busy", PREDICTED]),
    b("4 replicas, predicted, same bitstream first", &[LOADED, FOUR, PREDICTED, SHARED, TOGETHER]),
    b("4 replicas, predicted, 1-2-2, weight 10", &[LOADED, FOUR, PREDICTED, SHARED, AWARE, TEN]),
    b("2 replicas, predicted, moves", &[LOADED, TWO, PREDICTED, SHARED, MOVES]),
    b("4 replicas, predicted, moves", &[LOADED, FOUR, PREDICTED, SHARED, MOVES]).chosen(),
    b(
        "2 on average by demand, predicted",
        &[LOADED, TWO, "placement.replica_budget=2", PREDICTED, SHARED, MOVES, NO_MOVES],
    )
    .chosen(),
    b(
        "4 on average by demand, predicted",
        &[LOADED, FOUR, "placement.replica_budget=4", PREDICTED, SHARED, MOVES, NO_MOVES],
    )
    .chosen(),
];
