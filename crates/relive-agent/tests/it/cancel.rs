//! Read-only tools are ended by orders and by their deadline, and never wait for another process.

use std::time::{Duration, Instant};

use futures_util::{StreamExt as _, stream};
use relive_agent::script::Script;
use relive_agent::{Exit, Orders};
use relive_core::{Signal, Urgency};
use relive_journal::THREADS_MAX;
use relive_llm::{Delta, ToolCall};
use serde_json::{Value, json};

use crate::stage::{Act, Stage};
use crate::support::World;

/// Returns a read that takes hours: the second line of 4 TB without any.
fn endless() -> (&'static str, Value) {
    ("read", json!({"path": "sparse", "offset": 2}))
}

fn calls(tool: &str, args: &Value) -> Act {
    let call = ToolCall { id: "c".to_owned(), name: tool.to_owned(), args: args.to_string() };
    Act::Stream(stream::iter([Ok(Delta::Call(call))]).boxed())
}

/// Gives an order while the tool runs, and returns how the loop ended and how long it took from the order.
async fn ordered(orders: Orders) -> (Exit, Duration, usize) {
    let (tool, args) = endless();
    let stage = Stage::new([calls(tool, &args)]);
    stage.world.sparse("sparse", 4 << 40);
    let (sender, pool) = (std::sync::Arc::clone(&stage.orders), stage.world.context.slow_pool.clone());
    let running = tokio::spawn(stage.run());
    let has_begun = async {
        while pool.jobs() == 0 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(30), has_begun).await.unwrap();
    let begun = Instant::now();
    sender.send_replace(orders);
    let run = running.await.unwrap();
    let took = begun.elapsed();
    // The threads are free again: as many jobs as there are threads run concurrently.
    let barrier = std::sync::Arc::new(std::sync::Barrier::new(pool.threads_max()));
    let jobs = (0..pool.threads_max()).map(|_| {
        let (pool, barrier) = (pool.clone(), std::sync::Arc::clone(&barrier));
        async move { pool.run(move || barrier.wait().is_leader()).await }
    });
    tokio::time::timeout(Duration::from_secs(5), futures_util::future::join_all(jobs)).await.unwrap();
    (run.exit, took, run.history.open_calls().count())
}

/// Long before the read is given up, which takes 30 s: the disk of a busy machine may need a second for a record.
const SOON: Duration = Duration::from_secs(10);

#[tokio::test(flavor = "multi_thread")]
async fn a_read_without_end_is_left_by_every_order() {
    let (exit, took, open) = ordered(Orders { end: Some(Signal::Kill), ..Orders::default() }).await;
    assert!(matches!(exit, Exit::Cancelled) && took < SOON, "{exit:?} {took:?}");
    assert_eq!(open, 1, "it is made again if the process is resumed");
    let (exit, took, _) = ordered(Orders { stop: Some(Urgency::Now), ..Orders::default() }).await;
    assert!(matches!(exit, Exit::Stopped) && took < SOON, "{exit:?} {took:?}");
    let (exit, took, _) = ordered(Orders { stop: Some(Urgency::Boundary), ..Orders::default() }).await;
    assert!(matches!(exit, Exit::Stopped) && took < SOON, "{exit:?} {took:?}");
    let deadline = Some(tokio::time::Instant::now() + Duration::from_millis(600));
    let (exit, took, _) = ordered(Orders { deadline, ..Orders::default() }).await;
    assert!(matches!(exit, Exit::TimedOut) && took < SOON, "{exit:?} {took:?}");
}

#[tokio::test]
#[ignore = "takes the 30 s of the deadline"]
async fn an_endless_read_is_abandoned_after_30_seconds() {
    let world = World::new();
    world.sparse("sparse", 4 << 40);
    let begun = Instant::now();
    let (tool, args) = endless();
    world.refused(tool, args, "it took longer than 30 s and was given up").await;
    assert!(begun.elapsed() < Duration::from_secs(32));
}

#[tokio::test]
async fn dropping_a_search_ends_it() {
    let world = World::new();
    for number in 0..200 {
        world.put(&format!("d/{number}"), "no\n".repeat(300_000));
    }
    let args = json!({"pattern": "yes"}).to_string();
    let search = crate::support::find("search");
    let run = || {
        let recovery = relive_journal::recovery::Recovery::Rerun;
        search.run(world.context.clone(), args.clone(), recovery, "key:1".to_owned())
    };
    let begun = Instant::now();
    assert!(run().await.ok);
    let whole = begun.elapsed();
    // Dropped searches free their threads long before they would have finished, one after the other.
    for _ in 0..THREADS_MAX {
        let _ = tokio::time::timeout(Duration::from_millis(1), run()).await;
    }
    let begun = Instant::now();
    world.context.pool.run(|| ()).await.unwrap();
    assert!(begun.elapsed() < whole * 4, "{:?}, and a whole search takes {whole:?}", begun.elapsed());
}

#[tokio::test]
async fn a_search_in_one_long_line_is_linear() {
    let world = World::new();
    let search = async |path: &str, bytes: usize| {
        world.put(path, "ab".repeat(bytes / 2));
        let begun = Instant::now();
        let found = world.works("search", json!({"pattern": "a", "path": path})).await;
        assert!(found.len() < 400 && found.ends_with("...\n"), "{found}");
        begun.elapsed()
    };
    search("warm", 1000).await;
    let large = search("large", 1 << 20).await;
    assert!(large < Duration::from_secs(1), "{large:?}: a quadratic search took a minute");
}

#[tokio::test]
async fn results_are_short_however_long_the_paths_are() {
    let world = World::new();
    let deep = format!("{}/", "d".repeat(200)).repeat(15);
    for number in 0..199 {
        world.put(&format!("{deep}{number}"), "found\n");
    }
    let found = world.works("search", json!({"pattern": "found"})).await;
    assert!(found.len() < 300 * 1024 && found.contains("[cut: more than 256 KB"), "{}", found.len());
}

#[tokio::test]
async fn a_script_that_is_not_a_regular_file_is_refused_without_blocking() {
    let world = World::new();
    world.pipe("pipe");
    world.link("pipe", "link");
    world.link("/dev/zero", "device");
    world.sparse("sparse", 4 << 40);
    for (name, words) in [
        ("pipe", "it is a pipe, not a file"),
        ("link", "it is a pipe, not a file"),
        ("device", "it is a device, not a file"),
        (".", "it is a directory, not a file"),
        ("sparse", "larger than 16777216 bytes"),
    ] {
        let error = Script::open(name, &world.cwd).unwrap_err().to_string();
        assert!(error.starts_with("cannot read script ") && error.ends_with(words), "{error}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn reads_without_end_do_not_keep_short_ones_waiting() {
    let world = World::new();
    world.sparse("sparse", 4 << 40);
    let (tool, args) = endless();
    let read = || {
        let recovery = relive_journal::recovery::Recovery::Rerun;
        crate::support::find(tool).run(world.context.clone(), args.to_string(), recovery, "key:1".to_owned())
    };
    let endless: Vec<_> = (0..2 * THREADS_MAX).map(|_| tokio::spawn(read())).collect();
    let short = async {
        for _ in 0..20 {
            // Not `read`: a small file that is in memory takes no thread.
            world.works("list", json!({"path": "."})).await;
        }
    };
    // Each of the endless ones ends after half a minute: a short one that waits for them would be noticed.
    tokio::time::timeout(Duration::from_secs(20), short).await.unwrap();
    assert!(endless.iter().all(|read| !read.is_finished()));
    endless.iter().for_each(tokio::task::JoinHandle::abort);
}
