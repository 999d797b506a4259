//! Transfers from the manager that no call has taken yet, such as programs' binaries.

use bytes::{Bytes, BytesMut};
use fpga_protocol::v1;
use std::collections::HashMap;

/// Greatest sum of the transfers' sizes in bytes.
const MAX_BYTES: u64 = 1 << 30;

/// Greatest number of transfers.
const MAX_DOWNLOADS: usize = 1024;

/// The transfers by their ids.
#[derive(Debug, Default)]
pub(super) struct Downloads(HashMap<u64, Download>);

#[derive(Debug)]
struct Download {
    length: u64,
    bytes: BytesMut,
}

impl Downloads {
    /// Stores a chunk. Returns false if it isn't the next chunk of a transfer, or if there is no room for another
    /// transfer.
    pub(super) fn receive(&mut self, chunk: &v1::Chunk) -> bool {
        if !self.0.contains_key(&chunk.transfer) {
            let others: u64 = self.0.values().map(|download| download.length).sum();
            let room = MAX_BYTES - others;
            if chunk.length > room || self.0.len() >= MAX_DOWNLOADS {
                return false;
            }
        }
        let new = Download { length: chunk.length, bytes: BytesMut::new() };
        let download = self.0.entry(chunk.transfer).or_insert(new);
        let received = download.bytes.len() as u64;
        let fits = chunk.length == download.length
            && chunk.offset == received
            && chunk.data.len() as u64 <= download.length - received;
        if fits {
            download.bytes.extend_from_slice(&chunk.data);
        }
        fits
    }

    /// Takes the bytes of a transfer; `None` unless all of them have come.
    pub(super) fn take(&mut self, transfer: &v1::Transfer) -> Option<Bytes> {
        let download = self.0.remove(&transfer.id)?;
        let is_whole = download.length == transfer.length && download.bytes.len() as u64 == transfer.length;
        is_whole.then(|| download.bytes.freeze())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chunk(transfer: u64, length: u64, offset: u64, data: &'static [u8]) -> v1::Chunk {
        v1::Chunk { transfer, length, offset, data: Bytes::from_static(data) }
    }

    #[test]
    fn chunks_come_in_order_and_fit_their_transfer() {
        let mut downloads = Downloads::default();
        assert!(downloads.receive(&chunk(1, 6, 0, b"abc")));
        for wrong in [chunk(1, 6, 0, b"abc"), chunk(1, 7, 3, b"def"), chunk(1, 6, 3, b"defg")] {
            assert!(!downloads.receive(&wrong), "{wrong:?}");
        }
        assert!(downloads.receive(&chunk(1, 6, 3, b"def")));
        let transfer = v1::Transfer { id: 1, length: 6 };
        assert_eq!(downloads.take(&transfer), Some(Bytes::from_static(b"abcdef")));
        assert_eq!(downloads.take(&transfer), None, "it was taken");
    }

    #[test]
    fn transfers_are_bounded_in_number_and_in_bytes() {
        let mut downloads = Downloads::default();
        assert!(!downloads.receive(&chunk(1, MAX_BYTES + 1, 0, b"")));
        for transfer in 0..MAX_DOWNLOADS as u64 {
            assert!(downloads.receive(&chunk(transfer, 1, 0, b"")));
        }
        assert!(!downloads.receive(&chunk(u64::MAX, 1, 0, b"")));
    }
}
