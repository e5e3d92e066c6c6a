//! The cost of a step, in writes, syncs, jobs on other threads and copied messages. Not time.

use std::os::unix::fs::MetadataExt as _;

use futures_util::{StreamExt as _, stream};
use relive_agent::Exit;
use relive_llm::{Delta, ToolCall};
use serde_json::{Value, json};

use crate::stage::{Act, Stage};

/// Returns a step that makes these calls.
fn calling(step: usize, calls: &[(&str, Value)]) -> Act {
    let call = |(number, (name, args)): (usize, &(&str, Value))| {
        Ok(Delta::Call(ToolCall { id: format!("{step}-{number}"), name: (*name).to_owned(), args: args.to_string() }))
    };
    let deltas: Vec<_> = calls.iter().enumerate().map(call).collect();
    Act::Stream(stream::iter(deltas).boxed())
}

#[derive(Debug, PartialEq, Eq)]
struct Costs {
    writes: u64,
    journal_jobs: u64,
    tool_jobs: u64,
}

/// Runs steps that each make these calls; returns their total cost and the number of syncs.
async fn run(steps: usize, calls: &[(&str, Value)]) -> (Costs, u64) {
    let stage = Stage::new((0..steps).map(|step| calling(step, calls)).chain([Act::Answer]));
    stage.world.put("f", "x".repeat(4096));
    let (disk, journal, tools) = (stage.disk.clone(), stage.journal_pool.clone(), stage.world.context.pool.clone());
    // Otherwise the first reads would find them, on a thread.
    stage.world.context.private.get();
    let before = (disk.counts(), journal.jobs(), tools.jobs());
    let run = stage.run().await;
    assert!(matches!(run.exit, Exit::Completed), "{:?}", run.exit);
    let counts = disk.counts().since(before.0);
    let costs =
        Costs { writes: counts.writes, journal_jobs: journal.jobs() - before.1, tool_jobs: tools.jobs() - before.2 };
    (costs, counts.syncs)
}

/// Runs `steps` and twice as many; returns the cost of one more step.
async fn one_more(calls: &[(&str, Value)]) -> Costs {
    const STEPS: usize = 40;
    // The first file that is read may not be in memory yet.
    run(1, calls).await;
    let (few, few_syncs) = run(STEPS, calls).await;
    let (many, many_syncs) = run(2 * STEPS, calls).await;
    let steps = STEPS as u64;
    let more = |few: u64, many: u64| {
        assert!(few <= many, "more steps cost no less: {few} and {many}");
        assert_eq!((many - few) % steps, 0, "every step costs the same: {few} and {many}");
        (many - few) / steps
    };
    let costs = Costs {
        writes: more(few.writes, many.writes),
        journal_jobs: more(few.journal_jobs, many.journal_jobs),
        tool_jobs: more(few.tool_jobs, many.tool_jobs),
    };
    // A concurrent sync covers records written in the meantime, so there may be fewer. The files that `write` creates
    // are not on this disk. Of a step that only reads, nothing is acknowledged and nothing depends on it.
    let only_reads = calls.iter().all(|(name, _)| *name != "write");
    let most = if only_reads { few_syncs } else { costs.journal_jobs * 2 * steps + 2 };
    assert!(many_syncs <= most, "{many_syncs} syncs of at most {most}, {few_syncs} for half as many steps");
    costs
}

#[tokio::test]
async fn a_step_that_reads_a_file_in_memory_costs_one_write_and_one_job() {
    let read = ("read", json!({"path": "f"}));
    assert_eq!(one_more(&[read]).await, Costs { writes: 1, journal_jobs: 1, tool_jobs: jobs_of_a_hot_read() });
}

/// Returns none if the tests' files are on a disk of this machine; one on tmpfs and the like.
fn jobs_of_a_hot_read() -> u64 {
    let directory = tempfile::tempdir().unwrap();
    u64::from(rustix::fs::major(std::fs::metadata(directory.path()).unwrap().dev()) == 0)
}

#[tokio::test]
async fn a_step_that_only_reads_is_one_write_and_one_hand_off_beside_the_tool_s_own() {
    assert_eq!(one_more(&[("list", json!({}))]).await, Costs { writes: 1, journal_jobs: 1, tool_jobs: 1 });
}

#[tokio::test]
async fn read_only_calls_are_recorded_together_and_in_order() {
    let calls = [("read", json!({"path": "f"})), ("list", json!({})), ("read", json!({"path": "f", "limit": 1}))];
    let tool_jobs = 1 + 2 * jobs_of_a_hot_read();
    assert_eq!(one_more(&calls).await, Costs { writes: 1, journal_jobs: 1, tool_jobs });
    let stage = Stage::new([calling(0, &calls), Act::Answer]);
    stage.world.put("f", "one\ntwo\n");
    let run = stage.run().await;
    let results: Vec<&str> = run.asked[1]
        .1
        .iter()
        .filter_map(|message| match message {
            relive_llm::Message::Tool { id, .. } => Some(id.as_str()),
            relive_llm::Message::User { .. }
            | relive_llm::Message::Summary { .. }
            | relive_llm::Message::Model { .. } => None,
        })
        .collect();
    assert_eq!(results, ["0-0", "0-1", "0-2"]);
}

#[tokio::test]
async fn a_step_with_an_effect_costs_two_writes_and_two_jobs() {
    let write = ("write", json!({"path": "g", "content": "text"}));
    let costs = one_more(&[write]).await;
    // Intent and result.
    assert_eq!((costs.writes, costs.journal_jobs), (2, 2), "{costs:?}");
}
