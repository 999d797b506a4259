use super::*;
use crate::memory::host_memory::HostSource;
use crate::wire::replay_buffer::WrongCount;
use futures::{FutureExt as _, StreamExt as _};
use proptest::prelude::*;
use v1::client_message::Kind;

fn message(id: u64) -> Kind {
    Kind::Call(v1::Call { id, method: None, trace: None })
}

fn hello() -> v1::ClientMessage {
    v1::ClientMessage { kind: Some(Kind::Hello(v1::Hello::default())) }
}

/// The messages that can be sent now, at most `most`: ids of calls, and 1000 + the offset of chunks.
fn now(stream: &mut OutboxStream, most: usize) -> Vec<u64> {
    let mut sent = Vec::new();
    while sent.len() < most
        && let Some(Some(outgoing)) = stream.next().now_or_never()
    {
        match outgoing {
            Outgoing::Message(v1::ClientMessage { kind: Some(Kind::Call(call)) }) => sent.push(call.id),
            Outgoing::Message(_) => {}
            Outgoing::Chunk(chunk) => sent.push(1000 + chunk.offset),
        }
    }
    sent
}

fn begin(outbox: &Arc<Outbox>) -> OutboxStream {
    let stream = outbox.connection(hello());
    outbox.start_sending(0).unwrap();
    outbox.enable_replay();
    stream
}

#[test]
fn what_the_manager_lacks_is_sent_again_in_order_before_what_is_new() {
    let outbox = Arc::new(Outbox::default());
    let mut first = begin(&outbox);
    outbox.push(message(1));
    outbox.push_upload(Arc::new(Upload::new(7, HostSource::owned(vec![1; 512 * 1024]))));
    outbox.push(message(2));
    assert_eq!(now(&mut first, 3), [1, 1000, 1000 + CHUNK_BYTES]);
    let mut second = outbox.connection(hello());
    assert!(now(&mut second, 9).is_empty(), "nothing but the Hello until the manager says what it has");
    outbox.push(message(3));
    outbox.start_sending(1).unwrap();
    assert!(now(&mut first, 9).is_empty(), "the old connection is over");
    assert_eq!(now(&mut second, 9), [1000, 1000 + CHUNK_BYTES, 2, 3]);
}

#[test]
fn a_manager_that_counts_wrong_is_caught() {
    let outbox = Arc::new(Outbox::default());
    let mut stream = begin(&outbox);
    (1..5).for_each(|id| outbox.push(message(id)));
    assert_eq!(now(&mut stream, 3), [1, 2, 3]);
    assert_eq!(outbox.acknowledged(4), Err(WrongCount(4)), "it was not sent yet");
    outbox.acknowledged(2).unwrap();
    assert_eq!(outbox.start_sending(1), Err(WrongCount(1)), "it had that");
    outbox.start_sending(3).unwrap();
}

proptest! {
    /// Connections break after any number of messages, of which any number arrived. Each message arrives once, in
    /// order.
    #[test]
    fn every_message_arrives_once_and_in_order(
        cuts in prop::collection::vec((0_usize..8, 0_usize..8, any::<bool>()), 0..12),
        total in 1_u64..40,
    ) {
        let outbox = Arc::new(Outbox::default());
        let mut stream = begin(&outbox);
        (1..=total).for_each(|id| outbox.push(message(id)));
        let mut arrived: Vec<u64> = Vec::new();
        for (sent, lost, told) in cuts {
            let sent = now(&mut stream, sent);
            arrived.extend(&sent[..sent.len().saturating_sub(lost)]);
            if told {
                outbox.acknowledged(arrived.len() as u64).unwrap();
            }
            stream = outbox.connection(hello());
            outbox.start_sending(arrived.len() as u64).unwrap();
        }
        arrived.extend(now(&mut stream, usize::MAX));
        prop_assert_eq!(arrived, (1..=total).collect::<Vec<_>>());
    }
}
