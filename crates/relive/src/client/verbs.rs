//! The requests, one method each.

use std::time::{Duration, Instant};

use relive_api::{
    Accepted, Affected, Created, DaemonStatus, ExecRequest, ExecStarted, GcAnswer, GcRequest, InputRequest, Lineage,
    ListQuery, PauseRequest, Process, ProcessList, ResolveRequest, ResumableList, ResumeRequest, Resumed, RunRequest,
    SignalMaskRequest, SignalRequest, SignalState, Stopping, WaitAnswer, WaitRequest,
};
use relive_core::ErrorCode;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::http::{self, Ask, Failure, segment};
use super::{ANSWER_WITHIN, Client, Patience, Start, post};
use crate::error::{CommandError, Outcome};
use crate::render::time::as_millis;

/// How much longer than asked a wait may take before we answer for the daemon.
const WAIT_SLACK: Duration = Duration::from_secs(2);

/// A daemon that was stopped and then held a wait this long is back.
const BACK_AFTER: Duration = Duration::from_secs(5);

/// Among how many names a name that was mistyped is looked for.
const NAMES_MAX: usize = 1_000;

/// A wait came to its end, or the process did not.
#[derive(Debug)]
pub(crate) enum Waited {
    Answer(Box<WaitAnswer>),
    /// The daemon did not even say that the time is up.
    TimedOut,
}

/// Tells whether a note says that a PID continues as another.
pub(crate) fn is_continues(note: &str) -> bool {
    note.starts_with("PID ") && note.contains(" continues as ")
}

