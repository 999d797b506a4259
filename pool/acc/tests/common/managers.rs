//! Real device managers over PoCL, and what all tests of the pool's client share.
#![allow(dead_code, reason = "each test program uses a part")]

use fpga_accelerators::Accelerator;
use fpga_core::bitstream::Digest;
use ring::digest::{SHA256, digest};
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// Time for anything that a test waits for.
pub const DEADLINE: Duration = Duration::from_secs(60);

/// A manager's process, killed with SIGKILL when dropped.
pub struct Manager {
    process: Child,
    _folder: tempfile::TempDir,
}

impl Manager {
    /// A manager on a node, which lends so many slots. A client on `localhost` reaches that of its node by its socket.
    pub fn start(broker: &str, library: &Path, slots: u32, node: &str) -> Self {
        Self::start_with(broker, library, slots, node, &[])
    }

    /// The same, with more flags.
    pub fn start_with(broker: &str, library: &Path, slots: u32, node: &str, flags: &[&str]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let socket = format!("unix:{}", folder.path().join("dm.sock").display());
        let broker = format!("http://{broker}");
        let process = Command::new(manager_binary())
            .args(["serve", "--runtime", "pocl", "--board", "pac-a10", "--listen", &socket])
            .args([
                "--slots",
                &slots.to_string(),
                "--pool-slots",
                &slots.to_string(),
                "--pool-broker",
                &broker,
                "--pool-node",
                node,
                "--pool-listen",
                "127.0.0.1:0",
                "--insecure-tcp",
            ])
            .arg("--bitstreams")
            .arg(library)
            .args(flags)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        Self { process, _folder: folder }
    }

    pub fn kill(&mut self) {
        let _ = self.process.kill();
        self.process.wait().unwrap();
    }
}

impl Drop for Manager {
    fn drop(&mut self) {
        self.kill();
    }
}

/// A folder of bitstreams, and their digests by accelerator.
pub fn library() -> (tempfile::TempDir, HashMap<String, Digest>) {
    let library = tempfile::tempdir().unwrap();
    let mut bitstreams = HashMap::new();
    let shipped = [Accelerator::Aes256Ctr, Accelerator::Sha256, Accelerator::ReedSolomon];
    let shipped = shipped.map(|accelerator| (accelerator.name(), accelerator.source()));
    for (name, source) in shipped.into_iter().chain([(OWN, OWN_SOURCE)]) {
        let path = library.path().join(format!("{name}.bitstream"));
        std::fs::copy(bitstream(name, source), &path).unwrap();
        let bytes: [u8; 32] = digest(&SHA256, &std::fs::read(&path).unwrap()).as_ref().try_into().unwrap();
        bitstreams.insert(name.to_owned(), Digest::from_bytes(bytes));
    }
    (library, bitstreams)
}

/// An accelerator that is not shipped, and what it takes and gives as the library's file says it.
pub const OWN: &str = "invert";
pub const OWN_INTERFACE: &str = "[interfaces.invert]\nkernel = \"invert\"\nblockBytes = 1\noutputBytesPerBlock = 1\n\
    tail = \"Partial\"\npure = true\nworkGroupSize = 64\nworkItemsPerBlock = 1\n";
const OWN_SOURCE: &str = "__kernel __attribute__((reqd_work_group_size(64, 1, 1)))
void invert(__global const uchar *restrict input, __global uchar *restrict output, uint input_bytes) {
    size_t at = get_global_id(0);
    if (at < input_bytes) output[at] = ~input[at];
}";

fn manager_binary() -> &'static Path {
    static BINARY: OnceLock<PathBuf> = OnceLock::new();
    BINARY.get_or_init(|| {
        fpga_test_programs::build(&["--bin", "fpga-device-manager"]).join("fpga-device-manager")
    })
}

/// The bitstream of an accelerator, made once for all tests of this process.
fn bitstream(name: &'static str, code: &str) -> PathBuf {
    static MADE: OnceLock<std::sync::Mutex<HashMap<&str, (tempfile::TempDir, PathBuf)>>> = OnceLock::new();
    let mut made = MADE.get_or_init(Default::default).lock().unwrap();
    let (_, path) = made.entry(name).or_insert_with(|| {
        let folder = tempfile::tempdir().unwrap();
        let (source, path) = (folder.path().join("kernel.cl"), folder.path().join("kernel.bitstream"));
        std::fs::write(&source, code).unwrap();
        let mut make = Command::new(manager_binary());
        make.args(["build-bitstream", "--runtime", "pocl", "-o"]).arg(&path).arg(&source);
        assert!(make.status().unwrap().success(), "no bitstream of {name}");
        (folder, path)
    });
    path.clone()
}

/// Polls `condition` until it holds, and panics if it never does.
pub fn eventually(what: &str, condition: impl Fn() -> bool) {
    let since = Instant::now();
    while !condition() {
        assert!(since.elapsed() < DEADLINE, "never: {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Bytes that look random and are the same each time.
pub fn bytes(count: usize) -> Vec<u8> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()[3]
    };
    (0..count).map(|_| next()).collect()
}
