//! A client of the extender over HTTP.

use axum::body::Bytes;
use fpga_scheduler_extender::metrics::Verb;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};

/// A persistent connection, as kube-scheduler's client keeps it.
pub struct Connection {
    stream: BufReader<TcpStream>,
    /// Requests that are sent by turns.
    requests: Vec<Vec<u8>>,
    turn: usize,
    answer: Vec<u8>,
}

impl Connection {
    /// Connects to `address`, for requests with these bodies by turns.
    pub fn open(address: SocketAddr, verb: Verb, bodies: &[Bytes]) -> Self {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_nodelay(true).unwrap();
        let request = |body: &Bytes| {
            let head = format!(
                "POST /{} HTTP/1.1\r\nHost: {address}\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n",
                verb.name(),
                body.len()
            );
            [head.as_bytes(), body].concat()
        };
        let requests = bodies.iter().map(request).collect();
        let stream = BufReader::with_capacity(1 << 18, stream);
        Self { stream, requests, turn: 0, answer: Vec::new() }
    }

    /// Sends the next request, and waits for the answer.
    pub fn call(&mut self) -> Vec<u8> {
        self.turn += 1;
        let request = &self.requests[self.turn % self.requests.len()];
        self.stream.get_mut().write_all(request).unwrap();
        let mut length = None;
        let mut line = String::new();
        let mut first = true;
        loop {
            line.clear();
            self.stream.read_line(&mut line).unwrap();
            if std::mem::take(&mut first) {
                assert!(line.starts_with("HTTP/1.1 200"), "{line}");
            }
            let header = line.trim_end().to_ascii_lowercase();
            if header.is_empty() {
                break;
            }
            if let Some(value) = header.strip_prefix("content-length: ") {
                length = value.parse().ok();
            }
        }
        self.answer.resize(length.expect("the answer has a length"), 0);
        self.stream.read_exact(&mut self.answer).unwrap();
        self.answer.clone()
    }
}
