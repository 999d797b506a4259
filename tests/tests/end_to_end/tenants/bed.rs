//! All parts of the chart on one node, as the chart starts them, and what two tenants have there.

use super::installed::{NODE, install};
use super::tenant::{BUILT, Tenant, accelerator, files, give_to_all};
use fpga_test_kit::{Authority, Kubelet, Server, envoy_program, patience};
use fpga_tests::testbed::control_plane::ControlPlane;
use fpga_tests::testbed::http_client::HttpClient;
use fpga_tests::testbed::manifests::{NAMESPACE, kubectl};
use fpga_tests::testbed::process::{Process, ProcessSpec};
use fpga_tests::testbed::shipped::ShippedPod;
use fpga_tests::testbed::{programs, wait};
use k8s_openapi::api::authentication::v1::TokenRequest;
use k8s_openapi::api::core::v1::ServiceAccount;
use kube::Api;
use kube::api::PostParams;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::process::Stdio;
use tokio::process::{Child, Command};

const BOARD: &str = "pocl-0";
/// The workloads of the chart, each with its container.
const WORKLOADS: [(&str, &str, &str); 7] = [
    ("fpga-scheduler-extender", "deployment/fpga-scheduler-extender", "extender"),
    ("fpga-collector", "daemonset/fpga-collector", "collector"),
    ("fpga-device-manager", "daemonset/fpga-device-manager-pocl", "device-manager"),
    ("fpga-node-plugin", "daemonset/fpga-node-plugin", "node-plugin"),
    ("fpga-pool", "deployment/fpga-pool", "broker"),
    ("fpga-registry", "deployment/fpga-registry", "registry"),
    ("fpga-router", "deployment/fpga-router", "picker"),
];

pub struct Bed {
    pub plane: ControlPlane,
    pub http: HttpClient,
    /// The addresses of the programs' pods.
    pub addresses: BTreeMap<&'static str, Ipv4Addr>,
    /// The folder that stands for the node's root.
    pub root: PathBuf,
    /// The authority of our services.
    pub authority: Authority,
    pub mine: Tenant,
    pub theirs: Tenant,
    pub kubelet: Kubelet,
    processes: Vec<Process>,
    /// Jobs of the pool that run and wait.
    jobs: Vec<Child>,
    _files: Server,
}

impl Bed {
    pub async fn start() -> Self {
        let plane = ControlPlane::start(&[]).await.unwrap();
        let pods = plane.network().node(0).pods();
        let addresses: BTreeMap<_, _> = WORKLOADS.iter().map(|(program, ..)| *program).zip(pods).collect();
        let root = plane.run_dir().path().join(NODE);
        let files = files(plane.network().control_plane());
        let authority = Authority::new(plane.run_dir().path(), "services");
        install(&plane, &addresses, files.address(), &authority).await;
        give_to_all(&plane).await;
        let mine =
            Tenant::create(&plane, "shop", ["viewer", "window", "sunlight", "display", "daylight"], &files)
                .await;
        let theirs = Tenant::create(
            &plane,
            "rival",
            ["chief", "masterplan", "secretsauce", "goldmine", "moneymaker"],
            &files,
        )
        .await;
        let folder = |path: &str| {
            let folder = root.join(path);
            std::fs::create_dir_all(&folder).unwrap();
            folder
        };
        let kubelet = Kubelet::start(
            folder("var/lib/kubelet/device-plugins"),
            &folder("var/lib/kubelet/pod-resources"),
        );
        let http = HttpClient::new(patience());
        let (processes, jobs) = (Vec::new(), Vec::new());
        let mut bed = Self {
            plane,
            http,
            addresses,
            root,
            authority,
            mine,
            theirs,
            kubelet,
            processes,
            jobs,
            _files: files,
        };
        bed.start_programs().await;
        bed.give_boards().await;
        bed.start_jobs().await;
        bed.until_everybody_is_known().await;
        bed
    }

