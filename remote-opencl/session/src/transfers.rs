//! Data that arrives in pieces. Chunks are kept as they arrived, without copying, until a message refers to their
//! transfer.
//!
//! Lengths and order are checked against the protocol. A transfer takes no memory before its bytes arrive.

use crate::governor::Hold;
use crate::quotas::Account;
use crate::segments::Segments;
use bytes::{Bytes, BytesMut};
use fpga_protocol::limits::{MAX_CHUNK_BYTES, MAX_MESSAGE_BYTES};
use fpga_protocol::segments::RangeError;
use fpga_protocol::v1;
use fpga_protocol::v1::data::Form;
use fpga_vendor::SharedBytes;
use std::collections::HashMap;
use std::sync::{Arc, OnceLock, Weak};

/// Maximum number of transfers of a session that no message has referred to yet.
pub const MAX_TRANSFERS: usize = 1024;

/// Length in bytes below which chunks are joined, since each piece takes memory besides its bytes.
const SHORT_BYTES: usize = 4 << 10;

/// Length in bytes up to which short chunks are joined.
const BLOCK_BYTES: usize = 64 << 10;

/// Maximum number of bytes of a message besides the data of its chunk. If a message has more, the data is copied
/// out of it.
const ENVELOPE_BYTES: usize = 256;

/// The transfers of one session that no message has referred to yet.
#[derive(Debug, Default)]
pub struct Transfers {
    open: HashMap<u64, Transfer>,
    /// The transfers that commands wait for, until the client releases the commands' events.
    awaited: HashMap<u64, Weak<LateData>>,
    bytes: u64,
    /// The session's shared memory, which may contain data instead.
    pub segments: Segments,
    /// The account with the limit on a transfer's length; `None` for no limit.
    account: Option<Account>,
}

/// The place of the data of a write.
#[derive(Debug)]
pub enum Source {
    /// In messages: at least one piece, and no piece is empty.
    Pieces(Vec<Bytes>),
    /// In shared memory.
    Shared(SharedBytes),
    /// In messages that may come after the command.
    Later(Arc<LateData>),
}

/// The data of a transfer that may come after the command that refers to it.
#[derive(Debug)]
pub struct LateData {
    length: usize,
    /// Empty if the transfer was refused.
    data: OnceLock<Data>,
}

#[derive(Debug)]
struct Transfer {
    length: u64,
    received: u64,
    pieces: Vec<Bytes>,
    /// Short chunks after the pieces, in order.
    block: BytesMut,
    keep: Keep,
}

/// Whether the bytes of a transfer are kept.
#[derive(Debug)]
enum Keep {
    /// The bytes are kept, on this account.
    Yes(Option<Hold>),
    /// The bytes are dropped: the transfer is longer than its tenant may send, or there is no memory for it.
    No,
}

/// The memory that was reserved for a new transfer.
#[derive(Debug)]
pub enum Reserved {
    /// As much as [`Transfers::need`] returned; `None` if that was zero.
    Held(Option<Hold>),
    /// No memory is free.
    Refused,
}

/// The bytes of a message or of a transfer.
#[derive(Debug, Default)]
pub struct Data {
    /// At least one piece, and no piece is empty.
    pub pieces: Vec<Bytes>,
    /// The account of the bytes, unless the message's account has them.
    pub hold: Option<Hold>,
}

/// A violation of the protocol by a client, or a refused transfer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TransferError {
    /// The id is 0.
    #[error("transfer id 0 is none")]
    Zero,
    /// A chunk is empty or too long.
    #[error("a chunk has {0} bytes; 1 to {MAX_CHUNK_BYTES} are taken")]
    ChunkSize(usize),
    /// A chunk does not continue its transfer.
    #[error("a chunk of transfer {0} leaves a gap, or says another length than the one before")]
    Order(u64),
    /// A chunk exceeds the length of its transfer.
    #[error("a chunk goes beyond the end of transfer {0}")]
    TooLong(u64),
    /// [`MAX_TRANSFERS`] transfers are open.
    #[error("{MAX_TRANSFERS} transfers are open; refer to some")]
    TooMany,
    /// A message refers to a transfer that is not complete or has another length.
    #[error("transfer {0} is not complete, or has another length")]
    Incomplete(u64),
    /// A command refers to later data of another one.
    #[error("transfer {0} is not that of the command's event")]
    Foreign(u64),
    /// The transfer was longer than the tenant may send, or there was no memory for it, so its bytes were dropped
    /// as they arrived. This is not a violation of the protocol.
    #[error("a transfer is longer than the tenant may send, or there is no memory for it")]
    OverQuota,
    /// A message lacks its data.
    #[error("a message lacks its data")]
    Missing,
    /// A range of shared memory is not valid.
    #[error(transparent)]
    Range(#[from] RangeError),
    /// Inline data is longer than any message.
    #[error("{0} bytes inline are too many; send them in chunks")]
    Inline(usize),
}

