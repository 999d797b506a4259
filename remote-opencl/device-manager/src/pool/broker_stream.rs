//! The manager's stream to the broker of the pool: over one broker's address after another, until the active one
//! answers, for as long as the manager accepts sessions.

use super::lender::Lender;
use anyhow::Context as _;
use fpga_net::backoff::Backoff;
use fpga_net::grpc_client;
use fpga_net::tls::{ClientFiles, PinnedKey, ServerTls};
use fpga_net::token_file::TokenFile;
use fpga_pool_api::hello::Hello;
use fpga_pool_api::limits::{
    HANDSHAKE_TIMEOUT, KEEP_ALIVE_INTERVAL, KEEP_ALIVE_TIMEOUT, MAX_MANAGER_MESSAGE_BYTES, PROTOCOL_VERSION,
};
use fpga_pool_api::manager::{Board, FromManager, LentBoard, LentSlot};
use fpga_pool_api::v1;
use fpga_pool_api::v1::broker_client::BrokerClient;
use fpga_pool_leases::messages::{BrokerToManager, ManagerToBroker};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{mpsc, watch};
use tokio::time::timeout;
use tokio_stream::wrappers::ReceiverStream;
use tonic::Streaming;
use tonic::transport::{Channel, Endpoint, Uri};

/// Pauses after all brokers have refused.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(2);
/// Messages on their way to the broker.
const OUTGOING: usize = 64;

/// The brokers of the pool, and what they are told of the board.
#[derive(Debug, Clone)]
pub struct Brokers {
    /// Addresses, `http://HOST:PORT` or `https://HOST:PORT`. One broker is active at a time.
    pub urls: Vec<Uri>,
    /// The token that proves the manager.
    pub token: Option<TokenFile>,
    /// The authorities of brokers behind `https://`, and the manager's certificate for them.
    pub tls: Option<ClientFiles>,
    /// The board.
    pub board: Board,
    /// The TLS of the manager's own listeners, whose key the clients are told.
    pub listener_tls: Option<Arc<ServerTls>>,
}

/// Why a stream ended.
enum End {
    /// The broker did not answer, is not active, or has gone.
    ByBroker(anyhow::Error),
    /// Another stream has taken its place, or the manager lends no more.
    Replaced,
    /// Clients need the key of a new certificate: the manager registers anew.
    NewKey,
}

/// Lends the slots to the active broker, for ever.
pub async fn lend(lender: &Lender, brokers: &Brokers) {
    let mut backoff = Backoff::new(FIRST_PAUSE, LONGEST_PAUSE);
    let mut said = None;
    loop {
        for url in &brokers.urls {
            let (registered, end) = brokers.lend_to(url, lender).await;
            if registered == Registered::Yes {
                backoff.reset();
                said = None;
            }
            if let End::ByBroker(error) = end {
                let error = format!("{error:#}");
                if said.as_ref() != Some(&error) {
                    tracing::info!(%url, error, "The broker of the pool does not take the slots");
                    said = Some(error);
                }
            }
        }
        tokio::time::sleep(backoff.pause(0.5..1.0)).await;
    }
}

/// Whether the broker has taken the manager's Register.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Registered {
    Yes,
    No,
}

impl Brokers {
    /// Lends to one broker, until its stream ends.
    async fn lend_to(&self, url: &Uri, lender: &Lender) -> (Registered, End) {
        let opened = timeout(HANDSHAKE_TIMEOUT, self.open(url)).await;
        let (to, mut from) = match opened.context("it did not answer in time").and_then(|opened| opened) {
            Ok(opened) => opened,
            Err(error) => return (Registered::No, End::ByBroker(error)),
        };
        tracing::info!(%url, "The broker of the pool gets the slots");
        let mut key = self.listener_tls.as_ref().map(|tls| tls.watch_public_key());
        let (connection, mut messages) = lender.register();
        let end = loop {
            tokio::select! {
                message = messages.recv() => {
                    let Some(message) = message else { break End::Replaced };
                    if to.send(self.encode(message, lender)).await.is_err() {
                        break End::ByBroker(anyhow::anyhow!("it has ended the stream"));
                    }
                }
                message = next(&mut from) => match message {
                    Ok(message) => lender.broker_says(connection, message),
                    Err(error) => break End::ByBroker(error),
                },
                () = changed(&mut key) => break End::NewKey,
            }
        };
        lender.broker_closed(connection);
        (Registered::Yes, end)
    }

    fn encode(&self, message: ManagerToBroker, lender: &Lender) -> v1::FromManager {
        let mut lent = LentBoard { board: self.board.clone(), slots: Vec::new() };
        let message = match message {
            ManagerToBroker::Register { incarnation, max_term, mut endpoint, slots } => {
                let key = self.listener_tls.as_ref().and_then(|tls| tls.public_key());
                endpoint.key = key.map(|key| key.0);
                // The broker grants a slot first to jobs whose bitstream it has.
                lent.slots = lender.loaded().map(|loaded| LentSlot { region: None, loaded }).collect();
                ManagerToBroker::Register { incarnation, max_term, endpoint, slots }
            }
            message => message,
        };
        FromManager::encode(message, &lent)
    }

    /// Opens a stream and says Hello.
    async fn open(
        &self,
        url: &Uri,
    ) -> anyhow::Result<(mpsc::Sender<v1::FromManager>, Streaming<v1::ToManager>)> {
        let token = self.token.as_ref().map(TokenFile::read).transpose()?;
        let token = token.map(|token| token.secret().to_owned()).unwrap_or_default();
        let hello = Hello { version: PROTOCOL_VERSION, token, node: Some(Arc::clone(&self.board.node)) };
        let mut client = BrokerClient::new(self.connect(url).await?)
            .max_decoding_message_size(MAX_MANAGER_MESSAGE_BYTES)
            .max_encoding_message_size(MAX_MANAGER_MESSAGE_BYTES);
        let (to, messages) = mpsc::channel(OUTGOING);
        // There is room: it is the first message.
        to.try_send(hello.into())?;
        let from = client.lend(ReceiverStream::new(messages)).await;
        let from = from.map_err(|status| anyhow::anyhow!("{}: {}", status.code(), status.message()))?;
        Ok((to, from.into_inner()))
    }

    async fn connect(&self, url: &Uri) -> anyhow::Result<Channel> {
        let configure = |endpoint: Endpoint| {
            endpoint
                .connect_timeout(HANDSHAKE_TIMEOUT)
                .tcp_nodelay(true)
                .http2_keep_alive_interval(KEEP_ALIVE_INTERVAL)
                .keep_alive_timeout(KEEP_ALIVE_TIMEOUT)
                .keep_alive_while_idle(true)
        };
        Ok(grpc_client::connect(url, configure, self.tls.as_ref().map(Into::into)).await?)
    }
}

/// Waits until the listeners have another key, for ever if they have none.
async fn changed(key: &mut Option<watch::Receiver<Option<PinnedKey>>>) {
    let changed = match key {
        None => false,
        Some(key) => key.changed().await.is_ok(),
    };
    if !changed {
        std::future::pending::<()>().await;
    }
}

async fn next(from: &mut Streaming<v1::ToManager>) -> anyhow::Result<BrokerToManager> {
    let message = from.message().await;
    let message = message.map_err(|status| anyhow::anyhow!("{}: {}", status.code(), status.message()))?;
    Ok(message.context("it has ended the stream")?.try_into()?)
}
