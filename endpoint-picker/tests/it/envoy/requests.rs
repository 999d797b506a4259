//! What becomes of a request: its body, its path, its headers, and its end.

use super::bed::{Envoy, Served, Server, header, until_idle};
use axum::body::Body;
use axum::http::{Method, Request};
use bytes::Bytes;
use fpga_endpoint_picker::envoy_drain::drain;
use fpga_test_kit::{patience, until_async};

#[tokio::test]
async fn bodies_of_ten_megabytes_pass_unchanged_in_every_mode() {
    let (first, second) = (Server::start("first"), Server::start("second"));
    let served = Served::start(&[&first, &second]);
    let body: Bytes =
        (0..10_000_000_u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 7).to_le_bytes()[0]).collect();
    for mode in ["NONE", "BUFFERED", "STREAMED", "FULL_DUPLEX_STREAMED"] {
        let envoy = Envoy::start(&served, mode).await;
        let (status, replica, back) = envoy.ask(Method::POST, "/function/echo", body.clone()).await;
        assert_eq!((status, replica.as_str()), (200, "first"), "{mode}");
        until_idle(&served.picker).await;
        assert!(back == body, "{mode}: {} bytes and not the same", back.len());
        let (status, replica, back) = envoy.ask(Method::POST, "/function/echo/", Bytes::new()).await;
        assert_eq!((status, replica.as_str(), back.len()), (200, "first", 0), "{mode}");
        assert_eq!(envoy.ask(Method::POST, "/function/nobody", Bytes::new()).await.0, 404, "{mode}");
        until_idle(&served.picker).await;
    }
}

#[tokio::test]
async fn a_function_sees_the_path_below_its_name_and_no_client_chooses_the_replica() {
    let (first, second) = (Server::start("first"), Server::start("second"));
    let served = Served::start(&[&first, &second]);
    let envoy = Envoy::start(&served, "NONE").await;
    for (path, seen) in [
        ("/function/echo", "/"),
        ("/function/echo/", "/"),
        ("/function/echo.default?a=b", "/?a=b"),
        ("/function/echo/more/of%20it?a=/function/x", "/more/of%20it?a=/function/x"),
        ("/function/./echo//more", "/more"),
    ] {
        let wanted = second.address.to_string();
        let steered = [("x-gateway-destination-endpoint", wanted.as_str())];
        let answer = envoy.send(Method::POST, path, &steered, Bytes::new()).await;
        assert_eq!(answer.status(), 200, "{path}");
        assert_eq!((header(&answer, "x-replica"), header(&answer, "x-path")), ("first", seen), "{path}");
        // The picker hears of a request's end after the client, and would take the replica for busy.
        drop(answer);
        until_idle(&served.picker).await;
    }
    for (path, status) in [("/", 404), ("/function/echo%2fmore", 400), ("/function/../admin", 404)] {
        assert_eq!(envoy.ask(Method::GET, path, Bytes::new()).await.0, status, "{path}");
    }
    let mut request = Request::get(format!("{}/function/echo", envoy.url));
    for number in 0..150 {
        request = request.header(format!("x-{number}"), "y");
    }
    // Envoy closes the connection: the filter is still asked about the 431.
    let answer = envoy.client.request(request.body(Body::empty()).unwrap());
    let answer = tokio::time::timeout(patience(), answer).await.unwrap();
    assert!(answer.is_err(), "150 headers pass");
    assert_eq!(envoy.ask(Method::GET, "/function/echo", Bytes::new()).await.0, 200);
    until_idle(&served.picker).await;
}

#[tokio::test]
async fn an_envoy_that_is_told_to_drain_ends_connections_and_no_request() {
    let replica = Server::start("first");
    let served = Served::start(&[&replica]);
    let envoy = Envoy::start(&served, "NONE").await;
    let ask = async || {
        let answer = envoy.send(Method::GET, "/function/echo", &[], Bytes::new()).await;
        (answer.status().as_u16(), header(&answer, "connection").to_owned())
    };
    assert_eq!(ask().await, (200, String::new()));
    until_idle(&served.picker).await;
    let (pieces, body) = tokio::sync::mpsc::channel::<Result<Bytes, std::io::Error>>(1);
    let body = Body::from_stream(tokio_stream::wrappers::ReceiverStream::new(body));
    let request = Request::post(format!("{}/function/echo", envoy.url)).body(body).unwrap();
    let running = tokio::spawn(envoy.client.request(request));
    pieces.send(Ok("begun,".into())).await.unwrap();
    until_async("a request in flight", async || served.picker.census().in_flight == 1).await;
    drain(envoy.admin).await.unwrap();
    assert_eq!(ask().await, (200, "close".to_owned()), "new connections are still taken");
    pieces.send(Ok("ended".into())).await.unwrap();
    drop(pieces);
    let answer = tokio::time::timeout(patience(), running).await.unwrap().unwrap().unwrap();
    assert_eq!(answer.status(), 200);
    let body = axum::body::to_bytes(Body::new(answer.into_body()), 100).await.unwrap();
    assert_eq!(&body[..], b"begun,ended");
}
