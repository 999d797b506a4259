//! What all pickers count together. Each gateway asks one of them, so that each knows a part of a function's requests.

use crate::function::FunctionName;
use bytes::Bytes;
use fpga_net::read_access::TOKEN_HEADER;
use fpga_net::token_file::{TokenError, TokenFile};
use fpga_picker_api::{FunctionView, PicksView};
use futures::future::join_all;
use http_body_util::{BodyExt as _, Empty, Limited};
use hyper::client::conn::http1;
use hyper::{Request, StatusCode};
use hyper_util::rt::TokioIo;
use std::io;
use std::net::SocketAddr;
use std::str::FromStr;
use std::time::Duration;
use tokio::net::{TcpStream, lookup_host};
use tokio::time::timeout;

/// Longest time for all answers.
const TIMEOUT: Duration = Duration::from_secs(3);
/// Most pickers: more than `router.replicas` of the chart may be.
const MOST_PEERS: usize = 128;
/// Longest answer of a picker, in bytes: a function with its replicas and its last picks.
const MAX_ANSWER_BYTES: usize = 4 << 20;

/// The pickers behind a name, by their ports for people. Text form: `NAME:PORT`.
#[derive(Debug, Clone)]
pub struct Peers {
    name: String,
    /// The token that they are shown.
    token: Option<TokenFile>,
}

/// Why the sum over all pickers is not known. Without one of them it would be too small, and functions would lose replicas.
#[derive(Debug, thiserror::Error)]
pub enum PeersError {
    /// The name has no addresses.
    #[error("cannot look up the pickers at {name}: {error}")]
    LookUp {
        /// The name with its port.
        name: String,
        /// The error of the system.
        error: io::Error,
    },
    /// The picker's own token can't be read.
    #[error("--pickers-token-file: {0}")]
    Token(#[from] TokenError),
    /// There are too many addresses.
    #[error("{0} pickers are more than {MOST_PEERS}")]
    TooMany(usize),
    /// A picker does not answer, or not as a picker does.
    #[error("the picker at {address} {problem}")]
    Peer {
        /// Its address.
        address: SocketAddr,
        /// What is wrong.
        problem: String,
    },
    /// The time is over.
    #[error("the pickers did not answer within {} s", TIMEOUT.as_secs())]
    Timeout,
}

impl FromStr for Peers {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text.rsplit_once(':') {
            Some((name, port)) if !name.is_empty() && port.parse::<u16>().is_ok_and(|port| port > 0) => {
                Ok(Self { name: text.to_owned(), token: None })
            }
            _ => Err("write NAME:PORT, for example fpga-endpoint-picker.kube-fpga.svc:9465"),
        }
    }
}

impl Peers {
    /// The same pickers, which are shown this token.
    #[must_use]
    pub fn shown(self, token: Option<TokenFile>) -> Self {
        Self { token, ..self }
    }

    /// The function as each of the pickers that know it tells it.
    ///
    /// # Errors
    /// One of the pickers can't be asked.
    pub async fn function(&self, name: &FunctionName) -> Result<Vec<FunctionView>, PeersError> {
        timeout(TIMEOUT, self.ask_all(name)).await.map_err(|_| PeersError::Timeout)?
    }

    async fn ask_all(&self, name: &FunctionName) -> Result<Vec<FunctionView>, PeersError> {
        let token = self.token.as_ref().map(TokenFile::read).transpose()?;
        let token = token.as_ref().map(|token| token.secret());
        let addresses = lookup_host(&self.name).await;
        let addresses = addresses.map_err(|error| PeersError::LookUp { name: self.name.clone(), error })?;
        let mut addresses: Vec<SocketAddr> = addresses.collect();
        addresses.sort_unstable();
        addresses.dedup();
        if addresses.len() > MOST_PEERS {
            return Err(PeersError::TooMany(addresses.len()));
        }
        let views = join_all(addresses.into_iter().map(|address| async move {
            let view = ask(address, name, token).await;
            view.map_err(|problem| PeersError::Peer { address, problem })
        }));
        Ok(views.await.into_iter().collect::<Result<Vec<_>, _>>()?.into_iter().flatten().collect())
    }
}

