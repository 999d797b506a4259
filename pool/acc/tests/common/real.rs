//! The real broker with real device managers.
#![allow(dead_code, reason = "each test program uses a part")]

use super::managers::{DEADLINE, Manager, OWN_INTERFACE, eventually, library};
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;

/// The real broker, and managers that lend it slots.
pub struct RealBed {
    broker: Child,
    pub address: String,
    metrics: String,
    managers: Vec<Manager>,
    slots: u32,
    library: tempfile::TempDir,
    _folder: tempfile::TempDir,
}

impl RealBed {
    /// A broker with these flags, and managers that lend so many slots each.
    pub fn new(flags: &[&str], managers: &[u32]) -> Self {
        static BUILT: OnceLock<PathBuf> = OnceLock::new();
        let built = BUILT.get_or_init(|| fpga_test_programs::build(&["--bin", "fpga-pool"]));
        let (library, bitstreams) = library();
        let folder = tempfile::tempdir().unwrap();
        let entries = bitstreams.iter().map(|(name, digest)| {
            format!("[[accelerators.{name}]]\nboard = \"pac-a10\"\ndigest = \"{digest}\"\n\n")
        });
        let (listed, ready) = (folder.path().join("library.toml"), folder.path().join("ready"));
        std::fs::write(&listed, entries.collect::<String>() + OWN_INTERFACE).unwrap();
        let broker = Command::new(built.join("fpga-pool"))
            .args(["serve", "--listen", "127.0.0.1:0", "--metrics-listen", "127.0.0.1:0"])
            .arg("--library")
            .arg(&listed)
            .arg("--ready-file")
            .arg(&ready)
            .args(flags)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        eventually("the broker is ready", || ready.exists());
        let text = std::fs::read_to_string(&ready).unwrap();
        let mut lines = text.lines();
        let address = lines.next().unwrap().to_owned();
        let metrics = lines.next().unwrap().strip_prefix("metrics:").unwrap().to_owned();
        let managers_to_add = managers;
        let managers = Vec::new();
        let mut bed = Self { broker, address, metrics, managers, slots: 0, library, _folder: folder };
        for slots in managers_to_add {
            bed.add_manager(*slots);
        }
        bed
    }

    /// Starts one more manager, and waits until the broker has its slots.
    pub fn add_manager(&mut self, slots: u32) {
        self.add_manager_with(slots, &[]);
    }

    /// The same, with more flags of the manager.
    pub fn add_manager_with(&mut self, slots: u32, flags: &[&str]) {
        // The broker tells managers apart by their nodes and boards.
        let node = if self.slots == 0 { "localhost".to_owned() } else { format!("node-{}", self.slots) };
        self.managers.push(Manager::start_with(&self.address, self.library.path(), slots, &node, flags));
        self.slots += slots;
        eventually("the broker has the slots", || self.metric("fpga_pool_slots") == self.slots);
    }

    /// Takes the file of an accelerator's bitstream away: managers that are started later lack it.
    pub fn lose_file(&self, accelerator: &str) {
        std::fs::remove_file(self.library.path().join(format!("{accelerator}.bitstream"))).unwrap();
    }

    /// Kills the manager that was started last but for those that were killed.
    pub fn kill_manager(&mut self) {
        self.managers.pop().unwrap().kill();
    }

    /// Sum of a gauge of the broker over its labels.
    pub fn metric(&self, name: &str) -> u32 {
        self.metric_where(name, "")
    }

    /// Sum of a gauge of the broker over the lines that contain a text.
    pub fn metric_where(&self, name: &str, text: &str) -> u32 {
        let mut stream = TcpStream::connect(&self.metrics).unwrap();
        stream.set_read_timeout(Some(DEADLINE)).unwrap();
        stream.write_all(b"GET /metrics HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        let is_meant = |line: &&str| line.starts_with(name) && line.contains(text);
        let value = |line: &str| line.rsplit(' ').next()?.parse::<u32>().ok();
        answer.lines().filter(is_meant).filter_map(value).sum()
    }
}

impl Drop for RealBed {
    fn drop(&mut self) {
        let _ = self.broker.kill();
        self.broker.wait().unwrap();
    }
}
