use super::*;
use proptest::prelude::*;
use std::sync::Arc;

fn chunk(transfer: u64, length: u64, offset: u64, data: &'static [u8]) -> v1::Chunk {
    v1::Chunk { transfer, length, offset, data: Bytes::from_static(data) }
}

/// Takes a chunk, with memory reserved for it.
fn take(transfers: &mut Transfers, chunk: v1::Chunk) -> Result<(), TransferError> {
    let message = chunk.data.len();
    transfers.chunk(chunk, message, Reserved::Held(None))
}

fn refer(id: u64, length: u64) -> Option<v1::Data> {
    Some(v1::Data { form: Some(Form::Transfer(v1::Transfer { id, length })) })
}

#[test]
fn chunks_that_follow_each_other_are_one_transfer() {
    let mut transfers = Transfers::default();
    take(&mut transfers, chunk(1, 5, 0, b"abc")).unwrap();
    take(&mut transfers, chunk(1, 5, 3, b"de")).unwrap();
    assert_eq!(transfers.bytes(), 5);
    assert_eq!(join(transfers.take(refer(1, 5)).unwrap().pieces), "abcde");
    assert_eq!(transfers.bytes(), 0);
    assert_eq!(transfers.take(refer(1, 5)).unwrap_err(), TransferError::Incomplete(1), "once");
}

#[test]
fn chunks_that_lie_are_refused() {
    let refused = |chunks: &[v1::Chunk]| {
        let mut transfers = Transfers::default();
        chunks.iter().cloned().find_map(|chunk| take(&mut transfers, chunk).err()).unwrap()
    };
    assert_eq!(refused(&[chunk(0, 3, 0, b"abc")]), TransferError::Zero);
    assert_eq!(refused(&[chunk(1, 3, 1, b"abc")]), TransferError::Order(1));
    assert_eq!(refused(&[chunk(1, 2, 0, b"abc")]), TransferError::TooLong(1));
    assert_eq!(refused(&[chunk(1, 3, 0, b"")]), TransferError::ChunkSize(0));
    assert_eq!(refused(&[chunk(1, 9, 0, b"abc"), chunk(1, 9, 4, b"abc")]), TransferError::Order(1));
    assert_eq!(refused(&[chunk(1, 9, 0, b"abc"), chunk(1, 8, 3, b"abc")]), TransferError::Order(1));
    assert_eq!(
        refused(&[chunk(1, u64::MAX, 0, b"abc"), chunk(1, 9, u64::MAX, b"abc")]),
        TransferError::Order(1)
    );
}

#[test]
fn a_message_refers_to_complete_transfers_only() {
    let mut transfers = Transfers::default();
    take(&mut transfers, chunk(1, 5, 0, b"abc")).unwrap();
    assert_eq!(transfers.take(refer(1, 5)).unwrap_err(), TransferError::Incomplete(1));
    assert_eq!(transfers.take(refer(2, 5)).unwrap_err(), TransferError::Incomplete(2));
    assert_eq!(transfers.take(None).unwrap_err(), TransferError::Missing);
}

/// The late data of the command with this event.
fn later(transfers: &mut Transfers, event: u64, length: u64) -> Arc<LateData> {
    let form = Form::Later(v1::Transfer { id: event, length });
    match transfers.source(event, Some(v1::Data { form: Some(form) })).unwrap() {
        (Source::Later(late), _) => late,
        other => panic!("{other:?}"),
    }
}

#[test]
fn data_that_comes_after_its_command_is_that_commands() {
    let mut transfers = Transfers::default();
    let late = later(&mut transfers, 7, 5);
    assert_eq!(late.pieces(), None);
    take(&mut transfers, chunk(7, 5, 0, b"abc")).unwrap();
    assert_eq!(late.pieces(), None, "not all of it has come");
    take(&mut transfers, chunk(7, 5, 3, b"de")).unwrap();
    assert_eq!(join(late.pieces().unwrap().to_vec()), "abcde");
    assert_eq!(transfers.bytes(), 0);

    take(&mut transfers, chunk(8, 2, 0, b"fg")).unwrap();
    assert_eq!(join(later(&mut transfers, 8, 2).pieces().unwrap().to_vec()), "fg", "it may have come before");
}

