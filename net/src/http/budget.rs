//! The bytes that all requests of a service may hold together: their bodies, what is worked out from them, and their answers
//! until those are sent.
//!
//! A body is charged before it is read: by the length that its head declares, else as it grows. Where there is no room, the
//! connection that holds most gives way if it waits for its peer (its body still arrives, or its answer is not taken), and
//! either holds more than the newcomer needs or has waited for [`MAX_PEER_TIME`]: a small request gets its room from a large
//! one, and whoever sends or reads slowly keeps nobody out. What is being worked on is waited for, for [`MAX_WAIT`] at most.
//! Who waits and needs less gets room first. So the smallest requests always get in; large ones may be refused where more
//! connections than there is room for send smaller ones without end.

mod charged;

use super::places::Pulse;
use crate::memory::MemoryLimit;
use axum::body::{Body, Bytes};
use axum::extract::Request;
use axum::http::Extensions;
use axum::response::Response;
use charged::Charged;
use hyper::body::{Body as _, Frame};
use std::collections::HashMap;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::{Instant, timeout_at};

/// How long a request waits for room.
pub const MAX_WAIT: Duration = Duration::from_secs(1);
/// How long a request may wait for its peer and keep its room from one that needs more.
const MAX_PEER_TIME: Duration = Duration::from_millis(500);
/// How often a request that waits for room looks who has become slow meanwhile.
const POLL_INTERVAL: Duration = Duration::from_millis(100);
/// What requests may hold together where nobody says otherwise and memory is not short.
const DEFAULT_BYTES: usize = 64 << 20;
/// The share of the memory limit that they may hold at most: one part of so many.
const SHARE_OF_MEMORY: u64 = 4;
/// What a body of undeclared length is given room for at first.
const FIRST_BYTES: usize = 8 * 1024;

/// So many bytes for all requests; clones share them.
#[derive(Debug, Clone)]
pub struct Budget(Arc<Shared>);

/// What one request holds of a [`Budget`], until it is dropped.
#[derive(Debug)]
pub struct Charge {
    shared: Arc<Shared>,
    number: u64,
    connection: Option<Connection>,
}

/// The connection by which a request came; the server puts it among the request's extensions.
#[derive(Debug, Clone)]
pub(super) struct Connection(pub(super) Arc<Pulse>);

/// There is no room for a request now.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("other requests hold all the memory that requests may have; try again later")]
pub struct NoRoom;

/// Why there is no body.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BodyError {
    /// It has more bytes than one request may have.
    #[error("the body is longer than allowed")]
    TooLarge,
    /// It broke off, or took too long.
    #[error("the body did not arrive whole and in time")]
    Interrupted,
    /// Other requests hold what all together may have.
    #[error(transparent)]
    NoRoom(#[from] NoRoom),
}

/// How bodies are taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BodyLimits {
    /// Most bytes of one body.
    pub bytes: usize,
    /// How long a body may take to arrive.
    pub time: Duration,
}

#[derive(Debug)]
struct Shared {
    limit: usize,
    holders: Mutex<Holders>,
    /// Told when bytes are given back.
    freed: Notify,
}

#[derive(Debug, Default)]
struct Holders {
    taken: usize,
    /// Of that, what those hold who were told to give way.
    giving_way: usize,
    next: u64,
    all: HashMap<u64, Holder>,
}

#[derive(Debug)]
struct Holder {
    bytes: usize,
    /// What it waits for.
    wanted: usize,
    phase: Phase,
    /// When the phase began.
    since: Instant,
}

/// A request waits for bytes, until this is dropped.
struct Waiting<'a>(&'a Charge);

/// What a request that holds bytes is doing.
#[derive(Debug)]
enum Phase {
    /// Its body arrives; told to give way, it is refused.
    Arriving(Arc<Notify>),
    /// It is worked on.
    Working,
    /// Its answer is sent; told to give way, its connection ends.
    Leaving(Connection),
    /// It was told.
    GivingWay,
}

impl Budget {
    /// So many bytes.
    #[must_use]
    pub fn new(bytes: usize) -> Self {
        let (holders, freed) = (Mutex::default(), Notify::new());
        Self(Arc::new(Shared { limit: bytes, holders, freed }))
    }

    /// How many bytes the requests of a service should hold together if its process may have so much memory: 64 MiB, or a
    /// quarter of the limit if that is less.
    #[must_use]
    pub fn default_bytes(memory: Option<MemoryLimit>) -> usize {
        let quarter = memory.map(|memory| usize::try_from(memory.bytes / SHARE_OF_MEMORY));
        quarter.and_then(Result::ok).map_or(DEFAULT_BYTES, |quarter| quarter.min(DEFAULT_BYTES))
    }

