//! `exec`: runs any OpenCL program through the remote library, over a private manager that lives as long as
//! the program.
//!
//! The program gets the caller's environment with our ICD as the only one, so that nothing runs natively by
//! mistake. Standard streams, working directory, signals and exit status pass through, and nothing is
//! printed.

mod environment;
mod manager;
mod supervise;

use crate::config::SharedMemory;
use crate::process::Inherited;
use anyhow::Context as _;
use clap::Args;
use environment::{Environment, Library};
use fpga_net::duration;
use manager::{Manager, Settings};
use std::ffi::OsString;
use std::num::NonZeroU32;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;
use supervise::{Signals, Started};

/// Runs an OpenCL program through a private manager, and ends with its exit status.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  fpga-device-manager exec -- clinfo -l\n  \
                        fpga-device-manager exec --runtime intel-fpga --slots 2 -- python3 sobel.py in.png\n\n\
                        Exit codes: the program's; 128 + n if signal n ended it; 127 if it is not there, 126 if it\n\
                        can't be run, 125 if the manager doesn't start.")]
pub struct ExecArgs {
    /// The runtime below: `pocl`, `intel-fpga`, `intel-cpu`, or the path of an ICD.
    #[arg(long, env = "FPGA_RUNTIME", default_value = "pocl", value_name = "NAME|ICD")]
    runtime: OsString,

    /// Reach the manager by TCP on the loopback instead of a unix socket.
    #[arg(long, env = "FPGA_TCP")]
    tcp: bool,

    /// How many tasks with kernels run at once.
    #[arg(long, env = "FPGA_SLOTS", default_value = "1")]
    slots: NonZeroU32,

    /// Modelled time to load a bitstream into a slot.
    #[arg(long, env = "FPGA_RECONFIGURATION_TIME", default_value = "0", value_parser = duration::parse)]
    reconfiguration_time: Duration,

    /// Count a program from source as a bitstream.
    #[arg(long, env = "FPGA_SOURCE_AS_BITSTREAM")]
    source_as_bitstream: bool,

    /// Share memory between the program and the manager instead of sending all bytes in messages.
    #[arg(long, env = "FPGA_SHARED_MEMORY", default_value = "on")]
    shared_memory: SharedMemory,

    /// The library that the program loads [default: libfpga_opencl_icd.so beside this binary].
    #[arg(long, env = "FPGA_ICD", value_name = "PATH")]
    icd: Option<PathBuf>,

    /// Give the program our libOpenCL.so.1 instead of a loader with our driver.
    #[arg(long, env = "FPGA_DROP_IN", conflicts_with = "icd")]
    drop_in: bool,

    /// What the private manager logs to standard error.
    #[arg(long, env = "FPGA_EXEC_LOG", default_value = "off")]
    log: String,

    /// The program.
    #[arg(value_name = "PROGRAM", required = true)]
    program: OsString,

    /// Its arguments.
    #[arg(value_name = "ARGS", trailing_var_arg = true, allow_hyphen_values = true)]
    arguments: Vec<OsString>,
}

impl ExecArgs {
    /// Runs the program. Returns its exit status, or 128 + n if signal n ended it.
    ///
    /// # Errors
    /// The manager or the environment of the program can't be set up.
    pub fn run(self) -> anyhow::Result<ExitCode> {
        let Self {
            runtime,
            tcp,
            slots,
            reconfiguration_time,
            source_as_bitstream,
            shared_memory,
            icd,
            drop_in,
            log,
            program,
            arguments,
        } = self;
        let library = if drop_in { Library::drop_in()? } else { Library::icd(icd)? };
        let mut signals = Signals::block().context("cannot handle signals")?;
        let inherited: Inherited = signals.inherited();
        let environment = Environment::new(library).context("cannot make a temporary folder")?;
        let settings = Settings {
            runtime,
            tcp,
            slots,
            reconfiguration_time,
            source_as_bitstream,
            shared_memory,
            log,
            inherited,
        };
        let mut manager = Manager::start(&settings, environment.folder())?;
        let addresses = match signals.until_ready(&mut manager)? {
            Started::At(addresses) => addresses,
            Started::Interrupted(signal) => {
                signals.stop(&mut manager);
                return Ok(ExitCode::from(supervise::status_of_signal(signal)));
            }
        };
        let status = signals.run(environment.command(&program, &arguments, &addresses), &mut manager);
        signals.stop(&mut manager);
        match status {
            Ok(status) => Ok(ExitCode::from(status)),
            Err(error) => Ok(ExitCode::from(not_started(&program, &error))),
        }
    }
}

/// Prints the message of env(1) for a program that can't be started, and returns env(1)'s exit status.
#[expect(clippy::print_stderr, reason = "the program never ran: this is the command's own failure")]
fn not_started(program: &std::ffi::OsStr, error: &std::io::Error) -> u8 {
    eprintln!("error: cannot run {}: {error}", program.display());
    if error.kind() == std::io::ErrorKind::NotFound { 127 } else { 126 }
}
