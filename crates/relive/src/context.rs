//! What every command is given: where things are, how to write, whom to tell.

use std::io::{self, IsTerminal as _, Write as _};

use relive_api::Paths;
use relive_core::Uuid;
use serde::Serialize;

use crate::error::{CommandError, Outcome};
use crate::terminal::Look;

#[derive(Debug)]
pub(crate) struct Context {
    pub json: bool,
    pub out: Look,
    pub err: Look,
    pub paths: Paths,
}

impl Context {
    /// Data, on stdout.
    pub(crate) fn print(&self, text: &str) -> Outcome<()> {
        let mut out = io::stdout().lock();
        out.write_all(text.as_bytes())?;
        out.flush()?;
        Ok(())
    }

    pub(crate) fn print_line(&self, text: &str) -> Outcome<()> {
        self.print(&format!("{text}\n"))
    }

    /// One document, or one line of a stream.
    pub(crate) fn print_json(&self, value: &impl Serialize) -> Outcome<()> {
        let text = serde_json::to_string(value)
            .map_err(|error| CommandError::internal("cannot write the answer").because(error))?;
        self.print_line(&text)
    }

    /// Talk, on stderr.
    pub(crate) fn say(&self, text: &str) {
        say(text);
    }

    /// Talk without an end of line.
    pub(crate) fn say_on(&self, text: &str) {
        let _ = write!(io::stderr().lock(), "{text}");
    }

    /// Whether there is somebody who could answer a question.
    pub(crate) fn can_ask(&self) -> bool {
        io::stdin().is_terminal() && self.err.is_terminal
    }

    /// Asks; anything but a yes, the end of input too, is a no.
    pub(crate) fn ask(&self, question: &str) -> bool {
        let mut err = io::stderr().lock();
        let _ = write!(err, "{question} [y/N] ");
        let _ = err.flush();
        is_yes(&mut io::stdin().lock())
    }
}

fn is_yes(input: &mut impl io::BufRead) -> bool {
    let mut answer = String::new();
    match input.read_line(&mut answer) {
        Ok(_) => matches!(answer.trim().to_ascii_lowercase().as_str(), "y" | "yes"),
        Err(_) => false,
    }
}

/// Talk, on stderr. Nobody depends on it, so its failure is none.
pub(crate) fn say(text: &str) {
    let _ = writeln!(io::stderr().lock(), "{text}");
}

/// A name for something that is about to be created.
pub(crate) fn new_uuid() -> Outcome<Uuid> {
    relive_client::new_uuid().map_err(|error| CommandError::internal("no random numbers").because(error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_yes_is_a_yes() {
        let check = |answer: &str, yes| assert_eq!(is_yes(&mut answer.as_bytes()), yes, "{answer:?}");
        check("y\n", true);
        check("Yes\n", true);
        check("\n", false);
        check("", false);
        check("no\n", false);
        check("yesterday\n", false);
    }
}
