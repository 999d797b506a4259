use super::*;
use bytes::Bytes;
use http_body_util::BodyExt as _;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::{TokioExecutor, TokioIo};
use std::collections::VecDeque;
use std::convert::Infallible;
use std::sync::atomic::{AtomicU64, Ordering};
use tokio::sync::mpsc;

/// Content of each frame of [`ShortFrames`]. h2 ends connections on which many shorter frames wait.
const DATA: &[u8] = &[7; 64];

/// A body of this many short frames.
struct ShortFrames(usize);

impl Body for ShortFrames {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        self.0 = match self.0.checked_sub(1) {
            None => return Poll::Ready(None),
            Some(left) => left,
        };
        Poll::Ready(Some(Ok(Frame::data(Bytes::from_static(DATA)))))
    }
}

/// A stream that counts the bytes that are read from it.
struct Counted<S>(S, Arc<AtomicU64>);

impl<S: AsyncRead + Unpin> AsyncRead for Counted<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        ready!(Pin::new(&mut self.0).poll_read(context, buf))?;
        self.1.fetch_add((buf.filled().len() - before) as u64, Ordering::Relaxed);
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Counted<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(context)
    }
}

/// Waits until `holds` returns true, while the other tasks of this thread run.
async fn until(holds: impl Fn() -> bool) {
    let waits = async {
        while !holds() {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(fpga_test_kit::patience(), waits).await.unwrap();
}

#[tokio::test]
async fn of_frames_that_no_session_takes_no_more_is_read_than_the_bound_and_all_come_once_it_takes_them() {
    const COUNT: usize = 20_000;
    const WINDOW: u32 = 4 << 20;
    let (near, far) = tokio::io::duplex(64 << 10);
    let ahead = ReadAhead::default();
    let read = Arc::new(AtomicU64::new(0));
    let (sender, mut bodies) = mpsc::unbounded_channel();
    let stream = ahead.stream(Counted(far, read.clone()));
    let tracked = ahead.clone();
    let service = service_fn(move |request: Request<hyper::body::Incoming>| {
        sender.send(tracked.body(request.into_body())).unwrap();
        // The session never ends.
        std::future::pending::<Result<Response<String>, Infallible>>()
    });
    let server = hyper::server::conn::http2::Builder::new(TokioExecutor::new())
        .initial_stream_window_size(WINDOW)
        .initial_connection_window_size(WINDOW)
        .serve_connection(TokioIo::new(stream), service);
    tokio::spawn(async move { server.await.unwrap() });
    let (mut client, connection) =
        hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(near)).await.unwrap();
    tokio::spawn(connection);
    let request = Request::post("http://device-manager/").body(ShortFrames(COUNT)).unwrap();
    tokio::spawn(client.send_request(request));

    let body = bodies.recv().await.unwrap();
    until(|| ahead.0.lock().reader.is_some()).await;
    // The last read begins below the bound, and is at most as long as its buffer.
    let bound = 2 * READ_AHEAD_BYTES;
    assert!(read.load(Ordering::Relaxed) < bound, "{read:?} of more than {} bytes", COUNT * DATA.len());

    let whole =
        tokio::time::timeout(fpga_test_kit::patience(), body.collect()).await.unwrap().unwrap().to_bytes();
    assert_eq!(whole.len(), COUNT * DATA.len());
    assert!(read.load(Ordering::Relaxed) > bound, "the bound was of importance");
}

/// A body with the given data. Without data it stores the waker.
#[derive(Default)]
struct Scripted {
    data: VecDeque<Bytes>,
    waker: Arc<Mutex<Option<Waker>>>,
}

impl Body for Scripted {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        if let Some(data) = self.data.pop_front() {
            return Poll::Ready(Some(Ok(Frame::data(data))));
        }
        *self.waker.lock() = Some(context.waker().clone());
        Poll::Pending
    }
}

/// Number of bytes that can be read before the stream waits.
fn readable(stream: &mut BoundedStream<tokio::io::Repeat>) -> u64 {
    const ENOUGH: u64 = 4 * READ_AHEAD_BYTES;
    let mut context = Context::from_waker(Waker::noop());
    let mut read = 0;
    while read < ENOUGH {
        let mut bytes = [0; 4096];
        let mut buf = ReadBuf::new(&mut bytes);
        match Pin::new(&mut *stream).poll_read(&mut context, &mut buf) {
            Poll::Ready(result) => result.unwrap(),
            Poll::Pending => return read,
        }
        read += buf.filled().len() as u64;
    }
    u64::MAX
}

fn take(body: &mut TrackedBody<Scripted>) -> bool {
    Pin::new(body).poll_frame(&mut Context::from_waker(Waker::noop())).is_ready()
}

#[test]
fn a_connection_reads_on_for_ever_only_while_all_its_sessions_wait_for_data() {
    let ahead = ReadAhead::default();
    let mut stream = ahead.stream(tokio::io::repeat(0));
    assert_eq!(readable(&mut stream), u64::MAX, "there is no session");

    let mut one = ahead.body(Scripted::default());
    assert_eq!(readable(&mut stream), READ_AHEAD_BYTES, "nobody has looked for its data");
    assert!(!take(&mut one));
    assert_eq!(readable(&mut stream), u64::MAX, "it waits for data");

    let mut other = ahead.body(Scripted { data: [Bytes::new(), Bytes::new()].into(), ..Scripted::default() });
    assert!(take(&mut other));
    assert_eq!(readable(&mut stream), READ_AHEAD_BYTES, "it has taken one frame and may have more");
    assert!(take(&mut other));
    assert_eq!(readable(&mut stream), 0, "taking a frame gives no room for others");
    assert!(!take(&mut other));
    assert_eq!(readable(&mut stream), u64::MAX, "it has taken all");

    let waker = one.body.waker.lock().clone().unwrap();
    waker.wake_by_ref();
    waker.wake();
    assert_eq!(readable(&mut stream), READ_AHEAD_BYTES, "data has come for the first");
    assert!(!take(&mut other));
    assert_eq!(readable(&mut stream), 0, "the other has nothing to do with it");
    drop(one);
    assert_eq!(readable(&mut stream), u64::MAX, "what has ended holds nobody up");
}

#[test]
fn data_that_comes_while_its_session_looks_is_not_overlooked() {
    let ahead = ReadAhead::default();
    let mut stream = ahead.stream(tokio::io::repeat(0));
    let body = ahead.body(Scripted::default());
    body.arrival.look(Waker::noop());
    body.waker.wake_by_ref();
    body.arrival.found_nothing();
    assert_eq!(readable(&mut stream), READ_AHEAD_BYTES);
}
