//! How long connecting to a manager may take.

use std::time::Duration;

/// Environment variable that raises [`CONNECT`], in ms; for networks and tools, such as Valgrind, that are slow.
const CONNECT_VARIABLE: &str = "FPGA_CONNECT_TIMEOUT_MS";

/// Time for a socket to connect. Short, since a dead manager must not delay a program that uses others.
const CONNECT: Duration = Duration::from_millis(250);

/// Time for a manager that accepted the connection to send its Welcome, in multiples of the connect timeout. Long,
/// since the manager may have to start a process for the tenant, whose runtime takes seconds to load on a busy node.
const WELCOME_TIMES: u32 = 40;

/// Time for which a manager that sent nothing may delay a program after another manager has answered, in multiples
/// of the connect timeout.
const SILENCE_TIMES: u32 = 4;

/// Time for a socket to connect.
pub(crate) fn connect() -> Duration {
    let wanted = std::env::var(CONNECT_VARIABLE).ok().and_then(|text| text.parse().ok());
    wanted.map(Duration::from_millis).unwrap_or_default().max(CONNECT)
}

/// Time from a connected socket to the Welcome.
pub(crate) fn welcome() -> Duration {
    connect().saturating_mul(WELCOME_TIMES)
}

/// Time for which a silent manager may delay a program after another manager has answered.
pub(crate) fn silence() -> Duration {
    connect().saturating_mul(SILENCE_TIMES)
}
