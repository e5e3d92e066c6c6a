//! Why a program could not be started, in words.

use relive_core::{Body, Pid};
use relive_session::exit::EndedBy;
use relive_session::stage::Failure;
use relive_types::program::quote;

use super::Attachment;
use crate::client::Client;

/// Says why a session has no exit code: with the name of the program, as a shell does, if it never ran.
pub(super) fn told(args: Attachment<'_>, pid: Pid, failure: &Failure, why: Option<EndedBy>) -> String {
    let not_run = not_run(args, failure).filter(|_| why.is_none());
    not_run.unwrap_or_else(|| format!("PID {pid}: {}", explain(failure, why)))
}

/// Returns what to type instead.
pub(super) async fn hint(client: &Client<'_>, args: Attachment<'_>, failure: &Failure) -> Option<String> {
    if ["memory.max", "cpu.max", "pids.max"].contains(&failure.stage.as_str()) {
        let doctor = "`relive doctor` shows why this limit cannot be enforced";
        return Some(format!("{doctor}; --allow-degraded runs the program without it"));
    }
    meant_process(client, args, failure).await
}

/// Says in words why a program could not be started.
fn cause(failure: &Failure) -> String {
    let Failure { stage, errno, .. } = failure;
    match (stage.as_str(), errno.as_str()) {
        ("execve", "ENOENT") => "no such file, or its interpreter does not exist".to_owned(),
        ("memory.max", _) => format!("this machine cannot limit its memory ({stage}: {errno})"),
        ("pids.max", _) => format!("this machine cannot limit its number of processes ({stage}: {errno})"),
        ("cpu.max", _) => format!("this machine cannot limit its processors ({stage}: {errno})"),
        ("execve", "EACCES") => "permission denied".to_owned(),
        ("execve", "ENOEXEC") => "it is not in a format that can be executed".to_owned(),
        ("clone3" | "fork", "EAGAIN") => {
            "no further process can be started: its limit (`--pids`), or that of the user, is reached".to_owned()
        }
        ("chdir", "ENOENT") => "its working directory does not exist".to_owned(),
        ("enter", "ESRCH") => "the session that it was to enter has ended".to_owned(),
        // Its cause is a sentence of its own.
        ("isolation", sentence) => sentence.to_owned(),
        _ => format!("{stage} failed with {errno}"),
    }
}

/// Says why a program cannot be run as a shell does, with its name in front.
fn not_run(args: Attachment<'_>, failure: &Failure) -> Option<String> {
    let program = args.argv.first()?.to_string_lossy();
    let why = match (failure.stage.as_str(), failure.errno.as_str()) {
        ("execve", "ENOENT") if super::is_name(args.argv) => "command not found".to_owned(),
        ("execve", _) => cause(failure),
        _ => return None,
    };
    Some(format!("{program}: {why}"))
}

/// Returns the command for who typed the name of a process where a program belongs, as with `docker exec NAME CMD`.
async fn meant_process(client: &Client<'_>, args: Attachment<'_>, failure: &Failure) -> Option<String> {
    let is_missing = (failure.stage.as_str(), failure.errno.as_str()) == ("execve", "ENOENT");
    let [name, command @ ..] = args.argv else { return None };
    if args.command != "exec" || !is_missing || command.is_empty() {
        return None;
    }
    let process = std::ops::Deref::deref(client).process(name.to_str()?).await.ok()?;
    // What this command has started itself has no such name.
    (process.dead_at.is_none() && process.body == Body::Exec).then(|| {
        let tty = if args.tty { "-t " } else { "" };
        format!("relive enter {tty}{} -- {}", quote(&name.to_string_lossy()), super::command_line(command))
    })
}

/// Says why a session has no exit code.
fn explain(failure: &Failure, why: Option<EndedBy>) -> String {
    match why {
        Some(EndedBy::ShimLost) => "its shim, the process above it, was lost, and the program was killed".to_owned(),
        Some(EndedBy::HostLost) => "the machine went down while the program ran".to_owned(),
        Some(EndedBy::Version) => "its shim could not be used, and the program was killed".to_owned(),
        Some(EndedBy::Oom | EndedBy::Abort | EndedBy::Kill | EndedBy::Signal) | None => {
            format!("the program cannot be run: {}", cause(failure))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_that_cannot_be_run_is_named() {
        let check = |program: &str, stage: &str, errno: &str, expect: Option<&str>| {
            let argv = [std::ffi::OsString::from(program)];
            let detach_key = crate::terminal::key::parse_key(crate::terminal::key::DETACH).unwrap();
            let (tty, no_input) = (false, false);
            let args =
                Attachment { command: "exec", detach: false, tty, no_input, gate: false, detach_key, argv: &argv };
            let failure = Failure { stage: stage.to_owned(), errno: errno.to_owned(), code: 1 };
            assert_eq!(not_run(args, &failure).as_deref(), expect);
        };
        check("nosuchprog", "execve", "ENOENT", Some("nosuchprog: command not found"));
        check("./no", "execve", "ENOENT", Some("./no: no such file, or its interpreter does not exist"));
        check("/etc/passwd", "execve", "EACCES", Some("/etc/passwd: permission denied"));
        check("true", "memory.max", "ENOENT", None);
    }

    #[test]
    fn a_lost_program_is_not_called_one_that_cannot_be_run() {
        let check = |stage: &str, errno: &str, why, expect: &str| {
            let failure = Failure { stage: stage.to_owned(), errno: errno.to_owned(), code: 1 };
            assert_eq!(explain(&failure, why), expect);
        };
        let lost = "its shim, the process above it, was lost, and the program was killed";
        check("shim", "ESRCH", Some(EndedBy::ShimLost), lost);
        check("boot", "EHOSTDOWN", Some(EndedBy::HostLost), "the machine went down while the program ran");
        check("execve", "EACCES", None, "the program cannot be run: permission denied");
    }
}
