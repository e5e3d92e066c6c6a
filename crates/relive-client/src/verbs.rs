//! The requests, one method each.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use relive_api::{
    Accepted, Affected, Created, DaemonStatus, EndSelfRequest, ExecRequest, ExecStarted, GateRequest, GcAnswer,
    GcRequest, GrantRequest, Handle, HandleList, InputRequest, Lineage, ListQuery, PauseRequest, PoolReport, Process,
    ProcessList, ReleaseRequest, Removed, RenameRequest, ResolveRequest, ResumableList, ResumeRequest, Resumed,
    RunRequest, SelfInfo, SignalMaskRequest, SignalRequest, SignalState, StartCancelled, UsageQuery, UsageReport,
    WaitAnswer, WaitRequest, WorkspaceKind,
};
use relive_types::{ErrorCode, Uuid};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::json;

use super::client::{Client, Patience, get, post};
use super::error::Error;
use super::http::{Ask, Wire, segment};
use super::silence::LongWork;

/// How much longer than asked a wait may take before we answer for the daemon.
const WAIT_SLACK: Duration = Duration::from_secs(2);

/// How long a program may take to end with its process: longer than the grace of a TERM.
const ENDED_WITHIN: Duration = Duration::from_secs(30);

/// A daemon that was stopped and then held a wait this long is back.
const BACK_AFTER: Duration = Duration::from_secs(5);

/// How a wait ended.
#[derive(Debug)]
pub enum Waited {
    /// The daemon answered: the process has ended, or the time is up.
    Answer(Box<WaitAnswer>),
    /// The time is up, and no daemon said so.
    TimedOut,
}

/// One method for each request of [`relive_api`].
impl Client {
    /// Describes the daemon, whatever its version.
    pub async fn daemon(&self) -> Result<DaemonStatus, Error> {
        self.ask(&Ask { wire: Wire::Any, ..get("/v1/daemon".into()) }).await
    }

    /// Lists processes: one page, or all of them where the query has no limit.
    pub async fn list(&self, query: &ListQuery) -> Result<ProcessList, Error> {
        self.get(format!("/v1/processes?{}", query_of(query))).await
    }

    pub async fn run(&self, request: &RunRequest) -> Result<Created, Error> {
        self.post_until_done("/v1/processes".into(), request, LongWork::Start).await
    }

    /// Starts an agent that the caller watches: its end is no item of the inbox.
    pub async fn run_attended(&self, request: &RunRequest) -> Result<Created, Error> {
        self.post_until_done("/v1/processes?attended=true".into(), request, LongWork::Start).await
    }

    /// Cancels the start of a process, by the UUID that this client chose for it.
    pub async fn cancel_start(&self, uuid: Uuid) -> Result<StartCancelled, Error> {
        self.post(format!("/v1/creations/{uuid}/cancel"), &()).await
    }

    pub async fn exec(&self, request: &ExecRequest) -> Result<ExecStarted, Error> {
        self.post("/v1/programs".into(), request).await
    }

    pub async fn process(&self, id: &str) -> Result<Process, Error> {
        self.get(format!("/v1/processes/{}", segment(id))).await
    }

    pub async fn proceed(&self, id: &str) -> Result<Affected, Error> {
        self.at_gate(id, "proceed").await
    }

    pub async fn abort(&self, id: &str) -> Result<Affected, Error> {
        self.at_gate(id, "abort").await
    }

    pub async fn signals(&self, id: &str) -> Result<SignalState, Error> {
        self.get(format!("/v1/processes/{}/signals", segment(id))).await
    }

    pub async fn set_signals(&self, id: &str, request: &SignalMaskRequest) -> Result<SignalState, Error> {
        self.tell(id, "signals", request).await
    }

    pub async fn pause(&self, id: &str, request: &PauseRequest) -> Result<Affected, Error> {
        self.tell(id, "pause", request).await
    }

