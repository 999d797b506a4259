//! A real kube-scheduler uses HTTPS with certificates on both sides: which peers are accepted, and certificates that
//! change while pods are placed.

use fpga_net::tls::{HTTP_1, dns_names};
use fpga_test_kit::{Authority, Identity as Certificate, patience};
use fpga_tests::testbed::control_plane::{ControlPlane, SchedulerConfig};
use fpga_tests::testbed::http_client::HttpClient;
use fpga_tests::testbed::identity::Identity;
use fpga_tests::testbed::node::{Node, NodeSpec};
use fpga_tests::testbed::process::{Process, ProcessSpec};
use fpga_tests::testbed::workload::Workload;
use fpga_tests::testbed::{programs, wait};
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::PostParams;
use std::path::Path;

const NODES: [&str; 2] = ["n1", "n2"];
const PORT: u16 = 9461;
const METRICS_PORT: u16 = 9464;

struct Bed {
    plane: ControlPlane,
    nodes: Vec<Node>,
    http: HttpClient,
    authority: Authority,
    server: Certificate,
    scheduler: Certificate,
    extender: Process,
}

impl Bed {
    async fn start() -> Self {
        let plane = ControlPlane::start(&NODES).await.unwrap();
        let mut nodes = Vec::new();
        for (index, name) in (0..).zip(NODES) {
            let spec = NodeSpec {
                name: name.to_owned(),
                labels: [("fpga-scheduling.io/fpga-vendor".to_owned(), "none".to_owned())].into(),
                network: plane.network().node(index),
                env: Default::default(),
                pods_dir: plane.run_dir().path().join(name),
            };
            let client = plane.client_of(&Identity::Node(name.to_owned())).await.unwrap();
            nodes.push(Node::start(spec, client).await.unwrap());
        }
        let host = plane.network().control_plane().to_string();
        let authority = Authority::new(plane.run_dir().path(), "extender");
        let server = authority.issue("server", &["first.svc", &host]);
        let scheduler = authority.issue("scheduler", &["kube-scheduler"]);
        let name = "fpga-scheduler-extender";
        let spec = ProcessSpec::new(name, programs::built(name).unwrap(), plane.run_dir().log(name))
            .args(["--listen".to_owned(), format!("{host}:{PORT}")])
            .args(["--metrics-listen".to_owned(), format!("{host}:{METRICS_PORT}")])
            .arg("--kubeconfig")
            .arg(plane.kubeconfig(&Identity::Admin).unwrap())
            .args(["--shutdown-delay", "0s", "--tls-cert"])
            .arg(&server.certificate)
            .arg("--tls-key")
            .arg(&server.key)
            .arg("--tls-client-ca")
            .arg(&authority.ca);
        let extender = Process::start(&spec).unwrap();
        let http = HttpClient::new(patience());
        let ready = format!("http://{host}:{METRICS_PORT}/readyz");
        extender.wait_ready(&http, &ready, patience()).await.unwrap();
        for node in &nodes {
            node.wait_ready(patience()).await.unwrap();
        }
        Self { plane, nodes, http, authority, server, scheduler, extender }
    }

    /// Restarts kube-scheduler, which trusts `ca` and presents `identity`.
    async fn start_scheduler(&mut self, ca: &Path, identity: Option<&Certificate>) {
        let url = format!("https://{}:{PORT}", self.plane.network().control_plane());
        let mut tls = format!("5s\n    enableHTTPS: true\n    tlsConfig:\n      caFile: {}", ca.display());
        if let Some(Certificate { certificate, key }) = identity {
            tls += &format!("\n      certFile: {}\n      keyFile: {}", certificate.display(), key.display());
        }
        let config = SchedulerConfig::shipped(&url).unwrap().with("httpTimeout", &tls).unwrap();
        self.plane.start_scheduler(&config).await.unwrap();
    }

    fn pods(&self) -> Api<Pod> {
        Api::default_namespaced(self.plane.client().clone())
    }

    async fn create(&self, name: &str) {
        let pod = Workload::accelerated(name, ["sleep", "1000"]).pod();
        self.pods().create(&PostParams::default(), &serde_json::from_value(pod).unwrap()).await.unwrap();
    }

    async fn until_placed(&self, name: &str) {
        let look = async || Ok(self.pods().get(name).await?.spec.and_then(|spec| spec.node_name));
        wait::until(&format!("{name} to be placed"), look).await.unwrap_or_else(|error| {
            panic!("{error:#}\n{}", self.plane.scheduler_log());
        });
    }

    async fn metric(&self, line: &str) -> f64 {
        let url = format!("http://{}:{METRICS_PORT}/metrics", self.plane.network().control_plane());
        let text = self.http.get(&url).await.unwrap().text();
        let lines = text.lines().filter_map(|shown| shown.strip_prefix(line)?.trim().parse::<f64>().ok());
        lines.sum()
    }

    async fn until_metric(&self, line: &str, least: f64) {
        let look = async || Ok((self.metric(line).await >= least).then_some(()));
        wait::until(line, look).await.unwrap();
    }

