//! Looking up a process with the index, next to reading the snapshot of one process.

use std::hint::black_box;
use std::path::Path;

use relive_core::{Pid, Uuid};
use relive_index::{Cursor, Entry, Filter, Incarnation, Index, Order, Row as Process, State};
use relive_journal::{ProcInfo, ProcessDirectory};

use crate::Result;
use crate::options::Options;
use crate::place::Place;
use crate::rounds::{Rounds, median_seconds, seconds};
use crate::sample::{Agent, StepData, data_directory, uuid};
use crate::table::{Mark, Row, milliseconds};

const TIMES: usize = 21;
const PAGE: usize = 50;
/// In milliseconds, on a machine that does nothing else.
const LOOK_UP_MAX_MS: f64 = 5.0;
const PAGE_MAX_MS: f64 = 50.0;

type Ask = fn(&Index, usize) -> Result<()>;

pub(super) fn measure(options: &Options, place: &Place) -> Result<Vec<Row>> {
    let root = place.directory("lookup")?;
    let directory = one_history(&root)?;
    let info = ProcInfo::read(&directory)?.ok_or("a history that says nothing")?;
    let index = Index::open(&root)?;
    let processes = options.histories;
    eprintln!("lookup: indexing {processes} processes");
    let (filled, ()) = seconds(|| Ok(index.rebuild((0..processes).map(|number| Ok(entry(&info, number))))?))?;
    eprintln!("lookup: indexed in {}", milliseconds(filled));
    let asked: [(&str, f64, Ask); 6] = [
        ("unknown name", LOOK_UP_MAX_MS, |index, _| Ok(nothing(index.by_name("nobody")?)?)),
        ("unknown PID", LOOK_UP_MAX_MS, |index, _| Ok(nothing(index.by_pid(Pid(u32::MAX))?)?)),
        ("unknown prefix", LOOK_UP_MAX_MS, |index, _| Ok(nothing(index.by_prefix("ffff", 5)?.pop())?)),
        ("first page of ps -a", PAGE_MAX_MS, |index, _| page(index, &Filter::default(), None)),
        ("page in the middle", PAGE_MAX_MS, |index, processes| {
            let key = i64::try_from(processes / 2)?;
            page(index, &Filter::default(), Some(Cursor { key, uuid: Uuid::nil() }))
        }),
        ("filter that matches none", PAGE_MAX_MS, |index, _| {
            let (state, name) = (Some(State::Dead), Some("*nobody*".to_owned()));
            let filter = Filter { state, name, ..Filter::default() };
            Ok(nothing(index.page(&filter, Order::Pid, None, PAGE)?.rows.pop())?)
        }),
    ];
    let mut rounds: [Rounds; 6] = Default::default();
    for round in 0..=options.rounds {
        let one = median_seconds(TIMES, || {
            black_box(ProcInfo::read(&directory)?);
            Ok(())
        })?;
        for ((_, _, ask), rounds) in asked.iter().zip(&mut rounds) {
            let ours = median_seconds(TIMES, || ask(&index, processes))?;
            // The first round warms up.
            if round > 0 {
                rounds.add(ours, one);
            }
        }
    }
    let row = |((what, limit_ms, _), rounds): (&(&str, f64, Ask), &Rounds)| Row {
        name: format!("lookup: {what}"),
        ours: milliseconds(rounds.ours()),
        peer: format!("{}  one snapshot", milliseconds(rounds.peer())),
        ratio: rounds.ratio(),
        mark: Mark::Within { ms: rounds.ours() * 1e3, limit_ms: *limit_ms },
    };
    eprintln!("lookup: among {processes} processes");
    Ok(asked.iter().zip(&rounds).map(row).collect())
}

fn nothing<T>(found: Option<T>) -> Result<(), &'static str> {
    if found.is_none() { Ok(()) } else { Err("something was found that is not there") }
}

fn page(index: &Index, filter: &Filter, after: Option<Cursor>) -> Result<()> {
    let rows = index.page(filter, Order::Pid, after, PAGE)?.rows;
    if rows.len() == PAGE { Ok(()) } else { Err("a page is not full".into()) }
}

/// Creates an ended process with its snapshot.
fn one_history(root: &Path) -> Result<ProcessDirectory> {
    let data = data_directory(root)?;
    let mut agent = Agent::spawn(&data, &StepData::of_bytes(1024)?)?;
    agent.end()?;
    data.retire(agent.uuid()?, agent.writer.history())?;
    Ok(agent.writer.directory().clone())
}

/// Returns a process like this one, with its own ids.
fn entry(info: &ProcInfo, number: usize) -> Entry {
    let pid = Pid(u32::try_from(number).unwrap_or(u32::MAX));
    let mut info = info.clone();
    info.uuid = uuid();
    info.name = Some(format!("worker-{}", number % 1_000));
    info.pids = vec![pid];
    let incarnations = vec![Incarnation { pid, end: info.end.clone() }];
    Entry::Here(Box::new(Process { info, incarnations }))
}
