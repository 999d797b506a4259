//! Who there is in the synthetic trace: functions with their numbers of requests and kinds of duration, applications with
//! their functions.

use crate::random::Random;
use crate::trace::statistics::median;

/// Functions per application: how many applications have how many. 119 applications, 424 functions, median 2 (S-9).
const APPS: [(usize, usize); 9] =
    [(42, 1), (30, 2), (15, 3), (10, 4), (8, 6), (6, 9), (5, 14), (2, 20), (1, 25)];

/// The median of requests per function (S-9).
const MEDIAN: f64 = 29.0;
/// The median of requests per application (S-9).
const APP_MEDIAN: f64 = 415.0;

/// Requests of the functions above the median: share of functions and factors of ten above it, before they are scaled so
/// that the sum is right.
const ABOVE: [(f64, f64); 4] = [(0.5, 0.0), (0.75, 1.5), (0.9, 2.6), (1.0, 4.1)];
/// The same below the median, down to one request; not scaled.
const BELOW: [(f64, f64); 3] = [(0.0, -1.4624), (0.25, -0.75), (0.5, 0.0)];

/// Who there is.
pub(super) struct Population {
    /// Requests per function.
    pub(super) counts: Vec<u64>,
    /// Application of each function.
    pub(super) apps: Vec<u32>,
    /// Of each function its part of all durations: begin and length.
    pub(super) own_durations: Vec<(f64, f64)>,
}

impl Population {
    /// That of a seed, with about that many requests in all.
    pub(super) fn new(seed: u64, requests: u64) -> Self {
        let mut random = Random::new(seed, 0);
        let functions = APPS.iter().map(|(apps, each)| apps * each).sum();
        let mut counts = counts(functions, requests);
        random.shuffle(&mut counts);
        let apps = apps();
        match_app_median(&mut counts, &apps, &mut random);
        let own_durations = own_durations(&counts, &mut random);
        Self { counts, apps, own_durations }
    }
}

fn counts(functions: usize, requests: u64) -> Vec<u64> {
    let count = |index: usize, scale: f64| {
        let share = (index as f64 + 0.5) / functions as f64;
        let tens = if share < 0.5 { along(&BELOW, share) } else { along(&ABOVE, share) * scale };
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "not negative, and small"
        )]
        let count = (MEDIAN * libm::pow(10.0, tens) + 0.5).floor() as u64;
        count.max(1)
    };
    let sum = |scale: f64| (0..functions).map(|index| count(index, scale)).sum::<u64>();
    let (mut low, mut high) = (0.0, 3.0);
    for _ in 0..60 {
        let middle = (low + high) / 2.0;
        if sum(middle) < requests { low = middle } else { high = middle }
    }
    (0..functions).map(|index| count(index, high)).collect()
}

fn along(points: &[(f64, f64)], share: f64) -> f64 {
    let above = points.iter().position(|(at, _)| *at > share).unwrap_or(points.len() - 1).max(1);
    let ((low, from), (high, to)) = (points[above - 1], points[above]);
    from + (to - from) * (share - low) / (high - low)
}

/// The application of each function.
fn apps() -> Vec<u32> {
    let sizes = APPS.iter().flat_map(|(apps, each)| std::iter::repeat_n(*each, *apps));
    (0_u32..).zip(sizes).flat_map(|(app, size)| std::iter::repeat_n(app, size)).collect()
}

/// Swaps functions between applications until the median of requests per application is within 2 %.
fn match_app_median(counts: &mut [u64], apps: &[u32], random: &mut Random) {
    let app_count = apps.last().map_or(0, |last| *last as usize + 1);
    let distance = |counts: &[u64]| {
        let mut sums = vec![0; app_count];
        for (count, app) in counts.iter().zip(apps) {
            sums[*app as usize] += count;
        }
        sums.sort_unstable();
        (median(&sums) / APP_MEDIAN - 1.0).abs()
    };
    let mut best = distance(counts);
    for _ in 0..50_000 {
        if best < 0.02 {
            return;
        }
        let (a, b) = (random.below(counts.len()), random.below(counts.len()));
        counts.swap(a, b);
        let now = distance(counts);
        if now > best {
            counts.swap(a, b);
        } else {
            best = now;
        }
    }
}

/// Each function gets a part of the distribution as large as its share of the requests, so that all together have the
/// whole, whatever the functions' kinds are.
fn own_durations(counts: &[u64], random: &mut Random) -> Vec<(f64, f64)> {
    // Popular functions tend to be short: one that was long too would need more than a board of its own.
    let mut order: Vec<(f64, usize)> = counts
        .iter()
        .enumerate()
        .map(|(index, count)| (1.5 * random.normal() - 0.5 * libm::log(*count as f64), index))
        .collect();
    order.sort_by(|a, b| a.0.total_cmp(&b.0));
    let total = counts.iter().sum::<u64>() as f64;
    let mut own = vec![(0.0, 0.0); counts.len()];
    let mut begin = 0.0;
    for (_, index) in order {
        let length = counts[index] as f64 / total;
        own[index] = (begin, length);
        begin += length;
    }
    own
}
