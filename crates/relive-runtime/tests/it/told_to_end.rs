//! Verbs on a process that was told to end and has not: it hears nothing any more, and nobody is told that it did.

use futures_util::future::join;
use relive_core::ErrorCode;

use crate::world::{Daemon, PAUSE_NOW, World, message, resume, signal};

/// Kills a process and asks for a verb right after, whose turn comes before the body can end.
fn after_kill<T>(daemon: &Daemon, id: &str, verb: impl Future<Output = T>) -> T {
    let (killed, answer) = daemon.block(join(daemon.runtime.signal(id, signal("KILL"), None), verb));
    assert_eq!(killed.unwrap().affected, 1);
    answer
}

#[test]
fn a_resume_is_refused() {
    let world = World::new();
    let daemon = world.start();
    let mut with_input = resume();
    with_input.input = Some("go".to_owned());
    for asked in [resume(), with_input] {
        let process = daemon.run_hanging(&world);
        let id = process.uuid.to_string();
        let refused = after_kill(&daemon, &id, daemon.runtime.resume(&id, asked.clone(), None)).unwrap_err();
        assert_eq!(refused.code(), ErrorCode::Conflict);
        assert_eq!(refused.to_string(), format!("PID {} is being ended by SIGKILL", process.pid));
        daemon.wait(process.uuid);
        assert_eq!(world.of_kind(process.uuid, "input").len(), 1, "nothing was recorded that nobody hears");
        assert!(daemon.resume(process.uuid, asked, None).changed, "the hint works");
    }
}

#[test]
fn a_message_is_refused() {
    let world = World::new();
    let daemon = world.start();
    let process = daemon.run_hanging(&world);
    let id = process.uuid.to_string();
    let refused = after_kill(&daemon, &id, daemon.runtime.send(&id, message("m", "hello"))).unwrap_err();
    assert_eq!(refused.code(), ErrorCode::Conflict);
    let expected = format!("PID {} is being ended by SIGKILL and receives no messages", process.pid);
    assert_eq!(refused.to_string(), expected);
}

#[test]
fn a_pause_says_that_it_is_being_ended() {
    let world = World::new();
    let daemon = world.start();
    let process = daemon.run_hanging(&world);
    let id = process.uuid.to_string();
    let answer = after_kill(&daemon, &id, daemon.runtime.pause(&id, PAUSE_NOW, None)).unwrap();
    let note = format!("PID {} is being ended by SIGKILL: nothing to do", process.pid);
    assert_eq!((answer.affected, answer.note), (0, Some(note)));
}
