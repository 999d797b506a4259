//! Real faults of a real site: each makes its alert fire, and no other one. Alerts wait a second instead of minutes, and look
//! back over seconds.

mod boards;
mod nodes;
mod services;

use super::LONG;
use super::site::Site;
use crate::alerts::rules;
use fpga_tests::testbed::prometheus::Prometheus;
use fpga_tests::testbed::wait;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::time::Duration;
use tokio::time::Instant;

/// Time for which nothing but the expected alerts may fire, before the fault and with it.
const STEADY: Duration = Duration::from_secs(4);

/// The chart's alerts, which wait and look back for seconds. Without that on the lease of kube-scheduler, for which there would have
/// to be a kube-state-metrics.
fn short_rules() -> Value {
    let mut rules = rules();
    for group in rules["groups"].as_array_mut().unwrap() {
        let alerts = group["rules"].as_array_mut().unwrap();
        alerts.retain(|alert| alert["alert"] != "FpgaSchedulerHasNoLeader");
        for alert in alerts {
            alert["for"] = json!("1s");
            let mut expression = alert["expr"].as_str().unwrap().to_owned();
            for range in ["[5m]", "[10m]", "[15m]", "[30m]", "[1h]"] {
                expression = expression.replace(range, "[15s]");
            }
            // Jobs wait for 15 minutes by default.
            alert["expr"] = json!(expression.replace("> 900", "> 5"));
        }
    }
    rules
}

/// A site under a Prometheus, and the alerts that fire since their faults can't be mended.
struct Watched {
    site: Site,
    prometheus: Prometheus,
    lasting: BTreeSet<String>,
}

impl Watched {
    async fn start() -> Self {
        let site = Site::start().await;
        let prometheus = site.scrape_nodes(&short_rules()).await;
        let watched = Self { site, prometheus, lasting: BTreeSet::new() };
        watched.calms_down().await;
        watched
    }

    /// The names of the alerts that fire. Their texts have the values of all labels.
    async fn firing(&self) -> anyhow::Result<BTreeSet<String>> {
        let alerts = self.prometheus.firing(self.site.cluster.http()).await?;
        for text in alerts.iter().flat_map(|alert| alert["annotations"].as_object().unwrap().values()) {
            let text = text.as_str().unwrap();
            assert!(
                !text.contains("{{") && !text.contains("<no value>") && !text.contains("<error"),
                "{text}"
            );
        }
        Ok(alerts.iter().map(|alert| alert["labels"]["alertname"].as_str().unwrap().to_owned()).collect())
    }

    /// Waits until these alerts fire, and no other one for some seconds.
    async fn wait_for(&self, expected: &BTreeSet<String>) {
        let mut since = Instant::now();
        let what = format!("{expected:?} to fire alone");
        let steady = wait::until(&what, LONG, async || {
            let firing = self.firing().await?;
            if firing != *expected {
                since = Instant::now();
                anyhow::bail!("these fire: {firing:?}");
            }
            Ok((since.elapsed() >= STEADY).then_some(()))
        });
        steady.await.unwrap();
    }

    async fn calms_down(&self) {
        self.wait_for(&self.lasting).await;
    }

    /// Waits until this alert fires, beside those that last, and no other one does.
    async fn fires(&self, alert: &str) {
        let mut expected = self.lasting.clone();
        assert!(expected.insert(alert.to_owned()));
        self.wait_for(&expected).await;
        println!("{alert} fires, and no other one");
    }

    async fn fires_from_now_on(&mut self, alert: &str) {
        self.fires(alert).await;
        self.lasting.insert(alert.to_owned());
    }
}

#[ignore = "takes some minutes; `make test-alerts` runs it"]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn real_faults_make_their_alerts_fire_and_no_others() {
    let mut watched = Watched::start().await;
    watched.boards_fail().await;
    watched.managers_fail().await;
    watched.parts_of_a_node_end().await;
    watched.files_of_the_extender_are_wrong().await;
    watched.the_registry_may_not_write().await;
    watched.the_pool_lacks_its_parts().await;
    watched.a_goal_is_out_of_reach().await;
    watched.the_function_has_no_replica().await;
    watched.router_and_registry_end().await;
    watched.prometheus.kill().await;
}
