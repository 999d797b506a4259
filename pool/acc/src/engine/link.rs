//! The stream to the active broker. A broker that stands by ends the stream, and the next one is asked.

use super::Input;
use crate::config::{Broker, Config};
use fpga_net::backoff::Backoff;
use fpga_net::tls::ClientFiles;
use fpga_net::{grpc_client, token_file};
use fpga_pool_api::client::ToClient;
use fpga_pool_api::limits::{
    HANDSHAKE_TIMEOUT, KEEP_ALIVE_INTERVAL, KEEP_ALIVE_TIMEOUT, MAX_CLIENT_MESSAGE_BYTES, MAX_TOKEN_BYTES,
    PROTOCOL_VERSION,
};
use fpga_pool_api::v1;
use fpga_pool_api::v1::broker_client::BrokerClient;
use fpga_pool_leases::ids::ConnectionId;
use std::time::Duration;
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};
use tokio::time::{sleep, timeout};
use tokio_stream::StreamExt as _;
use tokio_stream::wrappers::UnboundedReceiverStream;
use tonic::transport::{Endpoint, Uri};

/// Pauses after all brokers were asked in vain.
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(2);

/// Keeps a stream to the active broker open, and reports what comes. Ends when nobody listens.
pub(super) async fn keep(config: Config, inputs: UnboundedSender<Input>) {
    let mut backoff = Backoff::new(FIRST_PAUSE, LONGEST_PAUSE);
    let mut connection = 0;
    while !inputs.is_closed() {
        for broker in &config.brokers {
            connection += 1;
            let id = ConnectionId(connection);
            let mut was_heard = false;
            let why = match talk(&config, broker, id, &inputs, &mut was_heard).await {
                Ok(()) => "the stream has ended".to_owned(),
                Err(why) => why,
            };
            if was_heard {
                backoff.reset();
            }
            if inputs.send(Input::BrokerClosed(id, format!("{broker}: {why}"))).is_err() {
                return;
            }
        }
        sleep(backoff.pause(0.5..1.0)).await;
    }
}

/// Talks to one broker until the stream ends.
async fn talk(
    config: &Config,
    broker: &Broker,
    connection: ConnectionId,
    inputs: &UnboundedSender<Input>,
    was_heard: &mut bool,
) -> Result<(), String> {
    let token = match &config.token_file {
        None => String::new(),
        Some(path) => token_file::read_text(path, MAX_TOKEN_BYTES)
            .map_err(|error| format!("the token file {} can't be read: {error}", path.display()))?,
    };
    let uri = broker.uri().parse::<Uri>().map_err(|error| error.to_string())?;
    let configure = |endpoint: Endpoint| {
        endpoint
            .connect_timeout(HANDSHAKE_TIMEOUT)
            .http2_keep_alive_interval(KEEP_ALIVE_INTERVAL)
            .keep_alive_timeout(KEEP_ALIVE_TIMEOUT)
            .keep_alive_while_idle(true)
    };
    let tls = config.ca.clone().map(|ca| ClientFiles { ca, identity: None });
    let channel =
        timeout(HANDSHAKE_TIMEOUT, grpc_client::connect(&uri, configure, tls.as_ref().map(Into::into))).await;
    let channel = channel.map_err(|_| "no answer in time".to_owned())?.map_err(|error| error.to_string())?;
    let mut client = BrokerClient::new(channel).max_decoding_message_size(MAX_CLIENT_MESSAGE_BYTES);
    let (sender, receiver) = unbounded_channel();
    let node = config.node.clone().unwrap_or_default();
    let hello = v1::Hello { protocol_version: PROTOCOL_VERSION, token, node };
    // The receiver is there.
    let _ = sender.send(v1::FromClient { kind: Some(v1::from_client::Kind::Hello(hello)) });
    let asked = timeout(HANDSHAKE_TIMEOUT, client.work(UnboundedReceiverStream::new(receiver))).await;
    let answer = asked.map_err(|_| "no answer in time".to_owned())?.map_err(|status| refusal(&status))?;
    let mut messages = answer.into_inner();
    if inputs.send(Input::BrokerConnected(connection, sender)).is_err() {
        return Ok(());
    }
    while let Some(message) = messages.next().await {
        let message = message.map_err(|status| refusal(&status))?;
        let message = ToClient::try_from(message).map_err(|error| format!("broke the protocol: {error}"))?;
        *was_heard = true;
        if inputs.send(Input::Broker(connection, message)).is_err() {
            return Ok(());
        }
    }
    Ok(())
}

fn refusal(status: &tonic::Status) -> String {
    if status.message().is_empty() { status.code().to_string() } else { status.message().to_owned() }
}
