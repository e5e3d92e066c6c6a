//! A disk that is full or fails: a verb is refused and nothing has changed, or it is acknowledged and holds.

use std::sync::Arc;

use relive_core::{SuspendReason, Uuid};
use relive_journal::Disk;
use relive_journal::faults::{Faults, Injection};

use crate::world::{Daemon, PAUSE_NOW, World, is_of, mask, message, resume, signal};

const EIO: i32 = 5;
const ENOSPC: i32 = 28;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Verb {
    Send,
    Mask,
    Pause,
    Resume,
    Kill,
}

const REQUEST: &str = "request-1";

/// Asks for a verb, and returns whether it was acknowledged.
fn ask(daemon: &Daemon, verb: Verb, uuid: Uuid) -> bool {
    let (id, request) = (uuid.to_string(), Some(REQUEST.to_owned()));
    match verb {
        Verb::Send => daemon.block(daemon.runtime.send(&id, message(REQUEST, "hello"))).is_ok(),
        Verb::Mask => daemon.block(daemon.runtime.set_signal_mask(&id, mask(&["INT"], &[]), request)).is_ok(),
        Verb::Pause => daemon.block(daemon.runtime.pause(&id, PAUSE_NOW, request)).is_ok(),
        Verb::Resume => daemon.block(daemon.runtime.resume(&id, resume(), request)).is_ok(),
        Verb::Kill => daemon.block(daemon.runtime.signal(&id, signal("KILL"), request)).is_ok(),
    }
}

fn is_recorded(world: &World, uuid: Uuid) -> bool {
    world.records(uuid).iter().any(|record| is_of(record, REQUEST))
}

/// Everything that `ps` shows of a process and a verb may change.
fn shown(daemon: &Daemon, uuid: Uuid) -> Option<(String, Option<SuspendReason>, Option<relive_core::Signal>)> {
    daemon.listed(uuid).map(|shown| (shown.display, shown.suspend_reason, shown.ending))
}

/// Asks for a verb on a process of an earlier daemon, once for each change of the disk that can fail. Returns the
/// changes at which it was refused.
fn sweep_suspended(verb: Verb, errno: i32) -> Vec<String> {
    let mut refused = Vec::new();
    for at in 1.. {
        let world = World::new();
        let uuid = world.start().run_suspended(&world).uuid;
        let faults = world.faults(Injection::Fail(at, errno));
        let Ok(daemon) = world.start_on(Disk::with_faults(Arc::clone(&faults))) else { continue };
        if faults.injected().is_some() {
            // The start got over it: that is not this test's.
            continue;
        }
        let before = shown(&daemon, uuid);
        let acknowledged = ask(&daemon, verb, uuid);
        let Some(change) = faults.injected() else { return refused };
        if !acknowledged {
            assert_eq!(shown(&daemon, uuid), before, "{verb:?}, {change}: the table is unchanged");
            refused.push(change);
        }
        drop(daemon);
        let daemon = world.start();
        let expected = match (acknowledged, verb) {
            (true, Verb::Kill) => "dead",
            (true, Verb::Resume) => "running",
            (true, Verb::Send | Verb::Mask | Verb::Pause) | (false, _) => "suspended",
        };
        if acknowledged {
            assert!(is_recorded(&world, uuid), "{verb:?} was acknowledged");
            daemon.until_display(uuid, expected);
        } else if !is_recorded(&world, uuid) {
            assert_eq!(daemon.display(uuid), expected, "{verb:?} was refused and not recorded");
        }
    }
    refused
}

/// Checks that a verb was refused where its record could not be written, and where it could not be synced.
fn check_suspended(verb: Verb) {
    for errno in [EIO, ENOSPC] {
        let refused = sweep_suspended(verb, errno);
        let at = |what: &str| refused.iter().any(|change| change.starts_with(what) && change.contains("steps.jsonl"));
        // A verb that meets a full disk is written with the room of the reserve; a message is not worth that.
        let reserve = errno == ENOSPC && verb != Verb::Send;
        assert!((reserve || at("write")) && at("sync"), "{verb:?}: {refused:?}");
    }
}

#[test]
fn a_message_that_cannot_be_recorded_is_refused() {
    check_suspended(Verb::Send);
}

#[test]
fn a_signal_mask_that_cannot_be_recorded_is_refused_and_does_not_hold() {
    check_suspended(Verb::Mask);
}

#[test]
fn a_resume_that_cannot_be_recorded_is_refused_and_the_process_stays_suspended() {
    check_suspended(Verb::Resume);
}

#[test]
fn a_kill_of_a_suspended_process_that_cannot_be_recorded_is_refused() {
    check_suspended(Verb::Kill);
}

/// Runs an agent on a disk whose `at`-th change fails, until its model was asked or it stands still; nothing if it
/// cannot even be created.
fn run_on(world: &World, injection: Injection) -> Option<(Daemon, Arc<Faults>, Uuid)> {
    let faults = world.faults(injection);
    let daemon = world.start_on(Disk::with_faults(Arc::clone(&faults))).ok()?;
    let uuid = daemon.block(daemon.runtime.run(world.hanging())).ok()?.uuid;
    daemon.until("it asks or stands still", || {
        let shown = daemon.listed(uuid).unwrap();
        (!world.of_kind(uuid, "model_started").is_empty() || shown.paused).then_some(())
    });
    Some((daemon, faults, uuid))
}

