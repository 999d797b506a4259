//! The pool as the chart installs it, against a real API server: brokers with a Lease, device managers and jobs with
//! tokens of pods, Bitstreams, and TLS.

use fpga_test_kit::{Authority, patience};
use fpga_tests::testbed::cluster::Runtime;
use fpga_tests::testbed::control_plane::ControlPlane;
use fpga_tests::testbed::http_client::HttpClient;
use fpga_tests::testbed::manifests::{self, KINDS_WITHOUT_PODS, NAMESPACE, kubectl};
use fpga_tests::testbed::process::{Process, ProcessSpec};
use fpga_tests::testbed::shipped::ShippedPod;
use fpga_tests::testbed::{artifacts, programs, wait};
use k8s_openapi::ByteString;
use k8s_openapi::api::authentication::v1::TokenRequest;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{ConfigMap, Node, Secret, ServiceAccount};
use kube::Api;
use kube::api::PostParams;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};
use std::time::Duration;
use tokio::io::AsyncWriteExt as _;
use tokio::process::{Child, ChildStdin, Command};
use tokio::sync::oneshot::{self, error::TryRecvError};

const SERVICE: &str = "https://fpga-pool.kube-fpga.svc:9480";
/// The nodes of the brokers, and of the board.
const NODES: [&str; 3] = ["b1", "b2", "n1"];
const TEAM: &str = "team-a";
const ACCELERATOR: &str = "sha-256";
const TERM: &str = "fpga-scheduling.io/fencing-token";

/// A control plane with the chart's objects, two brokers, and a node with a board that lends a slot.
struct Bed {
    plane: ControlPlane,
    http: HttpClient,
    authority: PathBuf,
    brokers: Vec<(String, Process)>,
    managers: Option<Process>,
}

impl Bed {
    async fn start() -> Self {
        let plane = ControlPlane::start(&[]).await.unwrap();
        // Policies hold the other parts of the chart to tokens of pods, which processes have none of.
        let kinds = [&KINDS_WITHOUT_PODS[..], &["Service", "Deployment", "DaemonSet"]].concat();
        manifests::apply_kinds(&plane, "pool", &kinds).await.unwrap();
        let (client, run_dir) = (plane.client().clone(), plane.run_dir().path().to_owned());
        let nodes: Api<Node> = Api::all(client.clone());
        for node in NODES {
            let node = serde_json::from_value(json!({"metadata": {"name": node}})).unwrap();
            nodes.create(&PostParams::default(), &node).await.unwrap();
        }
        // What manifests/certificates.sh makes, for the brokers' addresses here.
        let authority = Authority::new(&run_dir, "pool");
        let addresses = [0, 1].map(|index| plane.network().node(index).host().to_string());
        let names = [&addresses[0], &addresses[1], "fpga-pool.kube-fpga.svc"];
        let certificate = authority.issue("broker", &names);
        let file = |path: &Path| ByteString(std::fs::read(path).unwrap());
        let (cert, key) = (file(&certificate.certificate), file(&certificate.key));
        let tls = BTreeMap::from([("tls.crt".to_owned(), cert), ("tls.key".to_owned(), key)]);
        let ticket_key = BTreeMap::from([("key".to_owned(), ByteString("7".repeat(64).into_bytes()))]);
        let secrets: Api<Secret> = Api::namespaced(client.clone(), NAMESPACE);
        for (name, data) in [("fpga-pool-tls", tls), ("fpga-pool-ticket-key", ticket_key)] {
            let secret = serde_json::from_value(json!({"metadata": {"name": name}, "data": data})).unwrap();
            secrets.create(&PostParams::default(), &secret).await.unwrap();
        }
        let ca = std::fs::read_to_string(&authority.ca).unwrap();
        let map = json!({"metadata": {"name": "fpga-stream-ca"}, "data": {"ca.crt": ca}});
        let maps: Api<ConfigMap> = Api::namespaced(client, NAMESPACE);
        maps.create(&PostParams::default(), &serde_json::from_value(map).unwrap()).await.unwrap();
        let http = HttpClient::new(patience());
        let mut bed = Self { plane, http, authority: authority.ca, brokers: Vec::new(), managers: None };
        bed.publish_accelerator().await;
        for index in [0, 1] {
            bed.start_broker(index).await;
        }
        bed.start_managers().await;
        bed
    }

