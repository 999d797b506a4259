//! The jobs of a round: programs whose output is known.

use super::super::text::{COUNTER, KEY, Text};
use super::{MANAGERS, draw, reference};
use anyhow::{Context as _, Result, ensure};
use fpga_tests::testbed::pool::{PoolBed, TENANTS, node_name};
use nix::errno::Errno;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::fmt::Write as _;
use std::hash::Hash;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::process::Child;
use tokio::task::JoinSet;

/// Sizes of jobs, in pieces of 4 MB: one takes some tenths of a second, or some seconds.
const PIECES: f64 = 8.0;
const PIECE: f64 = 4e6;

/// How a job's program has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum End {
    /// With success, and with its whole output.
    Right,
    /// Killed, after a part of its output or none.
    Killed,
}

/// The jobs of a round.
#[derive(Debug)]
pub(super) struct Jobs {
    pids: Vec<Pid>,
    /// The program that a signal chose: all signals of a round go to the same one.
    chosen: Option<Pid>,
    running: JoinSet<Result<End>>,
}

impl Jobs {
    /// Starts the programs.
    pub fn start(bed: &PoolBed, text: &Text, count: u64, (seed, round): (u64, u64)) -> Result<Self> {
        let hex = |bytes: &[u8]| {
            bytes.iter().fold(String::new(), |mut text, byte| {
                let _ = write!(text, "{byte:02x}");
                text
            })
        };
        let (key, counter) = (format!("key={}", hex(&KEY)), format!("counter={}", hex(&COUNTER)));
        let (mut pids, mut running) = (Vec::new(), JoinSet::new());
        for job in 0..count {
            let of = |what: &str| draw(&(seed, round, job, what));
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "at most 32 MB")]
            let bytes = ((0.25 + 0.75 * of("size")) * PIECES * PIECE) as u64;
            let tenant = TENANTS[usize::from(of("tenant") < 0.5)];
            let node = home(&(seed, round, job, "node"));
            let args = ["aes-256-ctr", "--hex", &key, "--hex", &counter, "--bytes", &bytes.to_string()];
            let mut child = bed.job(tenant, &node, &args)?.spawn().context("can't start a job")?;
            let pid = child.id().context("a job has ended at once")?;
            pids.push(Pid::from_raw(i32::try_from(pid)?));
            let text = text.first(bytes)?;
            running.spawn(async move {
                let end = run(&mut child, &text).await;
                end.with_context(|| format!("job {job} of {bytes} bytes on {node}"))
            });
        }
        Ok(Self { pids, chosen: None, running })
    }

    /// Number of programs that have not ended.
    pub fn running(&self) -> usize {
        self.pids.iter().filter(|pid| lives(**pid)).count()
    }

    /// Sends a signal to a program that has not ended; `which`, from 0 to 1, chooses it for the first signal.
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "an index")]
    pub fn signal(&mut self, which: f64, signal: Signal) -> Result<()> {
        let living: Vec<Pid> = self.pids.iter().copied().filter(|pid| lives(*pid)).collect();
        let Some(first) = living.get((which * living.len() as f64) as usize) else { return Ok(()) };
        let pid = *self.chosen.get_or_insert(*first);
        match kill(pid, signal) {
            Ok(()) | Err(Errno::ESRCH) => Ok(()),
            Err(error) => Err(error).context("a job gets no signal"),
        }
    }

    /// Waits for the ends of all jobs.
    pub async fn ends(&mut self) -> Result<Vec<End>> {
        let mut ends = Vec::new();
        while let Some(end) = self.running.join_next().await {
            ends.push(end??);
        }
        Ok(ends)
    }
}

/// Whether a program has not ended. Its id is not used again before its end is waited for, and hardly so after it.
fn lives(pid: Pid) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let state = stat.rsplit_once(") ").and_then(|(_, rest)| rest.chars().next());
    stat.contains("(fpga-acc)") && state.is_some_and(|state| state != 'Z')
}

/// The node of a client, drawn for `what`. The last node has no board.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "at most a few")]
pub(super) fn home(what: &impl Hash) -> String {
    node_name((draw(what) * f64::from(MANAGERS + 1)) as u32)
}

/// A text for the longest job.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "32 MB")]
pub(super) fn text() -> Result<Text> {
    Text::of((PIECES * PIECE) as u64)
}

async fn run(child: &mut Child, text: &Text) -> Result<End> {
    let (mut stdin, mut stdout) =
        (child.stdin.take().context("no pipe")?, child.stdout.take().context("no pipe")?);
    let mut output = Vec::new();
    let write = async {
        // A program that was killed reads no more.
        let _ = stdin.write_all(&text.plain).await;
        drop(stdin);
    };
    let ((), read) = tokio::join!(write, stdout.read_to_end(&mut output));
    read.context("no output can be read")?;
    let status = child.wait().await?;
    let secret = &text.secret;
    if !status.success()
        && std::os::unix::process::ExitStatusExt::signal(&status) == Some(Signal::SIGKILL as i32)
    {
        ensure!(secret.starts_with(&output), "what came before the kill is wrong");
        return Ok(End::Killed);
    }
    ensure!(status.success(), "the program ended with {status} after {} bytes", output.len());
    reference::check(&output, secret)?;
    Ok(End::Right)
}
