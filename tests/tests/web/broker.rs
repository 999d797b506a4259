//! A broker that tells what a test wishes, and has no jobs.

use fpga_pool_api::v1::broker_server::{Broker, BrokerServer};
use fpga_pool_api::v1::{FromClient, FromManager, LookRequest, Pool, ToClient, ToManager};
use futures::stream::Empty;
use std::net::SocketAddr;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio_stream::wrappers::TcpListenerStream;
use tonic::transport::Server;
use tonic::{Request, Response, Status, Streaming};

/// The broker.
pub struct StandInBroker {
    address: SocketAddr,
    server: JoinHandle<()>,
}

struct Told(Pool);

impl StandInBroker {
    /// Starts a broker that tells this of the pool.
    pub async fn start(pool: Pool) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let serving = Server::builder()
            .add_service(BrokerServer::new(Told(pool)))
            .serve_with_incoming(TcpListenerStream::new(listener));
        let server = tokio::spawn(async move {
            // The server ends with the test, so that an error has no reader.
            let _ = serving.await;
        });
        Self { address, server }
    }

    /// The address.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }
}

impl Drop for StandInBroker {
    fn drop(&mut self) {
        self.server.abort();
    }
}

#[tonic::async_trait]
impl Broker for Told {
    type LendStream = Empty<Result<ToManager, Status>>;
    type WorkStream = Empty<Result<ToClient, Status>>;

    async fn lend(&self, _: Request<Streaming<FromManager>>) -> Result<Response<Self::LendStream>, Status> {
        Err(Status::unavailable("it is not active"))
    }

    async fn work(&self, _: Request<Streaming<FromClient>>) -> Result<Response<Self::WorkStream>, Status> {
        Err(Status::unavailable("it is not active"))
    }

    async fn look(&self, _: Request<LookRequest>) -> Result<Response<Pool>, Status> {
        Ok(Response::new(self.0.clone()))
    }
}
