//! The ways of gRPC clients to a device manager.

use hyper_util::rt::TokioIo;
use std::ops::{Deref, DerefMut};
use tonic::transport::{Channel, Endpoint};

/// A manager over PoCL, or over the runtime of `RUNTIME`.
pub struct Manager(fpga_test_kit::Manager);

impl Manager {
    pub fn start(args: &[&str]) -> Self {
        Self(fpga_test_kit::Manager::start(args))
    }

    pub fn start_in(variables: &[(&str, &str)], args: &[&str]) -> Self {
        Self(fpga_test_kit::Manager::start_in(variables, args))
    }

    pub fn start_over(runtime: &str, variables: &[(&str, &str)], args: &[&str]) -> Self {
        Self(fpga_test_kit::Manager::start_over(runtime, variables, args))
    }

    pub async fn tcp_channel(&self) -> Channel {
        let address = self.tcp_address().replace("tcp://", "http://");
        Endpoint::from_shared(address).unwrap().connect().await.unwrap()
    }

    pub async fn channel(&self) -> Channel {
        self.try_channel().await.unwrap()
    }

    pub async fn try_channel(&self) -> Result<Channel, ()> {
        let socket = self.socket();
        let connect = tower::service_fn(move |_: tonic::transport::Uri| {
            let socket = socket.clone();
            async move { tokio::net::UnixStream::connect(socket).await.map(TokioIo::new) }
        });
        Endpoint::from_static("http://manager").connect_with_connector(connect).await.map_err(|_| ())
    }
}

impl Deref for Manager {
    type Target = fpga_test_kit::Manager;

    fn deref(&self) -> &fpga_test_kit::Manager {
        &self.0
    }
}

impl DerefMut for Manager {
    fn deref_mut(&mut self) -> &mut fpga_test_kit::Manager {
        &mut self.0
    }
}
