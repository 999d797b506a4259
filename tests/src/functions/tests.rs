//! Tests the references with known results, and the comparison with outputs that must fail.

use super::netpbm::Picture;
use super::*;

const PORTRAIT: &[u8] = include_bytes!("../../functions/data/astronaut.png");

fn input(function: Function) -> Vec<u8> {
    function.make_input(33, 7)
}

#[test]
fn every_reference_verifies_itself() {
    for function in Function::ALL {
        let input = input(function);
        let output = function.reference(&input).unwrap();
        assert_eq!(function.verify(&input, &output), Ok(()));
    }
}

#[test]
fn a_changed_or_shortened_output_does_not_verify() {
    for function in Function::ALL {
        let input = input(function);
        let good = function.reference(&input).unwrap();
        let mut changed = good.clone();
        let last = changed.len() - 1;
        changed[last] ^= 0x80;
        assert!(matches!(function.verify(&input, &changed), Err(FunctionError::Value { .. })), "{function}");
        assert!(
            matches!(function.verify(&input, &good[1..]), Err(FunctionError::Length { .. })),
            "{function}"
        );
    }
}

#[test]
fn a_nan_and_a_zeroed_output_do_not_verify() {
    for function in [Function::Matmul, Function::BlackScholes, Function::Cnn] {
        let input = input(function);
        let good = function.reference(&input).unwrap();
        assert!(function.verify(&input, &vec![0; good.len()]).is_err(), "{function}");
        let mut nan = good;
        nan[..4].copy_from_slice(&f32::NAN.to_le_bytes());
        assert!(function.verify(&input, &nan).is_err(), "{function}");
    }
}

#[test]
fn a_malformed_input_is_an_error() {
    for function in Function::ALL {
        let good = input(function);
        for bad in [&[] as &[u8], &[0; 3], &[0; 8], &[0xff; 64], &good[..good.len() - 1]] {
            assert!(matches!(function.reference(bad), Err(FunctionError::Input { .. })), "{function}");
        }
    }
}

#[test]
fn sha256_gives_the_digest_of_the_standard_for_abc() {
    let mut input = vec![3, 0, 0, 0, 1, 0, 0, 0];
    input.extend(b"abc");
    let output = Function::Sha256.reference(&input).unwrap();
    assert_eq!(output[..8], [0xba, 0x78, 0x16, 0xbf, 0x8f, 0x01, 0xcf, 0xea]);
    assert_eq!(output.len(), 32);
}

#[test]
fn matmul_multiplies_rows_by_columns() {
    let mut input = vec![2, 0, 0, 0];
    for value in [1.0_f32, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0] {
        input.extend(value.to_le_bytes());
    }
    let output = Function::Matmul.reference(&input).unwrap();
    assert_eq!(floats(&output).collect::<Vec<_>>(), [19.0, 22.0, 43.0, 50.0]);
}

#[test]
fn blackscholes_gives_the_textbook_prices() {
    // Hull's example: spot 42, strike 40, rate 10 %, volatility 20 %, half a year. Call 4.76, put 0.81.
    let mut input = vec![1, 0, 0, 0];
    for value in [42.0_f32, 40.0, 0.1, 0.2, 0.5] {
        input.extend(value.to_le_bytes());
    }
    let output = Function::BlackScholes.reference(&input).unwrap();
    let prices: Vec<f32> = floats(&output).collect();
    assert!((prices[0] - 4.76).abs() < 0.005 && (prices[1] - 0.81).abs() < 0.005, "{prices:?}");
}

#[test]
fn bfs_counts_the_edges_of_the_shortest_way_and_knows_what_it_cannot_reach() {
    // 0 → 1 → 2, 0 → 2, 3 → 0.
    let words = [4, 4, 0, 0, 2, 3, 3, 4, 1, 2, 2, 0];
    let input: Vec<u8> = words.into_iter().flat_map(u32::to_le_bytes).collect();
    let output = Function::Bfs.reference(&input).unwrap();
    assert_eq!(output, [0, 1, 1, bfs::UNREACHED].map(u32::to_le_bytes).concat());
}

#[test]
fn a_generated_graph_has_many_levels_and_nodes_beyond_reach() {
    let output = Function::Bfs.reference(&Function::Bfs.make_input(1_000, 1)).unwrap();
    let levels: Vec<u32> =
        output.chunks_exact(4).map(|b| u32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect();
    let deepest = levels.iter().filter(|level| **level != bfs::UNREACHED).max().unwrap();
    assert!((10..100).contains(deepest), "{deepest}");
    assert!(levels.contains(&bfs::UNREACHED));
}

#[test]
fn a_network_tells_pictures_apart_and_takes_its_weights_from_the_seed() {
    let input = Function::Cnn.make_input(67, 1);
    let scores: Vec<f32> = floats(&Function::Cnn.reference(&input).unwrap()).collect();
    assert_eq!(scores.len(), cnn::CLASSES);
    let large = scores.iter().filter(|score| score.abs() > 0.1).count();
    assert!(large > 500 && scores.iter().all(|score| score.abs() < 100.0), "{scores:?}");
    let (mut other_weights, mut other_picture) = (input.clone(), input.clone());
    other_weights[8] ^= 1;
    other_picture[12..].rotate_left(4 * 67 * 67);
    let output = Function::Cnn.reference(&input).unwrap();
    for other in [other_weights, other_picture] {
        assert!(matches!(Function::Cnn.verify(&other, &output), Err(FunctionError::Value { .. })));
    }
}

#[test]
fn sobel_finds_the_edge_between_two_halves_and_nothing_else() {
    let pixels = [0, 0, 20, 20].repeat(3);
    let output = Function::Sobel.reference(&Picture::new(4, 3, 1, pixels).unwrap().to_netpbm()).unwrap();
    let edges = Picture::from_netpbm(&output).unwrap();
    for y in 0..3 {
        let row: Vec<i32> = (0..4).map(|x| edges.gray_at(x, y)).collect();
        assert_eq!(row, [0, 80, 80, 0]);
    }
}

#[test]
fn the_portrait_goes_through_netpbm_and_png_unchanged() {
    let portrait = Picture::from_png(PORTRAIT).unwrap();
    assert_eq!((portrait.width(), portrait.height()), (512, 512));
    assert_eq!(Picture::from_netpbm(&portrait.to_netpbm()).unwrap(), portrait);
    assert_eq!(Picture::from_png(&portrait.to_png().unwrap()).unwrap(), portrait);
}

#[test]
fn a_netpbm_header_may_hold_comments_and_must_be_whole() {
    assert!(Picture::from_netpbm(b"P5\n# a comment\n1 1\n255\nx").is_ok());
    for bad in [
        b"P5" as &[u8],
        b"P5 1 1",
        b"P5 1 1 255",
        b"P5 1 1 65535 x",
        b"P5 0 1 255 ",
        b"P4 1 1 255 x",
        b"P5 1 1 255 xy",
    ] {
        assert!(Picture::from_netpbm(bad).is_err());
    }
}
