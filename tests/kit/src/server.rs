//! A stand-in for a server, on a thread of its own.

use super::api_server::kubeconfig;
use axum::Router;
use std::net::TcpListener;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::thread::JoinHandle;
use tokio::sync::oneshot;

/// A server that runs until it is stopped or dropped. Its end cuts every connection, as the end of a process does.
#[derive(Debug)]
pub struct Server {
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
    address: String,
}

impl Server {
    /// Serves `router` at a TCP address; port 0 takes a free one.
    pub fn tcp(address: &str, router: Router) -> Self {
        Self::tcp_beside(address, router, std::future::pending())
    }

    /// Like [`Self::tcp`]; the server's thread runs `work` as well, with whose end the server ends.
    pub fn tcp_beside(
        address: &str,
        router: Router,
        work: impl Future<Output = ()> + Send + 'static,
    ) -> Self {
        let listener = TcpListener::bind(address).unwrap();
        listener.set_nonblocking(true).unwrap();
        let address = listener.local_addr().unwrap().to_string();
        Self::start(address, async || {
            let listener = tokio::net::TcpListener::from_std(listener).unwrap();
            tokio::select! {
                served = axum::serve(listener, router) => served.unwrap(),
                () = work => {}
            }
        })
    }

    /// Serves `router` at a unix socket, whose file is replaced.
    pub fn unix(path: &Path, router: Router) -> Self {
        // There is no file at the first start.
        let _ = std::fs::remove_file(path);
        let listener = UnixListener::bind(path).unwrap();
        listener.set_nonblocking(true).unwrap();
        Self::start(path.display().to_string(), async || {
            axum::serve(tokio::net::UnixListener::from_std(listener).unwrap(), router).await.unwrap();
        })
    }

    fn start(address: String, serve: impl AsyncFnOnce() + Send + 'static) -> Self {
        let (stop, stopped) = oneshot::channel::<()>();
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async move {
                tokio::select! { () = serve() => {}, _ = stopped => {} }
            });
        });
        Self { stop: Some(stop), thread: Some(thread), address }
    }

    /// The bound address, or the path of the unix socket.
    pub fn address(&self) -> &str {
        &self.address
    }

    /// Writes a kubeconfig for an API server at the bound TCP address.
    pub fn write_kubeconfig(&self, path: &Path) {
        std::fs::write(path, kubeconfig(&format!("http://{}", self.address))).unwrap();
    }

    /// Ends the server and returns its address.
    pub fn stop(mut self) -> String {
        self.end();
        self.address.clone()
    }

    fn end(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            thread.join().unwrap();
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.end();
    }
}
