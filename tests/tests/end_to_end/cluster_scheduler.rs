//! The cluster's own kube-scheduler calls the extender of the chart with manifests/values/cluster-scheduler.yaml. All
//! files are the shipped ones: the rendered chart, the certificates' script, and the configuration. `testbed::shipped`
//! has the stand-ins for a kubelet.

use fpga_net::tls::{ClientFiles, HTTP_1};
use fpga_test_kit::patience;
use fpga_tests::testbed::control_plane::SchedulerConfig;
use fpga_tests::testbed::identity::Identity;
use fpga_tests::testbed::manifests::{apply, kubectl};
use fpga_tests::testbed::process::Process;
use fpga_tests::testbed::programs::repository;
use fpga_tests::testbed::scale::ScaleBed;
use fpga_tests::testbed::scale::nodes::{Ground, name};
use fpga_tests::testbed::scale::pods::Kind;
use fpga_tests::testbed::shipped::ShippedPod;
use fpga_tests::testbed::wait;
use std::net::Ipv4Addr;
use std::path::Path;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

/// The name in the extender's certificate, which kube-scheduler's configuration names.
const NAME: &str = "fpga-scheduler-extender.kube-fpga.svc";
const REFUSED: &str = "fpga_extender_connections_refused_total{port=\"http\",reason=\"handshake\"}";

/// Applies the output of manifests/certificates.sh for an extender at this address.
async fn make_certificates(bed: &ScaleBed, folder: &Path, address: Ipv4Addr) {
    let kubectl = bed.plane().kubectl();
    let path = format!("{}:{}", kubectl.parent().unwrap().display(), std::env::var("PATH").unwrap());
    let output = tokio::process::Command::new("bash")
        .args(["-euo", "pipefail", "-c", "manifests/certificates.sh \"$0\" | kubectl apply -f -"])
        .arg(folder)
        .current_dir(repository())
        .env("PATH", path)
        .env("KUBECONFIG", bed.plane().kubeconfig(&Identity::Admin).unwrap())
        .env("CLUSTER_SCHEDULER", "yes")
        .env("NAMES", format!("IP:{address}"))
        .output()
        .await
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

/// The answer to a request for /filter from a caller with this identity; `None` if there is no answer.
async fn ask(address: Ipv4Addr, files: &ClientFiles) -> Option<String> {
    let stream = TcpStream::connect((address, 9461)).await.unwrap();
    let mut stream = files.connect(stream, NAME, HTTP_1).await.ok()?;
    let request = "POST /filter HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\nConnection: close\r\n\r\n{}";
    stream.write_all(request.as_bytes()).await.ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.ok()?;
    Some(answer)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_clusters_own_scheduler_places_by_bitstream_and_nobody_without_its_certificate_is_answered() {
    let ground = Ground::advertising(20, 20);
    let mut bed = ScaleBed::start(ground).await.unwrap();
    let run_dir = bed.plane().run_dir().path().to_owned();
    let (certificates, node) = (run_dir.join("certificates"), name(0));
    let address = bed.plane().network().node(0).pods().nth(200).unwrap();
    apply(bed.plane(), "cluster-scheduler").await.unwrap();
    make_certificates(&bed, &certificates, address).await;

    let workload = "deployment/fpga-scheduler-extender";
    let pod = ShippedPod::create(bed.plane(), workload, &node, address, &run_dir.join("node")).await.unwrap();
    let extender = Process::start(&pod.process(bed.plane(), "extender").await.unwrap()).unwrap();
    let ready = format!("http://{address}:9464/readyz");
    extender.wait_ready(bed.http(), &ready, patience()).await.unwrap();
    // The Service refers to the port of the extender.
    let service = ["get", "service/fpga-scheduler-extender-verbs", "-n", "kube-fpga", "-o", "json"];
    let service: serde_json::Value =
        serde_json::from_str(&kubectl(bed.plane(), &service).await.unwrap()).unwrap();
    assert_eq!(service["spec"]["ports"][0]["targetPort"], "verbs");
    assert_eq!(service["spec"]["selector"]["app.kubernetes.io/name"], "fpga-scheduler-extender");

    let config = SchedulerConfig::https(&format!("https://{address}:9461"), &certificates).unwrap();
    bed.start_scheduler(&config).await.unwrap();
    // One of twenty idle nodes with boards has the bitstream.
    bed.create_pods("by-bitstream", Kind::Fpga, 1).await.unwrap();
    bed.wait_until_placed("by-bitstream", 1).await.unwrap();
    let placed = bed.placements("by-bitstream").await.unwrap();
    assert_eq!(placed["by-bitstream-0"], name(ground.holder()), "{placed:?}");

    let metric = async |name: &str| {
        let metrics = bed.http().get(&format!("http://{address}:9464/metrics")).await.unwrap().text();
        metrics.lines().filter_map(|line| line.strip_prefix(name)?.trim().parse::<f64>().ok()).sum::<f64>()
    };
    assert!(metric(REFUSED).await.abs() < 0.5, "kube-scheduler's certificate is taken");
    let file = |name: &str| certificates.join(name);
    let mut caller = ClientFiles { ca: file("ca.crt"), identity: None };
    assert_eq!(ask(address, &caller).await, None, "who shows no certificate");
    // The certificate of the port for streams is issued by another authority.
    caller.identity = Some((file("tls.crt"), file("tls.key")));
    assert_eq!(ask(address, &caller).await, None, "who shows another one");
    wait::until("the refusals to be counted", async || Ok((metric(REFUSED).await >= 2.0).then_some(())))
        .await
        .unwrap();
    caller.identity = Some((file("kube-scheduler.crt"), file("kube-scheduler.key")));
    let answer = ask(address, &caller).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 400"), "a request without a pod: {answer}");
    extender.stop(patience()).await;
    bed.stop().await;
}