    /// The names in the certificate that new connections get.
    async fn shown(&self) -> Vec<String> {
        let host = self.plane.network().control_plane().to_string();
        let stream = tokio::net::TcpStream::connect((&*host, PORT)).await.unwrap();
        let client = self.authority.client(Some(&self.scheduler));
        let stream = client.connect(stream, &host, HTTP_1).await.unwrap();
        stream.get_ref().1.peer_certificates().unwrap().first().map(dns_names).unwrap()
    }

    /// Success and output of the kubectl plugin, which calls the extender at its address with these options.
    async fn plugin(&self, more: &[&Path]) -> (bool, String) {
        let url = format!("https://{}:{PORT}", self.plane.network().control_plane());
        let mut command = tokio::process::Command::new(programs::built("kubectl-fpga").unwrap());
        // `more` has the values of the first of these options.
        let options = ["--extender-ca", "--extender-cert", "--extender-key"];
        for (option, value) in options.into_iter().zip(more) {
            command.arg(option).arg(value);
        }
        let output = command
            .args(["nodes", "--timeout", "20", "--extender", &url])
            .env_clear()
            .env("KUBECONFIG", self.plane.kubeconfig(&Identity::Admin).unwrap())
            .output()
            .await
            .unwrap();
        let text = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
        (output.status.success(), text)
    }

    async fn stop(self) {
        for node in self.nodes {
            node.stop().await;
        }
        assert!(self.extender.stop(patience()).await.success(), "{}", self.extender.log_tail());
        self.plane.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_plugin_shows_a_certificate_to_an_extender_that_wants_one_and_checks_the_extenders() {
    let bed = Bed::start().await;
    let operator = bed.authority.issue("operator", &["operator"]);
    let strangers = Authority::new(bed.plane.run_dir().path(), "strangers");
    let stranger = strangers.issue("stranger", &["operator"]);
    let (ca, certificate, key) = (&*bed.authority.ca, &*operator.certificate, &*operator.key);
    let (well, text) = bed.plugin(&[ca, certificate, key]).await;
    assert!(well && text.contains("n1") && text.contains("n2"), "{text}");
    for (why, options) in [
        ("nobody is trusted", [].as_slice()),
        ("it shows none", &[ca]),
        ("somebody else is trusted", &[&*strangers.ca, certificate, key]),
        ("it shows one of somebody else", &[ca, &*stranger.certificate, &*stranger.key]),
    ] {
        let (well, text) = bed.plugin(options).await;
        assert!(!well && text.contains("kubectl fpga: ") && !text.contains("n1"), "{why}: {text}");
    }
    bed.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kube_scheduler_asks_over_mutual_tls_while_certificates_change() {
    let mut bed = Bed::start().await;
    let (ca, scheduler) = (bed.authority.ca.clone(), bed.scheduler.clone());
    let host = bed.plane.network().control_plane().to_string();
    bed.start_scheduler(&ca, Some(&scheduler)).await;
    bed.create("first").await;
    bed.until_placed("first").await;
    assert_eq!(bed.shown().await, ["first.svc"]);

    // The certificate is renewed while the scheduler keeps its connection; then the files become invalid.
    bed.authority.issue("server", &["second.svc", &host]);
    bed.until_metric("fpga_extender_certificate_reloads_total{port=\"http\",outcome=\"loaded\"}", 1.0).await;
    bed.create("second").await;
    bed.until_placed("second").await;
    assert_eq!(bed.shown().await, ["second.svc"]);
    std::fs::write(&bed.server.key, "nonsense").unwrap();
    bed.until_metric("fpga_extender_certificate_unused{port=\"http\"}", 1.0).await;
    // A restarted scheduler needs a new connection.
    bed.start_scheduler(&ca, Some(&scheduler)).await;
    bed.create("third").await;
    bed.until_placed("third").await;
    assert_eq!(bed.shown().await, ["second.svc"]);
    assert_eq!(
        bed.metric("fpga_extender_connections_refused_total{port=\"http\",reason=\"handshake\"}").await,
        0.0
    );
    let text = bed.plane.scheduler_log();
    assert!(!text.contains("x509"), "{text}");

    // Without a certificate the scheduler gets no answer. The pod is placed below, when the scheduler has one again.
    bed.start_scheduler(&ca, None).await;
    bed.create("fourth").await;
    bed.until_metric("fpga_extender_connections_refused_total{port=\"http\",reason=\"handshake\"}", 1.0)
        .await;
    assert_eq!(bed.pods().get("fourth").await.unwrap().spec.unwrap().node_name, None);
    // A scheduler that trusts another authority sends no request.
    let strangers = Authority::new(bed.plane.run_dir().path(), "strangers");
    let refused =
        bed.metric("fpga_extender_connections_refused_total{port=\"http\",reason=\"handshake\"}").await;
    bed.start_scheduler(&strangers.ca, Some(&scheduler)).await;
    bed.until_metric(
        "fpga_extender_connections_refused_total{port=\"http\",reason=\"handshake\"}",
        refused + 1.0,
    )
    .await;
    assert_eq!(bed.pods().get("fourth").await.unwrap().spec.unwrap().node_name, None);
    bed.start_scheduler(&ca, Some(&scheduler)).await;
    bed.until_placed("fourth").await;
    bed.stop().await;
}
