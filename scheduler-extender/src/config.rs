//! The configuration in force: flags override the file, and the file overrides the defaults. The file may change
//! while the program runs. A file that can't be understood changes nothing; metrics, `/config`, the log and an event
//! report it.
//!
//! ```text
//!   file ──► watch ──► Config::judge ──► policy ──► decisions
//!                          └──► news ──► events ──► API server
//! ```
//! This module does no I/O: [`watch`] reads the file, [`events`] writes events.

pub mod events;
pub mod file;
pub mod metrics;
pub mod watch;

use crate::settings::{Policy, Settings};
use events::News;
use file::Problem;
use fpga_core::units::WallTime;
use fpga_extender_api::{ConfigView, FileProblem, FileStatus};
use metrics::ConfigMetrics;
use parking_lot::Mutex;
use std::path::Path;
use std::sync::Arc;
use tokio::sync::watch::{Receiver, Sender};

/// The configuration in force, and its sources.
#[derive(Debug)]
pub struct Config {
    flags: Settings,
    policy: Sender<Arc<Policy>>,
    file: Mutex<Option<Taken>>,
    news: Sender<Option<News>>,
    metrics: ConfigMetrics,
}

/// The last accepted content of the file, and its status for people.
#[derive(Debug, Clone)]
struct Taken {
    settings: Settings,
    status: FileStatus<FileProblem>,
}

/// The result of judging a content of the file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Judged {
    /// The content is in force.
    Taken,
    /// The content is invalid; the configuration in force does not change.
    Refused(Problem),
}

impl Config {
    /// A configuration that never changes.
    #[must_use]
    pub fn fixed(policy: Policy) -> Self {
        Self {
            flags: Settings::default(),
            policy: Sender::new(Arc::new(policy)),
            file: Mutex::default(),
            news: Sender::new(None),
            metrics: ConfigMetrics::default(),
        }
    }

    /// A configuration from flags alone.
    ///
    /// # Errors
    /// A weight is not valid.
    pub fn of_flags(flags: Settings) -> Result<Self, Problem> {
        let policy = flags.policy().map_err(|error| Problem::new(error.to_string()))?;
        Ok(Self { flags, ..Self::fixed(policy) })
    }

    /// A configuration from flags and from the content of a file at the start.
    ///
    /// # Errors
    /// The content is invalid: at the start there is no earlier one that could stay in force.
    pub fn of_file(flags: Settings, path: &Path, text: &str, at: WallTime) -> Result<Self, Problem> {
        let config = Self::of_flags(flags)?;
        let settings = file::parse(text)?;
        config.take(settings, path, at)?;
        Ok(config)
    }

    /// The policy in force; hold it for one decision.
    #[must_use]
    pub fn policy(&self) -> Arc<Policy> {
        Arc::clone(&self.policy.borrow())
    }

    /// A receiver that is notified when the policy changes.
    #[must_use]
    pub fn changes(&self) -> Receiver<Arc<Policy>> {
        self.policy.subscribe()
    }

    /// A receiver of news about the file, for the administrator.
    #[must_use]
    pub fn news(&self) -> Receiver<Option<News>> {
        self.news.subscribe()
    }

    /// The metrics of the configuration.
    #[must_use]
    pub fn metrics(&self) -> &ConfigMetrics {
        &self.metrics
    }

    /// The answer to `/config`.
    #[must_use]
    pub fn view(&self) -> ConfigView<Policy, FileProblem> {
        let taken = self.taken().clone();
        let by_flag = self.flags.names();
        let in_file = taken.as_ref().map(|taken| taken.settings.names()).unwrap_or_default();
        let by_file = in_file.into_iter().filter(|name| !by_flag.contains(name)).collect();
        let file = taken.map(|taken| taken.status);
        ConfigView { policy: Policy::clone(&self.policy()), by_flag, by_file, file }
    }

    /// Takes the new content of the file at `path`, or the error of reading it, and puts a valid content in force.
    pub fn judge(&self, path: &Path, content: Result<&str, &str>, at: WallTime) -> Judged {
        let read = content.map_err(|reason| Problem::new(format!("the file can't be read: {reason}")));
        let taken = read.and_then(file::parse).and_then(|settings| self.take(settings, path, at));
        match taken {
            Ok(()) => {
                self.metrics.taken(&self.policy(), at);
                let weights = self.policy().rules.weights;
                self.news.send_replace(Some(News::Taken(format!(
                    "{} is in force, weights {weights}",
                    path.display()
                ))));
                Judged::Taken
            }
            Err(problem) => {
                if let Some(Taken { status, .. }) = &mut *self.taken() {
                    let since_ms = status.problem.as_ref().map_or(at.0, |before| before.since_ms);
                    let Problem { line, column, message } = problem.clone();
                    status.problem = Some(FileProblem { line, column, message, since_ms });
                }
                self.metrics.refused();
                let told = format!("{}; what was in force before stays", problem.at(path));
                self.news.send_replace(Some(News::Refused(told)));
                Judged::Refused(problem)
            }
        }
    }

