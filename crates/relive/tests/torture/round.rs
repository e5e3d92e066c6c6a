//! One round: processes, wild clients, a daemon that is killed, and the verdict.

use std::sync::atomic::AtomicUsize;
use std::sync::mpsc::{self, Receiver};
use std::time::{Duration, Instant};

use relive_api::SignalRequest;
use relive_client::BlockingClient;
use relive_core::Uuid;

use crate::caller::{Acknowledged, Caller, Manners};
use crate::daemon::{Daemon, Places};
use crate::dice::Dice;
use crate::hasty::HastyClient;
use crate::ledger::{Entry, Kind, Ledger};
use crate::observe::{Shown, as_it_is, settle};
use crate::verb::{Seen, Told, Verb};
use crate::{check, scripts};

/// How long all sessions may take to go.
const ENDS_WITHIN: Duration = Duration::from_secs(20);
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// What a round is to be.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Plan {
    pub(crate) seed: u64,
    pub(crate) verbs: usize,
    pub(crate) clients: usize,
    pub(crate) manners: Manners,
    /// How often the daemon is killed while clients ask. More than two make a crash loop of what never gets anywhere.
    pub(crate) kills: usize,
    pub(crate) faults: Option<&'static str>,
}

/// What came of it.
#[derive(Debug)]
pub(crate) struct Verdict {
    pub(crate) contradictions: Vec<String>,
    pub(crate) summary: String,
}

pub(crate) fn round(plan: Plan) -> Verdict {
    let begun = Instant::now();
    let places = Places::new(plan.faults, 10_000);
    scripts::write(&places);
    let (ledger, client) = (Ledger::new(), places.client_that_asks_once());
    let found = play(plan, &places, &client, &ledger);
    let mut book = ledger.close();
    match found {
        Ok((daemon, last)) => {
            check::all(&places, &mut book, &last);
            check::freezers(&client, &mut book);
            end(daemon, &client, &last);
        }
        Err(error) => book.contradictions.push(error),
    }
    // What was interrupted by a kill is rolled back, and said.
    let warnings = places.warnings().into_iter().filter(|warning| !warning.contains("was rolled back, and verified"));
    book.contradictions.extend(warnings.map(|warning| format!("the daemon warned: {warning}")));
    let unanswered = book.entries.iter().filter(|entry| entry.told == Told::Nothing).count();
    let is_about_files = |entry: &&Entry| matches!(entry.verb, Verb::PutBack(_) | Verb::Merge | Verb::ForkOwn);
    let is_done = |entry: &&Entry| matches!(entry.told, Told::Done { .. });
    let files = book.entries.iter().filter(is_about_files).filter(is_done).count();
    let is_tree = |uuid: Uuid| book.processes.iter().any(|(other, kind)| *other == uuid && *kind == Kind::Tree);
    let trees = book.entries.iter().filter(is_done).filter(|entry| is_tree(entry.uuid)).count();
    let summary = format!(
        "seed {}: {} processes, {} verbs, {files} of them done to files, {trees} to trees, {unanswered} unanswered, {} contradictions, {:.1} s",
        plan.seed,
        book.processes.len(),
        book.entries.len(),
        book.contradictions.len(),
        begun.elapsed().as_secs_f32()
    );
    if book.contradictions.is_empty() || plan.faults.is_some() {
        remove(places);
    } else {
        eprintln!("the files are in {}\n{}", places.root.display(), places.log_tail());
    }
    Verdict { contradictions: book.contradictions, summary }
}

