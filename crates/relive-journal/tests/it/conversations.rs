//! The conversation that a model sees: every call with its result, every message in its place, nothing twice.

use proptest::prelude::*;
use relive_core::{SuspendReason, Timestamp, Usd};
use relive_journal::data::ForkPoint;
use relive_journal::history::{CallState, Phase};
use relive_journal::record::{Body, Outcome, Paused, Usage};
use relive_journal::recovery::Recovery;
use relive_journal::{Durability, Next, Writer};

use crate::support::{
    Fixture, append, at_moment, call_ended, call_started, cases, compacted, doubt, input, model_ended, model_started,
    moment, partial, resolved, resumed, step, uuid_of,
};

#[test]
fn messages_during_calls_come_after_their_results() {
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
fn messages_during_a_model_call_are_part_of_the_next_one() {
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

    // A call that was cut off or lost is repeated, and then contains it.
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
fn a_later_summary_replaces_an_earlier_one() {
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
    // Covers less than the journal holds, and is older than the first summary's own record.
    append(&mut writer, vec![compacted(ends[3], "steps 1 to 3")]);
    assert_eq!(fixture.said(uuid), [&["summary steps 1 to 3"], &rest[2..]].concat());
    // A cut inside a step leaves no result without its call.
    append(&mut writer, vec![compacted(ends[3] + 2, "steps 1 to 4, nearly")]);
    assert_eq!(fixture.said(uuid), ["summary steps 1 to 4, nearly"]);
}

/// Makes one of the currently possible changes.
fn happen(writer: &mut Writer, choice: u8, number: usize) {
    let name = format!("m{number}");
    let body = match (&writer.history().phase, choice % 4) {
        (_, 0) => input(&name, &name),
        (Phase::Boundary, _) => model_started(),
        (Phase::Asking { .. }, 1) => partial("cut"),
        (Phase::Asking { .. }, _) => model_ended(&name, u32::from(choice / 4) % 3),
        (Phase::Calling { calls }, _) => {
            let open = calls.iter().position(|call| *call != CallState::Settled).unwrap();
            call_ended(u32::try_from(open).unwrap(), &name)
        }
    };
    append(writer, vec![body]);
}

proptest! {
    #![proptest_config(cases(32))]

    #[test]
    fn a_cut_separates_no_call_from_its_result_and_loses_nothing_after_it(
        choices in prop::collection::vec(any::<u8>(), 1..40),
        earlier in any::<prop::sample::Index>(),
    ) {
        let fixture = Fixture::new();
        let mut writer = fixture.spawn();
        let uuid = uuid_of(&writer);
        let cuts = |writer: &Writer| {
            let journal = std::fs::File::open(writer.directory().steps()).unwrap();
            writer.history().conversation_and_cuts(&journal).unwrap().1
        };
        for (number, choice) in choices.iter().enumerate() {
            happen(&mut writer, *choice, number);
            // Once in between, so that an already compacted conversation is cut again.
            if number == earlier.index(choices.len()) && writer.history().phase == Phase::Boundary {
                let through = cuts(&writer)[0].through;
                append(&mut writer, vec![compacted(through, "earlier")]);
            }
        }
        while writer.history().phase != Phase::Boundary {
            happen(&mut writer, 2, 0);
        }
        let said = fixture.said(uuid);
        // A summary with nothing after it cannot be cut again.
        let whole = (said != ["summary earlier"]).then_some(said.len());
        prop_assert_eq!(cuts(&writer).last().map(|cut| cut.messages), whole);
        for cut in cuts(&writer) {
            let mut fork = fixture.fork(uuid, ForkPoint::End).unwrap();
            append(&mut fork, vec![compacted(cut.through, "now")]);
            let expect = [&["summary now".to_owned()], &said[cut.messages..]].concat();
            prop_assert_eq!(fixture.said(uuid_of(&fork)), expect);
        }
    }
}

#[test]
fn a_summary_is_charged_and_messages_during_it_are_kept() {
    let fixture = Fixture::new();
    let mut writer = fixture.spawn();
    let uuid = uuid_of(&writer);
    step(&mut writer, "text", "1");
    let before = writer.history().clone();
    let through = before.seq;
    append(&mut writer, vec![model_started(), input("during", "hurry")]);
    let mut body = compacted(through, "all of it");
    assert!(writer.append(moment(), vec![body.clone()], Durability::Synced).is_err(), "a call under way has no answer");
    if let Body::Compacted(compacted) = &mut body {
        compacted.usage = Some(Usage { tokens_in: 70, tokens_out: 7, ..Usage::default() });
    }
    append(&mut writer, vec![body]);
    assert_eq!(fixture.said(uuid), ["summary all of it", "user during"]);
    let history = writer.history();
    let spent = (history.spent.tokens_in - before.spent.tokens_in, history.spent.tokens_out - before.spent.tokens_out);
    assert_eq!((spent, history.completed_step, history.answers), ((70, 7), 1, 1));
    assert_eq!(history.plan().next, Next::Ask { step: 2, again: false });
    append(&mut writer, vec![model_started(), model_ended("two", 0)]);
    // A fork from before the summary has the whole conversation, one from after it has the summary.
    let at = |step| uuid_of(&fixture.fork(uuid, ForkPoint::Step(step)).unwrap());
    assert_eq!(fixture.said(at(1)), ["user first", "model 1 1", "tool 1 0 true 1"]);
    assert_eq!(fixture.said(at(2)), ["summary all of it", "user during", "model 2 0"]);
    assert_eq!(fixture.history(at(2)).answers, 2);
}

#[test]
fn calls_in_doubt_and_resolved_calls_have_results() {
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
fn paused_time_counts_from_the_first_request() {
    let fixture = Fixture::new();
    let mut writer = fixture.spawn();
    let at = |second: i64| Timestamp::from_second(1_800_000_000 + second).unwrap();
    let pause = |second| {
        Body::Paused(Paused {
            reason: SuspendReason::User,
            asked_at: at(second),
            resume_at: None,
            cause: None,
            req: None,
        })
    };
    let mut append =
        |second, body| writer.append(at_moment(at(second)), vec![body], relive_journal::Durability::Synced).unwrap();
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
fn spending_is_the_sum_of_all_answers_and_unknown_if_one_price_is() {
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

#[tokio::test]
async fn a_conversation_includes_deferred_records() {
    let fixture = Fixture::new();
    let writer = fixture.spawn();
    let mut journal = relive_journal::OpenJournal::new(writer, relive_journal::Pool::default());
    let batch = vec![model_started(), model_ended("text", 1), call_ended(0, "result")];
    journal.append(moment(), Vec::new(), batch, Durability::Deferred).await.unwrap();
    assert!(!journal.is_settled());
    let cuts = journal.cuts().await.unwrap();
    assert_eq!(cuts.last().map(|cut| cut.messages), Some(3));
    let batch = vec![model_started(), model_ended("more", 0)];
    journal.append(moment(), Vec::new(), batch, Durability::Deferred).await.unwrap();
    assert_eq!(journal.conversation().await.unwrap().len(), 4, "the task, two answers and a result");
}
