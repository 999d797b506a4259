//! The options for the source of a scenario's requests and for their part on a board (S-9).

use serde::Deserialize;
use std::path::PathBuf;

/// The source of the requests.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Trace {
    /// The kind of trace.
    pub source: Source,
    /// Path of an `azure-2021` trace (CSV, or zip with one CSV in it), or folder of an `azure-2019` trace.
    pub path: Option<PathBuf>,
    /// Seed of the synthetic trace, and of the random times of an `azure-2019` trace.
    pub seed: u64,
    /// Requests of the synthetic trace in its two weeks.
    pub requests: u64,
    /// Requests that start before this day of the trace are left out.
    pub from_day: f64,
    /// Requests that start on this day or later are left out.
    pub to_day: f64,
}

/// The kinds of traces.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Source {
    /// Generated, with the statistics of the published trace (S-9).
    #[default]
    Synthetic,
    /// The Azure Functions Invocation Trace 2021.
    #[serde(rename = "azure-2021")]
    Azure2021,
    /// The Azure Functions Dataset 2019: calls per minute and quantiles of durations.
    #[serde(rename = "azure-2019")]
    Azure2019,
}

/// The part of requests that runs on a board (S-9).
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Workload {
    /// Probability of using the board, 0 to 1.
    pub p: f64,
    /// The subject of the probability: each request, each function, or each application.
    pub p_of: Share,
    /// Requests shorter than this many milliseconds never use the board.
    pub m_ms: f64,
    /// The share of a request's duration that it spends on the board, 0 to 1.
    pub r: f64,
    /// Mean number of functions, or applications, that share one bitstream.
    pub functions_per_bitstream: f64,
    /// The owner of a bitstream.
    pub bitstream_of: Owner,
    /// Least and greatest size of bitstreams in megabytes; sizes are uniform on a logarithmic scale.
    pub bitstream_mb: [f64; 2],
}

/// The subject of the probability `p`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Share {
    /// Each request draws.
    #[default]
    Requests,
    /// Each function draws once, for all of its requests.
    Functions,
    /// Each application draws once, for all of its requests.
    Applications,
}

/// The owner of a bitstream, or the unit of placement.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Owner {
    /// The function.
    #[default]
    Function,
    /// The application with all its functions.
    Application,
}

impl Default for Trace {
    fn default() -> Self {
        Self {
            source: Source::default(),
            path: None,
            seed: 1,
            requests: 1_980_000,
            from_day: 0.0,
            to_day: 366.0,
        }
    }
}

impl Default for Workload {
    fn default() -> Self {
        Self {
            p: 0.5,
            p_of: Share::default(),
            m_ms: 10.0,
            r: 0.75,
            functions_per_bitstream: 1.0,
            bitstream_of: Owner::default(),
            bitstream_mb: [1.0, 1.0],
        }
    }
}
