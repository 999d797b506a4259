//! The messages that a client sends in its session.

use fpga_device_manager::fuzzing::{Left, session};
use fpga_protocol::v1::ClientMessage;
use prost::Message as _;

/// Bytes of a message's length, in little-endian order.
const LENGTH_BYTES: usize = 2;

/// Takes `data` as the messages of a session, each after its length in two bytes. Messages that can't be decoded are
/// left out, as the transport does. Whatever the messages, the session ends and leaves nothing behind.
///
/// # Panics
/// If the session doesn't end cleanly, or there is no OpenCL runtime.
pub fn client_messages(data: &[u8]) {
    let mut messages = Vec::new();
    let mut rest = data;
    while let Some((length, behind)) = rest.split_first_chunk::<LENGTH_BYTES>() {
        let (message, behind) = behind.split_at(behind.len().min(usize::from(u16::from_le_bytes(*length))));
        messages.extend(ClientMessage::decode(message).ok());
        rest = behind;
    }
    match session(messages) {
        Ok(left) => assert_eq!(left, Left::default()),
        Err(error) => panic!("{error}"),
    }
}
