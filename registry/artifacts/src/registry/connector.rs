//! Connections to hosts, by way of the proxies of the environment.

use super::hosts::{Hosts, Resolver};
use ::http::Uri;
use fpga_net::proxy::{Proxies, with_port};
use hyper_rustls::{HttpsConnector, MaybeHttpsStream};
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::client::legacy::connect::proxy::{SocksV5, Tunnel};
use hyper_util::client::proxy::matcher::Matcher;
use hyper_util::rt::TokioIo;
use rustls::ClientConfig;
use std::error::Error;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::net::TcpStream;
use tower::{Service, ServiceExt as _};

type BoxError = Box<dyn Error + Send + Sync>;
type Connection = MaybeHttpsStream<TokioIo<TcpStream>>;

/// Makes connections without TLS, through proxies that may have TLS.
#[derive(Clone)]
pub struct Connector {
    direct: HttpConnector<Resolver>,
    to_proxy: HttpConnector,
    tls: Arc<ClientConfig>,
    proxies: Arc<Proxies>,
}

/// A connection through a proxy that was not made.
#[derive(Debug, thiserror::Error)]
#[error("the proxy {proxy} does not lead there")]
struct ProxyError {
    proxy: String,
    #[source]
    source: BoxError,
}

impl Connector {
    /// Connections to these hosts.
    pub fn new(hosts: &Hosts, tls: Arc<ClientConfig>, timeout: Duration) -> Self {
        let mut direct = HttpConnector::new_with_resolver(hosts.resolver());
        direct.enforce_http(false);
        direct.set_connect_timeout(Some(timeout));
        let mut to_proxy = HttpConnector::new();
        to_proxy.enforce_http(false);
        to_proxy.set_connect_timeout(Some(timeout));
        let proxies = match hosts {
            Hosts::Any | Hosts::Listed(_) => Proxies::from_env(),
            // A proxy would look up names itself, and reach private addresses.
            Hosts::Public => Proxies::default(),
        };
        Self { direct, to_proxy, tls, proxies: Arc::new(proxies) }
    }

    /// A connection through `proxy` to `place`.
    async fn through(self, proxy: Uri, place: Uri) -> Result<Connection, BoxError> {
        if proxy.scheme_str() == Some("socks5") {
            let connection = SocksV5::new(proxy, self.to_proxy).oneshot(place).await?;
            return Ok(MaybeHttpsStream::Http(connection));
        }
        let login = Matcher::builder().all(proxy.to_string()).build().intercept(&place);
        let tunnel = Tunnel::new(proxy, HttpsConnector::from((self.to_proxy, self.tls)));
        let tunnel = match login.as_ref().and_then(|login| login.basic_auth()) {
            Some(login) => tunnel.with_auth(login.clone()),
            None => tunnel,
        };
        Ok(tunnel.oneshot(place).await?)
    }
}

impl Service<Uri> for Connector {
    type Response = Connection;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<Connection, BoxError>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.direct.poll_ready(context).map_err(Into::into)
    }

    fn call(&mut self, place: Uri) -> Self::Future {
        let proxy = match self.proxies.proxy(&place) {
            Ok(Some(proxy)) => proxy,
            Ok(None) => {
                let connection = self.direct.call(place);
                return Box::pin(async { Ok(MaybeHttpsStream::Http(connection.await?)) });
            }
            Err(error) => return Box::pin(async { Err(error.into()) }),
        };
        let connector = self.clone();
        Box::pin(async move {
            // Without a user and a password.
            let port = proxy.port().map(|port| format!(":{port}")).unwrap_or_default();
            let name = format!("{}{port}", proxy.host().unwrap_or_default());
            let connection = connector.through(proxy, with_port(place)).await;
            connection.map_err(|source| ProxyError { proxy: name, source }.into())
        })
    }
}
