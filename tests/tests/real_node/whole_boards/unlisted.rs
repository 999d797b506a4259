//! A pod with a bitstream of its own, which the library does not list: the gate refuses it, and the board stays as it is.

use super::bed::Bed;
use crate::publisher::LIBRARY;
use crate::site::{create, delete};
use anyhow::ensure;
use fpga_tests::testbed::cluster::Runtime;
use fpga_tests::testbed::manifests::kubectl;
use fpga_tests::testbed::wait;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::events::v1::Event;
use kube::Api;
use kube::api::ListParams;

/// Name of the pod, and of the ConfigMap with its bitstream.
const SMUGGLES: &str = "smuggles";
/// Where the pod has its bitstream.
const FOLDER: &str = "/mine";

/// The program of a pod of the namespace `mill` asks for the board of `n1` with a bitstream that came with the pod.
pub async fn a_bitstream_that_the_library_does_not_list_is_refused(bed: &Bed, pods: &Api<Pod>) {
    let file = format!("{SMUGGLES}.bitstream");
    bed.publisher.build(Runtime::Pocl, "hold", &file, "-DNUMBER=9").await;
    let from = format!("--from-file={}", bed.publisher.folder.path().join(&file).display());
    let plane = bed.cluster.plane();
    kubectl(plane, &["create", "configmap", SMUGGLES, "--namespace", "mill", &from]).await.unwrap();
    let before = bed.board("n1").await.loads();
    let pod = bed.bare(SMUGGLES).env("BITSTREAM", &format!("{FOLDER}/{file}"));
    create(pods, &pod.on("n1").config_map(SMUGGLES, FOLDER)).await;

    // The program sees an error of OpenCL, and ends.
    let seen = wait::until("the program to be refused", async || {
        let log = bed.node("n1").container_log("mill", SMUGGLES, "main");
        ensure!(log.contains("clCreateProgramWithBinary failed: -5"), "{log}");
        Ok(Some(log))
    });
    let seen = seen.await.unwrap();
    assert!(seen.contains(&format!("{FOLDER}/{file}: the device said -5 to the binary")), "{seen}");
    let events: Api<Event> = Api::namespaced(plane.client().clone(), "mill");
    let note = wait::until("the reason on the pod", async || {
        let events = events.list(&ListParams::default()).await?.items;
        let told = events.into_iter().find(|event| {
            let pod = event.regarding.as_ref().and_then(|pod| pod.name.as_deref());
            event.reason.as_deref() == Some("BitstreamRefused") && pod == Some(SMUGGLES)
        });
        Ok(told.and_then(|event| event.note))
    });
    let note = note.await.unwrap();
    assert!(note.contains("the library lists no bitstream with this digest"), "{note}");
    assert!(note.contains("apply a Bitstream with it"), "the event says what to do: {note}");
    assert_eq!(bed.board("n1").await.loads(), before, "the board was loaded for who may not have it");
    let library = kubectl(plane, &["get", "bitstreams", "--namespace", LIBRARY, "--output", "name"]).await;
    assert!(!library.unwrap().contains(SMUGGLES));
    delete(pods, SMUGGLES).await;
}
