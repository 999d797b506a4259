//! Sends requests to an extender as kube-scheduler does, one after the other on each kept connection, and measures
//! the times.

use anyhow::{Context as _, Result, bail, ensure};
use bytes::Bytes;
use clap::ValueEnum;
use http::{Request, Uri, header};
use http_body_util::{BodyExt as _, Full};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use std::time::{Duration, Instant};
use tokio::net::TcpStream;

/// The verb of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Verb {
    /// Filter: which nodes fit.
    Filter,
    /// Prioritize: the nodes' scores.
    Prioritize,
}

/// The form of the nodes in a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Mode {
    /// Names of nodes (`nodeCacheCapable: true`).
    Names,
    /// Whole nodes (`nodeCacheCapable: false`).
    Nodes,
}

impl Verb {
    /// Name of the verb in the URL's path.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Filter => "filter",
            Self::Prioritize => "prioritize",
        }
    }
}

impl Mode {
    /// Name of the mode in tables.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Names => "names",
            Self::Nodes => "nodes",
        }
    }
}

/// The answers to all requests.
#[derive(Debug, Default)]
pub struct Outcome {
    /// Time until each answer.
    pub times: Vec<Duration>,
    /// Number of answers with another status than 2xx.
    pub errors: usize,
    /// Number of nodes that the first answer names.
    pub named: usize,
}

/// The pod in the requests: it wants two bitstreams, and has the fields that a real API server adds.
pub fn pod() -> Value {
    json!({
        "metadata": {
            "name": "sobel-7d9c5b8f6-abcde", "namespace": "default", "uid": "1b4e28ba-2fa1-41d2-883f-0016d3cca427",
            "resourceVersion": "4711", "creationTimestamp": "2026-01-01T00:00:00Z",
            "labels": {"app": "sobel", "fpga-scheduling.io/fpga-vendor": "intel"},
            "annotations": {"fpga-scheduling.io/bitstreams": "accelerator-7,accelerator-30"},
            "ownerReferences": [{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "sobel-7d9c5b8f6",
                                 "uid": "9b2f6a52-77f3-4a0c-9f0e-6f6b1a2c3d4e", "controller": true, "blockOwnerDeletion": true}],
        },
        "spec": {
            "containers": [{
                "name": "main", "image": "registry.example/sobel:1",
                "resources": {"limits": {"cpu": "1", "fpga-scheduling.io/accelerated": "1"},
                              "requests": {"cpu": "1", "fpga-scheduling.io/accelerated": "1"}},
                "terminationMessagePath": "/dev/termination-log", "terminationMessagePolicy": "File", "imagePullPolicy": "IfNotPresent",
            }],
            "restartPolicy": "Always", "terminationGracePeriodSeconds": 30, "dnsPolicy": "ClusterFirst",
            "serviceAccountName": "default", "securityContext": {}, "schedulerName": "default-scheduler",
        },
        "status": {"phase": "Pending", "qosClass": "Burstable"},
    })
}

/// The body of a request. Whole nodes have about `node_bytes` each: labels and conditions, filled up with images.
pub fn body(pod: &Value, names: &[String], mode: Mode, node_bytes: usize) -> Bytes {
    let request = match mode {
        Mode::Names => json!({"Pod": pod, "Nodes": null, "NodeNames": names}),
        Mode::Nodes => {
            let items: Vec<Value> = names.iter().map(|name| whole_node(name, node_bytes)).collect();
            json!({"Pod": pod, "Nodes": {"metadata": {}, "items": items}, "NodeNames": null})
        }
    };
    request.to_string().into()
}

fn whole_node(name: &str, bytes: usize) -> Value {
    let condition = |kind: &str, status: &str| {
        json!({"type": kind, "status": status, "reason": "KubeletSaysSo", "message": "kubelet is posting this status",
               "lastHeartbeatTime": "2026-01-01T00:00:00Z", "lastTransitionTime": "2026-01-01T00:00:00Z"})
    };
    let resources =
        json!({"cpu": "64", "memory": "263921344Ki", "pods": "110", "ephemeral-storage": "100Gi"});
    let mut node = json!({
        "metadata": {"name": name, "uid": "5b9d7a2e-8c2f-4a56-9a55-1d8c2f4a569a", "resourceVersion": "4711",
                     "labels": {"kubernetes.io/hostname": name, "kubernetes.io/os": "linux", "fpga-scheduling.io/fpga-vendor": "intel"}},
        "spec": {"podCIDR": "10.0.0.0/24", "providerID": format!("example://{name}")},
        "status": {
            "capacity": resources, "allocatable": resources,
            "conditions": [condition("Ready", "True"), condition("MemoryPressure", "False"), condition("DiskPressure", "False"), condition("PIDPressure", "False")],
            "images": [],
        },
    });
    let image = |index: usize| json!({"names": [format!("registry.example/team/image-{index}@sha256:{index:064}")], "sizeBytes": 123_456_789});
    let one = image(0).to_string().len() + 1;
    let missing = bytes.saturating_sub(node.to_string().len());
    node["status"]["images"] = (0..missing / one).map(image).collect();
    node
}

