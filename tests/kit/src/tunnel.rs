//! Proxies that make tunnels.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;

/// A proxy that leads every tunnel to one server, whatever its client asks for.
#[derive(Debug)]
pub struct TunnelProxy {
    address: String,
    asked: Arc<Mutex<Vec<String>>>,
}

impl TunnelProxy {
    /// A proxy of HTTP at a free port of the loopback address, to the server at `IP:PORT`.
    #[must_use]
    pub fn http(server: &str) -> Self {
        Self::start(server, |client| {
            let lines = BufReader::new(client.try_clone().unwrap()).lines().map_while(Result::ok);
            let head: Vec<String> = lines.take_while(|line| !line.is_empty()).collect();
            client.write_all(b"HTTP/1.1 200 OK\r\n\r\n").unwrap();
            head.join("\n")
        })
    }

    /// Like [`Self::http`], for SOCKS 5 without a user. Clients must ask for names.
    #[must_use]
    pub fn socks(server: &str) -> Self {
        Self::start(server, |client| {
            let mut greeting = [0; 3];
            client.read_exact(&mut greeting).unwrap();
            assert_eq!(greeting, [5, 1, 0], "a client without a user");
            client.write_all(&[5, 0]).unwrap();
            let mut request = [0; 5];
            client.read_exact(&mut request).unwrap();
            assert_eq!(request[..4], [5, 1, 0, 3], "a connection to a name");
            let mut name = vec![0; usize::from(request[4])];
            let mut port = [0; 2];
            client.read_exact(&mut name).unwrap();
            client.read_exact(&mut port).unwrap();
            client.write_all(&[5, 0, 0, 1, 0, 0, 0, 0, 0, 0]).unwrap();
            format!("{}:{}", String::from_utf8(name).unwrap(), u16::from_be_bytes(port))
        })
    }

    fn start(server: &str, ask: impl Fn(&mut TcpStream) -> String + Send + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let (server, asked) = (server.to_owned(), Arc::<Mutex<Vec<String>>>::default());
        let noted = Arc::clone(&asked);
        thread::spawn(move || {
            for client in listener.incoming() {
                let mut client = client.unwrap();
                let place = ask(&mut client);
                noted.lock().unwrap().push(place);
                let mut behind = TcpStream::connect(&server).unwrap();
                let (mut from, mut to) = (client.try_clone().unwrap(), behind.try_clone().unwrap());
                thread::spawn(move || std::io::copy(&mut from, &mut to));
                thread::spawn(move || std::io::copy(&mut behind, &mut client));
            }
        });
        Self { address, asked }
    }

    /// Address of the proxy.
    #[must_use]
    pub fn address(&self) -> &str {
        &self.address
    }

    /// What each client asked for so far: the head of its request, or host and port.
    #[must_use]
    pub fn asked(&self) -> Vec<String> {
        self.asked.lock().unwrap().clone()
    }
}