    /// How many bytes there are.
    #[must_use]
    pub fn limit(&self) -> usize {
        self.0.limit
    }

    /// How many of them are held.
    #[must_use]
    pub fn taken(&self) -> usize {
        self.0.lock().taken
    }

    /// Takes bytes for work that has no body, for the request with these extensions.
    ///
    /// # Errors
    /// [`NoRoom`] if there are too few, also after waiting.
    pub async fn take(&self, request: &Extensions, bytes: usize) -> Result<Charge, NoRoom> {
        let charge = self.0.enter(request.get::<Connection>().cloned(), Phase::Working);
        charge.grow(bytes).await?;
        Ok(charge)
    }

    /// The body of a request, and the charge for its bytes.
    ///
    /// # Errors
    /// [`BodyError`] if there is none.
    pub async fn read(&self, request: Request, limits: BodyLimits) -> Result<(Vec<u8>, Charge), BodyError> {
        let (parts, body) = request.into_parts();
        let declared = usize::try_from(body.size_hint().lower()).unwrap_or(usize::MAX);
        if declared > limits.bytes {
            return Err(BodyError::TooLarge);
        }
        let give_way = Arc::new(Notify::new());
        let connection = parts.extensions.get::<Connection>().cloned();
        let charge = self.0.enter(connection, Phase::Arriving(Arc::clone(&give_way)));
        if let Some(Connection(pulse)) = &charge.connection {
            pulse.body_begins();
        }
        let arriving = tokio::time::timeout(limits.time, put_together(body, declared, limits.bytes, &charge));
        let whole = tokio::select! {
            whole = arriving => whole.map_err(|_| BodyError::Interrupted)??,
            () = give_way.notified() => return Err(BodyError::NoRoom(NoRoom)),
        };
        if let Some(Connection(pulse)) = &charge.connection {
            pulse.body_ends();
        }
        charge.enter_phase(Phase::Working);
        Ok((whole, charge))
    }
}

/// The body as it comes, in one piece of memory that is charged before it is there.
async fn put_together(
    mut body: Body,
    declared: usize,
    most: usize,
    charge: &Charge,
) -> Result<Vec<u8>, BodyError> {
    charge.grow(declared).await?;
    let mut whole = Vec::new();
    while let Some(frame) = next_frame(&mut body).await {
        let Ok(piece) = frame.map_err(|_| BodyError::Interrupted)?.into_data() else { continue };
        let needed = whole.len().saturating_add(piece.len());
        if needed > most {
            return Err(BodyError::TooLarge);
        }
        if needed > whole.capacity() {
            let capacity = if needed <= declared {
                declared
            } else {
                needed.max(whole.capacity() * 2).max(FIRST_BYTES).min(most)
            };
            // Growing means to copy: for a moment both are there.
            let both = whole.capacity() + capacity;
            charge.grow(both.saturating_sub(charge.bytes())).await?;
            whole.reserve_exact(capacity - whole.len());
            charge.shrink_to(capacity.max(declared));
        }
        whole.extend_from_slice(&piece);
    }
    Ok(whole)
}

async fn next_frame(body: &mut Body) -> Option<Result<Frame<Bytes>, axum::Error>> {
    std::future::poll_fn(|context| Pin::new(&mut *body).poll_frame(context)).await
}

