//! A budget of bytes that all requests of a service share: for their bodies, for what is computed from these, and for
//! answers until they are sent.
//!
//! A body is charged before it is read: by its declared length, or else as it grows. Where there is no room, the
//! request that holds the most bytes gives way, if it waits for its peer (its body still arrives, or its answer is
//! being sent) and either holds more than the newcomer would hold or has waited for [`MAX_PEER_TIME`]. So a small
//! request gets its room from a large one, and a peer that sends or reads slowly keeps no other request out. For
//! requests that are being worked on, a newcomer waits up to [`MAX_WAIT`]. Of the requests that wait, the one that
//! would hold least gets room first. So the smallest requests always get in; a large one may be refused while more
//! connections than there is room for keep sending smaller ones.

mod charged;

use super::connection_limit::ConnectionActivity;
use crate::memory::MemoryLimit;
use axum::body::{Body, Bytes};
use axum::extract::Request;
use axum::http::Extensions;
use axum::response::Response;
use charged::Charged;
use hyper::body::{Body as _, Frame};
use parking_lot::{Mutex, MutexGuard};
use std::collections::HashMap;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::{Instant, timeout_at};

/// Maximum time that a request waits for room.
pub const MAX_WAIT: Duration = Duration::from_secs(1);
/// Time for which a request that waits for its peer keeps its room from a request that would hold more.
const MAX_PEER_TIME: Duration = Duration::from_millis(500);
/// Interval at which a request that waits for room checks which others have become slow.
const POLL_INTERVAL: Duration = Duration::from_millis(100);
/// Default size of the budget in bytes, where memory is not short.
const DEFAULT_BYTES: usize = 64 << 20;
/// Divisor of the memory limit: the default size is at most this part of it.
const SHARE_OF_MEMORY: u64 = 4;
/// Room for a body of undeclared length at first, in bytes.
const FIRST_BYTES: usize = 8 * 1024;

/// A number of bytes for all requests; clones share them.
#[derive(Debug, Clone)]
pub struct Budget(Arc<Shared>);

/// The bytes of a [`Budget`] that one request holds, until this value is dropped.
#[derive(Debug)]
pub struct Charge {
    shared: Arc<Shared>,
    number: u64,
    connection: Option<Connection>,
}

/// The connection of a request; the server puts it among the request's extensions.
#[derive(Debug, Clone)]
pub(super) struct Connection(pub(super) Arc<ConnectionActivity>);

/// The budget has no room for a request now.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("other requests hold all the memory that requests may have; try again later")]
pub struct NoRoom;

/// Reason why a body could not be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BodyError {
    /// The body is longer than [`BodyLimits::bytes`].
    #[error("the body is longer than allowed")]
    TooLarge,
    /// The body broke off or took longer than [`BodyLimits::time`].
    #[error("the body did not arrive whole and in time")]
    Interrupted,
    /// The budget has no room for the body now.
    #[error(transparent)]
    NoRoom(#[from] NoRoom),
}

/// Limits of one body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BodyLimits {
    /// Maximum length in bytes.
    pub bytes: usize,
    /// Maximum time for the body to arrive.
    pub time: Duration,
}

#[derive(Debug)]
struct Shared {
    limit: usize,
    holders: Mutex<Holders>,
    /// Notified when bytes are given back.
    freed: Notify,
}

#[derive(Debug, Default)]
struct Holders {
    taken: usize,
    /// The part of `taken` that is held by requests that were told to give way.
    giving_way: usize,
    next: u64,
    all: HashMap<u64, Holder>,
}

#[derive(Debug)]
struct Holder {
    bytes: usize,
    /// The bytes that the request waits for.
    wanted: usize,
    phase: Phase,
    /// When the phase began.
    since: Instant,
}

/// A request that waits for bytes, until this value is dropped.
struct Waiting<'a>(&'a Charge);

/// The phase of a request that holds bytes.
#[derive(Debug)]
enum Phase {
    /// The body arrives. When told to give way, the request is refused.
    Arriving(Arc<Notify>),
    /// A handler works on the request.
    Working,
    /// The answer is being sent. When told to give way, the connection ends.
    Leaving(Connection),
    /// The request was told to give way.
    GivingWay,
}

