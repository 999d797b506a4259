//! What is measured, and on which ways to the board.

/// How a program reaches the board.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Path {
    /// The vendor's runtime in the program's own process.
    Native,
    /// A device manager behind a unix socket.
    Unix,
    /// A device manager behind TCP on loopback.
    Tcp,
}

/// One figure: a program, its arguments, and the fields of its line of JSON.
#[derive(Debug, Clone, Copy)]
pub struct Measure {
    /// What it is called in the table.
    pub title: &'static str,
    /// Program of tests/opencl-programs.
    pub program: &'static str,
    /// Its arguments.
    pub args: &'static [&'static str],
    /// The field with the median of one run.
    pub median: &'static str,
    /// The field with the 99th percentile, if the program prints one.
    pub p99: Option<&'static str>,
    /// Unit of both.
    pub unit: &'static str,
}

impl Path {
    /// All, in the order in which they take turns.
    pub const ALL: [Self; 3] = [Self::Native, Self::Unix, Self::Tcp];

    /// Short name for the table.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Native => "native",
            Self::Unix => "unix",
            Self::Tcp => "tcp",
        }
    }
}

/// The figures of the table, in its order.
pub const MEASURES: &[Measure] = &[
    Measure {
        title: "null kernel + finish",
        program: "null_kernel",
        args: &[],
        median: "p50_us",
        p99: Some("p99_us"),
        unit: "µs",
    },
    Measure {
        title: "pipelined launch",
        program: "null_kernel",
        args: &["--pipelined", "--iterations", "20000"],
        median: "p50_us",
        p99: Some("p99_us"),
        unit: "µs",
    },
    Measure {
        title: "write 4 B, kernel, read 4 B",
        program: "write_kernel_read",
        args: &[],
        median: "p50_us",
        p99: Some("p99_us"),
        unit: "µs",
    },
    Measure {
        title: "write + read 64 MiB, warm",
        program: "bandwidth",
        args: &["--mib", "64"],
        median: "warm_ms",
        p99: None,
        unit: "ms",
    },
    Measure {
        title: "write + read 64 MiB, cold",
        program: "bandwidth",
        args: &["--mib", "64", "--iterations", "1"],
        median: "cold_ms",
        p99: None,
        unit: "ms",
    },
];