/// Asks for a verb on an agent that runs, once for each change of the disk that can fail from its first model call on,
/// and lets `refused` look at what became of the process where the verb was refused.
fn sweep_running(verb: Verb, errno: i32, refused: impl Fn(&World, &Daemon, Uuid, &str)) {
    let first = run_on(&World::new(), Injection::None).unwrap().1.count();
    let mut met = 0;
    // Events and records may share a write or not, so the first change is not always the same.
    for at in first.saturating_sub(4).. {
        let world = World::new();
        let Some((daemon, faults, uuid)) = run_on(&world, Injection::Fail(at, errno)) else { continue };
        if faults.injected().is_some() {
            continue;
        }
        let acknowledged = ask(&daemon, verb, uuid);
        let Some(change) = faults.injected() else { break };
        if !acknowledged {
            met += 1;
            refused(&world, &daemon, uuid, &change);
        }
        drop(daemon);
        if acknowledged {
            assert!(is_recorded(&world, uuid), "{verb:?} was acknowledged, {change}");
            let daemon = world.start();
            match verb {
                Verb::Kill => daemon.until_display(uuid, "dead"),
                Verb::Pause => daemon.until_display(uuid, "suspended"),
                Verb::Send | Verb::Mask | Verb::Resume => daemon.until_display(uuid, "running"),
            }
        }
    }
    assert!(met >= 1, "{verb:?}, {errno}: some change was refused");
}

/// Returns why a process was suspended that could not be recorded any more.
fn reason_of(errno: i32) -> SuspendReason {
    if errno == ENOSPC { SuspendReason::DiskFull } else { SuspendReason::IoError }
}

#[test]
fn a_pause_that_cannot_be_recorded_is_refused_and_the_process_runs_on() {
    for errno in [EIO, ENOSPC] {
        sweep_running(Verb::Pause, errno, |world, daemon, uuid, change| {
            let (display, reason, _) = shown(daemon, uuid).unwrap();
            assert_eq!((display.as_str(), reason), ("running", None), "{change}");
            assert!(change.starts_with("sync") || !is_recorded(world, uuid), "{change}");
        });
    }
}

#[test]
fn a_kill_that_cannot_be_recorded_is_refused_and_still_stops_the_body() {
    for errno in [EIO, ENOSPC] {
        sweep_running(Verb::Kill, errno, |_, daemon, uuid, change| {
            // Its end is recorded where that is possible again. It does nothing any more in either case.
            // A sync that failed is not made good by another, whatever made it fail.
            let reason = if change.starts_with("sync") { SuspendReason::IoError } else { reason_of(errno) };
            daemon.until(&format!("it ended or stands still, {change}"), || match daemon.listed(uuid) {
                None => Some(()),
                Some(shown) => (shown.suspend_reason == Some(reason)).then_some(()),
            });
            daemon.until_at_rest(uuid);
        });
    }
}

#[test]
fn an_agent_whose_records_cannot_be_written_is_suspended_and_no_other_is() {
    for errno in [EIO, ENOSPC] {
        let mut met = false;
        // The first writes are those of the request, which is refused when they fail.
        for at in 1.. {
            let world = World::new();
            let injection = Injection::FailWriteTo("steps.jsonl", at, errno);
            let Some((daemon, faults, uuid)) = run_on(&world, injection) else { continue };
            if faults.injected().is_none() {
                break;
            }
            met = true;
            daemon.until_display(uuid, "suspended");
            assert_eq!(daemon.listed(uuid).unwrap().suspend_reason, Some(reason_of(errno)));
            let other = daemon.run(world.hanging());
            daemon.until_records(&world, other.uuid, "model_started", 1);
        }
        assert!(met, "a record of the body failed");
    }
}

/// With no reserve to give back: whatever of it fails first.
#[test]
fn a_process_that_cannot_be_created_on_a_full_disk_is_refused_with_a_hint() {
    let check = |what: &str, refused: relive_runtime::Error| {
        assert_eq!(refused.code(), relive_core::ErrorCode::Exhausted, "{what}: {refused:?}");
        let hint = refused.hint().unwrap_or_default();
        assert!(hint.contains("relive gc"), "{what}: {refused:?}: {hint}");
    };
    let world = World::new();
    let faults = world.faults(Injection::None);
    let daemon = world.start_on(Disk::with_faults(Arc::clone(&faults))).unwrap();
    let source = daemon.run_suspended(&world);
    faults.fill_up(relive_journal::faults::Full::Always);
    check("run", daemon.block(daemon.runtime.run(world.hanging())).unwrap_err());
    let mut fork = resume();
    fork.fork = Some(crate::world::new_uuid());
    check("fork", daemon.block(daemon.runtime.resume(&source.uuid.to_string(), fork.clone(), None)).unwrap_err());
    drop(daemon);
    // And wherever else it may be full.
    let mut refused = 0;
    for at in 1.. {
        let faults = world.faults(Injection::Fail(at, ENOSPC));
        let Ok(daemon) = world.start_on(Disk::with_faults(Arc::clone(&faults))) else { continue };
        if faults.injected().is_some() {
            continue;
        }
        let run = daemon.block(daemon.runtime.run(world.hanging()));
        let Some(change) = faults.injected() else { break };
        if let Err(error) = run {
            check(&change, error);
            refused += 1;
        }
    }
    assert!(refused > 3, "{refused}");
}
