//! The thread that owns the state and its checkpoint. Other tasks send it commands. A command that changes the state
//! is answered when the change is on disk. Many commands share one `fsync`.

mod handle;

pub use handle::{Handle, Refusal, Report, Storage};

use crate::checkpoint::frame::Source;
use crate::checkpoint::{Checkpoint, Recovered, is_full};
use crate::clock::Clock;
use crate::metrics::{EventResult, Metrics};
use crate::plugin::{Plugin, Presence};
use crate::state::{Counted, NoRoom, Record, Silence, State};
use fpga_core::cordon::CordonedBoards;
use fpga_core::device::{DeviceStatus, Rotation};
use fpga_core::node_state::NodeState;
use fpga_core::units::{Millis, WallTime};
use handle::{Command, Reply};
use std::io;
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use tokio::sync::watch;
use tracing::{error, info, warn};

/// Maximum number of waiting commands; further ones are refused.
const QUEUE: usize = 256;
/// Size in bytes from which on a group is written although more commands wait.
const GROUP_BYTES: usize = 4 * 1024 * 1024;
/// Interval at which clock, devices and a failing checkpoint are checked even without commands.
const TICK: Duration = Duration::from_secs(1);

#[derive(Debug, Clone, Copy)]
pub struct Config {
    /// Maximum time between publications, as the state declares it.
    pub heartbeat: Millis,
    /// How long a device may be silent.
    pub silence: Silence,
}

/// An answer that is sent when its group is on disk.
enum Pending {
    Events(Reply<Counted>, Counted),
    Done(Reply<()>),
    Device(Reply<Option<Rotation>>, Option<Rotation>),
    Gone(Reply<bool>),
}

struct Owner {
    config: Config,
    state: State,
    checkpoint: Checkpoint,
    clock: Clock,
    plugin: Plugin,
    /// Boards that people have taken out of rotation; `None` before the annotation was read. Not on disk: the annotation
    /// can be read again.
    cordons: Option<CordonedBoards>,
    metrics: Metrics,
    changes: watch::Sender<u64>,
    storage: watch::Sender<Storage>,
    pending: Vec<Pending>,
    next_tick: Instant,
}

