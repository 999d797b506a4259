//! `make soak`: runs OpenCL programs against device managers for some time and kills clients and managers at random.
//! At the end nothing may have leaked: descriptors, threads, memory, segments, sessions, temporary files, processes.
//!
//! One manager is never killed: its resources at the end are compared with those after a first part of the time. The
//! others are killed and restarted while clients use them. Programs check their results themselves. A program must
//! succeed if neither it nor its manager was killed, and no program may hang. One program in eight is hostile and
//! belongs to its own tenant: its kernels make system calls and threads or never end, its memory is never released,
//! its bytes follow no protocol. Its own result doesn't matter, but it must not affect the others.

mod clients;
pub(crate) mod managers;
mod state;

use anyhow::{Context as _, Result};
use clap::Parser;
use clients::{Clients, HOSTILE_TOKEN, Outcomes};
use fpga_tests::testbed::chance::Chance;
use managers::{End, Manager, Restarts};
use state::{State, Verdicts};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Time within which programs must end by themselves, and managers have no session afterwards.
const REST: Duration = Duration::from_secs(90);
/// Share of the time after which the steady manager is first measured; its caches are full then.
const WARM_UP: f64 = 0.25;

/// Kills clients and managers at random and looks for leaks; exits with 1 if there are any.
#[derive(Debug, Parser)]
#[command(after_help = "Example: fpga-soak --minutes 5 --programs build/opencl-programs --seed 42")]
pub struct Args {
    /// Length of the run in minutes.
    #[arg(long, env = "SOAK_MINUTES", default_value = "30")]
    minutes: f64,
    /// Seed of all random choices; printed, so that a run can be repeated [default: from the clock].
    #[arg(long, env = "SOAK_SEED")]
    seed: Option<u64>,
    /// Number of programs that run at a time.
    #[arg(long, default_value = "5", value_parser = clap::value_parser!(u32).range(1..=64))]
    clients: u32,
    /// The OpenCL runtime below the managers.
    #[arg(long, env = "RUNTIME", default_value = "pocl")]
    runtime: String,
    /// The folder with the built programs of tests/opencl-programs.
    #[arg(long, default_value = "build/opencl-programs")]
    programs: PathBuf,
    /// The device manager [default: beside this program]; the driver lies beside it.
    #[arg(long)]
    device_manager: Option<PathBuf>,
}

impl Args {
    /// Runs the test, prints the table, and returns failure if something leaked.
    ///
    /// # Errors
    /// A prerequisite is missing, or the test bed itself fails.
    pub fn run(self) -> Result<ExitCode> {
        let Self { minutes, seed, clients, runtime, programs, device_manager } = self;
        let by_clock = || SystemTime::now().duration_since(UNIX_EPOCH).map_or(1, |now| now.as_secs());
        let seed = seed.unwrap_or_else(by_clock);
        let manager = match device_manager {
            Some(path) => path,
            None => std::env::current_exe()?.with_file_name("fpga-device-manager"),
        };
        let manager =
            manager.canonicalize().with_context(|| format!("{} is not built", manager.display()))?;
        let programs = programs
            .canonicalize()
            .with_context(|| format!("{} is not there: make -C tests/opencl-programs", programs.display()))?;
        println!(
            "soak: {minutes} minutes over {runtime}, seed {seed} (SOAK_SEED={seed} makes the same choices)"
        );
        let folder = tempfile::Builder::new().prefix("fs").tempdir_in("/tmp")?;
        let mark = format!("{seed}-{}", std::process::id());
        let shm_before = state::shared_memory_files();
        let hostile = hostile_tenant(folder.path())?;
        let start = |name, args: &[&str]| {
            let all: Vec<_> = hostile.iter().map(String::as_str).chain(args.iter().copied()).collect();
            Manager::start(&manager, folder.path(), name, &runtime, &mark, &all)
        };
        // The first manager is never killed. The sessions of the first two run in the manager's process, those of the
        // third in a process for each tenant.
        let mut managers = vec![
            start("steady", &["--listen", "tcp://127.0.0.1:0", "--insecure-tcp"])?,
            start("killed", &[])?,
            start("isolating", &["--isolate", "process", "--abandoned-timeout", "10s"])?,
        ];
        let mut running =
            Clients::new(programs, &manager.with_file_name("libfpga_opencl_icd.so"), folder.path(), &mark)?;
        let length = Duration::from_secs_f64(minutes * 60.0);
        let mut chance = Chance::new(seed);
        soak(&mut running, &mut managers, &mut chance, clients, length.mul_f64(WARM_UP))?;
        rest(&mut running, &managers)?;
        let before = State::of(&managers[0])?;
        soak(&mut running, &mut managers, &mut chance, clients, length.mul_f64(1.0 - WARM_UP))?;
        rest(&mut running, &managers)?;
        let after = State::of(&managers[0])?;

        let mut verdicts = Verdicts::default();
        for manager in &managers {
            verdicts.idle(manager)?;
        }
        let Restarts { kills, drains } = managers.iter().map(Manager::restarts).sum();
        for manager in &mut managers {
            let ended = manager.stop()?;
            verdicts.check(format!("{} ends in order", manager.name()), "0", &ended, ended == "0");
        }
        verdicts.compare(&before, &after);
        let shm = state::shared_memory_files();
        let new: Vec<_> = shm.difference(&shm_before).cloned().collect();
        verdicts.check("files in /dev/shm".to_owned(), "none new", &format!("{new:?}"), new.is_empty());
        let left = state::files_of_ours(folder.path())?;
        verdicts.check("temporary files".to_owned(), "none", &format!("{left:?}"), left.is_empty());
        let processes = state::processes_of(&mark, folder.path());
        verdicts.check("processes".to_owned(), "none", &format!("{processes:?}"), processes.is_empty());
        let Outcomes { passed, killed, lost, hostile, wrong } = running.outcomes();
        println!(
            "programs: {passed} passed, {killed} killed, {lost} lost their manager, {hostile} were hostile; managers: {kills} killed, {drains} drained"
        );
        verdicts.check(
            "programs that failed without a cause".to_owned(),
            "0",
            &wrong.len().to_string(),
            wrong.is_empty(),
        );
        for text in wrong {
            println!("{text}");
        }
        print!("{verdicts}");
        if verdicts.all_good() {
            return Ok(ExitCode::SUCCESS);
        }
        println!("kept for a look: {}", folder.keep().display());
        Ok(ExitCode::FAILURE)
    }
}

