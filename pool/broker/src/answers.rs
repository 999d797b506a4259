//! Messages that wait for a peer. They take the form of the wire only when the peer takes them: texts that many messages
//! share, as the interface of an accelerator, are there once.

use std::marker::PhantomData;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use tokio::sync::Notify;
use tokio::sync::mpsc::{Receiver, Sender, channel};
use tokio_stream::Stream;
use tonic::Status;

/// Messages that wait for a peer. One that lets more wait loses its stream.
const MOST: usize = 2048;
/// Messages that wait for a client when the broker takes no more of what the client asks.
const UNREAD: usize = 16;

/// The way to a peer.
#[derive(Debug)]
pub struct Answers<M> {
    messages: Sender<Result<M, Status>>,
    taken: Arc<Notify>,
}

/// The messages to a peer as the wire has them.
#[derive(Debug)]
pub struct AnswerStream<M, W> {
    messages: Receiver<Result<M, Status>>,
    taken: Arc<Notify>,
    wire: PhantomData<fn() -> W>,
}

/// A way to a peer, and its end.
#[must_use]
pub fn answers<M, W>() -> (Answers<M>, AnswerStream<M, W>) {
    let (messages, to_peer) = channel(MOST);
    let taken = Arc::<Notify>::default();
    let stream = AnswerStream { messages: to_peer, taken: Arc::clone(&taken), wire: PhantomData };
    (Answers { messages, taken }, stream)
}

impl<M> Answers<M> {
    /// Sends a message, or the reason why the stream ends. False if too many wait, or the stream has ended.
    #[must_use]
    pub fn send(&self, message: Result<M, Status>) -> bool {
        self.messages.try_send(message).is_ok()
    }

    /// Whether the peer reads what it is sent, as far as is known.
    #[must_use]
    pub fn is_read(&self) -> bool {
        self.messages.max_capacity() - self.messages.capacity() < UNREAD
    }

    /// Waits until the peer reads what it is sent. False if the stream has ended.
    pub async fn until_read(&self) -> bool {
        let is_read = async {
            while !self.is_read() {
                self.taken.notified().await;
            }
        };
        tokio::select! {
            () = is_read => true,
            () = self.messages.closed() => false,
        }
    }
}

impl<M> Clone for Answers<M> {
    fn clone(&self) -> Self {
        Self { messages: self.messages.clone(), taken: Arc::clone(&self.taken) }
    }
}

impl<M, W: From<M>> Stream for AnswerStream<M, W> {
    type Item = Result<W, Status>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let message = self.messages.poll_recv(cx);
        if let Poll::Ready(Some(_)) = &message {
            self.taken.notify_one();
        }
        message.map(|message| message.map(|message| message.map(W::from)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::{FutureExt as _, StreamExt as _};

    #[tokio::test]
    async fn who_does_not_read_is_waited_for_until_it_reads_or_its_stream_ends() {
        let (answers, mut stream) = answers::<u32, u64>();
        for message in 0..UNREAD {
            assert_eq!(answers.until_read().now_or_never(), Some(true), "{message} wait");
            assert!(answers.send(Ok(1)));
        }
        let mut waits = std::pin::pin!(answers.until_read());
        assert_eq!(waits.as_mut().now_or_never(), None);
        assert_eq!(stream.next().await.unwrap().unwrap(), 1);
        assert!(waits.await);
        assert!(answers.send(Ok(1)));
        let mut waits = std::pin::pin!(answers.until_read());
        assert_eq!(waits.as_mut().now_or_never(), None);
        drop(stream);
        assert!(!waits.await);
    }

    #[tokio::test]
    async fn a_peer_that_lets_too_many_messages_wait_is_sent_no_more() {
        let (answers, _stream) = answers::<u32, u32>();
        assert!((0..MOST).all(|_| answers.send(Ok(1))));
        assert!(!answers.send(Ok(1)));
    }
}
