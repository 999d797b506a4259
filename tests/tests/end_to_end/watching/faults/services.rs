//! Faults of the extender's files, the registry, the pool, and the router.

use super::Watched;
use crate::watching::LONG;
use fpga_acc::{Config, Goal, Group, GroupRequest, Pool};
use fpga_tests::testbed::bitstreams::bitstreams;
use fpga_tests::testbed::manifests::kubectl;
use fpga_tests::testbed::pool::TENANTS;
use k8s_openapi::jiff::tz::TimeZone;
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use kube::api::{DeleteParams, PostParams};
use serde_json::json;
use std::collections::VecDeque;
use std::convert::Infallible;
use std::time::Duration;

/// Actions of a group that no board can do in a second, and bytes of each.
const ACTIONS: u64 = 100_000;
const ACTION_BYTES: usize = 200_000;
/// Actions of the group that wait at a time.
const IN_FLIGHT: usize = 8;

/// Submits actions to a group, and takes their output.
async fn submit_for_ever(group: &Group) -> Infallible {
    let mut actions = VecDeque::new();
    loop {
        actions.push_back(group.submit(vec![7; ACTION_BYTES]).await.unwrap());
        if actions.len() == IN_FLIGHT
            && let Some(first) = actions.pop_front()
        {
            first.await.unwrap();
        }
    }
}

impl Watched {
    pub(super) async fn files_of_the_extender_are_wrong(&self) {
        let files = &self.site.files;
        std::fs::write(files.settings(), "weights: none\n").unwrap();
        self.fires("FpgaExtenderSettingsRefused").await;
        std::fs::write(files.settings(), "{}\n").unwrap();
        self.calms_down().await;

        std::fs::write(files.certificate(), "no certificate").unwrap();
        self.fires("FpgaCertificateUnused").await;
        files.issue_certificate();
        self.calms_down().await;

        let end = (Timestamp::now() + SignedDuration::from_hours(72)).to_zoned(TimeZone::UTC).date();
        let day = (end.year().into(), end.month().try_into().unwrap(), end.day().try_into().unwrap());
        files.issue_certificate_until(day);
        self.fires("FpgaCertificateEnds").await;
        files.issue_certificate();
        self.calms_down().await;
    }

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

    pub(super) async fn the_pool_lacks_its_parts(&mut self) {
        self.site.pool.kill_manager(0).await;
        self.fires("FpgaPoolJobsWaitLong").await;
        self.site.pool.restart_manager(0).await.unwrap();
        self.calms_down().await;

        self.site.pool.kill_broker().await;
        self.fires("FpgaPoolHasNoBroker").await;
        self.site.pool.start_broker().await.unwrap();
        self.calms_down().await;
    }

    pub(super) async fn a_goal_is_out_of_reach(&self) {
        let config = Config {
            token_file: Some(self.site.pool.token_file(TENANTS[1])),
            ..Config::of(&self.site.pool.broker_address()).unwrap()
        };
        let pool = Pool::connect(config).unwrap();
        let goal = Goal::Deadline { actions: ACTIONS, within: Duration::from_secs(1) };
        // The other slot is left to jobs.
        let group = pool.open_group(GroupRequest::new("sha-256", goal, 0..=1)).unwrap();
        tokio::select! {
            () = self.fires("FpgaPoolGoalWillBeMissed") => {}
            never = submit_for_ever(&group) => match never {},
        }
        drop(group);
        // Closing blocks: it waits for the last message to the broker.
        tokio::time::timeout(LONG, tokio::task::spawn_blocking(move || pool.close())).await.unwrap().unwrap();
        self.calms_down().await;
    }

    pub(super) async fn the_function_has_no_replica(&self) {
        self.site.scale_function(0).await;
        self.fires("FpgaRouterRefuses").await;
        self.site.scale_function(1).await;
        self.calms_down().await;
    }

    pub(super) async fn router_and_registry_end(&mut self) {
        self.site.router.picker().process().kill().await;
        self.fires_from_now_on("FpgaRouterAbsent").await;
        self.site.registry.process().kill().await;
        self.fires_from_now_on("FpgaRegistryHasNoLeader").await;
    }
}
