//! Clients that hang up in the middle of a verb: it is wholly done, or was never begun.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use relive_api::ListQuery;
use relive_client::{BlockingClient, Client};
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::dice::Dice;
use crate::hasty::{Answer, HangUp, HastyClient, Request};
use crate::world::{World, finish, kill, wait_for, wait_until};

/// How many clients hang up in one test.
const CLIENTS: usize = 42;
/// One client leaves in the middle of its request, and the others at so many moments up to 12 ms after it.
const MOMENTS: u32 = 41;
const LATEST: Duration = Duration::from_millis(12);
/// How long the table and the disk may differ after the last client has left.
const SETTLES_WITHIN: Duration = Duration::from_secs(10);
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// Its model never answers.
const HANGS: &str = "turns: [{hang: true}]";

/// When the client with this number leaves.
pub(super) fn moment(number: usize) -> HangUp {
    let number = number as u32 % (MOMENTS + 1);
    if number == MOMENTS { HangUp::InBody } else { HangUp::After(LATEST * number / MOMENTS) }
}

/// A user's processes, asked for directly at the socket.
pub(super) struct Crowd {
    pub(super) world: World,
    pub(super) client: HastyClient,
    asker: BlockingClient,
    dice: Dice,
}

/// A verb that was sent to a process, or that makes one.
pub(super) struct Sent {
    pub(super) uuid: String,
    pub(super) request: Request,
}

impl Crowd {
    pub(super) fn new() -> Self {
        let world = World::new();
        world.relive(&["daemon", "start"]).ok();
        let socket = world.socket();
        let asker = BlockingClient::new(Client::new(&socket)).unwrap();
        Self { client: HastyClient::new(&socket), asker, world, dice: Dice::new(61) }
    }

    pub(super) fn request(&mut self, path: String, body: Value) -> Request {
        Request { path, body, id: self.dice.uuid().to_string() }
    }

    /// A verb to each of these processes.
    pub(super) fn verbs_to(&mut self, uuids: &[String], verb: &str, body: impl Fn(&str) -> Value) -> Vec<Sent> {
        let ask = |uuid: &String| {
            let request = self.request(format!("/v1/processes/{uuid}/{verb}"), body(uuid));
            Sent { uuid: uuid.clone(), request }
        };
        uuids.iter().map(ask).collect()
    }

    fn runs(&mut self, count: usize, model: &str, policy: &Value) -> Vec<Sent> {
        let cwd = self.world.work();
        let run = |_| {
            let uuid = self.dice.uuid().to_string();
            let body = json!({"uuid": uuid, "intent": "x", "model": model, "cwd": cwd, "policy": policy});
            let request = self.request("/v1/processes".into(), body);
            Sent { uuid, request }
        };
        (0..count).map(run).collect()
    }

    /// Runs so many agents on one script.
    #[track_caller]
    pub(super) fn run(&mut self, count: usize, script: &str, policy: &Value) -> Vec<String> {
        let model = self.world.script(script);
        let runs = self.runs(count, &model, policy);
        runs.iter().for_each(|run| drop(self.ask(&run.request)));
        runs.into_iter().map(|run| run.uuid).collect()
    }

    /// Runs so many agents and pauses them.
    #[track_caller]
    pub(super) fn suspended(&mut self, count: usize, script: &str) -> Vec<String> {
        let uuids = self.run(count, script, &json!({}));
        for pause in self.verbs_to(&uuids, "pause", |_| json!({"now": true})) {
            self.ask(&pause.request);
        }
        uuids.iter().for_each(|uuid| self.await_display(uuid, "suspended"));
        uuids
    }

    /// Waits for the answer, which is a success.
    #[track_caller]
    pub(super) fn ask(&self, request: &Request) -> Value {
        let answer = self.answer(request);
        assert!(answer.is_ok(), "{} {}: {}", request.path, request.body, answer.body);
        answer.body
    }

    #[track_caller]
    pub(super) fn answer(&self, request: &Request) -> Answer {
        let answer = self.client.attempt(request, HangUp::Never).answer();
        answer.unwrap_or_else(|| panic!("{} {}: no answer", request.path, request.body))
    }

