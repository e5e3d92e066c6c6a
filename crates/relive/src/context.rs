//! The context of every command: paths, output streams and their look.

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
    /// Prints data to stdout.
    pub(crate) fn print(&self, text: &str) -> Outcome<()> {
        Ok(crate::stdout::write(text.as_bytes())?)
    }

    pub(crate) fn print_line(&self, text: &str) -> Outcome<()> {
        self.print(&format!("{text}\n"))
    }

    /// Prints one document, or one line of a stream.
    pub(crate) fn print_json(&self, value: &impl Serialize) -> Outcome<()> {
        let text = serde_json::to_string(value)
            .map_err(|error| CommandError::internal("cannot write to stdout").because(error))?;
        self.print_line(&text)
    }

    /// Prints a message to stderr.
    pub(crate) fn say(&self, text: &str) {
        say(text);
    }

    /// Prints a message without a line break.
    pub(crate) fn say_on(&self, text: &str) {
        let _ = write!(io::stderr().lock(), "{text}");
    }

    /// Returns whether a person can answer a question.
    pub(crate) fn can_ask(&self) -> bool {
        io::stdin().is_terminal() && self.err.is_terminal
    }

    /// Asks for a line; `None` at the end of input.
    pub(crate) fn ask_line(&self, question: &str) -> Option<String> {
        let mut err = io::stderr().lock();
        let _ = write!(err, "{question}");
        let _ = err.flush();
        let mut answer = String::new();
        match io::BufRead::read_line(&mut io::stdin().lock(), &mut answer) {
            Ok(0) | Err(_) => None,
            Ok(_) => Some(answer.trim_end_matches('\n').to_owned()),
        }
    }

    /// Asks a question; everything except a yes, including the end of input, is a no.
    pub(crate) fn ask(&self, question: &str) -> bool {
        let mut err = io::stderr().lock();
        let _ = write!(err, "{question} [y/N] ");
        let _ = err.flush();
        let (is_yes, has_ended) = answer(&mut io::stdin().lock());
        if has_ended {
            // The terminal has shown no line break.
            let _ = writeln!(err);
        }
        is_yes
    }
}

/// Returns whether the answer is a yes, and whether the input ended instead of the line.
fn answer(input: &mut impl io::BufRead) -> (bool, bool) {
    let mut answer = String::new();
    match input.read_line(&mut answer) {
        Ok(_) => {
            let is_yes = matches!(answer.trim().to_ascii_lowercase().as_str(), "y" | "yes");
            (is_yes, !answer.ends_with('\n'))
        }
        Err(_) => (false, true),
    }
}

/// Prints a message to stderr. Nothing depends on it, so a failure is ignored.
pub(crate) fn say(text: &str) {
    let _ = writeln!(io::stderr().lock(), "{text}");
}

/// Returns a UUID for something that is about to be created.
pub(crate) fn new_uuid() -> Outcome<Uuid> {
    relive_client::new_uuid()
        .map_err(|error| CommandError::internal("the system provides no random numbers").because(error))
}

#[cfg(test)]
mod tests {
    #[test]
    fn only_a_yes_is_a_yes() {
        let check = |answer: &str, yes| assert_eq!(super::answer(&mut answer.as_bytes()).0, yes, "{answer:?}");
        check("y\n", true);
        check("Yes\n", true);
        check("\n", false);
        check("", false);
        check("no\n", false);
        check("yesterday\n", false);
    }
}
