//! One run: agents, people, a daemon that is killed again and again, and the verdict.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use relive_api::{ListQuery, Process, ResumeRequest};
use relive_core::{Body, ProcessStatus, SuspendReason, Uuid};

use crate::check;
use crate::daemon::{Daemon, Places};
use crate::dice::Dice;
use crate::drive::Driver;
use crate::left;
use crate::oracle::{Oracle, Trait};
use crate::scripts;

const DRIVERS: usize = 3;
const WATCHERS: usize = 2;
/// How long everything may take to finish after the last kill.
const FINISH_WITHIN: Duration = Duration::from_secs(120);

/// What a run is to be.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Plan {
    pub(crate) seed: u64,
    pub(crate) kills: u32,
    pub(crate) agents: usize,
    pub(crate) faults: Option<&'static str>,
}

/// What came of it.
#[derive(Debug, Default)]
pub(crate) struct Verdict {
    pub(crate) violations: Vec<String>,
    pub(crate) summary: String,
    pub(crate) slowest_start: Duration,
}

pub(crate) fn run(plan: Plan) -> Verdict {
    let begun = Instant::now();
    let mut dice = Dice::new(plan.seed);
    let collects = dice.chance(50);
    let ended_max = if collects { plan.agents as u32 } else { 10_000 };
    let places = Places::new(plan.faults, ended_max);
    scripts::write(&places);
    let (oracle, over, broken) = (Oracle::default(), AtomicBool::new(false), AtomicBool::new(false));
    let driver = |dice: Dice| Driver {
        client: places.client(),
        dice,
        oracle: &oracle,
        places: &places,
        over: &over,
        broken: &broken,
        processes_max: plan.agents * 3,
        collects,
    };
    let mut starts = Vec::new();
    std::thread::scope(|scope| {
        let mut daemon = places.start();
        if let Err(error) = places.until_it_answers(&mut daemon) {
            return oracle.violation(error);
        }
        let mut first = driver(dice.split());
        begin(&mut first, plan);
        for _ in 0..DRIVERS {
            let mut driver = driver(dice.split());
            scope.spawn(move || driver.drive());
        }
        for _ in 0..WATCHERS {
            let mut driver = driver(dice.split());
            scope.spawn(move || driver.watch());
        }
        let killed = kill_again_and_again(plan, &places, daemon, &mut dice, &mut starts);
        // Everybody who still asks is answered by the daemon that is left.
        over.store(true, Ordering::Relaxed);
        match killed {
            Ok(daemon) => {
                finish(&mut first);
                left::no_zombies(daemon.pid(), &oracle);
                if let Err(error) = daemon.stop(&places.client()) {
                    oracle.violation(error);
                }
                left::nothing(&places, &oracle);
            }
            Err((daemon, error)) => {
                oracle.violation(error);
                broken.store(true, Ordering::Relaxed);
                daemon.kill();
            }
        }
    });
    let mut known = std::mem::take(&mut *oracle.lock());
    let found = check::all(&places, &mut known);
    let slowest_start = starts.iter().max().copied().unwrap_or_default();
    let summary = format!(
        "seed {}: {} kills, {} acknowledged, {found}, slowest start {slowest_start:?}, {:.1} s",
        plan.seed,
        plan.kills,
        known.acknowledged,
        begun.elapsed().as_secs_f32()
    );
    let verdict = Verdict { violations: known.violations, summary, slowest_start };
    if verdict.violations.is_empty() || plan.faults.is_some() {
        places.remove();
    } else {
        eprintln!("the files are in {}\n{}", places.root.display(), places.log_tail());
    }
    verdict
}

fn begin(driver: &mut Driver<'_>, plan: Plan) {
    for _ in 0..plan.agents {
        driver.spawn();
    }
    if plan.faults.is_none() && driver.dice.chance(50) {
        // It is noticed when the daemon has lived for some seconds: in the end.
        driver.exec_with(Trait::StopsItsShim);
    }
}

