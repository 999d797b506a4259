//! Commands whose events nobody has: the client is told of their success with a later command, and of a failure by
//! itself.

use crate::harness::{Client, Manager, Ready, after};
use crate::service::{INCREASE, PROFILING, Value, ints, scalar};
use fpga_protocol::v1;
use fpga_protocol::v1::command::Operation;

/// `CL_INVALID_WORK_GROUP_SIZE`, and the status of a command that depends on a failed one.
const WORK_GROUP_SIZE: i32 = -54;
const DEPENDENCY_FAILED: i32 = -14;

fn increase(client: &mut Client, ready: &Ready) -> v1::Command {
    let args = vec![Value::Buffer(ready.buffer), scalar(&1_i32.to_le_bytes())];
    client.launch(ready.queue, ready.kernel, args, 1024)
}

fn unwatched(command: v1::Command) -> v1::Command {
    v1::Command { unwatched: true, ..command }
}

/// A launch that the vendor refuses.
fn refused(mut command: v1::Command) -> v1::Command {
    let Some(Operation::NdRange(range)) = &mut command.operation else { panic!("a launch") };
    range.local = vec![3];
    command
}

#[tokio::test]
async fn the_success_of_unwatched_commands_is_told_with_the_next_command() {
    let manager = Manager::start(&[]);
    let mut client = Client::connect(&manager).await;
    assert!(client.welcome.unwatched_commands);
    let ready = client.ready(INCREASE, "increase", 4096).await;
    let write = client.write(ready.queue, ready.buffer, ints([0; 1024])).await;
    assert_eq!(client.run(write).await, 0);
    for round in 1..=20 {
        let mut commands: Vec<_> = (0..5).map(|_| increase(&mut client, &ready)).map(unwatched).collect();
        let events: Vec<u64> = commands.iter().map(|command| command.event).collect();
        let read = client.read(ready.queue, ready.buffer, 4096);
        let read_event = read.event;
        commands.push(read);
        client.flush(commands).await;
        let (completion, bytes) = client.completion(read_event).await;
        assert_eq!((completion.status, completion.earlier), (0, events.clone()));
        assert_eq!(bytes, ints([5 * round; 1024]));
        assert!(events.iter().all(|event| !client.has_completed(*event)));
    }
}

#[tokio::test]
async fn the_last_unwatched_command_of_a_flush_is_told_by_itself() {
    let manager = Manager::start(&[]);
    let mut client = Client::connect(&manager).await;
    let ready = client.ready(INCREASE, "increase", 4096).await;
    let (one, two) = (unwatched(increase(&mut client, &ready)), unwatched(increase(&mut client, &ready)));
    let (first, last) = (one.event, two.event);
    client.flush(vec![one, two]).await;
    let completion = client.completion(last).await.0;
    assert_eq!((completion.status, completion.earlier), (0, vec![first]));
    // The manager has forgotten the events without a release, so that they may be used again.
    for event in [first, last] {
        let again = v1::Command { event, ..increase(&mut client, &ready) };
        assert_eq!(client.run(again).await, 0);
    }
}

#[tokio::test]
async fn each_command_of_a_queue_with_profiling_or_without_an_order_is_told_by_itself() {
    const OUT_OF_ORDER: u64 = 1;
    let manager = Manager::start(&[]);
    let mut client = Client::connect(&manager).await;
    let (context, kernel) = client.context_with(INCREASE, "increase").await;
    let buffer = client.buffer(context, 4096).await;
    for properties in [PROFILING, OUT_OF_ORDER] {
        let ready = Ready { queue: client.queue(context, properties).await, kernel, buffer };
        let commands: Vec<_> = (0..3).map(|_| unwatched(increase(&mut client, &ready))).collect();
        let events: Vec<u64> = commands.iter().map(|command| command.event).collect();
        client.flush(commands).await;
        for event in events {
            let completion = client.completion(event).await.0;
            assert_eq!((completion.status, completion.earlier), (0, Vec::new()));
        }
    }
}

#[tokio::test]
async fn commands_of_two_queues_are_told_with_those_of_their_own_queue() {
    let manager = Manager::start(&[]);
    let mut client = Client::connect(&manager).await;
    let (context, kernel) = client.context_with(INCREASE, "increase").await;
    let mut readies = Vec::new();
    for _ in 0..2 {
        let (queue, buffer) = (client.queue(context, 0).await, client.buffer(context, 4096).await);
        readies.push(Ready { queue, kernel, buffer });
    }
    let order = [0, 0, 1, 0, 1, 1, 0, 1];
    let commands: Vec<_> = order.map(|index| unwatched(increase(&mut client, &readies[index]))).into();
    let events: Vec<u64> = commands.iter().map(|command| command.event).collect();
    client.flush(commands).await;
    for (last, earlier) in [(1, vec![0]), (2, vec![]), (3, vec![]), (5, vec![4]), (6, vec![]), (7, vec![])] {
        let completion = client.completion(events[last]).await.0;
        let earlier: Vec<u64> = earlier.into_iter().map(|index: usize| events[index]).collect();
        assert_eq!((completion.status, completion.earlier), (0, earlier));
    }
}

#[tokio::test]
async fn the_failure_of_an_unwatched_command_is_told_and_hides_no_success_before_it() {
    let manager = Manager::start(&[]);
    let mut client = Client::connect(&manager).await;
    let ready = client.ready(INCREASE, "increase", 4096).await;
    let commands = vec![
        unwatched(increase(&mut client, &ready)),
        unwatched(increase(&mut client, &ready)),
        unwatched(refused(increase(&mut client, &ready))),
        unwatched(increase(&mut client, &ready)),
        increase(&mut client, &ready),
    ];
    let events: Vec<u64> = commands.iter().map(|command| command.event).collect();
    client.flush(commands).await;
    let completion = client.completion(events[1]).await.0;
    assert_eq!((completion.status, completion.earlier), (0, vec![events[0]]));
    let mut statuses = Vec::new();
    for event in &events[2..] {
        statuses.push(client.status(*event).await);
    }
    assert_eq!(statuses, [WORK_GROUP_SIZE, DEPENDENCY_FAILED, DEPENDENCY_FAILED]);
}

#[tokio::test]
async fn unwatched_commands_behind_a_user_event_that_fails_are_told_by_themselves() {
    let manager = Manager::start(&[]);
    let mut client = Client::connect(&manager).await;
    let (context, kernel) = client.context_with(INCREASE, "increase").await;
    let queue = client.queue(context, 0).await;
    let ready = Ready { queue, kernel, buffer: client.buffer(context, 4096).await };
    let user_event = client.user_event(context).await;
    let first = unwatched(after(increase(&mut client, &ready), &[user_event]));
    let commands = vec![first, unwatched(increase(&mut client, &ready)), increase(&mut client, &ready)];
    let events: Vec<u64> = commands.iter().map(|command| command.event).collect();
    client.flush(commands).await;
    assert_eq!(client.set(user_event, -7).await, 0);
    for event in events {
        assert_eq!(client.status(event).await, DEPENDENCY_FAILED);
    }
}
