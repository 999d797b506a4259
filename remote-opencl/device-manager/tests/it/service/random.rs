//! Sessions of random messages: whatever happens to them, the manager lives and serves others.

use crate::harness::{Client, Manager};
use crate::service::{BUSY, INCREASE};
use bytes::Bytes;
use fpga_protocol::v1;
use fpga_protocol::v1::call::Method;
use fpga_protocol::v1::client_message::Kind;
use fpga_protocol::v1::command::Operation;
use fpga_protocol::v1::data::Form;
use fpga_protocol::v1::kernel_arg::Value;
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;

const SESSIONS: usize = 150;

/// Few ids, so that most messages refer to an existing object.
fn id() -> impl Strategy<Value = u64> {
    prop_oneof![20 => 1_u64..12, 1 => Just(0), 1 => any::<u64>()]
}

fn event() -> impl Strategy<Value = u64> {
    prop_oneof![20 => 100_u64..160, 1 => Just(0), 1 => any::<u64>()]
}

fn size() -> impl Strategy<Value = u64> {
    prop_oneof![10 => 0_u64..300, 3 => Just(64), 1 => any::<u64>(), 1 => Just(1 << 20)]
}

fn bytes(longest: usize) -> impl Strategy<Value = Bytes> {
    prop::collection::vec(any::<u8>(), 0..longest).prop_map(Bytes::from)
}

fn data() -> impl Strategy<Value = Option<v1::Data>> {
    prop_oneof![
        10 => bytes(200).prop_map(|bytes| Some(v1::Data { form: Some(Form::Inline(bytes)) })),
        2 => (1_u64..4, size()).prop_map(|(id, length)| {
            Some(v1::Data { form: Some(Form::Transfer(v1::Transfer { id, length })) })
        }),
        2 => (event(), size()).prop_map(|(id, length)| {
            Some(v1::Data { form: Some(Form::Later(v1::Transfer { id, length })) })
        }),
        1 => Just(None),
    ]
}

fn method() -> impl Strategy<Value = Method> {
    prop_oneof![
        (id(), prop::collection::vec(0_u64..3, 0..3))
            .prop_map(|(context, devices)| Method::CreateContext(v1::CreateContext { context, devices })),
        (id(), id(), 0_u64..3, 0_u64..5).prop_map(|(queue, context, device, properties)| {
            Method::CreateQueue(v1::CreateQueue { queue, context, device, properties })
        }),
        (id(), id(), any::<u8>(), size(), prop::option::of(data())).prop_map(
            |(buffer, context, flags, size, initial)| {
                let flags = u64::from(flags);
                Method::CreateBuffer(v1::CreateBuffer {
                    buffer,
                    context,
                    flags,
                    size,
                    initial: initial.flatten(),
                    storage: None,
                })
            }
        ),
        (id(), id(), size(), size()).prop_map(|(buffer, parent, origin, size)| {
            Method::CreateSubBuffer(v1::CreateSubBuffer { buffer, parent, flags: 0, origin, size })
        }),
        (id(), id(), bytes(40)).prop_map(|(program, context, bytes)| {
            let source = if bytes.len() > 5 { Bytes::from_static(INCREASE.as_bytes()) } else { bytes };
            let source = Some(v1::Data { form: Some(Form::Inline(source)) });
            Method::CreateProgramWithSource(v1::CreateProgramWithSource {
                program,
                context,
                source,
                prints: false,
            })
        }),
        (id(), id(), bytes(40)).prop_map(|(program, context, digest)| {
            let binaries = vec![v1::BinaryRef { device: 1, length: 3, digest }];
            Method::CreateProgramWithBinary(v1::CreateProgramWithBinary {
                program,
                context,
                binaries,
                prints: false,
            })
        }),
        (id(), bytes(40), data()).prop_map(|(program, digest, data)| Method::ProvideBinary(
            v1::ProvideBinary { program, digest, data }
        )),
        id().prop_map(|program| {
            Method::BuildProgram(v1::BuildProgram {
                program,
                options: "-w".to_owned(),
                ..v1::BuildProgram::default()
            })
        }),
        id().prop_map(|program| Method::GetProgramBinaries(v1::GetProgramBinaries { program })),
        (id(), id()).prop_map(|(kernel, program)| {
            Method::CreateKernel(v1::CreateKernel { kernel, program, name: "increase".to_owned() })
        }),
        (event(), id())
            .prop_map(|(event, context)| Method::CreateUserEvent(v1::CreateUserEvent { event, context })),
        (event(), -2..2).prop_map(|(event, status)| Method::SetUserEvent(v1::SetUserEvent { event, status })),
        (prop::collection::vec(id(), 0..2), prop::collection::vec(event(), 0..3))
            .prop_map(|(objects, events)| Method::Release(v1::Release { objects, events })),
    ]
}

