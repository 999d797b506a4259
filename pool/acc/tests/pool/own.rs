//! Accelerators that are not shipped: what they take and give is what the pool says.

use crate::common::managers::OWN;
use crate::common::real::RealBed;
use crate::common::{DEADLINE, bytes};
use fpga_acc::{Goal, GroupRequest, Request, wait};
use std::time::Duration;

const LIMIT: Option<Duration> = Some(DEADLINE);

#[test]
fn jobs_and_groups_run_an_accelerator_of_the_library_by_the_interface_that_the_broker_tells() {
    let bed = RealBed::new(&[], &[1]);
    let pool = crate::pool(&bed);
    let input = bytes(5_000_001);
    let inverted = |input: &[u8]| -> Vec<u8> { input.iter().map(|byte| !byte).collect() };
    let mut job = wait(pool.open(Request::new(OWN, input.len() as u64)), LIMIT).unwrap();
    assert_eq!(job.interface().spec().kernel, "invert");
    let mut output = Vec::new();
    job.stream_blocking(&input[..], &mut output, LIMIT).unwrap();
    assert!(output == inverted(&input), "the output is not the inverted input");
    wait(job.close(), LIMIT).unwrap();
    let goal = Goal::Throughput { actions_per_hour: 3_600 };
    let group = pool.open_group(GroupRequest::new(OWN, goal, 0..=1)).unwrap();
    let action = wait(group.submit(input[..1_000].to_vec()), LIMIT).unwrap();
    assert_eq!(wait(action, LIMIT).unwrap(), inverted(&input[..1_000]));
    let with_key = pool.open(Request::new(OWN, 1).argument("key", &[1]));
    let superfluous = wait(with_key, LIMIT).err().unwrap().to_string();
    assert!(superfluous.contains("no argument of the accelerator"), "{superfluous}");
}