    /// A namespace with a Bitstream of an accelerator for the board.
    async fn publish_accelerator(&self) {
        kubectl(&self.plane, &["create", "namespace", TEAM]).await.unwrap();
        let accounts: Api<ServiceAccount> = Api::namespaced(self.plane.client().clone(), TEAM);
        let account = async || Ok(accounts.get_opt("default").await?.map(drop));
        wait::until("the namespace's service account", account).await.unwrap();
        let bytes = std::fs::read(self.bitstream()).unwrap();
        let digest = Sha256::digest(&bytes).iter().map(|byte| format!("{byte:02x}")).collect::<String>();
        let variant = json!({
            "vendor": "pocl", "board": "pocl", "shell": "1", "digest": format!("sha256:{digest}"), "bytes": bytes.len(),
            "source": {"https": "https://files.example/sha-256"},
        });
        let object = json!({
            "apiVersion": "fpga-scheduling.io/v1alpha1", "kind": "Bitstream",
            "metadata": {"name": ACCELERATOR, "namespace": TEAM}, "spec": {"variants": [variant]},
        });
        let path = self.plane.run_dir().path().join("bitstream.json");
        std::fs::write(&path, object.to_string()).unwrap();
        wait::until("the API server to take Bitstreams", async || {
            kubectl(&self.plane, &["apply", "-f", path.to_str().unwrap()]).await?;
            Ok(Some(()))
        })
        .await
        .unwrap();
    }

    fn bitstream(&self) -> PathBuf {
        let folder = artifacts::accelerator_bitstreams(Runtime::Pocl).unwrap();
        folder.join(format!("{ACCELERATOR}.bitstream"))
    }

    fn address(&self, broker: u8) -> String {
        self.plane.network().node(broker).host().to_string()
    }

    /// Runs the container of the chart's Deployment, with the rights of its service account.
    async fn start_broker(&mut self, index: u8) {
        let (node, address) = (NODES[usize::from(index)], self.plane.network().node(index).host());
        let root = self.plane.run_dir().path().join(node);
        let pod =
            ShippedPod::create(&self.plane, "deployment/fpga-pool", node, address, &root).await.unwrap();
        let spec = pod.process(&self.plane, "broker").await.unwrap();
        let broker = Process::start(&spec).unwrap();
        let ready = format!("http://{address}:9481/readyz");
        broker.wait_ready(&self.http, &ready, patience()).await.unwrap();
        self.brokers.push((address.to_string(), broker));
    }

    /// Runs the container of the chart's DaemonSet. There is no DNS: the brokers are named by their addresses.
    async fn start_managers(&mut self) {
        let (node, address) = (NODES[2], self.plane.network().node(2).host());
        let root = self.plane.run_dir().path().join(node);
        let bitstreams = root.join("var/lib/kube-fpga/bitstreams");
        std::fs::create_dir_all(&bitstreams).unwrap();
        std::fs::copy(self.bitstream(), bitstreams.join(format!("{ACCELERATOR}.bitstream"))).unwrap();
        let workload = "daemonset/fpga-device-manager-pocl";
        let pod = ShippedPod::create(&self.plane, workload, node, address, &root).await.unwrap();
        let mut spec: ProcessSpec = pod.process(&self.plane, "device-manager").await.unwrap();
        for folder in ["run/fpga/managers", "run/fpga/tokens"] {
            std::fs::create_dir_all(root.join(folder)).unwrap();
        }
        for argument in &mut spec.args {
            let text = argument.to_str().unwrap();
            *argument = text.replace(SERVICE, &self.broker_urls()).into();
        }
        self.managers = Some(Process::start(&spec).unwrap());
    }

    fn broker_urls(&self) -> String {
        [0, 1].map(|index| format!("https://{}:9480", self.address(index))).join(",")
    }

