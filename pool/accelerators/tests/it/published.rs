//! Published test vectors, of the kernels and of the references that are our own.

use super::{Accelerator, Board, MAX_CHUNK_BYTES, reference};

fn bytes(hexadecimal: &str) -> Vec<u8> {
    let digits: Vec<u8> = hexadecimal.chars().filter_map(|c| c.to_digit(16)).map(|d| d as u8).collect();
    digits.chunks(2).map(|pair| pair[0] << 4 | pair[1]).collect()
}

fn run(accelerator: Accelerator, values: &[(&str, &[u8])], input: &[u8]) -> Vec<u8> {
    let board = Board::of_environment().unwrap();
    let arguments = accelerator.interface().arguments(values).unwrap();
    board.load(accelerator).unwrap().run(&arguments, input, MAX_CHUNK_BYTES).unwrap()
}

#[test]
fn aes_agrees_with_sp_800_38a() {
    let key = bytes("603deb1015ca71be2b73aef0857d7781 1f352c073b6108d72d9810a30914dff4");
    let counter = bytes("f0f1f2f3f4f5f6f7f8f9fafbfcfdfeff");
    let text = bytes(
        "6bc1bee22e409f96e93d7e117393172a ae2d8a571e03ac9c9eb76fac45af8e51
         30c81c46a35ce411e5fbc1191a0a52ef f69f2445df4f9b17ad2b417be66c3710",
    );
    let cipher_text = bytes(
        "601ec313775789a5b7a7f504bbf3d228 f443e3ca4d62b59aca84e990cacaf5c5
         2b0930daa23de94ce87017ba2d84988d dfc9c58db67aada613c2dd08457941a6",
    );
    let values = [("key", &key[..]), ("counter", &counter)];
    assert_eq!(run(Accelerator::Aes256Ctr, &values, &text), cipher_text);
    assert_eq!(run(Accelerator::Aes256Ctr, &values, &cipher_text), text);
}

#[test]
fn sha_agrees_with_fips_180() {
    for (input, digest) in [
        (vec![], "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"),
        (b"abc".to_vec(), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"),
        (vec![b'a'; 1_000_000], "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0"),
    ] {
        assert_eq!(run(Accelerator::Sha256, &[], &input), bytes(digest));
    }
}

#[test]
fn the_reference_of_options_has_the_prices_of_a_textbook() {
    // Hull, Options, Futures, and Other Derivatives: spot 42, strike 40, 10 % a year, volatility 20 %, six months.
    let (call, put) = reference::black_scholes::price(42.0, 40.0, 0.1, 0.2, 0.5);
    assert!((call - 4.76).abs() < 0.005 && (put - 0.81).abs() < 0.005, "{call} {put}");
}

#[test]
fn the_reference_of_fourier_transforms_is_the_definition() {
    let points: Vec<(f64, f64)> = (0..16).map(|n| (f64::from(n % 5), f64::from(n % 3) - 1.0)).collect();
    for (k, found) in reference::fourier::transform(&points).iter().enumerate() {
        let turn = -2.0 * std::f64::consts::PI * k as f64 / points.len() as f64;
        let sum = points.iter().enumerate().fold((0.0, 0.0), |sum, (n, point)| {
            let (sin, cos) = (turn * n as f64).sin_cos();
            (sum.0 + point.0 * cos - point.1 * sin, sum.1 + point.0 * sin + point.1 * cos)
        });
        assert!((sum.0 - found.0).hypot(sum.1 - found.1) < 1e-12, "{k}: {sum:?} {found:?}");
    }
}

#[test]
fn the_reference_of_time_warping_is_the_cheapest_of_all_paths() {
    /// The cost of the cheapest path from the first values to the last ones, of all that there are.
    fn cheapest(a: &[f64], b: &[f64]) -> f64 {
        let here = (a[0] - b[0]).abs();
        let rest = match (a.len(), b.len()) {
            (1, 1) => 0.0,
            (1, _) => cheapest(a, &b[1..]),
            (_, 1) => cheapest(&a[1..], b),
            _ => cheapest(&a[1..], b).min(cheapest(a, &b[1..])).min(cheapest(&a[1..], &b[1..])),
        };
        here + rest
    }
    let a = [0.1, 0.9, -0.4, 0.3, 0.8, -0.2];
    let b = [0.8, -0.5, 0.2, 0.2, 0.7, 0.0];
    assert!((reference::time_warping::distance(&a, &b) - cheapest(&a, &b)).abs() < 1e-12);
}
