//! Whether device managers keep the times of their models.

use super::of_managers;
use anyhow::Result;
use fpga_tests::testbed::cluster::Cluster;
use std::fmt;
use std::ops::{AddAssign, Sub};

/// Part of late commands above which a run shows nothing: the machine is too slow for it.
const VOID: f64 = 0.01;

/// Commands that ended later than the model has it.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Late {
    late: f64,
    all: f64,
    /// Launches of kernels without a modelled time.
    unknown: f64,
}

impl Late {
    /// The counts of all device managers.
    pub async fn read(cluster: &Cluster) -> Result<Self> {
        Self::of(async |metric| of_managers(cluster, metric).await).await
    }

    /// The counts by the sums of metrics over all device managers, which are named without their prefix.
    pub async fn of(sum: impl AsyncFn(&str) -> Result<f64>) -> Result<Self> {
        Ok(Self {
            late: sum("modelled_commands_late_total").await?,
            all: sum("modelled_commands_total").await?,
            unknown: sum("modelled_kernels_unknown_total").await?,
        })
    }

    /// Counts with a launch of a kernel without a modelled time.
    #[cfg(test)]
    pub fn with_unknown_kernel(self) -> Self {
        Self { unknown: self.unknown + 1.0, ..self }
    }

    /// Whether a run shows nothing, since the machine is too slow for the model.
    pub fn is_void(self) -> bool {
        self.late > VOID * self.all || self.unknown > 0.0
    }
}

impl fmt::Display for Late {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { late, all, unknown } = self;
        write!(f, "{late} of {all} commands ended later than modelled, {unknown} kernels without a model")
    }
}

impl Sub for Late {
    type Output = Self;

    fn sub(self, before: Self) -> Self {
        Self {
            late: self.late - before.late,
            all: self.all - before.all,
            unknown: self.unknown - before.unknown,
        }
    }
}

impl AddAssign for Late {
    fn add_assign(&mut self, other: Self) {
        self.late += other.late;
        self.all += other.all;
        self.unknown += other.unknown;
    }
}
