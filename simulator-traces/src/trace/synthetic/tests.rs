use super::*;
use crate::trace::statistics::Statistics;

fn statistics(seed: u64) -> Statistics {
    let mut statistics = Statistics::default();
    Synthetic::new(seed, 1_980_000).for_each(|request| statistics.add(&request));
    statistics
}

#[track_caller]
fn near(is: f64, should: f64, share: f64) {
    assert!((is / should - 1.0).abs() <= share, "{is} instead of {should}");
}

#[test]
fn it_has_each_of_the_statistics_of_the_published_trace() {
    for seed in [1, 2] {
        let outcome = statistics(seed).outcome();
        let get = |name: &str| outcome.metric(name).unwrap();
        near(get("requests"), 1_980_000.0, 0.01);
        near(get("applications"), 119.0, 0.0);
        near(get("functions"), 424.0, 0.0);
        near(get("requests_per_application_median"), 415.0, 0.02);
        near(get("functions_per_application_median"), 2.0, 0.0);
        near(get("requests_per_function_median"), 29.0, 0.02);
        // The rates of S-9 are upper bounds: they contradict its median of requests per function.
        assert!(get("function_per_minute_median") < 1.0 && get("function_per_minute_p75") < 2.0);
        near(get("duration_median_s"), 0.046, 0.03);
        near(get("duration_below_100_ms_share"), 0.6, 0.02);
        near(get("duration_p75_s"), 0.382, 0.05);
        near(get("duration_p95_s"), 19.21, 0.05);
        near(get("duration_p99_s"), 77.63, 0.05);
        assert!((13.5..=14.1).contains(&get("days")), "{}", get("days"));
    }
}

#[test]
fn requests_come_in_order_and_the_same_for_the_same_seed() {
    let first: Vec<_> = Synthetic::new(3, 50_000).collect();
    assert!(first.is_sorted_by_key(|request| request.at));
    assert_eq!(first, Synthetic::new(3, 50_000).collect::<Vec<_>>());
    assert_ne!(first, Synthetic::new(4, 50_000).collect::<Vec<_>>());
}

#[test]
fn it_has_bursts_and_a_daily_rhythm() {
    let requests: Vec<_> = Synthetic::new(1, 200_000).collect();
    let mut last = vec![None; 424];
    let mut gaps: Vec<Vec<f64>> = vec![Vec::new(); 424];
    for request in &requests {
        let index = request.function as usize;
        if let Some(last) = last[index].replace(request.at) {
            gaps[index].push((request.at - last).secs());
        }
    }
    // Squared coefficient of variation of the gaps: near 0 for timers, about 1 for random arrivals, more for bursts.
    let variation = |gaps: &[f64]| {
        let mean = gaps.iter().sum::<f64>() / gaps.len() as f64;
        gaps.iter().map(|gap| (gap - mean).powi(2)).sum::<f64>() / gaps.len() as f64 / mean.powi(2)
    };
    let of_busy: Vec<f64> = gaps.iter().filter(|gaps| gaps.len() > 500).map(|gaps| variation(gaps)).collect();
    let share = |kind: &dyn Fn(f64) -> bool| {
        of_busy.iter().filter(|variation| kind(**variation)).count() as f64 / of_busy.len() as f64
    };
    assert!(share(&|variation| variation < 0.1) > 0.1, "timers: {of_busy:?}");
    assert!(share(&|variation| variation > 3.0) > 0.2, "bursts: {of_busy:?}");
}

#[test]
fn each_application_is_busiest_around_its_hour_of_the_day() {
    let mut near_and_far = [0.0_f64; 2];
    let mut counts = std::collections::HashMap::<(u32, u32), [f64; 2]>::new();
    for request in Synthetic::new(1, 400_000) {
        let hour = request.at.secs() / 3600.0 % 24.0;
        let off = (hour - f64::from(request.app % 24)).abs();
        let far = usize::from(off.min(24.0 - off) > 6.0);
        counts.entry((request.app, request.function)).or_default()[far] += 1.0;
    }
    // Each busy function has the same weight; timers and bursts are among them.
    for [near, far] in counts.into_values().filter(|[near, far]| near + far > 500.0) {
        near_and_far[0] += near / (near + far);
        near_and_far[1] += far / (near + far);
    }
    let share = near_and_far[0] / (near_and_far[0] + near_and_far[1]);
    // Without a rhythm the share is 0.5. A swing of 25 to 50 % of seven functions in ten makes it about 0.58.
    assert!((0.54..0.65).contains(&share), "{share}");
}
