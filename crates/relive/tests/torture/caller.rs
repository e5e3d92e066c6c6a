//! A client that asks for anything, hangs up at any moment, and asks again.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::Sender;
use std::time::{Duration, Instant};

use relive_api::http_status;
use relive_client::Error;
use relive_core::{ErrorCode, Uuid};
use serde_json::{Value, json};

use crate::daemon::Places;
use crate::dice::Dice;
use crate::explain::VERBS_MAX;
use crate::hasty::{Attempt, HangUp, HastyClient, PATIENCE, Request};
use crate::ledger::{Kind, Ledger};
use crate::scripts;
use crate::verb::{Decision, PutBack, Seen, Told, Verb};

/// With so many processes no more are begun.
const PROCESSES_MAX: usize = 20;
/// Clients leave up to so long after they have asked.
const HANG_UP_MAX_US: u64 = 12_000;
const LOOK_EVERY: Duration = Duration::from_millis(2);

/// How clients behave.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Manners {
    /// They wait for every answer.
    Calm,
    /// They hang up, and send conflicting verbs at once.
    Wild,
}

/// What a verb that was acknowledged promised.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Acknowledged {
    Nothing,
    Change,
    /// The change is a signal.
    End,
}

/// One client.
pub(crate) struct Caller<'a> {
    pub(crate) client: HastyClient,
    pub(crate) dice: Dice,
    pub(crate) ledger: &'a Ledger,
    pub(crate) places: &'a Places,
    pub(crate) manners: Manners,
    /// How many verbs are still to be sent, by all clients.
    pub(crate) left: &'a AtomicUsize,
    /// Hears of every acknowledgement.
    pub(crate) acknowledged: Sender<Acknowledged>,
}

