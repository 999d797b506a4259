//! A proxy in front of a program, which cuts connections or falls silent.

use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;

/// Direction whose bytes are counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    ToServer,
    ToClient,
}

/// Cuts a connection after this many bytes in this direction.
pub type Cut = (Way, usize);

/// A proxy at a free TCP port. It cuts the first connection by the first cut, and so on; later connections are not cut.
#[derive(Debug)]
pub struct Proxy {
    address: SocketAddr,
    server: Arc<Mutex<String>>,
    connections: Arc<AtomicUsize>,
    /// Number of first connections that stay open but don't forward any more.
    silent: Arc<AtomicUsize>,
    cuts: Arc<Mutex<Vec<Cut>>>,
    /// Bytes so far, by direction.
    forwarded: Arc<[AtomicUsize; 2]>,
}

/// One direction of a connection, or both.
#[derive(Debug)]
enum Socket {
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl Proxy {
    /// A proxy to a server at `unix:PATH`, `tcp://IP:PORT` or `IP:PORT`.
    #[must_use]
    pub fn to(server: &str, cuts: &[Cut]) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let connections = Arc::new(AtomicUsize::new(0));
        let cuts = Arc::new(Mutex::new(cuts.iter().rev().copied().collect::<Vec<_>>()));
        let silent = Arc::new(AtomicUsize::new(0));
        let (counted, planned, silenced) = (Arc::clone(&connections), Arc::clone(&cuts), Arc::clone(&silent));
        let forwarded = Arc::<[AtomicUsize; 2]>::default();
        let bytes = Arc::clone(&forwarded);
        let server = Arc::new(Mutex::new(server.to_owned()));
        let current = Arc::clone(&server);
        thread::spawn(move || {
            for client in listener.incoming() {
                let client = Socket::Tcp(client.unwrap());
                let number = counted.fetch_add(1, Ordering::SeqCst);
                let cut = planned.lock().unwrap().pop();
                // The server may have ended.
                let server = current.lock().unwrap().clone();
                let Ok(server) = Socket::connect(&server) else { continue };
                carry(&client, &server, cut, (number, Arc::clone(&silenced)), &bytes);
            }
        });
        Self { address, server, connections, silent, cuts, forwarded }
    }

    /// The address of the proxy: `IP:PORT`.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Makes later connections go to another server.
    pub fn redirect(&self, server: &str) {
        server.clone_into(&mut self.server.lock().unwrap());
    }

    /// Stops forwarding on all existing connections, and closes none of them.
    pub fn fall_silent(&self) {
        self.silent.store(self.connections(), Ordering::SeqCst);
    }

    /// Number of connections so far.
    #[must_use]
    pub fn connections(&self) -> usize {
        self.connections.load(Ordering::SeqCst)
    }

    /// Number of bytes that were forwarded so far.
    #[must_use]
    pub fn forwarded(&self, way: Way) -> usize {
        self.forwarded[way as usize].load(Ordering::SeqCst)
    }

    /// The cuts of later connections, the next one last.
    #[must_use]
    pub fn cuts_left(&self) -> usize {
        self.cuts.lock().unwrap().len()
    }
}

impl Socket {
    fn connect(server: &str) -> io::Result<Self> {
        if let Some(path) = server.strip_prefix("unix:") {
            return UnixStream::connect(path).map(Self::Unix);
        }
        TcpStream::connect(server.strip_prefix("tcp://").unwrap_or(server)).map(Self::Tcp)
    }

    fn clone(&self) -> Self {
        match self {
            Self::Tcp(stream) => {
                stream.set_nodelay(true).unwrap();
                Self::Tcp(stream.try_clone().unwrap())
            }
            Self::Unix(stream) => Self::Unix(stream.try_clone().unwrap()),
        }
    }

    /// Ends both directions. The peer may have done so already.
    fn end(&self) {
        let _ = match self {
            Self::Tcp(stream) => stream.shutdown(Shutdown::Both),
            Self::Unix(stream) => stream.shutdown(Shutdown::Both),
        };
    }
}

impl Read for Socket {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(stream) => stream.read(bytes),
            Self::Unix(stream) => stream.read(bytes),
        }
    }
}

impl Write for Socket {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(stream) => stream.write(bytes),
            Self::Unix(stream) => stream.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn carry(
    client: &Socket,
    server: &Socket,
    cut: Option<Cut>,
    (number, silent): (usize, Arc<AtomicUsize>),
    forwarded: &Arc<[AtomicUsize; 2]>,
) {
    for (way, from, to) in [(Way::ToServer, client, server), (Way::ToClient, server, client)] {
        let most = cut.filter(|(cut, _)| *cut == way).map_or(usize::MAX, |(_, bytes)| bytes);
        let (from, to, silent, forwarded) =
            (from.clone(), to.clone(), Arc::clone(&silent), Arc::clone(forwarded));
        thread::spawn(move || {
            copy(from, to, most, &forwarded[way as usize], || number < silent.load(Ordering::SeqCst));
        });
    }
}

/// Copies until the end, an error, or `most` bytes, and then ends both connections. A silent proxy ends none.
fn copy(
    mut from: Socket,
    mut to: Socket,
    mut most: usize,
    count: &AtomicUsize,
    is_silent: impl Fn() -> bool,
) {
    let mut bytes = vec![0; 64 << 10];
    while most > 0 {
        let room = bytes.len().min(most);
        match from.read(&mut bytes[..room]) {
            Ok(1..) if is_silent() => {}
            Ok(read @ 1..) if to.write_all(&bytes[..read]).is_ok() => {
                most -= read;
                count.fetch_add(read, Ordering::SeqCst);
            }
            _ => break,
        }
    }
    from.end();
    to.end();
}
