//! Commands of Relive that the dashboard runs: each is bounded in time and output, and so are all of them in number.

use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt as _};
use tokio::process::Command;
use tokio::sync::Semaphore;

use crate::actions;
use crate::state::{Finished, Output};

/// How much of a command's output is kept; it is ended where it writes more.
const OUTPUT_MAX: u64 = 256 << 10;
/// How long a command may run: what it asked for happens without it.
const TIME_MAX: Duration = Duration::from_secs(60);
/// How many may run at once.
const RUNNING_MAX: usize = 16;

/// Runs commands.
#[derive(Debug, Clone)]
pub(crate) struct Runner {
    program: &'static str,
    time_max: Duration,
    places: Arc<Semaphore>,
}

impl Default for Runner {
    fn default() -> Self {
        Self { program: "/proc/self/exe", time_max: TIME_MAX, places: Arc::new(Semaphore::new(RUNNING_MAX)) }
    }
}

/// How a command ended.
struct Ended {
    ok: bool,
    text: String,
}

impl Runner {
    /// Runs commands one after the other, until one fails; the text is of the last one that ran.
    pub(crate) async fn run(&self, commands: &[Vec<String>], output: Output) -> Finished {
        let mut ended = Ended { ok: true, text: String::new() };
        match self.places.try_acquire() {
            Ok(_place) => {
                for words in commands {
                    ended = self.run_one(words, &output).await;
                    if !ended.ok {
                        break;
                    }
                }
            }
            Err(_) => ended = failed(format!("not run: {RUNNING_MAX} commands are running")),
        }
        Finished { command: actions::shown(commands), ok: ended.ok, text: ended.text, output }
    }

    async fn run_one(&self, words: &[String], output: &Output) -> Ended {
        let mut command = Command::new(self.program);
        command.args(words).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
        let mut child = match command.spawn() {
            Ok(child) => child,
            Err(error) => return failed(error.to_string()),
        };
        let (mut out, mut err) = (Vec::new(), Vec::new());
        let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
        let ending = async {
            let reading = async { tokio::join!(read(stdout, &mut out), read(stderr, &mut err)) };
            reading.await;
            // One that has written too much gets no more read, and ends when it writes.
            child.wait().await
        };
        let status = tokio::time::timeout(self.time_max, ending).await;
        let cut = |bytes: &[u8]| if bytes.len() as u64 >= OUTPUT_MAX { "\n... the rest is not shown" } else { "" };
        let (ok, note) = match &status {
            Ok(Ok(status)) => (status.success() || !cut(&out).is_empty(), String::new()),
            Ok(Err(error)) => (false, error.to_string()),
            Err(_) => (false, format!("it was left after {} s", self.time_max.as_secs())),
        };
        // A command that acts prints at most PIDs, for scripts, and says what it did on stderr.
        let has_data = out.iter().any(|byte| !byte.is_ascii_digit() && *byte != b'\n');
        if let (Output::Plan { .. }, true) = (output, ok) {
            // All of it is for the person who is asked.
            out.append(&mut err);
        }
        let wants_data = has_data && matches!(output, Output::Window | Output::Plan { .. });
        let bytes = if err.is_empty() || wants_data && ok { &out } else { &err };
        let text = format!("{}{}", String::from_utf8_lossy(bytes), cut(bytes));
        Ended { ok, text: if note.is_empty() { text } else { format!("{note}\n{text}") } }
    }
}

fn failed(text: String) -> Ended {
    Ended { ok: false, text }
}

/// Reads at most as much as is kept. What is written after that fails.
async fn read(from: Option<impl AsyncRead + Unpin>, into: &mut Vec<u8>) {
    if let Some(from) = from {
        let _ = from.take(OUTPUT_MAX).read_to_end(into).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(script: &str, time_max: Duration) -> Finished {
        let runner = Runner { program: "/bin/sh", time_max, ..Runner::default() };
        let words = vec!["-c".to_owned(), script.to_owned()];
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(runner.run(&[words], Output::Window))
    }

    #[test]
    fn a_command_that_never_stops_writing_is_ended() {
        let finished = run("yes", TIME_MAX);
        assert!(finished.ok && finished.text.len() as u64 <= OUTPUT_MAX + 100, "{}", finished.text.len());
        assert!(finished.text.ends_with("the rest is not shown"));
    }

    #[test]
    fn a_command_that_never_ends_is_left_with_what_it_has_written() {
        let finished = run("echo first; exec sleep 1000", Duration::from_millis(300));
        assert!(!finished.ok && finished.text.starts_with("it was left after"), "{}", finished.text);
        assert!(finished.text.contains("first"), "{}", finished.text);
    }

    #[test]
    fn the_second_command_waits_for_the_first_to_succeed() {
        let check = |first: &str, expect: (bool, &str)| {
            let runner = Runner { program: "/bin/sh", ..Runner::default() };
            let commands = [first, "echo second"].map(|script| vec!["-c".to_owned(), script.to_owned()]);
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            let finished = runtime.block_on(runner.run(&commands, Output::StatusLine));
            assert_eq!((finished.ok, finished.text.as_str()), expect);
        };
        check("true", (true, "second\n"));
        check("echo no >&2; exit 3", (false, "no\n"));
    }
}
