//! Calls of a tenant's pod to a port of ours, and all that it reads there.

use super::ports::Port;
use fpga_net::tls::{ClientFiles, HTTP_1, HTTP_2};
use fpga_test_kit::patience;
use fpga_tests::testbed::http_client::HttpClient;
use fpga_tests::testbed::programs::repository;
use hyper_util::rt::TokioIo;
use std::net::Ipv4Addr;
use std::path::PathBuf;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tonic::transport::Endpoint;

/// A call, and what came back.
#[derive(Debug)]
pub struct Heard {
    /// What the tenant has written.
    pub asked: String,
    pub answer: String,
}

/// What a tenant has to show.
pub struct Caller {
    pub http: HttpClient,
    /// Tokens of the tenant's account, by what they are for.
    pub tokens: Vec<(String, String)>,
    /// The file with the authority of our services.
    pub authority: PathBuf,
    /// A certificate that the tenant has made.
    pub certificate: ClientFiles,
    /// Namespaces, pods and functions of which the tenant asks.
    pub names: Vec<[String; 3]>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct Empty {}

impl Caller {
    /// Calls a port in each way that its program knows, with each of the tokens and without. `None` if nobody has said yet how
    /// that port is called.
    pub async fn call(&self, port: &Port, address: Ipv4Addr) -> Option<Vec<Heard>> {
        let (program, number) = (port.0.as_str(), port.1);
        Some(match (program, number) {
            ("fpga-collector", 9460)
            | ("fpga-device-manager", 9462)
            | ("fpga-node-plugin", 9466)
            | ("fpga-registry", 9473)
            | ("fpga-pool", 9481)
            | ("fpga-scheduler-extender", 9464 | 9465)
            | ("fpga-router", 9465 | 9471) => self.paths(program, address, number).await,
            ("fpga-router", 8080) => self.functions(address).await,
            ("fpga-router", 9472) => {
                self.get_all(address, number, &["/stats/prometheus", "/config_dump", "/ready"]).await
            }
            ("fpga-router", 9466) => {
                self.over_tls(address, number, &self.expanded(&paths("fpga-endpoint-picker"))).await
            }
            ("fpga-scheduler-extender", 9461) => {
                self.over_tls(address, number, &self.expanded(&paths("fpga-scheduler-extender"))).await
            }
            ("fpga-scheduler-extender", 10259) => {
                self.over_tls(address, number, &["/metrics".to_owned()]).await
            }
            ("fpga-scheduler-extender" | "fpga-router", 9463) => {
                self.grpc(address, number, "/fpga.node_stream.v1.NodeStream/Report").await
            }
            ("fpga-router", 9470) => {
                self.grpc(address, number, "/envoy.service.ext_proc.v3.ExternalProcessor/Process").await
            }
            ("fpga-pool", 9480) => {
                let mut heard = Vec::new();
                for method in
                    ["/fpga.pool.v1.Broker/Lend", "/fpga.pool.v1.Broker/Work", "/fpga.pool.v1.Broker/Look"]
                {
                    heard.extend(self.grpc(address, number, method).await);
                }
                heard
            }
            ("fpga-device-manager", 9482) => {
                self.grpc(address, number, "/fpga.remote.v1.DeviceManager/Session").await
            }
            _ => return None,
        })
    }

    /// All paths of a program in the reference.
    async fn paths(&self, program: &str, address: Ipv4Addr, port: u16) -> Vec<Heard> {
        let program = if program == "fpga-router" { "fpga-endpoint-picker" } else { program };
        let known = paths(program);
        assert!(known.len() > 1, "the reference has no paths of {program}");
        let mut all = self.expanded(&known);
        all.extend(["/", "/metrics?x=1", "/debug/pprof"].map(str::to_owned));
        self.get_all(address, port, &all.iter().map(String::as_str).collect::<Vec<_>>()).await
    }

    async fn get_all(&self, address: Ipv4Addr, port: u16, paths: &[&str]) -> Vec<Heard> {
        let mut heard = Vec::new();
        for path in paths {
            let url = format!("http://{address}:{port}{path}");
            let bearers = self.tokens.iter().map(|(_, token)| ("authorization", format!("Bearer {token}")));
            let ours = self.tokens.iter().map(|(_, token)| ("x-fpga-token", token.clone()));
            for header in [None].into_iter().chain(bearers.chain(ours).map(Some)) {
                let headers: Vec<_> = header.iter().map(|(name, value)| (*name, value.as_str())).collect();
                let answer = match self.http.get_with(&url, &headers).await {
                    Ok(answer) => format!("{} {:?} {}", answer.status, answer.headers, answer.text()),
                    Err(error) => format!("{error:#}"),
                };
                heard.push(Heard { asked: format!("{path} {headers:?}"), answer });
            }
        }
        heard
    }