/// The function as this picker tells it; `None` if it knows no such function.
async fn ask(
    address: SocketAddr,
    name: &FunctionName,
    token: Option<&str>,
) -> Result<Option<FunctionView>, String> {
    let unreachable = |error: &dyn std::fmt::Display| format!("can't be reached: {error}");
    let stream = TcpStream::connect(address).await.map_err(|error| unreachable(&error))?;
    let (mut sender, connection) =
        http1::handshake(TokioIo::new(stream)).await.map_err(|error| unreachable(&error))?;
    // Names of functions are DNS labels.
    let mut request =
        Request::get(format!("/picks/{}/{}", name.namespace, name.name)).header("host", address.to_string());
    if let Some(token) = token {
        request = request.header(TOKEN_HEADER, token);
    }
    let request = request.body(Empty::<Bytes>::new()).map_err(|error| unreachable(&error))?;
    let exchange = async {
        let answer = sender.send_request(request).await.map_err(|error| unreachable(&error))?;
        let status = answer.status();
        if status == StatusCode::NOT_FOUND {
            return Ok(None);
        }
        if status != StatusCode::OK {
            return Err(format!("answered {status}"));
        }
        let body = Limited::new(answer.into_body(), MAX_ANSWER_BYTES).collect().await;
        let body = body.map_err(|error| unreachable(&error))?.to_bytes();
        let view: PicksView = serde_json::from_slice(&body).map_err(|error| format!("answered {error}"))?;
        Ok(Some(view.function))
    };
    // The connection carries the exchange, and ends with it.
    tokio::select! {
        biased;
        view = exchange => view,
        ended = connection => Err(match ended {
            Ok(()) => "ended the connection".to_owned(),
            Err(error) => unreachable(&error),
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::http::HeaderMap;
    use axum::response::IntoResponse as _;
    use axum::routing::get;
    use axum::{Json, Router};
    use fpga_net::http::serve_probes;
    use serde_json::json;
    use tokio::net::TcpListener;
    use tokio::sync::watch;

    #[test]
    fn peers_are_a_name_with_a_port() {
        assert!("fpga-endpoint-picker.kube-fpga.svc:9465".parse::<Peers>().is_ok());
        for text in ["", "name", ":1", "name:", "name:0", "name:port"] {
            assert!(text.parse::<Peers>().unwrap_err().contains("NAME:PORT"), "{text}");
        }
    }

    /// A picker that tells of a function to the bearer of a token alone.
    async fn guarded_picker(token: &'static str) -> (SocketAddr, watch::Sender<bool>) {
        let view = json!({
            "function": {
                "namespace": "team", "name": "sobel", "bitstream": null, "inFlight": 3, "perSecond": 1.0, "meanInFlight": 1.0,
                "recommendedReplicas": 1, "replicas": [],
            },
            "picks": [],
        });
        let picks = async move |headers: HeaderMap| match headers.get(TOKEN_HEADER) {
            Some(shown) if shown == token => Json(view).into_response(),
            _ => StatusCode::UNAUTHORIZED.into_response(),
        };
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (stop, stopped) = watch::channel(false);
        tokio::spawn(serve_probes(listener, Router::new().route("/picks/team/sobel", get(picks)), stopped));
        (address, stop)
    }

    #[tokio::test]
    async fn the_others_are_shown_the_token_as_the_file_has_it_now() {
        let (address, _stop) = guarded_picker("the-token-of-this-pod").await;
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("token");
        let name: FunctionName = "team/sobel".parse().unwrap();
        let peers = || address.to_string().parse::<Peers>().unwrap();
        let refused = peers().function(&name).await.unwrap_err().to_string();
        assert!(refused.contains("401"), "{refused}");
        let peers = peers().shown(Some(TokenFile::new(&file)));
        let missing = peers.function(&name).await.unwrap_err().to_string();
        assert!(missing.contains("--pickers-token-file"), "{missing}");
        std::fs::write(&file, "the-token-of-this-pod\n").unwrap();
        assert_eq!(peers.function(&name).await.unwrap()[0].in_flight, 3);
    }

    #[test]
    fn all_routers_that_the_chart_takes_are_asked() {
        let schema = include_str!("../../../manifests/chart/values.schema.json");
        let schema: serde_json::Value = serde_json::from_str(schema).unwrap();
        let most = schema["properties"]["router"]["properties"]["replicas"]["maximum"].as_u64().unwrap();
        assert!(u64::try_from(MOST_PEERS).unwrap() >= most, "{most}");
    }
}
