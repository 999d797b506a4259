use super::*;
use crate::http::connection_limit::{ConnectionLimit, Origin};
use crate::memory::LimitSource;
use hyper::body::SizeHint;
use std::pin::pin;
use std::task::{Context, Poll};
use tokio::sync::mpsc;

const DEADLINE: Duration = Duration::from_secs(20);
const LIMITS: BodyLimits = BodyLimits { bytes: 1000, time: DEADLINE };

/// A body that arrives in the pieces that the test sends.
struct Slow {
    pieces: mpsc::Receiver<Bytes>,
    declared: Option<u64>,
}

impl hyper::body::Body for Slow {
    type Data = Bytes;
    type Error = std::convert::Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        self.pieces.poll_recv(context).map(|piece| piece.map(|piece| Ok(Frame::data(piece))))
    }

    fn size_hint(&self) -> SizeHint {
        self.declared.map_or_else(SizeHint::new, SizeHint::with_exact)
    }
}

fn upload(declared: Option<u64>) -> (mpsc::Sender<Bytes>, Request) {
    let (sender, pieces) = mpsc::channel(100);
    (sender, Request::new(Body::new(Slow { pieces, declared })))
}

fn whole(bytes: usize) -> Request {
    Request::new(Body::from(vec![b'x'; bytes]))
}

/// Takes bytes for a request without a connection.
async fn take(budget: &Budget, bytes: usize) -> Result<Charge, NoRoom> {
    budget.take(&Extensions::new(), bytes).await
}

