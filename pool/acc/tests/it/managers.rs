//! Device managers that lend slots, and what they run.

use fpga_accelerators::Accelerator;
use fpga_core::bitstream::Digest;
use fpga_test_kit::manager::command;
use fpga_test_kit::{Manager, programs};
use ring::digest::{SHA256, digest};
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

/// Starts a manager on a node, which lends so many slots. A client on `localhost` reaches that of its node by its socket.
pub fn start_manager(broker: &str, library: &Path, slots: u32, node: &str, flags: &[&str]) -> Manager {
    let (slots, broker) = (slots.to_string(), format!("http://{broker}"));
    let board = ["--board", "pac-a10", "--slots", &slots, "--bitstreams", library.to_str().unwrap()];
    let lends = ["--pool-slots", &slots, "--pool-broker", &broker, "--pool-node", node];
    let listens = ["--pool-listen", "127.0.0.1:0", "--insecure-tcp"];
    Manager::start_over("pocl", &[], &[&board[..], &lends, &listens, flags].concat())
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

/// The bitstream of an accelerator. All processes of tests share it until the device manager is built again.
fn bitstream(name: &str, source: &str) -> PathBuf {
    let built = programs::built("fpga-device-manager").metadata().unwrap().modified().unwrap();
    let built = built.duration_since(UNIX_EPOCH).unwrap().as_nanos();
    let key = digest(&SHA256, format!("{built} {source}").as_bytes());
    let key: String = key.as_ref()[..16].iter().map(|byte| format!("{byte:02x}")).collect();
    let shared = programs::folder().join("test-bitstreams");
    let path = shared.join(key);
    if !path.exists() {
        std::fs::create_dir_all(&shared).unwrap();
        let folder = tempfile::tempdir_in(&shared).unwrap();
        let (code, made) = (folder.path().join("kernel.cl"), folder.path().join("kernel.bitstream"));
        std::fs::write(&code, source).unwrap();
        let mut make = command();
        make.args(["build-bitstream", "--runtime", "pocl", "-o"]).arg(&made).arg(&code);
        assert!(make.status().unwrap().success(), "no bitstream of {name}");
        // Another process may have made it meanwhile, which makes no difference.
        std::fs::rename(made, &path).unwrap();
    }
    path
}

/// Bytes that look random and are the same each time.
pub fn bytes(count: usize) -> Vec<u8> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()
    };
    let mut bytes = vec![0; count];
    for part in bytes.chunks_mut(8) {
        part.copy_from_slice(&next()[..part.len()]);
    }
    bytes
}
