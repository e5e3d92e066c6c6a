//! Lists, `{"processes":[...]}`, written a page at a time.

use std::sync::Arc;

use axum::body::{Body, Bytes};
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse as _, Response};
use relive_core::Pid;
use relive_runtime::Runtime;
use serde::Serialize;

/// How many items are written at a time.
const PAGE: usize = 256;

/// Answers with the living processes. A page is made when the client has taken the one before, so that a slow client
/// holds one page, and the table is never locked for longer than that.
pub(super) fn living(runtime: Arc<Runtime>) -> Response {
    let mut after = Pid::RUNTIME;
    answer(move || {
        let page = runtime.processes_after(after, PAGE);
        if let Some(last) = page.last() {
            after = last.pid;
        }
        page
    })
}

/// Answers with these items. They become text at once, which is smaller and, unlike many small strings, goes back to the
/// system as soon as a page is written.
pub(super) fn of<T: Serialize>(items: Vec<T>) -> Response {
    let mut items = items.into_iter();
    let mut writer = Writer::new(move || items.by_ref().take(PAGE).collect());
    let pages: Vec<_> = std::iter::from_fn(|| writer.next_frame()).collect();
    response(Body::from_stream(futures_util::stream::iter(pages)))
}

fn answer<T: Serialize + 'static, P: FnMut() -> Vec<T> + Send + 'static>(next_page: P) -> Response {
    let writer = Writer::new(next_page);
    response(Body::from_stream(futures_util::stream::unfold(writer, async |mut writer| {
        Some((writer.next_frame()?, writer))
    })))
}

fn response(body: Body) -> Response {
    ([(CONTENT_TYPE, "application/json")], body).into_response()
}

/// Writes pages as one JSON document.
struct Writer<P> {
    next_page: P,
    state: State,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Before,
    Within,
    After,
}

impl<P> Writer<P> {
    fn new(next_page: P) -> Self {
        Self { next_page, state: State::Before }
    }

    /// Returns the next part of the document. A page that is not full is the last.
    fn next_frame<T: Serialize>(&mut self) -> Option<Result<Bytes, serde_json::Error>>
    where
        P: FnMut() -> Vec<T>,
    {
        let mut text = match self.state {
            State::Before => b"{\"processes\":[".to_vec(),
            State::Within => Vec::new(),
            State::After => return None,
        };
        let page = (self.next_page)();
        for (number, item) in page.iter().enumerate() {
            if self.state != State::Before || number > 0 {
                text.push(b',');
            }
            if let Err(error) = serde_json::to_writer(&mut text, item) {
                self.state = State::After;
                return Some(Err(error));
            }
        }
        self.state = State::Within;
        if page.len() < PAGE {
            self.state = State::After;
            text.extend_from_slice(b"]}");
        }
        Some(Ok(Bytes::from(text)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_list_is_the_same_whole_or_in_pages() {
        for count in [0, 1, 2, PAGE - 1, PAGE, PAGE + 1, 2 * PAGE, 3 * PAGE + 1] {
            let items: Vec<usize> = (0..count).collect();
            let expected = serde_json::json!({ "processes": items }).to_string();
            let mut left = items.clone().into_iter();
            for response in [of(items), answer(move || left.by_ref().take(PAGE).collect::<Vec<_>>())] {
                let body = axum::body::to_bytes(response.into_body(), usize::MAX).await.unwrap();
                assert_eq!(body, expected, "{count}");
            }
        }
    }
}
