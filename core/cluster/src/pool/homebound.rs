//! The jobs of a queue that wait for locality, by rank, with the number of free slots that skipped each.
//!
//! A free slot skips all jobs before a rank, and a decision asks for the first job that has waited long enough. Both may
//! concern every job, so that neither looks at each: the jobs are in a binary search tree, a part of which knows the most
//! skips and the earliest end of patience of its jobs. A skip is noted at the top of the parts that it concerns, and
//! handed down when somebody looks there. The tree is a treap (Seidel and Aragon 1996): its expected height is
//! logarithmic whatever the order of the jobs is, for its priorities are hashes of numbers that no tenant chooses.

use super::policy::Rank;
use std::time::Duration;

/// Jobs that wait for locality.
#[derive(Debug, Default)]
pub(super) struct Homebound(Tree);

/// How long a job has waited for locality, and until when it does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Patient {
    /// End of the waiting time (W).
    pub(super) until: Duration,
    /// Number of free slots that skipped the job because they were remote (D).
    pub(super) skipped: u32,
}

/// When a job has waited long enough.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct LongEnough {
    /// D: number of skips.
    pub(super) skips: u32,
    /// The present, which is at or after the end of the waiting time.
    pub(super) now: Duration,
}

type Tree = Option<Box<Node>>;

/// A job, and the part of the tree below it.
#[derive(Debug)]
struct Node {
    rank: Rank,
    job: Patient,
    /// The most skips and the earliest end of all jobs of this part.
    part: Patient,
    /// Skips of all jobs below this one, which are not noted there as yet.
    below: u32,
    priority: u64,
    left: Tree,
    right: Tree,
}

impl Homebound {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_none()
    }

    pub(super) fn insert(&mut self, rank: Rank, job: Patient) {
        let priority = hash(rank.job.0 ^ rank.arrival.number.rotate_left(32));
        let node = Node { rank, job, part: job, below: 0, priority, left: None, right: None };
        insert(&mut self.0, Box::new(node));
    }

    /// Removes a job, and says how often it was skipped.
    pub(super) fn remove(&mut self, rank: Rank) -> Option<u32> {
        remove(&mut self.0, rank)
    }

    /// The first job.
    pub(super) fn first(&self) -> Option<Rank> {
        let mut node = self.0.as_deref()?;
        while let Some(left) = node.left.as_deref() {
            node = left;
        }
        Some(node.rank)
    }

    /// The first job that has waited long enough.
    pub(super) fn first_after(&self, enough: LongEnough) -> Option<Rank> {
        first_after(self.0.as_deref(), 0, enough)
    }

    /// Counts a skip for each job that comes before `before`; `None`: for all jobs.
    pub(super) fn skip(&mut self, before: Option<Rank>) {
        match before {
            None => skip_all(&mut self.0, 1),
            Some(before) => skip(&mut self.0, before),
        }
    }
}

impl Patient {
    fn skip(&mut self, times: u32) {
        self.skipped = self.skipped.saturating_add(times);
    }

    /// Whether the job has waited long enough, or one of the part has, if `more` skips are noted above it.
    fn is_after(&self, more: u32, enough: LongEnough) -> bool {
        self.skipped.saturating_add(more) >= enough.skips || self.until <= enough.now
    }
}

impl Node {
    /// Notes for the two parts below what is noted here for them.
    fn hand_down(&mut self) {
        let times = std::mem::take(&mut self.below);
        if times > 0 {
            skip_all(&mut self.left, times);
            skip_all(&mut self.right, times);
        }
    }

    /// Computes the part anew. Nothing is noted for the parts below.
    fn sum_up(&mut self) {
        self.part = self.job;
        for below in self.left.iter().chain(&self.right) {
            self.part.skipped = self.part.skipped.max(below.part.skipped);
            self.part.until = self.part.until.min(below.part.until);
        }
    }
}

fn skip_all(tree: &mut Tree, times: u32) {
    if let Some(node) = tree {
        node.job.skip(times);
        node.part.skip(times);
        node.below = node.below.saturating_add(times);
    }
}

fn skip(tree: &mut Tree, before: Rank) {
    let Some(node) = tree else { return };
    node.hand_down();
    if node.rank < before {
        node.job.skip(1);
        skip_all(&mut node.left, 1);
        skip(&mut node.right, before);
    } else {
        skip(&mut node.left, before);
    }
    node.sum_up();
}

fn first_after(node: Option<&Node>, more: u32, enough: LongEnough) -> Option<Rank> {
    let node = node.filter(|node| node.part.is_after(more, enough))?;
    let below = more.saturating_add(node.below);
    first_after(node.left.as_deref(), below, enough)
        .or_else(|| node.job.is_after(more, enough).then_some(node.rank))
        .or_else(|| first_after(node.right.as_deref(), below, enough))
}

fn insert(tree: &mut Tree, mut new: Box<Node>) {
    match tree {
        Some(node) if node.priority >= new.priority => {
            node.hand_down();
            insert(if new.rank < node.rank { &mut node.left } else { &mut node.right }, new);
            node.sum_up();
        }
        _ => {
            (new.left, new.right) = split(tree.take(), new.rank);
            new.sum_up();
            *tree = Some(new);
        }
    }
}

