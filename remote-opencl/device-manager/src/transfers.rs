//! Data that comes in pieces: chunks are kept as they arrived, without copying, until a message refers to them.
//!
//! Everything that a peer says of lengths and order is checked; a transfer takes no memory before its bytes come.

use crate::quotas::Account;
use crate::segments::{Segments, Slice};
use bytes::Bytes;
use fpga_protocol::limits::{MAX_CHUNK_BYTES, MAX_MESSAGE_BYTES};
use fpga_protocol::segments::RangeError;
use fpga_protocol::v1;
use fpga_protocol::v1::data::Form;
use std::collections::HashMap;

/// Most transfers of a session that nothing has referred to yet.
pub const MAX_TRANSFERS: usize = 1024;

/// The transfers of one session that nothing has referred to yet.
#[derive(Debug, Default)]
pub struct Transfers {
    open: HashMap<u64, Transfer>,
    bytes: u64,
    /// What data may be in instead.
    pub segments: Segments,
    /// Says how long a transfer may be; nobody where nothing bounds it.
    account: Option<Account>,
}

/// Where the data of a write is.
#[derive(Debug)]
pub enum Source {
    /// In messages: at least one, none empty.
    Pieces(Vec<Bytes>),
    /// In shared memory.
    Shared(Slice),
}

#[derive(Debug)]
struct Transfer {
    length: u64,
    received: u64,
    pieces: Vec<Bytes>,
    keep: Keep,
}

/// Whether the bytes of a transfer are kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Keep {
    Yes,
    /// It is longer than its tenant may send.
    No,
}

/// How a peer breaks the protocol.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TransferError {
    /// 0 names nothing.
    #[error("transfer id 0 is none")]
    Zero,
    /// A chunk has no bytes or too many.
    #[error("a chunk has {0} bytes; 1 to {MAX_CHUNK_BYTES} are taken")]
    ChunkSize(usize),
    /// A chunk does not continue its transfer.
    #[error("a chunk of transfer {0} leaves a gap, or says another length than the one before")]
    Order(u64),
    /// A chunk goes beyond its transfer's end.
    #[error("a chunk goes beyond the end of transfer {0}")]
    TooLong(u64),
    /// There are [`MAX_TRANSFERS`].
    #[error("{MAX_TRANSFERS} transfers are open; refer to some")]
    TooMany,
    /// A message refers to a transfer that is not complete or has another length.
    #[error("transfer {0} is not complete, or has another length")]
    Incomplete(u64),
    /// The transfer was longer than the tenant may send: its bytes were dropped as they came. Not a breach of the
    /// protocol.
    #[error("a transfer is longer than the tenant may send")]
    OverQuota,
    /// A message says that it has data and has none.
    #[error("a message lacks its data")]
    Missing,
    /// A range of shared memory is none.
    #[error(transparent)]
    Range(#[from] RangeError),
    /// Inline data is longer than any message.
    #[error("{0} bytes inline are too many; send them in chunks")]
    Inline(usize),
}

impl Source {
    /// How many bytes there are.
    #[must_use]
    pub fn len(&self) -> usize {
        match self {
            Self::Pieces(pieces) => pieces.iter().map(Bytes::len).sum(),
            Self::Shared(slice) => slice.len(),
        }
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl Transfers {
    /// None; what is in shared memory is in these segments.
    #[must_use]
    pub fn new(segments: Segments, account: Account) -> Self {
        Self { segments, account: Some(account), ..Self::default() }
    }

    /// Takes a chunk.
    ///
    /// # Errors
    /// [`TransferError`]; the session can't go on then.
    pub fn chunk(&mut self, chunk: v1::Chunk) -> Result<(), TransferError> {
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
        let account = self.account.as_ref();
        let transfer = self.open.entry(id).or_insert_with(|| {
            let keep = match account {
                Some(account) if length > account.upload_limit() => {
                    account.upload_refused();
                    Keep::No
                }
                _ => Keep::Yes,
            };
            Transfer { length, received: 0, pieces: Vec::new(), keep }
        });
        if transfer.length != length || transfer.received != offset {
            return Err(TransferError::Order(id));
        }
        let size = data.len() as u64;
        if size > length - offset {
            return Err(TransferError::TooLong(id));
        }
        transfer.received += size;
        if transfer.keep == Keep::Yes {
            transfer.pieces.push(data);
            self.bytes += size;
        }
        Ok(())
    }

    /// Where the bytes for the vendor are.
    ///
    /// # Errors
    /// [`TransferError`]; the session can't go on then.
    pub fn source(&mut self, data: Option<v1::Data>) -> Result<Source, TransferError> {
        match data {
            Some(v1::Data { form: Some(Form::Segment(range)) }) => {
                Ok(Source::Shared(self.segments.slice(&range)?))
            }
            other => self.take(other).map(Source::Pieces),
        }
    }

    /// The pieces of what a message has or refers to; at least one, none empty. What is in shared memory is copied:
    /// these bytes stay as they are.
    ///
    /// # Errors
    /// [`TransferError`]; the session can't go on then.
    pub fn take(&mut self, data: Option<v1::Data>) -> Result<Vec<Bytes>, TransferError> {
        match data.and_then(|data| data.form) {
            None => Err(TransferError::Missing),
            Some(Form::Inline(bytes)) if bytes.is_empty() => Err(TransferError::Missing),
            Some(Form::Inline(bytes)) if bytes.len() > MAX_MESSAGE_BYTES => {
                Err(TransferError::Inline(bytes.len()))
            }
            Some(Form::Inline(bytes)) => Ok(vec![bytes]),
            Some(Form::Segment(range)) => Ok(vec![self.segments.copy(&range)?]),
            Some(Form::Transfer(v1::Transfer { id, length })) => match self.open.remove(&id) {
                Some(transfer) if transfer.length == length && transfer.received == length => {
                    if transfer.keep == Keep::No {
                        return Err(TransferError::OverQuota);
                    }
                    self.bytes -= length;
                    Ok(transfer.pieces)
                }
                _ => Err(TransferError::Incomplete(id)),
            },
        }
    }

    /// Bytes that nothing has referred to yet.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.bytes
    }
}

/// The pieces as one.
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

/// Cuts what goes to the client into chunks of a transfer; slices, no copies.
pub fn chunks(transfer: u64, data: &Bytes) -> impl Iterator<Item = v1::Chunk> + '_ {
    let length = data.len() as u64;
    (0..data.len()).step_by(MAX_CHUNK_BYTES).map(move |offset| {
        let end = data.len().min(offset + MAX_CHUNK_BYTES);
        v1::Chunk { transfer, length, offset: offset as u64, data: data.slice(offset..end) }
    })
}

#[cfg(test)]
mod tests;
