//! Decoding a message never allocates more than the weight computed from its encoding.
#![allow(clippy::unwrap_used, reason = "a test that can't go on shall fail")]
#![allow(unsafe_code, reason = "an allocator that counts")]

use bytes::Bytes;
use fpga_protocol::v1::{self, call::Method, client_message::Kind, command::Operation};
use fpga_protocol::weight::{Malformed, of_client_message};
use proptest::prelude::*;
use prost::Message as _;
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

thread_local! {
    static HELD: Cell<i64> = const { Cell::new(0) };
    static MOST: Cell<i64> = const { Cell::new(0) };
}

/// Counts the bytes that the thread has allocated and not freed.
struct Counting;

fn count(bytes: i64) {
    // A thread that ends has no counters any more.
    let _ = HELD.try_with(|held| {
        held.set(held.get() + bytes);
        let _ = MOST.try_with(|most| most.set(most.get().max(held.get())));
    });
}

fn signed(bytes: usize) -> i64 {
    i64::try_from(bytes).unwrap_or(i64::MAX)
}

// SAFETY: every call goes to the system allocator unchanged; the counters allocate nothing.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(signed(layout.size()));
        // SAFETY: the caller upholds the contract of `GlobalAlloc::alloc`, which is passed on unchanged.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        count(-signed(layout.size()));
        // SAFETY: the caller upholds the contract of `GlobalAlloc::dealloc`, which is passed on unchanged.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

/// The peak of allocated bytes while `encoded` is decoded.
fn decoding(encoded: &Bytes) -> i64 {
    let encoded = encoded.clone();
    let before = HELD.get();
    MOST.set(before);
    drop(v1::ClientMessage::decode(encoded));
    MOST.get() - before
}

fn check(encoded: Vec<u8>) -> u64 {
    let encoded = Bytes::from(encoded);
    let weight = of_client_message(&encoded).unwrap();
    let most = decoding(&encoded);
    // `Bytes` allocates some bytes for its reference count.
    assert!(most <= signed(usize::try_from(weight).unwrap()) + 256, "{most} bytes, weighed at {weight}");
    weight
}

fn encoded(kind: Kind) -> Vec<u8> {
    v1::ClientMessage { kind: Some(kind) }.encode_to_vec()
}

fn flush(commands: Vec<v1::Command>) -> Vec<u8> {
    encoded(Kind::Flush(v1::Flush { commands }))
}

#[test]
fn empty_structures_that_decode_to_many_times_their_size_are_weighed_at_that() {
    let commands = flush(vec![v1::Command::default(); 10_000]);
    assert!(commands.len() < 21_000 && check(commands) > 1_000_000);
    let args = vec![v1::KernelArg::default(); 10_000];
    let launch = Operation::NdRange(v1::NdRange { args, ..v1::NdRange::default() });
    check(flush(vec![v1::Command { operation: Some(launch), ..v1::Command::default() }]));
    let files = vec![v1::IncludeFile::default(); 10_000];
    let includes = Some(v1::Includes { folder: String::new(), files });
    let build = Method::BuildProgram(v1::BuildProgram { includes, ..v1::BuildProgram::default() });
    check(encoded(Kind::Call(v1::Call { id: 1, method: Some(build), trace: None })));
    let release = v1::Release { objects: vec![1; 10_000], events: vec![u64::MAX; 10_000] };
    check(encoded(Kind::Call(v1::Call {
        id: 1,
        method: Some(Method::Release(release)),
        trace: Some(Box::default()),
    })));
}

#[test]
fn bulk_data_weighs_nothing_beside_its_own_bytes() {
    let data = Bytes::from(vec![7; 1 << 20]);
    assert_eq!(check(encoded(Kind::Chunk(v1::Chunk { transfer: 1, length: 1 << 20, offset: 0, data }))), 0);
}

#[test]
fn numbers_one_by_one_weigh_as_much_as_packed_ones() {
    // Field 3 of a command, in field 1 of a flush, in field 3 of a message.
    let one_by_one: Vec<u8> = [0x18, 5].repeat(1000);
    let nested = |field: u8, inside: &[u8]| {
        let mut out = vec![field << 3 | 2];
        prost::encoding::encode_varint(inside.len() as u64, &mut out);
        out.extend_from_slice(inside);
        out
    };
    assert!(check(nested(3, &nested(1, &one_by_one))) >= 8000);
}

#[test]
fn what_is_cut_off_or_has_groups_is_malformed() {
    let whole = flush(vec![v1::Command { event: 5, queue: 300, ..v1::Command::default() }]);
    for cut in 1..whole.len() {
        assert_eq!(of_client_message(&whole[..cut]), Err(Malformed));
    }
    assert_eq!(of_client_message(&[0x0b, 0x0c]), Err(Malformed));
}

proptest! {
    #[test]
    fn whatever_the_bytes_are_decoding_holds_no_more_than_they_were_weighed_at(
        inside in prop::collection::vec(any::<u8>(), 0..400), path in prop::collection::vec(1_u8..16, 0..4)
    ) {
        let mut bytes = inside;
        for field in path {
            let mut outer = vec![field << 3 | 2];
            prost::encoding::encode_varint(bytes.len() as u64, &mut outer);
            outer.extend_from_slice(&bytes);
            bytes = outer;
        }
        if of_client_message(&bytes).is_ok() {
            check(bytes);
        } else {
            // A message that is refused before decoding takes no memory.
        }
    }

    #[test]
    fn everything_that_decodes_without_groups_can_be_weighed(
        events in prop::collection::vec(any::<u64>(), 0..50), wait in prop::collection::vec(any::<u64>(), 0..50),
        text in ".{0,40}"
    ) {
        let commands = events.iter().map(|event| v1::Command { event: *event, wait: wait.clone(), ..Default::default() });
        check(flush(commands.collect()));
        let hello = v1::Hello { token: text.clone(), client_name: text, ..v1::Hello::default() };
        check(encoded(Kind::Hello(hello)));
    }
}
