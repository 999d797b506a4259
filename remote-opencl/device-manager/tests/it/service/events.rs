//! Events: what commands wait for.

use crate::harness::{Client, Manager, after};
use crate::service::{INCREASE, ints, scalar};
use fpga_protocol::v1;
use fpga_protocol::v1::client_message::Kind;
use fpga_protocol::v1::command::Operation;
use fpga_protocol::v1::data::Form;
use fpga_protocol::v1::kernel_arg::Value;

#[tokio::test]
async fn two_queues_that_wait_for_each_other_end() {
    let manager = Manager::start(&["--slots", "1"]);
    let mut client = Client::connect(&manager).await;
    let context = client.context().await;
    let (one, two) = (client.queue(context, 0).await, client.queue(context, 0).await);
    let buffer = client.buffer(context, 4).await;
    let a = client.write(one, buffer, ints([1])).await;
    let b = client.read(two, buffer, 4);
    let c = client.write(one, buffer, ints([2])).await;
    let (first, second, third) = (a.event, b.event, c.event);
    client.flush(vec![a, after(b, &[first]), after(c, &[second])]).await;
    assert_eq!(client.completion(second).await.1, ints([1]));
    assert_eq!(client.status(third).await, 0);
}

#[tokio::test]
async fn what_comes_before_a_user_events_waiter_completes_before_the_event_is_set() {
    let manager = Manager::start(&["--slots", "1"]);
    let mut client = Client::connect(&manager).await;
    let context = client.context().await;
    let queue = client.queue(context, 0).await;
    let buffer = client.buffer(context, 4).await;
    let user = client.user_event(context).await;
    let a = client.write(queue, buffer, ints([7])).await;
    let c = client.read(queue, buffer, 4);
    let (first, second) = (a.event, c.event);
    client.flush(vec![a, after(c, &[user])]).await;
    assert_eq!(client.status(first).await, 0);
    assert!(!client.has_completed(second));
    assert_eq!(client.set(user, 0).await, 0);
    assert_eq!(client.completion(second).await.1, ints([7]));
    assert_eq!(client.set(user, 0).await, -59, "it is set once");
}

#[tokio::test]
async fn a_failed_user_event_fails_what_waits_for_it_and_nothing_else() {
    let manager = Manager::start(&[]);
    let mut client = Client::connect(&manager).await;
    let context = client.context().await;
    let (one, two) = (client.queue(context, 0).await, client.queue(context, 0).await);
    let buffer = client.buffer(context, 4).await;
    let user = client.user_event(context).await;
    let waits = client.write(one, buffer, ints([7])).await;
    let behind = client.read(one, buffer, 4);
    let other = client.read(two, buffer, 4);
    let events = [waits.event, behind.event, other.event];
    client.flush(vec![after(waits, &[user]), behind, other]).await;
    assert_eq!(client.status(events[2]).await, 0);
    assert_eq!(client.set(user, -1).await, 0);
    for event in &events[..2] {
        let (failed, _) = client.completion(*event).await;
        assert_eq!((failed.status, failed.by_user_event), (-14, true));
    }
    let buffer = client.buffer(context, 4).await;
    let mut refused = client.read(one, buffer, 4);
    let Some(Operation::ReadBuffer(read)) = &mut refused.operation else { panic!("a read") };
    read.size = 5;
    let follows = client.read(one, buffer, 4);
    let events = [refused.event, follows.event];
    client.flush(vec![refused, follows]).await;
    for (event, status) in events.into_iter().zip([-30, -14]) {
        let (failed, _) = client.completion(event).await;
        assert_eq!((failed.status, failed.by_user_event), (status, false));
    }
}

#[tokio::test]
async fn a_write_whose_data_comes_before_its_user_event_is_set_has_it_and_one_without_data_fails() {
    let manager = Manager::start(&[]);
    let mut client = Client::connect(&manager).await;
    let context = client.context().await;
    let queue = client.queue(context, 0).await;
    let buffer = client.buffer(context, 4).await;
    for (data, status) in [(Some(ints([7])), 0), (None, -5)] {
        let user = client.user_event(context).await;
        let mut write = client.write(queue, buffer, ints([1])).await;
        let Some(Operation::WriteBuffer(operation)) = &mut write.operation else { panic!("a write") };
        let transfer = v1::Transfer { id: write.event, length: 4 };
        operation.data = Some(v1::Data { form: Some(Form::Later(transfer)) });
        let event = write.event;
        client.flush(vec![after(write, &[user])]).await;
        if let Some(data) = data {
            let chunk = v1::Chunk { transfer: event, length: 4, offset: 0, data: data.into() };
            client.send(Kind::Chunk(chunk)).await;
        }
        assert_eq!(client.set(user, 0).await, 0);
        assert_eq!(client.status(event).await, status);
        let read = client.read(queue, buffer, 4);
        let event = read.event;
        client.flush(vec![read]).await;
        assert_eq!(client.completion(event).await.1, ints([7]));
    }
}

#[tokio::test]
async fn a_launch_that_waits_aside_keeps_its_arguments() {
    let manager = Manager::start(&[]);
    let mut client = Client::connect(&manager).await;
    let context = client.context().await;
    let (one, two) = (client.queue(context, 0).await, client.queue(context, 0).await);
    let program = client.source(context, INCREASE).await;
    assert_eq!(client.build(program).await.0, 0);
    let kernel = client.kernel(program, "increase").await;
    let (x, y) = (client.buffer(context, 4).await, client.buffer(context, 4).await);
    let user = client.user_event(context).await;
    let by = |number: i32| scalar(&number.to_le_bytes());
    let waits = client.launch(one, kernel, vec![Value::Buffer(x), by(1)], 1);
    let runs = client.launch(two, kernel, vec![Value::Buffer(y), by(10)], 1);
    let (read_x, read_y) = (client.read(one, x, 4), client.read(two, y, 4));
    let (x_event, y_event) = (read_x.event, read_y.event);
    client.flush(vec![after(waits, &[user]), runs, read_x, read_y]).await;
    assert_eq!(client.completion(y_event).await.1, ints([10]));
    assert_eq!(client.set(user, 0).await, 0);
    assert_eq!(client.completion(x_event).await.1, ints([1]), "buffers start as zeros");
}
