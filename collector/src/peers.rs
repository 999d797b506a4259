//! Which peers may report. Over the unix socket the file permissions decide and, if set, a list of users and groups,
//! which the kernel names for each peer. Over TCP a token decides.

use crate::metrics::{Metrics, RefusedReason};
use anyhow::bail;
use axum::Json;
use axum::extract::{Request, State};
use axum::http::{StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use fpga_net::http::Peer;
use fpga_net::token_file::TokenFile;
use serde_json::json;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use tracing::warn;

/// Settings of the peers that may report.
#[derive(Debug, Default, clap::Args)]
#[command(next_help_heading = "Who may report")]
pub struct PeerArgs {
    /// Users that may report over the unix socket, by number, beside the collector's own. With this or --allow-gid,
    /// no other user may report, whatever the socket's file permissions are. May be repeated.
    #[arg(long, env = "FPGA_ALLOW_UID", value_name = "UID", value_delimiter = ',')]
    allow_uid: Vec<u32>,
    /// Groups that may report over the unix socket, by number: a process's group when it connects, not its
    /// supplementary groups.
    #[arg(long, env = "FPGA_ALLOW_GID", value_name = "GID", value_delimiter = ',')]
    allow_gid: Vec<u32>,
    /// File with a token that reporters must show over TCP, as `Authorization: Bearer TOKEN`; read again for each
    /// request.
    #[arg(long, env = "FPGA_TOKEN_FILE", value_name = "PATH")]
    token_file: Option<PathBuf>,
    /// Accept reports from any client that reaches a --listen address other than loopback.
    #[arg(long, env = "FPGA_WITHOUT_TOKEN", conflicts_with = "token_file")]
    without_token: bool,
}

/// The requirements for peers.
#[derive(Debug)]
pub struct Peers {
    own: u32,
    uids: Vec<u32>,
    gids: Vec<u32>,
    token: Option<TokenFile>,
}

impl PeerArgs {
    /// The requirements for peers of a collector that listens on `tcp`.
    ///
    /// # Errors
    /// The address is open to the network, and neither a token nor its absence is configured.
    pub fn check(self, tcp: Option<SocketAddr>) -> anyhow::Result<Peers> {
        if let Some(address) = tcp.filter(|address| !address.ip().is_loopback())
            && self.token_file.is_none()
            && !self.without_token
        {
            bail!(
                "--listen {address} is open to the network: write --token-file PATH, or --without-token to believe anyone who reaches it; for probes and metrics --metrics-listen is enough"
            );
        }
        let Self { allow_uid: uids, allow_gid: gids, token_file, without_token: _ } = self;
        let own = nix::unistd::geteuid().as_raw();
        Ok(Peers { own, uids, gids, token: token_file.map(TokenFile::new) })
    }
}

impl Peers {
    /// Checks whether `peer` may report, by the value `header` of its `Authorization`; `Err` has the reason.
    fn allow(&self, peer: Option<&Peer>, header: Option<&[u8]>) -> Result<(), &'static str> {
        match peer {
            Some(Peer::Unix { uid, gid }) => {
                let anybody = self.uids.is_empty() && self.gids.is_empty();
                if anybody || *uid == self.own || self.uids.contains(uid) || self.gids.contains(gid) {
                    Ok(())
                } else {
                    Err("this user and group may not report; see --allow-uid and --allow-gid")
                }
            }
            Some(Peer::Tcp { .. }) | None => {
                let Some(file) = &self.token else { return Ok(()) };
                let token = file.read().map_err(|error| {
                    warn!(%error, "Reports over TCP are refused");
                    "the collector's own token can't be read"
                })?;
                if header.is_some_and(|header| token.is_proved_by(header)) {
                    Ok(())
                } else {
                    Err("show the collector's token: Authorization: Bearer TOKEN")
                }
            }
        }
    }
}

/// Passes on requests from peers that may report, and answers all others with 403.
pub async fn guard(
    State((peers, metrics)): State<(Arc<Peers>, Metrics)>,
    request: Request,
    next: Next,
) -> Response {
    let header = request.headers().get(header::AUTHORIZATION).map(|header| header.as_bytes());
    match peers.allow(request.extensions().get::<Peer>(), header) {
        Ok(()) => next.run(request).await,
        Err(text) => {
            metrics.refuse(RefusedReason::Peer);
            (StatusCode::FORBIDDEN, Json(json!({ "error": text }))).into_response()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn peers(uids: &[u32], gids: &[u32]) -> Peers {
        Peers { own: 10, uids: uids.to_vec(), gids: gids.to_vec(), token: None }
    }

    fn allowed(peers: &Peers, uid: u32, gid: u32) -> bool {
        peers.allow(Some(&Peer::Unix { uid, gid }), None).is_ok()
    }

    #[test]
    fn the_own_user_and_those_who_are_named_may_report_and_everybody_if_nobody_is() {
        assert!(allowed(&peers(&[], &[]), 1, 1));
        let named = peers(&[20], &[30]);
        assert!(allowed(&named, 10, 1) && allowed(&named, 20, 1) && allowed(&named, 1, 30));
        assert!(!allowed(&named, 1, 1) && !allowed(&named, 30, 20) && !allowed(&named, 0, 0));
    }

    #[test]
    fn over_tcp_the_token_decides_if_there_is_one() {
        let tcp = Peer::Tcp { address: "127.0.0.1:1".parse().unwrap(), names: Arc::default() };
        assert!(peers(&[1], &[]).allow(Some(&tcp), None).is_ok());
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("token");
        std::fs::write(&path, "a-token-for-this-test").unwrap();
        let guarded = Peers { token: Some(TokenFile::new(&path)), ..peers(&[], &[]) };
        assert!(guarded.allow(Some(&tcp), Some(b"Bearer a-token-for-this-test")).is_ok());
        for header in [None, Some(b"Bearer another-token-altogether".as_slice()), Some(b"")] {
            assert!(guarded.allow(Some(&tcp), header).is_err() && guarded.allow(None, header).is_err());
        }
        std::fs::remove_file(&path).unwrap();
        assert!(guarded.allow(Some(&tcp), Some(b"Bearer a-token-for-this-test")).is_err());
    }

    #[test]
    fn an_address_on_the_network_needs_a_word_on_who_may_use_it() {
        let check = |args: PeerArgs, address: &str| args.check(Some(address.parse().unwrap()));
        assert!(
            check(PeerArgs::default(), "127.0.0.1:1").is_ok()
                && check(PeerArgs::default(), "[::1]:1").is_ok()
        );
        let error = check(PeerArgs::default(), "0.0.0.0:1").unwrap_err().to_string();
        assert!(error.contains("--token-file"), "{error}");
        assert!(check(PeerArgs { without_token: true, ..PeerArgs::default() }, "0.0.0.0:1").is_ok());
        assert!(check(PeerArgs { token_file: Some("t".into()), ..PeerArgs::default() }, "0.0.0.0:1").is_ok());
    }
}
