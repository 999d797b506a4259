//! The numbers in the paper's evaluation (S-10), for p 0.5, m 10 ms and r 0.75 unless stated otherwise.

/// A figure with the weights 0-0-0 and with 1-2-2.
pub(super) type Pair = (f64, f64);

/// Table 6.2: nodes, median reconfigurations per node, cold starts in per cent of all requests.
pub(super) const BY_NODES: [(u32, Pair, Pair); 3] = [
    (10, (50_293.5, 40_899.5), (25.51, 20.69)),
    (20, (26_146.0, 21_158.5), (26.71, 21.39)),
    (40, (13_899.5, 11_169.0), (27.57, 22.60)),
];

/// Tables 6.1 and 6.3, at 10 nodes: name of the figure, our metric, and values.
pub(super) const AT_TEN: [(&str, &str, Pair); 7] = [
    ("usage median s", "usage_median_s", (3.18, 4.58)),
    ("usage mean s", "usage_mean_s", (26.70, 30.78)),
    ("usage p25 s", "usage_p25_s", (0.23, 0.60)),
    ("usage p95 s", "usage_p95_s", (78.82, 90.63)),
    ("usage p99 s", "usage_p99_s", (351.02, 323.18)),
    ("variation of usage", "usage_variation", (1.35, 1.07)),
    ("variation of reconfiguration time", "reconfiguration_variation", (0.94, 0.52)),
];

/// Figure 6.7, at 10 nodes: weights, median usage in seconds, cold starts in per cent.
pub(super) const BY_WEIGHTS: [(&str, f64, f64); 4] =
    [("0-0-0", 3.18, 25.51), ("1-1-1", 3.07, 21.10), ("1-2-2", 4.90, 20.69), ("4-1-1", 2.33, 19.42)];

/// Figures 6.6 (1-1-1) and 10.2 (8-1-1): nodes, weights, median usage, cold starts; `None` where the text has no
/// number. For 8-1-1 the text has one share of cold starts for all numbers of nodes.
pub(super) const BY_SIZE: [(u32, &str, Option<f64>, Option<f64>); 8] = [
    (5, "1-1-1", Some(20.52), None),
    (10, "1-1-1", Some(3.07), Some(21.10)),
    (20, "1-1-1", None, None),
    (40, "1-1-1", None, None),
    (5, "8-1-1", None, Some(19.41)),
    (10, "8-1-1", None, Some(19.41)),
    (20, "8-1-1", None, Some(19.41)),
    (40, "8-1-1", None, Some(19.41)),
];

/// The values of p and of r in [`GRID`]. The paper also has p = 0 and r = 0, where all values are 0.00.
pub(super) const SHARES: [&str; 4] = ["0.25", "0.5", "0.75", "1"];

/// Figures 6.3 and 6.4: m in milliseconds, and FPGA minus CPU utilisation in seconds for each p (rows) and r
/// (columns).
pub(super) const GRID: [(f64, [[f64; 4]; 4]); 2] = [
    (
        10.0,
        [
            [0.14, 1.23, 3.80, 8.09],
            [0.84, 3.09, 8.27, 17.16],
            [0.36, 3.07, 9.09, 24.23],
            [10.37, 21.79, 30.48, 28.23],
        ],
    ),
    (
        100.0,
        [
            [0.09, 0.77, 2.88, 6.50],
            [0.65, 2.09, 6.09, 14.62],
            [0.15, 1.66, 6.94, 19.73],
            [0.59, 2.15, 6.52, 3.53],
        ],
    ),
];
