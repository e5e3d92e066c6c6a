//! Freezing and killing a tree of many processes, next to as many signals.

use std::fs;
use std::path::Path;
use std::process::Child;
use std::time::Instant;

use relive_session::protocol::Verb;
use relive_session::spec::Namespace;
use relive_session::stage::SessionResult;
use relive_session::tree::Tree;
use relive_session::{Connection, SessionDirectory};
use rustix::process::{Pid, Signal, WaitOptions, kill_process, waitpid};

use super::{Raw, SIGKILL, SLEEP};
use crate::Result;
use crate::lab::Lab;
use crate::options::Options;
use crate::rounds::{Rounds, seconds};
use crate::table::{Mark, Row, milliseconds};

const MEMBERS: usize = 100;

/// The seconds until all processes are frozen, until none is left, and until that is on the disk.
struct Times {
    frozen: f64,
    empty: f64,
    ended: f64,
}

pub(super) fn measure(options: &Options, lab: &Lab) -> Result<Vec<Row>> {
    let [mut frozen, mut empty, mut ended] = [(); 3].map(|()| Rounds::default());
    for round in 0..=options.session_rounds {
        let raw = raw()?;
        let ours = ours(lab)?;
        // The first round warms up.
        if round > 0 {
            frozen.add(ours.frozen, raw.frozen);
            empty.add(ours.empty, raw.empty);
            ended.add(ours.ended, raw.ended);
        }
    }
    let row = |name: String, rounds: &Rounds, peer: &str| Row {
        name,
        ours: milliseconds(rounds.ours()),
        peer: format!("{}  {peer}", milliseconds(rounds.peer())),
        ratio: rounds.ratio(),
        mark: Mark::None,
    };
    Ok(vec![
        row(format!("freeze of a tree of {MEMBERS}"), &frozen, "SIGSTOPs"),
        row(format!("kill of a tree of {MEMBERS} until empty"), &empty, "SIGKILLs"),
        row("  until its end is on the disk".to_owned(), &ended, "SIGKILLs"),
    ])
}

fn ours(lab: &Lab) -> Result<Times> {
    let sleep = SLEEP.join(" ");
    let script = format!("i=1; while [ $i -lt {MEMBERS} ]; do {sleep} & i=$((i+1)); done; exec {sleep}");
    let path = lab.next()?;
    let connection = lab.launch(&path, &lab.spec(&["/bin/sh", "-c", &script], Namespace::AsPlanned))?;
    while sleeping(lab, &connection)? < MEMBERS {
        std::thread::yield_now();
    }
    let (frozen, ()) = seconds(|| lab.done(&connection, Verb::Freeze))?;
    lab.done(&connection, Verb::Thaw)?;
    let tree = tree(&path)?;
    let begun = Instant::now();
    lab.done(&connection, Verb::Kill)?;
    while !tree.is_empty() {
        std::thread::yield_now();
    }
    let empty = begun.elapsed().as_secs_f64();
    lab.ended(&connection, &SessionResult::Signaled(SIGKILL))?;
    Ok(Times { frozen, empty, ended: begun.elapsed().as_secs_f64() })
}

/// Returns how many of its members have executed their program.
fn sleeping(lab: &Lab, connection: &Connection) -> Result<usize> {
    let sleeps = |pid: &&i32| fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|name| name == "sleep\n");
    Ok(lab.members(connection)?.iter().filter(sleeps).count())
}

fn tree(path: &Path) -> Result<Tree> {
    let state = SessionDirectory::open(path)?.read_state()?.ok_or("a session that runs has no state")?;
    Ok(Tree::reopen(&state.tree))
}

/// Sends signals, and waits until each has taken effect.
fn raw() -> Result<Times> {
    let mut sleepers = Raw::spawn(MEMBERS)?;
    let send =
        |children: &[Child], signal| children.iter().try_for_each(|child| kill_process(Pid::from_child(child), signal));
    let (frozen, ()) = seconds(|| {
        send(&sleepers.0, Signal::STOP)?;
        for child in &sleepers.0 {
            waitpid(Some(Pid::from_child(child)), WaitOptions::UNTRACED)?;
        }
        Ok(())
    })?;
    send(&sleepers.0, Signal::CONT)?;
    let (killed, ()) = seconds(|| {
        send(&sleepers.0, Signal::KILL)?;
        for child in &mut sleepers.0 {
            child.wait()?;
        }
        Ok(())
    })?;
    Ok(Times { frozen, empty: killed, ended: killed })
}
