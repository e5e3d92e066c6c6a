//! Verbs that contradict each other: one of them comes first, and what was acknowledged stays true.

use std::collections::BTreeMap;
use std::thread;

use serde_json::{Value, json};

use super::hang_ups::{Crowd, Sent};
use crate::freezer::is_frozen;
use crate::hasty::HangUp;
use crate::world::{Begun, World, wait_for, wait_until};

const PROCESSES: usize = 40;
/// Ten effects a second for as long as it runs.
const WORKS: &str = "turns: [{delay: 100ms, calls: [{name: write, args: {path: 'effect-{{uuid}}', content: '{{turn}}'}}], repeat: 9999}]";
const ASKS: &str = "turns: [{calls: [{name: write, args: {path: 'file-{{uuid}}', content: x}}]}, {hang: true}]";

/// Sends two verbs at the same moment; the HTTP status and the body of each answer.
#[track_caller]
fn at_once(crowd: &Crowd, one: &Sent, other: &Sent) -> [(u16, Value); 2] {
    let client = &crowd.client;
    let ask = |sent: &Sent| {
        let answer = client.attempt(&sent.request, HangUp::Never).answer().unwrap();
        (answer.status, answer.body)
    };
    thread::scope(|scope| {
        let first = scope.spawn(|| ask(one));
        let second = ask(other);
        [first.join().unwrap(), second]
    })
}

/// Whether the journal's last end was followed by somebody's resume.
fn was_resumed_since(records: &[Value]) -> bool {
    let after = records.iter().rev().take_while(|record| record["kind"] != "ended");
    after.filter(|record| record["kind"] == "opened").any(|record| record["by"] == "resume")
}

/// Resumes and kills each process at once, then kills the daemon before it has had time to do anything more.
fn resume_and_kill_at_once(from_an_earlier_daemon: bool) {
    let mut crowd = Crowd::new();
    let uuids = crowd.suspended(PROCESSES, WORKS);
    if from_an_earlier_daemon {
        crowd.restart();
    }
    let resumes = crowd.verbs_to(&uuids, "resume", |_| json!({}));
    let kills = crowd.verbs_to(&uuids, "signal", |_| json!({"signal": "KILL"}));
    let mut acknowledged = Vec::new();
    for (resume, kill) in resumes.iter().zip(&kills) {
        let [_, (status, body)] = at_once(&crowd, resume, kill);
        assert_eq!(status, 200, "{body}");
        if body["affected"] == 1 {
            acknowledged.push(&kill.uuid);
        }
    }
    crowd.world.kill_daemon();
    crowd.world.relive(&["ps"]).ok();
    let mut lost = Vec::new();
    for uuid in &acknowledged {
        wait_until("it is at rest", || crowd.info(uuid)["ending"].is_null());
        let records = crowd.world.journal(uuid);
        let ended = records.iter().any(|record| record["kind"] == "ended" && record["status"]["kind"] == "killed");
        let lives = crowd.info(uuid)["state"] != "dead";
        if !ended || lives && !was_resumed_since(&records) {
            lost.push((*uuid).clone());
        }
    }
    let (lost, of) = (lost.len(), acknowledged.len());
    assert_eq!(lost, 0, "{lost} of {of} acknowledged KILLs were lost with the daemon");
}

#[test]
fn case_62_a_kill_that_was_acknowledged_beside_a_resume_stays_true_after_a_restart() {
    resume_and_kill_at_once(false);
}

#[test]
fn case_62_an_acknowledged_kill_of_a_process_of_an_earlier_daemon_stays_true() {
    resume_and_kill_at_once(true);
}

#[test]
fn case_62_a_program_stands_still_exactly_if_its_journal_says_so() {
    let mut crowd = Crowd::new();
    let programs: Vec<Begun> = (0..12).map(|_| crowd.world.exec(&[], &["sleep", "1000"])).collect();
    programs.iter().for_each(|program| drop(crowd.world.await_stage(program, "running")));
    let uuids: Vec<String> = programs.into_iter().map(|program| program.uuid).collect();
    let pauses = crowd.verbs_to(&uuids, "pause", |_| json!({}));
    thread::scope(|scope| {
        for pause in &pauses {
            let (client, request) = (crowd.client.clone(), pause.request.clone());
            scope.spawn(move || assert!(client.attempt(&request, HangUp::Never).answer().unwrap().is_ok()));
        }
    });
    crowd.world.kill_daemon();
    crowd.world.relive(&["ps"]).ok();
    let mut wrong = Vec::new();
    for uuid in &uuids {
        let info = wait_for("it is at rest", || Some(crowd.info(uuid)).filter(|info| info["display"] != "pausing"));
        let frozen = is_frozen(info["session"]["host_pid"].as_u64().unwrap());
        if info["display"] != "suspended" || !frozen {
            wrong.push(format!("shown as {}, frozen: {frozen}", info["display"]));
        }
    }
    let (count, of) = (wrong.len(), uuids.len());
    assert_eq!(count, 0, "{count} of {of} acknowledged pauses were lost with the daemon: {wrong:?}");
}

