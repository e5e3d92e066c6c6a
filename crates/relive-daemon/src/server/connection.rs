//! One connection: its phase, its deadlines, and its end.

use std::io;
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes, HttpBody};
use axum::http::Request;
use hyper::body::{Frame, Incoming, SizeHint};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use relive_runtime::Caller;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::{Notify, watch};
use tokio::time::Instant;
use tower::ServiceExt as _;

/// How long the first byte and the head of a request may take.
pub(super) const HEAD_WITHIN: Duration = Duration::from_secs(5);
/// How long a connection may stay open between two requests.
const IDLE_MAX: Duration = Duration::from_secs(30);
/// How long a client may leave the daemon's output unread.
const UNREAD_MAX: Duration = Duration::from_secs(60);
/// The largest head of a request, and the most output that is buffered for a client that does not read.
const BUFFER_MAX: usize = 64 << 10;
const HEADERS_MAX: usize = 64;

/// The phase of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// New, or a part of a request's head was received.
    Head,
    /// The body of a request is being read.
    Body,
    /// A handler has the request, or its answer is being produced.
    Serving,
    /// The complete answer is being written.
    Answering,
    /// Waits for the next request.
    Idle,
}

#[derive(Debug)]
struct Activity {
    phase: Phase,
    since: Instant,
    /// Since when the client has not read the output.
    unread_since: Option<Instant>,
    /// Whether the answer is a stream or a wait, which ends with the daemon.
    is_stream: bool,
}

/// A connection, as other connections see it.
#[derive(Debug)]
pub(super) struct Connection {
    activity: Mutex<Activity>,
    close: Notify,
}

impl Connection {
    pub(super) fn new() -> Arc<Self> {
        let activity = Activity { phase: Phase::Head, since: Instant::now(), unread_since: None, is_stream: false };
        Arc::new(Self { activity: Mutex::new(activity), close: Notify::new() })
    }

    fn lock(&self) -> MutexGuard<'_, Activity> {
        self.activity.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn enter(&self, phase: Phase) {
        let mut activity = self.lock();
        (activity.phase, activity.since) = (phase, Instant::now());
    }

    fn begin_request(&self) {
        self.enter(Phase::Body);
        self.lock().is_stream = false;
    }

    /// Notes that the body of the request was read completely.
    pub(super) fn has_request(&self) {
        self.enter(Phase::Serving);
    }

    /// Notes that the answer is a stream or a wait.
    pub(super) fn is_stream(&self) {
        self.lock().is_stream = true;
    }

    pub(super) fn close(&self) {
        self.close.notify_one();
    }

    /// Returns how dispensable the connection is, the most dispensable first; `None` while a request is being served.
    pub(super) fn dispensable(&self) -> Option<(u8, Instant)> {
        let activity = self.lock();
        match (activity.phase, activity.unread_since) {
            (Phase::Head | Phase::Idle, _) => Some((0, activity.since)),
            (Phase::Body, _) => Some((1, activity.since)),
            (Phase::Serving | Phase::Answering, Some(since)) => Some((2, since)),
            (Phase::Serving | Phase::Answering, None) => None,
        }
    }

    fn deadline(&self) -> Option<Instant> {
        let activity = self.lock();
        let of_phase = match activity.phase {
            Phase::Head => Some(activity.since + HEAD_WITHIN),
            Phase::Idle => Some(activity.since + IDLE_MAX),
            // The handlers have their own deadlines, and so does reading a body.
            Phase::Body | Phase::Serving | Phase::Answering => None,
        };
        let of_writing = activity.unread_since.map(|since| since + UNREAD_MAX);
        of_phase.into_iter().chain(of_writing).min()
    }

    /// Returns whether a stopping daemon owes this client an answer.
    fn is_owed_an_answer(&self) -> bool {
        let activity = self.lock();
        match activity.phase {
            Phase::Head | Phase::Body | Phase::Idle => false,
            Phase::Serving | Phase::Answering => !(activity.is_stream && activity.unread_since.is_some()),
        }
    }
}