/// Starts the owner with the recovered state and a new boot number.
///
/// # Errors
/// No thread could be started, or the boot number can't be written for another reason than a full disk.
pub fn start(
    config: Config,
    checkpoint: Checkpoint,
    recovered: Recovered,
    metrics: &Metrics,
) -> io::Result<(Handle, JoinHandle<()>)> {
    let (sender, receiver) = sync_channel(QUEUE);
    let (changes, changes_receiver) = watch::channel(0);
    let (storage, storage_receiver) = watch::channel(Storage::Good);
    metrics.recovered_records.inc_by(recovered.records);
    metrics.torn_bytes.inc_by(recovered.torn_bytes);
    metrics.damaged_snapshots.inc_by(u64::from(recovered.damaged));
    let mut owner = Owner {
        config,
        state: recovered.state,
        checkpoint,
        clock: Clock::start(),
        plugin: Plugin::default(),
        cordons: None,
        metrics: metrics.clone(),
        changes,
        storage,
        pending: Vec::new(),
        next_tick: Instant::now(),
    };
    let now = owner.now();
    owner.state.hear_all(now);
    if owner.state.plugin() == Presence::Known {
        owner.plugin.expect(Instant::now());
    }
    let boot = Record::Boot(owner.state.version().boot.saturating_add(1));
    owner.record(&boot, now).map_err(io::Error::other)?;
    match owner.checkpoint.commit() {
        Ok(()) => {}
        // On a full disk the collector starts all the same: it publishes the devices, and reporters keep their
        // events.
        Err(error) if is_full(&error) => owner.fail(&error),
        Err(error) => return Err(error),
    }
    owner.metrics.take_over(&owner.state);
    let thread = std::thread::Builder::new()
        .name("fpga-collector-owner".to_owned())
        .spawn(move || owner.run(&receiver))?;
    Ok((Handle { sender, changes: changes_receiver, storage: storage_receiver }, thread))
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Next {
    Go,
    Stop,
}

impl Owner {
    fn run(mut self, receiver: &Receiver<Command>) {
        let mut next = Next::Go;
        while next == Next::Go {
            let first = match receiver.recv_timeout(TICK) {
                Ok(command) => Some(command),
                Err(RecvTimeoutError::Timeout) => None,
                Err(RecvTimeoutError::Disconnected) => break,
            };
            let now = self.now();
            self.tick(now);
            self.take_plugin(now);
            for command in first.into_iter().chain(receiver.try_iter()) {
                next = self.take(command, now);
                if next == Next::Stop
                    || self.checkpoint.group_bytes() >= GROUP_BYTES
                    || self.pending.len() >= QUEUE
                {
                    break;
                }
            }
            self.commit();
        }
        if *self.storage.borrow() == Storage::Good {
            self.compact();
        }
        info!("Checkpoint closed");
    }

    /// The wall clock's time. A step of the clock is recorded before anything is counted at the new time.
    fn now(&mut self) -> WallTime {
        let (now, step) = self.clock.now();
        if let Some(step) = step {
            warn!(?step, "The clock stepped; everything keeps its age");
            self.note(&Record::Clock(step), now);
        }
        now
    }

    fn tick(&mut self, now: WallTime) {
        if Instant::now() < self.next_tick {
            return;
        }
        self.next_tick = Instant::now() + TICK;
        if *self.storage.borrow() == Storage::Failing {
            self.compact();
        }
        for id in self.state.lost_devices(now, self.config.silence) {
            warn!(device = %id, "Device was silent for too long and is forgotten");
            self.note(&Record::Gone(id), now);
        }
        self.metrics.take_over(&self.state);
    }

    fn take(&mut self, command: Command, now: WallTime) -> Next {
        match command {
            Command::Stop => return Next::Stop,
            Command::Measure { reply } => {
                // Commit first: the answer must not show what is not on disk yet.
                self.commit();
                answer(reply, Ok(self.node_state(now)));
            }
            Command::Publish { reply } => {
                self.commit();
                self.state.next_publication();
                answer(reply, Ok(self.node_state(now)));
            }
            Command::Reuse { reply } => answer(reply, Ok(self.state.reuse_text(now))),
            Command::Plugin { report, reply } => {
                self.plugin.reports(report, Instant::now());
                self.take_plugin(now);
                answer(reply, Ok(()));
            }
            Command::PluginLeaves { reply } => {
                self.plugin.leaves(Instant::now());
                self.take_plugin(now);
                answer(reply, Ok(()));
            }
            Command::Cordons { boards, reply } => {
                if self.cordons.as_ref() != Some(&boards) {
                    info!(annotation = boards.text(), "Boards out of rotation are known");
                    self.cordons = Some(boards);
                    self.changes.send_modify(|changes| *changes += 1);
                }
                answer(reply, Ok(()));
            }
            Command::Events { report, reply } => match self.take_events(report, now) {
                Ok(counted) => self.pending.push(Pending::Events(reply, counted)),
                Err(refusal) => answer(reply, Err(refusal)),
            },
            Command::Device { status, reply } => {
                let cordons = self.cordons.as_ref();
                let rotation = cordons.map(|cordons| Rotation::from(cordons.get(&status.id).is_some()));
                match self.take_device(status, now) {
                    Ok(()) => self.pending.push(Pending::Device(reply, rotation)),
                    Err(no_room) => answer(reply, Err(no_room.into())),
                }
            }
            Command::Gone { id, reply } => {
                if self.state.has_device(&id) {
                    self.note(&Record::Gone(id), now);
                    self.pending.push(Pending::Gone(reply));
                } else {
                    answer(reply, Ok(false));
                }
            }
            Command::Seen { state, reply } => {
                self.take_annotation(*state, now);
                self.pending.push(Pending::Done(reply));
            }
        }
        Next::Go
    }

    /// The node's state, as it is published.
    fn node_state(&self, now: WallTime) -> NodeState {
        let state = self.state.node_state(now, self.config.heartbeat, Some(self.config.silence));
        let mut state = NodeState { plugin: self.plugin.state(Instant::now()), ..state };
        self.cordons.iter().for_each(|boards| state.cordon(boards));
        let cordoned = i64::try_from(state.cordons.len()).unwrap_or(i64::MAX);
        self.metrics.cordoned.set(cordoned);
        state
    }

    /// Makes the publication look at the state if the node plugin's part of it has changed, and records whether there
    /// is a plugin.
    fn take_plugin(&mut self, wall: WallTime) {
        let now = Instant::now();
        if self.plugin.has_changed(now) {
            self.changes.send_modify(|changes| *changes += 1);
        }
        let presence = self.plugin.presence(now);
        if presence != self.state.plugin() {
            self.note(&Record::Plugin(presence), wall);
        }
    }

    fn take_events(&mut self, report: Report, now: WallTime) -> Result<Counted, Refusal> {
        let Report { events, body, charge: _charge } = report;
        self.check_storage()?;
        self.state.make_room(&events, now)?;
        self.add(Source::EventsBody(&body), now)?;
        Ok(self.state.apply(&Record::Events(events), now))
    }

    /// Records a device's status, even while the checkpoint fails. Devices report again and again, so a status that
    /// only memory holds is soon restored after a crash. Events are not repeated once acknowledged, so only they must
    /// be on disk first.
    fn take_device(&mut self, status: Box<DeviceStatus>, now: WallTime) -> Result<(), NoRoom> {
        if self.state.hears(&status, now)? {
            self.note(&Record::Device(status), now);
        }
        Ok(())
    }

    /// Takes over the node's annotation if the state is new and holds less. This is the fallback where the checkpoint
    /// is lost. The annotation can be read again, so this needs no disk.
    fn take_annotation(&mut self, seen: NodeState, now: WallTime) {
        if seen.plugin.is_some() {
            self.plugin.expect(Instant::now());
            self.take_plugin(now);
        }
        if seen.version() > self.state.version() {
            self.note(&Record::Boot(seen.boot.saturating_add(1)), now);
        }
        if self.state.is_untouched() {
            info!(boot = seen.boot, seq = seen.seq, "Window taken over from the annotation");
            self.note(&Record::Seed(Box::new(seen)), now);
        }
    }

    fn record(&mut self, record: &Record, now: WallTime) -> Result<(), Refusal> {
        self.check_storage()?;
        self.add(Source::Record(record), now)?;
        self.state.apply(record, now);
        Ok(())
    }

    /// Applies a change that need not be on disk before it counts. While the checkpoint fails, the change counts as
    /// well; the snapshot that ends the failure contains it.
    fn note(&mut self, record: &Record, now: WallTime) {
        if self.record(record, now).is_err() {
            self.state.apply(record, now);
            self.changes.send_modify(|changes| *changes += 1);
        }
    }

    fn add(&mut self, source: Source<'_>, now: WallTime) -> Result<(), Refusal> {
        self.checkpoint.add(source, now).map_err(|error| {
            error!(%error, "A record can't be kept");
            Refusal::Storage
        })
    }

    fn check_storage(&self) -> Result<(), Refusal> {
        match *self.storage.borrow() {
            Storage::Good => Ok(()),
            Storage::Failing => Err(Refusal::Storage),
        }
    }

    /// Commits the group and answers the commands that wait for it.
    fn commit(&mut self) {
        if self.checkpoint.group_bytes() == 0 {
            self.answer_pending(Ok(()));
            return;
        }
        let begin = Instant::now();
        let result = self.checkpoint.commit();
        self.metrics.commit.observe(begin.elapsed().as_secs_f64());
        #[expect(clippy::cast_precision_loss, reason = "at most QUEUE")]
        self.metrics.group.observe(self.pending.len() as f64);
        self.metrics.journal_bytes.set(i64::try_from(self.checkpoint.journal_bytes()).unwrap_or(i64::MAX));
        match result {
            Ok(()) => {
                self.answer_pending(Ok(()));
                self.metrics.take_over(&self.state);
                if self.checkpoint.wants_compaction() {
                    self.compact();
                }
            }
            Err(error) => {
                // Events in memory but not on disk count once a snapshot has them. Until then their reporters retry.
                self.fail(&error);
                self.answer_pending(Err(Refusal::Storage));
            }
        }
        self.changes.send_modify(|changes| *changes += 1);
    }

    fn compact(&mut self) {
        match self.checkpoint.compact(&self.state) {
            Ok(()) => {
                self.metrics.snapshots.inc();
                self.metrics.journal_bytes.set(0);
                if self.storage.send_replace(Storage::Good) == Storage::Failing {
                    info!("Checkpoint can be written again");
                }
            }
            Err(error) => self.fail(&error),
        }
    }

    fn fail(&mut self, error: &io::Error) {
        self.metrics.checkpoint_failures.inc();
        if self.storage.send_replace(Storage::Failing) == Storage::Good {
            error!(%error, "Checkpoint can't be written; nothing is acknowledged until it can");
        }
    }

    fn answer_pending(&mut self, result: Result<(), Refusal>) {
        for pending in self.pending.drain(..) {
            match pending {
                Pending::Events(reply, counted) => {
                    if result.is_ok() {
                        self.metrics.count_events(EventResult::Accepted, counted.accepted);
                        self.metrics.count_events(EventResult::Duplicate, counted.duplicates);
                    }
                    answer(reply, result.map(|()| counted));
                }
                Pending::Done(reply) => answer(reply, result),
                Pending::Device(reply, rotation) => answer(reply, result.map(|()| rotation)),
                Pending::Gone(reply) => answer(reply, result.map(|()| true)),
            }
        }
    }
}

fn answer<T>(reply: Reply<T>, result: Result<T, Refusal>) {
    // The client may be gone; the command is done all the same.
    let _ = reply.send(result);
}
