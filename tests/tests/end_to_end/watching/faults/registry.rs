//! Faults of the registry's writes and of its moves.

use super::Watched;
use fpga_tests::testbed::bitstreams::bitstreams;
use fpga_tests::testbed::manifests::kubectl;
use kube::api::{DeleteParams, PostParams};
use serde_json::json;

impl Watched {
    pub(super) async fn the_registry_may_not_write(&self) {
        let plane = self.site.cluster.plane();
        // The third rule is the right to write statuses of Bitstreams.
        let set_verbs = async |verb: &str| {
            let patch = json!([
                {"op": "test", "path": "/rules/2/resources", "value": ["bitstreams/status"]},
                {"op": "replace", "path": "/rules/2/verbs", "value": [verb]},
            ]);
            let patch = patch.to_string();
            kubectl(plane, &["patch", "clusterrole", "kube-fpga:registry", "--type=json", "-p", &patch])
                .await
                .unwrap();
        };
        set_verbs("get").await;
        let bitstreams = bitstreams(plane.client());
        let new = json!({
            "apiVersion": "fpga-scheduling.io/v1alpha1", "kind": "Bitstream", "metadata": {"name": "new"},
            "spec": {"variants": [{
                "vendor": "intel", "board": "a10", "shell": "1.2", "bytes": 1,
                "digest": format!("sha256:{}", "0a".repeat(32)), "source": {"https": "https://files.example/x"},
            }]},
        });
        bitstreams.create(&PostParams::default(), &serde_json::from_value(new).unwrap()).await.unwrap();
        self.fires("FpgaRegistryWritesFail").await;
        set_verbs("patch").await;
        bitstreams.delete("new", &DeleteParams::default()).await.unwrap();
        self.calms_down().await;
    }

    /// A pod is evicted since its board is gone. It may not go back to its node for a while, and there is no other one of its
    /// vendor.
    pub(super) async fn a_moved_pod_fits_nowhere_else(&self) {
        let plane = self.site.cluster.plane();
        self.site.deploy_pair("pair").await;
        let of_pair = ["get", "pods", "--selector=app=pair", "--output=jsonpath={.items[0].metadata.name}"];
        let pod = kubectl(plane, &of_pair).await.unwrap();
        // As the node plugin wrote before the board was taken out.
        kubectl(plane, &["annotate", "pod", &pod, "fpga-scheduling.io/boards=gone"]).await.unwrap();
        self.fires("FpgaMovesStuck").await;
        kubectl(plane, &["delete", "deployment/pair"]).await.unwrap();
        self.calms_down().await;
    }
}
