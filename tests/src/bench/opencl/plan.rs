//! The measures and the paths to the board.

/// The path from a program to the board.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Path {
    /// The vendor's runtime in the program's own process.
    Native,
    /// A device manager behind a unix socket, with shared memory and the command ring.
    Unix,
    /// The same without the command ring: commands use gRPC.
    Grpc,
    /// A device manager behind TCP on loopback.
    Tcp,
}

/// One measure: a program, its arguments, and the fields of its line of JSON.
#[derive(Debug, Clone, Copy)]
pub struct Measure {
    /// Title of the row in the table.
    pub title: &'static str,
    /// Name of the program in tests/opencl-programs.
    pub program: &'static str,
    /// Arguments of the program.
    pub args: &'static [&'static str],
    /// Name of the field with the median of a run.
    pub median: &'static str,
    /// Name of the field with the 99th percentile; `None` if the program prints none.
    pub p99: Option<&'static str>,
    /// Unit of both fields.
    pub unit: &'static str,
    /// The measured paths.
    pub paths: &'static [Path],
    /// Most rounds of this measure.
    pub rounds: u32,
}

impl Path {
    /// All paths, in the order in which they take turns.
    pub const ALL: &[Self] = &[Self::Native, Self::Unix, Self::Grpc, Self::Tcp];

    /// Short name of the path in the table.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Native => "native",
            Self::Unix => "unix",
            Self::Grpc => "grpc",
            Self::Tcp => "tcp",
        }
    }
}

impl Measure {
    /// A latency in microseconds, measured on all paths.
    const fn latency(title: &'static str, program: &'static str, args: &'static [&'static str]) -> Self {
        Self { p99: Some("p99_us"), paths: Path::ALL, ..Self::of(title, program, args, "p50_us", "µs") }
    }

    /// A measure without a 99th percentile, on all paths but [`Path::Grpc`].
    const fn of(
        title: &'static str,
        program: &'static str,
        args: &'static [&'static str],
        median: &'static str,
        unit: &'static str,
    ) -> Self {
        Self {
            title,
            program,
            args,
            median,
            p99: None,
            unit,
            paths: &[Path::Native, Path::Unix, Path::Tcp],
            rounds: 100,
        }
    }

    /// Limits the rounds of a measure that takes long, or is itself a median of many.
    const fn at_most(self, rounds: u32) -> Self {
        Self { rounds, ..self }
    }

    /// Measures only paths on the same node.
    const fn on_the_node(self) -> Self {
        Self { paths: &[Path::Native, Path::Unix], ..self }
    }
}

/// The measure of a launch, which is compared with a bare round trip.
pub const LAUNCH: &Measure = &MEASURES[0];
/// The measure of bulk data, which is compared with a raw socket.
pub const BULK: &Measure = &MEASURES[3];
/// MiB that [`BULK`] moves in each direction.
pub const BULK_MIB: usize = 64;

/// The measures in the order of the table.
pub const MEASURES: &[Measure] = &[
    Measure::latency("null kernel + finish", "null_kernel", &[]),
    Measure::latency("pipelined launch", "null_kernel", &["--pipelined", "--iterations", "20000"]),
    Measure::latency("write 4 B, kernel, read 4 B", "write_kernel_read", &[]),
    Measure::of("write + read 64 MiB, warm", "bandwidth", &["--mib", "64"], "warm_ms", "ms"),
    Measure::of(
        "write + read 64 MiB, cold",
        "bandwidth",
        &["--mib", "64", "--iterations", "1"],
        "cold_ms",
        "ms",
    ),
    Measure::of("write + read 1 GiB, warm", "bandwidth", GIB, "warm_ms", "ms").at_most(2),
    Measure::of("write + read 1 GiB, cold", "bandwidth", GIB, "cold_ms", "ms").at_most(2),
    Measure::of("map, touch, unmap 64 MiB", "map_touch", &[], "p50_us", "µs").on_the_node(),
    Measure::of("map, touch, unmap 1 MiB", "map_touch", &["--mib", "1"], "p50_us", "µs").on_the_node(),
    Measure::of("Sobel 1080p", "workload", &[], "p50_ms", "ms").at_most(3),
    Measure::of("matrix product 512", "workload", &["--matmul"], "p50_ms", "ms").at_most(3),
    Measure::of("Sobel, 1 client", "several", &["--clients", "1"], "per_second", "/s")
        .at_most(2)
        .on_the_node(),
    Measure::of("Sobel, 8 clients at once", "several", &[], "per_second", "/s").at_most(2).on_the_node(),
    Measure::of("product, 1 client", "several", &["--matmul", "--clients", "1"], "per_second", "/s")
        .at_most(2)
        .on_the_node(),
    Measure::of("product, 8 clients at once", "several", &["--matmul"], "per_second", "/s")
        .at_most(2)
        .on_the_node(),
    Measure::of("idle for 5 s: processor", "idle", &[], "processor_ms", "ms").at_most(1).on_the_node(),
];

const GIB: &[&str] = &["--mib", "1024", "--iterations", "3"];
