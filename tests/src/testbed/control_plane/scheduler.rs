//! kube-scheduler's configuration: the shipped file with the addresses of this test bed.

use crate::testbed::helm::template;
use crate::testbed::programs::repository;
use anyhow::{Context as _, Result, bail, ensure};
use std::path::Path;

/// A configuration: a shipped one with some values replaced, or one without an extender.
#[derive(Debug, Clone)]
pub struct SchedulerConfig {
    text: String,
    verbosity: u8,
}

/// Log verbosity at which kube-scheduler reports failed prioritize calls.
const TELLS_EVERYTHING: u8 = 5;
/// The part of the chart with the configuration of our own scheduler.
const OWN: &str = "templates/scheduler/config-maps.yaml";
/// Name of the configuration's file in its `ConfigMap`.
const OWN_FILE: &str = "kube-scheduler.yaml";

impl SchedulerConfig {
    /// The shipped configuration with the extender at `url`.
    ///
    /// # Errors
    /// The file is missing, or has no extender.
    pub fn shipped(url: &str) -> Result<Self> {
        Self::read("kube-scheduler.yaml", url)
    }

    /// The configuration of our own scheduler as the chart renders it for a cluster of `nodes` nodes, with the extender
    /// at `url`. Here it places pods that name no scheduler.
    ///
    /// # Errors
    /// Helm was not built, or the chart has no such configuration.
    pub fn own(url: &str, nodes: usize) -> Result<Self> {
        let map = template(OWN, &[&format!("scheduler.nodes={nodes}")])?;
        let text = literal_block(&map, OWN_FILE)?;
        Self::of_test_bed(text, url)?.with("schedulerName", "default-scheduler")
    }

    /// The shipped configuration for an extender in another pod, at `url` over HTTPS. `certificates` has the files of
    /// manifests/certificates.sh.
    ///
    /// # Errors
    /// The file is missing, or has no extender.
    pub fn https(url: &str, certificates: &Path) -> Result<Self> {
        let file = |name: &str| certificates.join(name).display().to_string();
        Self::read("kube-scheduler.https.yaml", url)?
            .with("caFile", &file("ca.crt"))?
            .with("certFile", &file("kube-scheduler.crt"))?
            .with("keyFile", &file("kube-scheduler.key"))
    }

    /// The shipped configuration for the wiring by labels only, with the extender at `url`.
    ///
    /// # Errors
    /// The file is missing, or has no extender.
    pub fn label_only(url: &str) -> Result<Self> {
        Self::read("kube-scheduler.label-only.yaml", url)
    }

    fn read(file: &str, url: &str) -> Result<Self> {
        let path = repository().join("scheduler-config").join(file);
        let text =
            std::fs::read_to_string(&path).with_context(|| format!("can't read {}", path.display()))?;
        Self::of_test_bed(text, url)
    }

    fn of_test_bed(text: String, url: &str) -> Result<Self> {
        // Only one kube-scheduler runs, and it must not wait for the lease of the one before.
        let config = Self { text, verbosity: TELLS_EVERYTHING }.with("leaderElect", "false")?;
        // On a busy machine the extender may not run for a second, and kube-scheduler goes on without late scores.
        config.with("urlPrefix", url)?.with("httpTimeout", "20s")
    }

    /// A configuration without an extender.
    #[must_use]
    pub fn without_extender() -> Self {
        let text = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n\
                    clientConnection:\n  kubeconfig: -\nleaderElection:\n  leaderElect: false\n";
        Self { text: text.to_owned(), verbosity: TELLS_EVERYTHING }
    }

    /// Lets kube-scheduler work only while it has the Lease `name` in `namespace`.
    ///
    /// # Errors
    /// The configuration has no election.
    pub fn leading(self, namespace: &str, name: &str) -> Result<Self> {
        let lease = format!("true\n  resourceNamespace: {namespace}\n  resourceName: {name}");
        self.with("leaderElect", &lease)
    }

    /// Replaces the value of a key.
    ///
    /// # Errors
    /// The key does not appear exactly once.
    pub fn with(self, key: &str, value: &str) -> Result<Self> {
        Ok(Self { text: rewrite_scheduler_config(&self.text, key, value)?, ..self })
    }

    /// The value of a key at the top level.
    ///
    /// # Errors
    /// There is no such key.
    pub fn value(&self, key: &str) -> Result<String> {
        let of_key = |line: &str| Some(line.strip_prefix(key)?.strip_prefix(':')?.trim().to_owned());
        let value = self.text.lines().find_map(of_key);
        value.with_context(|| format!("the scheduler's configuration has no {key}"))
    }

    /// Adds a key at the top level.
    #[must_use]
    pub fn and(self, key: &str, value: &str) -> Self {
        Self { text: format!("{}{key}: {value}\n", self.text), ..self }
    }

    /// Raises kube-scheduler's limit on its requests to the API server (50 per second by default) and reduces its log,
    /// to measure how fast pods are placed.
    ///
    /// # Errors
    /// The configuration has no client connection.
    pub fn unthrottled(self) -> Result<Self> {
        if self.text.contains("\n  qps:") {
            return Ok(Self { verbosity: 1, ..self.with("qps", "5000")?.with("burst", "5000")? });
        }
        let section = "clientConnection:\n";
        let Some((before, after)) = self.text.split_once(section) else {
            bail!("the scheduler's configuration has no clientConnection");
        };
        let text = format!("{before}{section}  qps: 5000\n  burst: 5000\n{after}");
        Ok(Self { text, verbosity: 1 })
    }

    /// Verbosity of the log.
    pub(super) const fn verbosity(&self) -> u8 {
        self.verbosity
    }

    /// The text of the configuration, for the identity of `kubeconfig`.
    pub(super) fn text(&self, kubeconfig: &Path) -> Result<String> {
        rewrite_scheduler_config(&self.text, "kubeconfig", &kubeconfig.display().to_string())
    }
}

/// Replaces the value of `key` in the YAML `text`, at any level, and keeps everything else.
fn rewrite_scheduler_config(text: &str, key: &str, value: &str) -> Result<String> {
    let mut found = 0;
    let lines = text.lines().map(|line| {
        let start = line.len() - line.trim_start_matches([' ', '-']).len();
        let (indent, rest) = line.split_at(start);
        if rest.split_once(':').is_some_and(|(name, _)| name == key) {
            found += 1;
            format!("{indent}{key}: {value}\n")
        } else {
            format!("{line}\n")
        }
    });
    let text = lines.collect();
    if found != 1 {
        bail!("the scheduler's configuration has the key {key} {found} times, and not once");
    }
    Ok(text)
}

/// The text under `key` in YAML that has it as a literal block (`key: |`).
fn literal_block(yaml: &str, key: &str) -> Result<String> {
    let head = format!("{key}: |");
    let mut lines = yaml.lines().skip_while(|line| line.trim_start() != head);
    let indent = lines.next().with_context(|| format!("there is no {head}"))?;
    let indent = " ".repeat(indent.len() - indent.trim_start().len() + 2);
    let block: String =
        lines.map_while(|line| line.strip_prefix(&indent)).map(|line| format!("{line}\n")).collect();
    ensure!(!block.is_empty(), "{key} is empty");
    Ok(block)
}
