//! The thread that writes the recording, and its files.

use super::{Item, Kept, RecordMetrics};
use crate::clock::Clock;
use fpga_core::record::{DecisionInput, RecordingEncoder};
use std::fs::{File, OpenOptions};
use std::io::{self, BufWriter, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, TryRecvError};

const PROGRAM: &str = concat!("fpga-scheduler-extender ", env!("CARGO_PKG_VERSION"));

/// Writes to a file, and renames it when it is full.
pub(super) struct Writer {
    path: PathBuf,
    /// Most bytes of one file; there are two.
    max_bytes: u64,
    clock: Clock,
    metrics: RecordMetrics,
    file: BufWriter<File>,
    written: u64,
    encoder: RecordingEncoder<Kept>,
    line: Vec<u8>,
}

impl Writer {
    pub(super) fn open(
        path: PathBuf,
        max_bytes: u64,
        clock: Clock,
        metrics: RecordMetrics,
    ) -> io::Result<Self> {
        let file = begin(&path)?;
        let (encoder, line) = header(&clock)?;
        let mut writer =
            Self { path, max_bytes: max_bytes / 2, clock, metrics, file, written: 0, encoder, line };
        writer.put()?;
        writer.file.flush()?;
        Ok(writer)
    }

    /// Writes decisions until the recorder is dropped. The buffer is flushed whenever no decision waits.
    pub(super) fn run(mut self, items: &Receiver<Item>, waiting: &AtomicUsize) -> io::Result<()> {
        let metrics = self.metrics.clone();
        let ended = self.write_all(items, waiting);
        if ended.is_err() {
            metrics.recording.set(0);
        }
        ended
    }

    fn write_all(&mut self, items: &Receiver<Item>, waiting: &AtomicUsize) -> io::Result<()> {
        loop {
            let item = match items.try_recv() {
                Ok(item) => item,
                Err(TryRecvError::Disconnected) => return self.file.flush(),
                Err(TryRecvError::Empty) => {
                    self.file.flush()?;
                    match items.recv() {
                        Ok(item) => item,
                        Err(_) => return Ok(()),
                    }
                }
            };
            waiting.fetch_sub(item.nodes.len(), Ordering::Relaxed);
            self.write(&item)?;
        }
    }

    fn write(&mut self, item: &Item) -> io::Result<()> {
        self.encode(item)?;
        if self.written > 0 && self.written + self.line.len() as u64 > self.max_bytes {
            self.file.flush()?;
            self.file = begin(&self.path)?;
            self.metrics.rotations.inc();
            // The new file must be complete in itself: everything that the decision refers to is written again.
            (self.encoder, self.line) = header(&self.clock)?;
            self.written = 0;
            self.put()?;
            self.encode(item)?;
        }
        self.put()?;
        self.metrics.written.inc();
        Ok(())
    }

    fn encode(&mut self, item: &Item) -> io::Result<()> {
        self.line.clear();
        let names: Vec<&str> = item.names.iter().collect();
        let Item { asked, rules, nodes, expected, free_time, answer, .. } = item;
        let free_time = free_time.as_ref();
        let input = DecisionInput { asked, rules, names: &names, nodes, expected, free_time, answer };
        Ok(self.encoder.decision(&input, &mut self.line)?)
    }

    fn put(&mut self) -> io::Result<()> {
        self.file.write_all(&self.line)?;
        self.written += self.line.len() as u64;
        self.metrics.bytes.inc_by(self.line.len() as u64);
        Ok(())
    }
}

fn header(clock: &Clock) -> io::Result<(RecordingEncoder<Kept>, Vec<u8>)> {
    let mut line = Vec::new();
    let encoder = RecordingEncoder::begin(PROGRAM, clock.read().wall, &mut line)?;
    Ok((encoder, line))
}

/// Creates an empty file; an existing one is renamed.
fn begin(path: &Path) -> io::Result<BufWriter<File>> {
    if std::fs::metadata(path).is_ok_and(|there| !there.is_file()) {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is there, and no file"));
    }
    let mut aside = path.as_os_str().to_owned();
    aside.push(".1");
    match std::fs::rename(path, &aside) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    // Only the owner may read the file: it tells which pods run on which nodes, and whose they are.
    let file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(path)?;
    Ok(BufWriter::with_capacity(1 << 20, file))
}