impl Caller<'_> {
    /// Asks until enough was asked.
    pub(crate) fn call(&mut self) {
        while self.takes_one() {
            self.act();
        }
    }

    fn takes_one(&self) -> bool {
        self.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1)).is_ok()
    }

    fn act(&mut self) {
        let known = self.ledger.lock().processes.len();
        let room = known < PROCESSES_MAX;
        match self.dice.between(0, 100) {
            _ if known < 3 => self.run(),
            0..9 if room => self.run(),
            9..12 if room => self.exec(),
            12..15 if room => self.tree(),
            15..19 if room => self.fork(),
            19..30 => self.look(),
            30..55 if self.manners == Manners::Wild => self.conflict(),
            _ => {
                if let Some((uuid, kind)) = self.one() {
                    self.any_verb(uuid, kind);
                }
            }
        }
    }

    /// A process that has room for more verbs; the newest ones more often.
    fn one(&mut self) -> Option<(Uuid, Kind)> {
        let all = {
            let book = self.ledger.lock();
            let verbs_of = |uuid: &Uuid| book.entries.iter().filter(|entry| entry.uuid == *uuid).count();
            let fits = |(uuid, _): &&(Uuid, Kind)| verbs_of(uuid) < VERBS_MAX - 10;
            book.processes.iter().filter(fits).copied().collect::<Vec<_>>()
        };
        let newest = &all[all.len().saturating_sub(4)..];
        let from = if self.dice.chance(50) { newest } else { &all };
        self.dice.pick(from).copied()
    }

    fn request(&mut self, path: String, body: Value) -> Request {
        Request { path, body, id: format!("r{:x}", self.dice.next()) }
    }

    /// Known before it is asked for, so that others can ask for it at the same moment.
    fn announce(&mut self, kind: Kind) -> Uuid {
        let uuid = self.dice.uuid();
        self.ledger.lock().processes.push((uuid, kind));
        uuid
    }

    fn run(&mut self) {
        let kind = match self.dice.between(0, 100) {
            0..30 => Kind::Idle,
            30..60 => Kind::Worker,
            60..80 => Kind::Asker,
            _ => Kind::Questioner,
        };
        let uuid = self.announce(kind);
        let mut body = json!({"uuid": uuid, "intent": "x", "model": scripts::model(kind), "cwd": self.places.work});
        if kind == Kind::Asker {
            body["policy"] = json!({"append_outside": "ask"});
        }
        // In a directory of their own nobody else's changes keep them from a rewind.
        if kind == Kind::Worker && self.dice.chance(60) {
            body["workspace"] = json!("own");
        }
        let request = self.request("/v1/processes".into(), body);
        self.perform(uuid, Verb::Create, &request);
    }

    fn exec(&mut self) {
        let uuid = self.announce(Kind::Program);
        let argv = scripts::argv(self.places);
        let env = json!({"PATH": "/usr/bin:/bin"});
        let body = json!({"uuid": uuid, "argv": argv, "cwd": self.places.work, "stdio": "null", "env": env});
        let request = self.request("/v1/programs".into(), body);
        self.perform(uuid, Verb::Create, &request);
    }

    fn tree(&mut self) {
        let uuid = self.announce(Kind::Tree);
        let kind = if self.dice.chance(50) { "compose" } else { "supervisor" };
        let (text, env) = (scripts::tree(self.places, kind), json!({"PATH": "/usr/bin:/bin"}));
        let body = json!({
            "uuid": uuid, "kind": kind, "file": "tree.yaml", "text": text, "cwd": self.places.work, "env": env,
        });
        let request = self.request("/v1/flows".into(), body);
        self.perform(uuid, Verb::Create, &request);
    }

    fn fork(&mut self) {
        let is_agent = |kind: Kind| !matches!(kind, Kind::Program | Kind::Tree);
        let Some((source, kind)) = self.one().filter(|(_, kind)| is_agent(*kind)) else { return };
        let uuid = self.announce(kind);
        let (verb, body) = match self.dice.between(0, 3) {
            0 => (Verb::ForkOwn, json!({"fork": uuid})),
            1 => (Verb::Create, json!({"fork": uuid, "workspace": "here"})),
            _ => (Verb::ForkOwn, json!({"fork": uuid, "workspace": "own"})),
        };
        let request = self.request(format!("/v1/processes/{source}/resume"), body);
        self.perform(uuid, verb, &request);
    }

    fn look(&mut self) {
        let Some((uuid, _)) = self.one() else { return };
        let (id, sent) = (uuid.to_string(), self.ledger.at(Instant::now()));
        let told = match self.places.client_that_asks_once().call(|client| client.process(&id)) {
            Ok(process) => Told::Saw(Seen::of(&process)),
            Err(error) if error.code() == Some(ErrorCode::NotFound) => Told::Saw(Seen::Absent),
            Err(Error::Refused(detail)) => Told::Refused(http_status(detail.code)),
            Err(_) => return,
        };
        self.ledger.answered(uuid, Verb::Look, sent, Instant::now(), told);
    }

    /// Two clients, one process, the same moment.
    fn conflict(&mut self) {
        let Some((uuid, kind)) = self.one() else { return };
        let mut other = Caller {
            client: self.client.clone(),
            dice: self.dice.split(),
            acknowledged: self.acknowledged.clone(),
            ..*self
        };
        std::thread::scope(|scope| {
            if self.takes_one() {
                scope.spawn(move || other.any_verb(uuid, kind));
            }
            self.any_verb(uuid, kind);
        });
    }

    fn any_verb(&mut self, uuid: Uuid, kind: Kind) {
        let verb = self.verb_for(kind);
        let (path, body) = match &verb {
            Verb::Pause => ("pause", json!({"now": kind != Kind::Worker || self.dice.chance(50)})),
            Verb::Resume => ("resume", json!({})),
            Verb::ResumeWith(text) => ("resume", json!({ "input": text })),
            Verb::Send(text) => ("input", json!({ "id": text, "text": text })),
            // `compose down` is a signal to the whole tree.
            Verb::Signal(signal) => ("signal", json!({ "signal": signal, "subtree": kind == Kind::Tree })),
            Verb::ResumeNode => ("node", json!({ "node": scripts::NODE })),
            Verb::Resolve(decision) => ("resolve", json!({ "outcome": decision.word() })),
            Verb::Answer(text) => ("resolve", json!({ "outcome": "answer", "answer": text })),
            Verb::Ack => ("ack", json!({})),
            Verb::PutBack(PutBack::Rewind(step)) => ("rewind", json!({ "to_step": step })),
            Verb::PutBack(PutBack::Undo) => ("rewind", json!({ "undo": true })),
            Verb::PutBack(PutBack::Restore(step)) => ("restore", json!({ "step": step, "paths": ["."], "cwd": "/" })),
            Verb::Merge => ("merge", json!({})),
            Verb::Create | Verb::ForkOwn | Verb::ResumeAgain | Verb::Look => return,
        };
        let request = self.request(format!("/v1/processes/{uuid}/{path}"), body);
        self.perform(uuid, verb, &request);
    }

    fn text(&mut self) -> String {
        let text = format!("m{:x}", self.dice.next());
        self.ledger.lock().texts.insert(text.clone());
        text
    }

    fn verb_for(&mut self, kind: Kind) -> Verb {
        match (kind, self.dice.between(0, 100)) {
            (Kind::Program, 0..35) => Verb::Pause,
            (Kind::Program, 35..75) => Verb::Resume,
            // One that is frozen gets no other signal before it is resumed, or the grace is over.
            (Kind::Program, _) => Verb::Signal("KILL"),
            (Kind::Tree, 0..20) => Verb::Pause,
            (Kind::Tree, 20..50) => Verb::Resume,
            (Kind::Tree, 50..65) => Verb::ResumeNode,
            (Kind::Tree, 65..80) => Verb::Signal("KILL"),
            (Kind::Tree, _) => Verb::Signal("TERM"),
            (Kind::Questioner, 0..42) => Verb::Answer(self.text()),
            (Kind::Questioner, 42..57) => Verb::Pause,
            (Kind::Questioner, 57..62) => Verb::Ack,
            (Kind::Questioner, 62..80) => Verb::Resume,
            (Kind::Questioner, 80..90) => Verb::Send(self.text()),
            (Kind::Questioner, _) => Verb::Signal("KILL"),
            (Kind::Asker, 0..25) => Verb::Resolve(Decision::Allow),
            (Kind::Asker, 25..48) => Verb::Resolve(Decision::Deny),
            (Kind::Asker, 48..63) => Verb::Pause,
            (Kind::Asker, 63..80) => Verb::Resume,
            (Kind::Asker, 80..90) => Verb::Send(self.text()),
            (Kind::Asker, _) => Verb::Signal("KILL"),
            (Kind::Worker, 0..18) => Verb::PutBack(PutBack::Rewind(self.dice.between(0, 4))),
            (Kind::Worker, 18..24) => Verb::PutBack(PutBack::Undo),
            (Kind::Worker, 24..30) => Verb::PutBack(PutBack::Restore(self.dice.between(0, 4))),
            (Kind::Worker, 30..36) => Verb::Merge,
            (Kind::Worker, 36..42) => Verb::Pause,
            (Kind::Idle, 0..25) => Verb::Pause,
            (Kind::Idle, 25..50) | (Kind::Worker, 42..55) => Verb::Resume,
            (Kind::Idle | Kind::Worker, 50..60) => Verb::ResumeWith(self.text()),
            (Kind::Idle | Kind::Worker, 60..80) => Verb::Send(self.text()),
            (Kind::Idle | Kind::Worker, 80..90) => Verb::Signal("KILL"),
            (Kind::Idle | Kind::Worker, 90..95) => Verb::Signal("TERM"),
            (Kind::Idle | Kind::Worker, _) => Verb::Signal("INT"),
        }
    }

    fn moment(&mut self) -> HangUp {
        match self.dice.between(0, 100) {
            _ if self.manners == Manners::Calm => HangUp::Never,
            0..50 => HangUp::Never,
            50..55 => HangUp::InBody,
            _ => HangUp::After(Duration::from_micros(self.dice.between(0, HANG_UP_MAX_US))),
        }
    }

    /// Sends a verb, now and then more than once, until it is answered or given up.
    fn perform(&mut self, uuid: Uuid, verb: Verb, request: &Request) {
        let (begun, mut hang_up) = (Instant::now(), self.moment());
        let mut sent_at: Option<(u64, u64)> = None;
        loop {
            let sent = match self.client.attempt(request, hang_up) {
                Attempt::NotSent if begun.elapsed() < PATIENCE => {
                    std::thread::sleep(LOOK_EVERY);
                    continue;
                }
                Attempt::NotSent | Attempt::Silent => {
                    return self.ledger.contradiction(format!("{uuid}: no answer to {verb:?}"));
                }
                Attempt::Answered { sent, answered, answer } if answer.status != 503 && answer.status != 500 => {
                    let first = sent_at.map_or(self.ledger.at(sent), |(first, _)| first);
                    let told = Told::of(&verb, &answer);
                    if let (Verb::Create | Verb::ForkOwn, Told::Refused(_)) = (&verb, &told) {
                        eprintln!("{uuid} was not created: {}", answer.body);
                    }
                    let promised = match (&verb, &told) {
                        (Verb::Signal(_), Told::Done { changed: true }) => Acknowledged::End,
                        (_, Told::Done { changed: true }) => Acknowledged::Change,
                        (_, _) => Acknowledged::Nothing,
                    };
                    self.ledger.answered(uuid, verb, first, answered, told);
                    // The round may be over.
                    let _ = self.acknowledged.send(promised);
                    return;
                }
                Attempt::Answered { sent, answer, .. } => {
                    if answer.status == 500 {
                        self.ledger.contradiction(format!("{uuid}: {verb:?} failed: {}", answer.body));
                    }
                    sent
                }
                Attempt::Unanswered { sent } => sent,
            };
            let sent = self.ledger.at(sent);
            let first = sent_at.map_or(sent, |(first, _)| first);
            if !self.dice.chance(60) {
                return self.ledger.unanswered(uuid, verb, first, sent);
            }
            sent_at = Some((first, sent));
            hang_up = self.moment();
        }
    }
}
