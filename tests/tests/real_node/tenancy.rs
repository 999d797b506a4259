//! Tenants of one board on a real node, where managers run as their DaemonSet runs them: what a hostile kernel reaches,
//! what a pod sees of others, and what becomes of sessions whose pod has ended.

use super::site::{Site, SiteSpec, create, delete};
use anyhow::{Context as _, ensure};
use fpga_test_kit::patience;
use fpga_tests::functions::Function;
use fpga_tests::testbed::cluster::Runtime;
use fpga_tests::testbed::http_client::HttpClient;
use fpga_tests::testbed::invoke::Case;
use fpga_tests::testbed::real_node::Image;
use fpga_tests::testbed::restricted::RestrictedPod;
use fpga_tests::testbed::{artifacts, programs, wait};
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::DeleteParams;
use serde_json::json;
use std::collections::BTreeMap;
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Instant;
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::task::JoinHandle;

/// A site whose boards `test-0`, `test-1` and so on have a supervisor.
struct Tenancy {
    site: Site,
    hostile: Image,
}

impl Tenancy {
    async fn start(boards: usize, arguments: &[&str]) -> Self {
        let hostile = hostile_image();
        // Only PoCL builds kernels with machine code.
        let (runtime, images) = (Runtime::Pocl, vec![hostile.clone()]);
        let mut site = Site::open(SiteSpec { boards: &[], runtime, images, ..SiteSpec::default() }).await;
        site.boards.supervise(&site.node, "test", boards, arguments).await.unwrap();
        Self { site, hostile }
    }

    /// Starts a pod and returns its address when it is ready.
    async fn sobel(&self, pods: &Api<Pod>, name: &str) -> String {
        self.site.start_sobel(pods, name).await.status.unwrap().pod_ip.unwrap()
    }

    /// Starts a pod that makes these attempts.
    async fn attempts(&self, pods: &Api<Pod>, name: &str, attempts: &[&str]) {
        let pod = RestrictedPod::new(name, self.hostile.name()).on("n1").with("args", json!(attempts));
        create(pods, &pod.boards("fpga-scheduling.io/accelerated", 1)).await;
    }

    /// Waits until the pod has written this line, and returns all of its lines: an attempt and what came of it.
    async fn outcomes(&self, namespace: &str, pod: &str, last: &str) -> BTreeMap<String, String> {
        let log = wait::until(&format!("{pod} to write {last:?}"), async || {
            let log = self.site.node.container_log(namespace, pod, "main");
            anyhow::ensure!(!log.is_empty(), "the pod wrote nothing");
            anyhow::ensure!(log.contains(last), "{log}");
            Ok(Some(log))
        })
        .await
        .unwrap();
        // A line of the container's log has the time, the stream and a tag before the text.
        let texts = log.lines().filter_map(|line| line.splitn(4, ' ').nth(3));
        texts
            .filter_map(|text| text.rsplit_once(": "))
            .map(|(what, came)| (what.to_owned(), came.to_owned()))
            .collect()
    }

    async fn metrics(&self) -> String {
        let http = HttpClient::new(patience());
        http.get(&self.site.boards.metrics_url(0)).await.unwrap().text()
    }

    async fn stop(self) {
        self.site.close().await;
    }
}

/// An image with the program `machine_code`, and no OpenCL driver.
fn hostile_image() -> Image {
    let program = artifacts::opencl_programs().unwrap().join("machine_code");
    let driver = programs::built("libfpga_opencl_icd.so").unwrap();
    let image = Image::new("localhost/hostile:1", "/machine_code").file("/machine_code", &program);
    image.libraries_of(&program).unwrap().libraries_of(&driver).unwrap()
}

/// A function that is called again and again, with every answer verified.
struct Neighbour {
    stop: Arc<AtomicBool>,
    answers: Arc<AtomicUsize>,
    calls: JoinHandle<()>,
}

impl Neighbour {
    fn of(address: String) -> Self {
        let (stop, answers) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
        let (stopped, counted) = (Arc::clone(&stop), Arc::clone(&answers));
        let calls = tokio::spawn(async move {
            let case = Case::new(Function::Sobel, 64, 1).unwrap();
            let http = HttpClient::new(patience());
            while !stopped.load(Ordering::SeqCst) {
                case.invoke(&http, &address).await.unwrap();
                counted.fetch_add(1, Ordering::SeqCst);
            }
        });
        Self { stop, answers, calls }
    }

    /// Waits for a verified answer to a call that began after this one of ours.
    async fn answers_again(&self) {
        let before = self.answers.load(Ordering::SeqCst);
        wait::until("the neighbour's answer", async || {
            anyhow::ensure!(!self.calls.is_finished(), "the neighbour has failed");
            Ok((self.answers.load(Ordering::SeqCst) >= before + 2).then_some(()))
        })
        .await
        .unwrap();
    }

    async fn stop(self) {
        self.stop.store(true, Ordering::SeqCst);
        self.calls.await.unwrap();
    }
}

