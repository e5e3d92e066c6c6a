//! Torture of the seam between clients, the table and the disk: what was acknowledged is never contradicted.
//!
//! `RELIVE_VERBS` is how many verbs are sent in all (2,000), `RELIVE_SEED` repeats one round. A seed repeats the choices,
//! not the moments: those are the scheduler's too. The files of a round that found something stay.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]
#![expect(clippy::disallowed_methods, reason = "what a test writes need not survive")]

mod caller;
mod check;
#[path = "../support/daemon.rs"]
#[expect(dead_code, reason = "other targets use the rest")]
mod daemon;
#[path = "../support/dice.rs"]
mod dice;
mod explain;
#[path = "../support/freezer.rs"]
mod freezer;
#[path = "../support/hasty.rs"]
#[expect(dead_code, reason = "other targets use the rest")]
mod hasty;
mod ledger;
mod model;
mod observe;
mod round;
mod scripts;
mod verb;

use caller::Manners;
use dice::{Dice, fresh_seed, number};
use round::{Plan, round};

const VERBS_A_ROUND: usize = 100;
/// How many rounds a broken daemon may survive unnoticed.
const ROUNDS_TO_NOTICE: u64 = 8;

fn wild(seed: u64, verbs: usize, faults: Option<&'static str>) -> Plan {
    Plan { seed, verbs, clients: 4, manners: Manners::Wild, kills: 2, faults }
}

#[test]
fn acknowledged_verbs_are_never_contradicted() {
    let mut left = usize::try_from(number("RELIVE_VERBS").unwrap_or(2_000)).unwrap();
    let mut seed = number("RELIVE_SEED").unwrap_or_else(fresh_seed);
    while left > 0 {
        let verbs = left.min(VERBS_A_ROUND);
        left -= verbs;
        println!("RELIVE_SEED={seed} RELIVE_VERBS={verbs}");
        let verdict = round(wild(seed, verbs, None));
        println!("{}", verdict.summary);
        assert!(verdict.contradictions.is_empty(), "seed {seed}:\n{}", verdict.contradictions.join("\n"));
        seed = Dice::new(!seed).next() >> 16;
    }
}

/// One client that waits for every answer, and a daemon that lives until it has them: if this finds something, a verb is
/// wrong by itself, or the model is.
#[test]
fn a_single_client_finds_no_contradiction() {
    let seed = number("RELIVE_SEED").unwrap_or_else(fresh_seed);
    println!("RELIVE_SEED={seed}");
    let plan = Plan { seed, verbs: VERBS_A_ROUND, clients: 1, manners: Manners::Calm, kills: 0, faults: None };
    let verdict = round(plan);
    println!("{}", verdict.summary);
    assert!(verdict.contradictions.is_empty(), "seed {seed}:\n{}", verdict.contradictions.join("\n"));
}

/// A checker that cannot fail proves nothing: each switch that breaks the protocol turns it red.
#[test]
fn each_fault_switch_makes_the_torture_fail() {
    for faults in ["inline-verbs", "ack-before-sync", "no-signalled", "publish-first"] {
        let seed = fresh_seed();
        let red = (0..ROUNDS_TO_NOTICE).any(|number| {
            let verdict = round(wild(seed + number, VERBS_A_ROUND, Some(faults)));
            println!("{faults}: {}", verdict.summary);
            println!("{faults}: {:?}", verdict.contradictions.first());
            !verdict.contradictions.is_empty()
        });
        assert!(red, "{faults} was not noticed in {ROUNDS_TO_NOTICE} rounds");
    }
}
