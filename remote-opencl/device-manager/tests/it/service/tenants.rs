//! A tenant cannot name, use, end or observe anything of another tenant.

use crate::harness::{Client, Manager, Ready, after};
use crate::service::{INCREASE, OUT_OF_ORDER, ints, scalar};
use bytes::Bytes;
use fpga_protocol::v1;
use fpga_protocol::v1::call::Method;
use fpga_protocol::v1::command::Operation;
use fpga_protocol::v1::kernel_arg::Value;

/// Objects of the owner, by ids that the other tenant does not have.
struct Owned {
    context: u64,
    program: u64,
    ready: Ready,
    user: u64,
    waits: u64,
}

/// A tenant's objects, a command that waits for a user event, and a buffer that holds 42.
async fn owned(owner: &mut Client) -> Owned {
    // The ids of the other tenant are below these.
    for _ in 0..1000 {
        owner.id();
    }
    let context = owner.context().await;
    let queue = owner.queue(context, OUT_OF_ORDER).await;
    let program = owner.source(context, INCREASE).await;
    assert_eq!(owner.build(program).await.0, 0);
    let kernel = owner.kernel(program, "increase").await;
    let buffer = owner.buffer(context, 4).await;
    let write = owner.write(queue, buffer, ints([42])).await;
    assert_eq!(owner.run(write).await, 0);
    let user = owner.user_event(context).await;
    let waiting = owner.command(queue, Operation::Marker(v1::Marker {}));
    let waits = waiting.event;
    owner.flush(vec![after(waiting, &[user])]).await;
    Owned { context, program, ready: Ready { queue, kernel, buffer }, user, waits }
}

#[tokio::test]
async fn no_tenant_can_name_use_end_or_hear_of_what_another_has() {
    const TOKENS: [&str; 2] = ["token-of-alice-0123456789", "token-of-mallory-0123456789"];
    let folder = tempfile::tempdir().unwrap();
    for (name, token) in ["alice", "mallory"].into_iter().zip(TOKENS) {
        std::fs::write(folder.path().join(name), token).unwrap();
    }
    let tokens = folder.path().to_str().unwrap();
    for isolate in ["protocol", "process"] {
        let manager = Manager::start(&["--slots", "1", "--isolate", isolate, "--tokens", tokens]);
        let mut alice = Client::with_token(manager.channel().await, TOKENS[0]).await;
        let hers = owned(&mut alice).await;
        // Another tenant, and another session of the same tenant: ids belong to a session.
        for token in [TOKENS[1], TOKENS[0]] {
            let mut other = Client::with_token(manager.channel().await, token).await;
            use_all(&mut other, &hers).await;
            // A failure of the other session, and its end in the middle.
            let context = other.context().await;
            let broken = other.source(context, "kernel void broken( { }").await;
            assert_ne!(other.build(broken).await.0, 0);
        }
        assert!(!alice.has_completed(hers.waits), "{isolate}: nobody else sets her event");
        let Ready { queue, kernel, buffer } = hers.ready;
        let launch = alice.launch(queue, kernel, vec![Value::Buffer(buffer), scalar(&[1, 0, 0, 0])], 1);
        let launched = launch.event;
        let read = after(alice.read(queue, buffer, 4), &[launched]);
        let event = read.event;
        alice.flush(vec![launch, read]).await;
        assert_eq!(alice.completion(event).await.1, ints([43]), "{isolate}: her bytes are as she left them");
        assert_eq!(alice.set(hers.user, 0).await, 0);
        assert_eq!(alice.status(hers.waits).await, 0);
        let fresh = alice.kernel(hers.program, "increase").await;
        let launch = alice.launch(queue, fresh, vec![Value::Buffer(buffer), scalar(&[1, 0, 0, 0])], 1);
        assert_eq!(alice.run(launch).await, 0);
    }
}