impl Source {
    /// Length in bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        match self {
            Self::Pieces(pieces) => pieces.iter().map(Bytes::len).sum(),
            Self::Shared(slice) => slice.len(),
            Self::Later(late) => late.length,
        }
    }
}

impl LateData {
    /// The pieces of the data; `None` if they have not come, or were refused.
    #[must_use]
    pub fn pieces(&self) -> Option<&[Bytes]> {
        self.data.get().map(|data| data.pieces.as_slice()).filter(|pieces| !pieces.is_empty())
    }
}

impl Transfers {
    /// Makes an empty set of transfers. `segments` is the session's shared memory.
    #[must_use]
    pub fn new(segments: Segments, account: Account) -> Self {
        Self { segments, account: Some(account), ..Self::default() }
    }

    /// Number of bytes to hold before this chunk is taken. The first chunk needs the memory of the whole transfer,
    /// so that a transfer that has begun never waits.
    #[must_use]
    pub fn need(&self, chunk: &v1::Chunk) -> u64 {
        if self.open.contains_key(&chunk.transfer) || self.is_over_quota(chunk.length) {
            return 0;
        }
        // Memory besides the data: envelopes of long chunks, or a block that grows.
        let beside = (chunk.length / (SHORT_BYTES / ENVELOPE_BYTES) as u64) + (2 * BLOCK_BYTES) as u64;
        chunk.length.saturating_add(beside.min(chunk.length.saturating_add(2 * ENVELOPE_BYTES as u64)))
    }

    fn is_over_quota(&self, length: u64) -> bool {
        self.account.as_ref().is_some_and(|account| length > account.upload_limit())
    }

    /// Takes a chunk that arrived in a message of `message_bytes`.
    ///
    /// # Errors
    /// [`TransferError`]; the session must end then.
    pub fn chunk(
        &mut self,
        chunk: v1::Chunk,
        message_bytes: usize,
        reserved: Reserved,
    ) -> Result<(), TransferError> {
        let v1::Chunk { transfer: id, length, offset, data } = chunk;
        if id == 0 {
            return Err(TransferError::Zero);
        }
        if data.is_empty() || data.len() > MAX_CHUNK_BYTES {
            return Err(TransferError::ChunkSize(data.len()));
        }
        if !self.open.contains_key(&id) && self.open.len() >= MAX_TRANSFERS {
            return Err(TransferError::TooMany);
        }
        let (over_quota, account) = (self.is_over_quota(length), self.account.as_ref());
        let transfer = self.open.entry(id).or_insert_with(|| {
            let keep = match (reserved, over_quota) {
                (Reserved::Held(hold), false) => Keep::Yes(hold),
                (Reserved::Refused, _) | (_, true) => {
                    if let Some(account) = account {
                        account.upload_refused();
                    }
                    Keep::No
                }
            };
            Transfer { length, received: 0, pieces: Vec::new(), block: BytesMut::new(), keep }
        });
        if transfer.length != length || transfer.received != offset {
            return Err(TransferError::Order(id));
        }
        let size = data.len() as u64;
        if size > length - offset {
            return Err(TransferError::TooLong(id));
        }
        transfer.received += size;
        if let Keep::Yes(_) = transfer.keep {
            transfer.keep_piece(data, message_bytes);
            self.bytes += size;
        }
        if transfer.received == length {
            self.has_come(id);
        }
        Ok(())
    }

    /// The data of a write with this event, for the vendor.
    ///
    /// # Errors
    /// [`TransferError`]; the session must end then, except after [`TransferError::OverQuota`].
    pub fn source(
        &mut self,
        event: u64,
        data: Option<v1::Data>,
    ) -> Result<(Source, Option<Hold>), TransferError> {
        match data {
            Some(v1::Data { form: Some(Form::Segment(range)) }) => {
                Ok((Source::Shared(self.segments.slice(&range)?), None))
            }
            Some(v1::Data { form: Some(Form::Later(transfer)) }) => {
                Ok((Source::Later(self.later(event, &transfer)?), None))
            }
            other => self.take(other).map(|Data { pieces, hold }| (Source::Pieces(pieces), hold)),
        }
    }

