use super::*;
use proptest::prelude::*;

fn chunk(transfer: u64, length: u64, offset: u64, data: &'static [u8]) -> v1::Chunk {
    v1::Chunk { transfer, length, offset, data: Bytes::from_static(data) }
}

fn refer(id: u64, length: u64) -> Option<v1::Data> {
    Some(v1::Data { form: Some(Form::Transfer(v1::Transfer { id, length })) })
}

#[test]
fn chunks_that_follow_each_other_are_one_transfer() {
    let mut transfers = Transfers::default();
    transfers.chunk(chunk(1, 5, 0, b"abc")).unwrap();
    transfers.chunk(chunk(1, 5, 3, b"de")).unwrap();
    assert_eq!(transfers.bytes(), 5);
    assert_eq!(join(transfers.take(refer(1, 5)).unwrap()), "abcde");
    assert_eq!(transfers.bytes(), 0);
    assert_eq!(transfers.take(refer(1, 5)), Err(TransferError::Incomplete(1)), "once");
}

#[test]
fn chunks_that_lie_are_refused() {
    let refused = |chunks: &[v1::Chunk]| {
        let mut transfers = Transfers::default();
        chunks.iter().cloned().find_map(|chunk| transfers.chunk(chunk).err()).unwrap()
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
    transfers.chunk(chunk(1, 5, 0, b"abc")).unwrap();
    assert_eq!(transfers.take(refer(1, 5)), Err(TransferError::Incomplete(1)));
    assert_eq!(transfers.take(refer(2, 5)), Err(TransferError::Incomplete(2)));
    assert_eq!(transfers.take(None), Err(TransferError::Missing));
}

#[test]
fn open_transfers_are_bounded() {
    let mut transfers = Transfers::default();
    for id in 1..=MAX_TRANSFERS as u64 {
        transfers.chunk(chunk(id, 5, 0, b"abc")).unwrap();
    }
    assert_eq!(transfers.chunk(chunk(u64::MAX, 5, 0, b"abc")), Err(TransferError::TooMany));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(16))]

    #[test]
    fn what_is_cut_into_chunks_comes_together_again(length in 1_usize..3 * MAX_CHUNK_BYTES, seed in any::<u8>()) {
        let data: Bytes = (0..length).map(|at| at.wrapping_mul(31).to_le_bytes()[0] ^ seed).collect::<Vec<_>>().into();
        let mut transfers = Transfers::default();
        for chunk in chunks(7, &data) {
            transfers.chunk(chunk).unwrap();
        }
        prop_assert_eq!(join(transfers.take(refer(7, length as u64)).unwrap()), data);
    }
}
