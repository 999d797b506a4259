//! A real Prometheus that scrapes our programs and evaluates the chart's rules, and promtool. `hack/promtool.sh` brings both.

use super::http_client::HttpClient;
use super::process::{Process, ProcessSpec};
use super::programs::repository;
use super::run_dir::RunDir;
use anyhow::{Context as _, Result, ensure};
use fpga_test_kit::patience;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::Command;

const PORT: u16 = 9090;

/// What Prometheus scrapes.
#[derive(Debug, Clone)]
pub struct Target {
    address: String,
    path: String,
    labels: BTreeMap<&'static str, String>,
}

impl Target {
    /// The metrics at a URL `http://ADDRESS:PORT/PATH`.
    #[must_use]
    pub fn new(url: &str) -> Self {
        let rest = url.trim_start_matches("http://");
        let (address, path) = rest.split_once('/').unwrap_or((rest, "metrics"));
        Self { address: address.to_owned(), path: format!("/{path}"), labels: BTreeMap::new() }
    }

    /// Gives all samples a label, unless they have the label already.
    #[must_use]
    pub fn label(mut self, name: &'static str, value: &str) -> Self {
        self.labels.insert(name, value.to_owned());
        self
    }

    fn scrape_config(&self, number: usize) -> Value {
        json!({
            "job_name": format!("target-{number}"), "metrics_path": self.path, "honor_labels": true,
            "static_configs": [{"targets": [self.address], "labels": self.labels}],
        })
    }
}

/// A running Prometheus.
#[derive(Debug)]
pub struct Prometheus {
    process: Process,
    address: SocketAddr,
}

impl Prometheus {
    /// Starts Prometheus at `ip`. It scrapes the targets each second, and keeps labels of the programs' own, as the chart's
    /// PodMonitors do. `rules` are the groups of a PrometheusRule.
    ///
    /// # Errors
    /// Prometheus is missing, or does not start.
    pub async fn start(
        ip: Ipv4Addr,
        run_dir: &RunDir,
        http: &HttpClient,
        targets: &[Target],
        rules: &Value,
    ) -> Result<Self> {
        let program = program("prometheus")?;
        let folder = run_dir.path().join("prometheus");
        std::fs::create_dir_all(&folder).context("can't make Prometheus's folder")?;
        let config = json!({
            "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
            "rule_files": ["rules.yaml"],
            "scrape_configs": targets.iter().enumerate().map(|(number, target)| target.scrape_config(number)).collect::<Vec<_>>(),
        });
        // YAML takes JSON.
        std::fs::write(folder.join("rules.yaml"), rules.to_string())?;
        std::fs::write(folder.join("prometheus.yaml"), config.to_string())?;
        let address = SocketAddr::from((ip, PORT));
        let spec = ProcessSpec::new("prometheus", program, run_dir.log("prometheus"))
            .arg(format!("--config.file={}", folder.join("prometheus.yaml").display()))
            .arg(format!("--storage.tsdb.path={}", folder.join("data").display()))
            .arg(format!("--web.listen-address={address}"));
        let process = Process::start(&spec)?;
        process.wait_ready(http, &format!("http://{address}/-/ready"), patience()).await?;
        Ok(Self { process, address })
    }

    /// The series that an expression gives now: labels and value.
    ///
    /// # Errors
    /// Prometheus does not answer, or does not take the expression.
    pub async fn query(&self, http: &HttpClient, expression: &str) -> Result<Vec<(Value, f64)>> {
        self.process.check_running()?;
        let query = encoded(expression);
        let answer = http.get(&format!("http://{}/api/v1/query?query={query}", self.address)).await?;
        ensure!(answer.status.is_success(), "{expression}: {}", answer.text());
        let mut answer = answer.json()?;
        let series = answer["data"]["result"].take();
        let series = series.as_array().with_context(|| format!("{expression} is no vector: {answer}"))?;
        let value = |one: &Value| Some((one["metric"].clone(), one["value"][1].as_str()?.parse().ok()?));
        series.iter().map(|one| value(one).context("a series without a value")).collect()
    }

    /// The values that a label has in series now.
    ///
    /// # Errors
    /// Prometheus does not answer, or does not take the series.
    pub async fn label_values(&self, http: &HttpClient, series: &str, label: &str) -> Result<Vec<String>> {
        self.process.check_running()?;
        let series = encoded(series);
        let url = format!("http://{}/api/v1/label/{label}/values?match%5B%5D={series}", self.address);
        let answer = http.get(&url).await?;
        ensure!(answer.status.is_success(), "{url}: {}", answer.text());
        Ok(serde_json::from_value(answer.json()?["data"].take())?)
    }

    /// The alerts that fire, with their labels and texts.
    ///
    /// # Errors
    /// Prometheus does not answer.
    pub async fn firing(&self, http: &HttpClient) -> Result<Vec<Value>> {
        self.process.check_running()?;
        let mut answer = http.get(&format!("http://{}/api/v1/alerts", self.address)).await?.json()?;
        let alerts = answer["data"]["alerts"].take();
        let alerts = alerts.as_array().with_context(|| format!("no alerts: {answer}"))?;
        Ok(alerts.iter().filter(|alert| alert["state"] == "firing").cloned().collect())
    }

    /// Kills Prometheus.
    pub async fn kill(&self) {
        self.process.kill().await;
    }
}

/// Runs promtool in this folder.
///
/// # Errors
/// Promtool is missing, or finds something wrong, which it says.
pub fn promtool(folder: &Path, arguments: &[&str]) -> Result<()> {
    let output = Command::new(program("promtool")?).args(arguments).current_dir(folder).output()?;
    let said = [output.stdout, output.stderr].concat();
    ensure!(output.status.success(), "promtool {arguments:?}: {}", String::from_utf8_lossy(&said));
    Ok(())
}

fn program(name: &str) -> Result<PathBuf> {
    let program = repository().join("build/promtool").join(name);
    ensure!(program.exists(), "{} is missing. Run `make promtool` (once)", program.display());
    Ok(program)
}

/// Text as a part of a URL's query.
fn encoded(text: &str) -> String {
    text.bytes().fold(String::new(), |mut encoded, byte| {
        if byte.is_ascii_alphanumeric() {
            encoded.push(char::from(byte));
        } else {
            // Writing to a string can't fail.
            let _ = write!(encoded, "%{byte:02X}");
        }
        encoded
    })
}