/// Sends requests for the time `time`. The first tenth warms up and isn't measured.
///
/// # Errors
/// The extender can't be reached, or closes a connection.
pub async fn ask(url: &str, verb: Verb, body: &Bytes, connections: usize, time: Duration) -> Result<Outcome> {
    let askers = (0..connections).map(|_| {
        let (url, body) = (format!("{}/{}", url.trim_end_matches('/'), verb.name()), body.clone());
        tokio::spawn(async move { one_connection(&url, &body, time).await })
    });
    let mut all = Outcome::default();
    for asker in futures::future::join_all(askers).await {
        let Outcome { times, errors, named } = asker.context("an asker failed")??;
        all.times.extend(times);
        all.errors += errors;
        all.named = named;
    }
    ensure!(!all.times.is_empty(), "no answer in {time:?}");
    Ok(all)
}

async fn one_connection(url: &str, body: &Bytes, time: Duration) -> Result<Outcome> {
    let uri: Uri = url.parse().with_context(|| format!("{url:?} is no URL; write http://HOST:PORT"))?;
    let (Some("http"), Some(authority)) = (uri.scheme_str(), uri.authority()) else {
        bail!("{url:?} can't be asked; write http://HOST:PORT[/PATH]");
    };
    let address = format!("{}:{}", authority.host(), authority.port_u16().unwrap_or(80));
    let stream =
        TcpStream::connect(&address).await.with_context(|| format!("nobody listens on {address}"))?;
    stream.set_nodelay(true)?;
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
    let connection = tokio::spawn(connection);
    let mut outcome = Outcome::default();
    let begin = Instant::now();
    // The first tenth of the time warms up.
    let (warm, end) = (begin + time / 10, begin + time);
    loop {
        let started = Instant::now();
        let request = Request::post(uri.path())
            .header(header::HOST, authority.as_str())
            .header(header::CONTENT_TYPE, "application/json")
            .body(Full::new(body.clone()))?;
        sender.ready().await.context("the extender hung up")?;
        let answer = sender.send_request(request).await.context("the extender hung up")?;
        let status = answer.status();
        let bytes = answer.into_body().collect().await.context("the extender hung up")?.to_bytes();
        let ended = Instant::now();
        if !status.is_success() {
            outcome.errors += 1;
        }
        if outcome.named == 0 && status.is_success() {
            outcome.named = named(&bytes)?;
        }
        if ended >= warm {
            outcome.times.push(ended - started);
        }
        if ended >= end {
            connection.abort();
            return Ok(outcome);
        }
    }
}

/// Number of nodes that an answer names.
fn named(answer: &[u8]) -> Result<usize> {
    let answer: Value = serde_json::from_slice(answer).context("the answer is not JSON")?;
    let count = |list: &Value| list.as_array().map(Vec::len);
    Ok(count(&answer)
        .or_else(|| count(&answer["NodeNames"]))
        .or_else(|| count(&answer["Nodes"]["items"]))
        .unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_nodes_are_about_as_large_as_asked_for() {
        let names: Vec<String> = (0..100).map(|index| format!("node-{index:05}")).collect();
        let whole = body(&pod(), &names, Mode::Nodes, 6_000).len();
        assert!((580_000..620_000).contains(&whole), "{whole}");
        assert!(body(&pod(), &names, Mode::Names, 6_000).len() < 10_000);
    }

    #[test]
    fn what_an_answer_names_is_counted_in_all_three_forms() {
        for answer in [
            r#"[{"Host":"a","Score":1},{"Host":"b","Score":0}]"#,
            r#"{"NodeNames":["a","b"],"Nodes":null}"#,
            r#"{"NodeNames":null,"Nodes":{"items":[{},{}]}}"#,
        ] {
            assert_eq!(named(answer.as_bytes()).unwrap(), 2, "{answer}");
        }
    }
}
