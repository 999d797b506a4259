//! Sub-devices, pipes, queues on the device and programs that are not from source, by messages without a
//! library: what the manager must refuse, and that they belong to one session.

use crate::harness::{Client, Manager};
use fpga_protocol::v1;
use fpga_protocol::v1::call::Method;
use fpga_protocol::v1::reply::Result as Answer;

/// The bit that ids of sub-devices have set.
const PART: u64 = 1 << 63;
const EQUALLY_BY_ONE: [i64; 2] = [0x1086, 1];

async fn parts(client: &mut Client, device: u64, properties: &[i64], ids: &[u64]) -> (i32, v1::SubDevices) {
    let (properties, ids) = (properties.to_vec(), ids.to_vec());
    let reply = client.call(Method::CreateSubDevices(v1::CreateSubDevices { device, properties, ids })).await;
    match reply.result {
        Some(Answer::SubDevices(parts)) => (reply.status, parts),
        _ => (reply.status, v1::SubDevices::default()),
    }
}

async fn context_over(client: &mut Client, devices: Vec<u64>) -> i32 {
    let context = client.id();
    client.call(Method::CreateContext(v1::CreateContext { context, devices })).await.status
}

#[tokio::test]
async fn sub_devices_are_one_sessions_and_live_as_long_as_they_are_used() {
    let manager = Manager::start(&[]);
    let mut client = Client::connect(&manager).await;
    let mut stranger = Client::connect(&manager).await;
    let device = client.device();
    let (status, partition) = parts(&mut client, device, &EQUALLY_BY_ONE, &[]).await;
    assert_eq!((status, partition.devices.len()), (0, 0));
    let count = partition.count as usize;
    assert!(count >= 2, "PoCL has a compute unit for each processor");

    let ids: Vec<u64> = (0..count).map(|_| client.id() | PART).collect();
    let (status, partition) = parts(&mut client, device, &EQUALLY_BY_ONE, &ids).await;
    assert_eq!((status, partition.devices.len()), (0, count));
    assert_eq!(context_over(&mut client, vec![ids[0], ids[1]]).await, 0);
    assert_eq!(context_over(&mut stranger, vec![ids[0]]).await, -33);
    assert_eq!(parts(&mut stranger, ids[0], &EQUALLY_BY_ONE, &[]).await.0, -33);

    client.cast(Method::Release(v1::Release { objects: ids.clone(), events: Vec::new() })).await;
    assert_eq!(context_over(&mut client, vec![ids[0]]).await, -33, "nobody's id any more");
}

#[tokio::test]
async fn partitions_that_are_none_are_refused() {
    let manager = Manager::start(&[]);
    let mut client = Client::connect(&manager).await;
    let device = client.device();
    let id = client.id();
    for (properties, ids) in [
        (&EQUALLY_BY_ONE[..], &[id, id + 1][..]),
        (&EQUALLY_BY_ONE, &[id | PART]),
        (&[], &[]),
        (&[0x1086, i64::MAX], &[]),
        (&[0x1087, 1 << 40, 1], &[]),
        (&[0x7777, -1], &[]),
    ] {
        let (status, _) = parts(&mut client, device, properties, ids).await;
        assert!(status < 0, "{properties:x?} {ids:?}: {status}");
    }
    assert_eq!(parts(&mut client, 999, &EQUALLY_BY_ONE, &[]).await.0, -33);
    assert_eq!(parts(&mut client, 999 | PART, &EQUALLY_BY_ONE, &[]).await.0, -33);
    assert_eq!(context_over(&mut client, vec![device]).await, 0, "the session goes on");
}

#[tokio::test]
async fn pipes_queues_and_programs_that_nobody_can_have_are_refused() {
    let manager = Manager::start(&[]);
    let mut client = Client::connect(&manager).await;
    let (device, context) = (client.device(), client.context().await);
    let program = client.source(context, "kernel void k(global int *a) { a[0] = 1; }").await;
    assert_eq!(client.build(program).await.0, 0);
    let kernel = client.id();
    let create = v1::CreateKernel { kernel, program, name: "k".into() };
    assert_eq!(client.call(Method::CreateKernel(create)).await.status, 0);

    let huge = u32::MAX;
    let pipe =
        v1::CreatePipe { pipe: client.id(), context, packet_size: huge, max_packets: huge, host_end: 0 };
    let [host_pipe, no_pipe] = [1, 9].map(|host_end| v1::CreatePipe { pipe: client.id(), host_end, ..pipe });
    let queue = v1::CreateDeviceQueue { queue: client.id(), context, device, properties: 0b101, size: huge };
    let host = v1::CreateDeviceQueue { queue: client.id(), properties: 1, ..queue };
    // A device with such queues uses its preferred size; PoCL's device has none.
    let preferred = v1::CreateDeviceQueue { queue: client.id(), size: 0, ..queue };
    let status = client.call(Method::CreateDeviceQueue(preferred)).await.status;
    assert!([0, -35].contains(&status), "{status}");
    let code = v1::Data { form: Some(v1::data::Form::Inline(vec![0xff; 64].into())) };
    let il = v1::CreateProgramWithIl { program: client.id(), context, il: Some(code), prints: false };
    let names = "no.such.kernel;;\0".to_owned();
    let devices = vec![device];
    let built_in = v1::CreateProgramWithBuiltInKernels { program: client.id(), context, devices, names };
    let methods = [
        Method::CreatePipe(pipe),
        Method::CreatePipe(host_pipe),
        Method::CreatePipe(no_pipe),
        Method::ReadPipe(v1::ReadPipe { pipe: kernel, packets: huge }),
        Method::WritePipe(v1::WritePipe { pipe: kernel, packet: vec![1; 4].into() }),
        Method::MapPipe(v1::MapPipe { pipe: kernel, size: u64::MAX }),
        Method::UnmapPipe(v1::UnmapPipe { pipe: kernel, packets: vec![1; 4].into(), map: 1 }),
        Method::CreateDeviceQueue(queue),
        Method::CreateDeviceQueue(host),
        Method::SetDefaultDeviceQueue(v1::SetDefaultDeviceQueue { context, device, queue: kernel }),
        Method::CreateProgramWithIl(il),
        Method::CreateProgramWithBuiltInKernels(built_in),
        Method::SetSpecializationConstant(v1::SetSpecializationConstant {
            program,
            id: 1,
            value: vec![1; 4].into(),
        }),
        Method::GetKernelSubGroupInfo(v1::GetKernelSubGroupInfo {
            kernel,
            device,
            param: 0x2033,
            input: vec![u64::MAX; 100],
            room: huge,
        }),
        Method::GetKernelSubGroupInfo(v1::GetKernelSubGroupInfo {
            kernel,
            device: 999,
            ..Default::default()
        }),
    ];
    for method in methods {
        let shown = format!("{method:?}");
        let status = client.call(method).await.status;
        assert!(status < 0, "{shown}: {status}");
    }
    assert_eq!(context_over(&mut client, vec![device]).await, 0, "the session goes on");
}
