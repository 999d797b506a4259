//! `--trace FILE`: a timeline in Chrome's trace format, for `chrome://tracing` or <https://ui.perfetto.dev>.
//!
//! A command has the time until it got its slot, in the vendor's queue, on the device, and back to the client. A
//! slot has the tenants that held it and the reconfigurations. A separate thread writes the file. If the thread
//! can't keep up, or the file gets too long, events are left out and counted, so that tracing never delays a
//! session.

use crate::clock;
use crate::report::Ended;
use fpga_board::dispatch::Tenant;
use fpga_board::slots::{SessionId, SlotIndex};
use serde_json::{Value, json};
use std::fs::File;
use std::io::{self, BufWriter, Write as _};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::Duration;

/// Maximum number of entries that wait for the file.
const MAX_WAITING: usize = 1 << 14;
/// Maximum length of the file in bytes.
const MAX_FILE_BYTES: u64 = 256 << 20;

/// Process ids in the trace: one has a row for each session, the other a row for each slot.
const SESSIONS: u32 = 1;
const SLOTS: u32 = 2;

/// The sending side of a trace. Clones write to the same file.
#[derive(Debug, Clone, Default)]
pub struct Trace {
    writer: Option<Arc<Writer>>,
}

#[derive(Debug)]
struct Writer {
    events: SyncSender<Vec<Value>>,
    left_out: AtomicU64,
}

impl Trace {
    /// Starts a trace into a new file.
    ///
    /// # Errors
    /// The system's error.
    pub fn to(path: &Path) -> io::Result<Self> {
        let file = File::create(path)?;
        let (events, receiver) = sync_channel(MAX_WAITING);
        std::thread::Builder::new().name("trace".to_owned()).spawn(move || {
            if let Err(error) = write(file, &receiver) {
                tracing::warn!(%error, "The trace ends early");
            }
        })?;
        let trace = Self { writer: Some(Arc::new(Writer { events, left_out: AtomicU64::new(0) })) };
        trace.say(vec![process(SESSIONS, "sessions"), process(SLOTS, "slots")]);
        Ok(trace)
    }

    /// Whether events are written.
    #[must_use]
    pub fn is_on(&self) -> bool {
        self.writer.is_some()
    }

    /// Records a command that has ended, whose completion is sent to the client now.
    pub fn command(&self, session: SessionId, tenant: &Tenant, ended: &Ended) {
        if !self.is_on() {
            return;
        }
        let Some(moments) = &ended.moments else { return };
        let id = format!("{}:{}", session.0, ended.event.0);
        let received = if ended.received == 0 { moments.queued } else { ended.received };
        let told = clock::now_ns().max(moments.ended);
        let span = |name: &str, from: u64, until: u64, args: Value| {
            let event = |phase: &str, at: u64| {
                json!({"name": name, "cat": "command", "ph": phase, "id": id, "ts": micros(at), "pid": SESSIONS,
                       "tid": session.0, "args": args})
            };
            [event("b", from), event("e", until.max(from))]
        };
        let args = json!({"tenant": tenant.as_str(), "event": ended.event.0, "status": ended.status});
        let [begin, end] = span(ended.operation, received, told, args);
        let mut events = vec![begin];
        for (name, from, until) in [
            ("waits for its slot", received, moments.queued),
            ("in the runtime's queue", moments.queued, moments.started),
            ("on the device", moments.started, moments.ended),
            ("back to the client", moments.ended, told),
        ] {
            events.extend(span(name, from, until, json!({})));
        }
        events.push(end);
        self.say(events);
    }

    /// Records that a task has just released a slot, which it had held for `held`. `hold` counts the tasks that got
    /// a slot, in the order of their starts.
    pub fn slot_used(&self, slot: SlotIndex, what: &str, tenant: &Tenant, hold: u64, held: Duration) {
        self.slot(slot, what, held, &json!({"tenant": tenant.as_str(), "hold": hold}));
    }

    /// Records a reconfiguration that has just ended.
    pub fn reconfigured(&self, slot: SlotIndex, what: &str, took: Duration) {
        self.slot(slot, "reconfiguration", took, &json!({"bitstream": what}));
    }

    /// Number of commands and uses of slots that were left out.
    #[must_use]
    pub fn left_out(&self) -> u64 {
        self.writer.as_ref().map_or(0, |writer| writer.left_out.load(Ordering::Relaxed))
    }

    fn slot(&self, slot: SlotIndex, name: &str, took: Duration, args: &Value) {
        if !self.is_on() {
            return;
        }
        let took = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        let from = clock::now_ns().saturating_sub(took);
        self.say(vec![
            json!({"name": name, "cat": "slot", "ph": "X", "ts": micros(from), "dur": micros(took),
                             "pid": SLOTS, "tid": slot.0, "args": args}),
        ]);
    }

    fn say(&self, events: Vec<Value>) {
        let Some(writer) = &self.writer else { return };
        if writer.events.try_send(events).is_err() {
            writer.left_out.fetch_add(1, Ordering::Relaxed);
        }
    }
}

fn process(pid: u32, name: &str) -> Value {
    json!({"name": "process_name", "ph": "M", "pid": pid, "args": {"name": name}})
}

#[expect(clippy::cast_precision_loss, reason = "microseconds with three digits, for a picture")]
fn micros(ns: u64) -> f64 {
    ns as f64 / 1000.0
}

/// Writes events until the process ends. The array needs no closing bracket in this format.
fn write(file: File, events: &Receiver<Vec<Value>>) -> io::Result<()> {
    let mut file = BufWriter::new(file);
    let mut written = 2;
    file.write_all(b"[\n")?;
    while let Ok(first) = events.recv() {
        let mut next = Some(first);
        while let Some(events_of_one) = next {
            for event in events_of_one {
                let line = format!("{event},\n");
                written += line.len() as u64;
                if written > MAX_FILE_BYTES {
                    file.flush()?;
                    return Err(io::Error::other(format!("{MAX_FILE_BYTES} bytes are written")));
                }
                file.write_all(line.as_bytes())?;
            }
            next = events.try_recv().ok();
        }
        file.flush()?;
    }
    Ok(())
}
