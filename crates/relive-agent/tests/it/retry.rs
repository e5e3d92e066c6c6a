//! The loop with a model that fails: its waits, the orders it follows during them, and its records.
//!
//! The clock only advances in the loop's own waits.

use std::time::Duration;

use relive_agent::{Exit, Orders};
use relive_core::{Signal, Timestamp, Urgency, Usd};
use relive_llm::{Message, ModelError};

use crate::stage::{Act, run};

fn limited(seconds: u64) -> ModelError {
    ModelError::RateLimited { text: "slow down".to_owned(), retry_after: Some(Duration::from_secs(seconds)) }
}

fn cut() -> ModelError {
    ModelError::Cut("the line broke".to_owned())
}

#[tokio::test(start_paused = true)]
async fn a_failed_model_is_retried_after_its_own_delay_and_partial_answers_are_charged() {
    let run = run([Act::Fail(limited(30)), Act::Break(cut()), Act::Fail(cut())], None).await;
    assert!(matches!(run.exit, Exit::Completed), "{:?}", run.exit);
    let waits: Vec<u64> = run.asked.windows(2).map(|pair| (pair[1].0 - pair[0].0).as_secs()).collect();
    // At least half of 1, 2 and 4 seconds, at most all of them.
    assert!((30..=31).contains(&waits[0]) && (1..=2).contains(&waits[1]) && (2..=4).contains(&waits[2]), "{waits:?}");
    assert_eq!(run.history.completed_step, 1, "all of it is one step");
    // The refused call cost nothing; the broken one and the answer are estimated.
    let spent = run.history.spent;
    assert!(spent.estimated && spent.tokens_out > 0, "{spent:?}");
    assert_eq!(spent.cost_usd, Some(Usd::from_nanos(spent.tokens_in + spent.tokens_out)));
}

#[tokio::test(start_paused = true)]
async fn a_model_call_is_given_up_after_the_last_attempt() {
    let run = run((0..20).map(|_| Act::Fail(cut())), None).await;
    let Exit::Faulted(fault) = run.exit else { panic!("{:?}", run.exit) };
    assert_eq!((fault.as_str(), run.asked.len()), ("the line broke (asked 6 times)", 6));
}

#[tokio::test(start_paused = true)]
async fn orders_are_obeyed_while_a_retry_waits() {
    let stop = Orders { stop: Some(Urgency::Boundary), ..Orders::default() };
    let stopped = run([Act::FailAndOrder(limited(100), stop)], None).await;
    assert!(matches!(stopped.exit, Exit::Stopped), "{:?}", stopped.exit);
    let end = Orders { end: Some(Signal::Term), ..Orders::default() };
    let ended = run([Act::FailAndOrder(limited(100), end)], None).await;
    assert!(matches!(ended.exit, Exit::Cancelled), "{:?}", ended.exit);
    assert_eq!((stopped.took, ended.took), (Duration::ZERO, Duration::ZERO));
    let late = run([Act::Fail(limited(100))], Some(Duration::from_secs(10))).await;
    assert!(matches!(late.exit, Exit::TimedOut), "{:?}", late.exit);
    assert_eq!((late.took.as_secs(), late.asked.len()), (10, 1));
}

#[tokio::test(start_paused = true)]
async fn what_is_said_while_it_waits_is_heard_by_the_next_attempt() {
    let run = run([Act::FailAndHear(limited(5))], None).await;
    let said = |text: &str| Message::User { text: text.to_owned() };
    assert_eq!(run.asked[0].1, [said("do it")]);
    assert_eq!(run.asked[1].1, [said("do it"), said("one more thing")]);
}

#[tokio::test(start_paused = true)]
async fn a_far_reset_and_a_refused_key_end_the_loop_at_once() {
    let far = run([Act::Fail(limited(7200))], None).await;
    let Exit::Quota { resume_at } = far.exit else { panic!("{:?}", far.exit) };
    assert_eq!(resume_at, Timestamp::UNIX_EPOCH + Duration::from_secs(7200));
    let refused = run([Act::Fail(ModelError::Unauthorized("wrong key".to_owned()))], None).await;
    assert!(matches!(refused.exit, Exit::NeedsCredentials(_)), "{:?}", refused.exit);
    assert_eq!((far.took, refused.took), (Duration::ZERO, Duration::ZERO));
}
