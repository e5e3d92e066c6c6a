//! What people do to the agents while the daemon dies: each request is repeated until somebody answers it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use relive_api::{
    AckRequest, ErrorDetail, GcRequest, InputRequest, PauseRequest, Resolution, ResolveRequest, ResumeRequest,
    RunRequest, SignalRequest,
};
use relive_client::{BlockingClient, Client, Error, Event, Source, Waited};
use relive_core::{ErrorCode, Uuid};
use serde_json::json;

use crate::daemon::Places;
use crate::dice::Dice;
use crate::oracle::{Asked, Oracle, Trait};
use crate::scripts;

/// How soon somebody who found no daemon looks again.
const LOOK_EVERY: Duration = Duration::from_millis(3);
/// How long a request may stay without an answer, however often the daemon is killed.
const ANSWERED_WITHIN: Duration = Duration::from_secs(60);

/// One who asks.
pub(crate) struct Driver<'a> {
    pub(crate) client: BlockingClient,
    pub(crate) dice: Dice,
    pub(crate) oracle: &'a Oracle,
    pub(crate) places: &'a Places,
    pub(crate) over: &'a AtomicBool,
    /// There is no daemon any more.
    pub(crate) broken: &'a AtomicBool,
    /// With so many processes no more are begun.
    pub(crate) processes_max: usize,
    pub(crate) collects: bool,
}

