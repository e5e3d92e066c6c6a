//! A daemon with many suspended and many ended processes, next to one that has hardly any.

use std::time::{Duration, Instant};

use relive_api::PauseRequest;
use relive_client::{BlockingClient, Client};

use super::histories::until_indexed;
use super::start::with_histories;
use crate::Result;
use crate::daemon::{Daemon, Home, Switches, descriptors, memory, switches};
use crate::options::Options;
use crate::place::Place;
use crate::rounds::{Rounds, seconds};
use crate::runs::{self, Work};
use crate::table::{Mark, Row, kilobytes, milliseconds};

/// How many processes the other daemon has.
const FEW: usize = 10;
const CONNECTIONS: usize = 64;
const LIST: &str = "/v1/processes?all=false";
/// The most memory for a suspended process.
const BYTES_EACH_MAX: f64 = 2_000.0;
/// How often an idle daemon may wake up.
const SWITCHES_PER_SECOND_MAX: f64 = 1.0;
/// Descriptors of a daemon none of whose processes has a file open.
const DESCRIPTORS_MAX: usize = 64;
const STILL_WITHIN: Duration = Duration::from_secs(60);

pub(super) fn measure(options: &Options, place: &Place) -> Result<Vec<Row>> {
    let root = place.directory("crowd")?;
    let work = Work::new(root.join("work"), "  - hang: true\n")?;
    let home = |name: &str| Home::new(root.join(name));
    let (nothing, few, many) = (home("nothing")?, home("few")?, home("many")?);
    with_histories(&many.data(), options.histories, place)?;
    eprintln!("crowd: beginning and pausing {} processes", options.crowd);
    suspend(&few, &work, FEW, Duration::ZERO)?;
    let fresh = suspend(&many, &work, options.crowd, options.settle)?;
    eprintln!("crowd: measuring");
    let mut rows = starts(options, &nothing, &many)?;
    let (_, nothing) = Daemon::start(&nothing)?;
    let (_, few) = Daemon::start(&few)?;
    let (_, many) = Daemon::start(&many)?;
    // The index that a kill has interrupted is built in the background, so the daemon is not idle yet.
    until_indexed(&many.client()?)?;
    rows.extend(idle(options, &nothing, &many, fresh)?);
    rows.extend(lists(options, &few, &many)?);
    // A daemon that runs writes below the directory while it is removed.
    drop((nothing, few, many));
    crate::place::remove(&root)?;
    Ok(rows)
}

