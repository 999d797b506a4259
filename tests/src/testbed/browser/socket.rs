//! The client's side of a WebSocket (RFC 6455) to a program of this machine: texts in both directions.

use anyhow::{Context as _, Result, bail, ensure};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

/// Longest message that is taken: a picture of a page has a few megabytes.
const MAX_BYTES: usize = 64 << 20;
const TEXT: u8 = 1;
const CONTINUATION: u8 = 0;
const CLOSE: u8 = 8;
const LAST: u8 = 0x80;
const MASKED: u8 = 0x80;

/// A connection.
pub(super) struct Socket(TcpStream);

impl Socket {
    /// Connects to an address of the form `ws://HOST:PORT/PATH`.
    pub(super) async fn connect(address: &str) -> Result<Self> {
        let rest = address.strip_prefix("ws://").context("not an address of a WebSocket")?;
        let (host, path) = rest.split_once('/').context("the address has no path")?;
        let mut stream =
            TcpStream::connect(host).await.with_context(|| format!("can't connect to {host}"))?;
        // The key protects from caches between client and server, of which there is none.
        let request = format!(
            "GET /{path} HTTP/1.1\r\nHost: {host}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
             Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\nSec-WebSocket-Version: 13\r\n\r\n"
        );
        stream.write_all(request.as_bytes()).await?;
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            ensure!(head.len() < 8192, "the answer's head is too long");
            head.push(stream.read_u8().await?);
        }
        ensure!(head.starts_with(b"HTTP/1.1 101"), "refused: {}", String::from_utf8_lossy(&head));
        Ok(Self(stream))
    }

    /// Sends a text.
    pub(super) async fn send(&mut self, text: &str) -> Result<()> {
        let mut frame = vec![LAST | TEXT];
        match text.len() {
            length @ 0..126 => frame.push(MASKED | u8::try_from(length)?),
            length @ 126..65_536 => {
                frame.push(MASKED | 126);
                frame.extend(u16::try_from(length)?.to_be_bytes());
            }
            length => {
                frame.push(MASKED | 127);
                frame.extend(u64::try_from(length)?.to_be_bytes());
            }
        }
        // A mask of zeros leaves the text as it is.
        frame.extend([0; 4]);
        frame.extend(text.as_bytes());
        Ok(self.0.write_all(&frame).await?)
    }

    /// The next text.
    pub(super) async fn receive(&mut self) -> Result<String> {
        let mut text = Vec::new();
        loop {
            let (first, second) = (self.0.read_u8().await?, self.0.read_u8().await?);
            let length = match second & !MASKED {
                126 => usize::from(self.0.read_u16().await?),
                127 => usize::try_from(self.0.read_u64().await?)?,
                short => usize::from(short),
            };
            ensure!(text.len() + length <= MAX_BYTES, "the message is too long");
            let mut payload = vec![0; length];
            self.0.read_exact(&mut payload).await?;
            match first & 0xf {
                TEXT | CONTINUATION => text.extend(payload),
                CLOSE => bail!("the other side has closed"),
                // A sign of life, which an idle connection of minutes would have to answer.
                _ => continue,
            }
            if first & LAST != 0 {
                return Ok(String::from_utf8(text)?);
            }
        }
    }
}
