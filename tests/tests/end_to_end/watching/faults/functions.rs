//! Faults that requests of functions meet.

use super::Watched;
use fpga_tests::functions::Function;
use fpga_tests::testbed::manifests::kubectl;

impl Watched {
    pub(super) async fn the_function_has_no_replica(&self) {
        self.site.scale_function(0).await;
        self.fires("FpgaRouterRefuses").await;
        self.site.scale_function(1).await;
        self.calms_down().await;
    }

    pub(super) async fn functions_take_turns_on_one_slot(&self) {
        self.site.add_function(Function::Matmul).await;
        tokio::select! {
            () = self.fires("FpgaColdStartsPrevail") => {}
            () = self.site.call(Function::Matmul) => {}
        }
        kubectl(self.site.cluster.plane(), &["delete", "service/matmul", "deployment/matmul"]).await.unwrap();
        self.calms_down().await;
    }

    pub(super) async fn the_picker_hears_nothing(&self) {
        self.site.to_picker.shut();
        self.fires("FpgaRouterGuesses").await;
        self.site.to_picker.open();
        self.calms_down().await;
    }

    pub(super) async fn router_and_registry_end(&mut self) {
        self.site.router.picker().process().kill().await;
        self.fires_from_now_on("FpgaRouterAbsent").await;
        self.site.registry.process().kill().await;
        self.fires_from_now_on("FpgaRegistryHasNoLeader").await;
    }
}