impl Driver<'_> {
    pub(crate) fn drive(&mut self) {
        while !self.over.load(Ordering::Relaxed) {
            let room = self.oracle.lock().asked.len() < self.processes_max;
            match self.dice.between(0, 100) {
                0..10 if room => self.spawn(),
                10..17 if room => self.fork(None),
                17..24 if room => {
                    let step = self.dice.between(0, 8) as u32;
                    self.fork(Some(step));
                }
                24..40 => self.pause(),
                40..56 => self.resume(),
                56..66 => self.send(),
                66..71 => self.kill(),
                71..81 => self.wait(),
                81..84 => self.answer(),
                84..90 => self.read(),
                90..92 if self.collects => self.collect(),
                92 => self.resolve(),
                93 => self.acknowledge(),
                94 if room => self.exec(),
                95 | 96 if room => self.exec_odd(),
                97 => match self.dice.between(0, 3) {
                    0 => self.hold_a_shim(),
                    1 => self.attach(),
                    _ => self.proceed(),
                },
                98..99 => self.lose_a_shim(),
                _ => std::thread::sleep(Duration::from_millis(self.dice.between(1, 10))),
            }
        }
    }

    /// Asks until there is an answer, which may be a refusal. `None` if there is no daemon any more.
    pub(crate) fn ask<'a, T, F: Future<Output = Result<T, Error>>>(
        &'a self,
        what: &str,
        ask: impl Fn(&'a Client) -> F,
    ) -> Option<Result<T, ErrorDetail>> {
        let begun = Instant::now();
        loop {
            match self.client.call(&ask) {
                Ok(answer) => return Some(Ok(answer)),
                // Stopping: it is as good as gone.
                Err(Error::Refused(detail)) if detail.code == ErrorCode::Unavailable => {
                    std::thread::sleep(LOOK_EVERY);
                }
                Err(Error::Refused(detail)) => {
                    if detail.code == ErrorCode::Internal {
                        self.oracle.violation(format!("an internal error: {what}: {detail:?}"));
                    }
                    return Some(Err(detail));
                }
                Err(error) if error.is_transient() && self.broken.load(Ordering::Relaxed) => return None,
                Err(error) if error.is_transient() && begun.elapsed() < ANSWERED_WITHIN => {}
                Err(error) => {
                    self.oracle.violation(format!("no answer to {what}: {error:?}"));
                    return None;
                }
            }
        }
    }

    fn one(&mut self) -> Option<Uuid> {
        self.one_of(|_| true)
    }

    fn one_agent(&mut self) -> Option<Uuid> {
        self.one_of(|asked| asked.program.is_none())
    }

    pub(crate) fn one_of(&mut self, fits: impl Fn(&Asked) -> bool) -> Option<Uuid> {
        let all: Vec<Uuid> = {
            let known = self.oracle.lock();
            let begun = known.asked.iter().filter(|(_, asked)| !asked.pids.is_empty() && fits(asked));
            begun.map(|(uuid, _)| *uuid).collect()
        };
        self.dice.pick(&all).copied()
    }

    pub(crate) fn spawn(&mut self) {
        let name = self.dice.pick(&scripts::NAMES).copied().unwrap_or("steps");
        let uuid = self.dice.uuid();
        let mut request: RunRequest = serde_json::from_value(json!({
            "uuid": uuid,
            "intent": format!("do what {name} says"),
            "model": format!("script/{name}.yaml"),
            "cwd": self.places.work,
        }))
        .unwrap();
        if self.dice.chance(25) {
            request.on_in_doubt = Some("park".into());
        }
        match self.ask("a spawn", |client| client.run(&request)) {
            Some(Ok(created)) => {
                self.oracle.exists(uuid, created.pid);
                self.oracle.lock().asked.entry(uuid).or_default().asks = name == "asks";
            }
            Some(Err(refused)) => self.oracle.violation(format!("a spawn was refused: {refused:?}")),
            None => {}
        }
    }

    fn fork(&mut self, from_step: Option<u32>) {
        let Some(source) = self.one_agent() else { return };
        let (uuid, id) = (self.dice.uuid(), source.to_string());
        let request = ResumeRequest { fork: Some(uuid), from_step, ..ResumeRequest::default() };
        // Known before it is asked for: an answer may be lost for good if the original is collected meanwhile.
        self.oracle.forked(uuid, from_step);
        match self.ask("a fork", |client| client.resume(&id, &request)) {
            Some(Ok(resumed)) => self.oracle.exists(uuid, resumed.pid),
            // It has not come so far, or is collected.
            Some(Err(refused)) if matches!(refused.code, ErrorCode::Invalid | ErrorCode::NotFound) => {}
            // Its files were copied as of a step that is not its last one any more, or their last snapshot was lost with
            // a daemon.
            Some(Err(refused))
                if refused.code == ErrorCode::Conflict
                    && ["completed another step", "are not known"].iter().any(|why| refused.message.contains(why)) => {}
            Some(Err(refused)) => self.oracle.violation(format!("a fork of {source} was refused: {refused:?}")),
            None => {}
        }
    }

    fn pause(&mut self) {
        let Some(uuid) = self.one() else { return };
        let (now, subtree) = (self.dice.chance(30), self.dice.chance(20));
        let (id, request) = (uuid.to_string(), PauseRequest { subtree, now });
        self.ask("a pause", |client| client.pause(&id, &request));
    }

    fn resume(&mut self) {
        let Some(uuid) = self.one() else { return };
        let subtree = self.dice.chance(20);
        self.resume_one(uuid, &ResumeRequest { subtree, ..ResumeRequest::default() });
    }

    pub(crate) fn resume_one(&self, uuid: Uuid, request: &ResumeRequest) {
        let id = uuid.to_string();
        match self.ask("a resume", |client| client.resume(&id, request)) {
            Some(Ok(resumed)) => self.oracle.exists(uuid, resumed.pid),
            // Collected, in doubt, or being ended.
            Some(Err(refused)) if refused.code == ErrorCode::NotFound => {}
            Some(Err(refused)) if refused.code == ErrorCode::Conflict && refused.message.contains("your answer") => {}
            Some(Err(refused)) if is_being_ended(&refused) => {}
            Some(Err(refused)) => self.oracle.violation(format!("a resume of {uuid} was refused: {refused:?}")),
            None => {}
        }
    }

    fn send(&mut self) {
        let hears = |asked: &Asked| asked.program.is_none() || asked.trait_of == Some(Trait::Listens);
        if let Some(uuid) = self.one_of(hears) {
            self.send_to(uuid);
        }
    }

    pub(crate) fn send_to(&mut self, uuid: Uuid) {
        let message = format!("m{:x}", self.dice.next());
        self.oracle.message(uuid, &message, false);
        let (id, request) =
            (uuid.to_string(), InputRequest { text: format!("a message, {message}"), id: message, eof: false });
        match self.ask("a message", |client| client.input(&id, &request)) {
            Some(Ok(_)) => self.oracle.message(uuid, &request.id, true),
            Some(Err(refused)) if matches!(refused.code, ErrorCode::NotFound | ErrorCode::Exhausted) => {}
            Some(Err(refused)) if refused.code == ErrorCode::Conflict && refused.message.contains("has ended") => {}
            Some(Err(refused)) if is_being_ended(&refused) => {}
            // A program that has read all it wants, or is just lost or found.
            Some(Err(refused))
                if refused.code == ErrorCode::Conflict && refused.message.contains("accepts no messages") => {}
            Some(Err(refused)) => self.oracle.violation(format!("a message to {uuid} was refused: {refused:?}")),
            None => {}
        }
    }

    fn kill(&mut self) {
        let Some(uuid) = self.one() else { return };
        let signal = self.dice.pick(&["TERM", "KILL", "INT"]).copied().unwrap_or("KILL");
        self.oracle.signalled(uuid);
        let (id, request) = (uuid.to_string(), SignalRequest { signal: signal.into(), subtree: false });
        self.ask("a signal", |client| client.signal(&id, &request));
    }

    /// Waits for a process, or for one of the PIDs it had; sometimes resumes it at once.
    fn wait(&mut self) {
        let Some(uuid) = self.one() else { return };
        let pids = self.oracle.lock().asked.get(&uuid).map(|asked| asked.pids.clone()).unwrap_or_default();
        let by_uuid = self.dice.chance(50);
        let id = match self.dice.pick(&pids) {
            Some(pid) if !by_uuid => pid.to_string(),
            Some(_) | None => uuid.to_string(),
        };
        let timeout = Duration::from_millis(self.dice.between(1, 400));
        if self.wait_for(&id, uuid, timeout) {
            match self.dice.between(0, 10) {
                0..3 => self.resume_one(uuid, &ResumeRequest::default()),
                3..7 => self.acknowledge_one(uuid),
                _ => {}
            }
        }
    }

    /// Waits for a process by one of its ids; says whether it has ended.
    pub(crate) fn wait_for(&self, id: &str, uuid: Uuid, timeout: Duration) -> bool {
        let own = uuid.to_string();
        match self.ask("a wait", |client| client.wait(id, &own, Some(timeout))) {
            Some(Ok(Waited::Answer(answer))) => {
                if answer.uuid != uuid {
                    self.oracle.violation(format!("F: PID {id} is {uuid} and was answered as {}", answer.uuid));
                }
                self.oracle.ended(uuid, &answer);
                !answer.timed_out
            }
            Some(Err(refused)) if refused.code != ErrorCode::NotFound => {
                self.oracle.violation(format!("a wait for {id} was refused: {refused:?}"));
                false
            }
            Some(Ok(Waited::TimedOut) | Err(_)) | None => false,
        }
    }

    fn read(&mut self) {
        let Some(uuid) = self.one() else { return };
        let (id, mut last) = (uuid.to_string(), self.oracle.last_seen(uuid));
        let each = async |event: Event| {
            self.record(uuid, &event);
            Ok::<_, Error>(())
        };
        // One that was collected has no journal any more.
        let _ = self.client.call(|client| client.read(&id, Source::Journal, &mut last, each));
    }

    fn record(&self, uuid: Uuid, event: &Event) {
        if event.name == "record" {
            self.oracle.record(uuid, &event.id, &event.data);
        }
    }

    /// Follows journals until everything is over, one after the other.
    pub(crate) fn watch(&mut self) {
        while !self.over.load(Ordering::Relaxed) {
            let Some(uuid) = self.one() else {
                std::thread::sleep(LOOK_EVERY);
                continue;
            };
            let (id, mut last) = (uuid.to_string(), self.oracle.last_seen(uuid));
            let mut left = self.dice.between(10, 200);
            let each = async |event: Event| {
                self.record(uuid, &event);
                left -= 1;
                if left > 0 { Ok(()) } else { Err(Unwatched::Enough) }
            };
            let over = async {
                while !self.over.load(Ordering::Relaxed) {
                    tokio::time::sleep(LOOK_EVERY).await;
                }
            };
            self.client.call(async |client| {
                tokio::select! {
                    // One that was collected has no journal any more.
                    _ = client.follow(&id, Source::Journal, &mut last, each) => {}
                    () = over => {}
                }
            });
        }
    }

    fn collect(&self) {
        let all = GcRequest::default();
        self.ask("a collection", |client| client.gc(&all));
    }

    fn resolve(&mut self) {
        if let Some(uuid) = self.one() {
            self.decide(uuid);
        }
    }

    /// Answers what an agent asks, if one does.
    fn answer(&mut self) {
        let asks = |asked: &Asked| asked.asks;
        if let Some(uuid) = self.one_of(asks) {
            self.answer_one(uuid);
        }
    }

    /// Answers what this agent asks now, with words of its own: no other answer has them.
    pub(crate) fn answer_one(&mut self, uuid: Uuid) {
        let (id, words) = (uuid.to_string(), format!("w{:x}", self.dice.next()));
        let Some(Ok(process)) = self.ask("a look", |client| client.process(&id)) else { return };
        let Some(question) = process.question else { return };
        // For this question alone: an answer whose acknowledgement was lost does not become one to the next.
        let request = ResolveRequest::answer(words.clone(), Some(question.id));
        self.oracle.answer(uuid, &words, false);
        match self.ask("an answer", |client| client.resolve(&id, &request)) {
            Some(Ok(_)) => self.oracle.answer(uuid, &words, true),
            // Answered by somebody else or by the attempt before, ended, being ended, or collected.
            Some(Err(refused)) if matches!(refused.code, ErrorCode::Conflict | ErrorCode::NotFound) => {}
            Some(Err(refused)) => self.oracle.violation(format!("an answer to {uuid} was refused: {refused:?}")),
            None => {}
        }
    }

    fn acknowledge(&mut self) {
        if let Some(uuid) = self.one() {
            self.acknowledge_one(uuid);
        }
    }

    /// Says that the end of a process was seen.
    pub(crate) fn acknowledge_one(&self, uuid: Uuid) {
        let (id, request) = (uuid.to_string(), AckRequest::default());
        match self.ask("an ack", |client| client.ack(&id, &request)) {
            Some(Ok(acked)) => self.oracle.seen(uuid, acked.changed),
            // It lives, or was collected.
            Some(Err(refused)) if matches!(refused.code, ErrorCode::Conflict | ErrorCode::NotFound) => {}
            Some(Err(refused)) => self.oracle.violation(format!("an ack of {uuid} was refused: {refused:?}")),
            None => {}
        }
    }

    /// Says what became of a call in doubt. Never that it shall be made again: then nothing may happen twice.
    pub(crate) fn decide(&mut self, uuid: Uuid) {
        let outcome = if self.dice.chance(50) { Resolution::Done } else { Resolution::NotDone };
        let (id, request) = (uuid.to_string(), ResolveRequest::new(outcome));
        self.ask("an answer", |client| client.resolve(&id, &request));
    }
}

/// Why a journal is followed no more.
enum Unwatched {
    Enough,
    Failed,
}

impl From<Error> for Unwatched {
    fn from(_: Error) -> Self {
        Self::Failed
    }
}

/// Tells whether a process was asked for something between its signal and its end.
fn is_being_ended(refused: &ErrorDetail) -> bool {
    refused.code == ErrorCode::Conflict && refused.message.contains("is being ended")
}
