//! Boards that are reconfigured as a whole, with the chart on two real nodes: bitstreams come over TLS from hosts of an
//! authority that only the chart's values name, the gate decides who may have them, and the registry moves pods: off a
//! board that another pod waits for, and to where there are fewer cold starts. The boards count the kernels that would run
//! on a wrong image.

mod bed;
mod cold_starts;
mod unlisted;

use super::registry::{told, until_on, until_ready};
use super::site::{create, delete, ready, waits_with};
use anyhow::ensure;
use bed::{Bed, WORKERS, address_of, hold, node_of};
use fpga_test_kit::patience;
use fpga_tests::testbed::http_client::HttpClient;
use fpga_tests::testbed::registry::records;
use fpga_tests::testbed::{restricted, wait};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt as _};
use serde_json::{Value, json};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// Pause of a client that was cut off, unless the address changes.
const AGAIN: Duration = Duration::from_millis(100);

/// The counts of a Bitstream: nodes where it is valid, nodes where it is resident, and pods.
fn counts(bitstreams: &[Value], name: &str) -> Value {
    let found = bitstreams.iter().find(|bitstream| bitstream["metadata"]["name"] == name);
    let status = found.map(|found| found["status"].clone()).unwrap_or_default();
    json!([status["validNodes"], status["residentNodes"], status["pods"]])
}

/// Clients that call the first bitstream's function all the time, at an address that may change.
struct Load {
    stop: Arc<AtomicBool>,
    answered: Arc<AtomicUsize>,
    address: watch::Sender<String>,
    clients: Vec<JoinHandle<()>>,
}

impl Load {
    fn start(address: String) -> Self {
        let (stop, answered) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
        let address = watch::Sender::new(address);
        let clients = (0..WORKERS).map(|_| {
            let (stop, answered) = (Arc::clone(&stop), Arc::clone(&answered));
            let mut address = address.subscribe();
            tokio::spawn(async move {
                let http = HttpClient::new(patience());
                while !stop.load(Ordering::SeqCst) {
                    let at = address.borrow().clone();
                    match hold(&http, &at).await {
                        Ok(number) => {
                            assert_eq!(number, 0, "a kernel of another bitstream ran");
                            answered.fetch_add(1, Ordering::SeqCst);
                        }
                        // Who is cut off when the pod goes asks again, where the function is then.
                        Err(_) => drop(tokio::time::timeout(AGAIN, address.changed()).await),
                    }
                }
            })
        });
        let clients = clients.collect();
        Self { stop, answered, address, clients }
    }

    /// Waits until each client has had further answers.
    async fn goes_on(&self) {
        let before = self.answered.load(Ordering::SeqCst);
        wait::until("further requests to be answered", async || {
            Ok((self.answered.load(Ordering::SeqCst) >= before + 4 * WORKERS).then_some(()))
        })
        .await
        .unwrap();
    }

    async fn end(self) -> usize {
        self.stop.store(true, Ordering::SeqCst);
        for client in self.clients {
            client.await.unwrap();
        }
        self.answered.load(Ordering::SeqCst)
    }
}