/// Hangs up on a verb to processes that an earlier daemon suspended: afterwards each can still be resumed and paused.
fn can_be_resumed_after_a_hang_up(verb: &str, body: &Value) {
    let mut crowd = Crowd::new();
    let mut uuids = crowd.suspended(PROCESSES, "turns: [{text: x, calls: [{name: sleep, args: {duration: 1h}}]}]");
    crowd.restart();
    let verbs = crowd.verbs_to(&uuids, verb, |_| body.clone());
    crowd.hang_up_on(&verbs);
    crowd.settle();
    let mut lost: BTreeMap<String, Value> = BTreeMap::new();
    // The second time its journal is one that this daemon has put down.
    for _ in 0..2 {
        uuids.retain(|uuid| !lost.contains_key(uuid));
        for (verb, display) in [("resume", "running"), ("pause", "suspended")] {
            for sent in crowd.verbs_to(&uuids, verb, |_| json!({})) {
                let answer = crowd.answer(&sent.request);
                let settled = |info: &Value| info["display"] != "pausing" && info["display"] != "loading";
                let info = wait_for("it is at rest", || Some(crowd.info(&sent.uuid)).filter(settled));
                if !answer.is_ok() || info["display"] != display || info["suspend_reason"] == "io_error" {
                    lost.insert(sent.uuid, answer.body);
                }
            }
        }
    }
    let count = lost.len();
    assert_eq!(count, 0, "{count} of {PROCESSES} cannot be resumed any more: {:?}", lost.first_key_value());
    crowd.restart();
}

#[test]
fn case_62_a_hang_up_on_resume_does_not_lose_a_process_of_an_earlier_daemon() {
    can_be_resumed_after_a_hang_up("resume", &json!({}));
}

#[test]
fn case_62_a_hang_up_on_send_does_not_lose_a_process_of_an_earlier_daemon() {
    can_be_resumed_after_a_hang_up("input", &json!({"id": "one", "text": "listen"}));
}

/// Processes that ask whether they may write a file.
fn asking(count: usize) -> (Crowd, Vec<String>) {
    let mut crowd = Crowd::new();
    let uuids = crowd.run(count, ASKS, &json!({"write": "ask"}));
    uuids.iter().for_each(|uuid| crowd.await_display(uuid, "approval"));
    (crowd, uuids)
}

fn answered(crowd: &Crowd, uuid: &str) -> Vec<String> {
    let records = crowd.world.records(uuid, "approval");
    let decisions = records.iter().map(|record| record["decision"].as_str().unwrap().to_owned());
    decisions.filter(|decision| decision != "asked").collect()
}

fn is_written(crowd: &Crowd, uuid: &str) -> bool {
    crowd.world.work().join(format!("file-{uuid}")).exists()
}

/// That a refusal is a conflict which names the answer that was given first.
#[track_caller]
fn assert_names_the_first(status: u16, body: &Value, first: &str) {
    assert_eq!((status, &body["error"]["code"]), (409, &json!("CONFLICT")), "{body}");
    let message = body["error"]["message"].as_str().unwrap();
    assert!(message.contains(first), "no `{first}` in `{message}`");
}

