//! `fpga-acc run`.

use super::arguments::{from_file, from_hex, named};
use super::input::standard_input;
use super::interrupt::interrupted;
use super::progress::{Progress, Show};
use super::{FAILED, INTERRUPTED, NO_SLOT};
use crate::{Config, Error, Fallback, Pool, Request, Status, wait};
use anyhow::{Context as _, anyhow};
use clap::{Args, ValueEnum};
use fpga_net::duration;
use futures::future::{Either, select};
use futures::io::AllowStdIo;
use std::path::PathBuf;
use std::pin::pin;
use std::time::Duration;

/// Runs an accelerator over the standard input, and writes what comes out to the standard output.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  # Encrypt a file; `openssl enc -d -aes-256-ctr -K … -iv …` decrypts it.
  openssl rand -hex 32 > key
  fpga-acc run aes-256-ctr --key-file key --hex counter=$(openssl rand -hex 16) < plain > secret
  # The SHA-256 digest of a stream whose length is not known before.
  tar c folder | fpga-acc run sha-256 | xxd -p -c 32
  # If there is no slot for 10 s, the processor does it.
  fpga-acc run sha-256 --wait 10s --or-else processor < file | xxd -p -c 32

The addresses of the pool's brokers are in FPGA_POOL (HOST:PORT, with TLS https://HOST:PORT, several by commas), the
path of the token in FPGA_POOL_TOKEN_FILE, that of the brokers' authority in FPGA_POOL_CA, the name of this node in
FPGA_NODE_NAME.

Exit codes: 0 all output is written; 1 an error; 2 the command line is wrong; 3 there is no slot; 130 interrupted.")]
pub(super) struct Run {
    /// Name of the accelerator, for example aes-256-ctr; `fpga-acc list` shows those that are shipped.
    accelerator: String,

    /// File with the argument `key`: its bytes, or their hexadecimal digits.
    #[arg(long, value_name = "FILE")]
    key_file: Option<PathBuf>,

    /// Another argument from a file, as with --key-file; may be given several times.
    #[arg(long, value_name = "NAME=FILE", value_parser = named)]
    file: Vec<(String, String)>,

    /// An argument as hexadecimal digits; may be given several times. Others can see it in the list of processes: a key
    /// belongs into a file.
    #[arg(long, value_name = "NAME=DIGITS", value_parser = named)]
    hex: Vec<(String, String)>,

    /// Bytes of the input, by which the pool orders its jobs [default: the length of the file that is the input, else
    /// 64000000].
    #[arg(long, value_name = "NUMBER")]
    bytes: Option<u64>,

    /// Longest time to wait for a slot, for example 30s or 5m [default: no limit].
    #[arg(long, value_name = "TIME", value_parser = duration::parse)]
    wait: Option<Duration>,

    /// Who does the job, or the rest of it, if it has no slot for --wait, or the pool has none. The standard error says so.
    #[arg(long, value_enum, value_name = "WHO", requires = "wait")]
    or_else: Option<OrElse>,

    /// Whether the standard error gets progress, and the reason while the job waits.
    #[arg(long, value_enum, default_value = "auto")]
    progress: Show,
}

/// Who does a job for which no slot comes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum OrElse {
    /// The processor of this machine, by the library's own code; for the accelerators that `fpga-acc list` shows.
    Processor,
}

/// Bytes of an input whose length is unknown: a job that is neither the smallest nor the largest one.
const UNKNOWN_BYTES: u64 = 64_000_000;

/// An error and the exit code that tells of it.
pub(super) struct Failure {
    pub(super) error: anyhow::Error,
    pub(super) code: u8,
}

impl From<anyhow::Error> for Failure {
    fn from(error: anyhow::Error) -> Self {
        Self { error, code: FAILED }
    }
}

impl Run {
    /// Runs the job.
    pub(super) fn run(self) -> Result<(), Failure> {
        let interrupted = interrupted()?;
        let config = Config::from_environment().map_err(anyhow::Error::from)?;
        let pool = Pool::connect(config).map_err(anyhow::Error::from)?;
        let result = {
            let work = pin!(self.work(&pool));
            let either = async {
                match select(work, interrupted).await {
                    Either::Left((result, _)) => Ok(result),
                    Either::Right(_) => Err(Error::Cancelled),
                }
            };
            wait(either, None)
        };
        // The broker hears of a job that was given up.
        pool.close();
        result.unwrap_or_else(|_| Err(Failure { error: anyhow!("interrupted"), code: INTERRUPTED }))
    }

    async fn work(&self, pool: &Pool) -> Result<(), Failure> {
        let opening = pool.open(self.request()?);
        let status = opening.status();
        let progress = Progress::start(self.progress, opening.status());
        // With a fallback a job that has waited for long enough is open.
        let opened = match self.wait.filter(|_| self.or_else.is_none()) {
            None => opening.await.map_err(anyhow::Error::from),
            Some(limit) => match select(opening, pin!(after(limit))).await {
                Either::Left((opened, _)) => opened.map_err(anyhow::Error::from),
                Either::Right(((), opening)) => {
                    let why = opening.status().borrow().to_string();
                    Err(anyhow::Error::from(Error::TimedOut(limit))
                        .context(format!("no slot in time ({why})")))
                }
            },
        };
        let mut job = opened.map_err(|error| {
            let code = match error.downcast_ref() {
                Some(Error::TimedOut(_) | Error::Refused { .. }) => NO_SLOT,
                _ => FAILED,
            };
            Failure { error, code }
        })?;
        let input = standard_input().context("the standard input can't be read")?;
        let streamed = job.stream(input, AllowStdIo::new(std::io::stdout().lock())).await;
        streamed.map_err(anyhow::Error::from)?;
        job.close().await.map_err(anyhow::Error::from)?;
        drop(progress);
        let Status { input_bytes, processor_bytes, .. } = *status.borrow();
        if let Some(bytes) = processor_bytes {
            eprintln!("fpga-acc: no slot came in time: the processor did {bytes} of {input_bytes} bytes");
        }
        Ok(())
    }

    fn request(&self) -> anyhow::Result<Request> {
        let bytes = self.bytes.or_else(input_bytes).unwrap_or(UNKNOWN_BYTES);
        let mut request = Request::new(&self.accelerator, bytes);
        let key = self.key_file.iter().map(|path| ("key", path.clone()));
        let files = self.file.iter().map(|(name, path)| (name.as_str(), PathBuf::from(path)));
        for (name, path) in key.chain(files) {
            request = request.argument(name, &from_file(&self.accelerator, name, &path)?);
        }
        for (name, digits) in &self.hex {
            let value = from_hex(digits).with_context(|| format!("--hex {name}"))?;
            request = request.argument(name, &value);
        }
        if let (Some(OrElse::Processor), Some(limit)) = (self.or_else, self.wait) {
            request = request.or_else(limit, Fallback::shipped());
        }
        Ok(request)
    }
}

/// Length of the file that is the standard input; `None` if that is no file.
fn input_bytes() -> Option<u64> {
    let input = std::fs::metadata("/dev/stdin").ok()?;
    input.is_file().then_some(input.len())
}

/// A future that is ready after this time, on any executor.
async fn after(time: Duration) {
    let (sender, receiver) = tokio::sync::oneshot::channel::<()>();
    let sleeping = std::thread::Builder::new().spawn(move || {
        std::thread::sleep(time);
        drop(sender);
    });
    // Without a thread there is no limit to wait for.
    if sleeping.is_ok() {
        let _ = receiver.await;
    } else {
        std::future::pending::<()>().await;
    }
}