/// Lets all other tasks run until they wait.
async fn settle() {
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_declared_body_is_charged_before_it_comes_and_given_back_with_its_answer() {
    let budget = Budget::new(2000);
    let (sender, request) = upload(Some(900));
    let reading = tokio::spawn({
        let budget = budget.clone();
        async move { budget.read(request, LIMITS).await }
    });
    settle().await;
    assert_eq!(budget.taken(), 900, "nothing of it has come");
    sender.send(Bytes::from(vec![1; 900])).await.unwrap();
    drop(sender);
    let (body, charge) = reading.await.unwrap().unwrap();
    assert_eq!((body.len(), body.capacity()), (900, 900));
    charge.grow(500).await.unwrap();
    assert_eq!(budget.taken(), 1400);
    let answer = charge.answer(Response::new(Body::from("yes")), 950);
    assert_eq!(budget.taken(), 950);
    let text = axum::body::to_bytes(answer.into_body(), 10).await.unwrap();
    assert_eq!((text.as_ref(), budget.taken()), (b"yes".as_slice(), 0));
}

#[tokio::test(start_paused = true)]
async fn a_body_of_undeclared_length_is_charged_as_it_grows_and_bounded() {
    let budget = Budget::new(100_000);
    for (pieces, whole) in [(3, Ok(300)), (10, Ok(1000)), (11, Err(BodyError::TooLarge))] {
        let (sender, request) = upload(None);
        for _ in 0..pieces {
            sender.send(Bytes::from(vec![1; 100])).await.unwrap();
        }
        drop(sender);
        let read = budget.read(request, LIMITS).await;
        let read = read.map(|(body, charge)| {
            assert!(charge.bytes() >= body.capacity(), "{} for {}", charge.bytes(), body.capacity());
            body.len()
        });
        assert_eq!(read, whole);
        assert_eq!(budget.taken(), 0);
    }
    assert_eq!(budget.read(whole(1001), LIMITS).await.unwrap_err(), BodyError::TooLarge);
    let small = Budget::new(100);
    assert_eq!(small.read(whole(101), LIMITS).await.unwrap_err(), BodyError::NoRoom(NoRoom));
}

#[tokio::test(start_paused = true)]
async fn a_small_request_gets_its_room_from_the_largest_that_still_arrives() {
    let budget = Budget::new(2000);
    let uploads: Vec<_> = [1000, 900]
        .into_iter()
        .map(|bytes| {
            let (sender, request) = upload(Some(bytes));
            let budget = budget.clone();
            (sender, tokio::spawn(async move { budget.read(request, LIMITS).await }))
        })
        .collect();
    settle().await;
    assert_eq!(budget.taken(), 1900);
    let (body, charge) = budget.read(whole(200), LIMITS).await.unwrap();
    assert_eq!((body.len(), budget.taken()), (200, 1100));
    let mut uploads = uploads.into_iter();
    let (_largest, refused) = uploads.next().unwrap();
    assert_eq!(refused.await.unwrap().unwrap_err(), BodyError::NoRoom(NoRoom));
    let (other, reading) = uploads.next().unwrap();
    other.send(Bytes::from(vec![1; 900])).await.unwrap();
    drop(other);
    assert_eq!(reading.await.unwrap().unwrap().0.len(), 900, "one giving way was enough");
    drop(charge);
    assert_eq!(budget.taken(), 0);
}

#[tokio::test(start_paused = true)]
async fn what_is_worked_on_is_waited_for_and_gives_way_to_nobody() {
    let budget = Budget::new(1000);
    let working = take(&budget, 600).await.unwrap();
    assert_eq!(take(&budget, 500).await.unwrap_err(), NoRoom);
    let mut newcomer = pin!(take(&budget, 500));
    assert!(futures_now(newcomer.as_mut()).await.is_none());
    drop(working);
    assert_eq!(newcomer.await.unwrap().bytes(), 500);
}

#[tokio::test(start_paused = true)]
async fn slow_uploads_keep_nobody_out_who_needs_more_than_each_of_them_holds() {
    let budget = Budget::new(1000);
    let uploads: Vec<_> = (0..10)
        .map(|_| {
            let (sender, request) = upload(Some(100));
            let budget = budget.clone();
            (sender, tokio::spawn(async move { budget.read(request, LIMITS).await }))
        })
        .collect();
    settle().await;
    assert_eq!(budget.taken(), 1000);
    let mut large = pin!(take(&budget, 700));
    assert!(futures_now(large.as_mut()).await.is_none(), "none of them is larger, and none slow so far");
    let large = large.await.unwrap();
    assert_eq!(large.bytes(), 700);
    let refused = uploads.iter().filter(|(_, reading)| reading.is_finished()).count();
    assert_eq!(refused, 7, "no more than needed gave way");
    for (_, reading) in uploads {
        reading.abort();
    }
}

#[tokio::test(start_paused = true)]
async fn of_those_that_wait_who_needs_least_gets_room_first() {
    let budget = Budget::new(1000);
    let working = take(&budget, 900).await.unwrap();
    let (mut large, mut small) = (pin!(take(&budget, 800)), pin!(take(&budget, 300)));
    assert!(futures_now(large.as_mut()).await.is_none() && futures_now(small.as_mut()).await.is_none());
    drop(working);
    assert!(futures_now(large.as_mut()).await.is_none(), "it would leave too little for the small one");
    let small = small.await.unwrap();
    assert!(futures_now(large.as_mut()).await.is_none());
    drop(small);
    assert_eq!(large.await.unwrap().bytes(), 800);
    // A request that stops waiting no longer holds others up.
    let working = take(&budget, 900).await.unwrap();
    {
        let mut gone = pin!(take(&budget, 200));
        assert!(futures_now(gone.as_mut()).await.is_none());
    }
    drop(working);
    assert_eq!(take(&budget, 1000).await.unwrap().bytes(), 1000);
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_is_not_taken_gives_way_also_where_its_request_had_no_body() {
    let budget = Budget::new(1000);
    let limit = Arc::new(ConnectionLimit::new(1));
    let place = limit.take(Origin::User(0)).unwrap();
    let mut extensions = Extensions::new();
    extensions.insert(Connection(place.activity()));
    let charge = budget.take(&extensions, 900).await.unwrap();
    let answer = charge.answer(Response::new(Body::from(vec![7; 900])), 900);
    let mut newcomer = pin!(take(&budget, 200));
    assert!(futures_now(newcomer.as_mut()).await.is_none());
    place.evicted().await;
    // The connection ends, and the answer with it.
    drop(answer);
    assert_eq!(newcomer.await.unwrap().bytes(), 200);
}

#[test]
fn by_default_requests_hold_a_quarter_of_the_memory_limit_and_no_more_than_64_mib() {
    let limit = |bytes| Some(MemoryLimit { bytes, source: LimitSource::Cgroup });
    assert_eq!(Budget::default_bytes(limit(128 << 20)), 32 << 20);
    assert_eq!(Budget::default_bytes(limit(8 << 30)), 64 << 20);
    assert_eq!(Budget::default_bytes(limit(u64::MAX)), 64 << 20);
    assert_eq!(Budget::default_bytes(None), 64 << 20);
}

/// The result of a future, if it is ready after all other tasks have run.
async fn futures_now<F: Future>(future: Pin<&mut F>) -> Option<F::Output> {
    tokio::select! {
        biased;
        output = future => Some(output),
        () = settle() => None,
    }
}

#[tokio::test(start_paused = true)]
async fn a_body_that_does_not_arrive_in_time_gives_its_room_back() {
    let budget = Budget::new(1000);
    let (_sender, request) = upload(Some(400));
    let limits = BodyLimits { time: Duration::from_millis(10), ..LIMITS };
    assert_eq!(budget.read(request, limits).await.unwrap_err(), BodyError::Interrupted);
    assert_eq!(budget.taken(), 0);
}

#[tokio::test(start_paused = true)]
async fn an_answer_is_handed_over_in_small_pieces() {
    let budget = Budget::new(1 << 20);
    let charge = take(&budget, 1 << 19).await.unwrap();
    let answer = charge.answer(Response::new(Body::from(vec![7; 3 * charged::PIECE_BYTES + 1])), 1 << 19);
    let mut body = answer.into_body();
    assert_eq!(body.size_hint().exact(), Some(3 * charged::PIECE_BYTES as u64 + 1));
    let mut pieces = Vec::new();
    while let Some(frame) = next_frame(&mut body).await {
        pieces.push(frame.unwrap().into_data().unwrap().len());
    }
    assert_eq!(pieces, [charged::PIECE_BYTES, charged::PIECE_BYTES, charged::PIECE_BYTES, 1]);
}
