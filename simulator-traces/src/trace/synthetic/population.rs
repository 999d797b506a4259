//! The functions and applications of the synthetic trace: requests per function, its part of the durations, and
//! functions per application.

use crate::random::Random;
use crate::trace::statistics::median;

/// Number of applications and functions of each: 119 applications, 424 functions, median 2 (S-9).
const APPS: [(usize, usize); 9] =
    [(42, 1), (30, 2), (15, 3), (10, 4), (8, 6), (6, 9), (5, 14), (2, 20), (1, 25)];

/// Median number of requests per function (S-9).
const MEDIAN: f64 = 29.0;
/// Median number of requests per application (S-9).
const APP_MEDIAN: f64 = 415.0;

/// Requests of functions above the median: share of functions, and decimal logarithm of requests relative to the
/// median. The logarithm is scaled until the sum of requests is right.
const ABOVE: [(f64, f64); 4] = [(0.5, 0.0), (0.75, 1.5), (0.9, 2.6), (1.0, 4.1)];
/// The same below the median, down to one request, without scaling.
const BELOW: [(f64, f64); 3] = [(0.0, -1.4624), (0.25, -0.75), (0.5, 0.0)];

/// The functions and applications of a trace.
pub(super) struct Population {
    /// Number of requests of each function.
    pub(super) counts: Vec<u64>,
    /// Application of each function.
    pub(super) apps: Vec<u32>,
    /// Part of the distribution of durations of each function: begin and length.
    pub(super) own_durations: Vec<(f64, f64)>,
}

impl Population {
    /// The population of `seed`, with about `requests` requests in all.
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

/// Swaps functions between applications until the median number of requests per application is within 2 % of
/// [`APP_MEDIAN`].
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

/// Assigns each function a part of the distribution of durations, as long as the function's share of the requests.
/// Together the parts cover the whole distribution.
fn own_durations(counts: &[u64], random: &mut Random) -> Vec<(f64, f64)> {
    // Popular functions tend to be short: a popular and long function would need more than one board.
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