fn operation() -> impl Strategy<Value = Option<Operation>> {
    let value = prop_oneof![
        bytes(12).prop_map(Value::Scalar),
        id().prop_map(Value::Buffer),
        size().prop_map(Value::NullOfSize),
    ];
    let args = prop::collection::vec((0_u32..3, prop::option::of(value)), 0..3);
    let sizes = || prop::collection::vec(0_u64..9, 0..4);
    prop_oneof![
        (id(), args, sizes(), sizes(), sizes()).prop_map(|(kernel, args, offset, global, local)| {
            let args = args.into_iter().map(|(index, value)| v1::KernelArg { index, value }).collect();
            Some(Operation::NdRange(v1::NdRange { kernel, args, offset, global, local }))
        }),
        (id(), size(), data()).prop_map(|(buffer, offset, data)| {
            Some(Operation::WriteBuffer(v1::WriteBuffer { buffer, offset, data }))
        }),
        (id(), size(), size(), any::<bool>()).prop_map(|(buffer, offset, size, memory_at_start)| {
            let read = v1::ReadBuffer { buffer, offset, size, into: None, memory_at_start };
            Some(Operation::ReadBuffer(read))
        }),
        (id(), id(), size(), size(), size()).prop_map(
            |(source, target, source_offset, target_offset, size)| {
                Some(Operation::CopyBuffer(v1::CopyBuffer {
                    source,
                    target,
                    source_offset,
                    target_offset,
                    size,
                }))
            }
        ),
        (id(), bytes(20), size(), size()).prop_map(|(buffer, pattern, offset, size)| {
            Some(Operation::FillBuffer(v1::FillBuffer { buffer, pattern, offset, size }))
        }),
        Just(Some(Operation::Marker(v1::Marker {}))),
        Just(Some(Operation::Barrier(v1::Barrier {}))),
        Just(None),
    ]
}

/// Some of them malformed.
fn trace() -> impl Strategy<Value = Option<v1::Trace>> {
    let id = |length| prop_oneof![10 => prop::collection::vec(0_u8..2, length), 1 => prop::collection::vec(0_u8..2, 0..20)];
    let trace = (id(16), id(8), ".{0,20}").prop_map(|(trace_id, span_id, state)| v1::Trace {
        trace_id: trace_id.into(),
        span_id: span_id.into(),
        state,
    });
    prop::option::of(trace)
}

fn kind() -> impl Strategy<Value = Kind> {
    let command = (event(), id(), prop::collection::vec(event(), 0..3), operation(), any::<bool>(), trace())
        .prop_map(|(event, queue, wait, operation, unwatched, trace)| v1::Command {
            event,
            queue,
            wait,
            operation,
            unwatched,
            trace,
        });
    let chunk = (1_u64..4, size(), 0_u64..3, bytes(60))
        .prop_map(|(transfer, length, offset, data)| v1::Chunk { transfer, length, offset, data });
    prop_oneof![
        10 => (any::<bool>(), prop::option::weighted(0.99, method()))
            .prop_map(|(id, method)| Kind::Call(v1::Call { id: u64::from(id), method, trace: None })),
        10 => prop::collection::vec(command, 0..4).prop_map(|commands| Kind::Flush(v1::Flush { commands })),
        1 => chunk.prop_map(Kind::Chunk),
    ]
}

#[tokio::test]
async fn whatever_a_session_says_the_manager_lives() {
    // Nothing listens there: the manager makes spans, and can't send them.
    let mut manager = Manager::start(&["--slots", "2", "--otlp-endpoint", "http://127.0.0.1:1"]);
    // Deterministic: the same messages in every run.
    let mut runner = TestRunner::deterministic();
    let messages = prop::collection::vec(kind(), 1..80);
    for _ in 0..SESSIONS {
        let mut client = Client::connect(&manager).await;
        let context = 1;
        // Half of the objects exist, so that the random messages have something to act on.
        for method in [
            Method::CreateContext(v1::CreateContext { context, devices: vec![client.device()] }),
            Method::CreateQueue(v1::CreateQueue { queue: 2, context, device: 1, properties: 0 }),
            Method::CreateQueue(v1::CreateQueue { queue: 3, context, device: 1, properties: 1 }),
            Method::CreateBuffer(v1::CreateBuffer {
                buffer: 4,
                context,
                flags: 1,
                size: 64,
                initial: None,
                storage: None,
            }),
            Method::CreateBuffer(v1::CreateBuffer {
                buffer: 5,
                context,
                flags: 1,
                size: 4096,
                initial: None,
                storage: None,
            }),
            Method::CreateProgramWithSource(v1::CreateProgramWithSource {
                program: 6,
                context,
                source: Some(v1::Data { form: Some(Form::Inline(Bytes::from_static(BUSY.as_bytes()))) }),
                prints: false,
            }),
        ] {
            client.cast(method).await;
        }
        let messages = messages.new_tree(&mut runner).unwrap().current();
        for kind in messages.clone() {
            // Earlier messages may have ended the session.
            if client.try_send(kind).await.is_err() {
                break;
            }
        }
        client.drain().await;
        drop(client);
        manager.has_no_session().await;
    }
    assert!(manager.is_running());
    let mut witness = Client::connect(&manager).await;
    witness.context().await;
    drop(witness);
    assert!(manager.terminate().success(), "and ends when it is told to");
}
