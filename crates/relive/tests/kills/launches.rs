//! The daemon dies while it launches a program.

use std::fs;
use std::time::Duration;

use relive_core::ProcessStatus;

use crate::daemon::Places;
use crate::dice::{Dice, fresh_seed, number};
use crate::left;
use crate::oracle::Oracle;
use crate::programs::{command, request};

/// The request takes a few milliseconds.
const KILL_WITHIN_MS: u64 = 30;

/// `RELIVE_LAUNCHES` is how many (15).
#[test]
fn a_program_whose_launch_was_cut_off_is_the_same_one_when_it_is_asked_for_again() {
    let launches = number("RELIVE_LAUNCHES").unwrap_or(15);
    let seed = number("RELIVE_SEED").unwrap_or_else(fresh_seed);
    println!("RELIVE_SEED={seed}");
    let (places, oracle, mut dice) = (Places::new(None, 10_000), Oracle::default(), Dice::new(seed));
    let (client, mut daemon) = (places.client_that_asks_once(), places.start());
    places.until_it_answers(&mut daemon).unwrap();
    let mut uuids = Vec::new();
    for launch in 0..launches {
        let (uuid, code) = (dice.uuid(), launch % 7);
        let request = request(&places, uuid, &command(&places, code, false, [0, 20]));
        let first = std::thread::scope(|scope| {
            let first = scope.spawn(|| client.call(|client| client.exec(&request)));
            std::thread::sleep(Duration::from_millis(dice.between(0, KILL_WITHIN_MS)));
            daemon.kill();
            first.join().unwrap()
        });
        daemon = places.start();
        places.until_it_answers(&mut daemon).unwrap();
        let again = client.call(|client| client.exec(&request)).unwrap();
        if let Ok(first) = first {
            assert_eq!(first.uuid, again.uuid);
        }
        let id = uuid.to_string();
        let answer = client.call(|client| client.wait_for_end(&id)).unwrap();
        assert_eq!(answer.status, Some(ProcessStatus::Exited { code: code as i32 }), "{answer:?}");
        oracle.exists(uuid, again.pid);
        uuids.push(id);
    }
    let lines = fs::read_to_string(&places.lines).unwrap();
    for uuid in &uuids {
        assert_eq!(lines.lines().filter(|line| line.contains(uuid)).count(), 1, "{uuid} ran once:\n{lines}");
    }
    left::no_zombies(daemon.pid(), &oracle);
    daemon.stop(&client).unwrap();
    left::nothing(&places, &oracle);
    assert_eq!(oracle.lock().violations, Vec::<String>::new());
    places.remove();
}
