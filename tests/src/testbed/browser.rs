//! A headless Chromium, driven by its DevTools protocol. `hack/chromium.sh` installs it.

mod socket;

use super::http_client::HttpClient;
use super::process::{Process, ProcessSpec};
use super::wait;
use anyhow::{Context as _, Result, bail, ensure};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD as STANDARD;
use fpga_test_kit::patience;
use serde_json::{Value, json};
use socket::Socket;
use std::path::Path;
use std::time::Duration;
use tempfile::TempDir;

/// Longest time that Chromium may take to start. It is slow where another program has the processors.
const START: Duration = Duration::from_secs(60);

/// A browser with one page.
pub struct Browser {
    socket: Socket,
    last_id: u64,
    /// What the page complained of: exceptions, and errors of its console.
    complaints: Vec<String>,
    _process: Process,
    _dir: TempDir,
}

impl Browser {
    /// Starts a browser whose window has this width and height.
    ///
    /// # Errors
    /// There is no Chromium, or it does not start.
    pub async fn start(width: u32, height: u32) -> Result<Self> {
        let program = ["chromium", "chromium-browser", "google-chrome"]
            .into_iter()
            .find(|name| {
                std::env::split_paths(&std::env::var_os("PATH").unwrap_or_default())
                    .any(|folder| folder.join(name).is_file())
            })
            .context(
                "there is no Chromium here. Install it: hack/chromium.sh, or apt-get install chromium",
            )?;
        let dir = tempfile::tempdir()?;
        let profile = dir.path().join("profile");
        // The sandbox needs more than a container gives to root; the pages are our own.
        let spec = ProcessSpec::new("chromium", program, dir.path().join("log"))
            .args(["--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--no-first-run"])
            .args(["--remote-debugging-port=0", "--disable-dev-shm-usage", "--disable-background-networking"])
            .arg(format!("--window-size={width},{height}"))
            .arg(format!("--user-data-dir={}", profile.display()))
            .arg("about:blank");
        let process = Process::start(&spec)?;
        let port = wait::until_within("Chromium's port", START, async || {
            process.check_running()?;
            let text = std::fs::read_to_string(profile.join("DevToolsActivePort")).unwrap_or_default();
            Ok(text.split_once('\n').map(|(port, _)| port.to_owned()))
        })
        .await?;
        let http = HttpClient::new(Duration::from_secs(10));
        let address = wait::until_within("Chromium's page", START, async || {
            let targets = http.get(&format!("http://127.0.0.1:{port}/json")).await?.json()?;
            let mut pages = targets.as_array().into_iter().flatten();
            let page = pages.find(|target| target["type"] == "page");
            Ok(page.and_then(|page| page["webSocketDebuggerUrl"].as_str().map(str::to_owned)))
        })
        .await?;
        let socket = Socket::connect(&address).await?;
        let mut browser = Self { socket, last_id: 0, complaints: Vec::new(), _process: process, _dir: dir };
        for domain in ["Page.enable", "Runtime.enable", "Log.enable"] {
            browser.command(domain, json!({})).await?;
        }
        // Durations are the processor's time of the page's thread, which another program on the machine does not lengthen.
        browser.command("Performance.enable", json!({"timeDomain": "threadTicks"})).await?;
        let size = json!({"width": width, "height": height, "deviceScaleFactor": 1, "mobile": false});
        browser.command("Emulation.setDeviceMetricsOverride", size).await?;
        Ok(browser)
    }

    /// Opens a page.
    ///
    /// # Errors
    /// The browser refuses the address.
    pub async fn open(&mut self, url: &str) -> Result<()> {
        let answer = self.command("Page.navigate", json!({"url": url})).await?;
        ensure!(answer["errorText"].is_null(), "{url} can't be opened: {answer}");
        Ok(())
    }

    /// The value of a JavaScript expression on the page.
    ///
    /// # Errors
    /// The expression throws.
    pub async fn value(&mut self, expression: &str) -> Result<Value> {
        let parameters = json!({"expression": expression, "returnByValue": true, "awaitPromise": true});
        let answer = self.command("Runtime.evaluate", parameters).await?;
        if !answer["exceptionDetails"].is_null() {
            bail!("{expression} throws: {}", answer["exceptionDetails"]);
        }
        Ok(answer["result"]["value"].clone())
    }

