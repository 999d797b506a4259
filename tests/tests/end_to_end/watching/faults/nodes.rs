//! Faults of a node's parts.

use super::Watched;
use crate::watching::site::NODES;
use fpga_tests::testbed::cluster::rbac;
use fpga_tests::testbed::manifests::kubectl;

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
}
