//! Tenants learn nothing of each other: a pod of one namespace calls every port of ours that it reaches, and reads all that
//! its account may read, while another namespace has a pod, a board, a private Bitstream, a function and jobs.
//!
//! The ports are those of the chart. A port that is new there, in the book, or here alone, fails the test.

mod bed;
mod calls;
mod installed;
mod ports;
mod tenant;

use bed::Bed;
use calls::{Caller, Heard};
use fpga_core::bitstream::Digest;
use fpga_core::gate::{GateRequest, Origin, Others, Residency};
use fpga_net::tls::ClientFiles;
use fpga_test_kit::{Authority, patience};
use fpga_tests::testbed::http_client::HttpClient;
use fpga_tests::testbed::{programs, wait};
use kube::Resource as _;
use kube::discovery::{Discovery, verbs};
use ports::{EVERYTHING, Guard, book, declared, lets_tenants_in, objects};
use sha2::{Digest as _, Sha256};
use std::collections::BTreeSet;
use std::process::Stdio;
use tenant::{Tenant, client};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::UnixStream;
use tokio::process::Command;

/// Settings for the cluster's own kube-scheduler, which has a certificate of the script.
const OF_CLUSTER: [&str; 3] =
    ["scheduler.mode=cluster", "certificates.mode=script", "router.externalMetrics.caBundle=PEM"];

/// The words of a tenant's objects that others have no way to know.
fn secrets(tenant: &Tenant) -> Vec<String> {
    let Tenant { namespace, account, pod, uid, bitstream, digest, function, accelerator } = tenant;
    // Messages may have the beginning of a digest.
    let words = [namespace, *account, *pod, uid, *bitstream, &digest[..12], *function, *accelerator];
    words.map(str::to_owned).to_vec()
}

/// The first of the secrets in an answer that the question did not have.
fn told<'s>(secrets: &'s [String], Heard { asked, answer }: &Heard) -> Option<&'s String> {
    secrets.iter().find(|secret| answer.contains(secret.as_str()) && !asked.contains(secret.as_str()))
}