#[test]
fn late_data_of_another_length_or_of_an_ended_command_is_nobodys() {
    let mut transfers = Transfers::default();
    let late = later(&mut transfers, 7, 5);
    take(&mut transfers, chunk(7, 3, 0, b"abc")).unwrap();
    assert_eq!(late.pieces(), None);
    drop(later(&mut transfers, 8, 3));
    take(&mut transfers, chunk(8, 3, 0, b"abc")).unwrap();
    assert_eq!(transfers.bytes(), 0);
    let foreign = Form::Later(v1::Transfer { id: 9, length: 3 });
    let foreign = Some(v1::Data { form: Some(foreign) });
    assert_eq!(transfers.source(10, foreign).unwrap_err(), TransferError::Foreign(9));
    drop(later(&mut transfers, 11, 3));
    transfers.released(11);
    assert!(transfers.awaited.is_empty());
}

#[test]
fn open_transfers_are_bounded() {
    let mut transfers = Transfers::default();
    for id in 1..=MAX_TRANSFERS as u64 {
        take(&mut transfers, chunk(id, 5, 0, b"abc")).unwrap();
    }
    assert_eq!(take(&mut transfers, chunk(u64::MAX, 5, 0, b"abc")), Err(TransferError::TooMany));
}

#[test]
fn a_small_chunk_in_a_large_message_keeps_its_own_bytes_only() {
    const MESSAGE: usize = 4 << 20;
    let mut transfers = Transfers::default();
    let message = Bytes::from(vec![7; MESSAGE]);
    for (id, length) in [(1, 1), (2, SHORT_BYTES), (3, MAX_CHUNK_BYTES)] {
        let chunk =
            v1::Chunk { transfer: id, length: length as u64, offset: 0, data: message.slice(..length) };
        assert!(transfers.need(&chunk) >= length as u64);
        transfers.chunk(chunk, MESSAGE, Reserved::Held(None)).unwrap();
    }
    assert!(message.is_unique(), "a transfer keeps a whole message for a part of it");
    let data = message.slice(..MAX_CHUNK_BYTES);
    let bulk = v1::Chunk { transfer: 4, length: MESSAGE as u64, offset: 0, data };
    transfers.chunk(bulk, MAX_CHUNK_BYTES + 20, Reserved::Held(None)).unwrap();
    assert!(!message.is_unique(), "bulk data is not copied");
}

#[test]
fn short_chunks_are_kept_together_and_come_out_in_order() {
    let mut transfers = Transfers::default();
    let bytes: Vec<u8> = (0..200_000_u32).map(|at| at.to_le_bytes()[1]).collect();
    let all = Bytes::from(bytes);
    let mut at = 0;
    for size in [1, 5000, 3, 3, 4095, 4096, 70].into_iter().cycle() {
        let end = all.len().min(at + size);
        let data = all.slice(at..end);
        let chunk = v1::Chunk { transfer: 1, length: all.len() as u64, offset: at as u64, data };
        take(&mut transfers, chunk).unwrap();
        at = end;
        if at == all.len() {
            break;
        }
    }
    let Data { pieces, .. } = transfers.take(refer(1, all.len() as u64)).unwrap();
    assert_eq!(join(pieces), all);
}

#[test]
fn a_transfer_without_memory_is_dropped_as_it_comes_and_fails_what_refers_to_it() {
    let mut transfers = Transfers::default();
    transfers.chunk(chunk(1, 5, 0, b"abc"), 3, Reserved::Refused).unwrap();
    let last = chunk(1, 5, 3, b"de");
    assert_eq!(transfers.need(&last), 0, "it has begun");
    transfers.chunk(last, 2, Reserved::Held(None)).unwrap();
    assert_eq!(transfers.bytes(), 0);
    assert_eq!(transfers.take(refer(1, 5)).unwrap_err(), TransferError::OverQuota);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(16))]

    #[test]
    fn what_is_cut_into_chunks_comes_together_again(length in 1_usize..3 * MAX_CHUNK_BYTES, seed in any::<u8>()) {
        let data: Bytes = (0..length).map(|at| at.wrapping_mul(31).to_le_bytes()[0] ^ seed).collect::<Vec<_>>().into();
        let mut transfers = Transfers::default();
        for chunk in chunks(7, &data) {
            take(&mut transfers, chunk).unwrap();
        }
        prop_assert_eq!(join(transfers.take(refer(7, length as u64)).unwrap().pieces), data);
    }
}