    /// A token of a pod's service account, as the kubelet projects it.
    async fn token(&self, namespace: &str, account: &str, audience: &str, pod: Option<&str>) -> PathBuf {
        let accounts: Api<ServiceAccount> = Api::namespaced(self.plane.client().clone(), namespace);
        let bound = pod.map(|name| json!({"apiVersion": "v1", "kind": "Pod", "name": name}));
        let request = json!({"metadata": {}, "spec": {"audiences": [audience], "boundObjectRef": bound}});
        let request: TokenRequest = serde_json::from_value(request).unwrap();
        let answer = accounts.create_token_request(account, &PostParams::default(), &request).await.unwrap();
        let path = self.plane.run_dir().path().join(format!("{namespace}-{account}-{audience}.token"));
        std::fs::write(&path, answer.status.unwrap().token.unwrap()).unwrap();
        path
    }

    /// Starts a job of the accelerator, as a pod with this token does. The job reads its input.
    fn start_job(&self, token: &Path) -> Child {
        Command::new(programs::built("fpga-acc").unwrap())
            .args(["run", ACCELERATOR, "--wait", "100s", "--bytes", "1000000000"])
            .env("FPGA_POOL", self.broker_urls())
            .env("FPGA_POOL_CA", &self.authority)
            .env("FPGA_POOL_TOKEN_FILE", token)
            .env("FPGA_NODE_NAME", "elsewhere")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap()
    }

    /// Runs a job over these bytes.
    async fn job(&self, token: &Path, input: &[u8]) -> Output {
        end(self.start_job(token), input).await
    }

    async fn lease(&self) -> Lease {
        let leases: Api<Lease> = Api::namespaced(self.plane.client().clone(), NAMESPACE);
        leases.get("fpga-pool").await.unwrap()
    }

    async fn term(&self) -> u64 {
        self.lease().await.metadata.annotations.unwrap()[TERM].parse().unwrap()
    }

    /// Waits until one of the brokers that run grants, and returns its place.
    async fn active(&self) -> usize {
        wait::until("a broker to be active", async || {
            for (index, (address, broker)) in self.brokers.iter().enumerate() {
                if broker.exit_status().is_none() {
                    let metrics = self.http.get(&format!("http://{address}:9481/metrics")).await?;
                    if metrics.metric("fpga_pool_active") > 0.5 {
                        return Ok(Some(index));
                    }
                }
            }
            Ok(None)
        })
        .await
        .unwrap()
    }

    /// What `kubectl fpga pool -o json` says, by the active broker. A broker that has just lost its lease says nothing.
    async fn pool(&self, token: &Path) -> Value {
        wait::until("the active broker to tell of the pool", async || {
            let broker = format!("https://{}:9480", self.brokers[self.active().await].0);
            let output = Command::new(programs::built("kubectl-fpga").unwrap())
                .args(["pool", "-o", "json", "--broker", &broker])
                .arg("--broker-ca")
                .arg(&self.authority)
                .arg("--broker-token-file")
                .arg(token)
                .output()
                .await?;
            anyhow::ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
            Ok(Some(serde_json::from_slice(&output.stdout)?))
        })
        .await
        .unwrap()
    }
}

/// Gives the job these bytes as the end of its input, and waits for the job's end.
async fn end(mut job: Child, input: &[u8]) -> Output {
    let mut stdin = job.stdin.take().unwrap();
    let input = input.to_vec();
    // A job that is refused reads nothing.
    tokio::spawn(async move { stdin.write_all(&input).await });
    tokio::time::timeout(patience(), job.wait_with_output()).await.unwrap().unwrap()
}

