//! Where a scenario's requests come from, and what of them runs on a board (S-9).

use serde::Deserialize;
use std::path::PathBuf;

/// Where requests come from.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Trace {
    /// The kind of trace.
    pub source: Source,
    /// The file of an `azure-2021` trace (CSV, or zip with one CSV in it), or the folder of an `azure-2019` one.
    pub path: Option<PathBuf>,
    /// Of the synthetic trace.
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
    /// Made up, with the statistics of the published one (S-9).
    #[default]
    Synthetic,
    /// The Azure Functions Invocation Trace 2021.
    #[serde(rename = "azure-2021")]
    Azure2021,
    /// The Azure Functions Dataset 2019: counts per minute and quantiles of durations.
    #[serde(rename = "azure-2019")]
    Azure2019,
}

/// What of a request runs on a board (S-9).
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Workload {
    /// The share that uses the board, 0 to 1.
    pub p: f64,
    /// What has that share: of each function's requests, of functions, or of applications.
    pub p_of: Share,
    /// Shorter requests never use the board.
    pub m_ms: f64,
    /// The share of a request's duration that it spends on the board, 0 to 1.
    pub r: f64,
    /// How many functions share one bitstream, on average; `same-application` counts too.
    pub functions_per_bitstream: f64,
    /// What has a bitstream of its own.
    pub bitstream_of: Owner,
    /// Sizes of bitstreams, from and to; evenly spread on a logarithmic scale.
    pub bitstream_mb: [f64; 2],
}

/// What a probability is meant for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Share {
    /// Every request draws.
    #[default]
    Requests,
    /// Every function draws once.
    Functions,
    /// Every application draws once.
    Applications,
}

/// What bitstreams belong to, or what is placed as one.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Owner {
    /// The function.
    #[default]
    Function,
    /// The application, with all its functions.
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
