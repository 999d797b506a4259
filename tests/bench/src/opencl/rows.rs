//! The table: every row that `fpga-bench opencl` measures, in the order in which it is printed.

use super::plan::{Figure, Goal, Path, Row, Run};
use anyhow::{Result, bail};

/// What our 99th percentile may be at most, as a multiple of native's, on every path for which a row has a goal.
pub const P99_AT_MOST: f64 = 2.0;

const EVERY_WAY: &[Path] = &[Path::Native, Path::Unix, Path::Grpc, Path::Tcp];
const EVERY_WAY_AND_PROCESS: &[Path] =
    &[Path::Native, Path::Unix, Path::Grpc, Path::Tcp, Path::Process, Path::ProcessGrpc, Path::ProcessTcp];
const NODE_AND_TCP: &[Path] = &[Path::Native, Path::Unix, Path::Tcp];
const WITH_AND_WITHOUT_RING: &[Path] = &[Path::Native, Path::Unix, Path::Grpc];
const ON_THE_NODE: &[Path] = &[Path::Native, Path::Unix];

const P50: Figure = Figure { p50: "p50_us", p99: Some("p99_us"), unit: "µs" };

const SMALL: Run = Run::on(EVERY_WAY, "transfers", &[]);
const LARGE: Run = Run::on(NODE_AND_TCP, "transfers", &["--large"]);
const MIB_64: Run = Run::on(NODE_AND_TCP, "bandwidth", &["--mib", "64"]);
/// Host memory twice, the runtime's buffer or a segment of a manager, and room for others.
const GIB: Run =
    Run { needs_mib: 4608, ..Run::on(ON_THE_NODE, "bandwidth", &["--mib", "1024", "--iterations", "3"]) };
const KERNELS: Run = Run::on(WITH_AND_WITHOUT_RING, "kernels", &[]);
const SOBEL: Run = Run::on(NODE_AND_TCP, "workload", &["--seconds", "1"]);
const PRODUCT: Run = Run::on(NODE_AND_TCP, "workload", &["--matmul", "--seconds", "1"]);
const SOBEL_CLIENTS: Run = Run::on(ON_THE_NODE, "several", &["--seconds", "1"]);
const PRODUCT_CLIENTS: Run = Run::on(ON_THE_NODE, "several", &["--matmul", "--seconds", "1"]);
const IDLE: Run = Run { most_rounds: 2, ..Run::on(ON_THE_NODE, "idle", &[]) };

/// A blocking transfer is no slower than natively.
const TRANSFER: &[(Path, Goal)] = &[(Path::Unix, Goal::ratio(1.0))];
const SHORT_KERNEL: &[(Path, Goal)] = &[(Path::Unix, Goal::ratio(1.1))];
const LONG_KERNEL: &[(Path, Goal)] = &[(Path::Unix, Goal::ratio(1.03))];
const CLIENTS: &[(Path, Goal)] = &[(Path::Unix, Goal::at_least(97.0))];
const NO_GOAL: &[(Path, Goal)] = &[];

