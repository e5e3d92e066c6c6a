//! What people do to the agents while the daemon dies: each request is repeated until somebody answers it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use relive_core::Uuid;
use serde_json::{Value, json};

use crate::client::{Answer, Client, NoAnswer};
use crate::daemon::Places;
use crate::dice::Dice;
use crate::oracle::{Asked, Oracle};
use crate::scripts;

/// How soon somebody who found no daemon looks again.
const LOOK_EVERY: Duration = Duration::from_millis(3);

/// One who asks.
pub(crate) struct Driver<'a> {
    pub(crate) client: Client,
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
                    let step = self.dice.between(0, 8);
                    self.fork(Some(step));
                }
                24..40 => self.pause(),
                40..56 => self.resume(),
                56..66 => self.send(),
                66..71 => self.kill(),
                71..81 => self.wait(),
                81..90 => self.read(),
                90..92 if self.collects => self.collect(),
                92..96 => self.resolve(),
                96..98 if room => self.exec(),
                98..99 => self.lose_a_shim(),
                _ => std::thread::sleep(Duration::from_millis(self.dice.between(1, 10))),
            }
        }
    }

    /// Asks until there is an answer.
    pub(crate) fn ask(&self, path: &str, body: &Value) -> Option<Answer> {
        loop {
            match self.client.post(path, body) {
                // Stopping: it is as good as gone.
                Ok(answer) if answer.status == 503 => std::thread::sleep(LOOK_EVERY),
                Ok(answer) => {
                    if answer.status == 500 {
                        self.oracle.violation(format!("an internal error: {path} {body}: {}", answer.body));
                    }
                    return Some(answer);
                }
                Err(NoAnswer::Gone) if self.broken.load(Ordering::Relaxed) => return None,
                Err(NoAnswer::Gone) => std::thread::sleep(LOOK_EVERY),
                Err(NoAnswer::Hangs) => {
                    self.oracle.violation(format!("no answer to {path} {body}"));
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

    fn one_of(&mut self, fits: impl Fn(&Asked) -> bool) -> Option<Uuid> {
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
        let mut request = json!({
            "uuid": uuid,
            "intent": format!("do what {name} says"),
            "model": format!("script/{name}.yaml"),
            "cwd": self.places.work,
        });
        if self.dice.chance(25) {
            request["on_in_doubt"] = "park".into();
        }
        let Some(answer) = self.ask("/v1/processes", &request) else { return };
        if answer.is_ok() {
            self.oracle.exists(uuid, answer.body["pid"].as_u64().unwrap_or(0));
        } else {
            self.oracle.violation(format!("a spawn was refused: {}", answer.body));
        }
    }

    fn fork(&mut self, from_step: Option<u64>) {
        let Some(source) = self.one_agent() else { return };
        let uuid = self.dice.uuid();
        let mut request = json!({ "fork": uuid });
        if let Some(step) = from_step {
            request["from_step"] = step.into();
        }
        // Known before it is asked for: an answer may be lost for good if the original is collected meanwhile.
        self.oracle.forked(uuid, from_step);
        let Some(answer) = self.ask(&format!("/v1/processes/{source}/resume"), &request) else { return };
        match answer.status {
            200 => self.oracle.exists(uuid, answer.body["pid"].as_u64().unwrap_or(0)),
            // It has not come so far, or is collected.
            400 | 404 => {}
            _ => self.oracle.violation(format!("a fork of {source} was refused: {}", answer.body)),
        }
    }

    fn pause(&mut self) {
        let Some(uuid) = self.one() else { return };
        let (now, subtree) = (self.dice.chance(30), self.dice.chance(20));
        self.ask(&format!("/v1/processes/{uuid}/pause"), &json!({ "now": now, "subtree": subtree }));
    }

    fn resume(&mut self) {
        let Some(uuid) = self.one() else { return };
        let subtree = self.dice.chance(20);
        self.go_on(uuid, &json!({ "subtree": subtree }));
    }

    pub(crate) fn go_on(&self, uuid: Uuid, request: &Value) {
        let Some(answer) = self.ask(&format!("/v1/processes/{uuid}/resume"), request) else { return };
        match answer.status {
            200 => self.oracle.exists(uuid, answer.body["pid"].as_u64().unwrap_or(0)),
            // Collected, or in doubt.
            404 => {}
            409 if answer.body["error"]["message"].as_str().is_some_and(|text| text.contains("your answer")) => {}
            _ => self.oracle.violation(format!("a resume of {uuid} was refused: {}", answer.body)),
        }
    }

    fn send(&mut self) {
        let Some(uuid) = self.one_agent() else { return };
        let id = format!("m{:x}", self.dice.next());
        self.oracle.message(uuid, &id, false);
        let request = json!({ "id": id, "text": format!("a message, {id}") });
        let Some(answer) = self.ask(&format!("/v1/processes/{uuid}/input"), &request) else { return };
        match answer.status {
            200 => self.oracle.message(uuid, &id, true),
            404 | 429 => {}
            409 if answer.body["error"]["message"].as_str().is_some_and(|text| text.contains("has ended")) => {}
            _ => self.oracle.violation(format!("a message to {uuid} was refused: {}", answer.body)),
        }
    }

    fn kill(&mut self) {
        let Some(uuid) = self.one() else { return };
        let signal = self.dice.pick(&["TERM", "KILL", "INT"]).copied().unwrap_or("KILL");
        self.oracle.signalled(uuid);
        self.ask(&format!("/v1/processes/{uuid}/signal"), &json!({ "signal": signal }));
    }

    /// Waits for a process, or for one of the PIDs it had; sometimes goes on with it at once.
    fn wait(&mut self) {
        let Some(uuid) = self.one() else { return };
        let pids = self.oracle.lock().asked.get(&uuid).map(|asked| asked.pids.clone()).unwrap_or_default();
        let id = if self.dice.chance(50) {
            uuid.to_string()
        } else {
            self.dice.pick(&pids).map_or(0, |pid| *pid).to_string()
        };
        let timeout = self.dice.between(1, 400);
        let Some(answer) = self.ask(&format!("/v1/processes/{id}/wait"), &json!({ "timeout_ms": timeout })) else {
            return;
        };
        if !answer.is_ok() {
            if answer.status != 404 {
                self.oracle.violation(format!("a wait for {id} was refused: {}", answer.body));
            }
            return;
        }
        if answer.body["uuid"] != uuid.to_string() {
            self.oracle.violation(format!("F: PID {id} is {uuid} and was answered as {}", answer.body["uuid"]));
        }
        self.oracle.ended(uuid, &answer.body);
        if answer.body["timed_out"] == false && self.dice.chance(30) {
            self.go_on(uuid, &json!({}));
        }
    }

    fn read(&mut self) {
        let Some(uuid) = self.one() else { return };
        let after = self.oracle.last_seen(uuid);
        let _ = self.client.journal(&uuid.to_string(), &after, false, |id, line| {
            self.oracle.record(uuid, id, line);
            true
        });
    }

    /// Follows journals for as long as the daemon lives, one after the other.
    pub(crate) fn watch(&mut self) {
        while !self.over.load(Ordering::Relaxed) {
            let Some(uuid) = self.one() else {
                std::thread::sleep(LOOK_EVERY);
                continue;
            };
            let (after, mut left) = (self.oracle.last_seen(uuid), self.dice.between(10, 200));
            let watched = self.client.journal(&uuid.to_string(), &after, true, |id, line| {
                self.oracle.record(uuid, id, line);
                left -= 1;
                left > 0 && !self.over.load(Ordering::Relaxed)
            });
            if watched.is_err() {
                std::thread::sleep(LOOK_EVERY);
            }
        }
    }

    fn collect(&self) {
        self.ask("/v1/gc", &json!({ "dry_run": false }));
    }

    fn resolve(&mut self) {
        if let Some(uuid) = self.one() {
            self.decide(uuid);
        }
    }

    /// Says what became of a call in doubt. Never that it shall be made again: then nothing may happen twice.
    pub(crate) fn decide(&mut self, uuid: Uuid) {
        let outcome = if self.dice.chance(50) { "done" } else { "not_done" };
        self.ask(&format!("/v1/processes/{uuid}/resolve"), &json!({ "outcome": outcome }));
    }
}
