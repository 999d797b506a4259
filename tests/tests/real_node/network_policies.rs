//! The chart's NetworkPolicies where a controller enforces them: whom they let in, whom they keep out, and that our own
//! programs work under them.

use super::site::{create, ready};
use super::{pool, registry};
use anyhow::{Context as _, ensure};
use fpga_tests::testbed::kube_router::{KubeRouter, PodNetwork};
use fpga_tests::testbed::real_cluster::{RealCluster, RealClusterSpec};
use fpga_tests::testbed::real_node::{RunMount, envoy_image};
use fpga_tests::testbed::restricted::{self, RestrictedPod};
use fpga_tests::testbed::wait;
use k8s_openapi::api::core::v1::{Namespace, Pod};
use kube::api::{DeleteParams, ListParams, Patch, PatchParams};
use kube::{Api, ResourceExt as _};
use serde_json::json;
use std::collections::BTreeMap;
use std::net::SocketAddr;

/// The namespace whose jobs the pool takes, one that has nothing to do with us, and Prometheus's.
const SHOP: &str = "shop";
const ELSEWHERE: &str = "elsewhere";
const MONITORING: &str = "monitoring";
const NODE: &str = "n1";

/// Who connects: a pod of one of these namespaces, or one of our programs.
const OUTSIDE: [&str; 3] = [SHOP, ELSEWHERE, MONITORING];
const PROGRAMS: [&str; 7] = [
    "fpga-collector",
    "fpga-device-manager",
    "fpga-node-plugin",
    "fpga-pool",
    "fpga-registry",
    "fpga-router",
    "fpga-scheduler-extender",
];

/// A port of one of our programs, and everybody whom the chart lets in there.
struct Door {
    program: &'static str,
    port: u16,
    what: &'static str,
    lets_in: &'static [&'static str],
}

/// All but device managers, which connect to nobody.
const ALL: &[&str] = &[
    SHOP,
    ELSEWHERE,
    MONITORING,
    "fpga-collector",
    "fpga-node-plugin",
    "fpga-pool",
    "fpga-registry",
    "fpga-router",
    "fpga-scheduler-extender",
];

const DOORS: [Door; 14] = [
    Door { program: "fpga-collector", port: 9460, what: "metrics", lets_in: &[MONITORING] },
    Door { program: "fpga-device-manager", port: 9462, what: "metrics", lets_in: &[MONITORING] },
    Door { program: "fpga-device-manager", port: 9482, what: "lent slots", lets_in: &[SHOP] },
    Door { program: "fpga-node-plugin", port: 9466, what: "metrics", lets_in: &[MONITORING] },
    Door { program: "fpga-pool", port: 9480, what: "the broker", lets_in: &[SHOP, "fpga-device-manager"] },
    Door { program: "fpga-pool", port: 9481, what: "metrics", lets_in: &[MONITORING] },
    Door { program: "fpga-registry", port: 9473, what: "metrics", lets_in: &[MONITORING] },
    Door { program: "fpga-router", port: 8080, what: "functions", lets_in: ALL },
    Door { program: "fpga-router", port: 9463, what: "streams", lets_in: &["fpga-collector"] },
    Door { program: "fpga-router", port: 9471, what: "metrics", lets_in: &[MONITORING] },
    Door { program: "fpga-router", port: 9472, what: "Envoy's metrics", lets_in: &[MONITORING] },
    Door { program: "fpga-scheduler-extender", port: 9463, what: "streams", lets_in: &["fpga-collector"] },
    Door { program: "fpga-scheduler-extender", port: 9464, what: "metrics", lets_in: &[MONITORING] },
    Door { program: "fpga-scheduler-extender", port: 9465, what: "people's pages", lets_in: ALL },
];

/// Ends all pods of the chart, and waits for the new ones, which have never run without policies.
async fn restart_everything(cluster: &RealCluster) {
    let old = cluster.pods().list(&ListParams::default()).await.unwrap().items;
    for pod in &old {
        cluster.pods().delete(&pod.name_any(), &DeleteParams::default()).await.unwrap();
    }
    wait::until("the pods without policies to be gone", async || {
        let now = cluster.pods().list(&ListParams::default()).await?.items;
        let remain: Vec<String> = now
            .iter()
            .filter(|pod| old.iter().any(|old| old.uid() == pod.uid()))
            .map(Pod::name_any)
            .collect();
        ensure!(remain.is_empty(), "{remain:?}");
        Ok(Some(()))
    })
    .await
    .unwrap();
    cluster.wait_rolled_out().await.unwrap();
}

