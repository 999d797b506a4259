//! The jobs of the demo: who wants what, from where, and when.

use crate::testbed::pool::TENANTS;
use fpga_acc::{Goal, GroupRequest, Request};
use fpga_accelerators::Accelerator;
use fpga_accelerators::value_at_risk::{OptionPosition, Scenario, TooManyOptions, portfolio_bytes};
use std::time::Duration;

/// A node that has no board.
pub(super) const WITHOUT_BOARD: &str = "office";

/// A job of the demo.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct DemoJob {
    pub tenant: &'static str,
    /// The node of the job's process.
    pub home: &'static str,
    pub accelerator: Accelerator,
    pub megabytes: u32,
    pub form: Form,
    /// Time from the start of the demo to the job's arrival.
    pub comes_after: Duration,
}

/// How a job takes its input.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Form {
    /// As one stream.
    Stream,
    /// As so many independent actions of a group, which are to be done within this time.
    Actions { number: u32, within: Duration },
}

/// The jobs. A tenant has one job of each accelerator, by which the picture tells them apart.
pub(super) const JOBS: [DemoJob; 6] = [
    job(0, "node-0", Accelerator::Aes256Ctr, 24, 0),
    job(0, "node-1", Accelerator::ValueAtRisk, 8, 0),
    job(1, WITHOUT_BOARD, Accelerator::Sha256, 16, 500),
    job(1, "node-1", Accelerator::Aes256Ctr, 8, 1_000),
    job(0, WITHOUT_BOARD, Accelerator::Sha256, 32, 1_500),
    actions(120, 20, job(1, "node-0", Accelerator::ValueAtRisk, 12, 2_000)),
];

/// Key and counter of the jobs with AES.
pub(super) const KEY: [u8; 32] = [0x5a; 32];
pub(super) const COUNTER: [u8; 16] = [0x33; 16];

const fn job(
    tenant: usize,
    home: &'static str,
    accelerator: Accelerator,
    megabytes: u32,
    comes_after_ms: u64,
) -> DemoJob {
    let comes_after = Duration::from_millis(comes_after_ms);
    DemoJob { tenant: TENANTS[tenant], home, accelerator, megabytes, form: Form::Stream, comes_after }
}

const fn actions(number: u32, within_s: u64, job: DemoJob) -> DemoJob {
    DemoJob { form: Form::Actions { number, within: Duration::from_secs(within_s) }, ..job }
}

impl DemoJob {
    /// Bytes of the input.
    pub fn bytes(&self) -> u64 {
        u64::from(self.megabytes) * 1_000_000
    }

    /// The input: numbers that differ from job to job.
    pub fn input(&self) -> Vec<u8> {
        let seed = self.megabytes;
        match self.accelerator {
            Accelerator::ValueAtRisk => {
                let scenarios = 0..self.megabytes * 1_000_000 / 16;
                scenarios.flat_map(|number| scenario(number).to_bytes()).collect()
            }
            _ => {
                let words = 0..self.megabytes * 250_000;
                let word = |at: u32| (at ^ seed).wrapping_mul(2_654_435_761).rotate_left(at % 31);
                words.flat_map(|at| word(at).to_le_bytes()).collect()
            }
        }
    }

    /// What the library is asked for, for one stream.
    pub fn request(&self) -> Result<Request, TooManyOptions> {
        let request = Request::new(self.accelerator.name(), self.bytes());
        Ok(self
            .arguments()?
            .into_iter()
            .fold(request, |request, (name, value)| request.argument(name, &value)))
    }

    /// What the library is asked for, for actions; the boards may have one slot each.
    pub fn group_request(&self, goal: Goal) -> Result<GroupRequest, TooManyOptions> {
        let request = GroupRequest::new(self.accelerator.name(), goal, 0..=2);
        Ok(self
            .arguments()?
            .into_iter()
            .fold(request, |request, (name, value)| request.argument(name, &value)))
    }

    fn arguments(&self) -> Result<Vec<(&'static str, Vec<u8>)>, TooManyOptions> {
        Ok(match self.accelerator {
            Accelerator::Aes256Ctr => vec![("key", KEY.to_vec()), ("counter", COUNTER.to_vec())],
            Accelerator::ValueAtRisk => vec![("portfolio", portfolio_bytes(&portfolio())?)],
            _ => Vec::new(),
        })
    }
}

/// The options whose value at risk is asked for.
pub(super) fn portfolio() -> Vec<OptionPosition> {
    let option = |number: u8| {
        let number = f32::from(number);
        OptionPosition {
            strike: 80.0 + 2.0 * number,
            years: 0.5 + number / 16.0,
            volatility: 0.2 + number / 400.0,
            calls: number - 8.0,
            puts: 4.0 - number / 2.0,
        }
    };
    (0..20).map(option).collect()
}

#[expect(clippy::cast_precision_loss, reason = "remainders of a hundred are exact")]
fn scenario(number: u32) -> Scenario {
    let of_hundred = |factor: u32| (number.wrapping_mul(factor) % 100) as f32 / 100.0;
    Scenario {
        spot: 70.0 + 60.0 * of_hundred(7),
        volatility_shift: 0.1 * of_hundred(13),
        rate: 0.05 * of_hundred(29),
        years_passed: 0.25 * of_hundred(3),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn a_picture_can_tell_the_jobs_apart_and_some_come_from_a_node_without_a_board() {
        let names: BTreeSet<_> = JOBS.iter().map(|job| (job.tenant, job.accelerator)).collect();
        assert_eq!(names.len(), JOBS.len());
        assert!(JOBS.iter().any(|job| job.home == WITHOUT_BOARD));
        assert!(JOBS.iter().any(|job| job.form != Form::Stream), "no job has a goal");
        for job in JOBS.map(|job| DemoJob { megabytes: 1, ..job }) {
            assert_eq!(job.input().len() as u64, job.bytes(), "{job:?}");
            job.request().unwrap();
        }
    }
}
