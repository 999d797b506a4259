//! Logging to standard error, with a filter.

use anyhow::Context as _;
use clap::{Args, ValueEnum};
use std::io::IsTerminal as _;
use tracing_subscriber::EnvFilter;

/// Log flags.
#[derive(Debug, Clone, Args)]
pub struct LogArgs {
    /// Which log lines: a level (`off`, `error`, `warn`, `info`, `debug`, `trace`) or `module=level,…`.
    #[arg(
        long,
        env = "FPGA_LOG",
        default_value = "fpga_device_manager=info,fpga_session=info,fpga_vendor=info,fpga_hook=info,warn"
    )]
    log: String,

    /// Format of the log lines.
    #[arg(long, env = "FPGA_LOG_FORMAT", default_value = "plain")]
    log_format: LogFormat,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum LogFormat {
    Plain,
    Json,
}

impl LogArgs {
    /// The command line arguments that these settings were read from.
    #[must_use]
    pub fn to_arguments(&self) -> [String; 4] {
        let format = match self.log_format {
            LogFormat::Plain => "plain",
            LogFormat::Json => "json",
        };
        ["--log".to_owned(), self.log.clone(), "--log-format".to_owned(), format.to_owned()]
    }

    /// Starts logging for the process.
    ///
    /// # Errors
    /// If the filter is not valid.
    pub fn init(&self) -> anyhow::Result<()> {
        let filter = EnvFilter::try_new(&self.log).with_context(|| {
            format!("--log {:?}: write a level such as `info`, or `module=level,…`", self.log)
        })?;
        let lines = tracing_subscriber::fmt()
            .with_env_filter(filter)
            .with_ansi(std::io::stderr().is_terminal())
            // A log that can't be written, for example to a full disk, must not end the process; reporting that on
            // stderr would.
            .log_internal_errors(false)
            .with_writer(std::io::stderr);
        match self.log_format {
            LogFormat::Plain => lines.init(),
            LogFormat::Json => lines.json().init(),
        }
        Ok(())
    }
}