/// Gives a job its input piece by piece until `stop`. A job that uses its slot keeps it while others wait. Returns the digest of the
/// input.
async fn feed(mut stdin: ChildStdin, mut stop: oneshot::Receiver<()>) -> Vec<u8> {
    // As much as a task takes.
    let piece = vec![7; 4_000_000];
    let mut digest = Sha256::new();
    while let Err(TryRecvError::Empty) = stop.try_recv() {
        stdin.write_all(&piece).await.unwrap();
        digest.update(&piece);
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    digest.finalize().to_vec()
}

#[tokio::test]
async fn while_the_api_server_is_silent_a_running_job_ends_right_and_a_waiting_one_gets_its_slot_afterwards()
{
    let bed = Bed::start().await;
    manifests::create_pod_in(bed.plane.client(), TEAM, "job", "default", Some("n1")).await.unwrap();
    let token = bed.token(TEAM, "default", "fpga-pool", Some("job")).await;
    let operator = bed.token(NAMESPACE, "fpga-pool-operator", "fpga-pool", None).await;
    let until_pool = async |what: &str, is_so: fn(&Value) -> bool| {
        let pool = async || Ok(Some(bed.pool(&operator).await).filter(is_so).map(drop));
        wait::until(what, pool).await.unwrap();
    };
    let mut running = bed.start_job(&token);
    let (stop, stopped) = oneshot::channel();
    let fed = tokio::spawn(feed(running.stdin.take().unwrap(), stopped));
    let has_slot = |pool: &Value| ["busy", "idle"].map(Value::from).contains(&pool["slots"][0]["state"]);
    until_pool("the first job to have the slot", has_slot).await;
    let mut waiting = bed.start_job(&token);
    until_pool("the second job to wait", |pool| !pool["jobs"].as_array().unwrap().is_empty()).await;

    bed.plane.stop_answering();
    wait::until("all brokers to lose the Lease", async || {
        for (address, _) in &bed.brokers {
            let metrics = bed.http.get(&format!("http://{address}:9481/metrics")).await?;
            if metrics.metric("fpga_pool_active") > 0.5 {
                return Ok(None);
            }
        }
        Ok(Some(()))
    })
    .await
    .unwrap();
    stop.send(()).unwrap();
    let expected = fed.await.unwrap();
    let output = tokio::time::timeout(patience(), running.wait_with_output()).await.unwrap().unwrap();
    assert_eq!(output.stdout, expected, "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(waiting.try_wait().unwrap(), None, "nobody grants the slot");

    bed.plane.answer_again();
    let output = end(waiting, b"of the second").await;
    assert_eq!(
        output.stdout,
        Sha256::digest("of the second").as_slice(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
}

#[tokio::test]
async fn jobs_of_pods_run_by_their_tokens_over_tls_and_another_broker_grants_when_the_active_one_is_killed() {
    let bed = Bed::start().await;
    manifests::create_pod_in(bed.plane.client(), TEAM, "job", "default", Some("n1")).await.unwrap();
    let token = bed.token(TEAM, "default", "fpga-pool", Some("job")).await;
    let input: Vec<u8> = (0..3_000_000_u32).map(|at| at.to_le_bytes()[1]).collect();
    let expected = Sha256::digest(&input);
    let output = bed.job(&token, &input).await;
    assert_eq!(output.stdout, expected.as_slice(), "{}", String::from_utf8_lossy(&output.stderr));

    // The slot is on the node of the manager's token, and the operator's token has no pod.
    let operator = bed.token(NAMESPACE, "fpga-pool-operator", "fpga-pool", None).await;
    let pool = bed.pool(&operator).await;
    assert_eq!(
        (&pool["slots"][0]["node"], &pool["slots"][0]["kind"]),
        (&json!("n1"), &json!("pocl")),
        "{pool}"
    );

    // Tokens for others, and without a pod, prove nothing.
    for wrong in [
        bed.token(TEAM, "default", "another", Some("job")).await,
        bed.token(TEAM, "default", "fpga-pool", None).await,
    ] {
        let mut job = Command::new(programs::built("kubectl-fpga").unwrap());
        let broker = format!("https://{}:9480", bed.brokers[bed.active().await].0);
        job.args(["pool", "--broker", &broker, "--broker-ca"]).arg(&bed.authority);
        let refused = job.arg("--broker-token-file").arg(wrong).output().await.unwrap();
        let said = String::from_utf8_lossy(&refused.stderr);
        assert!(!refused.status.success() && said.contains("the token proves nothing here"), "{said}");
    }

    let (first, term) = (bed.active().await, bed.term().await);
    bed.brokers[first].1.kill().await;
    let token = bed.token(TEAM, "default", "fpga-pool", Some("job")).await;
    let output = bed.job(&token, &input).await;
    assert_eq!(output.stdout, expected.as_slice(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_ne!(bed.active().await, first);
    assert!(bed.term().await > term, "the new broker's decisions go before those of the old one");
    let holder = bed.lease().await.spec.unwrap().holder_identity.unwrap();
    assert_eq!(holder, format!("fpga-pool-on-{}", NODES[1 - first]));
}