    /// Sends each verb, and hangs up at another moment each time.
    pub(super) fn hang_up_on(&self, verbs: &[Sent]) {
        for (number, verb) in verbs.iter().enumerate() {
            self.client.attempt(&verb.request, moment(number));
        }
    }

    #[track_caller]
    pub(super) fn info(&self, uuid: &str) -> Value {
        let process = self.asker.call(|client| client.process(uuid)).unwrap();
        serde_json::to_value(process).unwrap()
    }

    #[track_caller]
    pub(super) fn await_display(&self, uuid: &str, word: &str) {
        wait_until(&format!("{uuid} is {word}"), || self.info(uuid)["display"] == word);
    }

    /// The processes of the table.
    #[track_caller]
    fn table(&self) -> BTreeSet<String> {
        let living = ListQuery::default();
        let list = self.asker.call(|client| client.list(&living)).unwrap();
        list.processes.iter().map(|process| process.uuid.to_string()).collect()
    }

    /// Waits until `live/` and the table name the same processes at two looks in a row, and gives them.
    #[track_caller]
    pub(super) fn settle(&self) -> BTreeSet<String> {
        let (begun, mut before) = (Instant::now(), None);
        loop {
            let (marked, listed) = (names(&self.world.data().join("live")), self.table());
            if marked == listed && before.as_ref() == Some(&listed) {
                return listed;
            }
            assert!(
                begun.elapsed() < SETTLES_WITHIN,
                "{} processes are marked as live and not in the table, {} are in the table and not marked",
                marked.difference(&listed).count(),
                listed.difference(&marked).count()
            );
            before = Some(listed);
            std::thread::sleep(LOOK_EVERY);
        }
    }

    /// Kills the daemon with -9 and starts the next: it has the processes that were visible before, and no other.
    #[track_caller]
    pub(super) fn restart(&self) {
        let before = self.settle();
        self.world.kill_daemon();
        self.world.relive(&["ps"]).ok();
        let after = self.settle();
        let started: Vec<_> = after.difference(&before).collect();
        assert!(started.is_empty(), "{} processes started by themselves: {started:?}", started.len());
        assert_eq!(before, after);
    }

    fn count(&self, uuid: &str, kind: &str) -> usize {
        self.world.records(uuid, kind).len()
    }

    /// How often a process was told this.
    pub(super) fn heard(&self, uuid: &str, text: &str) -> usize {
        self.world.records(uuid, "input").iter().filter(|input| input["text"] == text).count()
    }

    /// Each of these creations is wholly done or not begun, and asking again gives the one process it began.
    #[track_caller]
    fn assert_created_once(&self, creations: &[Sent], ran: impl Fn(&str) -> usize) {
        let listed = self.settle();
        let (begun, absent): (Vec<&Sent>, Vec<&Sent>) = creations.iter().partition(|sent| listed.contains(&sent.uuid));
        for sent in &absent {
            assert!(!self.world.directory(&sent.uuid).exists(), "{} has a journal and does not run", sent.uuid);
        }
        self.restart();
        for sent in begun.iter().chain(absent.iter().take(CLIENTS / 3)) {
            let answer = self.ask(&sent.request);
            assert_eq!(answer["uuid"], sent.uuid.as_str());
            assert_eq!(self.info(&sent.uuid)["pid"], answer["pid"]);
            wait_for("it runs", || (ran(&sent.uuid) > 0).then_some(()));
        }
        self.restart();
        for uuid in self.settle() {
            assert_eq!(self.count(&uuid, "spawned"), 1, "{uuid} began once");
        }
    }
}

/// Returns the UUIDs in `live/` or `steps/`; a `UUID.live` is only another marker.
fn names(directory: &Path) -> BTreeSet<String> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    entries.map(|entry| entry.file_name().into_string().unwrap()).filter(|name| !name.ends_with(".live")).collect()
}

#[test]
fn case_61_a_run_that_was_hung_up_on_is_wholly_done_or_not_begun() {
    let mut crowd = Crowd::new();
    let model = crowd.world.hanging();
    let runs = crowd.runs(CLIENTS, &model, &json!({}));
    crowd.hang_up_on(&runs);
    crowd.assert_created_once(&runs, |uuid| crowd.count(uuid, "model_started"));
}

