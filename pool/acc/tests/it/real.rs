//! The real broker with real device managers.

use super::managers::{OWN_INTERFACE, library, start_manager};
use fpga_test_kit::{Manager, Program, http, metrics, programs, until};
use std::process::{Command, Stdio};

/// The real broker, and managers that lend it slots.
pub struct RealBed {
    _broker: Program,
    pub address: String,
    pub metrics: String,
    pub managers: Vec<Manager>,
    pub library: tempfile::TempDir,
    lent: u32,
    _folder: tempfile::TempDir,
}

impl RealBed {
    /// A broker with these flags, and managers that lend so many slots each.
    pub fn new(flags: &[&str], managers: &[u32]) -> Self {
        let (library, bitstreams) = library();
        let folder = tempfile::tempdir().unwrap();
        let entries = bitstreams.iter().map(|(name, digest)| {
            format!("[[accelerators.{name}]]\nboard = \"pac-a10\"\ndigest = \"{digest}\"\n\n")
        });
        let (listed, ready) = (folder.path().join("library.toml"), folder.path().join("ready"));
        std::fs::write(&listed, entries.collect::<String>() + OWN_INTERFACE).unwrap();
        let mut serve = Command::new(programs::built("fpga-pool"));
        serve.args(["serve", "--listen", "127.0.0.1:0", "--metrics-listen", "127.0.0.1:0", "--library"]);
        serve.arg(&listed).arg("--ready-file").arg(&ready).args(flags).stdout(Stdio::null());
        let mut broker = Program::start(&mut serve);
        let lines = broker.ready(&ready);
        let address = lines[0].clone();
        let metrics = lines[1].strip_prefix("metrics:").unwrap().to_owned();
        let mut bed = Self {
            _broker: broker,
            address,
            metrics,
            managers: Vec::new(),
            library,
            lent: 0,
            _folder: folder,
        };
        for slots in managers {
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
        let node = if self.lent == 0 { "localhost".to_owned() } else { format!("node-{}", self.lent) };
        self.managers.push(start_manager(&self.address, self.library.path(), slots, &node, flags));
        self.lent += slots;
        until(format!("{} slots of the broker", self.lent), || self.slots("") == f64::from(self.lent));
    }

    /// Number of slots in a state, such as `free`; of all slots for an empty text.
    pub fn slots(&self, state: &str) -> f64 {
        let text = http::get(&self.metrics, "/metrics").text;
        let slots = metrics::values(&text, "fpga_pool_slots").filter(|(series, _)| series.contains(state));
        slots.map(|(_, count)| count).sum()
    }
}
