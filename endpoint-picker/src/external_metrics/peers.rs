//! What all pickers count together. Each gateway asks one of them, so that each knows a part of a function's requests.

use crate::function::FunctionName;
use bytes::Bytes;
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
/// Most pickers.
const MOST_PEERS: usize = 64;
/// Longest answer of a picker, in bytes: a function with its replicas and its last picks.
const MAX_ANSWER_BYTES: usize = 4 << 20;

/// The pickers behind a name, by their ports for people. Text form: `NAME:PORT`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Peers(String);

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
                Ok(Self(text.to_owned()))
            }
            _ => Err("write NAME:PORT, for example fpga-endpoint-picker.kube-fpga.svc:9465"),
        }
    }
}

impl Peers {
    /// The function as each of the pickers that know it tells it.
    ///
    /// # Errors
    /// One of the pickers can't be asked.
    pub async fn function(&self, name: &FunctionName) -> Result<Vec<FunctionView>, PeersError> {
        timeout(TIMEOUT, self.ask_all(name)).await.map_err(|_| PeersError::Timeout)?
    }

    async fn ask_all(&self, name: &FunctionName) -> Result<Vec<FunctionView>, PeersError> {
        let addresses = lookup_host(&self.0).await;
        let addresses = addresses.map_err(|error| PeersError::LookUp { name: self.0.clone(), error })?;
        let mut addresses: Vec<SocketAddr> = addresses.collect();
        addresses.sort_unstable();
        addresses.dedup();
        if addresses.len() > MOST_PEERS {
            return Err(PeersError::TooMany(addresses.len()));
        }
        let views = join_all(addresses.into_iter().map(|address| async move {
            let view = ask(address, name).await;
            view.map_err(|problem| PeersError::Peer { address, problem })
        }));
        Ok(views.await.into_iter().collect::<Result<Vec<_>, _>>()?.into_iter().flatten().collect())
    }
}

/// The function as this picker tells it; `None` if it knows no such function.
async fn ask(address: SocketAddr, name: &FunctionName) -> Result<Option<FunctionView>, String> {
    let unreachable = |error: &dyn std::fmt::Display| format!("can't be reached: {error}");
    let stream = TcpStream::connect(address).await.map_err(|error| unreachable(&error))?;
    let (mut sender, connection) =
        http1::handshake(TokioIo::new(stream)).await.map_err(|error| unreachable(&error))?;
    // Names of functions are DNS labels.
    let request = Request::get(format!("/picks/{}/{}", name.namespace, name.name))
        .header("host", address.to_string())
        .body(Empty::<Bytes>::new())
        .map_err(|error| unreachable(&error))?;
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

    #[test]
    fn peers_are_a_name_with_a_port() {
        assert!("fpga-endpoint-picker.kube-fpga.svc:9465".parse::<Peers>().is_ok());
        for text in ["", "name", ":1", "name:", "name:0", "name:port"] {
            assert!(text.parse::<Peers>().unwrap_err().contains("NAME:PORT"), "{text}");
        }
    }
}