#[test]
fn case_62_a_denied_call_never_runs_whoever_hung_up_before() {
    let (mut crowd, uuids) = asking(PROCESSES);
    let allows = crowd.verbs_to(&uuids, "resolve", |_| json!({"outcome": "allow"}));
    let denies = crowd.verbs_to(&uuids, "resolve", |_| json!({"outcome": "deny"}));
    let (mut denied, mut refused) = (Vec::new(), Vec::new());
    for (number, (allow, deny)) in allows.iter().zip(&denies).enumerate() {
        crowd.client.attempt(&allow.request, super::hang_ups::moment(number));
        let answer = crowd.answer(&deny.request);
        if answer.is_ok() {
            denied.push(&deny.uuid);
        } else {
            refused.push(answer);
        }
    }
    uuids.iter().for_each(|uuid| wait_until("it went on", || !crowd.world.records(uuid, "call_ended").is_empty()));
    crowd.restart();
    let ran = denied.iter().filter(|uuid| is_written(&crowd, uuid)).count();
    assert_eq!(ran, 0, "{ran} of {} denied calls ran", denied.len());
    for uuid in denied {
        assert_eq!(answered(&crowd, uuid), ["denied"]);
    }
    for answer in refused {
        assert_names_the_first(answer.status, &answer.body, "allowed");
    }
}

#[test]
fn case_67_a_second_answer_is_told_the_first() {
    let (mut crowd, uuids) = asking(2);
    let cases = [("allow", "allowed", "deny"), ("deny", "denied", "allow")];
    for (uuid, (first, told, second)) in uuids.iter().zip(cases) {
        let one = std::slice::from_ref(uuid);
        let first = crowd.verbs_to(one, "resolve", |_| json!({"outcome": first})).remove(0);
        let second = crowd.verbs_to(one, "resolve", |_| json!({"outcome": second})).remove(0);
        let answer = crowd.ask(&first.request);
        assert_eq!(answer["affected"], 1);
        for restarted in [false, true] {
            let refused = crowd.answer(&second.request);
            assert_names_the_first(refused.status, &refused.body, told);
            let again = crowd.ask(&first.request);
            assert_eq!(again["affected"], 1, "the same answer with the same id, restarted: {restarted}");
            assert_eq!(answered(&crowd, uuid), [told]);
            if !restarted {
                crowd.restart();
            }
        }
        assert_eq!(is_written(&crowd, uuid), told == "allowed");
        let typed = ["resolve", uuid, if told == "allowed" { "--deny" } else { "--allow" }];
        crowd.world.relive(&typed).fails(3, &[told]);
    }
}

#[test]
fn case_67_of_two_answers_at_once_one_wins_and_the_other_is_told_so() {
    let (mut crowd, uuids) = asking(20);
    let allows = crowd.verbs_to(&uuids, "resolve", |_| json!({"outcome": "allow"}));
    let denies = crowd.verbs_to(&uuids, "resolve", |_| json!({"outcome": "deny"}));
    for (allow, deny) in allows.iter().zip(&denies) {
        let uuid = &allow.uuid;
        let [(allowed, to_allow), (denied, to_deny)] = at_once(&crowd, allow, deny);
        match (allowed, denied) {
            (200, _) => assert_names_the_first(denied, &to_deny, "allowed"),
            (_, 200) => assert_names_the_first(allowed, &to_allow, "denied"),
            (..) => panic!("both were refused: {to_allow} {to_deny}"),
        }
        wait_until("it went on", || !crowd.world.records(uuid, "call_ended").is_empty());
        assert_eq!(is_written(&crowd, uuid), allowed == 200);
        assert_eq!(answered(&crowd, uuid), [if allowed == 200 { "allowed" } else { "denied" }]);
    }
}

/// An answer is for the question that was seen: what is asked next is another one.
#[test]
fn case_67_an_answer_never_lands_on_a_call_that_was_asked_about_later() {
    let world = World::new();
    let write = |path: &str| json!({"name": "write", "args": {"path": path, "content": "x"}});
    let turns = json!({"turns": [{"calls": [write("one"), write("two")]}, {"hang": true}]});
    let model = world.script(&turns.to_string());
    let process = world.run_model(&model, &["--ask", "write"]);
    let seen = world.await_display(&process.uuid, "approval")["approval"].clone();
    let path = format!("/v1/processes/{}/resolve", process.uuid);
    let answer = json!({"outcome": "allow", "id": seen["id"]}).to_string();
    assert_eq!(world.http("POST", &path, "", &answer).0, 200);
    wait_until("it asks about the second call", || world.info(&process.uuid)["approval"]["args"]["path"] == "two");
    let (status, told) = world.http("POST", &path, "", &answer);
    assert_eq!(status, 409, "{told}");
    assert!(told.contains("allowed"), "{told}");
    assert!(!world.work().join("two").exists());
}
