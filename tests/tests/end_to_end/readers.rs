//! Who may read at the ports of extender and picker for people: their rights are those of the chart, and the API server
//! is a real one.

use fpga_test_kit::patience;
use fpga_tests::testbed::control_plane::ControlPlane;
use fpga_tests::testbed::http_client::HttpClient;
use fpga_tests::testbed::manifests::{self, NAMESPACE, apply, kubectl};
use fpga_tests::testbed::process::{Process, ProcessSpec};
use fpga_tests::testbed::{programs, wait};
use k8s_openapi::api::authentication::v1::TokenRequest;
use k8s_openapi::api::core::v1::{Node, ServiceAccount};
use k8s_openapi::jiff::Timestamp;
use kube::Api;
use kube::api::PostParams;
use serde_json::json;
use std::path::PathBuf;

const EXTENDER: &str = "fpga-scheduler-extender";
const PICKER: &str = "fpga-endpoint-picker";
/// Words of the rival's objects.
const SECRETS: [&str; 4] = ["rival", "masterplan", "uid-of-masterplan", "secret-accelerator"];

/// A service with the account and the rights of the chart.
struct Service {
    _process: Process,
    /// Address of its first port.
    main: String,
    /// URL of its port for people.
    read: String,
    audience: String,
}

/// Extender and picker, which know of a pod and a function of the tenants `shop` and `rival`.
struct Bed {
    plane: ControlPlane,
    http: HttpClient,
    extender: Service,
    picker: Service,
    /// A node with the accelerator of `rival`.
    node: String,
    shop: String,
    rival: String,
}

async fn start(plane: &ControlPlane, http: &HttpClient, name: &str, account: &str) -> Service {
    let token = manifests::token(plane.client(), account, None).await.unwrap();
    let folder = plane.run_dir().path();
    let (kubeconfig, ready) =
        (folder.join(format!("{name}.kubeconfig")), folder.join(format!("{name}.ready")));
    write_kubeconfig(plane, &token, &kubeconfig);
    let spec = ProcessSpec::new(name, programs::built(name).unwrap(), plane.run_dir().log(name))
        .args(["--listen", "127.0.0.1:0", "--read-listen", "127.0.0.1:0", "--shutdown-delay", "0s"])
        .arg("--kubeconfig")
        .arg(&kubeconfig)
        .arg("--ready-file")
        .arg(&ready);
    let process = Process::start(&spec).unwrap();
    let (main, read) = wait::until(&format!("{name} to be ready"), async || {
        process.check_running()?;
        let Ok(text) = std::fs::read_to_string(&ready) else { return Ok(None) };
        let main = text.lines().next().unwrap_or_default().to_owned();
        let read = text.lines().find_map(|line| line.strip_prefix("read:")).unwrap_or_default();
        let read = format!("http://{read}");
        let is_ready = http.get(&format!("{read}/readyz")).await?.status.is_success();
        Ok(is_ready.then_some((main, read)))
    })
    .await
    .unwrap();
    Service { _process: process, main, read, audience: format!("{name}-read") }
}

fn write_kubeconfig(plane: &ControlPlane, token: &str, path: &PathBuf) {
    let kubeconfig = serde_json::to_string(&manifests::kubeconfig(plane, token).unwrap()).unwrap();
    std::fs::write(path, kubeconfig).unwrap();
}

impl Bed {
    async fn start() -> Self {
        let plane = ControlPlane::shared().await.unwrap();
        apply(&plane, "router").await.unwrap();
        let http = HttpClient::new(patience());
        let extender = start(&plane, &http, EXTENDER, EXTENDER).await;
        let picker = start(&plane, &http, PICKER, "fpga-router").await;
        let [shop, rival] = ["shop", "rival"].map(|prefix| plane.new_namespace(prefix));
        let (shop, rival) = (shop.await.unwrap(), rival.await.unwrap());
        for namespace in [&shop, &rival] {
            kubectl(&plane, &["-n", namespace, "create", "serviceaccount", "viewer"]).await.unwrap();
            let account = format!("--serviceaccount={namespace}:viewer");
            let binding =
                ["-n", namespace, "create", "rolebinding", "viewer", "--clusterrole=view", &account];
            kubectl(&plane, &binding).await.unwrap();
        }
        let node = plane.unique("node");
        let bed = Self { plane, http, extender, picker, node, shop, rival };
        bed.add_node().await;
        bed.decide_about(&bed.rival, "masterplan", "secret-accelerator").await;
        let told = bed.decide_about(&bed.shop, "window", "sobel").await;
        // kube-scheduler puts these words into events of the pod.
        assert!(told.contains(&bed.node), "{told}");
        assert_eq!(secret_in(&told), None, "{told}");
        bed
    }

