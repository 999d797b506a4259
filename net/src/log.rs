//! The log of a service: its flags and its start.

use clap::{Args, ValueEnum};
use std::io::IsTerminal as _;
use tracing_subscriber::EnvFilter;

/// Flags of the log. A service sets its own default filter by
/// `#[command(mut_arg("log", |log| log.default_value("my_service=info,warn")))]` on the flags that flatten these.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Log")]
pub struct LogArgs {
    /// Which log lines: a level (`off`, `error`, `warn`, `info`, `debug`, `trace`) or `MODULE=LEVEL,…`, as in
    /// RUST_LOG.
    #[arg(long, env = "FPGA_LOG", default_value = "info")]
    log: String,
    /// Format of the log lines.
    #[arg(long, env = "FPGA_LOG_FORMAT", value_enum, default_value_t = LogFormat::Plain)]
    log_format: LogFormat,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum LogFormat {
    /// Text for people.
    Plain,
    /// One JSON object per line.
    Json,
}

/// Reason why the log could not be started.
#[derive(Debug, thiserror::Error)]
pub enum LogError {
    /// The filter is not valid.
    #[error("--log {filter:?} is no filter; write for example `info`, or `{}=debug,warn`", own_module())]
    Filter {
        /// The filter.
        filter: String,
        /// The parser's error.
        #[source]
        source: tracing_subscriber::filter::ParseError,
    },
    /// The process has a log already.
    #[error("cannot start the log")]
    Start(#[source] Box<dyn std::error::Error + Send + Sync>),
}

impl LogArgs {
    /// The command line arguments that give another process the same log.
    #[must_use]
    pub fn to_arguments(&self) -> [String; 4] {
        let format = match self.log_format {
            LogFormat::Plain => "plain",
            LogFormat::Json => "json",
        };
        ["--log".to_owned(), self.log.clone(), "--log-format".to_owned(), format.to_owned()]
    }

    /// Starts the log of this process, on standard error.
    ///
    /// # Errors
    /// [`LogError::Filter`] if the filter is not valid, [`LogError::Start`] if the process has a log already.
    pub fn init(&self) -> Result<(), LogError> {
        let filter = EnvFilter::try_new(&self.log)
            .map_err(|source| LogError::Filter { filter: self.log.clone(), source })?;
        let lines = tracing_subscriber::fmt()
            .with_env_filter(filter)
            .with_ansi(std::io::stderr().is_terminal())
            // A log that can't be written, for example to a full disk, must not end the process; reporting that on
            // standard error would.
            .log_internal_errors(false)
            .with_writer(std::io::stderr);
        match self.log_format {
            LogFormat::Plain => lines.try_init(),
            LogFormat::Json => lines.json().try_init(),
        }
        .map_err(LogError::Start)
    }
}

/// The module of the running program, by the name of its file.
fn own_module() -> String {
    let program = std::env::current_exe().ok();
    let name = program.as_deref().and_then(|path| path.file_stem()).map(|name| name.to_string_lossy());
    name.map_or_else(|| "MODULE".to_owned(), |name| name.replace('-', "_"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Debug, Parser)]
    #[command(mut_arg("log", |log| log.default_value("my_service=info,warn")))]
    struct Service {
        #[command(flatten)]
        log: LogArgs,
    }

    #[test]
    fn a_service_has_its_own_default_filter() {
        let log = |args: &[&str]| Service::try_parse_from(args).unwrap().log.to_arguments().join(" ");
        assert_eq!(log(&["x"]), "--log my_service=info,warn --log-format plain");
        assert_eq!(log(&["x", "--log", "debug", "--log-format", "json"]), "--log debug --log-format json");
    }

    #[test]
    fn a_filter_that_is_none_is_refused_with_what_to_write() {
        let service = Service::try_parse_from(["x", "--log", "a=b=c"]).unwrap();
        let error = service.log.init().unwrap_err().to_string();
        assert!(error.contains("write for example `info`, or `fpga_net"), "{error}");
    }
}