/// The rows.
pub const ROWS: &[Row] = &[
    Row {
        name: "null",
        group: "launch",
        title: "null kernel + finish",
        run: Run::on(EVERY_WAY_AND_PROCESS, "null_kernel", &[]),
        figure: P50,
        goals: &[(Path::Unix, Goal::added(30.0)), (Path::Grpc, Goal::added(60.0))],
    },
    Row {
        name: "pipelined",
        group: "launch",
        title: "pipelined launch, each",
        run: Run::on(EVERY_WAY_AND_PROCESS, "null_kernel", &["--pipelined", "--iterations", "20000"]),
        figure: P50,
        goals: &[(Path::Unix, Goal::ratio(1.5))],
    },
    Row {
        name: "write-kernel-read",
        group: "launch",
        title: "write 4 B, kernel, read 4 B",
        run: Run::on(EVERY_WAY_AND_PROCESS, "write_kernel_read", &[]),
        figure: P50,
        goals: &[(Path::Unix, Goal::added(30.0))],
    },
    transfer("write-read-64b", "small", "write + read 64 B", SMALL, ("bytes_64_p50_us", "bytes_64_p99_us")),
    transfer(
        "write-read-1k",
        "small",
        "write + read 1 KiB",
        SMALL,
        ("bytes_1024_p50_us", "bytes_1024_p99_us"),
    ),
    transfer(
        "write-read-4k",
        "small",
        "write + read 4 KiB",
        SMALL,
        ("bytes_4096_p50_us", "bytes_4096_p99_us"),
    ),
    transfer(
        "write-read-16k",
        "small",
        "write + read 16 KiB",
        SMALL,
        ("bytes_16384_p50_us", "bytes_16384_p99_us"),
    ),
    transfer(
        "write-read-32k",
        "small",
        "write + read 32 KiB",
        SMALL,
        ("bytes_32768_p50_us", "bytes_32768_p99_us"),
    ),
    transfer(
        "write-read-64k",
        "large",
        "write + read 64 KiB",
        LARGE,
        ("bytes_65536_p50_us", "bytes_65536_p99_us"),
    ),
    transfer(
        "write-read-1m",
        "large",
        "write + read 1 MiB",
        LARGE,
        ("bytes_1048576_p50_us", "bytes_1048576_p99_us"),
    ),
    transfer(
        "write-read-4m",
        "large",
        "write + read 4 MiB",
        LARGE,
        ("bytes_4194304_p50_us", "bytes_4194304_p99_us"),
    ),
    Row {
        figure: milliseconds("warm_ms", Some("warm_p99_ms")),
        ..transfer("write-read-64m", "large", "write + read 64 MiB", MIB_64, ("", ""))
    },
    Row {
        figure: milliseconds("cold_ms", None),
        goals: NO_GOAL,
        ..transfer("write-read-64m-cold", "large", "write + read 64 MiB, the first", MIB_64, ("", ""))
    },
    Row {
        figure: milliseconds("warm_ms", None),
        ..transfer("write-read-1g", "large", "write + read 1 GiB", GIB, ("", ""))
    },
    Row {
        figure: milliseconds("cold_ms", None),
        goals: NO_GOAL,
        ..transfer("write-read-1g-cold", "large", "write + read 1 GiB, the first", GIB, ("", ""))
    },
    Row {
        name: "rect-1080p",
        group: "large",
        title: "write + read 1080p rect, pitched",
        run: Run::on(NODE_AND_TCP, "rect", &[]),
        figure: P50,
        goals: &[(Path::Unix, Goal::ratio(1.1))],
    },
    Row {
        name: "map-64m",
        group: "large",
        title: "map, touch, unmap 64 MiB",
        run: Run::on(ON_THE_NODE, "map_touch", &[]),
        figure: P50,
        goals: &[(Path::Unix, Goal::added(100.0))],
    },
    kernel("product-64", "product 64", ("product_64_p50_us", "product_64_p99_us")),
    kernel("product-128", "product 128", ("product_128_p50_us", "product_128_p99_us")),
    kernel("product-256", "product 256", ("product_256_p50_us", "product_256_p99_us")),
    kernel("sobel-512", "Sobel 512 × 512", ("sobel_512_p50_us", "sobel_512_p99_us")),
    kernel(
        "product-64-launch",
        "product 64, kernel + finish",
        ("product_64_launch_p50_us", "product_64_launch_p99_us"),
    ),
    kernel(
        "product-128-launch",
        "product 128, kernel + finish",
        ("product_128_launch_p50_us", "product_128_launch_p99_us"),
    ),
    kernel(
        "product-256-launch",
        "product 256, kernel + finish",
        ("product_256_launch_p50_us", "product_256_launch_p99_us"),
    ),
    kernel(
        "sobel-512-launch",
        "Sobel 512 × 512, kernel + finish",
        ("sobel_512_launch_p50_us", "sobel_512_launch_p99_us"),
    ),
    Row {
        name: "sobel-1080p",
        group: "kernels",
        title: "Sobel 1080p",
        run: SOBEL,
        figure: milliseconds("p50_ms", Some("p99_ms")),
        goals: LONG_KERNEL,
    },
    Row {
        name: "product-512",
        group: "kernels",
        title: "product 512",
        run: PRODUCT,
        figure: milliseconds("p50_ms", Some("p99_ms")),
        goals: LONG_KERNEL,
    },
    clients("sobel-8", "Sobel 1080p, 8 clients", SOBEL_CLIENTS, "per_second", "/s", NO_GOAL),
    clients(
        "sobel-8-of-one",
        "Sobel 1080p, 8 clients, of one's rate",
        SOBEL_CLIENTS,
        "share_percent",
        "%",
        CLIENTS,
    ),
    clients("product-8", "product 512, 8 clients", PRODUCT_CLIENTS, "per_second", "/s", NO_GOAL),
    clients(
        "product-8-of-one",
        "product 512, 8 clients, of one's rate",
        PRODUCT_CLIENTS,
        "share_percent",
        "%",
        CLIENTS,
    ),
    Row {
        name: "idle-wake-ups",
        group: "idle",
        title: "idle for 5 s: wake-ups",
        run: IDLE,
        figure: Figure { p50: "wake_ups", p99: None, unit: "" },
        goals: &[(Path::Unix, Goal::at_most(0.0))],
    },
    Row {
        name: "idle-processor",
        group: "idle",
        title: "idle for 5 s: processor time",
        run: IDLE,
        figure: milliseconds("processor_ms", None),
        goals: NO_GOAL,
    },
];

