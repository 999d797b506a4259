//! Faults of a node's parts.

use super::Watched;
use crate::watching::LONG;
use crate::watching::site::NODES;
use fpga_tests::testbed::bitstreams::bitstreams;
use fpga_tests::testbed::cluster::{Disk, rbac};
use fpga_tests::testbed::manifests::kubectl;
use fpga_tests::testbed::wait;
use fpga_tests::testbed::workload::Workload;
use k8s_openapi::api::apps::v1::Deployment;
use kube::Api;
use kube::api::PostParams;
use serde_json::json;

impl Watched {
    pub(super) async fn parts_of_a_node_end(&mut self) {
        // The node's state is too old a moment later, for which there is no second alert.
        self.site.cluster.board(NODES[1]).unwrap().kill_collector().await;
        self.fires("FpgaCollectorAbsent").await;
        self.site.cluster.board(NODES[1]).unwrap().start_collector().await.unwrap();
        self.calms_down().await;

        self.site.kill_plugin().await;
        self.fires("FpgaNodePluginAbsent").await;
        self.site.restart_plugin();
        self.calms_down().await;

        let plane = self.site.cluster.plane();
        kubectl(plane, &["delete", "clusterrolebinding", "kube-fpga:collector"]).await.unwrap();
        self.fires("FpgaNodeStatesStale").await;
        rbac::grant(plane).await.unwrap();
        self.calms_down().await;
    }

    pub(super) async fn the_collectors_disk_is_full(&self) {
        let board = &self.site.cluster.boards[0];
        board.set_disk(Disk::Full).unwrap();
        self.fires("FpgaCollectorCannotStore").await;
        board.set_disk(Disk::Free).unwrap();
        self.calms_down().await;
    }

    pub(super) async fn the_plugin_refuses_containers(&mut self) {
        let kubelet = self.site.start_kubelet();
        let (plane, client) = (self.site.cluster.plane(), self.site.cluster.plane().client());
        // Its host is none of those that the plugin may ask.
        let faraway = json!({
            "apiVersion": "fpga-scheduling.io/v1alpha1", "kind": "Bitstream", "metadata": {"name": "faraway"},
            "spec": {"variants": [{
                "vendor": "emulated", "board": "emulated", "shell": "1.0", "bytes": 1,
                "digest": format!("sha256:{}", "0b".repeat(32)), "source": {"https": "https://other.example/x"},
            }]},
        });
        let faraway = serde_json::from_value(faraway).unwrap();
        bitstreams(client).create(&PostParams::default(), &faraway).await.unwrap();
        let fetches = Workload::accelerated("fetches", ["sleep", "3600"]).on(NODES[1]).bitstreams("faraway");
        self.site.cluster.create(&fetches).await.unwrap();
        kubelet.admit("default", "fetches").await;
        let refused = kubelet.start_container("fetches").await.unwrap_err();
        assert!(refused.message().contains("other.example"), "{refused}");
        self.fires("FpgaBitstreamsNotFetched").await;
        kubectl(plane, &["delete", "pod/fetches", "bitstream/faraway"]).await.unwrap();
        self.calms_down().await;

        // It was bound to the node when the node had another board.
        let unserved =
            Workload::accelerated("unserved", ["sleep", "3600"]).on(NODES[1]).requires("board", "other");
        let deployments: Api<Deployment> = Api::default_namespaced(client.clone());
        let unserved = serde_json::from_value(unserved.deployment(1)).unwrap();
        deployments.create(&PostParams::default(), &unserved).await.unwrap();
        let of_it = ["get", "pods", "--selector=app=unserved", "--output=jsonpath={.items[*].metadata.name}"];
        let pod = wait::until_within("the pod to be there", LONG, async || {
            let name = kubectl(plane, &of_it).await?;
            Ok((!name.is_empty()).then_some(name))
        });
        let pod = pod.await.unwrap();
        kubelet.admit("default", &pod).await;
        // The kubelet tries again and again. The plugin keeps the controller's pods off after a minute.
        let tries = async {
            loop {
                let refused = kubelet.start_container(&pod).await.unwrap_err();
                assert!(!refused.message().is_empty());
            }
        };
        tokio::select! {
            () = self.fires("FpgaNodeKeepsPodsOff") => {}
            () = tries => {}
        }
        kubectl(plane, &["delete", "deployment/unserved"]).await.unwrap();
        // The plugin would keep them off for ten minutes.
        self.site.kill_plugin().await;
        self.site.restart_plugin();
        self.calms_down().await;
    }
}