    /// Starts the containers of the chart.
    async fn start_programs(&mut self) {
        let bitstreams = self.root.join("var/lib/kube-fpga/bitstreams");
        std::fs::create_dir_all(&bitstreams).unwrap();
        std::fs::copy(accelerator(), bitstreams.join(format!("{BUILT}.bitstream"))).unwrap();
        for folder in ["run/fpga/managers", "run/fpga/tokens", "run/fpga/gate", "run/fpga/collector"] {
            std::fs::create_dir_all(self.root.join(folder)).unwrap();
        }
        for (program, workload, container) in WORKLOADS {
            let address = self.addresses[program];
            let pod = ShippedPod::create(&self.plane, workload, NODE, address, &self.root).await.unwrap();
            let spec = pod.process(&self.plane, container).await.unwrap();
            self.processes.push(Process::start(&self.here(program, spec)).unwrap());
            if program == "fpga-scheduler-extender" {
                let scheduler = pod.kube_scheduler(&self.plane).await.unwrap();
                self.processes.push(Process::start(&scheduler).unwrap());
            }
            if program == "fpga-router" {
                self.start_envoy(&pod, address);
            }
        }
        self.start_extender_of_cluster();
    }

    /// What a container needs here, where there is no DNS, no image and one user.
    fn here(&self, program: &str, mut spec: ProcessSpec) -> ProcessSpec {
        let at = |program: &str, port: u16| format!("https://{}:{port}", self.addresses[program]);
        for argument in &mut spec.args {
            let text = argument.to_str().unwrap();
            *argument = text.replace("https://fpga-pool.kube-fpga.svc:9480", &at("fpga-pool", 9480)).into();
        }
        match program {
            "fpga-collector" => spec
                .env("FPGA_ALLOW_GID", "0,10460,10461")
                .env("FPGA_EXTENDERS", at("fpga-scheduler-extender", 9463))
                .env("FPGA_PICKERS", at("fpga-router", 9463)),
            // PoCL names neither.
            "fpga-device-manager" => spec.args(["--board=pocl", "--shell=1"]),
            "fpga-router" => spec.env("FPGA_PICKERS", format!("{}:9465", self.addresses[program])),
            "fpga-node-plugin" => spec
                .arg(format!(
                    "--device-plugins-dir={}",
                    self.root.join("var/lib/kubelet/device-plugins").display()
                ))
                .arg(format!("--library={}", programs::built("libfpga_opencl_icd.so").unwrap().display())),
            _ => spec,
        }
    }

    /// Starts Envoy with the configuration of the chart.
    fn start_envoy(&mut self, pod: &ShippedPod, address: Ipv4Addr) {
        let text = std::fs::read_to_string(pod.volume("config").unwrap().join("envoy.yaml")).unwrap();
        let endpoints = pod.volume("endpoints").unwrap().display().to_string();
        let text = text
            .replace("/run/fpga-router", &endpoints)
            .replace("fpga-endpoint-picker.kube-fpga.svc", &address.to_string());
        let mut config: Value = serde_saphyr::from_str(&text).unwrap();
        for listener in config["static_resources"]["listeners"].as_array_mut().unwrap() {
            let port = listener["address"]["socket_address"]["port_value"].clone();
            listener["address"] =
                json!({"socket_address": {"address": address.to_string(), "port_value": port}});
        }
        let run_dir = self.plane.run_dir();
        let path = run_dir.path().join("envoy.json");
        std::fs::write(&path, config.to_string()).unwrap();
        let spec = ProcessSpec::new("envoy", envoy_program(), run_dir.log("envoy"))
            .args(["--concurrency", "1", "--log-level", "warning", "--disable-hot-restart", "--config-path"])
            .arg(path);
        self.processes.push(Process::start(&spec).unwrap());
    }