    /// Adds a node whose board has the accelerator of `rival`, and waits until the extender knows it.
    async fn add_node(&self) {
        let device = json!({
            "id": "dm0", "vendor": "none", "board": "emulated", "shell": "1.0", "slots": 1, "loaded": [0], "usageMs": 0,
            "queued": 0, "healthy": true,
        });
        let state = json!({
            "v": 1, "boot": 1, "seq": 1, "heartbeatMs": 60_000, "windowMs": 300_000, "usageMs": 0, "reconfigurationMs": 0,
            "measuredAtMs": Timestamp::now().as_millisecond(), "devices": [device],
            "bitstreams": [{"name": "secret-accelerator", "lastUsedAgoMs": 10}],
            "window": {"bucketMs": 10_000, "usageMs": [], "reconfigurationMs": []},
        });
        let node = json!({
            "metadata": {
                "name": self.node,
                "labels": {"fpga-scheduling.io/fpga-vendor": "none"},
                "annotations": {"fpga-scheduling.io/node-state": state.to_string()},
            },
        });
        let nodes: Api<Node> = Api::all(self.plane.client().clone());
        nodes.create(&PostParams::default(), &serde_json::from_value(node).unwrap()).await.unwrap();
        let known = format!("http://{}/nodes", self.extender.main);
        wait::until("the extender to know the node", async || {
            let nodes = self.http.get(&known).await?.text();
            Ok((nodes.contains(&self.node) && nodes.contains("secret-accelerator")).then_some(()))
        })
        .await
        .unwrap();
    }

    /// Lets the extender decide about a pod, and the picker know a function of the same name. Returns what kube-scheduler
    /// is told.
    async fn decide_about(&self, namespace: &str, name: &str, bitstream: &str) -> String {
        let pod = json!({
            "metadata": {
                "name": name, "namespace": namespace, "uid": format!("uid-of-{name}"),
                "annotations": {"fpga-scheduling.io/bitstreams": bitstream},
                "labels": {"fpga-scheduling.io/fpga-vendor": "none"},
            },
            "spec": {"containers": []},
        });
        let asked = json!({"Pod": pod, "NodeNames": [self.node]}).to_string();
        let mut told = String::new();
        for verb in ["filter", "prioritize"] {
            let url = format!("http://{}/{verb}", self.extender.main);
            let answer = self.http.post(&url, asked.clone()).await.unwrap();
            assert!(answer.status.is_success(), "{verb}: {}", answer.text());
            told += &answer.text();
        }
        let service = self.plane.run_dir().path().join(format!("{name}.json"));
        let labels = json!({"fpga-scheduling.io/function": name});
        let object = json!({
            "apiVersion": "v1", "kind": "Service", "metadata": {"name": name, "namespace": namespace, "labels": labels},
            "spec": {"selector": {"app": name}, "ports": [{"port": 80}]},
        });
        std::fs::write(&service, object.to_string()).unwrap();
        kubectl(&self.plane, &["apply", "-f", service.to_str().unwrap()]).await.unwrap();
        let reader = self.token(NAMESPACE, "fpga-reader", &self.picker.audience).await;
        let picks = format!("/picks/{namespace}/{name}");
        wait::until("the picker to know the function", async || {
            let (status, _) = self.ask(&self.picker, &picks, Some(&reader)).await;
            Ok((status == 200).then_some(()))
        })
        .await
        .unwrap();
        told
    }

    async fn token(&self, namespace: &str, account: &str, audience: &str) -> String {
        let accounts: Api<ServiceAccount> = Api::namespaced(self.plane.client().clone(), namespace);
        let request = json!({"metadata": {}, "spec": {"audiences": [audience]}});
        let request: TokenRequest = serde_json::from_value(request).unwrap();
        let answer = accounts.create_token_request(account, &PostParams::default(), &request).await.unwrap();
        answer.status.unwrap().token.unwrap()
    }

    /// Status and text of the answer to the bearer of a token.
    async fn ask(&self, service: &Service, path: &str, token: Option<&str>) -> (u16, String) {
        let headers: Vec<_> = token.map(|token| ("x-fpga-token", token)).into_iter().collect();
        let answer = self.http.get_with(&format!("{}{path}", service.read), &headers).await.unwrap();
        (answer.status.as_u16(), answer.text())
    }

    /// The paths of a service that tell of a namespace's pod and function, and those that tell of all namespaces.
    fn paths(&self, service: &Service, namespace: &str, name: &str) -> (String, Vec<&'static str>) {
        if service.read == self.extender.read {
            let of_all =
                vec!["/nodes", "/nodes?since=0", "/config", "/decisions", "/decisions?since=0", "/metrics"];
            (format!("/explain/{namespace}/{name}"), of_all)
        } else {
            (format!("/picks/{namespace}/{name}"), vec!["/functions", "/metrics"])
        }
    }

    /// Success and output of `kubectl fpga` for the user with this kubeconfig, who asks these services.
    async fn plugin(&self, kubeconfig: &PathBuf, args: &[&str]) -> (bool, String) {
        let output = tokio::process::Command::new(programs::built("kubectl-fpga").unwrap())
            .args(args)
            .args(["--extender", &self.extender.read, "--picker", &self.picker.read])
            .env_clear()
            .env("KUBECONFIG", kubeconfig)
            .output()
            .await
            .unwrap();
        (output.status.success(), String::from_utf8([output.stdout, output.stderr].concat()).unwrap())
    }
}