fn remove(tree: &mut Tree, rank: Rank) -> Option<u32> {
    let node = tree.as_deref_mut()?;
    node.hand_down();
    if node.rank == rank {
        let node = tree.take()?;
        *tree = join(node.left, node.right);
        return Some(node.job.skipped);
    }
    let removed = remove(if rank < node.rank { &mut node.left } else { &mut node.right }, rank);
    node.sum_up();
    removed
}

/// The jobs before `at`, and the others.
fn split(tree: Tree, at: Rank) -> (Tree, Tree) {
    let Some(mut node) = tree else { return (None, None) };
    node.hand_down();
    if node.rank < at {
        let (left, right) = split(node.right.take(), at);
        node.right = left;
        node.sum_up();
        (Some(node), right)
    } else {
        let (left, right) = split(node.left.take(), at);
        node.left = right;
        node.sum_up();
        (left, Some(node))
    }
}

/// One tree of two, of which the first one's jobs come first.
fn join(left: Tree, right: Tree) -> Tree {
    let (mut left, mut right) = match (left, right) {
        (Some(left), Some(right)) => (left, right),
        (left, right) => return left.or(right),
    };
    if left.priority >= right.priority {
        left.hand_down();
        left.right = join(left.right.take(), Some(right));
        left.sum_up();
        Some(left)
    } else {
        right.hand_down();
        right.left = join(Some(left), right.left.take());
        right.sum_up();
        Some(right)
    }
}

/// The finalizer of SplitMix64 (Steele, Lea and Flood 2014).
fn hash(number: u64) -> u64 {
    let mut number = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    number = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    number = (number ^ (number >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    number ^ (number >> 31)
}

#[cfg(test)]
mod tests {
    use super::super::{Arrival, JobId};
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    fn rank(key: u64, number: u64) -> Rank {
        Rank { key, arrival: Arrival { at: Duration::ZERO, number }, job: JobId(number) }
    }

    fn enough(skips: u32, now: u64) -> LongEnough {
        LongEnough { skips, now: Duration::from_secs(now) }
    }

    #[derive(Debug, Clone, Copy)]
    enum Step {
        Insert { key: u64, until: u64, skipped: u32 },
        Remove(usize),
        Skip(Option<usize>),
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let step = prop_oneof![
            3 => (0_u64..5, 0_u64..20, 0_u32..3)
                .prop_map(|(key, until, skipped)| Step::Insert { key, until, skipped }),
            1 => any::<usize>().prop_map(Step::Remove),
            3 => prop::option::of(any::<usize>()).prop_map(Step::Skip),
        ];
        prop::collection::vec(step, 1..60)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(500))]

        #[test]
        fn jobs_are_counted_and_found_as_if_each_were_looked_at(steps in steps()) {
            let mut tree = Homebound::default();
            let mut jobs: BTreeMap<Rank, Patient> = BTreeMap::new();
            let nth = |jobs: &BTreeMap<Rank, Patient>, which: usize| {
                jobs.keys().nth(which % jobs.len().max(1)).copied()
            };
            for (number, step) in (0..).zip(steps) {
                match step {
                    Step::Insert { key, until, skipped } => {
                        let job = Patient { until: Duration::from_secs(until), skipped };
                        tree.insert(rank(key, number), job);
                        jobs.insert(rank(key, number), job);
                    }
                    Step::Remove(which) => {
                        let rank = nth(&jobs, which).unwrap_or(rank(0, 0));
                        prop_assert_eq!(tree.remove(rank), jobs.remove(&rank).map(|job| job.skipped));
                    }
                    Step::Skip(before) => {
                        let before = before.and_then(|which| nth(&jobs, which));
                        tree.skip(before);
                        let skipped = |rank: &Rank| before.is_none_or(|before| *rank < before);
                        jobs.iter_mut().filter(|(rank, _)| skipped(rank)).for_each(|(_, job)| job.skipped += 1);
                    }
                }
                prop_assert_eq!(tree.first(), jobs.keys().next().copied());
                prop_assert_eq!(tree.is_empty(), jobs.is_empty());
                for (skips, now) in [(5, 0), (u32::MAX, 10), (3, 4)] {
                    let waited = |job: &Patient| job.skipped >= skips || job.until <= Duration::from_secs(now);
                    let first = jobs.iter().find(|(_, job)| waited(job)).map(|(rank, _)| *rank);
                    prop_assert_eq!(tree.first_after(enough(skips, now)), first);
                }
            }
        }
    }

    fn height(tree: &Tree) -> usize {
        tree.as_deref().map_or(0, |node| 1 + height(&node.left).max(height(&node.right)))
    }

    #[test]
    fn the_tree_of_ten_thousand_jobs_is_low_in_whatever_order_they_come() {
        for direction in [1, -1] {
            let mut tree = Homebound::default();
            for number in 0..10_000_i64 {
                let key = u64::try_from(10_000 + direction * number).unwrap();
                let job = Patient { until: Duration::MAX, skipped: 0 };
                tree.insert(rank(key, u64::try_from(number).unwrap()), job);
            }
            // The expected height is about 2 ln 10,000 = 18, the height of a random tree about twice that.
            assert!(height(&tree.0) < 60, "{}", height(&tree.0));
        }
    }
}