#[test]
fn the_book_has_each_port_of_the_chart_and_says_what_keeps_tenants_from_it() {
    let own = objects(&EVERYTHING);
    let of_cluster = objects(&[&EVERYTHING[..], &OF_CLUSTER[..]].concat());
    let book = book();
    let of_chart: BTreeSet<_> = declared(&own).union(&declared(&of_cluster)).cloned().collect();
    assert_eq!(
        book.keys().cloned().collect::<BTreeSet<_>>(),
        of_chart,
        "the book's ports, and those of the chart"
    );
    for (port, row) in &book {
        let is_open = [&own, &of_cluster].iter().any(|objects| lets_tenants_in(objects, port));
        let guard = if is_open { Guard::Port } else { Guard::NetworkPolicy };
        assert_eq!(row.guard, guard, "{port:?} by the chart, and by the book");
        assert!(!is_open || !row.names_tenants, "{port:?} is open to all, and names tenants");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_tenant_that_calls_every_port_and_reads_all_that_it_may_finds_nothing_of_another_tenant() {
    let bed = Bed::start().await;
    let secrets = secrets(&bed.theirs);
    let caller = caller(&bed).await;
    for (port, row) in book() {
        let address = bed.address(&port.0, port.1);
        let heard = caller.call(&port, address).await;
        let heard =
            heard.unwrap_or_else(|| panic!("nobody has said how {port:?} is called: tenants/calls.rs"));
        assert!(!heard.is_empty(), "{port:?} was not called");
        if !row.names_tenants {
            for heard in &heard {
                assert_eq!(told(&secrets, heard), None, "{port:?} tells of another tenant: {heard:?}");
                // A number about a function that a tenant has guessed is an answer, too.
                let is_answered = ["200", "HTTP/1.1 200"].iter().any(|ok| heard.answer.starts_with(ok));
                let is_about_others = secrets.iter().any(|secret| heard.asked.contains(secret.as_str()));
                assert!(!is_answered || !is_about_others, "{port:?} answers about another tenant: {heard:?}");
            }
        }
    }
    let mut heard = words_of_the_pool(&bed).await;
    heard.extend(words_about_pods(&bed).await);
    heard.extend(words_of_the_board(&bed).await);
    heard.extend(objects_of_the_api_server(&bed).await);
    for heard in &heard {
        assert_eq!(told(&secrets, heard), None, "{heard:?}");
    }
    bed.check_running().unwrap();
    bed.plane.stop().await;
}

/// A pod of the tenant, with all tokens that its account may have.
async fn caller(bed: &Bed) -> Caller {
    let mut tokens = Vec::new();
    for audience in [
        "https://kubernetes.default.svc",
        "fpga-scheduler-extender-read",
        "fpga-endpoint-picker-read",
        "fpga-scheduler-extender",
        "fpga-endpoint-picker",
        "fpga-pool",
    ] {
        tokens.push((audience.to_owned(), bed.pod_token(&bed.mine, audience).await));
    }
    let own = Authority::new(bed.plane.run_dir().path(), "of-a-tenant");
    let own = own.issue_as("of-a-tenant", "front-proxy-client");
    let identity = Some((own.certificate, own.key));
    let names = [&bed.mine, &bed.theirs]
        .map(|tenant| [tenant.namespace.clone(), tenant.pod.to_owned(), tenant.function.to_owned()]);
    Caller {
        http: HttpClient::new(patience()),
        tokens,
        authority: bed.authority.ca.clone(),
        certificate: ClientFiles { ca: bed.authority.ca.clone(), identity },
        names: names.to_vec(),
    }
}

/// Answers of the pool's client and of `kubectl fpga pool` to a tenant, whose job waits behind jobs of another tenant.
async fn words_of_the_pool(bed: &Bed) -> Vec<Heard> {
    let token = bed.pod_token(&bed.mine, "fpga-pool").await;
    let waiting = bed.job(&bed.mine, "100s").await.spawn().unwrap();
    let looked = wait::until("the job to wait", async || {
        let looked = bed.look(&token).await;
        anyhow::ensure!(looked.contains(&bed.mine.namespace), "{looked}");
        Ok(Some(looked))
    });
    let looked = looked.await.unwrap();
    drop(waiting);
    // A job without input, which ends when it has waited for its time.
    let mut ends = bed.job(&bed.mine, "1s").await;
    let ended = tokio::time::timeout(patience(), ends.stdin(Stdio::null()).output()).await.unwrap().unwrap();
    let said = String::from_utf8_lossy(&[ended.stdout, ended.stderr].concat()).into_owned();
    [looked, said].map(|answer| Heard { asked: String::new(), answer }).into()
}

/// Messages about the tenant's pods to kube-scheduler and the kubelet, which put the messages into events.
async fn words_about_pods(bed: &Bed) -> Vec<Heard> {
    let mut heard = Vec::new();
    let mut hear = |asked: &str, answer: String| heard.push(Heard { asked: asked.to_owned(), answer });
    for bitstream in [bed.mine.bitstream, bed.theirs.bitstream, "nobody-has-this"] {
        hear(bitstream, bed.decide(&bed.mine, bitstream).await);
    }
    // A Bitstream of the tenant's own with the digest of another one, which the node has.
    let mut thief = bed.theirs.bitstream("thief", "registry.example");
    thief["metadata"]["namespace"] = bed.mine.namespace.clone().into();
    bed.mine.apply(&bed.plane, "thief", &thief).await;
    let pod = serde_json::json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": "burglar", "annotations": {"fpga-scheduling.io/bitstreams": "thief"}},
        "spec": {
            "serviceAccountName": bed.mine.account, "nodeName": installed::NODE, "schedulerName": "kube-fpga",
            "containers": [{"name": "main", "image": "none", "resources": {"limits": {"fpga-scheduling.io/accelerated": "1"}}}],
        },
    });
    bed.mine.apply(&bed.plane, "burglar", &pod).await;
    bed.kubelet.admit(&bed.mine.namespace, "burglar").await;
    let refused =
        bed.kubelet.start_container("burglar").await.expect_err("its own source has not delivered the bytes");
    hear(&thief.to_string(), refused.to_string());
    // What the API server tells of the digest afterwards is not the tenant's own word.
    bed.mine.delete(&bed.plane, "bitstream", "thief").await;
    heard
}