/// The managers' flags for the hostile tenant: its token, and quotas as an operator would give to strangers.
fn hostile_tenant(folder: &Path) -> Result<Vec<String>> {
    let tokens = folder.join("tokens");
    std::fs::create_dir(&tokens)?;
    std::fs::write(tokens.join("hostile"), HOSTILE_TOKEN)?;
    let tenants = folder.join("tenants.json");
    let quotas =
        r#"{"policy": "drr", "tenants": {"hostile": {"quota": {"memory": "256MiB", "sessions": 16}}}}"#;
    std::fs::write(&tenants, quotas)?;
    let (tokens, tenants) = (tokens.display().to_string(), tenants.display().to_string());
    Ok(vec!["--tokens".to_owned(), tokens, "--tokens-optional".to_owned(), "--tenants".to_owned(), tenants])
}

/// Keeps programs running and kills at random, for `length`.
fn soak(
    running: &mut Clients,
    managers: &mut [Manager],
    chance: &mut Chance,
    clients: u32,
    length: Duration,
) -> Result<()> {
    let until = Instant::now() + length;
    let mut next_kill = Instant::now() + Duration::from_millis(500);
    while Instant::now() < until {
        running.look_after(managers)?;
        while running.count() < usize::try_from(clients)? {
            running.start(managers, chance)?;
        }
        if Instant::now() >= next_kill {
            next_kill = Instant::now() + Duration::from_millis(100 + chance.below(1500));
            match chance.below(20) {
                0..9 => running.kill_one(chance)?,
                9..12 => running.pause_one(chance)?,
                // Any manager but the first.
                choice @ 12..15 => {
                    let at = 1 + usize::try_from(chance.below(u64::try_from(managers.len() - 1)?))?;
                    managers[at].restart(if choice == 12 { End::Drain } else { End::Kill })?;
                }
                _ => {}
            }
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    Ok(())
}

/// Lets all programs end, and waits until no manager has a session.
fn rest(running: &mut Clients, managers: &[Manager]) -> Result<()> {
    let until = Instant::now() + REST;
    running.resume_all()?;
    while running.count() > 0 && Instant::now() < until {
        running.look_after(managers)?;
        std::thread::sleep(Duration::from_millis(5));
    }
    while Instant::now() < until {
        let idle = managers.iter().map(Manager::is_idle).collect::<Result<Vec<_>>>()?;
        if idle.into_iter().all(|idle| idle) {
            break;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_command_line_is_consistent() {
        use clap::CommandFactory as _;
        super::Args::command().debug_assert();
    }
}