/// Every way to name an object of another, with the standard's error for each.
async fn use_all(other: &mut Client, hers: &Owned) {
    let context = other.context().await;
    let Ready { queue, kernel, buffer } = other.ready(INCREASE, "increase", 4).await;
    let device = other.device();
    let (id, size) = (other.id(), 4);
    let sub = v1::CreateSubBuffer { buffer: id, parent: hers.ready.buffer, flags: 0, origin: 0, size };
    let create = v1::CreateBuffer {
        buffer: other.id(),
        context: hers.context,
        flags: 1,
        size,
        initial: None,
        storage: None,
    };
    let name = "increase".to_owned();
    let calls = [
        (Method::CreateSubBuffer(sub), -38),
        (Method::CreateBuffer(create), -34),
        (
            Method::CreateQueue(v1::CreateQueue {
                queue: other.id(),
                context: hers.context,
                device,
                properties: 0,
            }),
            -34,
        ),
        (Method::BuildProgram(v1::BuildProgram { program: hers.program, ..Default::default() }), -44),
        (Method::GetProgramBinaries(v1::GetProgramBinaries { program: hers.program }), -44),
        (Method::CreateKernel(v1::CreateKernel { kernel: other.id(), program: hers.program, name }), -44),
        (Method::SetUserEvent(v1::SetUserEvent { event: hers.user, status: 0 }), -58),
    ];
    for (method, status) in calls {
        let shown = format!("{method:?}");
        assert_eq!(other.call(method).await.status, status, "{shown}");
    }
    let args = |buffer| vec![Value::Buffer(buffer), scalar(&[1, 0, 0, 0])];
    let fill =
        v1::FillBuffer { buffer: hers.ready.buffer, pattern: Bytes::from_static(b"abcd"), offset: 0, size };
    let copy = |source, target| {
        Operation::CopyBuffer(v1::CopyBuffer { source, target, source_offset: 0, target_offset: 0, size })
    };
    let theirs = hers.ready.buffer;
    let write = other.write(queue, theirs, ints([666])).await;
    let commands = vec![
        (other.read(queue, theirs, 4), -38),
        (write, -38),
        (other.command(queue, Operation::FillBuffer(fill)), -38),
        (other.command(queue, copy(theirs, buffer)), -38),
        (other.command(queue, copy(buffer, theirs)), -38),
        (other.launch(queue, kernel, args(theirs), 1), -38),
        (other.launch(queue, hers.ready.kernel, args(buffer), 1), -48),
        (other.read(hers.ready.queue, buffer, 4), -36),
    ];
    for (command, status) in commands {
        let shown = format!("{command:?}");
        assert_eq!(other.run(command).await, status, "{shown}");
    }
    for event in [hers.user, hers.waits] {
        let marker = other.command(queue, Operation::Marker(v1::Marker {}));
        let command = marker.event;
        other.flush(vec![after(marker, &[event])]).await;
        assert_eq!(other.status(command).await, -57, "an event of hers");
    }
    let objects =
        vec![hers.context, hers.program, hers.ready.queue, hers.ready.kernel, hers.ready.buffer, context];
    other.cast(Method::Release(v1::Release { objects, events: vec![hers.user, hers.waits] })).await;
}

#[tokio::test]
async fn a_digest_alone_gets_no_tenant_the_bitstream_that_another_has_brought() {
    const TOKENS: [&str; 2] = ["token-of-alice-0123456789", "token-of-mallory-0123456789"];
    let folder = tempfile::tempdir().unwrap();
    for (name, token) in ["alice", "mallory"].into_iter().zip(TOKENS) {
        std::fs::write(folder.path().join(name), token).unwrap();
    }
    let manager = Manager::start(&["--tokens", folder.path().to_str().unwrap()]);
    let mut alice = Client::with_token(manager.channel().await, TOKENS[0]).await;
    let context = alice.context().await;
    let program = alice.source(context, INCREASE).await;
    assert_eq!(alice.build(program).await.0, 0);
    let bitstream = alice.binary(program).await;
    // A tenant that has sent a bitstream is not asked for it again; one that has not is asked, even if others
    // have sent it.
    for (token, missing) in [(TOKENS[0], 1), (TOKENS[0], 0), (TOKENS[1], 1), (TOKENS[1], 0)] {
        let mut client = Client::with_token(manager.channel().await, token).await;
        let context = client.context().await;
        assert_eq!(client.program_from(context, &bitstream).await.1, missing, "{token}");
    }
}