    pub async fn resume(&self, id: &str, request: &ResumeRequest) -> Result<Resumed, Error> {
        // What a fork takes long for is the copy of the files.
        let copies = request.fork.is_some() && request.workspace != Some(WorkspaceKind::Here);
        let work = if copies { LongWork::Start } else { LongWork::Other };
        self.post_until_done(format!("/v1/processes/{}/resume", segment(id)), request, work).await
    }

    pub async fn signal(&self, id: &str, request: &SignalRequest) -> Result<Affected, Error> {
        self.tell(id, "signal", request).await
    }

    pub async fn input(&self, id: &str, request: &InputRequest) -> Result<Accepted, Error> {
        self.tell(id, "input", request).await
    }

    pub async fn resolve(&self, id: &str, request: &ResolveRequest) -> Result<Affected, Error> {
        self.tell(id, "resolve", request).await
    }

    pub async fn lineage(&self, id: &str) -> Result<Lineage, Error> {
        self.get(format!("/v1/processes/{}/lineage", segment(id))).await
    }

    /// Reads one page of what can be resumed.
    pub async fn resumable(&self, query: &ListQuery) -> Result<ResumableList, Error> {
        self.get(format!("/v1/resumable?{}", query_of(query))).await
    }

    pub async fn rename(&self, id: &str, request: &RenameRequest) -> Result<Affected, Error> {
        self.tell(id, "rename", request).await
    }

    pub async fn remove(&self, id: &str) -> Result<Removed, Error> {
        self.tell(id, "remove", &json!({})).await
    }

    pub async fn usage(&self, query: &UsageQuery) -> Result<UsageReport, Error> {
        let by = query.by.as_deref().map(|by| format!("by={}", segment(by)));
        let since = query.since.as_deref().map(|since| format!("since={}", segment(since)));
        let query: Vec<String> = by.into_iter().chain(since).collect();
        self.get(format!("/v1/usage?{}", query.join("&"))).await
    }

    pub async fn agent_pool(&self) -> Result<PoolReport, Error> {
        self.get("/v1/pool".into()).await
    }

    pub async fn handles(&self) -> Result<HandleList, Error> {
        self.get("/v1/handles".into()).await
    }

    pub async fn grant(&self, request: &GrantRequest) -> Result<Handle, Error> {
        self.post("/v1/handles".into(), request).await
    }

    pub async fn release(&self, request: &ReleaseRequest) -> Result<HandleList, Error> {
        self.post("/v1/handles/release".into(), request).await
    }

    /// Says who the process is that this runs inside of.
    pub async fn self_info(&self) -> Result<SelfInfo, Error> {
        self.get("/v1/self".into()).await
    }

    /// Ends the process that this runs inside of, and with it the caller. Returns if that is refused, or if the caller
    /// only acts as the process, and so does not end with it.
    pub async fn end_self(&self, request: &EndSelfRequest) -> Result<Affected, Error> {
        let ask = Ask { within: None, ..post("/v1/self/end".into(), request)? };
        let (mut is_sent, begun) = (false, Instant::now());
        loop {
            match self.try_ask(&ask).await {
                Ok(ended) => return Ok(ended),
                // Inside, we would have ended with the process.
                Err(_) if is_sent && begun.elapsed() > ENDED_WITHIN => return Ok(Affected::default()),
                // The process has ended, and we are about to.
                Err(Error::Refused(refused)) if is_sent && refused.code == ErrorCode::Permission => {}
                Err(Error::Refused(refused)) if refused.code != ErrorCode::Unavailable => {
                    return Err(Error::Refused(refused));
                }
                // The daemon went before the process did: the next one completes it, and somebody has to start it.
                Err(error @ Error::NotRunning(_)) => {
                    let mut patience = Patience::new(self.retry);
                    self.recover(error, Instant::now(), &mut patience).await?;
                }
                Err(Error::Refused(_) | Error::Lost(_)) => is_sent = true,
                Err(error) => return Err(error),
            }
            tokio::time::sleep(self.retry.every).await;
        }
    }

