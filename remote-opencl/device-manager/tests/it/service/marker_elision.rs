//! Marker elision: markers and barriers that are not enqueued to the vendor keep their meaning.

use crate::harness::{Client, Manager, after};
use crate::service::{INCREASE, PROFILING, Value, ints, scalar};
use fpga_protocol::v1;
use fpga_protocol::v1::command::Operation;

/// `CL_INVALID_WORK_GROUP_SIZE`, and the status of a command that depends on a failed one.
const WORK_GROUP_SIZE: i32 = -54;
const DEPENDENCY_FAILED: i32 = -14;

fn marker(client: &mut Client, queue: u64) -> v1::Command {
    client.command(queue, Operation::Marker(v1::Marker {}))
}

#[tokio::test]
async fn what_waits_for_a_marker_behind_a_kernel_waits_for_the_kernel_and_all_end_once() {
    let manager = Manager::start(&[]);
    let mut client = Client::connect(&manager).await;
    let (context, kernel) = client.context_with(INCREASE, "increase").await;
    let buffer = client.buffer(context, 4096).await;
    // With profiling, each command is enqueued to the vendor.
    for properties in [0, PROFILING] {
        let (first, second) =
            (client.queue(context, properties).await, client.queue(context, properties).await);
        for round in 1..=50 {
            let write = client.write(first, buffer, ints([round; 1024])).await;
            let args = vec![Value::Buffer(buffer), scalar(&1_i32.to_le_bytes())];
            let launch = client.launch(first, kernel, args, 1024);
            let (one, two) = (marker(&mut client, first), marker(&mut client, first));
            let events = [write.event, launch.event, one.event, two.event];
            let read = after(client.read(second, buffer, 4096), &[two.event]);
            let read_event = read.event;
            client.flush(vec![write, launch, one, two, read]).await;
            assert_eq!(client.completion(read_event).await.1, ints([round + 1; 1024]));
            for event in events {
                assert_eq!(client.status(event).await, 0);
            }
        }
    }
}

#[tokio::test]
async fn markers_behind_a_kernel_that_cannot_run_fail_with_it() {
    let manager = Manager::start(&[]);
    let mut client = Client::connect(&manager).await;
    let ready = client.ready(INCREASE, "increase", 4096).await;
    let args = vec![Value::Buffer(ready.buffer), scalar(&1_i32.to_le_bytes())];
    let mut launch = client.launch(ready.queue, ready.kernel, args, 1024);
    let Some(Operation::NdRange(range)) = &mut launch.operation else { panic!("a launch") };
    range.local = vec![3];
    let (one, two) = (marker(&mut client, ready.queue), marker(&mut client, ready.queue));
    let events = [launch.event, one.event, two.event];
    client.flush(vec![launch, one, two]).await;
    let mut statuses = Vec::new();
    for event in events {
        statuses.push(client.status(event).await);
    }
    assert_eq!(statuses, [WORK_GROUP_SIZE, DEPENDENCY_FAILED, DEPENDENCY_FAILED]);
}