/// Fills a daemon with suspended processes, and returns its memory.
fn suspend(home: &Home, work: &Work, count: usize, settle: Duration) -> Result<(u64, u64)> {
    let (_, daemon) = Daemon::start(home)?;
    daemon.at_once(CONNECTIONS, &vec![(); count], |client, ()| suspend_one(client, work))?;
    let begun = Instant::now();
    while descriptors(daemon.os_pid())? > DESCRIPTORS_MAX {
        if begun.elapsed() > STILL_WITHIN {
            return Err("suspended processes keep their files open".into());
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    let status = daemon.client()?.call(Client::daemon)?;
    if (status.suspended, status.running) != (count, 0) {
        return Err(format!(
            "{} suspended and {} running where {count} are suspended",
            status.suspended, status.running
        )
        .into());
    }
    // Freed memory is returned within ten seconds.
    std::thread::sleep(settle);
    memory(daemon.os_pid())
}

fn suspend_one(client: &BlockingClient, work: &Work) -> Result<()> {
    let id = runs::begin(client, work)?.pid.to_string();
    client.call(|client| client.pause(&id, &PauseRequest { subtree: false, now: true }))?;
    Ok(())
}

fn starts(options: &Options, nothing: &Home, many: &Home) -> Result<Vec<Row>> {
    let mut rounds = Rounds::default();
    for round in 0..=options.crowd_rounds {
        let (alone, _) = Daemon::start(nothing)?;
        let (among, _) = Daemon::start(many)?;
        // The first round warms up.
        if round > 0 {
            rounds.add(among, alone);
        }
    }
    Ok(vec![Row {
        name: format!("daemon start: {} suspended", options.crowd),
        ours: milliseconds(rounds.ours()),
        peer: format!("{}  nothing", milliseconds(rounds.peer())),
        ratio: rounds.ratio(),
        mark: Mark::None,
    }])
}

#[expect(clippy::cast_precision_loss, reason = "shown with three digits")]
fn idle(options: &Options, nothing: &Daemon, many: &Daemon, fresh: (u64, u64)) -> Result<Vec<Row>> {
    let pids = [nothing.os_pid(), many.os_pid()];
    let [resting, crowded] = pids.map(memory);
    let (resting, crowded) = (resting?, crowded?);
    std::thread::sleep(options.settle);
    let [before, before_many] = pids.map(switches);
    std::thread::sleep(options.idle);
    let [after, after_many] = pids.map(switches);
    let (after, after_many) = (after?, after_many?);
    counts_work(nothing, &after)?;
    let rate = |count: u64| count as f64 / options.idle.as_secs_f64();
    let (quiet, quiet_many) = (rate(after.since(&before?)), rate(after_many.since(&before_many?)));

    let crowd = options.crowd;
    let against = |name: String, ours: u64, peer: u64| Row {
        name,
        ours: kilobytes(ours),
        peer: format!("{}  nothing", kilobytes(peer)),
        ratio: (ours as f64 / peer as f64).into(),
        mark: Mark::None,
    };
    let each = |name: &str, private: u64| {
        let bytes = private.saturating_sub(resting.1) as f64 / crowd as f64;
        Row {
            name: name.to_owned(),
            ours: format!("{bytes:.0} B"),
            peer: format!("{BYTES_EACH_MAX} B  the limit"),
            ratio: (bytes / BYTES_EACH_MAX).into(),
            mark: Mark::AtMost(1.0),
        }
    };
    let wakes = |name: &str, rate: f64| Row {
        name: name.to_owned(),
        ours: format!("{rate:.1}/s"),
        peer: format!("{SWITCHES_PER_SECOND_MAX}/s  the limit"),
        ratio: (rate / SWITCHES_PER_SECOND_MAX).into(),
        mark: Mark::AtMost(1.0),
    };
    Ok(vec![
        against(format!("resident: {crowd} suspended"), crowded.0, resting.0),
        against("  private".to_owned(), crowded.1, resting.1),
        each("  each, after a restart", crowded.1),
        each("  each, where they were paused", fresh.1),
        wakes("idle: switches, nothing", quiet),
        wakes(&format!("  {crowd} suspended"), quiet_many),
    ])
}

/// Checks that the counter works: a request must be visible in it.
fn counts_work(daemon: &Daemon, idle: &Switches) -> Result<()> {
    daemon.client()?.call(|client| client.fetch("/v1/daemon"))?;
    match switches(daemon.os_pid())?.since(idle) {
        0 => Err("a daemon that answered is said not to have woken up".into()),
        _ => Ok(()),
    }
}

fn lists(options: &Options, few: &Daemon, many: &Daemon) -> Result<Vec<Row>> {
    let (mut call, mut command) = (Rounds::default(), Rounds::default());
    let (few_client, many_client) = (few.client()?, many.client()?);
    for round in 0..=options.rounds {
        let (call_few, _) = seconds(|| Ok(few_client.call(|client| client.fetch(LIST))?))?;
        let (call_many, _) = seconds(|| Ok(many_client.call(|client| client.fetch(LIST))?))?;
        let (command_few, ()) = seconds(|| few.run(&["ps"]))?;
        let (command_many, ()) = seconds(|| many.run(&["ps"]))?;
        // The first round warms up.
        if round > 0 {
            call.add(call_many, call_few);
            command.add(command_many, command_few);
        }
    }
    let row = |name: String, rounds: &Rounds| Row {
        name,
        ours: milliseconds(rounds.ours()),
        peer: format!("{}  of {FEW}", milliseconds(rounds.peer())),
        ratio: rounds.ratio(),
        mark: Mark::None,
    };
    let (crowd, histories) = (options.crowd, options.histories);
    Ok(vec![
        row(format!("ps: {crowd} of {histories} histories"), &call),
        row("  the command `relive ps`".to_owned(), &command),
    ])
}
