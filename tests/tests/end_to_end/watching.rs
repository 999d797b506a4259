//! What Prometheus sees of a whole site: a real one scrapes the real services, answers each query of the dashboards and of
//! the chart's rules, and fires alerts for real faults.

mod faults;
mod site;

use crate::alerts;
use crate::dashboards::{metrics_in, queries};
use fpga_tests::testbed::{helm, wait};
use serde_json::{Value, json};
use site::Site;
use std::collections::BTreeMap;
use std::time::Duration;

/// Longest time that anything may take.
const LONG: Duration = Duration::from_secs(180);

/// Panels without data on a healthy site, and why.
const EMPTY: [(&str, &str); 4] = [
    ("pool: Refused leases", "no manager refuses a lease"),
    ("pool: Jobs without a slot", "each job gets a slot"),
    ("pool: Goals of groups", "there are jobs only, no groups"),
    ("registry: Pods that stay for now", "no pod has a reason to move"),
];

/// The expressions of all alerts by name, but for the one that needs kube-state-metrics.
fn alerts_of_own_metrics() -> BTreeMap<String, String> {
    let rules = alerts::rules();
    let groups = rules["groups"].as_array().unwrap().iter();
    let alerts = groups.flat_map(|group| group["rules"].as_array().unwrap());
    let text = |alert: &Value, key: &str| alert[key].as_str().unwrap().to_owned();
    alerts
        .map(|alert| (text(alert, "alert"), text(alert, "expr")))
        .filter(|(name, _)| name != "FpgaSchedulerHasNoLeader")
        .collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_query_of_dashboards_rules_and_alerts_has_data_of_the_real_services() {
    let site = Site::start().await;
    let rules = helm::template("templates/rules.yaml", &["monitoring.rules=true"]).unwrap();
    let mut rules = serde_saphyr::from_str::<Value>(&rules).unwrap()["spec"].take();
    rules["groups"][0]["interval"] = json!("1s");
    let prometheus = site.scrape_all(&rules).await;
    let http = site.cluster.http();
    let recorded = rules["groups"][0]["rules"].as_array().unwrap();
    let recorded = recorded.iter().map(|rule| rule["record"].as_str().unwrap().to_owned());
    let mut wanted: BTreeMap<String, String> = recorded.map(|record| (record.clone(), record)).collect();
    let (empty, others): (Vec<_>, Vec<_>) =
        queries().into_iter().partition(|query| EMPTY.iter().any(|(place, _)| *place == query.place));
    for (number, query) in others.into_iter().enumerate() {
        wanted.insert(format!("{} ({number})", query.place), query.expression);
    }
    let alerts = alerts_of_own_metrics();
    for (alert, expression) in &alerts {
        // There are jobs only, no groups.
        for metric in metrics_in(expression).into_iter().filter(|metric| *metric != "fpga_pool_groups") {
            wanted.insert(format!("{alert}: {metric}"), metric.to_owned());
        }
    }
    let have_data = wait::until("each query to have data", LONG, async || {
        site.check_running();
        let mut without = BTreeMap::new();
        for (place, expression) in &wanted {
            let series = prometheus.query(http, expression).await?;
            // A ratio of nothing to nothing is not data.
            if !series.iter().any(|(_, value)| value.is_finite()) {
                without.insert(place.clone(), expression.clone());
            }
        }
        wanted.clone_from(&without);
        anyhow::ensure!(without.is_empty(), "no data yet: {without:#?}");
        Ok(Some(()))
    });
    have_data.await.unwrap();
    // They are understood, and would have data if there were something to tell.
    assert_eq!(empty.len(), EMPTY.len());
    for query in empty {
        assert_eq!(prometheus.query(http, &query.expression).await.unwrap(), [], "{}", query.place);
    }
    for (alert, expression) in alerts {
        prometheus.query(http, &expression).await.unwrap_or_else(|error| panic!("{alert}: {error:#}"));
    }
    prometheus.kill().await;
    site.stop().await;
}