    fn take(&self, settings: Settings, path: &Path, at: WallTime) -> Result<(), Problem> {
        let policy = self
            .flags
            .clone()
            .or(settings.clone())
            .policy()
            .map_err(|error| Problem::new(error.to_string()))?;
        self.policy.send_if_modified(|now| {
            let changed = **now != policy;
            if changed {
                *now = Arc::new(policy);
            }
            changed
        });
        let status = FileStatus { path: path.to_owned(), taken_at_ms: at.0, problem: None };
        *self.taken() = Some(Taken { settings, status });
        Ok(())
    }

    fn taken(&self) -> parking_lot::MutexGuard<'_, Option<Taken>> {
        self.file.lock()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PATH: &str = "/etc/fpga/extender.yaml";

    fn config(flags: Settings, text: &str) -> Config {
        Config::of_file(flags, Path::new(PATH), text, WallTime(1)).unwrap()
    }

    fn weights(config: &Config) -> String {
        config.policy().rules.weights.to_string()
    }

    fn news(config: &Config) -> String {
        format!("{:?}", config.news.borrow())
    }

    #[test]
    fn flags_win_over_the_file_and_the_file_over_defaults() {
        let flags = Settings {
            weights: fpga_core::score::PerSignal { usage: Some(9.0), ..Default::default() },
            ..Settings::default()
        };
        let config = config(flags, "weights: {locality: 3, usage: 4}\nmaxScore: 100");
        assert_eq!(weights(&config), "3-9-2");
        let view = serde_json::to_value(config.view()).unwrap();
        assert_eq!(view["byFlag"], serde_json::json!(["weights.usage"]));
        assert_eq!(view["byFile"], serde_json::json!(["weights.locality", "maxScore"]));
        assert_eq!(view["policy"]["weights"]["usage"], 9.0);
        assert_eq!((&view["file"]["path"], &view["file"]["problem"]), (&PATH.into(), &().into()));
    }

    #[test]
    fn a_good_change_is_in_force_and_told() {
        let config = config(Settings::default(), "weights: 1-1-1");
        let mut changes = config.changes();
        assert_eq!(config.judge(Path::new(PATH), Ok("weights: 4-1-1"), WallTime(2)), Judged::Taken);
        assert_eq!(
            (weights(&config).as_str(), changes.borrow_and_update().rules.weights.to_string().as_str()),
            ("4-1-1", "4-1-1")
        );
        assert!(news(&config).contains("weights 4-1-1"), "{}", news(&config));
        // A content with the same meaning notifies no receiver.
        assert_eq!(config.judge(Path::new(PATH), Ok("weights: 4-1-1 # same"), WallTime(3)), Judged::Taken);
        assert!(!changes.has_changed().unwrap());
    }

    #[test]
    fn what_is_wrong_changes_nothing_and_is_told_until_it_is_mended() {
        let config = config(Settings::default(), "weights: 4-1-1");
        for (at, content) in [(5, Ok("weights:\n  usage: -1")), (6, Ok("")), (7, Err("no such file"))] {
            let Judged::Refused(problem) = config.judge(Path::new(PATH), content, WallTime(at)) else {
                panic!("{content:?} was taken")
            };
            assert_eq!(weights(&config), "4-1-1");
            assert!(news(&config).contains("Refused"), "{}", news(&config));
            let view = serde_json::to_value(config.view()).unwrap();
            assert_eq!(view["file"]["problem"]["message"], problem.message);
            assert_eq!(
                (&view["file"]["problem"]["sinceMs"], &view["file"]["takenAtMs"]),
                (&5.into(), &1.into())
            );
        }
        config.judge(Path::new(PATH), Ok("{}"), WallTime(8));
        assert_eq!(weights(&config), "1-2-2");
        assert!(serde_json::to_value(config.view()).unwrap()["file"]["problem"].is_null());
    }

    #[test]
    fn at_the_start_a_file_that_is_wrong_is_an_error() {
        let start = Config::of_file(Settings::default(), Path::new(PATH), "weight: 1-2-2", WallTime(1));
        assert!(start.unwrap_err().at(Path::new(PATH)).starts_with("/etc/fpga/extender.yaml:1:"));
    }
}
