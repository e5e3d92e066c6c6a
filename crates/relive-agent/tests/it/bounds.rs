//! The loop with a model that sends too much, too little or nothing, and the progress it reports.

use std::time::Duration;

use futures_util::{StreamExt as _, stream};
use relive_agent::Exit;
use relive_core::Usd;
use relive_llm::{Delta, Message, ModelError, ToolCall};

use crate::stage::{Act, Run, Stage, run};

fn says(deltas: impl IntoIterator<Item = Delta, IntoIter: Send + 'static>) -> Act {
    Act::Stream(stream::iter(deltas.into_iter().map(Ok)).boxed())
}

fn call(name: &str, args: String) -> Delta {
    Delta::Call(ToolCall { id: "c".to_owned(), name: name.to_owned(), args })
}

/// Returns the result that the model got for its first call.
fn told(run: &Run) -> &str {
    let result = run.asked[1].1.iter().find_map(|message| match message {
        Message::Tool { ok: false, result, .. } => Some(result.as_str()),
        Message::Tool { .. } | Message::User { .. } | Message::Summary { .. } | Message::Model { .. } => None,
    });
    result.unwrap()
}

#[tokio::test(start_paused = true)]
async fn an_answer_without_end_is_cut_billed_once_and_not_asked_for_again() {
    let endless = stream::repeat_with(|| Ok(Delta::Text("again and ".repeat(100))));
    let run = run([Act::Stream(endless.boxed())], None).await;
    let Exit::Faulted(fault) = &run.exit else { panic!("{:?}", run.exit) };
    assert!(fault.starts_with("the model's answer was cut because it had no end"), "{fault}");
    assert_eq!(run.asked.len(), 1);
    // The part that arrived is recorded and billed.
    let spent = run.history.spent;
    assert!(spent.tokens_out > 2_000_000 && spent.cost_usd > Some(Usd::from_nanos(2_000_000)), "{spent:?}");
}

#[tokio::test(start_paused = true)]
async fn a_model_that_never_says_anything_comes_to_an_end_too() {
    let run = run([Act::Stream(stream::repeat_with(|| Ok(Delta::Text(String::new()))).boxed())], None).await;
    assert!(matches!(run.exit, Exit::Faulted(_)) && run.asked.len() == 1, "{:?}", run.exit);
}

#[tokio::test(start_paused = true)]
async fn arguments_that_pass_a_bound_are_a_failure_that_the_model_is_told() {
    let nested = format!("{{\"path\":{}{}}}", "[".repeat(126), "]".repeat(126));
    let run = run([says([call("read", nested)])], None).await;
    assert!(matches!(run.exit, Exit::Completed), "{:?}", run.exit);
    assert_eq!(told(&run), "read: the arguments were nested 127 deep; at most 64 levels are accepted");

    let large = format!("{{\"path\":\"a\",\"content\":\"{}\"}}", "x".repeat(9 << 20));
    let run = crate::stage::run([says([call("write", large)])], None).await;
    assert!(matches!(run.exit, Exit::Completed), "{:?}", run.exit);
    assert_eq!(told(&run), "write: the arguments were 9437209 bytes long; at most 8388608 are accepted");
}

#[tokio::test(start_paused = true)]
async fn an_answer_with_too_many_and_too_long_calls_is_recorded_and_never_asked_for_again() {
    let call = |number: usize| {
        let id = format!("{number}-{}", "\u{7}".repeat(4000));
        Delta::Call(ToolCall {
            id,
            name: "\u{1}nöne".repeat(1000),
            args: format!("{{\"a\":\"{}\"}}", "\\n".repeat(1500)),
        })
    };
    let run = run([says((0..200).map(call))], None).await;
    assert!(matches!(run.exit, Exit::Completed), "{:?}", run.exit);
    assert_eq!(run.asked.len(), 2, "the answer was recorded, so only the next step was asked for");
    let [Message::User { .. }, Message::Model { text: Some(text), calls, .. }, results @ ..] = &run.asked[1].1[..]
    else {
        panic!("{:?}", run.asked[1].1)
    };
    assert_eq!(text, "[72 more calls were left out: at most 128 of one answer are made]");
    assert_eq!((calls.len(), results.len()), (128, 128));
    assert!(told(&run).starts_with("there is no tool `_n_ne_n_ne"), "{}", told(&run));
}

#[tokio::test(start_paused = true)]
async fn an_empty_answer_is_asked_for_again_and_never_counts_as_completed() {
    let nothing = || says([Delta::Thinking("hm".to_owned()), Delta::Text(" \n".to_owned())]);
    let recovered = run([nothing(), says([])], None).await;
    assert!(matches!(recovered.exit, Exit::Completed), "{:?}", recovered.exit);
    assert_eq!((recovered.asked.len(), recovered.history.completed_step), (3, 1));

    let gave_up = run((0..9).map(|_| nothing()), None).await;
    let Exit::Faulted(fault) = gave_up.exit else { panic!("{:?}", gave_up.exit) };
    assert_eq!(fault, "the model answered with neither text nor a call (asked 3 times)");
    assert_eq!(gave_up.asked.len(), 3);
    assert!(gave_up.history.spent.tokens_out > 0, "each attempt is billed");
}

#[tokio::test(start_paused = true)]
async fn progress_is_owed_only_during_a_model_call_and_every_piece_resets_it() {
    let second = Duration::from_secs(1);
    let streams = stream::iter(0..10).then(move |_| async move {
        tokio::time::sleep(60 * second).await;
        Ok(Delta::Progress)
    });
    let sleep = stream::iter([Ok(call("sleep", "{\"duration\":\"100s\"}".to_owned()))]);
    let limited = ModelError::RateLimited { text: "slow down".to_owned(), retry_after: Some(100 * second) };
    let hangs = Act::Stream(stream::pending().boxed());
    let stage = Stage::new([Act::Stream(streams.chain(sleep).boxed()), Act::Fail(limited), hangs]);
    let (pulse, orders) = (stage.pulse.clone(), std::sync::Arc::clone(&stage.orders));
    let owed = || pulse.owes_since().map(|since| since.elapsed().as_secs());
    assert_eq!(owed(), None);
    let running = tokio::spawn(stage.run());
    let mut samples = Vec::new();
    for _ in 0..400 {
        tokio::time::sleep(5 * second).await;
        // Real time for the journal: the clock is stopped until this has returned.
        tokio::task::spawn_blocking(|| std::thread::sleep(Duration::from_millis(3))).await.unwrap();
        samples.push(owed());
    }
    // Ten minutes of streaming, 100 s in a tool, 100 s until the next attempt, then a model that sends nothing.
    let silence = samples.iter().rposition(Option::is_none).unwrap();
    assert!((155..180).contains(&silence), "{silence}");
    let (before, after) = samples.split_at(silence);
    assert!(before.iter().flatten().all(|owed| *owed <= 65), "{before:?}");
    let idle = before.iter().filter(|owed| owed.is_none()).count();
    assert!((36..60).contains(&idle), "{idle}: in a tool, and until it asks again");
    assert!(after.last().unwrap() > &Some(900), "{after:?}");
    orders.send_replace(relive_agent::Orders { end: Some(relive_core::Signal::Kill), ..Default::default() });
    assert!(matches!(running.await.unwrap().exit, Exit::Cancelled));
    assert_eq!(owed(), None);
}
