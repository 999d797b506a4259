use super::*;

fn load(utilisation: f64, sizes: Sizes) -> ServerLoad {
    let bytes_per_second = 100.0;
    ServerLoad { jobs_per_second: utilisation * bytes_per_second / sizes.mean(), bytes_per_second, sizes }
}

fn geometric(from: f64, growth: f64, count: usize) -> Vec<f64> {
    (0..count)
        .scan(from / growth, |next, _| {
            *next *= growth;
            Some(*next)
        })
        .collect()
}

#[test]
fn one_queue_is_the_formula_of_pollaczek_and_khintchine() {
    let sizes = Sizes::exponential(0.0, 10.0).unwrap();
    let load = load(0.8, sizes);
    // M/M/1 with a mean service time of 0.1 s at 80 %: 0.1 / (1 - 0.8) = 0.5 s.
    for formula in [Formula::Paper, Formula::Exact] {
        let completion = load.mean_completion(&[], formula).unwrap();
        assert!((completion - 0.5).abs() < 1e-12, "{formula:?}: {completion}");
    }
}

#[test]
fn two_queues_worked_by_hand() {
    // Mean 10 bytes, 100 bytes/s, 8 jobs/s; a threshold at 10. With e = exp(-1):
    // first queue: share 1-e, bytes 10(1-2e), squares 100(2-5e).
    let load = load(0.8, Sizes::exponential(0.0, 10.0).unwrap());
    let e = (-1_f64).exp();
    let left = 100.0 - 8.0 * 10.0 * (1.0 - 2.0 * e);
    let paper_first =
        10.0 * (1.0 - 2.0 * e) / 100.0 + 8.0 * 100.0 * (2.0 - 5.0 * e) / (2.0 * left * 100.0) * (1.0 - e);
    let paper_second = 10.0 * 2.0 * e / left + 8.0 * 100.0 * 5.0 * e / (2.0 * 20.0 * left) * e;
    let paper = load.mean_completion(&[10.0], Formula::Paper).unwrap();
    assert!((paper - paper_first - paper_second).abs() < 1e-12, "{paper}");
    // Cobham: residual λE[S²]/2 = 8·200/100²/2 = 0.08 s.
    let exact = 0.1 + 0.08 * ((1.0 - e) / (left / 100.0) + e / (left / 100.0 * 0.2));
    let got = load.mean_completion(&[10.0], Formula::Exact).unwrap();
    assert!((got - exact).abs() < 1e-12, "{got} {exact}");
}

#[test]
fn both_formulas_agree_with_numeric_integration() {
    for sizes in [Sizes::exponential(1.0, 10.0).unwrap(), Sizes::power_law(1.0, 1000.0, 1.3).unwrap()] {
        let load = load(0.7, sizes);
        let bounds = geometric(2.0, 1.6, 6);
        // Sums over equally likely sizes approximate the integrals.
        let steps = 400_000;
        let mut per_queue = vec![(0.0, 0.0, 0.0); bounds.len() + 1];
        for step in 0..steps {
            let size = sizes.quantile((f64::from(step) + 0.5) / f64::from(steps));
            let queue = &mut per_queue[bounds.partition_point(|bound| *bound < size)];
            queue.0 += 1.0 / f64::from(steps);
            queue.1 += size / f64::from(steps);
            queue.2 += size * size / f64::from(steps);
        }
        let (rate, server) = (load.jobs_per_second, load.bytes_per_second);
        let all_squares: f64 = per_queue.iter().map(|queue| queue.2).sum();
        let (mut left, mut paper, mut exact) = (server, 0.0, 0.0);
        for (share, bytes, squares) in per_queue {
            let after = left - rate * bytes;
            paper += bytes / left + share * rate * squares / (2.0 * left * after);
            exact += bytes / server + share * rate * all_squares / (2.0 * left * after);
            left = after;
        }
        for (formula, numeric) in [(Formula::Paper, paper), (Formula::Exact, exact)] {
            let closed = load.mean_completion(&bounds, formula).unwrap();
            assert!((closed / numeric - 1.0).abs() < 2e-3, "{formula:?}: {closed} {numeric}");
        }
    }
}

#[test]
fn an_overloaded_server_has_no_mean_completion_time() {
    let load = load(1.0, Sizes::exponential(0.0, 10.0).unwrap());
    assert_eq!(load.mean_completion(&[], Formula::Paper), None);
    assert_eq!(load.mean_completion(&[3.0], Formula::Exact), None);
    let search = Search { queues: 3, first: vec![1.0], growth: vec![2.0], linear: Linear::Never };
    assert_eq!(load.best(&search, Formula::Paper), None);
}

#[test]
fn the_search_finds_the_same_shape_as_an_exhaustive_search() {
    let sizes = Sizes::exponential(0.0, 10.0).unwrap();
    let load = load(0.8, sizes);
    let search = Search {
        queues: 6,
        first: geometric(1.0, 1.5, 8),
        growth: geometric(1.2, 1.1, 8),
        linear: Linear::Any,
    };
    let best = load.best(&search, Formula::Exact).unwrap();
    let mut least = f64::INFINITY;
    for from in 1..=5 {
        for to in from..=5 {
            for &first in &search.first {
                for &growth in &search.growth {
                    let shape = Shape { first, growth, linear_from: from, linear_to: to, queues: 6 };
                    let bounds = shape.bounds().unwrap();
                    least = least.min(load.mean_completion(&bounds, Formula::Exact).unwrap());
                }
            }
        }
    }
    assert_eq!(best.completion, least);
    // More queues are no worse, and any order by size is better than none.
    let more = Search { queues: 9, ..search };
    assert!(load.best(&more, Formula::Exact).unwrap().completion <= best.completion * 1.001);
    assert!(best.completion < load.mean_completion(&[], Formula::Exact).unwrap());
}