impl Budget {
    /// A budget of `bytes` bytes.
    #[must_use]
    pub fn new(bytes: usize) -> Self {
        let (holders, freed) = (Mutex::default(), Notify::new());
        Self(Arc::new(Shared { limit: bytes, holders, freed }))
    }

    /// The default size of a budget in bytes, for a process with the memory limit `memory`: 64 MiB, or a quarter of
    /// the limit if that is less.
    #[must_use]
    pub fn default_bytes(memory: Option<MemoryLimit>) -> usize {
        let quarter = memory.map(|memory| usize::try_from(memory.bytes / SHARE_OF_MEMORY));
        quarter.and_then(Result::ok).map_or(DEFAULT_BYTES, |quarter| quarter.min(DEFAULT_BYTES))
    }

    /// The size of the budget in bytes.
    #[must_use]
    pub fn limit(&self) -> usize {
        self.0.limit
    }

    /// The bytes that requests hold now.
    #[must_use]
    pub fn taken(&self) -> usize {
        self.0.lock().taken
    }

    /// Takes `bytes` for work other than a body, for the request with these extensions.
    ///
    /// # Errors
    /// [`NoRoom`] if too few bytes are free, after waiting up to [`MAX_WAIT`].
    pub async fn take(&self, request: &Extensions, bytes: usize) -> Result<Charge, NoRoom> {
        let charge = self.0.enter(request.get::<Connection>().cloned(), Phase::Working);
        charge.grow(bytes).await?;
        Ok(charge)
    }

    /// Reads the body of a request; returns it with the charge for its bytes.
    ///
    /// # Errors
    /// [`BodyError`] if the body is too long, does not arrive in time, or does not fit into the budget.
    pub async fn read(&self, request: Request, limits: BodyLimits) -> Result<(Vec<u8>, Charge), BodyError> {
        let (parts, body) = request.into_parts();
        let declared = usize::try_from(body.size_hint().lower()).unwrap_or(usize::MAX);
        if declared > limits.bytes {
            return Err(BodyError::TooLarge);
        }
        let give_way = Arc::new(Notify::new());
        let connection = parts.extensions.get::<Connection>().cloned();
        let charge = self.0.enter(connection, Phase::Arriving(Arc::clone(&give_way)));
        if let Some(Connection(activity)) = &charge.connection {
            activity.body_begins();
        }
        let arriving = tokio::time::timeout(limits.time, put_together(body, declared, limits.bytes, &charge));
        let whole = tokio::select! {
            whole = arriving => whole.map_err(|_| BodyError::Interrupted)??,
            () = give_way.notified() => return Err(BodyError::NoRoom(NoRoom)),
        };
        if let Some(Connection(activity)) = &charge.connection {
            activity.body_ends();
        }
        charge.enter_phase(Phase::Working);
        Ok((whole, charge))
    }
}

/// Reads the body into one piece of memory, which is charged before it is allocated.
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
            // The allocation grows by copying: for a moment both copies exist.
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
    /// The bytes that the charge holds.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.shared.lock().all.get(&self.number).map_or(0, |holder| holder.bytes)
    }

    /// Takes `bytes` more.
    ///
    /// # Errors
    /// [`NoRoom`] if too few bytes are free, after waiting up to [`MAX_WAIT`].
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
            // Bytes were given back, or another request may have become slow: try again in either case.
            let _ = timeout_at(deadline.min(now + POLL_INTERVAL), freed).await;
        }
    }

    /// Gives back all but `bytes` of the charge.
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

    /// The response, which holds `bytes` of the charge until it is sent.
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
        self.holders.lock()
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

/// The result of a request for more bytes.
enum Growth {
    Done,
    /// There may be room when other requests have given bytes back.
    Wait,
    /// The request can never hold so many bytes, or was told to give way.
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
                Phase::Leaving(Connection(activity)) => activity.evict(),
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