    pub async fn gc(&self, request: &GcRequest) -> Result<GcAnswer, Error> {
        self.post_until_done("/v1/gc".into(), request, LongWork::Other).await
    }

    /// Waits for the end of a process for as long as it takes, across any number of daemons.
    pub async fn wait_for_end(&self, uuid: &str) -> Result<WaitAnswer, Error> {
        loop {
            if let Waited::Answer(answer) = self.wait(uuid, uuid, None).await? {
                return Ok(*answer);
            }
        }
    }

    /// Waits for the end of a process, across any number of daemons. After a break it waits by `uuid`, because another
    /// daemon gives the same process another PID.
    pub async fn wait(&self, id: &str, uuid: &str, timeout: Option<Duration>) -> Result<Waited, Error> {
        let deadline = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        let mut patience = Patience::new(self.retry);
        let mut id = id;
        loop {
            let begun = Instant::now();
            let left = deadline.map(|deadline| deadline.saturating_duration_since(begun));
            let within = left.and_then(|left| left.checked_add(WAIT_SLACK));
            let timeout_ms = left.map(|left| u64::try_from(left.as_millis()).unwrap_or(u64::MAX));
            let path = format!("/v1/processes/{}/wait", segment(id));
            let ask = Ask { within, ..post(path, &WaitRequest { timeout_ms })? };
            let was_stopped = self.stopped.load(Ordering::Relaxed);
            match self.try_ask(&ask).await {
                Ok(answer) => return Ok(Waited::Answer(Box::new(answer))),
                Err(Error::Silent(_)) => return Ok(Waited::TimedOut),
                Err(error) => {
                    // A daemon that says it is going away was told to: it is waited for, not started.
                    if error.code() == Some(ErrorCode::Unavailable) {
                        self.set_stopped(true);
                    } else if was_stopped && begun.elapsed() > BACK_AFTER {
                        self.set_stopped(false);
                    }
                    self.recover(as_lost(error), begun, &mut patience).await?;
                }
            }
            if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
                return Ok(Waited::TimedOut);
            }
            id = uuid;
        }
    }

    /// Repeats a request about a gate until there is an answer. The gate has no memory of requests: a daemon that died may have
    /// carried it out, so the next one is told.
    async fn at_gate(&self, id: &str, verb: &str) -> Result<Affected, Error> {
        let path = format!("/v1/processes/{}/{verb}", segment(id));
        let (mut request, mut patience) = (GateRequest::default(), Patience::new(self.retry));
        loop {
            let begun = Instant::now();
            match self.try_ask(&post(path.clone(), &request)?).await {
                Ok(answer) => return Ok(answer),
                Err(error) => {
                    request.repeated |= matches!(error, Error::Lost(_));
                    self.recover(error, begun, &mut patience).await?;
                }
            }
        }
    }

    /// Asks for what may take long, such as the copy of a directory: a daemon that says that it is not done yet is asked
    /// again, with the same id, and so for the same thing.
    pub(super) async fn post_until_done<T: DeserializeOwned>(
        &self,
        path: String,
        request: &impl Serialize,
        work: LongWork,
    ) -> Result<T, Error> {
        let ask = post(path, request)?;
        loop {
            match self.ask(&ask).await {
                Err(Error::Refused(refused)) if refused.code == ErrorCode::Timeout => {
                    if let Some(witness) = &self.witness {
                        witness.is_not_done(work);
                    }
                }
                answered => return answered,
            }
        }
    }

    pub(super) async fn tell<T: DeserializeOwned>(
        &self,
        id: &str,
        verb: &str,
        request: &impl Serialize,
    ) -> Result<T, Error> {
        self.post(format!("/v1/processes/{}/{verb}", segment(id)), request).await
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
fn as_lost(error: Error) -> Error {
    if let Error::Refused(detail) = &error
        && detail.code == ErrorCode::Unavailable
    {
        return Error::Lost(detail.message.clone().into());
    }
    error
}
