//! Accelerators that are not shipped: what they take and give is what the pool says.

use crate::limit;
use crate::managers::OWN;
use crate::managers::bytes;
use crate::real::RealBed;
use fpga_acc::{Goal, GroupRequest, Request, wait};

#[test]
fn jobs_and_groups_run_an_accelerator_of_the_library_by_the_interface_that_the_broker_tells() {
    let bed = RealBed::new(&[], &[1]);
    let pool = super::pool(&bed);
    let input = bytes(5_000_001);
    let inverted = |input: &[u8]| -> Vec<u8> { input.iter().map(|byte| !byte).collect() };
    let mut job = wait(pool.open(Request::new(OWN, input.len() as u64)), limit()).unwrap();
    assert_eq!(job.interface().spec().kernel, "invert");
    let mut output = Vec::new();
    job.stream_blocking(&input[..], &mut output, limit()).unwrap();
    assert!(output == inverted(&input), "the output is not the inverted input");
    wait(job.close(), limit()).unwrap();
    let goal = Goal::Throughput { actions_per_hour: 3_600 };
    let group = pool.open_group(GroupRequest::new(OWN, goal, 0..=1)).unwrap();
    let action = wait(group.submit(input[..1_000].to_vec()), limit()).unwrap();
    assert_eq!(wait(action, limit()).unwrap(), inverted(&input[..1_000]));
    let with_key = pool.open(Request::new(OWN, 1).argument("key", &[1]));
    let superfluous = wait(with_key, limit()).err().unwrap().to_string();
    assert!(superfluous.contains("no argument of the accelerator"), "{superfluous}");
}