/// Serves the requests of one client until the client, the daemon or a deadline ends the connection.
pub(super) async fn serve<S: AsyncRead + AsyncWrite + Unpin>(
    stream: S,
    caller: Caller,
    connection: Arc<Connection>,
    router: Router,
    mut stop: watch::Receiver<bool>,
) {
    let service = service_fn(|request: Request<Incoming>| {
        connection.begin_request();
        let mut request = request.map(Body::new);
        request.extensions_mut().insert(Arc::clone(&connection));
        request.extensions_mut().insert(caller);
        let (router, connection) = (router.clone(), Arc::clone(&connection));
        async move {
            let response = router.oneshot(request).await?;
            Ok::<_, std::convert::Infallible>(response.map(|body| AnswerBody { body, connection }))
        }
    });
    let wire = Wire { shared: Arc::new(Mutex::new((stream, Vec::new()))), connection: Arc::clone(&connection) };
    let io = TokioIo::new(wire.clone());
    // Without hyper's own timeout, which would include the time between two requests.
    let http = http1::Builder::new()
        .header_read_timeout(None)
        .max_buf_size(BUFFER_MAX)
        .max_headers(HEADERS_MAX)
        .serve_connection(io, service);
    let (mut http, mut closed) = (pin!(http), pin!(connection.close.notified()));
    let mut stopping = pin!(stop.wait_for(|stopping| *stopping));
    let mut deadline = pin!(tokio::time::sleep(HEAD_WITHIN));
    let mut is_stopping = false;
    std::future::poll_fn(|cx| {
        if closed.as_mut().poll(cx).is_ready() {
            tracing::debug!("closed a connection to make room");
            return Poll::Ready(());
        }
        if let Poll::Ready(outcome) = http.as_mut().poll(cx) {
            if let Err(error) = outcome {
                tracing::debug!("a connection ended: {error}");
            }
            return Poll::Ready(());
        }
        if wire.has_hung_up(cx) {
            tracing::debug!("a client hung up");
            return Poll::Ready(());
        }
        if !is_stopping && stopping.as_mut().poll(cx).is_ready() {
            is_stopping = true;
            http.as_mut().graceful_shutdown();
            cx.waker().wake_by_ref();
        }
        if is_stopping && !connection.is_owed_an_answer() {
            return Poll::Ready(());
        }
        // Everything that moves the deadline happens while `http` is polled.
        let Some(at) = connection.deadline() else { return Poll::Pending };
        if deadline.deadline() != at {
            deadline.as_mut().reset(at);
        }
        deadline.as_mut().poll(cx).map(|()| tracing::debug!("closed a connection that took too long"))
    })
    .await;
}

/// The body of an answer, which notifies the connection when it was sent.
struct AnswerBody {
    body: Body,
    connection: Arc<Connection>,
}

impl HttpBody for AnswerBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl Drop for AnswerBody {
    fn drop(&mut self) {
        self.connection.enter(Phase::Answering);
    }
}

/// A stream whose reads and writes update the phase of the connection. One task has all clones.
struct Wire<S> {
    /// The stream, and bytes that were read from it in advance.
    shared: Arc<Mutex<(S, Vec<u8>)>>,
    connection: Arc<Connection>,
}

impl<S> Clone for Wire<S> {
    fn clone(&self) -> Self {
        Self { shared: Arc::clone(&self.shared), connection: Arc::clone(&self.connection) }
    }
}

impl<S> Wire<S> {
    fn lock(&self) -> MutexGuard<'_, (S, Vec<u8>)> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wrote<T>(&self, outcome: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        let mut activity = self.connection.lock();
        if outcome.is_pending() {
            activity.unread_since.get_or_insert_with(Instant::now);
        } else {
            activity.unread_since = None;
        }
        outcome
    }
}

impl<S: AsyncRead + Unpin> Wire<S> {
    /// Returns whether the client of the current request has hung up. hyper detects that only while it has no bytes of
    /// a next request; otherwise a client that sent some would be served without end.
    fn has_hung_up(&self, cx: &mut Context<'_>) -> bool {
        let (phase, is_stream) = {
            let activity = self.connection.lock();
            (activity.phase, activity.is_stream)
        };
        if phase != Phase::Serving {
            return false;
        }
        let (stream, ahead) = &mut *self.lock();
        let mut bytes = [0; 4096];
        while ahead.len() <= BUFFER_MAX {
            let mut buffer = ReadBuf::new(&mut bytes);
            match Pin::new(&mut *stream).poll_read(cx, &mut buffer) {
                Poll::Pending => return false,
                Poll::Ready(Ok(())) if !buffer.filled().is_empty() => ahead.extend_from_slice(buffer.filled()),
                Poll::Ready(_) => return true,
            }
        }
        // Nothing more is read, so a hang-up would not be seen: a wait would be served without end, other requests have
        // a deadline.
        is_stream
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Wire<S> {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let (stream, ahead) = &mut *self.lock();
        let outcome = if ahead.is_empty() {
            Pin::new(stream).poll_read(cx, buffer)
        } else {
            let count = ahead.len().min(buffer.remaining());
            buffer.put_slice(&ahead[..count]);
            ahead.drain(..count);
            Poll::Ready(Ok(()))
        };
        if buffer.filled().len() > before && self.connection.lock().phase == Phase::Idle {
            self.connection.enter(Phase::Head);
        }
        outcome
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Wire<S> {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let outcome = Pin::new(&mut self.lock().0).poll_write(cx, bytes);
        self.wrote(outcome)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let outcome = Pin::new(&mut self.lock().0).poll_write_vectored(cx, slices);
        self.wrote(outcome)
    }

    fn is_write_vectored(&self) -> bool {
        self.lock().0.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let outcome = Pin::new(&mut self.lock().0).poll_flush(cx);
        if outcome.is_ready() && self.connection.lock().phase == Phase::Answering {
            self.connection.enter(Phase::Idle);
        }
        outcome
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.lock().0).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests;
