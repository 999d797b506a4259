//! Managers over a board that has one image at a time, and fails when told to.

use super::Manager;
use fpga_emulated_board::{Controls, VARIABLE};
use std::path::PathBuf;

/// An emulated board.
pub struct Board {
    pub controls: Controls,
    file: PathBuf,
    _folder: tempfile::TempDir,
}

impl Board {
    pub fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("controls");
        Self { controls: Controls::open(&file).unwrap(), file, _folder: folder }
    }

    /// A manager of this board. Its one slot is the whole board, which is loaded by no process but the manager's own.
    pub fn manager(&self, args: &[&str]) -> Manager {
        self.start(&["--isolate", "protocol"], args)
    }

    /// A manager that has the board used by a process for each tenant. Which image is loaded each of them sees for itself;
    /// the controls are those of all, for which a process must be able to open their file.
    pub fn manager_of_processes(&self, args: &[&str]) -> Manager {
        self.start(&["--isolate", "process", "--confine-builds", "off"], args)
    }

    fn start(&self, isolation: &[&str], args: &[&str]) -> Manager {
        let file = self.file.to_str().unwrap();
        let args = [&["--slots", "1"], isolation, args].concat();
        Manager::start_over(library().to_str().unwrap(), &[(VARIABLE, file)], &args)
    }
}

/// Where cargo puts the libraries that the tests depend on.
fn library() -> PathBuf {
    std::env::current_exe().unwrap().with_file_name("libfpga_emulated_board.so")
}
