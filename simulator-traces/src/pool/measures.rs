//! The paper's measures (P-6), and their confidence intervals over seeds.

use super::engine::Record;
use fpga_cluster::pool::Place;

/// Measures of one run.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Measures {
    /// ACT: mean time from arrival to end, in seconds.
    pub act: f64,
    /// TCT: 95th percentile of the time from arrival to end, in seconds.
    pub tct: f64,
    /// SAR: mean over the jobs of the share of their time in which they ran.
    pub sar: f64,
    /// DLR: share of all input bytes that were processed at home.
    pub dlr: f64,
}

/// A mean over seeds, and half of its 95 % confidence interval.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Estimate {
    /// The mean.
    pub mean: f64,
    /// Half of the interval; `None` for fewer than two values.
    pub half: Option<f64>,
}

impl Measures {
    /// The measures of a run's jobs.
    #[must_use]
    pub fn of(records: &[Record]) -> Self {
        let completion = |record: &Record| (record.ended - record.job.at) as f64 / 1e9;
        let mut times: Vec<f64> = records.iter().map(completion).collect();
        times.sort_unstable_by(f64::total_cmp);
        let count = (times.len() as f64).max(1.0);
        let share = |record: &Record| {
            let whole = record.ended - record.job.at;
            if whole == 0 { 1.0 } else { (record.ended - record.started) as f64 / whole as f64 }
        };
        let bytes = |place: Option<Place>| {
            let there = records.iter().filter(|record| place.is_none_or(|place| place == record.place));
            there.map(|record| record.job.size.0 as f64).sum::<f64>()
        };
        Self {
            act: times.iter().sum::<f64>() / count,
            // Nearest-rank percentile: the least value that 95 % of the values do not exceed.
            tct: times.get((times.len() * 95).div_ceil(100).saturating_sub(1)).copied().unwrap_or(0.0),
            sar: records.iter().map(share).sum::<f64>() / count,
            dlr: bytes(Some(Place::Local)) / bytes(None).max(1.0),
        }
    }
}

/// Two-sided 95 % quantiles of Student's t for 1 to 30 degrees of freedom.
const STUDENT: [f64; 30] = [
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131,
    2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042,
];

impl Estimate {
    /// The estimate from one value per seed.
    #[must_use]
    pub fn of(values: &[f64]) -> Self {
        let count = values.len() as f64;
        let mean = values.iter().sum::<f64>() / count.max(1.0);
        let half = (values.len() > 1).then(|| {
            let squares: f64 = values.iter().map(|value| (value - mean) * (value - mean)).sum();
            let student = STUDENT.get(values.len() - 2).copied().unwrap_or(1.96);
            student * libm::sqrt(squares / (count - 1.0) / count)
        });
        Self { mean, half }
    }

    /// The estimate as text with `digits` decimals.
    #[must_use]
    pub fn text(&self, digits: usize) -> String {
        match self.half {
            Some(half) => format!("{:.digits$} ± {half:.digits$}", self.mean),
            None => format!("{:.digits$}", self.mean),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::engine::Arrival;
    use super::*;
    use fpga_cluster::pool::{Bytes, NodeIndex, TenantId};

    #[test]
    fn measures_of_two_jobs_by_hand() {
        let record = |at: u64, started: u64, ended: u64, size: u64, place: Place| Record {
            job: Arrival { at, tenant: TenantId::default(), home: NodeIndex(0), size: Bytes(size) },
            started,
            ended,
            place,
        };
        let second = 1_000_000_000;
        let measures = Measures::of(&[
            record(0, 0, 2 * second, 300, Place::Local),
            record(second, 4 * second, 5 * second, 100, Place::Remote),
        ]);
        // Completion times are 2 s and 4 s; the jobs ran for 2/2 and 1/4 of them; 300 of 400 bytes were processed at
        // home.
        assert_eq!(measures, Measures { act: 3.0, tct: 4.0, sar: 0.625, dlr: 0.75 });
    }

    #[test]
    fn the_interval_is_students() {
        // Mean 2, standard deviation 1, t(2) = 4.303: half the interval is 4.303 / √3.
        let estimate = Estimate::of(&[1.0, 2.0, 3.0]);
        assert_eq!(estimate.mean, 2.0);
        assert!((estimate.half.unwrap() - 4.303 / 3_f64.sqrt()).abs() < 1e-12);
        assert_eq!(Estimate::of(&[5.0]), Estimate { mean: 5.0, half: None });
        assert_eq!(estimate.text(2), "2.00 ± 2.48");
    }
}
