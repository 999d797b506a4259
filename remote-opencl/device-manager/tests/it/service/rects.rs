//! Rectangles of buffers, which the vendor's own calls transfer.

use crate::harness::{Client, Manager, after};
use fpga_protocol::limits::MAX_INLINE_BYTES;
use fpga_protocol::v1;
use fpga_protocol::v1::command::Operation;

const PITCH: u64 = 100;
const ROWS: u64 = 300;
/// Bytes of a line of the rectangle; all lines together do not fit inline.
const LINE: u64 = 80;

fn layout(origin: [u64; 3]) -> Option<v1::RectLayout> {
    Some(v1::RectLayout { origin: origin.to_vec(), row_pitch: PITCH, slice_pitch: PITCH * ROWS })
}

#[tokio::test]
async fn rectangles_are_written_copied_and_read() {
    let manager = Manager::start(&[]);
    let mut client = Client::connect(&manager).await;
    assert!(client.welcome.buffer_rects);
    let context = client.context().await;
    let queue = client.queue(context, 0).await;
    let [first, second] =
        [client.buffer(context, PITCH * ROWS).await, client.buffer(context, PITCH * ROWS).await];
    let bytes: Vec<u8> = (0..LINE * ROWS).map(|n| u8::try_from(n % 251).unwrap()).collect();
    assert!(bytes.len() > MAX_INLINE_BYTES);
    let region = vec![LINE, ROWS, 1];
    let data = Some(client.data(bytes.clone()).await);
    let write =
        v1::WriteBufferRect { buffer: first, layout: layout([7, 0, 0]), region: region.clone(), data };
    let write = client.command(queue, Operation::WriteBufferRect(write));
    let copy = v1::CopyBufferRect {
        source: first,
        source_layout: layout([7, 0, 0]),
        target: second,
        target_layout: layout([20, 0, 0]),
        region: region.clone(),
    };
    let copy = client.command(queue, Operation::CopyBufferRect(copy));
    let read = v1::ReadBufferRect { buffer: second, layout: layout([20, 0, 0]), region, into: None };
    let read = client.command(queue, Operation::ReadBufferRect(read));
    let (whole, small) = (client.read(queue, second, PITCH * ROWS), small_read(&mut client, queue, second));
    let events = [read.event, whole.event, small.event];
    client.flush(vec![write, copy, read, whole, small]).await;
    let (completion, got) = client.completion(events[0]).await;
    assert_eq!(completion.status, 0);
    assert!(got == bytes);
    let (_, whole) = client.completion(events[1]).await;
    for (row, line) in whole.chunks(usize::try_from(PITCH).unwrap()).zip(bytes.chunks(80)) {
        assert!(row[..20] == [0; 20] && row[20..100] == *line, "what is beside it stays");
    }
    assert_eq!(client.completion(events[2]).await.1, [bytes[0], bytes[1], bytes[80], bytes[81]]);
}

fn small_read(client: &mut Client, queue: u64, buffer: u64) -> v1::Command {
    let read = v1::ReadBufferRect { buffer, layout: layout([20, 0, 0]), region: vec![2, 2, 1], into: None };
    client.command(queue, Operation::ReadBufferRect(read))
}

#[tokio::test]
async fn rectangles_beyond_a_buffer_never_reach_the_vendor() {
    let manager = Manager::start(&[]);
    let mut client = Client::connect(&manager).await;
    let context = client.context().await;
    let queue = client.queue(context, 0).await;
    let buffer = client.buffer(context, PITCH * ROWS).await;
    for (origin, region) in [
        ([21, 0, 0], vec![LINE, ROWS, 1]),
        ([0, 1, 0], vec![LINE, ROWS, 1]),
        ([0, 0, 1], vec![1, 1, 1]),
        ([0, 0, 0], vec![LINE, 0, 1]),
        ([0, u64::MAX / PITCH, 0], vec![1, 1, 1]),
        ([0, 0, 0], vec![1, 1]),
    ] {
        let read = v1::ReadBufferRect { buffer, layout: layout(origin), region: region.clone(), into: None };
        let read = client.command(queue, Operation::ReadBufferRect(read));
        assert_eq!(client.run(read).await, -30, "{origin:?} {region:?}");
        let layouts = (layout(origin), layout([0; 3]));
        let (source_layout, target_layout) = layouts;
        let copy =
            v1::CopyBufferRect { source: buffer, source_layout, target: buffer, target_layout, region };
        let copy = client.command(queue, Operation::CopyBufferRect(copy));
        assert_eq!(client.run(copy).await, -30);
    }
    let data = Some(client.data(vec![0; 79]).await);
    let write = v1::WriteBufferRect { buffer, layout: layout([0; 3]), region: vec![LINE, 1, 1], data };
    let write = client.command(queue, Operation::WriteBufferRect(write));
    assert_eq!(client.run(write).await, -30, "other bytes than the rectangle has");
    let read = small_read(&mut client, queue, buffer);
    assert_eq!(client.run(after(read, &[])).await, 0, "the session goes on");
}
