//! 64 concurrent writers: Relive through its pool, raw threads each with its own file, and SQLite.

use std::fs::File;
use std::io::Write as _;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Barrier, Mutex, PoisonError};
use std::time::{Duration, Instant};

use relive_journal::{Durability, Pool};
use tokio::runtime::Runtime;

use crate::options::Options;
use crate::place::Place;
use crate::rounds::Rounds;
use crate::sample::{Agent, StepData, data_directory};
use crate::table::{Mark, Row, per_second};
use crate::{Error, Result};

const WRITERS: usize = 64;

pub(super) fn measure(options: &Options, place: &Place) -> Result<Vec<Row>> {
    eprintln!("writers: {WRITERS} at once, {} rounds of {} ms each", options.rounds, options.writers_ms);
    let root = place.directory("writers")?;
    let directory = data_directory(&root)?;
    let data = StepData::of_bytes(1024)?;
    let batches = Agent::batches_on_disk(&directory, &data)?;
    let time = Duration::from_millis(options.writers_ms);

    let pool = Pool::default();
    let runtime = tokio::runtime::Builder::new_multi_thread().build()?;
    let mut agents = (0..WRITERS).map(|_| Agent::spawn(&directory, &data)).collect::<Result<Vec<_>>>()?;
    let mut files = raw_files(&root)?;
    let mut connections = connections(&root.join("sqlite"))?;

    let (mut beside_raw, mut beside_sqlite) = (Rounds::default(), Rounds::default());
    for round in 0..=options.rounds {
        let raw = threads(&mut files, time, |file, turn| Ok(append_and_sync(file, &batches[turn % 2])?))?;
        let ours;
        (ours, agents) = tasks(&runtime, &pool, agents, time)?;
        let turn_of = Mutex::new(());
        let sqlite = threads(&mut connections, time, |connection, turn| {
            let _turn = turn_of.lock().unwrap_or_else(PoisonError::into_inner);
            connection.prepare_cached("INSERT INTO batch (bytes) VALUES (?1)")?.execute([&batches[turn % 2]])?;
            Ok(())
        })?;
        // The first round warms up.
        if round > 0 {
            beside_raw.add(ours, raw);
            beside_sqlite.add(ours, sqlite);
        }
    }
    let row = |name: &str, rounds: &Rounds, peer: &str, mark| Row {
        name: name.to_owned(),
        ours: per_second(rounds.ours()),
        peer: format!("{}  {peer}", per_second(rounds.peer())),
        ratio: rounds.ratio(),
        mark,
    };
    Ok(vec![
        row("64 writers: batches, synced", &beside_raw, "raw writers", Mark::AtLeast(0.4)),
        row("  beside SQLite, WAL, FULL", &beside_sqlite, "SQLite", Mark::None),
    ])
}

fn raw_files(root: &Path) -> Result<Vec<File>> {
    (0..WRITERS).map(|number| Ok(File::create(root.join(format!("raw{number}")))?)).collect()
}

fn append_and_sync(file: &mut File, bytes: &[u8]) -> std::io::Result<()> {
    file.write_all(bytes)?;
    file.sync_data()
}

/// Opens one connection for each thread. They take turns by a lock, because SQLite's own waiting sleeps.
fn connections(path: &Path) -> Result<Vec<rusqlite::Connection>> {
    let open = |_| {
        let connection = rusqlite::Connection::open(path)?;
        connection.pragma_update(None, "journal_mode", "WAL")?;
        connection.pragma_update(None, "synchronous", "FULL")?;
        connection.execute_batch("CREATE TABLE IF NOT EXISTS batch (id INTEGER PRIMARY KEY, bytes BLOB NOT NULL)")?;
        Ok(connection)
    };
    (0..WRITERS).map(open).collect()
}

/// Returns how many times a second `go` runs, with a thread for each of `writers`, in total.
fn threads<W: Send>(writers: &mut [W], time: Duration, go: impl Fn(&mut W, usize) -> Result<()> + Sync) -> Result<f64> {
    let (over, count) = (AtomicBool::new(false), AtomicU64::new(0));
    let ready = Barrier::new(writers.len() + 1);
    std::thread::scope(|scope| {
        let work = |writer: &mut W| -> Result<()> {
            ready.wait();
            for turn in 0.. {
                if over.load(Ordering::Relaxed) {
                    break;
                }
                go(writer, turn)?;
                count.fetch_add(1, Ordering::Relaxed);
            }
            Ok(())
        };
        let started: Vec<_> = writers.iter_mut().map(|writer| scope.spawn(move || work(writer))).collect();
        ready.wait();
        let start = Instant::now();
        std::thread::sleep(time);
        over.store(true, Ordering::Relaxed);
        for thread in started {
            thread.join().map_err(|_| "a writer panicked")??;
        }
        Ok(rate(count.load(Ordering::Relaxed), start))
    })
}

/// Measures the same like a daemon: a task for each agent, and each batch as a job of the pool.
fn tasks(runtime: &Runtime, pool: &Pool, agents: Vec<Agent>, time: Duration) -> Result<(f64, Vec<Agent>)> {
    let start = Instant::now();
    let task = |mut agent: Agent| {
        let pool = pool.clone();
        runtime.spawn(async move {
            let mut count = 0;
            while start.elapsed() < time {
                let appended;
                (agent, appended) = pool
                    .run(move || {
                        let appended = agent.append(Durability::Synced);
                        (agent, appended)
                    })
                    .await?;
                appended?;
                count += 1;
            }
            Ok::<(u64, Agent), Error>((count, agent))
        })
    };
    let running: Vec<_> = agents.into_iter().map(task).collect();
    runtime.block_on(async {
        let (mut count, mut agents) = (0, Vec::new());
        for task in running {
            let (more, agent) = task.await??;
            count += more;
            agents.push(agent);
        }
        Ok((rate(count, start), agents))
    })
}

#[expect(clippy::cast_precision_loss, reason = "a rate is not exact")]
fn rate(count: u64, start: Instant) -> f64 {
    count as f64 / start.elapsed().as_secs_f64()
}
