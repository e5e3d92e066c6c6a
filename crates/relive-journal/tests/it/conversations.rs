//! What the model is shown: every call with its result, every message in its place, nothing twice.

use relive_core::{SuspendReason, Timestamp, Usd};
use relive_journal::Next;
use relive_journal::record::{Body, Outcome, Paused, Usage};
use relive_journal::recovery::Recovery;

use crate::support::{
    Fixture, append, call_ended, call_started, compacted, doubt, input, model_ended, model_started, partial, resolved,
    resumed, step, uuid_of,
};

#[test]
fn what_is_said_while_calls_run_comes_after_their_results() {
    let fixture = Fixture::new();
    let mut writer = fixture.spawn();
    append(&mut writer, vec![model_started(), model_ended("one", 2), call_started(1, Recovery::Join)]);
    append(&mut writer, vec![input("during", "hurry"), call_ended(1, "second")]);
    let pending = "tool 1 0 false The call has not been run.";
    let uuid = uuid_of(&writer);
    assert_eq!(fixture.said(uuid), ["user first", "model 1 2", pending, "tool 1 1 true second", "user during"]);
    append(&mut writer, vec![call_ended(0, "first")]);
    assert_eq!(
        fixture.said(uuid),
        ["user first", "model 1 2", "tool 1 0 true first", "tool 1 1 true second", "user during"]
    );
}

#[test]
fn what_is_said_while_the_model_is_asked_is_still_to_be_heard() {
    let fixture = Fixture::new();
    let mut writer = fixture.spawn();
    let uuid = uuid_of(&writer);
    append(&mut writer, vec![model_started()]);
    append(&mut writer, vec![input("during", "wait")]);
    assert_eq!(fixture.said(uuid), ["user first", "user during"]);
    append(&mut writer, vec![model_ended("done", 0)]);
    assert_eq!(fixture.said(uuid), ["user first", "model 1 0", "user during"]);
    assert_eq!(writer.history().plan().next, Next::Ask { step: 2, again: false }, "it has an answer to come");
    writer.checkpoint().unwrap();
    assert_eq!(fixture.history(uuid), *writer.history());

    // A call that was cut off or lost is asked again, and then hears it.
    append(&mut writer, vec![model_started(), input("then", "x"), partial("cut"), model_started()]);
    append(&mut writer, vec![input("last", "x")]);
    drop(writer);
    let mut writer = fixture.resume(uuid);
    append(&mut writer, vec![model_started(), model_ended("done", 0)]);
    assert_eq!(writer.history().plan().next, Next::Input);
    let heard = ["user first", "model 1 0", "user during", "user then", "user last", "model 2 0"];
    assert_eq!(fixture.said(uuid), heard);
}

#[test]
fn a_later_summary_takes_the_place_of_an_earlier_one() {
    let fixture = Fixture::new();
    let mut writer = fixture.spawn();
    let uuid = uuid_of(&writer);
    let mut ends = vec![writer.history().seq];
    for number in 1..=4 {
        step(&mut writer, "text", &number.to_string());
        ends.push(writer.history().seq);
    }
    append(&mut writer, vec![compacted(ends[2], "steps 1 and 2")]);
    let rest = ["model 3 1", "tool 3 0 true 3", "model 4 1", "tool 4 0 true 4"];
    assert_eq!(fixture.said(uuid), [&["summary steps 1 and 2"], &rest[..]].concat());
    // Of less than the journal holds, and older than the first summary's own record.
    append(&mut writer, vec![compacted(ends[3], "steps 1 to 3")]);
    assert_eq!(fixture.said(uuid), [&["summary steps 1 to 3"], &rest[2..]].concat());
    // A place inside a step leaves no result without its call.
    append(&mut writer, vec![compacted(ends[3] + 2, "steps 1 to 4, nearly")]);
    assert_eq!(fixture.said(uuid), ["summary steps 1 to 4, nearly"]);
}

#[test]
fn a_call_in_doubt_and_a_call_somebody_decided_have_their_results() {
    let fixture = Fixture::new();
    let mut writer = fixture.spawn();
    let uuid = uuid_of(&writer);
    append(&mut writer, vec![model_started(), model_ended("one", 4)]);
    append(&mut writer, (0..4).map(|call| call_started(call, Recovery::Doubt)).collect());
    drop(writer);
    let mut writer = fixture.resume(uuid);
    assert_eq!(writer.history().plan().open.len(), 4);
    let decided = [resolved(1, Outcome::Done), resolved(2, Outcome::NotDone), resolved(3, Outcome::Retry)];
    append(&mut writer, [vec![doubt(0)], decided.to_vec()].concat());
    assert_eq!(writer.history().plan().next, Next::Calls { step: 1, call: 3 });
    let first = writer.history().seq;
    append(&mut writer, vec![call_started(3, Recovery::Join)]);
    let open: Vec<u64> = writer.history().open_calls().map(|open| open.seq).collect();
    assert_eq!(open, [first + 1], "a repeated call has a key of its own");
    append(&mut writer, vec![call_ended(3, "again")]);
    let told = [
        "tool 1 0 false The call was interrupted and its outcome",
        "tool 1 1 true The call was interrupted. The user has c",
        "tool 1 2 false The call was interrupted. The user has c",
        "tool 1 3 true again",
    ];
    assert_eq!(fixture.said(uuid)[2..], told);
    assert_eq!(writer.history().completed_step, 1);
}

#[test]
fn time_asleep_is_counted_from_the_first_moment_it_was_asked_for() {
    let fixture = Fixture::new();
    let mut writer = fixture.spawn();
    let at = |second: i64| Timestamp::from_second(1_800_000_000 + second).unwrap();
    let pause = |second| Body::Paused(Paused { reason: SuspendReason::User, asked_at: at(second), resume_at: None });
    let mut append = |second, body| writer.append(at(second), vec![body], relive_journal::Durability::Synced).unwrap();
    append(12, pause(10));
    append(20, pause(19));
    append(30, resumed());
    append(40, pause(40));
    append(39, resumed()); // the clock went back
    append(50, pause(45));
    append(60, crate::support::completed());
    assert_eq!((writer.history().paused_total_ms, writer.history().paused.as_ref()), (35_000, None));
}

#[test]
fn what_was_spent_is_the_sum_of_all_answers_and_a_price_nobody_knows_makes_it_unknown() {
    let fixture = Fixture::new();
    let mut writer = fixture.spawn();
    let mut answer = |cost_usd: Option<u64>| {
        let mut body = model_ended("text", 0);
        if let Body::ModelEnded(answer) = &mut body {
            let cost_usd = cost_usd.map(Usd::from_nanos);
            answer.usage = Usage { tokens_in: 7, tokens_out: 3, cost_usd, ..Usage::default() };
        }
        append(&mut writer, vec![model_started(), body]);
        writer.history().spent
    };
    answer(Some(5));
    let spent = answer(Some(6));
    assert_eq!((spent.tokens_in, spent.tokens_out, spent.cost_usd), (14, 6, Some(Usd::from_nanos(11))));
    assert_eq!(answer(None).cost_usd, None);
    assert_eq!(answer(Some(1)).cost_usd, None);
}
