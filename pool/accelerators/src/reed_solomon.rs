//! Coefficients for [`Accelerator::ReedSolomon`](crate::Accelerator::ReedSolomon).
//!
//! The code has 10 shards of data and 4 of parity, and any 10 of the 14 are enough. It is the one of the usual libraries
//! (Backblaze's, klauspost's, `reed-solomon-erasure`): a Vandermonde matrix times the inverse of its upper square, in GF(2^8)
//! modulo x^8 + x^4 + x^3 + x^2 + 1. So the data is part of the code as it is.

use std::array::from_fn;

/// Number of shards that data is split into, and that are needed to have it back.
pub const DATA_SHARDS: usize = 10;
/// Number of shards that are made of the data.
pub const PARITY_SHARDS: usize = 4;
/// Number of all shards. Those of the data come first.
pub const SHARDS: usize = DATA_SHARDS + PARITY_SHARDS;
/// Bytes of a shard in a block.
pub const SHARD_BYTES: u32 = 4096;
/// Bytes of a block of the input: 10 shards, one after the other.
pub const BLOCK_BYTES: u32 = 10 * SHARD_BYTES;
/// Bytes of output for a block: 4 shards, one after the other.
pub const OUTPUT_BYTES: u32 = 4 * SHARD_BYTES;
/// Bytes of the parameter `coefficients`.
pub const COEFFICIENT_BYTES: u32 = 4 * 10;

/// A row of a matrix, with a coefficient for each shard of the input.
type Row = [u8; DATA_SHARDS];
type Square = [Row; DATA_SHARDS];

/// Four linear combinations of ten shards: the argument `coefficients`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Coefficients([Row; PARITY_SHARDS]);

/// The reason why shards can't be rebuilt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum InvalidShards {
    /// There is no such shard.
    #[error("there is no shard {0}; write 0 to 13")]
    Unknown(usize),
    /// A shard that is there is named twice.
    #[error("shard {0} is given twice; give ten different shards")]
    Twice(usize),
}

impl Coefficients {
    /// Make the four shards of parity out of the data.
    #[must_use]
    pub fn of_parity() -> Self {
        let generator = generator();
        Self(from_fn(|row| generator[DATA_SHARDS + row]))
    }

    /// Make the shards `wanted` out of the shards `given`, in these orders. Who wants fewer names some twice.
    ///
    /// # Errors
    /// A number is none of a shard, or two of the given shards are the same.
    pub fn rebuilding(
        wanted: [usize; PARITY_SHARDS],
        given: [usize; DATA_SHARDS],
    ) -> Result<Self, InvalidShards> {
        if let Some(&unknown) = wanted.iter().chain(&given).find(|shard| **shard >= SHARDS) {
            return Err(InvalidShards::Unknown(unknown));
        }
        for (index, shard) in given.iter().enumerate() {
            if given[..index].contains(shard) {
                return Err(InvalidShards::Twice(*shard));
            }
        }
        let generator = generator();
        let data_of_given = inverse(given.map(|shard| generator[shard]));
        Ok(Self(wanted.map(|shard| row_times(&generator[shard], &data_of_given))))
    }

    /// The bytes of the argument.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        self.0.concat()
    }
}

/// Each shard as a combination of the shards of the data.
fn generator() -> [Row; SHARDS] {
    let mut point = 0;
    let vandermonde: [Row; SHARDS] = from_fn(|_| {
        let row = powers(point);
        point += 1;
        row
    });
    let upper_inverse = inverse(from_fn(|row| vandermonde[row]));
    vandermonde.map(|row| row_times(&row, &upper_inverse))
}

/// The powers of `base` from 0 on.
fn powers(base: u8) -> Row {
    let mut power = 1;
    from_fn(|_| {
        let next = product(power, base);
        std::mem::replace(&mut power, next)
    })
}

/// The product of two numbers of the field.
pub(crate) fn product(a: u8, b: u8) -> u8 {
    let mut multiple = a;
    let mut sum = 0;
    for bit in 0..8 {
        if (b >> bit) & 1 == 1 {
            sum ^= multiple;
        }
        let carry = if multiple & 0x80 == 0 { 0 } else { 0x1d };
        multiple = (multiple << 1) ^ carry;
    }
    sum
}

/// 1 divided by `a`: its 254th power, since the 255th of all but 0 is 1.
fn reciprocal(a: u8) -> u8 {
    (0..254).fold(1, |power, _| product(power, a))
}

fn row_times(row: &Row, matrix: &Square) -> Row {
    from_fn(|column| (0..DATA_SHARDS).fold(0, |sum, i| sum ^ product(row[i], matrix[i][column])))
}

/// The inverse of a matrix by Gauss and Jordan. It must have one, as any ten different rows of a Vandermonde matrix do, also
/// after all were multiplied by the same invertible matrix.
fn inverse(mut matrix: Square) -> Square {
    let mut result: Square = from_fn(|row| from_fn(|column| u8::from(row == column)));
    for column in 0..DATA_SHARDS {
        if let Some(pivot) = (column..DATA_SHARDS).find(|row| matrix[*row][column] != 0) {
            matrix.swap(column, pivot);
            result.swap(column, pivot);
        }
        let factor = reciprocal(matrix[column][column]);
        matrix[column] = matrix[column].map(|value| product(value, factor));
        result[column] = result[column].map(|value| product(value, factor));
        for row in (0..DATA_SHARDS).filter(|row| *row != column) {
            let factor = matrix[row][column];
            matrix[row] = minus(matrix[row], factor, matrix[column]);
            result[row] = minus(result[row], factor, result[column]);
        }
    }
    result
}

/// `row` minus `factor` times `other`.
fn minus(row: Row, factor: u8, other: Row) -> Row {
    from_fn(|column| row[column] ^ product(factor, other[column]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_data_is_part_of_the_code() {
        for (shard, row) in generator().iter().take(DATA_SHARDS).enumerate() {
            let unit: Row = from_fn(|column| u8::from(column == shard));
            assert_eq!(*row, unit);
        }
    }

    #[test]
    fn every_number_but_zero_has_a_reciprocal() {
        assert!((1..=255).all(|a| product(a, reciprocal(a)) == 1));
    }

    #[test]
    fn parity_is_what_the_data_rebuilds() {
        let data = from_fn(|shard| shard);
        assert_eq!(Coefficients::rebuilding([10, 11, 12, 13], data), Ok(Coefficients::of_parity()));
    }

    #[test]
    fn shards_that_are_none_or_the_same_are_refused() {
        let data: [usize; DATA_SHARDS] = from_fn(|shard| shard);
        let error = Coefficients::rebuilding([14; 4], data).unwrap_err().to_string();
        assert_eq!(error, "there is no shard 14; write 0 to 13");
        let error = Coefficients::rebuilding([0; 4], [3; DATA_SHARDS]).unwrap_err().to_string();
        assert_eq!(error, "shard 3 is given twice; give ten different shards");
    }
}
