//! A registry that lies, stops, or sends elsewhere, is contained: the error says what happened, and no more is read than
//! announced and allowed.

#![allow(clippy::unwrap_used, reason = "in a test a failure is a panic")]

mod logins;
mod redirects;

use fpga_artifacts::{
    Artifact, Descriptor, Hosts, Packed, PlainHttp, Reference, Registry, RegistryError, RegistryOptions,
    Variant, of_bytes,
};
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::time::Duration;

const BITSTREAM: &[u8] = b"bytes for a board";

/// Starts a registry that answers each request line as `answer` says, on a connection of its own. Returns its address.
fn registry(answer: impl Fn(&str, &mut TcpStream) + Send + 'static) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let mut lines = BufReader::new(stream.try_clone().unwrap()).lines().map_while(Result::ok);
            let request = lines.next().unwrap_or_default();
            lines.take_while(|line| !line.is_empty()).for_each(drop);
            answer(&request, &mut stream);
        }
    });
    address
}

/// Writes as much as the reader takes.
fn write(stream: &mut TcpStream, bytes: &[u8]) {
    // A reader that has read enough closes the connection.
    let _ = stream.write_all(bytes);
}

fn answer(status: &str, headers: &str, body: &[u8]) -> Vec<u8> {
    let head =
        format!("HTTP/1.1 {status}\r\nconnection: close\r\ncontent-length: {}\r\n{headers}\r\n", body.len());
    [head.as_bytes(), body].concat()
}

fn packed() -> Packed {
    let variant = Variant {
        vendor: "intel".to_owned(),
        board: "a10gx".to_owned(),
        shell: "1.2".to_owned(),
        region_size: 1,
        digest: of_bytes(BITSTREAM),
        bytes: BITSTREAM.len() as u64,
        peak_requests_per_second: None,
    };
    Packed::new(&Artifact { name: "sobel".to_owned(), variants: vec![variant], interface: None }).unwrap()
}

fn layer() -> Descriptor {
    packed().manifest.layers.remove(0)
}

fn options() -> RegistryOptions {
    RegistryOptions {
        plain_http: PlainHttp::Yes,
        ca: None,
        credentials: Vec::new(),
        hosts: Hosts::Any,
        timeout: Duration::from_secs(20),
    }
}

fn client(address: &str) -> Registry {
    Registry::new(address, options()).unwrap()
}

async fn read_manifest(address: &str) -> RegistryError {
    let reference: Reference = format!("{address}/team/sobel:1.0").parse().unwrap();
    client(address).artifact(&reference).await.unwrap_err()
}

/// What becomes of the layer when a registry answers every request with `bytes` and ends the connection.
async fn read_layer(bytes: Vec<u8>) -> (Result<(), RegistryError>, Vec<u8>) {
    let address = registry(move |_, stream| write(stream, &bytes));
    let mut out = Vec::new();
    let result = client(&address).blob("team/sobel", &layer(), &mut out).await;
    (result, out)
}

#[tokio::test]
async fn a_manifest_that_announces_too_much_or_never_ends_is_not_read_on() {
    let address = registry(|_, stream| {
        write(stream, b"HTTP/1.1 200 OK\r\ncontent-length: 1073741824\r\n\r\n{");
        // The client has the head and must not wait for the rest.
        let _ = stream.read(&mut [0; 1]);
    });
    let error = read_manifest(&address).await;
    assert!(matches!(error, RegistryError::TooLong { limit: 262_144, .. }), "{error}");
    let address = registry(|_, stream| {
        write(stream, b"HTTP/1.1 200 OK\r\n\r\n");
        while stream.write_all(&[b' '; 4096]).is_ok() {}
    });
    let error = read_manifest(&address).await;
    assert!(matches!(error, RegistryError::TooLong { .. }), "{error}");
}

#[tokio::test]
async fn a_manifest_by_digest_must_have_the_digest() {
    let other = packed();
    let bytes = answer("200 OK", "", &other.manifest_bytes);
    let address = registry(move |_, stream| write(stream, &bytes));
    let reference: Reference = format!("{address}/team/sobel@{}", of_bytes(b"another")).parse().unwrap();
    let error = client(&address).artifact(&reference).await.unwrap_err();
    assert!(matches!(error, RegistryError::Digest { .. }), "{error}");
}

