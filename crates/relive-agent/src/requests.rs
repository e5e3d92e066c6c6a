//! The requests of a session to its proxy, shown as events of its process.

use std::collections::VecDeque;
use std::path::Path;
use std::sync::Arc;

use relive_journal::Journal;
use relive_proxy::{Answers, Follower, Record, Verdict};
use serde_json::json;

/// The kind of the events.
const EVENT: &str = "network";

/// Follows the requests of one session.
#[derive(Debug)]
pub struct Requests {
    journal: Option<Arc<dyn Journal>>,
    follower: Option<Follower>,
    answers: Answers,
    /// The hosts that a person has to be asked about.
    asked: VecDeque<String>,
}

impl Requests {
    /// Follows a session from where the last one stopped, and gives its proxy the answers of a person so far. A session
    /// without a proxy makes no requests.
    pub async fn of(journal: Option<Arc<dyn Journal>>, session: &Path, answers: Answers) -> Self {
        // Without the records nothing can be shown, and the session runs all the same.
        let mut follower = match session.join(relive_proxy::LOG).exists() {
            true => Follower::new(session).await.ok().flatten(),
            false => None,
        };
        let mut asked = VecDeque::new();
        if let Some(follower) = &mut follower {
            let _ = follower.answer(&answers).await;
            asked.extend(follower.asked().await.unwrap_or_default());
        }
        Self { journal, follower, answers, asked }
    }

    /// Shows the requests as they are made. Returns the host of one that waits for a person.
    pub async fn next_question(&mut self) -> String {
        loop {
            self.show().await;
            let known = [&self.answers.allowed, &self.answers.denied];
            while let Some(host) = self.asked.pop_front() {
                if !known.iter().any(|hosts| hosts.contains(&host)) {
                    return host;
                }
            }
            match &mut self.follower {
                Some(follower) => follower.changed().await,
                None => std::future::pending().await,
            }
        }
    }

    /// Shows the requests that were made since the last time.
    pub async fn show(&mut self) {
        let Some(follower) = &mut self.follower else { return };
        while let Ok(Some(records)) = follower.read().await {
            for record in records {
                if record.verdict == Verdict::Asked && !self.asked.contains(&record.host) {
                    self.asked.push_back(record.host.clone());
                }
                if let Some(journal) = &self.journal {
                    journal.event(EVENT, shown(&record));
                }
            }
            // If it is not kept, the next daemon shows them again.
            let _ = follower.keep().await;
        }
    }
}

fn shown(record: &Record) -> serde_json::Value {
    let Record { at: _, host, port, by, verdict, reason } = record;
    let mut body = json!({"host": host, "port": port, "by": by, "verdict": verdict});
    if let Some(reason) = reason {
        body["reason"] = reason.as_str().into();
    }
    body
}
