//! The port: its end, and TLS.

use super::calls::{Call, body, destination, headers, response_headers};
use super::served::{Differs, FIRST, SECOND, Served};
use fpga_net::tls::{HTTP_2, Reload, ServerTls};
use fpga_test_kit::{Authority, patience};
use hyper_util::rt::TokioIo;
use std::net::SocketAddr;
use std::sync::Arc;
use tokio::net::TcpStream;
use tonic::transport::{Channel, Endpoint, Uri};

#[tokio::test]
async fn requests_in_flight_end_before_the_server_does() {
    let mut served = Served::start().await;
    let mut call = served.call().await;
    destination(&call.ask(headers("/function/sobel")).await);
    served.stop.take().unwrap().send(()).unwrap();
    call.ask(response_headers(false)).await;
    assert!(!served.server.is_finished());
    call.ask(body(false, "x", true)).await;
    drop(call);
    tokio::time::timeout(patience(), served.server).await.unwrap().unwrap();
}

#[tokio::test]
async fn gateways_may_ask_by_tls() {
    let dir = tempfile::tempdir().unwrap();
    let authority = Authority::new(dir.path(), "ours");
    let identity = authority.issue("server", &["picker.svc"]);
    let tls = ServerTls::new(identity.server(None), HTTP_2);
    assert!(matches!(tls.reload(), Reload::Loaded));
    let served = Served::with(Differs { tls: Some(Arc::new(tls)), ..Differs::default() }).await;
    let socket = TcpStream::connect(served.address).await.unwrap();
    let stream = authority.client(None).connect(socket, "picker.svc", HTTP_2).await.unwrap();
    let mut stream = Some(TokioIo::new(stream));
    let connector = tower::service_fn(move |_: Uri| {
        let stream = stream.take().ok_or_else(|| std::io::Error::other("one connection only"));
        async move { stream }
    });
    let endpoint = Endpoint::from_static("http://picker.svc");
    let mut call = Call::open(endpoint.connect_with_connector(connector).await.unwrap()).await.unwrap();
    assert_eq!(destination(&call.ask(headers("/function/sobel")).await), format!("{FIRST},{SECOND}"));
    assert!(Call::open(served_plain(served.address).await.unwrap()).await.is_err(), "not in plain text");
}

async fn served_plain(address: SocketAddr) -> Result<Channel, tonic::transport::Error> {
    Ok(Endpoint::from_shared(format!("http://{address}"))?.connect_lazy())
}
