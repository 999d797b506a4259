//! The dashboards, as Grafana imports them: whether Prometheus understands their queries, and has what they ask for.

use fpga_tests::testbed::programs::repository;
use fpga_tests::testbed::prometheus::promtool;
use serde_json::{Value, json};
use std::collections::BTreeSet;

/// The variable with the source of the data.
const SOURCE: &str = "datasource";

/// A query of a panel, and where it stands.
#[derive(Debug)]
pub struct Query {
    /// Dashboard and title of the panel.
    pub place: String,
    /// The expression with Grafana's variables filled in: rates over half a minute, and each node, board, tenant, and function.
    pub expression: String,
}

/// The dashboards by name.
fn dashboards() -> Vec<(String, Value)> {
    let files = std::fs::read_dir(repository().join("manifests/rendered")).unwrap();
    let mut dashboards: Vec<_> = files
        .filter_map(|file| {
            let path = file.unwrap().path();
            let name =
                path.file_name()?.to_str()?.strip_prefix("dashboard-")?.strip_suffix(".json")?.to_owned();
            Some((name, serde_json::from_str(&std::fs::read_to_string(&path).unwrap()).unwrap()))
        })
        .collect();
    dashboards.sort_by(|(one, _), (other, _)| one.cmp(other));
    dashboards
}

fn list(value: &Value) -> &[Value] {
    value.as_array().unwrap()
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap()
}

/// The names of a dashboard's variables, without that of the source of the data.
fn variables(dashboard: &Value) -> Vec<&str> {
    let variables = list(&dashboard["templating"]["list"]).iter().map(|variable| text(&variable["name"]));
    variables.filter(|name| *name != SOURCE).collect()
}

/// The queries of all panels of all dashboards.
pub fn queries() -> Vec<Query> {
    let mut queries = Vec::new();
    for (name, dashboard) in dashboards() {
        for panel in list(&dashboard["panels"]) {
            for target in list(&panel["targets"]) {
                let mut expression = text(&target["expr"]).replace("$__rate_interval", "30s");
                for variable in variables(&dashboard) {
                    expression = expression.replace(&format!("\"${variable}\""), "\".*\"");
                }
                assert!(!expression.contains('$'), "{name}: no such variable: {expression}");
                queries.push(Query { place: format!("{name}: {}", text(&panel["title"])), expression });
            }
        }
    }
    assert!(queries.len() > 80, "only {} queries were found", queries.len());
    queries
}

/// What Grafana asks for the values of a variable: `label_values(SERIES, LABEL)`.
#[derive(Debug)]
pub struct LabelValues {
    /// The series, with the other variables filled in.
    pub series: String,
    /// The label.
    pub label: String,
}

/// The queries of all variables of all dashboards.
pub fn variable_queries() -> Vec<LabelValues> {
    let mut queries = Vec::new();
    for (name, dashboard) in dashboards() {
        for variable in list(&dashboard["templating"]["list"]) {
            let Some(query) = variable["query"]["query"].as_str() else { continue };
            let inner = query.strip_prefix("label_values(").and_then(|rest| rest.strip_suffix(')'));
            let (series, label) =
                inner.and_then(|inner| inner.rsplit_once(", ")).unwrap_or_else(|| panic!("{name}: {query}"));
            let mut series = series.to_owned();
            for variable in variables(&dashboard) {
                series = series.replace(&format!("\"${variable}\""), "\".*\"");
            }
            queries.push(LabelValues { series, label: label.to_owned() });
        }
    }
    assert!(queries.len() > 4, "only {} variables were found", queries.len());
    queries
}

/// The names of our metrics in a text.
pub fn metrics_in(text: &str) -> BTreeSet<&str> {
    let words = text.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_' || c == ':'));
    words.filter(|word| word.starts_with("fpga_")).collect()
}

/// The names of all metrics of our services, from the reference, which is made from the code.
pub fn known_metrics() -> BTreeSet<String> {
    let page = std::fs::read_to_string(repository().join("book/reference/metrics.md")).unwrap();
    let rows = page.lines().filter_map(|line| line.strip_prefix("| `fpga_"));
    let mut known = BTreeSet::new();
    for row in rows {
        let mut cells = row.split(" | ");
        let name = format!("fpga_{}", cells.next().unwrap().trim_end_matches('`'));
        match cells.next().unwrap() {
            "histogram" => known.extend(["_bucket", "_sum", "_count"].map(|suffix| name.clone() + suffix)),
            _ => _ = known.insert(name),
        }
    }
    assert!(known.len() > 100, "only {} metrics were found", known.len());
    known
}

#[test]
fn each_panel_asks_the_chosen_source_and_each_variable_is_used() {
    for (name, dashboard) in &dashboards() {
        assert_eq!(dashboard["uid"], format!("kube-fpga-{name}"));
        let source = json!({"type": "prometheus", "uid": format!("${{{SOURCE}}}")});
        for panel in list(&dashboard["panels"]) {
            let title = text(&panel["title"]);
            for target in list(&panel["targets"]) {
                assert_eq!(
                    (&panel["datasource"], &target["datasource"]),
                    (&source, &source),
                    "{name}: {title}"
                );
            }
        }
        let panels = dashboard["panels"].to_string();
        for variable in variables(dashboard) {
            assert!(panels.contains(&format!("${variable}\\\"")), "{name}: no panel asks for {variable}");
        }
    }
}

#[test]
fn each_query_of_a_panel_is_one_that_prometheus_understands_over_metrics_that_there_are() {
    let (known, queries) = (known_metrics(), queries());
    let dashboards = dashboards();
    let of_variables = dashboards.iter().flat_map(|(name, dashboard)| {
        let variables = list(&dashboard["templating"]["list"]).iter();
        variables.filter_map(move |variable| Some((name.as_str(), variable["query"]["query"].as_str()?)))
    });
    let of_panels = queries.iter().map(|query| (query.place.as_str(), query.expression.as_str()));
    for (place, query) in of_panels.chain(of_variables) {
        let named = metrics_in(query);
        assert!(!named.is_empty() || query.contains("envoy_"), "{place}: {query}");
        let unknown: Vec<_> = named.iter().filter(|metric| !known.contains(**metric)).collect();
        assert!(unknown.is_empty(), "{place}: no service has {unknown:?}");
    }
    // Promtool parses expressions where they are rules.
    let rules: Vec<Value> = queries
        .iter()
        .enumerate()
        .map(|(number, query)| json!({"record": format!("query:{number}"), "expr": query.expression}))
        .collect();
    let folder = tempfile::tempdir().unwrap();
    let file = json!({"groups": [{"name": "queries", "rules": rules}]});
    std::fs::write(folder.path().join("rules.yaml"), file.to_string()).unwrap();
    promtool(folder.path(), &["check", "rules", "rules.yaml"]).unwrap();
}
