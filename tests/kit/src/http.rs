//! An HTTP client for one request on a connection of its own, and answers that a test can look at.

use crate::patience;
use serde_json::Value;
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::path::Path;

/// Status and body of an answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    pub status: u16,
    pub text: String,
}

impl Answer {
    #[must_use]
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.text).unwrap_or_else(|error| panic!("no JSON ({error}): {}", self.text))
    }
}

/// The answer to a GET at a TCP address.
pub fn get(address: &str, path: &str) -> Answer {
    request(address, "GET", path, b"").unwrap_or_else(|error| panic!("GET http://{address}{path}: {error}"))
}

/// One request over TCP.
///
/// # Errors
/// The server sent no whole answer.
pub fn request(address: &str, method: &str, path: &str, body: &[u8]) -> io::Result<Answer> {
    let stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(patience()))?;
    exchange(stream, method, path, body)
}

/// One request over a unix socket.
///
/// # Errors
/// The server sent no whole answer.
pub fn request_unix(socket: &Path, method: &str, path: &str, body: &[u8]) -> io::Result<Answer> {
    let stream = UnixStream::connect(socket)?;
    stream.set_read_timeout(Some(patience()))?;
    exchange(stream, method, path, body)
}

fn exchange(mut stream: impl Read + Write, method: &str, path: &str, body: &[u8]) -> io::Result<Answer> {
    let head = format!(
        "{method} {path} HTTP/1.1\r\nHost: test\r\nConnection: close\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    stream.write_all(head.as_bytes())?;
    // A server that refuses a body may close before it has read all of it; its answer counts.
    let sent = stream.write_all(body);
    let mut text = Vec::new();
    if let Err(error) = stream.read_to_end(&mut text)
        && text.is_empty()
    {
        return Err(sent.err().unwrap_or(error));
    }
    let text = String::from_utf8_lossy(&text).into_owned();
    let cut_off = || io::Error::new(io::ErrorKind::UnexpectedEof, "no whole answer");
    let (head, text) = text.split_once("\r\n\r\n").ok_or_else(cut_off)?;
    let status = head.get(9..12).and_then(|status| status.parse().ok()).ok_or_else(cut_off)?;
    let length = head
        .lines()
        .find_map(|line| line.to_ascii_lowercase().strip_prefix("content-length: ")?.parse().ok());
    if length.is_some_and(|length: usize| text.len() < length) {
        return Err(cut_off());
    }
    Ok(Answer { status, text: text.to_owned() })
}
