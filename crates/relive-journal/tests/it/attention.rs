//! Questions of an agent to a person, and ends that a person has to be told of.

use relive_core::{End, ProcessStatus, SuspendReason};
use relive_journal::data::ForkPoint;
use relive_journal::history::{Asked, Permit};
use relive_journal::policy::{Permission, Policy};
use relive_journal::record::{Acked, Body, CallEnded, Decision, Ended, Question, Resumed, ResumedBy};
use relive_journal::recovery::Recovery;
use relive_journal::{Next, ProcInfo, WriteError};

use crate::additions::{journal, spawn, uuid};
use crate::support::{
    Fixture, append, approval, call_ended, call_started, input, model_ended, model_started, moment, paused, resumed,
    spawn_request, step,
};

pub(crate) fn question(call: u32, answer: Option<&str>) -> Body {
    let req = answer.map(|_| "answer".to_owned());
    Body::Question(Question { call, answer: answer.map(str::to_owned), req, key: None })
}

pub(crate) fn unseen() -> Body {
    Body::Ended(Ended { unseen: true, ..End::of(ProcessStatus::Exited { code: 3 }).into() })
}

/// An agent that asked something and got its answer, and then asked something else.
pub(crate) fn make_question(fixture: &Fixture) {
    let mut writer = spawn(fixture);
    append(&mut writer, vec![model_started(), model_ended("asks", 1), question(0, None)]);
    append(&mut writer, vec![paused(SuspendReason::Question)]);
    append(&mut writer, vec![question(0, Some("the left one")), resumed()]);
    append(&mut writer, vec![call_ended(0, "the left one"), model_started(), model_ended("asks again", 2)]);
    append(&mut writer, vec![call_ended(0, "x"), question(1, None), paused(SuspendReason::Question)]);
    append(&mut writer, vec![question(1, Some("the right one")), resumed(), call_ended(1, "the right one")]);
}

pub(crate) fn check_question(fixture: &Fixture) {
    let history = fixture.history(uuid());
    assert_eq!((history.paused.clone(), history.open_question()), (None, None));
    assert_eq!((history.asked(0), history.asked(1)), (Asked::NotYet, Asked::Answered("the right one".to_owned())));
    assert_eq!(history.plan().next, Next::Ask { step: 3, again: false });
    assert!(history.request("answer").is_some());
    let forked = fixture.fork(uuid(), ForkPoint::Step(1)).unwrap();
    assert_eq!(forked.history().asked(0), Asked::NotYet, "a fork has asked nothing itself");
    assert_eq!(forked.history().last_reply, None);
}

/// A CLI agent that asked something, with its own id of the question, and got its answer.
pub(crate) fn make_cli_question(fixture: &Fixture) {
    let keyed = |answer: Option<&str>| {
        let (req, key) = (answer.map(|_| "answer".to_owned()), Some("\"q-1\"".to_owned()));
        Body::Question(Question { call: 0, answer: answer.map(str::to_owned), req, key })
    };
    let mut writer = spawn(fixture);
    append(&mut writer, vec![model_started(), model_ended("asks", 1), keyed(None)]);
    append(&mut writer, vec![paused(SuspendReason::Question)]);
    append(&mut writer, vec![keyed(Some("blue")), resumed(), call_ended(0, "blue")]);
    append(&mut writer, vec![model_started(), model_ended("asks again", 1), keyed(None)]);
    append(&mut writer, vec![keyed(Some("red")), call_ended(0, "red")]);
}

pub(crate) fn check_cli_question(fixture: &Fixture) {
    let history = fixture.history(uuid());
    assert_eq!(history.asked.as_ref().and_then(|asked| asked.key.as_deref()), Some("\"q-1\""));
    let reply = history.last_reply.as_ref().map(|reply| (reply.text.as_str(), reply.question));
    assert_eq!(reply, Some(("red", history.question_seq)));
}

/// An agent of whose two calls one was denied by a person.
pub(crate) fn make_denied(fixture: &Fixture) {
    let mut writer = spawn(fixture);
    append(&mut writer, vec![model_started(), model_ended("wants", 2)]);
    append(&mut writer, vec![approval(0, Decision::Asked), paused(SuspendReason::Approval)]);
    append(&mut writer, vec![approval(0, Decision::Denied), resumed()]);
    let result = "The user refused this call of tool; it was not run.".into();
    let denied = CallEnded { call: 0, ok: false, result, done: false, settled: None, denied: true };
    append(&mut writer, vec![Body::CallEnded(denied)]);
    append(&mut writer, vec![call_started(1, Recovery::Rerun), call_ended(1, "x")]);
}

pub(crate) fn check_denied(fixture: &Fixture) {
    let history = fixture.history(uuid());
    assert_eq!(history.plan().next, Next::Ask { step: 2, again: false });
    let text = String::from_utf8(journal(fixture)).unwrap();
    assert_eq!(text.matches("\"denied\":true").count(), 1, "a call that was made does not say so");
}

/// An agent that waited for an answer until its request was closed without one.
pub(crate) fn make_withdrawn(fixture: &Fixture) {
    let mut writer = spawn(fixture);
    append(&mut writer, vec![model_started(), model_ended("wants", 1)]);
    append(&mut writer, vec![approval(0, Decision::Asked), paused(SuspendReason::Approval)]);
    append(&mut writer, vec![Body::Resumed(Resumed { by: ResumedBy::Withdrawn, cause: None, req: None })]);
    append(&mut writer, vec![call_started(0, Recovery::Rerun), call_ended(0, "x")]);
}

pub(crate) fn check_withdrawn(fixture: &Fixture) {
    let history = fixture.history(uuid());
    assert!(history.paused.is_none(), "it runs again");
}