#[tokio::test]
async fn a_bitstream_with_other_bytes_or_another_length_is_no_success() {
    let (result, out) = read_layer(answer("200 OK", "", BITSTREAM)).await;
    assert_eq!((result.is_ok(), out.as_slice()), (true, BITSTREAM));

    let mut changed = BITSTREAM.to_vec();
    changed[0] ^= 1;
    let (result, _) = read_layer(answer("200 OK", "", &changed)).await;
    assert!(matches!(result, Err(RegistryError::Digest { .. })), "{result:?}");

    let longer = [BITSTREAM, b"and more"].concat();
    let (result, out) = read_layer(answer("200 OK", "", &longer)).await;
    assert!(matches!(result, Err(RegistryError::TooLong { limit: 17, .. })), "{result:?}");
    assert_eq!(out, b"", "an announced length is judged before any byte is taken");

    let without_length = [b"HTTP/1.1 200 OK\r\nconnection: close\r\n\r\n", longer.as_slice()].concat();
    let (result, out) = read_layer(without_length).await;
    assert!(matches!(result, Err(RegistryError::TooLong { .. })) && out.len() <= 17, "{result:?}");

    let (result, _) = read_layer(answer("200 OK", "", &BITSTREAM[..5])).await;
    assert!(matches!(result, Err(RegistryError::TooShort { found: 5, expected: 17, .. })), "{result:?}");
}

#[tokio::test]
async fn a_registry_that_ends_in_the_middle_is_told() {
    let whole = answer("200 OK", "", BITSTREAM);
    let (result, out) = read_layer(whole[..whole.len() - 7].to_vec()).await;
    assert!(matches!(result, Err(RegistryError::TooShort { found: 10, expected: 17, .. })), "{result:?}");
    assert_eq!(out, BITSTREAM[..10]);
    let (result, _) = read_layer(b"HTTP/1.1 200".to_vec()).await;
    assert!(matches!(result, Err(RegistryError::Unreachable { .. })), "{result:?}");
}

#[tokio::test]
async fn a_registry_that_falls_silent_is_left_after_the_time() {
    let address = registry(|_, stream| {
        write(stream, b"HTTP/1.1 200 OK\r\ncontent-length: 17\r\n\r\nbytes");
        let _ = stream.read(&mut [0; 1]);
    });
    let timeout = Duration::from_secs(1);
    let options = RegistryOptions { timeout, ..options() };
    let client = Registry::new(&address, options).unwrap();
    let error = client.blob("team/sobel", &layer(), &mut Vec::new()).await.unwrap_err();
    assert!(matches!(error, RegistryError::Silent { .. }), "{error}");
}

#[tokio::test]
async fn redirects_lead_to_no_other_scheme_and_to_no_user() {
    for place in ["file:///etc/passwd", "ftp://127.0.0.1/x", "http://me:secret@127.0.0.1/x"] {
        let bytes = answer("302 Found", &format!("location: {place}\r\n"), b"");
        let (result, _) = read_layer(bytes).await;
        assert!(matches!(result, Err(RegistryError::Elsewhere { .. })), "{place}: {result:?}");
    }
    let (result, _) = read_layer(answer("302 Found", "location: \r\n", b"")).await;
    assert!(matches!(result, Err(RegistryError::Refused { .. })), "{result:?}");
}

#[tokio::test]
async fn a_login_that_nobody_can_do_is_told_and_a_refusal_steers_no_terminal() {
    for (challenge, told) in [
        ("Negotiate", "only Basic and Bearer are known"),
        ("Basic realm=\"r\"", "takes no credentials of yours. Run `docker login"),
        ("Bearer realm=\"file:///etc/passwd\",service=\"s\"", "sends to \"file:///etc/passwd\""),
        ("Bearer service=\"s\"", "only Basic and Bearer are known"),
        ("", "only Basic and Bearer are known"),
    ] {
        let bytes = answer("401 Unauthorized", &format!("www-authenticate: {challenge}\r\n"), b"");
        let (result, _) = read_layer(bytes).await;
        let error = result.unwrap_err().to_string();
        assert!(error.contains(told), "{challenge}: {error}");
    }
    let body = format!(
        "{{\"errors\": [{{\"code\": \"DENIED\", \"message\": \"\\u001b[2J{}\"}}]}}",
        "x".repeat(9000)
    );
    let (result, _) = read_layer(answer("403 Forbidden", "", body.as_bytes())).await;
    let error = result.unwrap_err().to_string();
    assert!(error.contains("403 Forbidden") && !error.contains('\u{1b}') && error.len() < 1000, "{error}");
}
