//! Reads the configuration file once a second and compares its content, not dates or names: a ConfigMap changes by a
//! symbolic link that is replaced two folders up, an editor writes a new file, a script overwrites the old one.
//!
//! A content counts when two reads in a row have found it, so that a half-written file is not taken.

use super::file::MAX_BYTES;
use super::{Config, Judged};
use crate::clock::Clock;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio::fs::File;
use tokio::io::AsyncReadExt as _;
use tokio::time::MissedTickBehavior;
use tracing::{info, warn};

/// Time between two reads.
pub const POLL_INTERVAL: Duration = Duration::from_secs(1);

/// The content of the file, or the error of reading it.
pub type Content = Result<String, String>;

/// The contents that were read from a path.
#[derive(Debug)]
pub struct FileWatch {
    path: PathBuf,
    judged: Content,
    once: Option<Content>,
}

impl FileWatch {
    /// A watch on the file at `path`, whose content `judged` is already known.
    #[must_use]
    pub fn new(path: PathBuf, judged: String) -> Self {
        Self { path, judged: Ok(judged), once: None }
    }

    /// Takes the content that was read. Returns it if it is new and the previous read has found it as well.
    pub fn found(&mut self, content: Content) -> Option<&Content> {
        if content == self.judged {
            self.once = None;
            return None;
        }
        if self.once.as_ref() != Some(&content) {
            self.once = Some(content);
            return None;
        }
        self.once = None;
        self.judged = content;
        Some(&self.judged)
    }

    /// Reads the file for ever, once per `apart`, and passes new contents to `config`.
    pub async fn run(mut self, config: &Config, clock: &Clock, apart: Duration) {
        let mut looks = tokio::time::interval(apart);
        looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            looks.tick().await;
            let content = read(&self.path).await.map_err(|error| error.to_string());
            let path = self.path.clone();
            let Some(content) = self.found(content) else { continue };
            let content = content.as_ref().map(String::as_str).map_err(String::as_str);
            match config.judge(&path, content, clock.read().wall) {
                Judged::Taken => {
                    let policy = config.policy();
                    info!(path = %path.display(), weights = %policy.rules.weights, "Configuration taken");
                }
                Judged::Refused(problem) => {
                    warn!(problem = problem.at(&path), "Configuration refused, the last good one stays");
                }
            }
        }
    }
}

/// Reads the text at `path`.
///
/// # Errors
/// The file can't be read or is not UTF-8. A file longer than [`MAX_BYTES`] is read up to one byte beyond, which
/// suffices to reject it.
pub async fn read(path: &Path) -> io::Result<String> {
    let mut text = String::new();
    let limit = u64::try_from(MAX_BYTES).unwrap_or(u64::MAX).saturating_add(1);
    File::open(path).await?.take(limit).read_to_string(&mut text).await?;
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::Moment;
    use crate::settings::Settings;
    use fpga_core::units::{MonotonicTime, WallTime};
    use std::os::unix::fs::symlink;

    #[test]
    fn a_content_counts_when_it_was_found_twice() {
        let mut watch = FileWatch::new("x".into(), "old".into());
        let text = |text: &str| Ok::<_, String>(text.to_owned());
        for (content, new) in [
            (text("old"), false),
            (text("ne"), false),
            (text("new"), false),
            (text("new"), true),
            (text("new"), false),
            (Err("gone".to_owned()), false),
            (text("new"), false),
            (Err("gone".to_owned()), false),
            (Err("gone".to_owned()), true),
            (Err("gone".to_owned()), false),
            (text("new"), false),
            (text("new"), true),
        ] {
            assert_eq!(watch.found(content.clone()).cloned(), new.then_some(content));
        }
    }

    /// Mounts a file as the kubelet does: `file` leads to `..data/file`, `..data` to a folder, and an update replaces
    /// that link.
    fn mount(folder: &Path, generation: &str, text: &str) {
        std::fs::create_dir(folder.join(generation)).unwrap();
        std::fs::write(folder.join(generation).join("extender.yaml"), text).unwrap();
        symlink(generation, folder.join("..data_tmp")).unwrap();
        std::fs::rename(folder.join("..data_tmp"), folder.join("..data")).unwrap();
    }

    #[tokio::test]
    async fn a_config_map_that_is_replaced_is_taken_and_a_wrong_one_is_not() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("extender.yaml");
        mount(folder.path(), "..1", "weights: 1-1-1");
        symlink("..data/extender.yaml", &path).unwrap();
        let text = read(&path).await.unwrap();
        let config = Config::of_file(Settings::default(), &path, &text, WallTime(1)).unwrap();
        let clock = Clock::new(|| Moment { now: MonotonicTime(2), wall: WallTime(2) });
        let (mut changes, mut news) = (config.changes(), config.news());
        let steps = async {
            mount(folder.path(), "..2", "weights: 4-1-1");
            changes.changed().await.unwrap();
            assert_eq!(config.policy().rules.weights.to_string(), "4-1-1");
            news.mark_unchanged();
            mount(folder.path(), "..3", "weights: 4-1");
            news.changed().await.unwrap();
            assert!(format!("{:?}", news.borrow()).contains("extender.yaml:1:10: "), "{:?}", news.borrow());
            assert_eq!(config.policy().rules.weights.to_string(), "4-1-1");
            mount(folder.path(), "..4", "weights: 0-0-0");
            changes.changed().await.unwrap();
            assert_eq!(config.policy().rules.weights.to_string(), "0-0-0");
        };
        tokio::select! {
            () = FileWatch::new(path.clone(), text).run(&config, &clock, Duration::from_millis(2)) => unreachable!("it looks for ever"),
            steps = tokio::time::timeout(Duration::from_secs(20), steps) => steps.unwrap(),
        }
    }
}