    /// The front door of functions: the own one, those of others by guesses, and the host's name.
    async fn functions(&self, address: Ipv4Addr) -> Vec<Heard> {
        let mut paths = vec!["/".to_owned(), "/function/".to_owned(), "/function/nothing".to_owned()];
        paths.extend(
            self.names.iter().map(|[namespace, _, function]| format!("/function/{function}.{namespace}")),
        );
        self.get_all(address, 8080, &paths.iter().map(String::as_str).collect::<Vec<_>>()).await
    }

    /// The paths with the names of which the tenant asks.
    fn expanded(&self, paths: &[String]) -> Vec<String> {
        let mut all = Vec::new();
        for path in paths {
            for [namespace, pod, function] in &self.names {
                let name = if path.starts_with("/picks") { function } else { pod };
                let metric = format!("fpga_function_requests_in_flight?labelSelector=function%3D{function}");
                let path = path.replace("{id}", "x").replace("{namespace}", namespace).replace("{pod}", name);
                all.push(path.replace("{name}", name).replace("{metric}", &metric));
            }
        }
        all.sort();
        all.dedup();
        all
    }

    /// Requests over TLS, without a certificate of ours and with one of the tenant's own.
    async fn over_tls(&self, address: Ipv4Addr, port: u16, paths: &[String]) -> Vec<Heard> {
        let mut heard = Vec::new();
        let with = [ClientFiles { ca: self.authority.clone(), identity: None }, self.certificate.clone()];
        for files in &with {
            for path in paths {
                let tokens = [""].into_iter().chain(self.tokens.iter().map(|(_, token)| token.as_str()));
                for token in tokens {
                    let request = format!(
                        "GET {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {token}\r\nX-Remote-User: system:admin\r\n\
                         X-Remote-Group: system:masters\r\nConnection: close\r\n\r\n"
                    );
                    let answer = self.exchange(files, address, port, &request).await;
                    let answer = answer.unwrap_or_else(|error| format!("{error:#}"));
                    heard.push(Heard { asked: request, answer });
                }
            }
        }
        heard
    }

    async fn exchange(
        &self,
        files: &ClientFiles,
        address: Ipv4Addr,
        port: u16,
        request: &str,
    ) -> anyhow::Result<String> {
        let talk = async {
            let stream = TcpStream::connect((address, port)).await?;
            let mut stream = files.connect(stream, &address.to_string(), HTTP_1).await?;
            stream.write_all(request.as_bytes()).await?;
            let mut answer = Vec::new();
            stream.read_to_end(&mut answer).await?;
            Ok(String::from_utf8_lossy(&answer).into_owned())
        };
        tokio::time::timeout(patience(), talk).await?
    }

    /// A call of a method of gRPC, over TLS and without.
    async fn grpc(&self, address: Ipv4Addr, port: u16, method: &'static str) -> Vec<Heard> {
        let mut heard = Vec::new();
        for token in [""].into_iter().chain(self.tokens.iter().map(|(_, token)| token.as_str())) {
            for tls in [true, false] {
                let called = self.unary(address, port, method, token, tls);
                let called = tokio::time::timeout(patience(), called).await;
                let answer = called.map_or_else(|error| error.to_string(), |called| format!("{called:?}"));
                heard.push(Heard { asked: format!("{method} {token}"), answer });
            }
        }
        heard
    }

    async fn unary(
        &self,
        address: Ipv4Addr,
        port: u16,
        method: &'static str,
        token: &str,
        tls: bool,
    ) -> anyhow::Result<String> {
        let files = ClientFiles { ca: self.authority.clone(), identity: None };
        let connector = tower::service_fn(move |_: tonic::transport::Uri| {
            let files = files.clone();
            async move {
                let stream = TcpStream::connect((address, port)).await?;
                let stream: Box<dyn Io> = match tls {
                    true => Box::new(files.connect(stream, &address.to_string(), HTTP_2).await?),
                    false => Box::new(stream),
                };
                anyhow::Ok(TokioIo::new(stream))
            }
        });
        let channel = Endpoint::from_static("http://localhost").connect_with_connector(connector).await?;
        let mut client = tonic::client::Grpc::new(channel);
        client.ready().await?;
        let mut request = tonic::Request::new(Empty {});
        request.metadata_mut().insert("authorization", format!("Bearer {token}").parse()?);
        let codec = tonic_prost::ProstCodec::<Empty, Empty>::default();
        let answer = client.unary(request, http::uri::PathAndQuery::from_static(method), codec).await;
        Ok(format!("{answer:?}"))
    }
}

trait Io: tokio::io::AsyncRead + tokio::io::AsyncWrite + Send + Unpin {}
impl<T: tokio::io::AsyncRead + tokio::io::AsyncWrite + Send + Unpin> Io for T {}

/// The paths of a program in the reference of HTTP.
fn paths(program: &str) -> Vec<String> {
    let text = std::fs::read_to_string(repository().join("book/reference/http.md")).unwrap();
    let section =
        text.split("\n## ").find(|section| section.lines().next() == Some(program)).unwrap_or_default();
    let rows = section.lines().filter_map(|line| line.strip_prefix("| `")?.split('`').next());
    rows.map(|path| path.replace("{prefix}", "")).collect()
}
