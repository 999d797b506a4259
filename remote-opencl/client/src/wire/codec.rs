//! The gRPC codec of a session: standard protobuf, except that chunks are encoded directly from the application's
//! memory.

use crate::wire::outgoing::{Outgoing, UploadChunk};
use bytes::BufMut;
use fpga_protocol::v1;
use prost::encoding::{WireType, encode_key, encode_varint, encoded_len_varint, key_len};
use prost::{EncodeError, Message};
use tonic::Status;
use tonic::codec::{BufferSettings, Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};

/// Field numbers of the protocol that the hand-written encoding of a chunk uses.
mod field {
    pub(super) const CLIENT_MESSAGE_CHUNK: u32 = 4;
    pub(super) const CHUNK_TRANSFER: u32 = 1;
    pub(super) const CHUNK_LENGTH: u32 = 2;
    pub(super) const CHUNK_OFFSET: u32 = 3;
    pub(super) const CHUNK_DATA: u32 = 4;
}

/// Codec of the method `Session`.
#[derive(Debug, Default)]
pub(crate) struct SessionCodec;

/// Encodes messages of a client.
#[derive(Debug, Default)]
pub(crate) struct SessionEncoder;

/// Decodes messages of a manager.
#[derive(Debug, Default)]
pub(crate) struct SessionDecoder;

impl Codec for SessionCodec {
    type Encode = Outgoing;
    type Decode = v1::ServerMessage;
    type Encoder = SessionEncoder;
    type Decoder = SessionDecoder;

    fn encoder(&mut self) -> SessionEncoder {
        SessionEncoder
    }

    fn decoder(&mut self) -> SessionDecoder {
        SessionDecoder
    }
}

impl Encoder for SessionEncoder {
    type Item = Outgoing;
    type Error = Status;

    fn encode(&mut self, item: Outgoing, out: &mut EncodeBuf<'_>) -> Result<(), Status> {
        if let Outgoing::Chunk(chunk) = &item {
            out.reserve(usize::try_from(chunk.len).unwrap_or(0) + 64);
        }
        encode(item, out).map_err(|error| Status::internal(error.to_string()))
    }

    fn buffer_settings(&self) -> BufferSettings {
        BufferSettings::default()
    }
}

/// Appends an encoded message, for the stream or the command ring.
pub(crate) fn encode(item: Outgoing, out: &mut impl BufMut) -> Result<(), EncodeError> {
    match item {
        Outgoing::Message(message) => message.encode(out),
        Outgoing::Chunk(chunk) => {
            encode_chunk(&chunk, out);
            Ok(())
        }
    }
}

fn encode_chunk(chunk: &UploadChunk, out: &mut impl BufMut) {
    let varint_field = |field, value| key_len(field) + encoded_len_varint(value);
    let mut body = key_len(field::CHUNK_DATA) + encoded_len_varint(chunk.len);
    body += varint_field(field::CHUNK_TRANSFER, chunk.upload.transfer);
    body += varint_field(field::CHUNK_LENGTH, chunk.upload.length);
    body += varint_field(field::CHUNK_OFFSET, chunk.offset);

    encode_key(field::CLIENT_MESSAGE_CHUNK, WireType::LengthDelimited, out);
    encode_varint(body as u64 + chunk.len, out);
    for (field, value) in [
        (field::CHUNK_TRANSFER, chunk.upload.transfer),
        (field::CHUNK_LENGTH, chunk.upload.length),
        (field::CHUNK_OFFSET, chunk.offset),
    ] {
        encode_key(field, WireType::Varint, out);
        encode_varint(value, out);
    }
    encode_key(field::CHUNK_DATA, WireType::LengthDelimited, out);
    encode_varint(chunk.len, out);
    let (offset, len) = (index(chunk.offset), index(chunk.len));
    chunk.upload.with_source(|source| match source {
        Some(source) => source.copy_to(offset, len, out),
        None => out.put_bytes(0, len),
    });
}

/// An offset or length within host memory, which always fits a `usize`.
fn index(value: u64) -> usize {
    usize::try_from(value).unwrap_or(usize::MAX)
}

impl Decoder for SessionDecoder {
    type Item = v1::ServerMessage;
    type Error = Status;

    fn decode(&mut self, bytes: &mut DecodeBuf<'_>) -> Result<Option<v1::ServerMessage>, Status> {
        let message = v1::ServerMessage::decode(bytes);
        message.map(Some).map_err(|error| Status::internal(format!("undecodable message: {error}")))
    }

    fn buffer_settings(&self) -> BufferSettings {
        BufferSettings::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::host_memory::HostSource;
    use crate::wire::outgoing::Upload;
    use std::sync::Arc;

    #[test]
    fn a_chunk_is_encoded_as_the_generated_code_would() {
        let bytes: Vec<u8> = (0..1000u16).map(|n| n.to_le_bytes()[0]).collect();
        let upload = Arc::new(Upload::new(7, HostSource::owned(bytes.clone())));
        for (offset, len) in [(0, 300), (300, 700)] {
            let chunk = UploadChunk { upload: Arc::clone(&upload), offset, len };
            let mut out = Vec::new();
            encode_chunk(&chunk, &mut out);
            let data = bytes[index(offset)..index(offset + len)].to_vec().into();
            // The generated code omits fields that are 0; they decode the same.
            let expected = v1::Chunk { transfer: 7, length: 1000, offset, data };
            let decoded = v1::ClientMessage::decode(&*out).unwrap();
            assert_eq!(decoded.kind, Some(v1::client_message::Kind::Chunk(expected)));
        }
    }

    #[test]
    fn an_upload_that_was_given_up_sends_zeroes() {
        let upload = Arc::new(Upload::new(7, HostSource::owned(vec![1; 10])));
        upload.give_up();
        let mut out = Vec::new();
        encode_chunk(&UploadChunk { upload, offset: 0, len: 10 }, &mut out);
        let decoded = v1::ClientMessage::decode(&*out).unwrap();
        let Some(v1::client_message::Kind::Chunk(chunk)) = decoded.kind else { panic!("{decoded:?}") };
        assert_eq!(chunk.data, vec![0; 10]);
    }
}