/// A process whose end somebody had to be told of and saw, and that ended like this again.
pub(crate) fn make_unseen(fixture: &Fixture) {
    let mut writer = spawn(fixture);
    step(&mut writer, "one", "1");
    append(&mut writer, vec![unseen()]);
    fixture.data.retire(uuid(), writer.history()).unwrap();
    drop(writer);
    fixture.data.ack_ended(uuid(), Acked { req: Some("ack".to_owned()) }, moment()).unwrap();
    let mut writer = fixture.resume(uuid());
    append(&mut writer, vec![unseen()]);
    fixture.data.retire(uuid(), writer.history()).unwrap();
    drop(writer);
    drop(fixture.resume(uuid()));
}

pub(crate) fn check_unseen(fixture: &Fixture) {
    let history = fixture.history(uuid());
    assert!(!history.unseen && history.request("ack").is_some(), "whoever resumes it has seen its end");
    assert_eq!(history.incarnations.iter().filter(|incarnation| incarnation.ended.is_some()).count(), 2);
    let text = String::from_utf8(journal(fixture)).unwrap();
    assert_eq!((text.matches("\"unseen\":true").count(), text.matches("\"skip\":true").count()), (2, 1));
}

#[test]
fn an_acknowledged_end_is_seen_and_stays_an_end() {
    let fixture = Fixture::new();
    let mut writer = spawn(&fixture);
    step(&mut writer, "one", "1");
    append(&mut writer, vec![unseen()]);
    let before = ProcInfo::of(writer.history()).unwrap();
    assert!(before.unseen);
    fixture.data.retire(uuid(), writer.history()).unwrap();
    drop(writer);
    let history = fixture.data.ack_ended(uuid(), Acked::default(), moment()).unwrap();
    assert!(!history.unseen);
    let after = fixture.data.info(uuid()).unwrap().unwrap();
    assert_eq!((after.unseen, after.end, after.step), (false, before.end, before.step));
    let again = fixture.data.ack_ended(uuid(), Acked::default(), moment());
    assert!(again.is_ok_and(|history| !history.unseen), "twice is no mistake");
}

#[test]
fn only_an_end_can_be_acknowledged() {
    let fixture = Fixture::new();
    drop(spawn(&fixture));
    let refused = fixture.data.ack_ended(uuid(), Acked::default(), moment());
    assert!(matches!(refused, Err(WriteError::Misplaced { .. })), "{refused:?}");
}

#[test]
fn resuming_a_process_marks_its_end_as_seen() {
    let fixture = Fixture::new();
    let mut writer = spawn(&fixture);
    append(&mut writer, vec![unseen()]);
    drop(writer);
    assert!(!fixture.resume(uuid()).history().unseen);
}

#[test]
fn a_question_is_open_until_it_is_answered_and_its_answer_holds_for_its_call_alone() {
    let fixture = Fixture::new();
    let mut writer = spawn(&fixture);
    append(&mut writer, vec![model_started(), model_ended("asks", 2)]);
    assert_eq!(writer.history().asked(0), Asked::NotYet);
    append(&mut writer, vec![question(0, None)]);
    let seq = writer.history().seq;
    assert_eq!((writer.history().asked(0), writer.history().question_seq), (Asked::Waits, seq));
    append(&mut writer, vec![input("meanwhile", "hurry up"), question(0, Some("yes"))]);
    assert_eq!(writer.history().asked(0), Asked::Answered("yes".to_owned()));
    assert_eq!((writer.history().asked(1), writer.history().open_question()), (Asked::NotYet, None));
    append(&mut writer, vec![call_ended(0, "yes"), call_ended(1, "x"), model_started()]);
    assert_eq!(writer.history().asked(0), Asked::NotYet, "the next step asks anew");
    let reply = writer.history().last_reply.clone().unwrap();
    assert_eq!((reply.question, reply.text.as_str()), (seq, "yes"), "whoever answers later can be told");
}

/// Whoever answers later can be told when, and only of the answer to the same question.
#[test]
fn the_last_answer_about_a_call_is_remembered_with_its_question_and_time() {
    let fixture = Fixture::new();
    let mut writer = spawn(&fixture);
    append(&mut writer, vec![model_started(), model_ended("calls", 2), approval(0, Decision::Asked)]);
    let asked = writer.history().question_seq;
    assert_eq!(writer.history().last_verdict, None);
    append(&mut writer, vec![approval(0, Decision::Allowed)]);
    let verdict = writer.history().last_verdict.unwrap();
    assert_eq!((verdict.question, verdict.outcome), (asked, None));
    append(&mut writer, vec![call_ended(0, "x"), approval(1, Decision::Asked)]);
    assert!(writer.history().question_seq > asked);
    assert_eq!(writer.history().last_verdict, Some(verdict), "the next question has no answer yet");
}

/// A policy may forbid questions, and never asks whether one may be asked.
#[test]
fn a_question_needs_no_permission_to_be_asked() {
    let check = |permission, expect: fn(&Permit) -> bool| {
        let fixture = Fixture::new();
        let mut request = spawn_request(uuid(), fixture.data.next_pid().unwrap());
        request.spawned.policy = Policy::default().with(&[("ask".to_owned(), permission)].into());
        let permit = fixture.data.spawn(request).unwrap().history().permit(0, "ask", None);
        assert!(expect(&permit), "{permit:?}");
    };
    check(Permission::Allow, |permit| *permit == Permit::Given);
    check(Permission::Ask, |permit| *permit == Permit::Given);
    check(Permission::Deny, |permit| matches!(permit, Permit::Refused { .. }));
}