/// A bitstream of a host that has a certificate of another authority is not fetched, and the pod says why.
async fn a_host_of_another_authority_is_refused_at_the_pod(bed: &Bed, pods: &Api<Pod>, bitstream: &Value) {
    let host = bed.cluster.plane().network().node(0).pod_gateway();
    let mut forged = bitstream.clone();
    forged["metadata"]["name"] = json!("forged");
    forged["spec"]["variants"][0]["source"] = json!({"https": format!("https://{host}:443/hold")});
    bed.apply(&forged).await;
    create(pods, &bed.holder("trusts", "forged", WORKERS).on("n1")).await;
    waits_with(pods, "trusts", "certificate").await;
    delete(pods, "trusts").await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs root, runc and the CNI plugins: make test-node"]
async fn a_pod_gets_a_whole_board_when_another_one_was_moved_off_it_and_no_kernel_runs_on_a_wrong_image() {
    let bed = Bed::start().await;
    let client = bed.cluster.plane().client();
    let (shop, mill) = (
        restricted::namespace(client, "shop").await.unwrap(),
        restricted::namespace(client, "mill").await.unwrap(),
    );
    // One bitstream is a registry's blob, the other an address that answers with the same bytes.
    let (first, mut second) = (bed.publish(0).await, bed.publish(1).await);
    let digest = second["spec"]["variants"][0]["digest"].as_str().unwrap().to_owned();
    let blob = format!("https://{}/v2/team/hold-1/blobs/{digest}", bed.publisher.registry.address());
    second["spec"]["variants"][0]["source"] = json!({"https": blob});
    bed.apply(&first).await;
    bed.apply(&second).await;
    a_host_of_another_authority_is_refused_at_the_pod(&bed, &mill, &second).await;

    // A replica on each node, the first of them under load.
    let deployments: Api<Deployment> = Api::namespaced(client.clone(), "shop");
    bed.open_only(&["n1"]).await;
    let deployment = bed.holder("hold", "hold-0", WORKERS).deployment(1).unwrap();
    deployments.create(&PostParams::default(), &deployment).await.unwrap();
    let busy = until_on(&shop, "hold", &["n1"]).await.remove(0);
    bed.open_only(&["n2"]).await;
    let two = Patch::Merge(json!({"spec": {"replicas": 2}}));
    deployments.patch("hold", &PatchParams::default(), &two).await.unwrap();
    let both = until_on(&shop, "hold", &["n1", "n2"]).await;
    bed.open_only(&["n1", "n2"]).await;
    let idle = both.iter().find(|pod| pod.uid() != busy.uid()).unwrap();
    assert_eq!([node_of(&busy), node_of(idle)], ["n1", "n2"]);
    let load = Load::start(address_of(&busy));
    load.goes_on().await;
    unlisted::a_bitstream_that_the_library_does_not_list_is_refused(&bed, &mill).await;
    load.goes_on().await;

    let wanted = Instant::now();
    create(&mill, &bed.holder("wants", "hold-1", WORKERS).on("n1")).await;
    let event = told(&bed.cluster, "shop", "Moved").await;
    println!("a pod created to another one moved off its board: {} ms", wanted.elapsed().as_millis());
    assert_eq!(event.regarding.unwrap().name.as_deref(), Some("hold"));
    load.address.send_replace(address_of(idle));
    let wants = ready(&mill, "wants", bed.node("n1")).await;
    println!("a pod created to its board reconfigured for it: {} ms", wanted.elapsed().as_millis());
    let ended = wait::until("the move to end", async || {
        let moves = records(client, "moves.json").await?;
        ensure!(moves.iter().all(|record| record["outcome"] == "ended"), "{moves:?}");
        Ok(Some(moves))
    });
    let [record] = &ended.await.unwrap()[..] else { panic!("there is more than one move") };
    assert_eq!(
        (&record["podUid"], &record["cause"], &record["node"]),
        (&json!(busy.uid()), &json!("board_wanted"), &json!("n1"))
    );
    let moves = bed.cluster.kubectl_fpga(&["moves"]).await.unwrap();
    assert!(
        moves.contains("board_wanted") && moves.contains(record["reckoning"].as_str().unwrap()),
        "{moves}"
    );

    // The replacement serves on the other node, and the old pod's board is the new pod's alone.
    let after = until_ready(&shop, "hold", 2).await;
    assert!(after.iter().all(|pod| node_of(pod) == "n2" && pod.uid() != busy.uid()), "{after:?}");
    wait::until("the boards to say whose they are", async || {
        let [one, two] = [bed.told_board("n1").await, bed.told_board("n2").await];
        ensure!(one["pods"] == json!(["mill/wants"]), "{one}");
        ensure!(two["pods"].as_array().is_some_and(|pods| pods.len() == 2), "{two}");
        let containers = [bed.containers_on_board("n1").await?, bed.containers_on_board("n2").await?];
        ensure!(containers == ["1", "2"], "{containers:?}");
        Ok(Some(()))
    })
    .await
    .unwrap();
    let http = HttpClient::new(patience());
    for _ in 0..5 {
        assert_eq!(hold(&http, &address_of(&wants)).await.unwrap(), 1, "a kernel of another bitstream ran");
    }
    let replacement = after.iter().find(|pod| pod.uid() != idle.uid()).unwrap();
    load.address.send_replace(address_of(replacement));
    load.goes_on().await;
    println!("{} requests of the moved function were answered", load.end().await);
    for (node, least) in [("n1", 2), ("n2", 1)] {
        let board = bed.board(node).await;
        assert_eq!(board.refused(), 0, "kernels would have run on a wrong image of the board of {node}");
        assert!(board.loads() >= least, "{node}: {} loads", board.loads());
    }

    // What the Bitstreams and people are told, when the nodes' annotations tell what was loaded.
    wait::until_within("the counts", 2 * patience(), async || {
        let text = bed.cluster.kubectl_fpga(&["bitstreams", "-o", "json"]).await?;
        let all: Vec<Value> = serde_json::from_str(&text)?;
        ensure!(
            counts(&all, "hold-0") == json!([2, 1, 2]) && counts(&all, "hold-1") == json!([2, 1, 1]),
            "{text}"
        );
        Ok(Some(()))
    })
    .await
    .unwrap();
    mill.delete("wants", &DeleteParams::default()).await.unwrap();
    bed.cluster.stop().await;
}
