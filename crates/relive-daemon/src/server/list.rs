//! Lists, `{"processes":[...]}`, written a page at a time.

use axum::body::{Body, Bytes};
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse as _, Response};
use futures_util::{StreamExt as _, stream};
use relive_api::ListQuery;
use relive_core::ErrorCode;
use serde::Serialize;

use crate::error::{Answer, HttpError};

/// How many items are written at a time.
const PAGE: usize = 256;

/// Items, and the cursor of the next page.
type Page<T> = (Vec<T>, Option<String>);

/// Answers with all results of a query. A page is read when the client has received the previous one, so that a slow
/// client costs one page of memory. If the first cannot be read the answer is an error; a later one breaks off the
/// document.
pub(super) async fn whole<T, F>(query: ListQuery, read: impl Fn(ListQuery) -> F + Send + 'static) -> Answer<Response>
where
    T: Serialize + Send + 'static,
    F: Future<Output = relive_runtime::Result<Page<T>>> + Send + 'static,
{
    let query = ListQuery { limit: Some(PAGE), ..query };
    let (items, next) = read(query.clone()).await?;
    let mut document = Document::default();
    let written = document.write(&items, next.as_deref());
    let first = written.map_err(|error| HttpError::new(ErrorCode::Internal, format!("the list: {error}")))?;
    let rest = stream::unfold((document, next), move |(mut document, next)| {
        let page = next.map(|cursor| read(ListQuery { cursor: Some(cursor), ..query.clone() }));
        async move {
            let (text, next) = match page?.await {
                Ok((items, next)) => (document.write(&items, next.as_deref()), next),
                Err(error) => (Err(std::io::Error::other(error.to_string())), None),
            };
            Some((text, (document, next)))
        }
    });
    let body = Body::from_stream(stream::once(std::future::ready(Ok(first))).chain(rest));
    Ok(([(CONTENT_TYPE, "application/json")], body).into_response())
}

/// Pages as one JSON document.
#[derive(Debug, Default)]
struct Document {
    is_begun: bool,
    has_items: bool,
}

impl Document {
    /// Returns the next part of the document, which is the last if no page follows.
    fn write<T: Serialize>(&mut self, items: &[T], next: Option<&str>) -> std::io::Result<Bytes> {
        let mut text = Vec::new();
        if !self.is_begun {
            text.extend_from_slice(b"{\"processes\":[");
            self.is_begun = true;
        }
        for item in items {
            if self.has_items {
                text.push(b',');
            }
            self.has_items = true;
            serde_json::to_writer(&mut text, item)?;
        }
        if next.is_none() {
            text.extend_from_slice(b"]}");
        }
        Ok(Bytes::from(text))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_list_is_one_document_for_any_page_size() {
        for pages in [vec![0], vec![1], vec![2, 3], vec![0, 2, 0, 0, 1], vec![3, 0]] {
            let count: usize = pages.iter().sum();
            let expected = serde_json::json!({ "processes": (0..count).collect::<Vec<_>>() }).to_string();
            let read = move |query: ListQuery| {
                let number: usize = query.cursor.map_or(0, |cursor| cursor.parse().unwrap());
                let from: usize = pages[..number].iter().sum();
                let items: Vec<usize> = (from..from + pages[number]).collect();
                let next = (number + 1 < pages.len()).then(|| (number + 1).to_string());
                std::future::ready(Ok((items, next)))
            };
            let Ok(response) = whole(ListQuery::default(), read).await else { panic!("no answer") };
            let body = axum::body::to_bytes(response.into_body(), usize::MAX).await.unwrap();
            assert_eq!(body, expected);
        }
    }

    #[tokio::test]
    async fn an_unreadable_page_does_not_look_like_the_end_of_the_list() {
        let unavailable = || relive_runtime::Error::new(ErrorCode::Unavailable, "later");
        let first: Answer<Response> =
            whole(ListQuery::default(), move |_| std::future::ready(Err::<Page<u8>, _>(unavailable()))).await;
        assert!(first.is_err());
        let read = move |query: ListQuery| {
            std::future::ready(match query.cursor {
                None => Ok((vec![1], Some("2".to_owned()))),
                Some(_) => Err(unavailable()),
            })
        };
        let Ok(response) = whole(ListQuery::default(), read).await else { panic!("no answer") };
        assert!(axum::body::to_bytes(response.into_body(), usize::MAX).await.is_err());
    }
}