/// Kills the daemon at random moments, many of them during its start; sometimes asks it to stop instead. Hands back
/// the daemon that lives at the end.
fn kill_again_and_again(
    plan: Plan,
    places: &Places,
    mut daemon: Daemon,
    dice: &mut Dice,
    starts: &mut Vec<Duration>,
) -> Result<Daemon, (Daemon, String)> {
    for kill in 0..plan.kills {
        let delay = if dice.chance(25) { dice.between(0, 60) } else { dice.between(60, 500) };
        if kill % 20 == 10 {
            match places.until_it_answers(&mut daemon) {
                Ok(_) => {}
                Err(error) => return Err((daemon, error)),
            }
            if let Err(error) = places.second_is_refused() {
                return Err((daemon, error));
            }
            if let Err(error) = daemon.stop(&places.client()) {
                return Err((places.start(), error));
            }
            daemon = places.start();
        }
        std::thread::sleep(Duration::from_millis(delay));
        daemon.kill();
        daemon = places.start();
        if delay > 250 {
            match places.until_it_answers(&mut daemon) {
                Ok(took) => starts.push(took),
                Err(error) => return Err((daemon, error)),
            }
        }
    }
    match places.until_it_answers(&mut daemon) {
        Ok(took) => starts.push(took),
        Err(error) => return Err((daemon, error)),
    }
    Ok(daemon)
}

/// Lets everything come to its end: what is paused, killed or in doubt is resumed.
fn finish(driver: &mut Driver<'_>) {
    let begun = Instant::now();
    // Whoever launches something first removes what those before left of their trying what the machine gives.
    driver.exec();
    let mut last = Vec::new();
    while begun.elapsed() < FINISH_WITHIN {
        last = current(driver);
        last.retain(|process| !is_completed(process));
        let Some(first) = last.first() else { break };
        for process in &last {
            let was_killed = matches!(process.status, Some(ProcessStatus::Killed { .. }));
            if process.suspend_reason == Some(SuspendReason::InDoubt) {
                driver.decide(process.uuid);
            } else if process.suspend_reason == Some(SuspendReason::Question) {
                driver.answer_one(process.uuid);
            } else if process.paused || was_killed {
                driver.resume_one(process.uuid, &ResumeRequest::default());
            }
            let trait_of = driver.oracle.lock().asked.get(&process.uuid).and_then(|asked| asked.trait_of);
            match trait_of {
                Some(Trait::Gated) => driver.proceed_one(process.uuid),
                Some(Trait::Listens) => driver.send_to(process.uuid),
                Some(Trait::Forges | Trait::StopsItsShim) | None => {}
            }
        }
        driver.wait_for(&first.uuid.to_string(), first.uuid, Duration::from_millis(500));
    }
    for process in &last {
        driver.oracle.violation(format!("a process did not complete: {process:?}"));
    }
    for process in current(driver) {
        driver.wait_for(&process.uuid.to_string(), process.uuid, Duration::from_secs(1));
        driver.acknowledge_one(process.uuid);
    }
}

/// Agents are completed; programs have ended, however that was.
fn is_completed(process: &Process) -> bool {
    match &process.exit {
        Some(exit) => exit.reason == "completed" || process.body == Body::Exec,
        None => false,
    }
}

/// Each process in its current incarnation.
fn current(driver: &Driver<'_>) -> Vec<Process> {
    let all = ListQuery { all: true, ..ListQuery::default() };
    let Some(Ok(list)) = driver.ask("ps -a", |client| client.list(&all)) else {
        driver.oracle.violation("no answer to ps -a".to_owned());
        return Vec::new();
    };
    let mut latest: HashMap<Uuid, Process> = HashMap::new();
    for process in list.processes {
        if latest.get(&process.uuid).is_none_or(|seen| seen.pid < process.pid) {
            latest.insert(process.uuid, process);
        }
    }
    latest.into_values().collect()
}
