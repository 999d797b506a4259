//! The stream between a client and the manager, below the level of sessions.

use bytes::{BufMut as _, Bytes, BytesMut};
use fpga_protocol::limits::MAX_MESSAGE_BYTES;
use fpga_protocol::v1::client_message::Kind;
use fpga_protocol::v1::device_manager_client::DeviceManagerClient;
use fpga_protocol::v1::server_message::Kind as ServerKind;
use fpga_protocol::v1::{self, ServerMessage};
use fpga_test_kit::patience;
use prost::Message as _;
use prost::encoding::{WireType, encode_key, encode_varint};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};
use tonic::codegen::http::uri::PathAndQuery;
use tonic::transport::Channel;
use tonic::{Code, Status, Streaming};

pub fn hello(protocol_version: u32) -> v1::ClientMessage {
    hello_with(protocol_version, "")
}

pub fn hello_with(protocol_version: u32, token: &str) -> v1::ClientMessage {
    let (client_name, token) = ("test".to_owned(), token.to_owned());
    let hello = v1::Hello { protocol_version, client_name, token, ..v1::Hello::default() };
    v1::ClientMessage { kind: Some(Kind::Hello(hello)) }
}

/// An encoded message.
pub fn encoded(kind: Kind) -> Bytes {
    v1::ClientMessage { kind: Some(kind) }.encode_to_vec().into()
}

/// Like [`encoded`], padded by an unknown field to the length of the longest message.
pub fn padded(kind: Kind) -> Bytes {
    const UNKNOWN: u32 = 999;
    let mut bytes = BytesMut::new();
    v1::ClientMessage { kind: Some(kind) }.encode(&mut bytes).unwrap();
    let rest = MAX_MESSAGE_BYTES - bytes.len() - 16;
    encode_key(UNKNOWN, WireType::LengthDelimited, &mut bytes);
    encode_varint(rest as u64, &mut bytes);
    bytes.put_bytes(7, rest);
    bytes.freeze()
}

/// Both ends of a new stream.
pub async fn raw(channel: Channel) -> (mpsc::Sender<v1::ClientMessage>, Streaming<ServerMessage>) {
    try_raw(channel).await.unwrap()
}

/// Like [`raw`], for messages that are encoded already.
pub async fn raw_bytes(channel: Channel) -> (mpsc::Sender<Bytes>, Streaming<ServerMessage>) {
    try_raw_bytes(channel).await.unwrap()
}

/// Like [`raw_bytes`], or the error if the stream is refused.
pub async fn try_raw_bytes(
    channel: Channel,
) -> Result<(mpsc::Sender<Bytes>, Streaming<ServerMessage>), Status> {
    let (to, stream) = mpsc::channel(16);
    let mut client = tonic::client::Grpc::new(channel);
    client.ready().await.map_err(|error| Status::unavailable(error.to_string()))?;
    let path = PathAndQuery::from_static("/fpga.remote.v1.DeviceManager/Session");
    let request = tonic::Request::new(ReceiverStream::new(stream));
    Ok((to, client.streaming(request, path, Encoded).await?.into_inner()))
}

/// A codec that sends bytes unchanged.
struct Encoded;

impl Codec for Encoded {
    type Encode = Bytes;
    type Decode = ServerMessage;
    type Encoder = Self;
    type Decoder = Self;

    fn encoder(&mut self) -> Self {
        Self
    }

    fn decoder(&mut self) -> Self {
        Self
    }
}

impl Encoder for Encoded {
    type Item = Bytes;
    type Error = Status;

    fn encode(&mut self, message: Bytes, out: &mut EncodeBuf<'_>) -> Result<(), Status> {
        out.put(message);
        Ok(())
    }
}

impl Decoder for Encoded {
    type Item = ServerMessage;
    type Error = Status;

    fn decode(&mut self, bytes: &mut DecodeBuf<'_>) -> Result<Option<ServerMessage>, Status> {
        Ok(Some(ServerMessage::decode(bytes).unwrap()))
    }
}

pub async fn try_raw(
    channel: Channel,
) -> Result<(mpsc::Sender<v1::ClientMessage>, Streaming<ServerMessage>), Status> {
    let (to, stream) = mpsc::channel(16);
    let mut client = DeviceManagerClient::new(channel).max_decoding_message_size(8 << 20);
    let from = client.session(ReceiverStream::new(stream)).await?.into_inner();
    Ok((to, from))
}

pub async fn next(from: &mut Streaming<ServerMessage>) -> Result<Option<ServerKind>, Status> {
    let message = tokio::time::timeout(patience(), from.message()).await;
    let message = message.map_err(|_| Status::new(Code::DeadlineExceeded, "nothing came"))??;
    Ok(message.map(|message| message.kind.unwrap()))
}