/// The first word of the rival's objects in a text.
fn secret_in(text: &str) -> Option<&'static str> {
    SECRETS.into_iter().find(|secret| text.contains(secret))
}

#[tokio::test]
async fn a_tenant_reads_of_its_own_namespace_and_finds_no_name_of_another() {
    let bed = Bed::start().await;
    for service in [&bed.extender, &bed.picker] {
        let tenant = bed.token(&bed.shop, "viewer", &service.audience).await;
        let wrong = bed.token(&bed.shop, "viewer", "another-audience").await;
        let of_api_server = manifests::token_in(bed.plane.client(), &bed.shop, "viewer", None).await.unwrap();
        let reader = bed.token(NAMESPACE, "fpga-reader", &service.audience).await;
        let (own, _) = bed.paths(service, &bed.shop, "window");
        let (others, of_all) = bed.paths(service, &bed.rival, "masterplan");
        let (status, text) = bed.ask(service, &own, Some(&tenant)).await;
        assert!(status == 200 && text.contains("window"), "{own}: {status} {text}");
        assert_eq!(secret_in(&text), None, "{own}: {text}");
        let secret = [vec![others.as_str()], of_all].concat();
        for path in &secret {
            for (token, expected) in
                [(None, 401), (Some(&wrong), 401), (Some(&of_api_server), 401), (Some(&tenant), 403)]
            {
                let (status, text) = bed.ask(service, path, token.map(String::as_str)).await;
                assert_eq!(status, expected, "{path}: {text}");
                // The words about a right repeat the namespace that was asked for.
                assert_eq!(secret_in(&text.replace(&bed.rival, "")), None, "{path}: {text}");
            }
            let (status, text) = bed.ask(service, path, Some(&reader)).await;
            assert_eq!(status, 200, "{path}: {text}");
        }
        for open in ["/healthz", "/readyz"] {
            assert_eq!(bed.ask(service, open, None).await.0, 200, "{open}");
        }
    }
    bed.plane.stop().await;
}

#[tokio::test]
async fn the_plugin_reads_by_tokens_that_its_user_may_create() {
    let bed = Bed::start().await;
    let folder = bed.plane.run_dir().path().to_owned();
    let user = async |name: &str, namespace: &str| {
        let token = manifests::token_in(bed.plane.client(), namespace, name, None).await.unwrap();
        let path = folder.join(format!("user-{name}"));
        write_kubeconfig(&bed.plane, &token, &path);
        path
    };
    let operator = bed.plane.unique("operator");
    kubectl(&bed.plane, &["-n", NAMESPACE, "create", "serviceaccount", &operator]).await.unwrap();
    let as_operator = user(&operator, NAMESPACE).await;
    let (pod, function) = (format!("{}/masterplan", bed.rival), format!("{}/masterplan", bed.rival));
    let (well, text) = bed.plugin(&as_operator, &["nodes"]).await;
    assert!(!well && text.contains("--resource=serviceaccounts/token --resource-name=fpga-reader"), "{text}");

    manifests::grant_plugins_rights(&bed.plane, NAMESPACE, &operator).await.unwrap();
    wait::until("the rights to hold", async || {
        let (well, text) = bed.plugin(&as_operator, &["nodes"]).await;
        anyhow::ensure!(well, "{text}");
        Ok(Some(()))
    })
    .await
    .unwrap();
    for (command, words) in [
        (["explain", &pod], "secret-accelerator"),
        (["route", &function], "function"),
        (["top", "--by=replica"], ""),
    ] {
        let (_, text) = bed.plugin(&as_operator, &command).await;
        assert!(
            text.contains(words) && !text.contains("token") && !text.contains("may not"),
            "{command:?}: {text}"
        );
    }

    // A tenant that may create tokens of its own account reads of its own namespace.
    let may_create = ["--verb=create", "--resource=serviceaccounts/token"];
    let role = [&["-n", &bed.shop, "create", "role", "tokens"][..], &may_create].concat();
    kubectl(&bed.plane, &role).await.unwrap();
    let account = format!("--serviceaccount={}:viewer", bed.shop);
    kubectl(&bed.plane, &["-n", &bed.shop, "create", "rolebinding", "tokens", "--role=tokens", &account])
        .await
        .unwrap();
    let tenant = user("viewer", &bed.shop).await;
    let reader = format!("--reader={}/viewer", bed.shop);
    let own = format!("{}/window", bed.shop);
    let text = wait::until("the tenant's rights to hold", async || {
        let (_, text) = bed.plugin(&tenant, &["explain", &own, &reader]).await;
        Ok(text.contains("sobel").then_some(text))
    });
    assert!(!text.await.unwrap().contains("masterplan"));
    let (well, text) = bed.plugin(&tenant, &["explain", &pod, &reader]).await;
    assert!(!well && text.contains("may not get the pods of the namespace"), "{text}");
    assert!(!text.contains("secret-accelerator") && !text.contains("uid-of-masterplan"), "{text}");
    bed.plane.stop().await;
}
