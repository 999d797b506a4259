//! The messages between the broker of the pool, device managers and clients of jobs: what each of them takes from the others.

use fpga_pool_api::client::{FromClient, ToClient};
use fpga_pool_api::limits::{MAX_CLIENT_MESSAGE_BYTES, MAX_MANAGER_MESSAGE_BYTES};
use fpga_pool_api::manager::{Board, FromManager, LentBoard};
use fpga_pool_api::v1;
use fpga_pool_leases::messages::BrokerToManager;
use prost::Message;
use std::fmt::Debug;

/// Takes `data` as a message of each of the four directions: from a client, to a client, from a manager, to a manager. A
/// message that is taken can be sent, within the limit of its stream, and arrives as it was.
///
/// # Panics
/// If this does not hold.
pub fn pool_messages(data: &[u8]) {
    directions_that_take(data);
}

/// The number of directions that take the message.
fn directions_that_take(data: &[u8]) -> usize {
    let (client, manager) = (MAX_CLIENT_MESSAGE_BYTES, MAX_MANAGER_MESSAGE_BYTES);
    let taken = [
        is_taken::<_, FromClient>(data, client, v1::FromClient::from),
        is_taken::<_, ToClient>(data, client, v1::ToClient::from),
        is_taken(data, manager, from_manager),
        is_taken::<_, BrokerToManager>(data, manager, v1::ToManager::from),
    ];
    taken.into_iter().filter(|is_taken| *is_taken).count()
}

/// Whether `data` is a message. `encode` makes what is sent of one, of at most `most` bytes.
fn is_taken<Wire, Own>(data: &[u8], most: usize, encode: impl Fn(Own) -> Wire) -> bool
where
    Wire: Message + Default,
    Own: TryFrom<Wire> + Clone + Debug + PartialEq,
    Own::Error: Debug + PartialEq,
{
    let Ok(Ok(message)) = Wire::decode(data).map(Own::try_from) else { return false };
    let sent = encode(message.clone()).encode_to_vec();
    assert!(sent.len() <= most, "{} bytes for {message:?}", sent.len());
    let arrived = Wire::decode(sent.as_slice())
        .unwrap_or_else(|error| panic!("{message:?} was sent and can't be read: {error}"));
    assert_eq!(Own::try_from(arrived), Ok(message));
    true
}

/// A manager's message as it is sent.
fn from_manager(message: FromManager) -> v1::FromManager {
    match message {
        FromManager::Hello(hello) => hello.into(),
        FromManager::Register(board, register) => FromManager::encode(register, &board),
        FromManager::Message(message) => {
            // Only a Register tells of the board.
            let board = Board { name: "b".into(), kind: "k".into(), shell: None, node: "n".into() };
            FromManager::encode(message, &LentBoard { board, slots: Vec::new() })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    #[test]
    fn each_seed_is_a_message_of_some_direction() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("seeds/pool_messages");
        for seed in std::fs::read_dir(folder).unwrap() {
            let path = seed.unwrap().path();
            assert!(directions_that_take(&std::fs::read(&path).unwrap()) > 0, "{}", path.display());
        }
    }
}