impl Client<'_> {
    pub(crate) async fn daemon(&self) -> Outcome<DaemonStatus> {
        // Not `get`: the daemon of another version can still be asked what it is.
        let ask = Ask {
            method: hyper::Method::GET,
            path: "/v1/daemon".into(),
            body: None,
            request_id: None,
            within: Some(ANSWER_WITHIN),
        };
        let mut patience = Patience::default();
        loop {
            let begun = Instant::now();
            let read = async {
                let answer = http::exchange(&self.context.paths.socket, &ask).await?;
                http::read_json(answer.body).await
            };
            match read.await {
                Ok(status) => return Ok(status),
                // One that was just dying took the connection with it.
                Err(failure) => self.recover(failure, begun, &mut patience).await?,
            }
        }
    }

    pub(crate) async fn stop_daemon(&self) -> Outcome<Stopping> {
        self.suits.set(true);
        self.post("/v1/daemon/stop".into(), &serde_json::json!({})).await
    }

    pub(crate) async fn processes(&self, all: bool) -> Outcome<ProcessList> {
        self.get(format!("/v1/processes?all={all}")).await
    }

    /// Reads one page of a list.
    pub(crate) async fn list(&self, query: &ListQuery) -> Outcome<ProcessList> {
        self.get(format!("/v1/processes?{}", query_of(query))).await
    }

    pub(crate) async fn run(&self, request: &RunRequest) -> Outcome<Created> {
        self.post("/v1/processes".into(), request).await
    }

    pub(crate) async fn exec(&self, request: &ExecRequest) -> Outcome<ExecStarted> {
        self.post("/v1/programs".into(), request).await
    }

    pub(crate) async fn proceed(&self, id: &str) -> Outcome<Affected> {
        let answer: Affected = self.tell(id, "proceed", &serde_json::json!({})).await?;
        self.say_continues(answer.note.as_deref());
        Ok(answer)
    }

    pub(crate) async fn abort(&self, id: &str) -> Outcome<Affected> {
        let answer: Affected = self.tell(id, "abort", &serde_json::json!({})).await?;
        self.say_continues(answer.note.as_deref());
        Ok(answer)
    }

    pub(crate) async fn process(&self, id: &str) -> Outcome<Process> {
        let found = self.get(format!("/v1/processes/{}", segment(id))).await;
        let process: Process = self.with_suggestion(id, found).await?;
        self.say_continues(process.note.as_deref());
        Ok(process)
    }

    /// Says that a PID of an earlier daemon stands for the process under its present PID.
    fn say_continues(&self, note: Option<&str>) {
        if let Some(note) = note.filter(|note| is_continues(note)) {
            self.context.say(note);
        }
    }

    pub(crate) async fn signals(&self, id: &str) -> Outcome<SignalState> {
        let found = self.get(format!("/v1/processes/{}/signals", segment(id))).await;
        let state: SignalState = self.with_suggestion(id, found).await?;
        self.say_continues(state.note.as_deref());
        Ok(state)
    }

    pub(crate) async fn set_signals(&self, id: &str, request: &SignalMaskRequest) -> Outcome<SignalState> {
        let state: SignalState = self.tell(id, "signals", request).await?;
        self.say_continues(state.note.as_deref());
        Ok(state)
    }

    pub(crate) async fn pause(&self, id: &str, request: &PauseRequest) -> Outcome<Affected> {
        let answer: Affected = self.tell(id, "pause", request).await?;
        self.say_continues(answer.note.as_deref());
        Ok(answer)
    }

    pub(crate) async fn resume(&self, id: &str, request: &ResumeRequest) -> Outcome<Resumed> {
        let answer: Resumed = self.tell(id, "resume", request).await?;
        self.say_continues(answer.note.as_deref());
        Ok(answer)
    }

    pub(crate) async fn signal(&self, id: &str, request: &SignalRequest) -> Outcome<Affected> {
        let answer: Affected = self.tell(id, "signal", request).await?;
        self.say_continues(answer.note.as_deref());
        Ok(answer)
    }

    pub(crate) async fn input(&self, id: &str, request: &InputRequest) -> Outcome<Accepted> {
        let answer: Accepted = self.tell(id, "input", request).await?;
        self.say_continues(answer.note.as_deref());
        Ok(answer)
    }

    pub(crate) async fn resolve(&self, id: &str, request: &ResolveRequest) -> Outcome<Affected> {
        let answer: Affected = self.tell(id, "resolve", request).await?;
        self.say_continues(answer.note.as_deref());
        Ok(answer)
    }

    pub(crate) async fn lineage(&self, id: &str) -> Outcome<Lineage> {
        let found = self.get(format!("/v1/processes/{}/lineage", segment(id))).await;
        let lineage: Lineage = self.with_suggestion(id, found).await?;
        self.say_continues(lineage.note.as_deref());
        Ok(lineage)
    }

    /// Reads one page of what can be resumed.
    pub(crate) async fn resumable(&self, query: &ListQuery) -> Outcome<ResumableList> {
        self.get(format!("/v1/resumable?{}", query_of(query))).await
    }

    pub(crate) async fn gc(&self, request: &GcRequest) -> Outcome<GcAnswer> {
        self.post("/v1/gc".into(), request).await
    }

    /// Waits for the end, across any number of daemons. After a break the wait goes on by `uuid`, because another
    /// daemon gives the same process another PID.
    pub(crate) async fn wait(&self, id: &str, uuid: &str, timeout: Option<Duration>) -> Outcome<Waited> {
        let deadline = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        let mut patience = Patience::default();
        let mut id = id;
        loop {
            let begun = Instant::now();
            let left = deadline.map(|deadline| deadline.saturating_duration_since(begun));
            let within = left.and_then(|left| left.checked_add(WAIT_SLACK));
            let request = WaitRequest { timeout_ms: left.map(as_millis) };
            let ask = post(format!("/v1/processes/{}/wait", segment(id)), &request, within)?;
            let was_stopped = self.stopped.get();
            match self.try_ask(&ask).await {
                Ok(answer) => return Ok(Waited::Answer(Box::new(answer))),
                Err(Failure::Silent(_)) => return Ok(Waited::TimedOut),
                Err(failure) => {
                    // A daemon that says it is going away was told to: it is waited for, not started.
                    if matches!(&failure, Failure::Refused(detail) if detail.code == ErrorCode::Unavailable) {
                        self.stopped.set(true);
                    } else if was_stopped && begun.elapsed() > BACK_AFTER {
                        self.stopped.set(false);
                    }
                    self.recover(as_lost(failure), begun, &mut patience).await?;
                }
            }
            if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
                return Ok(Waited::TimedOut);
            }
            id = uuid;
        }
    }

    async fn tell<T: DeserializeOwned>(&self, id: &str, verb: &str, request: &impl Serialize) -> Outcome<T> {
        let told = self.post(format!("/v1/processes/{}/{verb}", segment(id)), request).await;
        self.with_suggestion(id, told).await
    }

    /// Names the process that was meant, where nobody else did.
    async fn with_suggestion<T>(&self, id: &str, outcome: Outcome<T>) -> Outcome<T> {
        let error = match outcome {
            Err(error) if error.code() == Some(ErrorCode::NotFound) && error.hint.is_none() => error,
            Ok(_) | Err(_) => return outcome,
        };
        Err(match self.closest_name(id).await {
            Some(name) => error.with_hint(format!("did you mean `{name}`?")),
            None => error.with_hint("relive ps -a"),
        })
    }

    async fn closest_name(&self, id: &str) -> Option<String> {
        if self.start == Start::Never || id.bytes().all(|byte| byte.is_ascii_digit()) {
            return None;
        }
        // Of many the newest: whoever mistypes a name means one that they know.
        let query = ListQuery { all: true, newest: true, limit: Some(NAMES_MAX), ..ListQuery::default() };
        let list = self.list(&query).await.ok()?;
        let names: Vec<&str> = list.processes.iter().filter_map(|process| process.name.as_deref()).collect();
        relive_types::suggest::closest(id, names.iter().copied()).map(str::to_owned)
    }
}

/// A query as it stands in a URL. What is not asked for is left out.
fn query_of(query: &ListQuery) -> String {
    let ListQuery { all, state, name, cwd, failed, since, newest, limit, cursor } = query;
    let since = since.map(|since| since.to_string());
    let limit = limit.map(|limit| limit.to_string());
    let texts =
        [("state", state), ("name", name), ("cwd", cwd), ("since", &since), ("limit", &limit), ("cursor", cursor)];
    let texts = texts.into_iter().filter_map(|(key, value)| Some(format!("&{key}={}", segment(value.as_ref()?))));
    let flags = [("failed", failed), ("newest", newest)].into_iter().filter(|(_, is_set)| **is_set);
    format!("all={all}") + &texts.chain(flags.map(|(key, _)| format!("&{key}=true"))).collect::<String>()
}

/// A daemon that is going away or coming up is waited for.
fn as_lost(failure: Failure) -> Failure {
    if failure.passes()
        && let Failure::Refused(detail) = failure
    {
        return Failure::Lost(detail.message);
    }
    failure
}

impl Waited {
    /// The answer, where the wait had no end of its own.
    pub(crate) fn answer(self) -> Outcome<WaitAnswer> {
        match self {
            Self::Answer(answer) => Ok(*answer),
            Self::TimedOut => Err(CommandError::internal("a wait without a timeout timed out")),
        }
    }
}
