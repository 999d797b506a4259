//! The accelerators that are shipped.

use crate::interface::{Interface, InterfaceSpec, Parameter, Tail};
use crate::{reed_solomon, value_at_risk};

/// An accelerator that is shipped as OpenCL C. All of them are pure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Accelerator {
    /// AES-256 in counter mode (FIPS 197, SP 800-38A); encryption and decryption are the same.
    Aes256Ctr,
    /// The SHA-256 digest of the stream (FIPS 180-4).
    Sha256,
    /// Erasure code: 4 shards from 10, by the coefficients of the job; see [`reed_solomon`].
    ReedSolomon,
    /// Fourier transforms of 1024 complex numbers, two `f32` each, without a factor.
    Fft,
    /// Distance of each series of 128 `f32` from a query, by dynamic time warping without a band.
    DynamicTimeWarping,
    /// Value of a portfolio of options in each scenario; see [`value_at_risk`].
    ValueAtRisk,
}

impl Accelerator {
    /// All of them.
    pub const ALL: [Self; 6] = [
        Self::Aes256Ctr,
        Self::Sha256,
        Self::ReedSolomon,
        Self::Fft,
        Self::DynamicTimeWarping,
        Self::ValueAtRisk,
    ];

    /// The accelerator of this name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|accelerator| accelerator.name() == name)
    }

    /// The name in the library, such as `aes-256-ctr`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Aes256Ctr => "aes-256-ctr",
            Self::Sha256 => "sha-256",
            Self::ReedSolomon => "reed-solomon",
            Self::Fft => "fft",
            Self::DynamicTimeWarping => "dynamic-time-warping",
            Self::ValueAtRisk => "value-at-risk",
        }
    }

    /// The program in OpenCL C.
    #[must_use]
    pub fn source(self) -> &'static str {
        match self {
            Self::Aes256Ctr => include_str!("../kernels/aes_256_ctr.cl"),
            Self::Sha256 => include_str!("../kernels/sha_256.cl"),
            Self::ReedSolomon => include_str!("../kernels/reed_solomon.cl"),
            Self::Fft => include_str!("../kernels/fft.cl"),
            Self::DynamicTimeWarping => include_str!("../kernels/dynamic_time_warping.cl"),
            Self::ValueAtRisk => include_str!("../kernels/value_at_risk.cl"),
        }
    }

    /// What the kernel takes and gives.
    #[must_use]
    #[expect(clippy::expect_used, reason = "a test makes every interface")]
    pub fn interface(self) -> Interface {
        Interface::new(self.spec()).expect("the values of shipped accelerators are possible")
    }

    fn spec(self) -> InterfaceSpec {
        match self {
            Self::Aes256Ctr => InterfaceSpec {
                tail: Tail::Partial,
                // The number of the blocks before.
                state_bytes: 8,
                parameters: parameters(&[("key", 32), ("counter", 16)]),
                work_group_size: 256,
                ..per_block("aes_256_ctr", 16, 16, 1)
            },
            Self::Sha256 => InterfaceSpec {
                tail: Tail::Partial,
                output_bytes_at_end: 32,
                // The number of the bytes before, and their hash.
                state_bytes: 8 + 32,
                work_items_per_block: None,
                ..per_block("sha_256", 64, 0, 1)
            },
            Self::ReedSolomon => InterfaceSpec {
                tail: Tail::ZeroFilled,
                parameters: parameters(&[("coefficients", reed_solomon::COEFFICIENT_BYTES)]),
                work_group_size: 256,
                ..per_block("reed_solomon", reed_solomon::BLOCK_BYTES, reed_solomon::OUTPUT_BYTES, 1024)
            },
            Self::Fft => InterfaceSpec {
                tail: Tail::ZeroFilled,
                work_group_size: 256,
                ..per_block("fft", 1024 * 8, 1024 * 8, 256)
            },
            Self::DynamicTimeWarping => InterfaceSpec {
                parameters: parameters(&[("query", 128 * 4)]),
                work_group_size: 16,
                ..per_block("dynamic_time_warping", 128 * 4, 4, 1)
            },
            Self::ValueAtRisk => InterfaceSpec {
                parameters: parameters(&[("portfolio", value_at_risk::PORTFOLIO_BYTES)]),
                work_group_size: 64,
                ..per_block("value_at_risk", value_at_risk::SCENARIO_BYTES, 4, 1)
            },
        }
    }
}

/// A pure interface without state and parameters that refuses a tail, in groups of one work-item.
fn per_block(kernel: &str, block_bytes: u32, output_bytes_per_block: u32, work_items: u32) -> InterfaceSpec {
    InterfaceSpec {
        kernel: kernel.to_owned(),
        block_bytes,
        output_bytes_per_block,
        output_bytes_at_end: 0,
        tail: Tail::Refused,
        state_bytes: 0,
        pure: true,
        parameters: Vec::new(),
        work_group_size: 1,
        work_items_per_block: Some(work_items),
    }
}

fn parameters(parameters: &[(&str, u32)]) -> Vec<Parameter> {
    parameters.iter().map(|&(name, bytes)| Parameter { name: name.to_owned(), bytes }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_accelerator_has_the_kernel_and_the_group_that_its_interface_says() {
        for accelerator in Accelerator::ALL {
            let spec = accelerator.interface().spec().clone();
            let source = accelerator.source();
            assert!(source.contains(&format!("void {}(", spec.kernel)), "{accelerator:?}");
            let group = match spec.work_group_size {
                1 => "reqd_work_group_size(1, 1, 1)".to_owned(),
                _ => "reqd_work_group_size(GROUP, 1, 1)".to_owned(),
            };
            assert!(source.contains(&group), "{accelerator:?}");
            let defined = format!("#define GROUP {}\n", spec.work_group_size);
            assert!(spec.work_group_size == 1 || source.contains(&defined), "{accelerator:?}");
        }
    }
}
