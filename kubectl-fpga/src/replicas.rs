//! The replicas of the extender and of the endpoint picker: finding them, and asking all of them, since they share
//! nothing.

use crate::connection::{Cluster, ConnectArgs};
use crate::part::Part;
use crate::problem::{Grant, Problem, chain};
use futures::future::join_all;
use k8s_openapi::api::discovery::v1::{Endpoint, EndpointPort, EndpointSlice};
use kube::api::ListParams;
use kube::client::Body;
use kube::core::Status;
use kube::{Api, Client};
use serde::de::DeserializeOwned;

/// Longest answer that is accepted. The answer for 5,000 nodes has about 10 MB.
const MAX_ANSWER_BYTES: usize = 256 << 20;

const FIND: Grant =
    Grant { namespace: Some("kube-fpga"), verbs: "list", resources: "endpointslices.discovery.k8s.io" };
const PROXY: Grant = Grant { namespace: Some("kube-fpga"), verbs: "get", resources: "pods/proxy" };

/// A replica of a part.
#[derive(Clone)]
pub struct Replica {
    part: Part,
    /// Name of the pod, or the address.
    pub name: String,
    /// Whether the EndpointSlice has the replica as ready.
    pub ready: bool,
    client: Client,
    server: String,
    /// Prefixes of paths to try in this order: through the proxy as HTTP, then as HTTPS.
    prefixes: Vec<String>,
}

/// A replica's answer.
#[derive(Debug, Clone)]
pub struct Answered<T> {
    /// Name of the replica.
    pub replica: String,
    /// The answer; `None` if the replica does not know the object that was asked for (404).
    pub answer: Result<Option<T>, Problem>,
}

/// Finds the replicas of a part: at the addresses that are given, or else the pods behind the Service.
///
/// # Errors
/// [`Problem::Url`] if an address can't be used, [`Problem::NoReplica`] if no pod is found, or the API server's
/// error.
pub async fn find(part: Part, args: &ConnectArgs, cluster: &Cluster) -> Result<Vec<Replica>, Problem> {
    if !args.given(part).is_empty() {
        return given(part, args);
    }
    let (namespace, service) = args.service(part);
    let slices: Api<EndpointSlice> = Api::namespaced(cluster.client.clone(), namespace);
    let of_service = ListParams::default().labels(&format!("kubernetes.io/service-name={service}"));
    let found = slices.list(&of_service).await.map_err(|error| {
        let doing = format!("can't find the {}'s replicas", part.name());
        Problem::of_api(&error, &cluster.server, &doing, &FIND)
    })?;
    let none = |why: &str| Problem::NoReplica {
        part,
        namespace: namespace.to_owned(),
        service: service.to_owned(),
        why: why.to_owned(),
    };
    if found.items.is_empty() {
        return Err(none("is not there"));
    }
    let mut replicas = Vec::new();
    for slice in &found.items {
        let port = port_of(slice.ports.as_deref().unwrap_or_default());
        for endpoint in slice.endpoints.iter().flatten() {
            let Some(pod) = pod_of(endpoint) else { continue };
            let Some(number) = port.and_then(|port| port.port) else { continue };
            let proxy =
                |scheme: &str| format!("/api/v1/namespaces/{namespace}/pods/{scheme}{pod}:{number}/proxy");
            replicas.push(Replica {
                part,
                name: pod.to_owned(),
                ready: endpoint.conditions.as_ref().and_then(|conditions| conditions.ready).unwrap_or(true),
                client: cluster.client.clone(),
                server: cluster.server.clone(),
                prefixes: vec![proxy(""), proxy("https:")],
            });
        }
    }
    if replicas.is_empty() {
        return Err(none("has no pods behind it"));
    }
    replicas.sort_by(|a, b| a.name.cmp(&b.name));
    replicas.dedup_by(|a, b| a.name == b.name);
    Ok(replicas)
}

/// The replicas of a part, for which no cluster is needed if their addresses are given.
///
/// # Errors
/// The [`Problem`] of [`find`] or [`given`], or that no cluster is configured.
pub async fn replicas(part: Part, args: &ConnectArgs) -> Result<Vec<Replica>, Problem> {
    if args.given(part).is_empty() {
        find(part, args, &args.cluster().await?).await
    } else {
        given(part, args)
    }
}