/// A running pod of each namespace, and of each of our programs, by name.
async fn networks(cluster: &RealCluster) -> BTreeMap<&'static str, PodNetwork> {
    let mut networks = BTreeMap::new();
    for namespace in OUTSIDE {
        let pods: Api<Pod> = Api::namespaced(cluster.plane().client().clone(), namespace);
        let pod = ready(&pods, "idle", &cluster.nodes()[0]).await;
        networks.insert(namespace, PodNetwork::of(&pod).unwrap());
    }
    for program in PROGRAMS {
        let of_program = ListParams::default().labels(&format!("app.kubernetes.io/name={program}"));
        let pod = cluster.pods().list(&of_program).await.unwrap().items.pop().context(program).unwrap();
        networks.insert(program, PodNetwork::of(&pod).unwrap());
    }
    networks
}

/// Everybody who gets in at a door now.
async fn who_gets_in<'a>(door: &Door, networks: &BTreeMap<&'a str, PodNetwork>) -> Vec<&'a str> {
    let to = SocketAddr::from((networks[door.program].address(), door.port));
    let asked = networks.iter().filter(|(name, _)| **name != door.program).map(async |(name, network)| {
        let reaches = network.reaches(to).await.unwrap();
        reaches.then_some(*name)
    });
    futures::future::join_all(asked).await.into_iter().flatten().collect()
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs root, runc, the CNI plugins, and kube-router: make test-network-policies"]
async fn under_a_controller_that_enforces_them_policies_let_in_whom_they_name_and_nobody_else_and_all_works()
{
    let values =
        registry::VALUES.into_iter().chain(pool::VALUES).chain(["router.enabled=true", "router.replicas=1"]);
    let idle = restricted::idle_image().unwrap();
    let spec = RealClusterSpec {
        nodes: vec![(NODE.to_owned(), RunMount::Executable)],
        images: vec![idle.clone(), pool::job_image(), envoy_image().unwrap()],
        values: values.map(str::to_owned).collect(),
    };
    let cluster = RealCluster::start_with(spec, async |plane| {
        for namespace in OUTSIDE {
            restricted::namespace(plane.client(), namespace).await?;
        }
        let label = json!({"metadata": {"labels": {"fpga-scheduling.io/monitoring": "true"}}});
        let namespaces: Api<Namespace> = Api::all(plane.client().clone());
        namespaces.patch(MONITORING, &PatchParams::default(), &Patch::Merge(label)).await?;
        Ok(Vec::new())
    })
    .await
    .unwrap();
    let client = cluster.plane().client().clone();
    for namespace in OUTSIDE {
        let pods: Api<Pod> = Api::namespaced(client.clone(), namespace);
        create(&pods, &RestrictedPod::new("idle", idle.name()).on(NODE)).await;
    }
    // Without the controller everybody gets in everywhere: each door is one.
    let before = networks(&cluster).await;
    for door in &DOORS {
        let all = who_gets_in(door, &before).await;
        assert_eq!(all.len(), before.len() - 1, "{} of {}: only {all:?}", door.what, door.program);
    }

    // Device managers start with all files that are there then.
    pool::publish(&cluster, SHOP).await;
    let kube_router = KubeRouter::start(cluster.plane(), NODE).await.unwrap();
    restart_everything(&cluster).await;
    let now = networks(&cluster).await;
    wait::until("the policies to be enforced as they are written", async || {
        kube_router.check_running()?;
        for door in &DOORS {
            let expected: Vec<&str> = now
                .keys()
                .copied()
                .filter(|name| *name != door.program && door.lets_in.contains(name))
                .collect();
            let allowed = who_gets_in(door, &now).await;
            let (program, port, what) = (door.program, door.port, door.what);
            ensure!(allowed == expected, "{what} of {program}, {port}: {allowed:?} get in, not {expected:?}");
        }
        Ok(Some(()))
    })
    .await
    .unwrap();

    pool::a_pod_has_its_job_done(&cluster, &Api::namespaced(client, SHOP), NODE).await;
    cluster.stop().await;
}