    /// Starts an extender whose verbs are for the cluster's own kube-scheduler. In the pod of the chart's own scheduler that
    /// port is the pod's alone.
    fn start_extender_of_cluster(&mut self) {
        let address = self.plane.network().node(0).host();
        let folder = self.plane.run_dir().path();
        let identity = self.authority.issue("verbs", &[&address.to_string()]);
        let clients = Authority::new(folder, "schedulers");
        let name = "fpga-scheduler-extender";
        let spec =
            ProcessSpec::new("verbs", programs::built(name).unwrap(), self.plane.run_dir().log("verbs"))
                .args(["--listen".to_owned(), format!("{address}:9461")])
                .arg("--tls-cert")
                .arg(identity.certificate)
                .arg("--tls-key")
                .arg(identity.key)
                .arg("--tls-client-ca")
                .arg(clients.ca)
                .arg("--kubeconfig")
                .arg(folder.join("pods").join(format!("{name}-on-{NODE}")).join("kubeconfig"));
        self.processes.push(Process::start(&spec).unwrap());
    }

    /// The address at which a pod reaches this port.
    pub fn address(&self, program: &str, port: u16) -> Ipv4Addr {
        if port == 9461 { self.plane.network().node(0).host() } else { self.addresses[program] }
    }

    /// Starts the containers of both tenants' pods on the board.
    async fn give_boards(&self) {
        for Tenant { namespace, pod, .. } in [&self.theirs, &self.mine] {
            self.kubelet.admit(namespace, pod).await;
            wait::until(&format!("the container of {pod} to start"), async || {
                self.check_running()?;
                self.kubelet.start_container(pod).await.map_err(|status| anyhow::anyhow!("{status}"))?;
                Ok(Some(()))
            })
            .await
            .unwrap();
        }
    }

    /// A job of the pool holds each lent slot of the board, and a further one waits.
    async fn start_jobs(&mut self) {
        for _ in 0..3 {
            let job = self.job(&self.theirs, "100s").await.spawn().unwrap();
            self.jobs.push(job);
        }
    }

