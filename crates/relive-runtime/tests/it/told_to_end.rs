//! Verbs on a process that was told to end and has not: it hears nothing any more, and nobody is told that it did.

use futures_util::future::join;
use relive_api::Created;
use relive_core::ErrorCode;

use crate::world::{Daemon, PAUSE_NOW, World, message, resume, signal};

/// Kills a process and asks for a verb right after, until the verb's turn came before the body had ended, and returns its
/// answer. `came_late` tells an answer of the ended process.
fn after_kill<T>(
    daemon: &Daemon,
    world: &World,
    verb: impl AsyncFn(&str) -> T,
    came_late: impl Fn(&Created, &T) -> bool,
) -> (Created, T) {
    for _ in 0..100 {
        let process = daemon.run_hanging(world);
        let id = process.uuid.to_string();
        let (killed, answer) = daemon.block(join(daemon.runtime.signal(&id, signal("KILL"), None), verb(&id)));
        assert_eq!(killed.unwrap().affected, 1);
        if !came_late(&process, &answer) {
            return (process, answer);
        }
    }
    panic!("every process had ended before the verb's turn");
}

#[test]
fn a_resume_is_refused() {
    let world = World::new();
    let daemon = world.start();
    let mut with_input = resume();
    with_input.input = Some("go".to_owned());
    for asked in [resume(), with_input] {
        let verb = async |id: &str| daemon.runtime.resume(id, asked.clone(), None).await;
        let new_incarnation = |process: &Created, answer: &Result<_, _>| {
            let resumed: Option<&relive_api::Resumed> = answer.as_ref().ok();
            resumed.is_some_and(|resumed| resumed.pid != process.pid)
        };
        let (process, answer) = after_kill(&daemon, &world, verb, new_incarnation);
        let refused: relive_runtime::Error = answer.unwrap_err();
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
    let verb = async |id: &str| daemon.runtime.send(id, message("m", "hello")).await.unwrap_err();
    let (process, refused) =
        after_kill(&daemon, &world, verb, |_, refused| !refused.to_string().contains("is being ended"));
    assert_eq!(refused.code(), ErrorCode::Conflict);
    let expected = format!("PID {} is being ended by SIGKILL and receives no messages", process.pid);
    assert_eq!(refused.to_string(), expected);
}

#[test]
fn a_pause_says_that_it_is_being_ended() {
    let world = World::new();
    let daemon = world.start();
    let verb = async |id: &str| daemon.runtime.pause(id, PAUSE_NOW, None).await;
    let has_ended = |_: &Created, answer: &Result<relive_api::Affected, relive_runtime::Error>| match answer {
        Ok(answer) => !answer.note.as_ref().is_some_and(|note| note.contains("is being ended")),
        Err(_) => true,
    };
    let (process, answer) = after_kill(&daemon, &world, verb, has_ended);
    let note = format!("PID {} is being ended by SIGKILL: nothing to do", process.pid);
    let answer = answer.unwrap();
    assert_eq!((answer.affected, answer.note), (0, Some(note)));
}
