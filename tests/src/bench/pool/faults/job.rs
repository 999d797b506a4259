//! The jobs of a round: programs whose output is known.

use super::super::text::{COUNTER, KEY, Text};
use super::draw;
use crate::testbed::pool::{PoolBed, TENANTS, node_name};
use anyhow::{Context as _, Result, ensure};
use nix::errno::Errno;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::fmt::Write as _;
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
    running: JoinSet<Result<End>>,
}

impl Jobs {
    /// Starts the programs.
    pub fn start(bed: &PoolBed, count: u64, (seed, round): (u64, u64)) -> Result<Self> {
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
            let bytes = (of("size") * PIECES * PIECE) as u64 + 1;
            let tenant = TENANTS[usize::from(of("tenant") < 0.5)];
            // The last node has no board.
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "at most a few")]
            let node = (of("node") * f64::from(super::MANAGERS + 1)) as u32;
            let args = ["aes-256-ctr", "--hex", &key, "--hex", &counter, "--bytes", &bytes.to_string()];
            let mut child = bed.job(tenant, &node_name(node), &args)?.spawn().context("can't start a job")?;
            let pid = child.id().context("a job has ended at once")?;
            pids.push(Pid::from_raw(i32::try_from(pid)?));
            let text = Text::of(bytes)?;
            running.spawn(async move {
                let end = run(&mut child, &text).await;
                end.with_context(|| format!("job {job} of {bytes} bytes on {}", node_name(node)))
            });
        }
        Ok(Self { pids, running })
    }

    /// Sends a signal to the program that `which`, from 0 to 1, chooses. One that has ended gets none.
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "an index")]
    pub fn signal(&self, which: f64, signal: Signal) -> Result<()> {
        let index = (which * self.pids.len() as f64) as usize;
        let pid = self.pids.get(index).context("no such job")?;
        match kill(*pid, signal) {
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
    ensure!(output.len() == secret.len(), "{} bytes came of {}", output.len(), secret.len());
    ensure!(output == *secret, "a byte is wrong");
    Ok(End::Right)
}
