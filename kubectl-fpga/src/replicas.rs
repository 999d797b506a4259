//! The replicas of the extender and of the endpoint picker: finding them, and asking all of them, since they share
//! nothing.

use crate::connection::{Cluster, ConnectArgs};
use crate::part::Part;
use crate::problem::{Grant, Problem, chain};
use crate::reader::Reader;
use fpga_net::read_access::TOKEN_HEADER;
use futures::future::join_all;
use http::StatusCode;
use k8s_openapi::api::discovery::v1::{Endpoint, EndpointPort, EndpointSlice};
use kube::api::ListParams;
use kube::client::Body;
use kube::core::Status;
use kube::{Api, Client};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use std::sync::Arc;

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
    reader: Arc<Reader>,
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
    let reader = Arc::new(Reader::new(part, args, Some(cluster)));
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
                reader: Arc::clone(&reader),
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
    let reader = Arc::new(Reader::new(part, args, None));
    let replica = |url: &http::Uri| {
        if url.scheme().is_none() || url.authority().is_none() {
            let error = "it has no scheme".to_owned();
            return Err(Problem::Url { part, url: url.to_string(), error });
        }
        let name = url.to_string().trim_end_matches('/').to_owned();
        let client = args.replica(part, url)?;
        let (reader, prefixes) = (Arc::clone(&reader), vec![String::new()]);
        Ok(Replica { part, server: name.clone(), name, ready: true, client, reader, prefixes })
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
                Err(problem @ (Problem::Silent { .. } | Problem::Answer { .. })) => {
                    last = last.or(Some(problem));
                }
                // A user without the right to the proxy has it for https neither.
                Err(problem) => return Err(problem),
            }
        }
        let silent = || Problem::Silent {
            part: self.part,
            replica: self.name.clone(),
            error: "it has no address".to_owned(),
        };
        Err(last.unwrap_or_else(silent))
    }

    /// The answer to `path`. A replica that wants to know who reads gets a token.
    async fn try_prefix(&self, path: &str) -> Result<Option<String>, Problem> {
        let mut token = self.reader.token().await;
        let mut answer = self.send(path, token.as_deref()).await?;
        if answer.is_by_replica(StatusCode::UNAUTHORIZED) {
            token = Some(self.reader.renew(token.as_deref()).await?);
            answer = self.send(path, token.as_deref()).await?;
        }
        if answer.code.is_success() {
            return Ok(Some(answer.text));
        }
        // A 404 of the API server means that the pod is gone, and one of a replica that the object is unknown.
        if answer.is_by_replica(StatusCode::NOT_FOUND) {
            return Ok(None);
        }
        if answer.is_by_replica(StatusCode::UNAUTHORIZED) || answer.is_by_replica(StatusCode::FORBIDDEN) {
            return Err(Problem::NoReader {
                part: self.part,
                replica: self.name.clone(),
                account: self.reader.account().to_string(),
                error: answer.words(),
            });
        }
        let (code, message) = (answer.code.as_u16(), answer.words());
        let error = kube::Error::Api(Box::new(Status { code, message, ..answer.status }));
        match Problem::of_api(&error, &self.server, &format!("asking the {}", self.part.name()), &PROXY) {
            Problem::Other { error, .. } => Err(self.silent(error)),
            problem => Err(problem),
        }
    }

    async fn send(&self, path: &str, token: Option<&str>) -> Result<Answer, Problem> {
        let of_kube = |error: kube::Error| self.silent(chain(&error));
        let mut request = http::Request::get(path);
        if let Some(token) = token {
            request = request.header(TOKEN_HEADER, token);
        }
        let request = request.body(Body::empty()).map_err(|error| self.silent(error.to_string()))?;
        // `Client::request` would parse errors as a Status of the API server; a replica's errors are none.
        let response = self.client.send(request).await.map_err(of_kube)?;
        let code = response.status();
        let body = response.into_body().collect_bytes().await.map_err(of_kube)?;
        if body.len() > MAX_ANSWER_BYTES {
            return Err(self.silent("its answer is too long".to_owned()));
        }
        let text = String::from_utf8_lossy(&body).into_owned();
        let status = if code.is_success() {
            Status::default()
        } else {
            serde_json::from_str(&text).unwrap_or_default()
        };
        Ok(Answer { code, text, status })
    }

    fn silent(&self, error: String) -> Problem {
        Problem::Silent { part: self.part, replica: self.name.clone(), error }
    }
}

/// An answer of a replica, or of the API server on the way to it.
struct Answer {
    code: StatusCode,
    text: String,
    /// That of the API server; those of replicas have no code.
    status: Status,
}

/// The answer of a replica to a request that it refuses.
#[derive(Deserialize)]
struct Refused {
    error: String,
}

impl Answer {
    /// Whether the replica itself has answered with this code.
    fn is_by_replica(&self, code: StatusCode) -> bool {
        self.code == code && self.status.code == 0
    }

    /// What the answer says.
    fn words(&self) -> String {
        if !self.status.message.is_empty() {
            return self.status.message.clone();
        }
        serde_json::from_str(&self.text).map_or_else(|_| self.text.clone(), |refused: Refused| refused.error)
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
