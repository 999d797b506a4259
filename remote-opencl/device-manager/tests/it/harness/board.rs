//! Managers over a board that has one image at a time, and fails when told to.

use super::Manager;
use fpga_emulated_board::{Controls, VARIABLE};
use std::path::PathBuf;

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

    /// A manager of this board. Its one slot is the whole board, which only the manager's process loads.
    pub fn manager(&self, args: &[&str]) -> Manager {
        self.start(&["--isolate", "protocol"], args)
    }

    /// A manager whose tenant processes use the board. Each process has its own loaded image. All share the
    /// controls, so a process must be able to open their file.
    pub fn manager_of_processes(&self, args: &[&str]) -> Manager {
        self.start(&["--isolate", "process", "--confine-builds", "off"], args)
    }

    /// As [`Self::manager_of_processes`], for a board that is reconfigured as a whole: all processes share the loaded image,
    /// and none is loaded while another process has a context.
    pub fn manager_of_sharing_processes(&self, args: &[&str]) -> Manager {
        self.controls.share(true);
        self.manager_of_processes(
            &[&["--reconfiguration", "full", "--reconfiguration-time", "0ms"], args].concat(),
        )
    }

    fn start(&self, isolation: &[&str], args: &[&str]) -> Manager {
        let file = self.file.to_str().unwrap();
        let args = [&["--slots", "1"], isolation, args].concat();
        Manager::start_over(library().to_str().unwrap(), &[(VARIABLE, file)], &args)
    }
}

/// Path of the emulated board's library, where cargo puts the libraries that the tests depend on.
fn library() -> PathBuf {
    std::env::current_exe().unwrap().with_file_name("libfpga_emulated_board.so")
}
