//! What the live page shows with few rights, on a real API server with RBAC, as its stream has it.

use bytes::Bytes;
use fpga_test_kit::patience;
use fpga_tests::testbed::control_plane::ControlPlane;
use fpga_tests::testbed::manifests::{self, apply, kubectl};
use fpga_tests::testbed::web::{Parts, Web};
use fpga_tests::testbed::workload::Workload;
use http_body_util::{BodyExt as _, Empty};
use hyper::body::Incoming;
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::Path;
use tempfile::TempDir;

/// The rows that the page has got.
struct Stream {
    body: Incoming,
    text: String,
    /// By table and key.
    rows: BTreeMap<(String, String), Value>,
}

impl Stream {
    async fn open(web: &Web) -> Self {
        let client = Client::builder(TokioExecutor::new()).build_http::<Empty<Bytes>>();
        let answer = client.get(format!("{}stream", web.url()).parse().unwrap()).await.unwrap();
        Self { body: answer.into_body(), text: String::new(), rows: BTreeMap::new() }
    }

    fn row(&self, table: &str, key: &str) -> &Value {
        self.rows.get(&(table.to_owned(), key.to_owned())).unwrap_or(&Value::Null)
    }

    /// State and message of a source.
    fn source(&self, name: &str) -> (&str, &str) {
        let row = self.row("sources", name);
        (row["state"].as_str().unwrap_or_default(), row["message"].as_str().unwrap_or_default())
    }

    /// Reads until the rows are so.
    async fn wait(&mut self, what: &str, are_so: impl Fn(&Self) -> bool) {
        let reading = async {
            while !are_so(self) {
                let frame = self.body.frame().await.expect("the stream is endless").unwrap();
                self.text.push_str(&String::from_utf8_lossy(&frame.into_data().unwrap()));
                while let Some((event, rest)) = self.text.split_once("\n\n") {
                    let message =
                        event.strip_prefix("data: ").map(|text| serde_json::from_str(text).unwrap());
                    let rest = rest.to_owned();
                    self.take(&message.unwrap_or_default());
                    self.text = rest;
                }
            }
        };
        let in_time = tokio::time::timeout(patience(), reading).await.is_ok();
        assert!(in_time, "{what}: {:#?}", self.rows);
    }

    fn take(&mut self, message: &Value) {
        for row in message["rows"].as_array().into_iter().flatten() {
            let key = (row[0].as_str().unwrap().to_owned(), row[1].as_str().unwrap().to_owned());
            self.rows.insert(key, row[2].clone());
        }
    }
}

#[tokio::test]
async fn the_page_shows_what_its_users_rights_allow_and_says_what_is_missing() {
    let plane = ControlPlane::shared().await.unwrap();
    apply(&plane, "pocl").await.unwrap();
    manifests::create_unreachable_extender(&plane).await.unwrap();
    let dir = TempDir::new().unwrap();
    let file = |name: &str, value: &Value| {
        let path = dir.path().join(name);
        std::fs::write(&path, value.to_string()).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let [shop, other] = ["shop", "other"].map(|prefix| plane.new_namespace(prefix));
    let (shop, other) = (shop.await.unwrap(), other.await.unwrap());
    let mut pod = Workload::accelerated("sobel", ["true"]).bitstreams("sobel").pod();
    pod["apiVersion"] = json!("v1");
    pod["kind"] = json!("Pod");
    pod["spec"]["serviceAccountName"] = json!("viewer");
    let pod = file("pod.json", &pod);
    for namespace in [&other, &shop] {
        kubectl(&plane, &["-n", namespace, "create", "serviceaccount", "viewer"]).await.unwrap();
        kubectl(&plane, &["-n", namespace, "apply", "-f", &pod]).await.unwrap();
    }
    let token = manifests::token_in(plane.client(), &shop, "viewer", None).await.unwrap();
    let mut kubeconfig = serde_json::to_value(manifests::kubeconfig(&plane, &token).unwrap()).unwrap();
    for context in kubeconfig["contexts"].as_array_mut().unwrap() {
        context["context"]["namespace"] = json!(shop);
    }
    let kubeconfig = file("kubeconfig", &kubeconfig);
    let start = async |log: &str| {
        Web::start_with(Path::new(&kubeconfig), &dir.path().join(log), &Parts::default()).await.unwrap()
    };

    // Without rights the page is empty, and each source says which right is missing.
    let web = start("without").await;
    let mut page = Stream::open(&web).await;
    let sources = ["nodes", "pods", "extender", "picker"];
    page.wait("all is forbidden", |page| {
        sources.iter().all(|name| {
            let (state, message) = page.source(name);
            state == "forbidden" && message.contains("kubectl create")
        })
    })
    .await;
    let others = page.rows.iter().filter(|((table, _), row)| table != "sources" && !row.is_null());
    assert_eq!(others.count(), 0, "{:#?}", page.rows);

    let (in_shop, in_other) = (format!("{shop}/sobel"), format!("{other}/sobel"));
    // Who may see pods of a namespace sees these, also when the right comes while the page is open.
    kubectl(&plane, &["-n", &shop, "create", "role", "viewer", "--verb=get,list,watch", "--resource=pods"])
        .await
        .unwrap();
    let account = format!("--serviceaccount={shop}:viewer");
    kubectl(&plane, &["-n", &shop, "create", "rolebinding", "viewer", "--role=viewer", &account])
        .await
        .unwrap();
    page.wait("the namespace's pods", |page| {
        let (state, message) = page.source("pods");
        state == "live"
            && message.starts_with(&format!("Only pods of namespace {shop} are shown"))
            && !page.row("pods", &in_shop).is_null()
    })
    .await;
    assert!(page.row("pods", &in_other).is_null(), "{:#?}", page.rows);
    assert_eq!(page.source("nodes").0, "forbidden");
    web.stop().await;

    // With the rights of the file all is shown; that no replica of the extender answers is no question of rights.
    manifests::grant_plugins_rights(&plane, &shop, "viewer").await.unwrap();
    let web = start("with").await;
    let mut page = Stream::open(&web).await;
    page.wait("all that the rights allow", |page| {
        ["nodes", "pods"].iter().all(|name| page.source(name) == ("live", ""))
            && [&in_other, &in_shop].iter().all(|pod| !page.row("pods", pod).is_null())
            && page.source("extender").0 == "lost"
    })
    .await;
    web.stop().await;
    plane.stop().await;
}
