//! Streams of several processes, or several streams of one, as one.

use std::future::Future;
use std::pin::Pin;
use std::task::Poll;

use relive_api::WaitAnswer;
use relive_client::{Event, Source};
use relive_core::Uuid;
use tokio::sync::mpsc;

use crate::client::Client;
use crate::error::{CommandError, Outcome};

/// How many processes are watched at once: each has a stream and a wait.
const WATCHED_MAX: usize = 32;
/// How many events are read ahead.
const AHEAD_MAX: usize = 64;

/// Something that was seen.
#[derive(Debug)]
pub(crate) enum Seen {
    Event(Uuid, Source, Event),
    /// After all of its events.
    Ended(Uuid, Source, Outcome<WaitAnswer>),
}

type Following<'a> = Pin<Box<dyn Future<Output = Outcome<WaitAnswer>> + 'a>>;

pub(crate) struct Watched<'a> {
    client: &'a Client<'a>,
    followed: Vec<((Uuid, Source), Following<'a>)>,
    /// Also those that have ended.
    known: Vec<(Uuid, Source)>,
    ended: Vec<((Uuid, Source), Outcome<WaitAnswer>)>,
    sender: mpsc::Sender<((Uuid, Source), Event)>,
    events: mpsc::Receiver<((Uuid, Source), Event)>,
}

impl<'a> Watched<'a> {
    pub(crate) fn new(client: &'a Client<'a>) -> Self {
        let (sender, events) = mpsc::channel(AHEAD_MAX);
        Self { client, followed: Vec::new(), known: Vec::new(), ended: Vec::new(), sender, events }
    }

    /// Watches a process from the event after `last` on. Returns whether it is new, and there is room.
    pub(crate) fn add(&mut self, uuid: Uuid, source: Source, last: Option<String>) -> bool {
        if self.followed.len() >= WATCHED_MAX || self.known.contains(&(uuid, source)) {
            return false;
        }
        self.known.push((uuid, source));
        let (client, sender) = (self.client, self.sender.clone());
        let following = async move {
            let (id, mut last) = (uuid.to_string(), last);
            let each = async |event: Event| {
                // The receiver lives as long as this future is polled.
                let _ = sender.send(((uuid, source), event)).await;
                Ok::<_, CommandError>(())
            };
            client.follow(&id, source, &mut last, each).await
        };
        self.followed.push(((uuid, source), Box::pin(following)));
        true
    }

    /// The next thing that happens. It can be dropped and called again.
    pub(crate) async fn next(&mut self) -> Seen {
        std::future::poll_fn(|cx| {
            let mut place = 0;
            while let Some((of, following)) = self.followed.get_mut(place) {
                match following.as_mut().poll(cx) {
                    Poll::Ready(answer) => {
                        self.ended.push((*of, answer));
                        drop(self.followed.swap_remove(place));
                    }
                    Poll::Pending => place += 1,
                }
            }
            match self.events.poll_recv(cx) {
                Poll::Ready(Some(((uuid, source), event))) => Poll::Ready(Seen::Event(uuid, source, event)),
                // An end comes after all events.
                Poll::Ready(None) | Poll::Pending if self.events.is_empty() => match self.ended.pop() {
                    Some(((uuid, source), answer)) => Poll::Ready(Seen::Ended(uuid, source, answer)),
                    None => Poll::Pending,
                },
                Poll::Ready(None) | Poll::Pending => Poll::Pending,
            }
        })
        .await
    }
}