/// The replicas at the addresses that are given. No cluster is needed.
///
/// # Errors
/// [`Problem::Url`] if an address can't be used.
pub fn given(part: Part, args: &ConnectArgs) -> Result<Vec<Replica>, Problem> {
    let replica = |url: &http::Uri| {
        if url.scheme().is_none() || url.authority().is_none() {
            let error = "it has no scheme".to_owned();
            return Err(Problem::Url { part, url: url.to_string(), error });
        }
        let name = url.to_string().trim_end_matches('/').to_owned();
        let client = args.replica(part, url)?;
        Ok(Replica { part, server: name.clone(), name, ready: true, client, prefixes: vec![String::new()] })
    };
    args.given(part).iter().map(replica).collect()
}

/// Asks all replicas for `path` at the same time.
pub async fn ask_all<T: DeserializeOwned>(replicas: &[Replica], path: &str) -> Vec<Answered<T>> {
    let asked = replicas
        .iter()
        .map(async |replica| Answered { replica: replica.name.clone(), answer: replica.ask(path).await });
    join_all(asked).await
}

impl Replica {
    /// The replica's answer to `path`, parsed; `None` if the replica does not know the object (404).
    ///
    /// # Errors
    /// [`Problem`] if the replica does not answer or the answer is not the expected JSON.
    pub async fn ask<T: DeserializeOwned>(&self, path: &str) -> Result<Option<T>, Problem> {
        let text = self.text(path).await?;
        text.map(|text| self.parse(&text)).transpose()
    }

    /// Parses an answer of the replica.
    ///
    /// # Errors
    /// [`Problem::Answer`] if the answer is not the expected JSON.
    pub fn parse<T: DeserializeOwned>(&self, answer: &str) -> Result<T, Problem> {
        serde_json::from_str(answer).map_err(|error| Problem::Answer {
            part: self.part,
            replica: self.name.clone(),
            error: error.to_string(),
        })
    }

    /// The text of the replica's answer to `path`; `None` if the replica does not know the object (404).
    ///
    /// # Errors
    /// [`Problem`] if the replica does not answer.
    pub async fn text(&self, path: &str) -> Result<Option<String>, Problem> {
        let mut last = None;
        for prefix in &self.prefixes {
            match self.try_prefix(&format!("{prefix}{path}")).await {
                Ok(answer) => return Ok(answer),
                // A user without the right to the proxy has it for https neither.
                Err(problem @ (Problem::Forbidden { .. } | Problem::Unauthorized(_))) => return Err(problem),
                Err(problem) => last = last.or(Some(problem)),
            }
        }
        let silent = || Problem::Silent {
            part: self.part,
            replica: self.name.clone(),
            error: "it has no address".to_owned(),
        };
        Err(last.unwrap_or_else(silent))
    }

    async fn try_prefix(&self, path: &str) -> Result<Option<String>, Problem> {
        let silent = |error: String| Problem::Silent { part: self.part, replica: self.name.clone(), error };
        let of_kube = |error: kube::Error| silent(chain(&error));
        let request =
            http::Request::get(path).body(Body::empty()).map_err(|error| silent(error.to_string()))?;
        // `Client::request` would parse errors as a Status of the API server; a replica's errors are none.
        let response = self.client.send(request).await.map_err(of_kube)?;
        let code = response.status().as_u16();
        let body = response.into_body().collect_bytes().await.map_err(of_kube)?;
        if body.len() > MAX_ANSWER_BYTES {
            return Err(silent("its answer is too long".to_owned()));
        }
        let text = String::from_utf8_lossy(&body).into_owned();
        if (200..300).contains(&code) {
            return Ok(Some(text));
        }
        let status = serde_json::from_str::<Status>(&text).unwrap_or_default();
        // A 404 of the API server carries a Status and means that the pod is gone; a 404 of a replica carries none and
        // means that the object is unknown.
        if code == 404 && status.code == 0 {
            return Ok(None);
        }
        let message = if status.message.is_empty() { text } else { status.message.clone() };
        let error = kube::Error::Api(Box::new(Status { code, message, ..status }));
        match Problem::of_api(&error, &self.server, &format!("asking the {}", self.part.name()), &PROXY) {
            Problem::Other { error, .. } => Err(silent(error)),
            problem => Err(problem),
        }
    }
}

/// The port named `read`, or else `http`, `https`, or the first.
fn port_of(ports: &[EndpointPort]) -> Option<&EndpointPort> {
    let named = |name: &str| ports.iter().find(|port| port.name.as_deref() == Some(name));
    named("read").or_else(|| named("http")).or_else(|| named("https")).or_else(|| ports.first())
}

fn pod_of(endpoint: &Endpoint) -> Option<&str> {
    let target = endpoint.target_ref.as_ref()?;
    if target.kind.as_deref() == Some("Pod") { target.name.as_deref() } else { None }
}