/// What came of attempts, as a number.
fn number(outcomes: &BTreeMap<String, String>, what: &str) -> i64 {
    let came = outcomes.get(what).unwrap_or_else(|| panic!("{what} is not in {outcomes:?}"));
    came.parse().unwrap_or_else(|_| panic!("{what}: {came}"))
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs root, runc and the CNI plugins: make test-node"]
async fn a_hostile_kernel_reaches_nothing_and_takes_nothing_and_its_neighbour_computes_on() {
    let quota = "memory=512MiB,sessions=64";
    let memory = ["--tenant-memory", "1GiB", "--tenant-memory-of-all", "3GiB", "--default-quota", quota];
    let arguments = [&memory[..], &["--abandoned-timeout", "2s"]].concat();
    let tenancy = Tenancy::start(1, &arguments).await;
    let (shop, mill) = (tenancy.site.namespace("shop").await, tenancy.site.namespace("mill").await);
    let neighbour = Neighbour::of(tenancy.sobel(&shop, "sobel").await);

    let api_server = format!("connect:{}:6443", tenancy.site.plane.network().control_plane());
    let paths = [
        "/run/fpga/tokens",
        "/run/fpga/tokens/test-0/shop",
        "/run/fpga/claims",
        "/var/lib/kubelet",
        "/var/lib/fpga-managers",
        "/etc/passwd",
    ];
    let opens: Vec<String> = paths.iter().map(|path| format!("open:{path}")).collect();
    let mut attempts: Vec<&str> = opens.iter().map(String::as_str).collect();
    attempts.extend(["processes", &api_server, "connect:169.254.169.254:80", "fork", "private", "buffers"]);
    tenancy.attempts(&mill, "reaches", &attempts).await;
    let outcomes = tenancy.outcomes("mill", "reaches", "all attempts are over").await;
    println!("{outcomes:#?}");
    for path in paths {
        assert_eq!(number(&outcomes, &format!("open {path}")), -i64::from(libc::EACCES), "{path}");
    }
    assert!(outcomes["processes"].starts_with("0 files of "), "{outcomes:?}");
    assert_ne!(outcomes["processes"], "0 files of 0 opened", "it sees that there are processes");
    for address in [&api_server["connect:".len()..], "169.254.169.254:80"] {
        assert_eq!(number(&outcomes, &format!("connect {address}")), -i64::from(libc::EPERM));
    }
    assert_eq!(outcomes["fork"], format!("0, then -{}", libc::EPERM));
    let private = outcomes["private"].strip_suffix(&format!(", then -{}", libc::ENOMEM)).unwrap();
    assert!(private.parse::<u64>().unwrap() <= 16, "at most 1 GiB: {private} pieces of 64 MiB");
    let buffers = outcomes["buffers"].split_once(", then OpenCL error -").unwrap().0;
    assert!(buffers.parse::<u64>().unwrap() <= 9, "at most 512 MiB: {buffers} buffers of 64 MiB");
    neighbour.answers_again().await;

    // Shared memory is in no limit of a process: the manager ends the process that has most.
    tenancy.attempts(&mill, "hog", &["shared"]).await;
    let outcomes = tenancy.outcomes("mill", "hog", "all attempts are over").await;
    assert!(outcomes["shared"].starts_with("OpenCL error -"), "{outcomes:?}");
    neighbour.answers_again().await;

    tenancy.attempts(&mill, "endless", &["endless"]).await;
    tenancy.outcomes("mill", "endless", "endless: runs").await;
    neighbour.answers_again().await;
    for pod in ["reaches", "hog", "endless"] {
        mill.delete(pod, &DeleteParams::default()).await.unwrap();
    }
    wait::until("nothing of the mill to be left", async || {
        let metrics = tenancy.metrics().await;
        let died = metrics.lines().find_map(|line| {
            line.strip_prefix("fpga_device_manager_tenant_processes_died_total{board=\"test-0\"} ")
        });
        anyhow::ensure!(died.is_some_and(|died| died.parse::<u32>().is_ok_and(|died| died >= 2)), "{died:?}");
        anyhow::ensure!(tenancy.site.boards.tokens("test-0", "mill").is_empty());
        Ok(Some(()))
    })
    .await
    .unwrap();
    neighbour.answers_again().await;
    neighbour.stop().await;
    tenancy.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs root, runc and the CNI plugins: make test-node"]
async fn a_pod_sees_its_own_claim_alone_and_a_session_ends_with_the_pod_whose_token_it_showed() {
    let tenancy = Tenancy::start(1, &[]).await;
    let (shop, mill) = (tenancy.site.namespace("shop").await, tenancy.site.namespace("mill").await);
    let neighbour = Neighbour::of(tenancy.sobel(&shop, "sobel").await);
    let looks = [
        "list:/run/fpga",
        "list:/run/fpga/claim",
        "list:/run/fpga/managers",
        "own:/run/fpga/claims",
        "own:/run/fpga/tokens",
        "own:/run/fpga/managers/../tokens",
        "own:/run/fpga/claim/../claims",
    ];
    tenancy.attempts(&mill, "looks", &looks).await;
    let outcomes = tenancy.outcomes("mill", "looks", "all attempts are over").await;
    let names = |what: &str| {
        let mut names: Vec<&str> = outcomes[what].split(' ').collect();
        names.sort_unstable();
        names.join(" ")
    };
    // What the container has besides is what every container with a board has.
    assert_eq!(names("list /run/fpga"), "bitstreams claim lib managers");
    assert_eq!(names("list /run/fpga/claim"), "managers token");
    assert_eq!(names("list /run/fpga/managers"), "test-0");
    for look in looks.iter().filter_map(|look| look.strip_prefix("own:")) {
        assert_eq!(number(&outcomes, &format!("own {look}")), -i64::from(libc::ENOENT));
    }

    // A copy of the token's value works on this node, for as long as its pod runs.
    let tokens = tenancy.site.boards.tokens("test-0", "mill");
    let [token] = tokens.as_slice() else { panic!("one pod has {} tokens", tokens.len()) };
    let vendors = tempfile::tempdir().unwrap();
    let driver = programs::built("libfpga_opencl_icd.so").unwrap();
    std::fs::write(vendors.path().join("fpga.icd"), driver.display().to_string()).unwrap();
    let mut thief = tokio::process::Command::new(artifacts::opencl_programs().unwrap().join("machine_code"))
        .arg("endless")
        .env("OCL_ICD_VENDORS", vendors.path())
        .env("FPGA_DEVICE_MANAGERS", format!("unix:{}", tenancy.site.boards.socket("test-0").display()))
        .env("FPGA_TOKEN", token)
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(thief.stdout.take().unwrap()).lines();
    assert_eq!(lines.next_line().await.unwrap().unwrap(), "endless: runs");

    delete(&mill, "looks").await;
    let gone = Instant::now();
    let line = tokio::time::timeout(patience(), lines.next_line()).await.expect("the session ends");
    println!("pod gone to session ended: {} ms", gone.elapsed().as_millis());
    let line = line.unwrap().unwrap();
    assert!(line.starts_with("endless: OpenCL error -"), "{line}");
    assert_eq!(tenancy.site.boards.tokens("test-0", "mill"), [""; 0]);
    neighbour.answers_again().await;
    neighbour.stop().await;
    tenancy.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs root, runc and the CNI plugins: make test-node"]
async fn each_namespace_has_a_process_and_a_quota_of_its_own_also_where_all_pods_have_one_user_id() {
    let quotas = tempfile::tempdir().unwrap();
    std::fs::set_permissions(quotas.path(), std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let file = quotas.path().join("tenants.json");
    std::fs::write(
        &file,
        r#"{"tenants": {"mill": {"weight": 1, "quota": {"sessions": 1}}, "shop": {"weight": 3}}}"#,
    )
    .unwrap();
    let tenancy = Tenancy::start(1, &["--tenants", file.to_str().unwrap()]).await;
    let (shop, mill) = (tenancy.site.namespace("shop").await, tenancy.site.namespace("mill").await);
    let case = Case::new(Function::Sobel, 64, 1).unwrap();
    let http = HttpClient::new(patience());
    for (pods, name) in [(&shop, "one"), (&shop, "two"), (&mill, "one")] {
        let address = tenancy.sobel(pods, name).await;
        case.invoke(&http, &address).await.unwrap();
    }
    // The mill has all the sessions that it may have; the shop, with the same user id, has two and may have more.
    tenancy.attempts(&mill, "second", &["own:/"]).await;
    let log = wait::until("the second pod of the mill to end", async || {
        let log = tenancy.site.node.container_log("mill", "second", "main");
        Ok((!log.is_empty()).then_some(log))
    })
    .await
    .unwrap();
    assert!(log.contains("failed") && !log.contains("own /"), "it has no session: {log}");
    let address = tenancy.sobel(&shop, "three").await;
    case.invoke(&http, &address).await.unwrap();
    // A client learns of the end of its task before the manager has counted it.
    wait::until("the manager to count sessions, processes and tasks", async || {
        let metrics = tenancy.metrics().await;
        for line in [
            "fpga_device_manager_sessions{board=\"test-0\"} 4",
            "fpga_device_manager_tenant_processes{board=\"test-0\"} 2",
        ] {
            ensure!(metrics.lines().any(|it| it == line), "{line} is not in {metrics}");
        }
        for (tenant, tasks) in [("mill", 1), ("shop", 3)] {
            let begin =
                format!("fpga_device_manager_tenant_tasks_total{{board=\"test-0\",tenant=\"{tenant}\"}} ");
            let count = metrics.lines().find_map(|line| line.strip_prefix(&begin));
            let count: u64 = count.with_context(|| format!("{begin} is not in {metrics}"))?.parse()?;
            ensure!(count >= tasks, "{tenant}: {count}");
        }
        Ok(Some(()))
    })
    .await
    .unwrap();
    tenancy.stop().await;
}
