//! What Prometheus sees of a whole site: a real one scrapes the real services, answers each query of the dashboards and of
//! the chart's rules, and fires alerts for real faults.

mod faults;
mod site;

use crate::alerts::{self, LEASE};
use crate::dashboards::{metrics_in, queries, variable_queries};
use fpga_acc::{Goal, GroupRequest};
use fpga_tests::testbed::pool::TENANTS;
use fpga_tests::testbed::{helm, wait};
use serde_json::{Value, json};
use site::Site;
use std::collections::BTreeMap;
use std::time::Duration;

/// Longest time that anything may take.
const LONG: Duration = Duration::from_secs(180);

/// The expressions of all alerts by name.
fn expressions_of_alerts() -> BTreeMap<String, String> {
    let rules = alerts::rules();
    let groups = rules["groups"].as_array().unwrap().iter();
    let alerts = groups.flat_map(|group| group["rules"].as_array().unwrap());
    let text = |alert: &Value, key: &str| alert[key].as_str().unwrap().to_owned();
    alerts.map(|alert| (text(alert, "alert"), text(alert, "expr"))).collect()
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
    for (number, query) in queries().into_iter().enumerate() {
        wanted.insert(format!("{} ({number})", query.place), query.expression);
    }
    let alerts = expressions_of_alerts();
    for (alert, expression) in &alerts {
        for metric in metrics_in(expression) {
            wanted.insert(format!("{alert}: {metric}"), metric.to_owned());
        }
    }
    wanted.insert("the lease of kube-scheduler".to_owned(), LEASE.to_owned());
    let (pool, _lost) = (site.pool_of(TENANTS[1]), site.start_job_without_bitstream());
    let goal = Goal::Throughput { actions_per_hour: 1 };
    let group = pool.open_group(GroupRequest::new("sha-256", goal, 0..=1)).unwrap();
    let have_data = wait::until_within("each query to have data", LONG, async || {
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
    for query in variable_queries() {
        let values = prometheus.label_values(http, &query.series, &query.label).await.unwrap();
        assert!(!values.is_empty(), "{query:?} has no values");
    }
    for (alert, expression) in alerts {
        prometheus.query(http, &expression).await.unwrap_or_else(|error| panic!("{alert}: {error:#}"));
    }
    drop(group);
    prometheus.kill().await;
    site.stop().await;
}