impl Charge {
    /// How many bytes it holds.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.shared.lock().all.get(&self.number).map_or(0, |holder| holder.bytes)
    }

    /// Takes so many bytes more.
    ///
    /// # Errors
    /// [`NoRoom`] if there are too few, also after waiting.
    pub async fn grow(&self, bytes: usize) -> Result<(), NoRoom> {
        let deadline = Instant::now() + MAX_WAIT;
        let mut waiting = None;
        loop {
            let freed = self.shared.freed.notified();
            tokio::pin!(freed);
            // From here on no release is missed.
            freed.as_mut().enable();
            let growth = self.shared.lock().grow(self.number, bytes, self.shared.limit);
            match growth {
                Growth::Done => return Ok(()),
                Growth::Never => return Err(NoRoom),
                Growth::Wait => _ = waiting.get_or_insert_with(|| Waiting(self)),
            }
            let now = Instant::now();
            if now >= deadline {
                return Err(NoRoom);
            }
            // Whether bytes were given back or somebody has become slow: the next look tells.
            let _ = timeout_at(deadline.min(now + POLL_INTERVAL), freed).await;
        }
    }

    /// Gives back what it holds beyond so many bytes.
    pub fn shrink_to(&self, bytes: usize) {
        let mut holders = self.shared.lock();
        if let Some(holder) = holders.all.get_mut(&self.number) {
            let given = holder.bytes.saturating_sub(bytes);
            holder.bytes -= given;
            let was_told = matches!(holder.phase, Phase::GivingWay);
            holders.give_back(given, was_told);
        }
        drop(holders);
        self.shared.freed.notify_waiters();
    }

    /// The answer, which holds `bytes` of the charge until it is sent.
    #[must_use]
    pub fn answer(self, response: Response, bytes: usize) -> Response {
        self.shrink_to(bytes);
        if let Some(connection) = self.connection.clone() {
            self.enter_phase(Phase::Leaving(connection));
        }
        response.map(|body| Body::new(Charged::new(body, self)))
    }

    fn enter_phase(&self, phase: Phase) {
        if let Some(holder) = self.shared.lock().all.get_mut(&self.number)
            && !matches!(holder.phase, Phase::GivingWay)
        {
            holder.phase = phase;
            holder.since = Instant::now();
        }
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        let shared = &self.0.shared;
        if let Some(holder) = shared.lock().all.get_mut(&self.0.number) {
            holder.wanted = 0;
        }
        shared.freed.notify_waiters();
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        let mut holders = self.shared.lock();
        if let Some(holder) = holders.all.remove(&self.number) {
            holders.give_back(holder.bytes, matches!(holder.phase, Phase::GivingWay));
        }
        drop(holders);
        self.shared.freed.notify_waiters();
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Holders> {
        self.holders.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn enter(self: &Arc<Self>, connection: Option<Connection>, phase: Phase) -> Charge {
        let mut holders = self.lock();
        let number = holders.next;
        holders.next += 1;
        holders.all.insert(number, Holder { bytes: 0, wanted: 0, phase, since: Instant::now() });
        drop(holders);
        Charge { shared: Arc::clone(self), number, connection }
    }
}

/// What became of the wish to hold more.
enum Growth {
    Done,
    /// There may be room when others have given some back.
    Wait,
    /// Nobody could ever hold so much.
    Never,
}

impl Holders {
    fn grow(&mut self, number: u64, bytes: usize, limit: usize) -> Growth {
        let Some(holder) = self.all.get_mut(&number) else { return Growth::Never };
        if matches!(holder.phase, Phase::GivingWay) {
            return Growth::Never;
        }
        let after = holder.bytes.saturating_add(bytes);
        if after > limit {
            return Growth::Never;
        }
        holder.wanted = bytes;
        let waiting = self.all.iter().filter(|(other, holder)| {
            holder.wanted > 0 && (holder.bytes + holder.wanted, **other) < (after, number)
        });
        let ahead: usize = waiting.map(|(_, holder)| holder.wanted).sum();
        let missing = self.taken.saturating_add(ahead).saturating_add(bytes).saturating_sub(limit);
        if missing == 0
            && let Some(holder) = self.all.get_mut(&number)
        {
            holder.wanted = 0;
            holder.bytes = after;
            self.taken += bytes;
            return Growth::Done;
        }
        let now = Instant::now();
        while self.giving_way < missing {
            let largest = self
                .all
                .iter_mut()
                .filter(|(other, holder)| {
                    let waits = matches!(holder.phase, Phase::Arriving(_) | Phase::Leaving(_));
                    let is_slow = now.duration_since(holder.since) >= MAX_PEER_TIME;
                    waits && **other != number && holder.bytes > 0 && (holder.bytes > after || is_slow)
                })
                .max_by_key(|(_, holder)| holder.bytes);
            let Some((_, holder)) = largest else { break };
            match std::mem::replace(&mut holder.phase, Phase::GivingWay) {
                Phase::Arriving(told) => told.notify_one(),
                Phase::Leaving(Connection(pulse)) => pulse.give_up(),
                Phase::Working | Phase::GivingWay => {}
            }
            self.giving_way += holder.bytes;
        }
        Growth::Wait
    }

    fn give_back(&mut self, bytes: usize, was_told: bool) {
        self.taken = self.taken.saturating_sub(bytes);
        if was_told {
            self.giving_way = self.giving_way.saturating_sub(bytes);
        }
    }
}

#[cfg(test)]
mod tests;