/// The clients ask, the daemon dies now and then, and at the end once more. Hands back the daemon that is left, and what
/// it shows.
fn play(plan: Plan, places: &Places, client: &BlockingClient, ledger: &Ledger) -> Result<(Daemon, Shown), String> {
    let mut dice = Dice::new(plan.seed);
    let mut daemon = places.start();
    places.until_it_answers(&mut daemon)?;
    let left = AtomicUsize::new(plan.verbs);
    let (ring, acknowledged) = mpsc::channel();
    let daemon = std::thread::scope(|scope| {
        for _ in 0..plan.clients {
            let mut caller = Caller {
                client: HastyClient::new(&places.socket),
                dice: dice.split(),
                ledger,
                places,
                manners: plan.manners,
                left: &left,
                acknowledged: ring.clone(),
            };
            scope.spawn(move || caller.call());
        }
        drop(ring);
        kill_now_and_then(plan, places, ledger, daemon, &mut dice, &acknowledged)
    });
    let mut daemon = daemon;
    places.until_it_answers(&mut daemon)?;
    look_at_all(places, client, ledger);
    daemon.kill();
    let mut daemon = places.start();
    places.until_it_answers(&mut daemon)?;
    let last = settle(places, client).unwrap_or_else(|error| {
        ledger.contradiction(format!("after the last restart: {error}"));
        as_it_is(client)
    });
    Ok((daemon, last))
}

/// What every process is when nobody asks any more: whatever was not answered has been done by then, or never will be.
fn look_at_all(places: &Places, client: &BlockingClient, ledger: &Ledger) {
    let settled = settle(places, client);
    ledger.stopped();
    let sent = ledger.at(Instant::now());
    let shown = settled.unwrap_or_else(|error| {
        ledger.contradiction(format!("before the last restart: {error}"));
        as_it_is(client)
    });
    let uuids: Vec<Uuid> = ledger.lock().processes.iter().map(|(uuid, _)| *uuid).collect();
    for uuid in uuids {
        let seen = shown.get(&uuid).cloned().unwrap_or(Seen::Absent);
        ledger.answered(uuid, Verb::Look, sent, Instant::now(), Told::Saw(seen));
    }
}

/// Kills the daemon with -9 right after an acknowledgement, or a moment later.
fn kill_now_and_then(
    plan: Plan,
    places: &Places,
    ledger: &Ledger,
    mut daemon: Daemon,
    dice: &mut Dice,
    acknowledged: &Receiver<Acknowledged>,
) -> Daemon {
    // About half of the verbs are acknowledged.
    let part = (plan.verbs / 2 / (plan.kills + 1)).max(2) as u64;
    for _ in 0..plan.kills {
        let wait_for = dice.between(part / 2, part * 3 / 2);
        // Half of the time right after an end was promised: that is the promise which takes longest to keep.
        let promise = if dice.chance(50) { Acknowledged::End } else { Acknowledged::Change };
        let mut later = acknowledged.iter().skip(wait_for as usize);
        if !later.any(|promised| promised == promise) {
            break;
        }
        if dice.chance(30) {
            std::thread::sleep(Duration::from_micros(dice.between(0, 10_000)));
        }
        daemon.kill();
        ledger.stopped();
        daemon = places.start();
    }
    // Until every client has left.
    acknowledged.iter().for_each(drop);
    daemon
}

/// Ends everything, so that no session outlives its round.
fn end(daemon: Daemon, client: &BlockingClient, last: &Shown) {
    let begun = Instant::now();
    while begun.elapsed() < ENDS_WITHIN {
        let alive = as_it_is(client).into_iter().filter(|(_, seen)| *seen != Seen::Dead);
        let alive: Vec<Uuid> = alive.map(|(uuid, _)| uuid).collect();
        if alive.is_empty() {
            break;
        }
        for uuid in alive.iter().filter(|uuid| last.contains_key(uuid)) {
            let (id, request) = (uuid.to_string(), SignalRequest { signal: "KILL".into(), subtree: false });
            let _ = client.call(|client| client.signal(&id, &request));
        }
        std::thread::sleep(LOOK_EVERY);
    }
    // What it has to say about its end is no matter of this test.
    let _ = daemon.stop(client);
}

/// A shim may still be writing.
fn remove(places: Places) {
    let begun = Instant::now();
    while std::fs::remove_dir_all(&places.root).is_err() && begun.elapsed() < ENDS_WITHIN {
        std::thread::sleep(LOOK_EVERY);
    }
}
