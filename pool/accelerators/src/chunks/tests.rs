use super::*;
use crate::{Accelerator, InterfaceSpec, Parameter};
use proptest::prelude::*;

/// Any interface that is possible.
fn any_interface() -> impl Strategy<Value = Interface> {
    let small = prop_oneof![1u32..200, Just(4_000_000)];
    let tails = prop_oneof![Just(Tail::Partial), Just(Tail::ZeroFilled), Just(Tail::Refused)];
    (small.clone(), small, 0u32..100, tails).prop_map(|(block, per_block, at_end, tail)| {
        let per_block = if tail == Tail::Partial { per_block / block * block } else { per_block };
        let spec = InterfaceSpec {
            kernel: "any".to_owned(),
            block_bytes: block,
            output_bytes_per_block: per_block,
            output_bytes_at_end: if per_block == 0 { at_end + 1 } else { at_end },
            tail,
            state_bytes: 8,
            pure: true,
            parameters: Vec::<Parameter>::new(),
            work_group_size: 1,
            work_items_per_block: None,
        };
        Interface::new(spec).unwrap()
    })
}

proptest! {
    #[test]
    fn chunks_cover_input_and_output_once_and_in_order(
        interface in any_interface(),
        bytes in 0u64..10_000,
        most in 1u32..5_000,
    ) {
        let spec = interface.spec().clone();
        let block = u64::from(spec.block_bytes);
        let bytes = if spec.tail == Tail::Refused { bytes / block * block } else { bytes };
        let chunks = chunks_of(&interface, bytes, NonZeroU32::new(most).unwrap()).unwrap();
        let output_bytes = chunks.output_bytes();
        let all: Vec<Chunk> = chunks.collect();

        let (mut input_end, mut output_end) = (0, 0);
        for (index, chunk) in all.iter().enumerate() {
            let is_last = index + 1 == all.len();
            prop_assert_eq!((chunk.input.start, chunk.output.start), (input_end, output_end));
            (input_end, output_end) = (chunk.input.end, chunk.output.end);
            prop_assert_eq!(chunk.position == Position::Last, is_last);

            let input = input_end - chunk.input.start;
            let is_whole = (input + u64::from(chunk.zeros)).is_multiple_of(block);
            prop_assert!(is_whole || (is_last && spec.tail == Tail::Partial));
            prop_assert!(chunk.zeros == 0 || is_last);
            let at_end = if is_last { u64::from(spec.output_bytes_at_end) } else { 0 };
            let output = output_end - chunk.output.start - at_end;
            let is_bounded = input.max(output) <= u64::from(most);
            prop_assert!(is_bounded || input <= block);
            // The output that the interface promises: a times the bytes that the kernel gets.
            prop_assert_eq!(output * block, (input + u64::from(chunk.zeros)) * u64::from(spec.output_bytes_per_block));
        }
        prop_assert_eq!((input_end, output_end), (bytes, output_bytes));
        prop_assert_eq!(all.is_empty(), bytes == 0 && spec.output_bytes_at_end == 0);
    }
}

fn split(accelerator: Accelerator, bytes: u64) -> Vec<Chunk> {
    chunks(&accelerator.interface(), bytes).unwrap().collect()
}

#[test]
fn a_byte_more_than_four_megabytes_is_a_chunk_of_its_own() {
    let lengths = |bytes| -> Vec<u64> {
        let chunks = split(Accelerator::Aes256Ctr, bytes);
        chunks.iter().map(|chunk| chunk.input.end - chunk.input.start).collect()
    };
    assert_eq!(lengths(3_999_999), [3_999_999]);
    assert_eq!(lengths(4_000_000), [4_000_000]);
    assert_eq!(lengths(4_000_001), [4_000_000, 1]);
}

#[test]
fn an_empty_stream_has_a_chunk_only_where_something_comes_out() {
    assert_eq!(split(Accelerator::Aes256Ctr, 0), []);
    assert_eq!(
        split(Accelerator::Sha256, 0),
        [Chunk { input: 0..0, zeros: 0, output: 0..32, position: Position::Last }]
    );
}

#[test]
fn a_tail_is_filled_or_refused_as_the_interface_says() {
    let last = split(Accelerator::ReedSolomon, 40_961).pop().unwrap();
    assert_eq!((last.zeros, last.output), (40_959, 0..32_768));
    let error = chunks(&Accelerator::DynamicTimeWarping.interface(), 513).unwrap_err();
    assert_eq!(error.to_string(), "the input has 513 bytes; give a multiple of 512");
}

#[test]
fn the_longest_stream_is_split_and_a_longer_one_is_refused() {
    for accelerator in Accelerator::ALL {
        let interface = accelerator.interface();
        let block = u64::from(interface.spec().block_bytes);
        let mut all = chunks(&interface, MAX_STREAM_BYTES / block * block).unwrap();
        assert!(all.output_bytes() > 0 && all.next().is_some(), "{accelerator:?}");
        let error = chunks(&interface, MAX_STREAM_BYTES + 1).unwrap_err().to_string();
        assert!(error.contains("give at most 1099511627776"), "{error}");
    }
}