#[test]
fn case_61_an_exec_that_was_hung_up_on_is_wholly_done_or_not_begun() {
    let mut crowd = Crowd::new();
    let (lines, cwd) = (crowd.world.root().join("lines"), crowd.world.work());
    let command = format!("echo $RELIVE_SESSION >> {}; exec sleep 1000", lines.display());
    let exec = |_| {
        let uuid = crowd.dice.uuid().to_string();
        let env = json!({"PATH": "/usr/bin:/bin"});
        let body = json!({"uuid": uuid, "argv": ["/bin/sh", "-c", command], "cwd": cwd, "stdio": "null", "env": env});
        let request = crowd.request("/v1/programs".into(), body);
        Sent { uuid, request }
    };
    let execs: Vec<Sent> = (0..CLIENTS).map(exec).collect();
    crowd.hang_up_on(&execs);
    let ran = |uuid: &str| {
        let text = fs::read_to_string(&lines).unwrap_or_default();
        text.lines().filter(|line| line.contains(uuid)).count()
    };
    crowd.assert_created_once(&execs, ran);
    for sent in &execs {
        assert!(ran(&sent.uuid) <= 1, "{} ran {} times", sent.uuid, ran(&sent.uuid));
    }
}

#[test]
fn case_61_a_fork_that_was_hung_up_on_is_wholly_done_or_not_begun() {
    let mut crowd = Crowd::new();
    let source = crowd.run(1, HANGS, &json!({})).remove(0);
    let fork = |_| {
        let uuid = crowd.dice.uuid().to_string();
        let request = crowd.request(format!("/v1/processes/{source}/resume"), json!({"fork": uuid}));
        Sent { uuid, request }
    };
    let forks: Vec<Sent> = (0..CLIENTS).map(fork).collect();
    crowd.hang_up_on(&forks);
    let own_spawned = |uuid: &str| {
        let spawned = crowd.world.records(uuid, "spawned");
        spawned.iter().filter(|record| record["uuid"] == *uuid).count()
    };
    let listed = crowd.settle();
    for sent in forks.iter().filter(|sent| !listed.contains(&sent.uuid)) {
        assert!(!crowd.world.directory(&sent.uuid).exists(), "{} has a journal and does not run", sent.uuid);
    }
    crowd.restart();
    for sent in &forks {
        let answer = crowd.ask(&sent.request);
        assert_eq!((&answer["uuid"], &answer["origin_uuid"]), (&json!(sent.uuid), &json!(source)));
        assert_eq!(crowd.info(&sent.uuid)["pid"], answer["pid"]);
        assert_eq!(own_spawned(&sent.uuid), 1);
    }
    crowd.restart();
}

#[test]
fn case_61_a_command_hit_by_ctrl_c_leaves_nothing_that_starts_later() {
    let crowd = Crowd::new();
    let (world, model) = (&crowd.world, crowd.world.hanging());
    let run = ["run", "-d", "--model", &model, "x"];
    let exec = ["exec", "-d", "--", "sleep", "1000"];
    // How long the command takes here, so that it is hit at any moment of it.
    let begun = Instant::now();
    world.relive(&run).ok();
    let takes = begun.elapsed();
    for number in 0..60_u32 {
        let command = world.start(if number % 2 == 0 { &run } else { &exec });
        std::thread::sleep(takes * (number % 20) / 20);
        kill(command.id(), Signal::INT);
        finish(command);
    }
    crowd.restart();
    // One that began before it could be cancelled was asked to stop.
    let all = world.relive(&["ps", "-a", "--json"]).json();
    let of_all =
        all["processes"].as_array().unwrap().iter().map(|process| process["uuid"].as_str().unwrap().to_owned());
    assert_eq!(names(&world.data().join("steps")), of_all.collect(), "each journal is that of a process");
}

