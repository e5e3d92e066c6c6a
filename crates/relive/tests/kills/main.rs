//! Random SIGKILLs of the real daemon: nothing acknowledged is lost, and no write is repeated.
//!
//! `RELIVE_KILLS` is how often the daemon is killed in all (100), `RELIVE_SEED` repeats one run. A seed repeats the
//! choices, not the moments: those are the scheduler's too. The files of a run that found something stay.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]
#![expect(clippy::disallowed_methods, reason = "what a test writes need not survive")]

mod check;
mod cli_agent;
#[path = "../support/daemon.rs"]
mod daemon;
#[path = "../support/dice.rs"]
mod dice;
mod drive;
mod full;
mod launches;
mod left;
mod oracle;
mod programs;
mod run;
mod scripts;
mod thousand;
mod trees;
mod trees_resumed;

use std::time::Duration;

use dice::{Dice, fresh_seed, number};
use run::{Plan, run};

/// How many times a daemon is killed in one run.
const KILLS_A_RUN: u32 = 25;
/// A start takes at most so long, whatever the kill left behind.
const START_MAX: Duration = Duration::from_secs(10);

#[test]
fn nothing_acknowledged_is_lost_and_no_write_is_repeated() {
    let mut left = u32::try_from(number("RELIVE_KILLS").unwrap_or(100)).unwrap();
    let mut seed = number("RELIVE_SEED").unwrap_or_else(fresh_seed);
    while left > 0 {
        let kills = left.min(KILLS_A_RUN);
        left -= kills;
        println!("RELIVE_SEED={seed} RELIVE_KILLS={kills}");
        let mut dice = Dice::new(!seed);
        let agents = dice.between(8, 65) as usize;
        let verdict = run(Plan { seed, kills, agents, faults: None });
        println!("{}", verdict.summary);
        assert!(verdict.violations.is_empty(), "seed {seed}:\n{}", verdict.violations.join("\n"));
        assert!(verdict.slowest_start < START_MAX, "a start took {:?}", verdict.slowest_start);
        seed = dice.next() >> 16;
    }
}

/// A checker that cannot fail proves nothing: each switch that breaks the protocol turns it red.
#[test]
fn the_checker_can_fail() {
    for (faults, expected) in
        [("no-intent", "has no intent"), ("retry-all", "B: the effect"), ("retry-all", "B: the shell line")]
    {
        let mut seed = fresh_seed();
        let red = (0..6).any(|_| {
            seed += 1;
            let verdict = run(Plan { seed, kills: 5, agents: 12, faults: Some(faults) });
            println!("{faults}: {}", verdict.summary);
            let found = verdict.violations.iter().find(|text| text.contains(expected));
            println!("{faults}: {found:?}");
            found.is_some()
        });
        assert!(red, "{faults} was not noticed in 30 kills");
    }
}
