//! Reed-Solomon: four linear combinations of ten shards.

use crate::reed_solomon::{BLOCK_BYTES, DATA_SHARDS, SHARD_BYTES, product};

/// All products of a coefficient, by the other factor.
type Products = [u8; 256];

/// The arguments are four rows of ten coefficients.
pub(super) fn compute(input: &[u8], coefficients: &[u8]) -> Vec<u8> {
    let tables: Vec<Products> = coefficients.iter().copied().map(products_of).collect();
    let mut output = Vec::new();
    for block in input.chunks_exact(BLOCK_BYTES as usize) {
        for row in tables.chunks_exact(DATA_SHARDS) {
            let mut sum = vec![0; SHARD_BYTES as usize];
            for (shard, products) in block.chunks_exact(SHARD_BYTES as usize).zip(row) {
                sum.iter_mut().zip(shard).for_each(|(sum, byte)| *sum ^= products[usize::from(*byte)]);
            }
            output.extend(sum);
        }
    }
    output
}

fn products_of(coefficient: u8) -> Products {
    let mut products = [0; 256];
    for (factor, place) in (0..=u8::MAX).zip(&mut products) {
        *place = product(coefficient, factor);
    }
    products
}