#[test]
fn case_61_a_resume_of_the_dead_that_was_hung_up_on_happens_once() {
    let mut crowd = Crowd::new();
    let uuids = crowd.run(CLIENTS, "turns: [{text: one}, {hang: true}]", &json!({}));
    wait_until("all have ended", || names(&crowd.world.data().join("live")).is_empty());
    let resumes = crowd.verbs_to(&uuids, "resume", |_| json!({"input": "go on"}));
    crowd.hang_up_on(&resumes);
    let listed = crowd.settle();
    for uuid in &uuids {
        let (running, heard) = (listed.contains(uuid), crowd.heard(uuid, "go on"));
        assert_eq!(usize::from(running), heard, "{uuid} runs: {running}, heard: {heard}");
    }
    let again = |crowd: &Crowd| {
        for resume in &resumes {
            let answer = crowd.ask(&resume.request);
            assert_eq!(answer["changed"], true, "the answer of the first time: {answer}");
            crowd.await_display(&resume.uuid, "running");
            assert_eq!(crowd.heard(&resume.uuid, "go on"), 1);
            assert_eq!(crowd.count(&resume.uuid, "ended"), 1);
        }
    };
    again(&crowd);
    crowd.restart();
    again(&crowd);
}

#[test]
fn case_61_a_message_that_was_hung_up_on_is_heard_once() {
    for suspended in [false, true] {
        let mut crowd = Crowd::new();
        let uuids = if suspended { crowd.suspended(CLIENTS, HANGS) } else { crowd.run(CLIENTS, HANGS, &json!({})) };
        let sends = crowd.verbs_to(&uuids, "input", |uuid| json!({"id": format!("m-{uuid}"), "text": "listen"}));
        crowd.hang_up_on(&sends);
        crowd.restart();
        for send in &sends {
            crowd.ask(&send.request);
            assert_eq!(crowd.heard(&send.uuid, "listen"), 1, "suspended: {suspended}");
        }
        crowd.restart();
    }
}

#[test]
fn case_61_an_answer_that_was_hung_up_on_is_given_once() {
    let mut crowd = Crowd::new();
    let script = "turns: [{calls: [{name: write, args: {path: 'file-{{uuid}}', content: x}}]}, {hang: true}]";
    let uuids = crowd.run(CLIENTS, script, &json!({"write": "ask"}));
    uuids.iter().for_each(|uuid| crowd.await_display(uuid, "approval"));
    let answers = crowd.verbs_to(&uuids, "resolve", |_| json!({"outcome": "allow"}));
    crowd.hang_up_on(&answers);
    for restarted in [false, true] {
        for answer in &answers {
            assert_eq!(crowd.ask(&answer.request)["affected"], 1, "restarted: {restarted}");
            wait_until("it is written", || crowd.count(&answer.uuid, "call_ended") == 1);
            let decisions = crowd.world.records(&answer.uuid, "approval");
            let decisions: Vec<&str> = decisions.iter().map(|record| record["decision"].as_str().unwrap()).collect();
            assert_eq!(decisions, ["asked", "allowed"]);
            assert_eq!(crowd.count(&answer.uuid, "call_started"), 1);
        }
        crowd.restart();
    }
}

/// A verb to processes that run: hung up on, asked for again, and asked for again by the next daemon.
fn assert_changes_once(verb: &str, body: &Value, display: &str) {
    let mut crowd = Crowd::new();
    let uuids = crowd.run(CLIENTS, HANGS, &json!({}));
    let verbs = crowd.verbs_to(&uuids, verb, |_| body.clone());
    crowd.hang_up_on(&verbs);
    for restarted in [false, true] {
        let mut forgotten = Vec::new();
        for sent in &verbs {
            let answer = crowd.ask(&sent.request);
            if answer["affected"] != 1 {
                forgotten.push(answer);
            }
            crowd.await_display(&sent.uuid, display);
        }
        let count = forgotten.len();
        assert_eq!(count, 0, "restarted: {restarted}: {count} of {CLIENTS} repeats lost it: {:?}", forgotten[0]);
        crowd.restart();
    }
}

#[test]
fn case_61_a_kill_that_was_hung_up_on_is_answered_as_the_first_time() {
    assert_changes_once("signal", &json!({"signal": "KILL"}), "dead");
}

#[test]
fn case_61_a_pause_that_was_hung_up_on_is_answered_as_the_first_time() {
    assert_changes_once("pause", &json!({"now": true}), "suspended");
}
