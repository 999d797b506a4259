//! The kind of a task as a number, for policies that use the run time of earlier tasks of the kind (T-1). The
//! kind covers the kernels, by program and name, and the size of their ranges, but not the arguments.

use fpga_board::dispatch::Kind;
use fpga_core::bitstream::Digest;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};

/// The kind of a kernel of a program.
#[must_use]
pub fn of_kernel(program: &[Digest], name: &str) -> Kind {
    let mut hasher = DefaultHasher::new();
    program.hash(&mut hasher);
    name.hash(&mut hasher);
    Kind(hasher.finish())
}

/// The kind of a kernel's launch over a range. Sizes between the same two powers of two count as equal.
#[must_use]
pub fn of_launch(kernel: Kind, global: &[usize]) -> Kind {
    let items = global.iter().fold(1_usize, |items, size| items.saturating_mul(*size));
    then(kernel, Kind(u64::from(items.checked_ilog2().unwrap_or(0))))
}

/// The kind of `first` followed by `second`.
#[must_use]
pub fn then(first: Kind, second: Kind) -> Kind {
    // Any odd multiplier with bits spread over the word mixes well enough.
    Kind((first.0.rotate_left(5) ^ second.0).wrapping_mul(0x9E37_79B9_7F4A_7C15))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_differ_by_program_name_size_and_order() {
        let digest = |n| [Digest::from_bytes([n; 32])];
        let (a, b) = (of_kernel(&digest(1), "a"), of_kernel(&digest(1), "b"));
        assert_ne!(a, b);
        assert_ne!(a, of_kernel(&digest(2), "a"));
        assert_eq!(of_launch(a, &[1024]), of_launch(a, &[32, 33]));
        assert_ne!(of_launch(a, &[1024]), of_launch(a, &[4096]));
        assert_ne!(then(a, b), then(b, a));
    }
}