    /// The data that a message contains or refers to: at least one piece, and no piece is empty. Data in shared
    /// memory is copied, so that the client can't change it.
    ///
    /// # Errors
    /// [`TransferError`]; the session must end then, except after [`TransferError::OverQuota`].
    pub fn take(&mut self, data: Option<v1::Data>) -> Result<Data, TransferError> {
        let of_message = |bytes| Ok(Data { pieces: vec![bytes], hold: None });
        match data.and_then(|data| data.form) {
            None | Some(Form::Later(_)) => Err(TransferError::Missing),
            Some(Form::Inline(bytes)) if bytes.is_empty() => Err(TransferError::Missing),
            Some(Form::Inline(bytes)) if bytes.len() > MAX_MESSAGE_BYTES => {
                Err(TransferError::Inline(bytes.len()))
            }
            Some(Form::Inline(bytes)) => of_message(bytes),
            Some(Form::Segment(range)) => of_message(self.segments.copy(&range)?),
            Some(Form::Transfer(transfer)) => self.close(&transfer),
        }
    }

    /// Takes the data of a complete transfer.
    fn close(&mut self, asked: &v1::Transfer) -> Result<Data, TransferError> {
        let v1::Transfer { id, length } = *asked;
        match self.open.remove(&id) {
            Some(transfer) if transfer.length == length && transfer.received == length => {
                let Transfer { mut pieces, block, keep, .. } = transfer;
                let Keep::Yes(hold) = keep else { return Err(TransferError::OverQuota) };
                if !block.is_empty() {
                    pieces.push(block.freeze());
                }
                self.bytes -= length;
                Ok(Data { pieces, hold })
            }
            _ => Err(TransferError::Incomplete(id)),
        }
    }

    /// The data of a command that may come after it. The transfer has the id of the command's event, so releasing the
    /// events bounds what is kept here.
    fn later(&mut self, event: u64, transfer: &v1::Transfer) -> Result<Arc<LateData>, TransferError> {
        if transfer.id != event {
            return Err(TransferError::Foreign(transfer.id));
        }
        let length = usize::try_from(transfer.length).map_err(|_| TransferError::OverQuota)?;
        let late = Arc::new(LateData { length, data: OnceLock::new() });
        self.awaited.insert(transfer.id, Arc::downgrade(&late));
        if self.open.get(&transfer.id).is_some_and(|open| open.received == open.length) {
            self.has_come(transfer.id);
        }
        Ok(late)
    }

    /// Gives a transfer that is complete to the command that waits for it, if there is one.
    fn has_come(&mut self, id: u64) {
        let Some(late) = self.awaited.remove(&id) else { return };
        let Some(length) = self.open.get(&id).map(|transfer| transfer.length) else { return };
        // A refused transfer, or one of another length than the command's, leaves the command without data.
        let data = self.close(&v1::Transfer { id, length }).unwrap_or_default();
        if let Some(late) = late.upgrade().filter(|late| late.length as u64 == length) {
            // The entry was removed above, so this is the only time.
            let _ = late.data.set(data);
        }
    }

    /// Notes that the client has released an event: no data of its command comes any more.
    pub fn released(&mut self, event: u64) {
        self.awaited.remove(&event);
    }

    /// Number of bytes that no message has referred to yet.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.bytes
    }
}

impl Transfer {
    /// Keeps the data of a chunk, and little memory besides.
    fn keep_piece(&mut self, data: Bytes, message_bytes: usize) {
        if data.len() < SHORT_BYTES {
            self.block.extend_from_slice(&data);
            if self.block.len() >= BLOCK_BYTES {
                self.pieces.push(std::mem::take(&mut self.block).freeze());
            }
            return;
        }
        if !self.block.is_empty() {
            self.pieces.push(std::mem::take(&mut self.block).freeze());
        }
        let wastes = message_bytes > data.len() + ENVELOPE_BYTES;
        self.pieces.push(if wastes { Bytes::copy_from_slice(&data) } else { data });
    }
}

/// The pieces as a single one.
#[must_use]
pub fn join(mut pieces: Vec<Bytes>) -> Bytes {
    match (pieces.pop(), pieces.is_empty()) {
        (None, _) => Bytes::new(),
        (Some(only), true) => only,
        (Some(last), false) => {
            pieces.push(last);
            pieces.concat().into()
        }
    }
}

/// Splits data for the client into the chunks of a transfer. The chunks are slices, not copies.
pub fn chunks(transfer: u64, data: &Bytes) -> impl Iterator<Item = v1::Chunk> + '_ {
    let length = data.len() as u64;
    (0..data.len()).step_by(MAX_CHUNK_BYTES).map(move |offset| {
        let end = data.len().min(offset + MAX_CHUNK_BYTES);
        v1::Chunk { transfer, length, offset: offset as u64, data: data.slice(offset..end) }
    })
}

#[cfg(test)]
mod tests;
