//! A command with a person at its terminal.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::process::{Command, Stdio};

use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};

use crate::support::Ran;

/// Runs it with stdin and stderr on a terminal; when `question` has appeared there, `answer` is typed.
pub(crate) fn on_a_terminal(mut command: Command, question: &str, answer: &str) -> Ran {
    let person = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
    grantpt(&person).unwrap();
    unlockpt(&person).unwrap();
    let name = ptsname(&person, Vec::new()).unwrap();
    let terminal = File::options().read(true).write(true).open(name.to_str().unwrap()).unwrap();
    command.stdin(terminal.try_clone().unwrap()).stderr(terminal).stdout(Stdio::piped());
    let child = command.spawn().unwrap();
    // The command holds our end of the terminal as well; without it, reading ends when the child does.
    drop(command);
    let mut person = File::from(person);
    let (mut seen, mut answered) = (String::new(), false);
    let mut chunk = [0; 1024];
    // Linux ends a terminal that nobody holds any more with an error.
    while let Ok(count @ 1..) = person.read(&mut chunk) {
        seen.push_str(&String::from_utf8_lossy(&chunk[..count]));
        if !answered && seen.contains(question) {
            answered = true;
            person.write_all(answer.as_bytes()).unwrap();
        }
    }
    let output = child.wait_with_output().unwrap();
    Ran { code: output.status.code(), stdout: String::from_utf8(output.stdout).unwrap(), stderr: seen }
}

/// Runs it with its output on a terminal of this width, and returns what the terminal shows.
pub(crate) fn shown_on_a_terminal(mut command: Command, columns: u16) -> String {
    let person = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
    grantpt(&person).unwrap();
    unlockpt(&person).unwrap();
    let size = rustix::termios::Winsize { ws_row: 50, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
    rustix::termios::tcsetwinsize(&person, size).unwrap();
    let name = ptsname(&person, Vec::new()).unwrap();
    let terminal = File::options().read(true).write(true).open(name.to_str().unwrap()).unwrap();
    command.stdout(terminal.try_clone().unwrap()).stderr(terminal);
    let mut child = command.spawn().unwrap();
    drop(command);
    let mut person = File::from(person);
    let (mut shown, mut chunk) = (Vec::new(), [0; 1024]);
    while let Ok(count @ 1..) = person.read(&mut chunk) {
        shown.extend_from_slice(&chunk[..count]);
    }
    child.wait().unwrap();
    String::from_utf8(shown).unwrap().replace("\r\n", "\n")
}