    /// A job of the pool of a tenant's pod.
    pub async fn job(&self, tenant: &Tenant, wait: &str) -> Command {
        let token = self.pod_token(tenant, "fpga-pool").await;
        let file = self.plane.run_dir().path().join(format!("{}.pool-token", tenant.namespace));
        std::fs::write(&file, token).unwrap();
        let mut job = Command::new(programs::built("fpga-acc").unwrap());
        job.args(["run", tenant.accelerator, "--wait", wait])
            .env("FPGA_POOL", format!("https://{}:9480", self.addresses["fpga-pool"]))
            .env("FPGA_POOL_CA", &self.authority.ca)
            .env("FPGA_POOL_TOKEN_FILE", file)
            .env("FPGA_NODE_NAME", "elsewhere")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true);
        job
    }

    /// What a tenant, or the operator, sees of the pool.
    pub async fn look(&self, token: &str) -> String {
        let file = self.plane.run_dir().path().join("look.token");
        std::fs::write(&file, token).unwrap();
        let output = Command::new(programs::built("kubectl-fpga").unwrap())
            .args([
                "pool",
                "-o",
                "json",
                "--broker",
                &format!("https://{}:9480", self.addresses["fpga-pool"]),
            ])
            .arg("--broker-ca")
            .arg(&self.authority.ca)
            .arg("--broker-token-file")
            .arg(file)
            .output()
            .await
            .unwrap();
        String::from_utf8([output.stdout, output.stderr].concat()).unwrap()
    }

    /// A token of an account for an audience.
    pub async fn token(&self, namespace: &str, account: &str, audience: &str) -> String {
        self.token_of(namespace, account, audience, Value::Null).await
    }

    /// A token of a tenant's pod for an audience.
    pub async fn pod_token(&self, tenant: &Tenant, audience: &str) -> String {
        let pod = json!({"apiVersion": "v1", "kind": "Pod", "name": tenant.pod});
        self.token_of(&tenant.namespace, tenant.account, audience, pod).await
    }

    async fn token_of(&self, namespace: &str, account: &str, audience: &str, bound: Value) -> String {
        let accounts: Api<ServiceAccount> = Api::namespaced(self.plane.client().clone(), namespace);
        let request = json!({"metadata": {}, "spec": {"audiences": [audience], "boundObjectRef": bound}});
        let request: TokenRequest = serde_json::from_value(request).unwrap();
        let answer = accounts.create_token_request(account, &PostParams::default(), &request).await.unwrap();
        answer.status.unwrap().token.unwrap()
    }

    /// What the extender answers when kube-scheduler asks about a pod.
    pub async fn decide(&self, tenant: &Tenant, bitstream: &str) -> String {
        let pod = json!({
            "metadata": {
                "name": tenant.pod, "namespace": tenant.namespace, "uid": tenant.uid,
                "annotations": {"fpga-scheduling.io/bitstreams": bitstream},
                "labels": {"fpga-scheduling.io/fpga-vendor": "pocl"},
            },
            "spec": {"containers": []},
        });
        let asked = json!({"Pod": pod, "NodeNames": [NODE]}).to_string();
        let mut told = String::new();
        for verb in ["filter", "prioritize"] {
            let url = format!("http://{}:9461/{verb}", self.addresses["fpga-scheduler-extender"]);
            told += &self.http.post(&url, asked.clone()).await.unwrap().text();
        }
        told
    }

    /// Waits until each part knows what the other tenant has, which it could tell then.
    async fn until_everybody_is_known(&self) {
        let theirs = &self.theirs;
        self.decide(theirs, theirs.bitstream).await;
        let reader =
            async |program: &str| self.token(NAMESPACE, "fpga-reader", &format!("{program}-read")).await;
        let (of_extender, of_picker) =
            (reader("fpga-scheduler-extender").await, reader("fpga-endpoint-picker").await);
        let operator = self.token(NAMESPACE, "fpga-pool-operator", "fpga-pool").await;
        let read = async |program: &str, path: &str, token: &str| {
            let url = format!("http://{}:9465{path}", self.addresses[program]);
            anyhow::Ok(self.http.get_with(&url, &[("x-fpga-token", token)]).await?.text())
        };
        wait::until("each part to know both tenants", async || {
            self.check_running()?;
            let decisions = read("fpga-scheduler-extender", "/decisions", &of_extender).await?;
            anyhow::ensure!(decisions.contains(theirs.pod), "the extender knows {decisions}");
            let functions = read("fpga-router", "/functions", &of_picker).await?;
            anyhow::ensure!(functions.contains(theirs.function), "the picker knows {functions}");
            let pool = self.look(&operator).await;
            let waiting = pool.matches(&theirs.namespace).count();
            anyhow::ensure!(waiting > 0, "the broker knows {pool}");
            let has_boards =
                ["get", "pod", theirs.pod, "-n", &theirs.namespace, "-o", "jsonpath={.metadata.annotations}"];
            let annotations = kubectl(&self.plane, &has_boards).await?;
            anyhow::ensure!(annotations.contains(BOARD), "the pod has {annotations}");
            Ok(Some(()))
        })
        .await
        .unwrap();
    }

    /// The token by which a container of the tenant's pod proves itself to the board's manager.
    pub fn board_token(&self, tenant: &Tenant) -> String {
        let folder = self.root.join("run/fpga/tokens").join(BOARD).join(&tenant.namespace);
        let file = std::fs::read_dir(folder).unwrap().next().unwrap().unwrap();
        std::fs::read_to_string(file.path()).unwrap()
    }

    /// The socket of the board's manager, which containers with the board have.
    pub fn manager(&self) -> PathBuf {
        self.root.join("run/fpga/managers").join(BOARD).join("dm.sock")
    }

    pub fn check_running(&self) -> anyhow::Result<()> {
        self.processes.iter().try_for_each(Process::check_running)
    }
}
