//! Real faults of a real site: each makes its alert fire, and no other one. Alerts wait a second instead of minutes, and look
//! back over seconds.

mod boards;
mod functions;
mod nodes;
mod pool;
mod registry;
mod runbook;
mod scheduler;

use super::site::Site;
use super::{LONG, expressions_of_alerts};
use crate::alerts::rules;
use fpga_tests::testbed::prometheus::Prometheus;
use fpga_tests::testbed::wait;
use runbook::Shell;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::sync::Mutex;
use std::time::Duration;
use tokio::time::Instant;

/// Time for which nothing but the expected alerts may fire, before the fault and with it.
const STEADY: Duration = Duration::from_secs(4);

/// The chart's alerts, which wait and look back for seconds.
fn short_rules() -> Value {
    let mut rules = rules();
    for group in rules["groups"].as_array_mut().unwrap() {
        for alert in group["rules"].as_array_mut().unwrap() {
            alert["for"] = json!("1s");
            let mut expression = alert["expr"].as_str().unwrap().to_owned();
            for range in ["[5m]", "[10m]", "[15m]", "[30m]", "[1h]"] {
                expression = expression.replace(range, "[10s]");
            }
            // Jobs wait for 15 minutes by default, and a lease is renewed each 2 s.
            alert["expr"] = json!(expression.replace("> 900", "> 5").replace("> 60\n", "> 10\n"));
        }
    }
    rules
}

/// A site under a Prometheus.
struct Watched {
    site: Site,
    prometheus: Prometheus,
    shell: Shell,
    /// The alerts that fire since their faults can't be mended.
    lasting: BTreeSet<String>,
    /// The alerts that have fired.
    fired: Mutex<BTreeSet<String>>,
}

impl Watched {
    async fn start() -> Self {
        let site = Site::start().await;
        let prometheus = site.scrape_nodes(&short_rules()).await;
        let shell = Shell::new(&site);
        let watched = Self { site, prometheus, shell, lasting: BTreeSet::new(), fired: Mutex::default() };
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
        let steady = wait::until_within(&what, LONG, async || {
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

    /// Waits until this alert fires, beside those that last, and no other one does. Then follows its runbook.
    async fn fires(&self, alert: &str) {
        let mut expected = self.lasting.clone();
        assert!(expected.insert(alert.to_owned()));
        self.wait_for(&expected).await;
        self.shell.follow(alert).await;
        self.fired.lock().unwrap().insert(alert.to_owned());
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
    watched.the_collectors_disk_is_full().await;
    watched.the_plugin_refuses_containers().await;
    watched.files_of_the_extender_are_wrong().await;
    watched.the_extender_gets_little_time().await;
    watched.nobody_schedules().await;
    watched.the_registry_may_not_write().await;
    watched.a_moved_pod_fits_nowhere_else().await;
    watched.the_pool_lacks_its_parts().await;
    watched.a_goal_is_out_of_reach().await;
    watched.a_task_of_a_lease_does_not_end().await;
    watched.functions_take_turns_on_one_slot().await;
    watched.the_picker_hears_nothing().await;
    watched.the_function_has_no_replica().await;
    watched.router_and_registry_end().await;
    let alerts = expressions_of_alerts().into_keys().collect::<BTreeSet<_>>();
    assert_eq!(*watched.fired.lock().unwrap(), alerts, "left: those that fired, right: those of the chart");
    watched.prometheus.kill().await;
}
