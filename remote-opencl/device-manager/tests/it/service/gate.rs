//! Which sessions may have the device reconfigured (B-8).

mod cluster;
mod node;

use crate::harness::{Board, Client, Manager, binaries_result, digest_of};
use crate::service::INCREASE;
use crate::service::board::{FULL, Scaler, images};
use fpga_protocol::v1;
use fpga_protocol::v1::call::Method;
use fpga_protocol::v1::kernel_arg::Value;

/// `CL_OUT_OF_RESOURCES` and `CL_BUILD_PROGRAM_FAILURE`.
const REFUSED: i32 = -5;
const BUILD_FAILED: i32 = -11;

/// A bitstream for the device, and a folder of bitstreams that contains it as `increase`.
async fn bitstream() -> (Vec<u8>, tempfile::TempDir) {
    let manager = Manager::start(&[]);
    let mut client = Client::connect(&manager).await;
    let context = client.context().await;
    let program = client.source(context, INCREASE).await;
    assert_eq!(client.build(program).await.0, 0);
    let binary = client.binary(program).await;
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("increase.bitstream"), &binary).unwrap();
    (binary, folder)
}

async fn announce(client: &mut Client, context: u64, binary: &[u8]) -> v1::Reply {
    let program = client.id();
    let digest = digest_of(binary).as_bytes().to_vec().into();
    let binaries = vec![v1::BinaryRef { device: client.device(), digest, length: binary.len() as u64 }];
    let reply = client
        .call(Method::CreateProgramWithBinary(v1::CreateProgramWithBinary {
            program,
            context,
            binaries,
            prints: false,
        }))
        .await;
    if reply.status != 0 {
        // A refused program fails at its use.
        assert_eq!(client.build(program).await.0, reply.status);
    }
    reply
}

#[tokio::test]
async fn who_may_not_reconfigure_is_told_so_before_a_byte_is_sent_and_resident_bitstreams_are_free() {
    let (binary, folder) = bitstream().await;
    let folder = folder.path().to_str().unwrap();
    let closed = Manager::start(&["--may-reconfigure", "never", "--bitstreams", folder]);
    let mut client = Client::connect(&closed).await;
    let context = client.context().await;
    let reply = announce(&mut client, context, &binary).await;
    let result = binaries_result(&reply);
    assert_eq!(
        (reply.status, result.missing.len(), result.binary_status.as_slice()),
        (REFUSED, 0, &[-5][..])
    );
    assert!(result.refusal.contains("dm0 to bitstream increase"), "{}", result.refusal);
    let metrics = closed.metrics_text();
    assert!(metrics.contains("fpga_device_manager_reconfiguration_refusals_total 1"), "{metrics}");
    drop(client);

    let args = ["--may-reconfigure", "never", "--bitstreams", folder, "--preload", "increase"];
    let loaded = Manager::start(&args);
    let mut client = Client::connect(&loaded).await;
    let context = client.context().await;
    let (_, missing) = client.program_from(context, &binary).await;
    assert_eq!(missing, 0);
    assert_eq!(announce(&mut client, context, b"something else").await.status, REFUSED);
}

#[tokio::test]
async fn a_bitstream_whose_file_comes_after_the_start_has_its_name_and_a_bad_file_takes_none_away() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("so bel.bitstream"), "x").unwrap();
    let args = ["--may-reconfigure", "never", "--bitstreams", folder.path().to_str().unwrap()];
    let manager = Manager::start(&args);
    manager.counts("fpga_device_manager_bitstream_files_refused 1").await;
    std::fs::write(folder.path().join("mm.bitstream"), b"late").unwrap();
    manager.counts("fpga_device_manager_bitstreams_named 1").await;
    let mut client = Client::connect(&manager).await;
    let context = client.context().await;
    let reply = announce(&mut client, context, b"late").await;
    let refusal = &binaries_result(&reply).refusal;
    assert!(refusal.contains("dm0 to bitstream mm"), "{refusal}");
}

#[tokio::test]
async fn a_source_that_counts_as_a_bitstream_is_refused_with_a_reason_in_the_build_log() {
    let manager = Manager::start(&["--may-reconfigure", "never", "--source-as-bitstream"]);
    let mut client = Client::connect(&manager).await;
    let context = client.context().await;
    let program = client.source(context, INCREASE).await;
    let (status, build) = client.build(program).await;
    assert_eq!(status, BUILD_FAILED);
    assert!(build.devices[0].log.contains("--may-reconfigure=never"), "{:?}", build.devices);
}

#[tokio::test]
async fn a_whole_board_is_not_taken_from_others_while_their_kernels_run_and_none_runs_on_a_wrong_image() {
    let images = images(&[3, 5]).await;
    let board = Board::new();
    let manager = board.manager(&[FULL, &["--may-reconfigure", "when-idle"]].concat());
    let mut tenant = Client::connect(&manager).await;
    let context = tenant.context().await;
    let queues = [tenant.queue(context, 0).await, tenant.queue(context, 0).await];
    let (program, _) = tenant.program_from(context, &images[0]).await;
    let (waits, sets) = (tenant.kernel(program, "wait_for").await, tenant.kernel(program, "set").await);
    let flag = tenant.buffer(context, 4).await;
    let launch = tenant.launch(queues[0], waits, vec![Value::Buffer(flag)], 1);
    let running = launch.event;
    tenant.flush(vec![launch]).await;
    manager.counts("fpga_device_manager_slots_in_use 1").await;

    let mut other = Client::connect(&manager).await;
    let context = other.context().await;
    for _ in 0..3 {
        let reply = announce(&mut other, context, &images[1]).await;
        let refusal = &binaries_result(&reply).refusal;
        assert_eq!(reply.status, REFUSED);
        assert!(refusal.contains("kernels of other sessions run or wait"), "{refusal}");
    }
    assert_eq!(board.controls.loads(), 1, "the tenant keeps its image");

    let launch = tenant.launch(queues[1], sets, vec![Value::Buffer(flag)], 1);
    let set = launch.event;
    tenant.flush(vec![launch]).await;
    assert_eq!([tenant.status(set).await, tenant.status(running).await], [0, 0]);
    manager.counts("fpga_device_manager_slots_in_use 0").await;
    let mut other = Scaler::of(other, &images[1], 5).await;
    let mut tenant = Scaler::of(tenant, &images[0], 3).await;
    for _ in 0..3 {
        assert_eq!([other.round().await, tenant.round().await], [[0, 0]; 2]);
    }
    assert_eq!(board.controls.refused(), 0, "no kernel ran on a wrong image");
}