const fn milliseconds(p50: &'static str, p99: Option<&'static str>) -> Figure {
    Figure { p50, p99, unit: "ms" }
}

const fn microseconds((p50, p99): (&'static str, &'static str)) -> Figure {
    Figure { p50, p99: Some(p99), unit: "µs" }
}

const fn transfer(
    name: &'static str,
    group: &'static str,
    title: &'static str,
    run: Run,
    fields: (&'static str, &'static str),
) -> Row {
    Row { name, group, title, run, figure: microseconds(fields), goals: TRANSFER }
}

const fn kernel(name: &'static str, title: &'static str, fields: (&'static str, &'static str)) -> Row {
    Row { name, group: "kernels", title, run: KERNELS, figure: microseconds(fields), goals: SHORT_KERNEL }
}

const fn clients(
    name: &'static str,
    title: &'static str,
    run: Run,
    field: &'static str,
    unit: &'static str,
    goals: &'static [(Path, Goal)],
) -> Row {
    Row { name, group: "clients", title, run, figure: Figure { p50: field, p99: None, unit }, goals }
}

/// The rows whose name or group is in `names`, in the order of the table; all if there are no names.
///
/// # Errors
/// A name is neither that of a row nor that of a group.
pub fn chosen(names: &[String]) -> Result<Vec<Row>> {
    let is = |row: &Row, name: &String| row.name == name || row.group == name;
    if let Some(unknown) = names.iter().find(|name| !ROWS.iter().any(|row| is(row, name))) {
        let mut groups: Vec<&str> = ROWS.iter().map(|row| row.group).collect();
        groups.dedup();
        let rows: Vec<&str> = ROWS.iter().map(|row| row.name).collect();
        bail!(
            "there are no rows {unknown:?}; write groups ({}) or single rows ({})",
            groups.join(", "),
            rows.join(", ")
        );
    }
    let wanted = |row: &&Row| names.is_empty() || names.iter().any(|name| is(row, name));
    Ok(ROWS.iter().filter(wanted).copied().collect())
}

/// The runs that give these rows, each once, with its rows.
pub fn runs(rows: &[Row]) -> Vec<(Run, Vec<Row>)> {
    let mut runs: Vec<(Run, Vec<Row>)> = Vec::new();
    for row in rows {
        match runs.iter_mut().find(|(run, _)| *run == row.run) {
            Some((_, of_run)) => of_run.push(*row),
            None => runs.push((row.run, vec![*row])),
        }
    }
    runs
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn every_row_and_every_group_has_a_name_of_its_own() {
        let names: BTreeSet<&str> = ROWS.iter().map(|row| row.name).collect();
        assert_eq!(names.len(), ROWS.len());
        assert!(ROWS.iter().all(|row| !names.contains(row.group)));
    }

    #[test]
    fn every_row_runs_natively_first_and_has_goals_for_its_own_paths_only() {
        for row in ROWS {
            assert_eq!(row.run.paths[0], Path::Native, "{}", row.name);
            assert!(row.goals.iter().all(|(path, _)| row.run.paths[1..].contains(path)), "{}", row.name);
        }
    }

    #[test]
    fn rows_are_chosen_by_name_and_by_group() {
        let names = |list: &[&str]| -> Vec<&str> {
            let list: Vec<String> = list.iter().map(|name| (*name).to_owned()).collect();
            chosen(&list).unwrap().iter().map(|row| row.name).collect()
        };
        assert_eq!(names(&[]).len(), ROWS.len());
        assert_eq!(
            names(&["write-read-4k", "launch"]),
            ["null", "pipelined", "write-kernel-read", "write-read-4k"]
        );
        let error = chosen(&["lunch".to_owned()]).unwrap_err().to_string();
        assert!(
            error.contains("lunch") && error.contains("launch") && error.contains("write-read-4k"),
            "{error}"
        );
    }

    #[test]
    fn rows_of_one_program_share_its_runs() {
        let runs = runs(&chosen(&["small".to_owned(), "null".to_owned()]).unwrap());
        let counts: Vec<_> = runs.iter().map(|(run, rows)| (run.program, rows.len())).collect();
        assert_eq!(counts, [("null_kernel", 1), ("transfers", 5)]);
    }
}
