//! The records that acknowledge requests: their format, and their effect on the state of a journal.

use relive_core::{Cause, Pid, Signal, SignalSet, SuspendReason, Why};
use relive_journal::data::ForkPoint;
use relive_journal::history::{AnsweredRequest, Phase};
use relive_journal::record::{Body, Decision, Outcome, Resumed, ResumedBy, SignalCommand, SignalMask, Signalled};
use relive_journal::recovery::Recovery;
use relive_journal::{Durability, History, Next, WriteError, Writer};

use crate::support::{
    Fixture, append, approval, at_moment, call_ended, call_started, completed, input, kept, lines, max_steps,
    model_ended, model_started, moment, now, partial, paused, resolved, resumed, signal_mask, signalled, step, uuid_of,
    with_request,
};

/// Returns the last line of a journal, from after its step to before its checksum.
fn last_fields(writer: &Writer) -> String {
    let journal = std::fs::read(writer.directory().steps()).unwrap();
    let line = std::str::from_utf8(lines(&journal).last().unwrap()).unwrap();
    let (_, after) = line.split_once("\"step\":0,\"up\":").unwrap();
    let (_, after) = after.split_once(',').unwrap();
    after.split_once(",\"crc\"").unwrap().0.to_owned()
}

#[test]
fn records_of_requests_have_the_documented_json() {
    let fixture = Fixture::new();
    let mut writer = fixture.spawn();
    append(&mut writer, vec![paused(SuspendReason::User)]);
    let mut check = |body: Body, expected: &str| {
        append(&mut writer, vec![body]);
        assert_eq!(last_fields(&writer), expected);
    };
    check(signalled(Signal::Term), r#""signal":"SIGTERM","cause":{"why":"user","by":0}"#);
    check(
        with_request(kept(Signal::Pause), "r1"),
        r#""signal":"SIGPAUSE","cause":{"why":"user","by":0},"pending":true,"req":"r1""#,
    );
    check(
        signal_mask(&[Signal::Resume, Signal::Int], &[Signal::Term]),
        r#""blocked":["SIGINT","SIGRESUME"],"handled":["SIGTERM"]"#,
    );
    check(with_request(signal_mask(&[], &[]), "r2"), r#""blocked":[],"handled":[],"req":"r2""#);
    check(max_steps(7), r#""max_steps":7"#);
    check(with_request(max_steps(7), "r3"), r#""max_steps":7,"req":"r3""#);
    check(resumed(), r#""by":"user""#);
    check(with_request(completed(), "r4"), r#""status":{"kind":"exited","code":0},"req":"r4""#);
}

/// Returns the state after these records, and checks that a new reader agrees, also from a checkpoint.
fn after(batch: Vec<Body>) -> History {
    let fixture = Fixture::new();
    let mut writer = fixture.spawn();
    append(&mut writer, batch);
    let history = writer.history().clone();
    assert_eq!(fixture.history(uuid_of(&writer)), history);
    writer.checkpoint().unwrap();
    assert_eq!(fixture.history(uuid_of(&writer)), history, "from its checkpoint");
    history
}

fn ending(history: &History) -> Option<Signal> {
    history.ending.as_ref().map(|ending| ending.signal)
}

fn pending(history: &History) -> Vec<Signal> {
    history.pending.iter().map(|(signal, _)| *signal).collect()
}

#[test]
fn the_strongest_signal_to_end_counts_and_of_equal_ones_the_first() {
    use Signal::{Int, Kill, Term};
    for (sent, expected) in [
        (&[Term][..], Term),
        (&[Int], Int),
        (&[Int, Term], Term),
        (&[Term, Int], Term),
        (&[Int, Kill], Kill),
        (&[Term, Kill], Kill),
        (&[Kill, Term, Int], Kill),
    ] {
        let history = after(sent.iter().copied().map(signalled).collect());
        assert_eq!(ending(&history), Some(expected), "{sent:?}");
    }
    let by = |by| Signalled {
        signal: Term,
        cause: Cause::process(Why::User, Pid(by)),
        end: None,
        pending: false,
        req: None,
    };
    let history = after(vec![Body::Signalled(by(3)), Body::Signalled(by(4))]);
    assert_eq!(history.ending, Some(by(3)), "the first cause stays");
}

#[test]
fn a_signal_to_end_survives_its_writer_until_the_end_is_recorded() {
    let fixture = Fixture::new();
    let mut writer = fixture.spawn();
    let uuid = uuid_of(&writer);
    append(&mut writer, vec![signal_mask(&[Signal::Int], &[]), kept(Signal::Int), signalled(Signal::Term)]);
    drop(writer);
    let fixture = fixture.reopen();
    let mut writer = fixture.resume(uuid);
    assert_eq!((ending(writer.history()), pending(writer.history())), (Some(Signal::Term), vec![Signal::Int]));
    assert!(writer.history().mask.contains(Signal::Int));
    append(&mut writer, vec![completed()]);
    let history = writer.history();
    assert_eq!((ending(history), pending(history), history.mask), (None, vec![], SignalSet::EMPTY));
    drop(writer);
    assert_eq!(ending(fixture.resume(uuid).history()), None, "a new incarnation was told nothing");
}

#[test]
fn a_fork_does_not_inherit_signals_of_its_origin() {
    let fixture = Fixture::new();
    let mut writer = fixture.spawn();
    let told = vec![signal_mask(&[Signal::Pause], &[Signal::Int]), kept(Signal::Pause)];
    append(&mut writer, told.into_iter().chain([with_request(signalled(Signal::Kill), "kill")]).collect());
    let fork = fixture.fork(uuid_of(&writer), ForkPoint::End).unwrap();
    let history = fork.history();
    assert_eq!((ending(history), pending(history)), (None, vec![]));
    assert_eq!((history.mask, history.handlers), (SignalSet::EMPTY, SignalSet::EMPTY));
    assert_eq!((history.request("kill"), history.request("first")), (None, None));
}

#[test]
fn a_command_for_a_signal_counts_until_the_signal_is_handled_no_longer() {
    use Signal::{Int, Term};
    let fixture = Fixture::new();
    let mut writer = fixture.spawn();
    let uuid = uuid_of(&writer);
    let set = |signals: &[Signal]| signals.iter().copied().collect::<SignalSet>();
    let on = SignalCommand { signal: Term, id: uuid };
    let mask = SignalMask { handled: set(&[Int, Term]), on: Some(on), ..SignalMask::default() };
    append(&mut writer, vec![Body::SignalMask(mask), signal_mask(&[Int], &[Int, Term])]);
    drop(writer);
    let fixture = fixture.reopen();
    let mut writer = fixture.resume(uuid);
    assert_eq!(writer.history().commands, set(&[Term]), "another mask and another writer leave it");
    append(&mut writer, vec![signal_mask(&[], &[Int])]);
    append(&mut writer, vec![signal_mask(&[], &[Int, Term])]);
    assert_eq!(writer.history().commands, SignalSet::EMPTY, "it was removed");
}

#[test]
fn a_pending_signal_stays_until_its_delivery_is_recorded() {
    use Signal::{Int, Pause, Resume, Term};
    let resumed_by = |by| Body::Resumed(Resumed { by, cause: None, req: None });
    let stopped = || paused(SuspendReason::BudgetExceeded);
    let check = |batch: Vec<Body>, expected: &[Signal]| {
        let kinds: Vec<&str> = batch.iter().map(Body::kind).collect();
        assert_eq!(pending(&after(batch)), expected, "{kinds:?}");
    };
    check(vec![kept(Int), kept(Term), kept(Int)], &[Int, Term]);
    check(vec![kept(Int), kept(Term), signalled(Int)], &[Term]);
    check(vec![kept(Int), signalled(Term)], &[Int]);
    check(vec![kept(Pause), kept(Resume)], &[]);
    check(vec![kept(Resume), kept(Pause), kept(Pause)], &[Pause]);
    check(vec![kept(Pause), paused(SuspendReason::User)], &[]);
    check(vec![kept(Pause), stopped()], &[Pause]);
    check(vec![stopped(), kept(Resume), resumed()], &[]);
    check(vec![stopped(), kept(Pause), resumed_by(ResumedBy::Descendant)], &[]);
    check(vec![stopped(), kept(Pause), resumed_by(ResumedBy::Timer)], &[Pause]);
    check(vec![stopped(), kept(Pause), resumed_by(ResumedBy::DaemonStart)], &[Pause]);
    check(vec![kept(Pause), kept(Term), completed()], &[]);
    let first =
        Signalled { signal: Term, cause: Cause::process(Why::User, Pid(3)), end: None, pending: true, req: None };
    let history = after(vec![Body::Signalled(first.clone()), kept(Term)]);
    assert_eq!(history.pending, [(Term, first.cause)], "the first cause stays");
}

#[test]
fn an_invalid_signal_record_is_refused() {
    let fixture = Fixture::new();
    let mut writer = fixture.spawn();
    for body in [kept(Signal::Kill), signalled(Signal::Pause), signalled(Signal::Resume)] {
        let refused = writer.append(moment(), vec![body], Durability::Synced).unwrap_err();
        assert!(matches!(refused, WriteError::Misplaced { kind: "signalled", .. }), "{refused}");
    }
    append(&mut writer, vec![completed()]);
    for body in [signalled(Signal::Kill), signal_mask(&[], &[])] {
        assert!(writer.append(moment(), vec![body], Durability::Synced).is_err(), "it has ended");
    }
}

#[test]
fn a_repeated_request_is_recognized_for_every_kind_even_after_a_restart() {
    let fixture = Fixture::new();
    let mut writer = fixture.spawn();
    let uuid = uuid_of(&writer);
    append(&mut writer, vec![model_started(), model_ended("one", 2)]);
    append(&mut writer, vec![approval(0, Decision::Asked), with_request(approval(0, Decision::Allowed), "allow")]);
    append(&mut writer, vec![call_started(0, Recovery::Doubt)]);
    append(&mut writer, vec![with_request(paused(SuspendReason::User), "pause")]);
    append(&mut writer, vec![with_request(resolved(0, Outcome::Done), "resolve")]);
    let seq = writer.history().seq;
    let resume = [resumed(), max_steps(9)].map(|body| with_request(body, "resume"));
    append(&mut writer, resume.into_iter().chain([input("resume", "more")]).collect());
    append(&mut writer, vec![with_request(signal_mask(&[], &[]), "mask"), input("said", "more")]);
    append(&mut writer, vec![with_request(max_steps(3), "limits"), with_request(signalled(Signal::Int), "int")]);
    append(&mut writer, vec![with_request(completed(), "kill")]);
    let check = |history: &History| {
        let kinds = [
            ("first", "input"),
            ("allow", "approval"),
            ("pause", "paused"),
            ("resolve", "resolved"),
            ("mask", "signal_mask"),
            ("said", "input"),
            ("limits", "limits"),
            ("int", "signalled"),
            ("kill", "ended"),
        ];
        for (id, kind) in kinds {
            assert_eq!(history.request(id).map(|answered| answered.kind), Some(kind), "{id}");
        }
        let first = AnsweredRequest { kind: "resumed", seq: seq + 1 };
        assert_eq!(history.request("resume"), Some(first), "of several records the first");
        assert!(history.has_received("resume"));
        assert_eq!(history.request("another"), None);
    };
    check(writer.history());
    writer.checkpoint().unwrap();
    drop(writer);
    let fixture = fixture.reopen();
    check(&fixture.history(uuid));
    check(fixture.resume(uuid).history());
}

#[test]
fn the_last_64_requests_are_remembered() {
    let batch = (0..70).map(|number| with_request(max_steps(number), &format!("r{number}"))).collect();
    let history = after(batch);
    for number in 0..70 {
        assert_eq!(history.request(&format!("r{number}")).is_some(), number >= 6, "r{number}");
    }
}

#[test]
fn a_pause_recorded_at_the_request_lets_the_current_step_finish() {
    let pause = || paused(SuspendReason::User);
    let is_paused = |history: &History| history.paused.as_ref().map(|paused| paused.reason);
    let check = |before: Vec<Body>, later: Vec<Body>, next: Next| {
        let kinds: Vec<&str> = later.iter().map(Body::kind).collect();
        let plain = after(before.iter().chain(&later).cloned().collect());
        let early = after(before.iter().cloned().chain([pause()]).chain(later.iter().cloned()).collect());
        assert_eq!(is_paused(&early), Some(SuspendReason::User), "{kinds:?}");
        let open = |history: &History| history.open_calls().map(|open| open.call).collect::<Vec<_>>();
        assert_eq!((open(&early), early.completed_step), (open(&plain), plain.completed_step), "{kinds:?}");
        assert_eq!((early.spent, early.answered), (plain.spent, plain.answered), "{kinds:?}");
        assert_eq!(early.plan().next, next, "{kinds:?}");
        let woken = after(before.into_iter().chain([pause()]).chain(later).chain([resumed()]).collect());
        assert_eq!((is_paused(&woken), woken.plan().next), (None, plain.plan().next), "{kinds:?}");
    };
    let asked = || vec![model_started()];
    let calling = || vec![model_started(), model_ended("one", 2), call_started(0, Recovery::Join)];
    check(asked(), vec![model_ended("one", 0)], Next::Input);
    check(asked(), vec![model_ended("one", 1)], Next::Calls { step: 1, call: 0 });
    check(asked(), vec![partial("on")], Next::Ask { step: 1, again: false });
    check(asked(), vec![input("more", "x"), model_ended("one", 0)], Next::Ask { step: 2, again: false });
    check(calling(), vec![call_ended(0, "x")], Next::Calls { step: 1, call: 1 });
    check(calling(), vec![call_ended(0, "x"), approval(1, Decision::Asked)], Next::Calls { step: 1, call: 1 });
    check(calling(), vec![crate::support::doubt(0), call_ended(1, "x")], Next::Ask { step: 2, again: false });
    check(calling(), vec![resolved(0, Outcome::Retry)], Next::Calls { step: 1, call: 0 });
    check(calling(), vec![max_steps(4), signalled(Signal::Term)], Next::Calls { step: 1, call: 0 });
}

#[test]
fn a_pause_for_another_reason_replaces_an_earlier_one_and_one_resume_ends_both() {
    let question = vec![model_started(), paused(SuspendReason::User), model_ended("one", 1)];
    let batch = question.into_iter().chain([approval(0, Decision::Asked), paused(SuspendReason::Approval)]);
    let history = after(batch.clone().collect());
    assert_eq!(history.paused.as_ref().map(|paused| paused.reason), Some(SuspendReason::Approval));
    assert!(history.question().is_some());
    let answered = batch.chain([approval(0, Decision::Allowed), resumed(), call_started(0, Recovery::Rerun)]);
    let history = after(answered.collect());
    assert_eq!((history.paused.clone(), history.open_calls().count()), (None, 1));
    assert!(matches!(history.phase, Phase::Calling { .. }));
}

#[test]
fn a_pause_lasts_from_the_request_to_the_resume() {
    let fixture = Fixture::new();
    let mut writer = fixture.spawn();
    append(&mut writer, vec![model_started()]);
    let pause = paused(SuspendReason::User);
    let Body::Paused(asked) = &pause else { panic!("no pause") };
    let asked_at = asked.asked_at;
    append(&mut writer, vec![pause]);
    append(&mut writer, vec![model_ended("one", 0)]);
    let at = now();
    writer.append(at_moment(at), vec![resumed()], Durability::Synced).unwrap();
    let expected = u64::try_from(at.duration_since(asked_at).as_millis()).unwrap();
    assert_eq!(writer.history().paused_total_ms, expected);
    step(&mut writer, "two", "2");
}
