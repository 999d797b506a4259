//! Connections of a gRPC client, with TLS whose files may change.

use crate::jitter::Jitter;
use crate::tls::{self, ClientFiles, HTTP_2};
use hyper_util::rt::TokioIo;
use std::io;
use std::net::SocketAddr;
use tokio::net::{TcpStream, lookup_host};
use tonic::transport::{Channel, Endpoint, Uri};

/// The reason why no connection was made.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// The address is `https://`, and the client trusts nobody.
    #[error("it wants TLS, and no authority is trusted")]
    NoAuthority,
    /// The address has no host.
    #[error("its address names no host")]
    NoHost,
    /// The server does not answer.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// The TLS handshake failed.
    #[error(transparent)]
    Tls(#[from] tls::ConnectError),
    /// The connection is no gRPC server's.
    #[error("{}", root(.0))]
    Channel(#[from] tonic::transport::Error),
}

/// How a server behind `https://` is known.
#[derive(Debug, Clone, Copy)]
pub struct Tls<'t> {
    /// The authorities, and the client's certificate if it shows any.
    pub files: &'t ClientFiles,
    /// The name that the server must prove, if it is not the host of its address.
    pub name: Option<&'t str>,
}

impl<'t> From<&'t ClientFiles> for Tls<'t> {
    fn from(files: &'t ClientFiles) -> Self {
        Self { files, name: None }
    }
}

/// Connects once to `uri`, `http://HOST:PORT` or `https://HOST:PORT`; the endpoint says all but the address. A channel that
/// has lost its connection makes no other one: TLS files are read for each connection. Behind `https://`, of a name with
/// several addresses any one is asked first.
///
/// # Errors
/// [`ConnectError`].
pub async fn connect(
    uri: &Uri,
    configure: impl FnOnce(Endpoint) -> Endpoint,
    tls: Option<Tls<'_>>,
) -> Result<Channel, ConnectError> {
    let endpoint = configure(Endpoint::from(uri.clone()));
    if uri.scheme_str() != Some("https") {
        return Ok(endpoint.connect().await?);
    }
    let Tls { files, name } = tls.ok_or(ConnectError::NoAuthority)?;
    let host = uri.host().ok_or(ConnectError::NoHost)?;
    let port = uri.port_u16().unwrap_or(443);
    let addresses = lookup_host((host.trim_start_matches('[').trim_end_matches(']'), port)).await?.collect();
    // Of several replicas under one name only one may serve: whoever asks again gets to another one.
    let addresses = rotated(addresses, Jitter::new().fraction());
    let socket = TcpStream::connect(&addresses[..]).await?;
    // An error costs only latency.
    let _ = socket.set_nodelay(true);
    let stream = files.connect(socket, name.unwrap_or(host), HTTP_2).await?;
    let mut stream = Some(TokioIo::new(stream));
    let connector = tower::service_fn(move |_: Uri| {
        let stream = stream.take().ok_or_else(|| io::Error::from(io::ErrorKind::NotConnected));
        async move { stream }
    });
    Ok(endpoint.connect_with_connector(connector).await?)
}

/// The addresses, in order, from a place on that is this fraction of the way through them.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::cast_precision_loss,
    reason = "a name has few addresses, and a place beyond them is taken modulo their number"
)]
fn rotated(mut addresses: Vec<SocketAddr>, fraction: f64) -> Vec<SocketAddr> {
    if !addresses.is_empty() {
        let first = (addresses.len() as f64 * fraction) as usize % addresses.len();
        addresses.rotate_left(first);
    }
    addresses
}

/// The cause of an error: the outermost says only that the transport failed.
fn root(error: &tonic::transport::Error) -> String {
    let first: &dyn std::error::Error = error;
    let causes = std::iter::successors(first.source(), |cause| cause.source());
    causes.last().map_or_else(|| error.to_string(), ToString::to_string)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_address_of_a_name_may_be_asked_first_and_the_others_follow() {
        let address = |number: u8| SocketAddr::from(([10, 0, 0, number], 9480));
        let firsts: Vec<SocketAddr> =
            [0.0, 0.4, 0.99].map(|fraction| rotated([1, 2, 3].map(address).to_vec(), fraction)[0]).to_vec();
        assert_eq!(firsts, [1, 2, 3].map(address));
        assert_eq!(rotated([1, 2, 3].map(address).to_vec(), 0.4), [2, 3, 1].map(address));
        assert_eq!(rotated(Vec::new(), 0.5), []);
    }
}