/// What the board tells a program of the tenant's container: of the gate, and of the manager.
async fn words_of_the_board(bed: &Bed) -> Vec<Heard> {
    let mut heard = Vec::new();
    let token = bed.board_token(&bed.mine);
    for digest in [&bed.mine.digest, &bed.theirs.digest] {
        let request = GateRequest {
            token: Digest::from_bytes(Sha256::digest(token.as_bytes()).into()),
            board: "pocl-0".to_owned(),
            bitstream: format!("sha256:{digest}").parse().unwrap(),
            origin: Origin::Client,
            residency: Residency::Absent,
            others: Others::Busy,
        };
        let asked = request.line().unwrap();
        let mut stream = UnixStream::connect(bed.root.join("run/fpga/gate/gate.sock")).await.unwrap();
        stream.write_all(asked.as_bytes()).await.unwrap();
        let mut answer = String::new();
        let mut stream = BufReader::new(stream);
        tokio::time::timeout(patience(), stream.read_line(&mut answer)).await.unwrap().unwrap();
        heard.push(Heard { asked, answer });
    }
    let icd = bed.plane.run_dir().path().join("icd");
    std::fs::create_dir_all(&icd).unwrap();
    let library = programs::built("libfpga_opencl_icd.so").unwrap();
    std::fs::write(icd.join("fpga.icd"), library.display().to_string()).unwrap();
    for token in [token.as_str(), "of-nobody"] {
        let program = Command::new("clinfo")
            .env("OCL_ICD_VENDORS", &icd)
            .env("FPGA_DEVICE_MANAGERS", format!("unix:{}", bed.manager().display()))
            .env("FPGA_TOKEN", token)
            .env("FPGA_LOG", "trace")
            .stdin(Stdio::null())
            .output();
        let output =
            tokio::time::timeout(patience(), program).await.unwrap().expect("clinfo is missing: make setup");
        let answer = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
        heard.push(Heard { asked: String::new(), answer });
    }
    assert!(heard[2].answer.contains("FPGA"), "the tenant's program sees the board: {heard:?}");
    heard
}

/// Each list of the API server that the tenant's account may read, of its namespace and of all.
async fn objects_of_the_api_server(bed: &Bed) -> Vec<Heard> {
    let mut heard = external_metrics(bed).await;
    let client = client(&bed.plane, &bed.mine).await;
    let kinds = Discovery::new(client.clone()).run().await.unwrap();
    let mut may_read = BTreeSet::new();
    for (resource, capabilities) in kinds.groups().flat_map(|group| group.recommended_resources()) {
        if !capabilities.supports_operation(verbs::LIST) {
            continue;
        }
        for namespace in [None, Some(bed.mine.namespace.as_str())] {
            let url = kube::api::DynamicObject::url_path(&resource, namespace);
            let request = http::Request::get(&url).body(Vec::new()).unwrap();
            let listed = client.request_text(request).await;
            if listed.is_ok() {
                may_read.insert(resource.plural.clone());
            }
            let answer = listed.unwrap_or_else(|error| error.to_string());
            // An event tells of the digest that the tenant had written itself.
            let asked = if resource.plural == "events" { bed.theirs.digest.clone() } else { String::new() };
            heard.push(Heard { asked, answer });
        }
    }
    for due in ["pods", "events", "bitstreams", "services"] {
        assert!(may_read.contains(due), "an account of ordinary rights reads {due}: {may_read:?}");
    }
    heard
}

/// The API server asks the router for external metrics in the name of who may.
async fn external_metrics(bed: &Bed) -> Vec<Heard> {
    let mine = &bed.mine;
    let role = [
        "create",
        "role",
        "metrics",
        "--verb=get,list",
        "--resource=*.external.metrics.k8s.io",
        "-n",
        &mine.namespace,
    ];
    fpga_tests::testbed::manifests::kubectl(&bed.plane, &role).await.unwrap();
    let account = format!("--serviceaccount={}:{}", mine.namespace, mine.account);
    let binding = ["create", "rolebinding", "metrics", "--role=metrics", &account, "-n", &mine.namespace];
    fpga_tests::testbed::manifests::kubectl(&bed.plane, &binding).await.unwrap();
    let client = client(&bed.plane, mine).await;
    let ask = async |tenant: &Tenant| {
        let (namespace, function) = (&tenant.namespace, tenant.function);
        let metric = "fpga_function_requests_in_flight";
        let url = format!(
            "/apis/external.metrics.k8s.io/v1beta1/namespaces/{namespace}/{metric}?labelSelector=function%3D{function}"
        );
        let answer = client.request_text(http::Request::get(&url).body(Vec::new()).unwrap()).await;
        (url, answer)
    };
    let own = wait::until("the API server to get the own metric", async || {
        let (asked, answer) = ask(mine).await;
        let answer = answer?;
        anyhow::ensure!(answer.contains("metricName"), "{answer}");
        Ok(Some(Heard { asked, answer }))
    });
    let own = own.await.unwrap();
    let (asked, others) = ask(&bed.theirs).await;
    let refused = others.expect_err("the metrics of another namespace").to_string();
    assert!(refused.contains("forbidden"), "{refused}");
    vec![own, Heard { asked, answer: refused }]
}