    /// Waits until an expression is true.
    ///
    /// # Errors
    /// The expression is not true in time.
    pub async fn wait(&mut self, expression: &str) -> Result<()> {
        let deadline = tokio::time::Instant::now() + patience();
        // While a page is loaded an expression may find nothing.
        while !self.value(expression).await.is_ok_and(|value| value == true) {
            if tokio::time::Instant::now() > deadline {
                let text = self.value("document.body.innerText").await.unwrap_or_default();
                bail!(
                    "{expression} is not true in time; the page says: {text}; complaints: {:?}",
                    self.complaints
                );
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        Ok(())
    }

    /// Waits until a text is on the page, whatever its case is by style.
    ///
    /// # Errors
    /// The text does not appear in time.
    pub async fn wait_for_text(&mut self, text: &str) -> Result<()> {
        self.wait(&format!("document.body.textContent.includes({})", json!(text))).await
    }

    /// The processor's time that the page's scripts have taken so far.
    ///
    /// # Errors
    /// The browser does not tell.
    pub async fn script_time(&mut self) -> Result<Duration> {
        let answer = self.command("Performance.getMetrics", json!({})).await?;
        let mut metrics = answer["metrics"].as_array().into_iter().flatten();
        let script = metrics.find(|metric| metric["name"] == "ScriptDuration");
        let seconds = script.and_then(|metric| metric["value"].as_f64()).context("no ScriptDuration")?;
        Ok(Duration::try_from_secs_f64(seconds)?)
    }

    /// Presses and releases a key by its name in `KeyboardEvent.key`.
    ///
    /// # Errors
    /// The browser does not answer.
    pub async fn press(&mut self, key: &str) -> Result<()> {
        let text = if key.chars().count() == 1 { Some(key) } else { None };
        let code = match key {
            "Enter" => 13,
            "Escape" => 27,
            _ => 0,
        };
        let text = if key == "Enter" { Some("\r") } else { text };
        let down = json!({"type": "keyDown", "key": key, "text": text, "windowsVirtualKeyCode": code});
        let mut down = down;
        if text.is_none() {
            down.as_object_mut().map(|fields| fields.remove("text"));
        }
        self.command("Input.dispatchKeyEvent", down).await?;
        self.command("Input.dispatchKeyEvent", json!({"type": "keyUp", "key": key})).await?;
        Ok(())
    }

    /// Lets the page see a dark or a light system.
    ///
    /// # Errors
    /// The browser does not answer.
    pub async fn prefer(&mut self, scheme: &str) -> Result<()> {
        let features = json!({"features": [{"name": "prefers-color-scheme", "value": scheme}]});
        self.command("Emulation.setEmulatedMedia", features).await?;
        Ok(())
    }

    /// Writes a picture of the page as PNG.
    ///
    /// # Errors
    /// The file can't be written.
    pub async fn picture(&mut self, path: &Path) -> Result<()> {
        let answer = self.command("Page.captureScreenshot", json!({"format": "png"})).await?;
        let data = answer["data"].as_str().context("no picture")?;
        std::fs::write(path, STANDARD.decode(data).context("the picture is not base64")?)
            .with_context(|| format!("can't write {}", path.display()))
    }

    /// What the page complained of so far.
    #[must_use]
    pub fn complaints(&self) -> &[String] {
        &self.complaints
    }

    async fn command(&mut self, method: &str, params: Value) -> Result<Value> {
        self.last_id += 1;
        let id = self.last_id;
        self.socket.send(&json!({"id": id, "method": method, "params": params}).to_string()).await?;
        loop {
            let message: Value = serde_json::from_str(&self.socket.receive().await?)?;
            if message["id"] == id {
                ensure!(message["error"].is_null(), "{method}: {}", message["error"]);
                return Ok(message["result"].clone());
            }
            self.note(&message);
        }
    }

    fn note(&mut self, message: &Value) {
        let params = &message["params"];
        let is_complaint = match message["method"].as_str() {
            Some("Runtime.exceptionThrown" | "Page.javascriptDialogOpening") => true,
            Some("Runtime.consoleAPICalled") => params["type"] == "error",
            Some("Log.entryAdded") => params["entry"]["level"] == "error",
            _ => false,
        };
        if is_complaint {
            self.complaints.push(params.to_string());
        }
    }
}
