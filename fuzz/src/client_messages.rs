//! What a client sends into its session.

use fpga_device_manager::fuzzing::{Left, session};
use fpga_protocol::v1::ClientMessage;
use prost::Message as _;

/// A length, little end first.
const LENGTH_BYTES: usize = 2;

/// `data` as the messages of a session, each after its length in two bytes; what can't be decoded is left out, as the
/// transport does. The session ends, whatever is said in it, and leaves nothing behind.
///
/// # Panics
/// If that does not hold, or there is no OpenCL runtime.
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
