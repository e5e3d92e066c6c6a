//! What is piped into `run`: context for the agent, or its intent.
//!
//! A script may run us with a standard input that is not meant for us and never ends. So a pipe that stays silent is left
//! alone after a moment, and said so; `-n` leaves it alone from the start, and `-i` reads it to its end.

use std::io::{self, IsTerminal as _};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::error::{CommandError, Outcome};

/// How much is read.
const READ_MAX: usize = 256 << 10;
/// How long a pipe may take to say anything.
const FIRST_WITHIN: Duration = Duration::from_secs(3);
/// How long it may be silent in between.
const SILENT_WITHIN: Duration = Duration::from_secs(30);

/// How patient we are with a pipe.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Patience {
    /// It may not be meant for us.
    Short,
    /// It is read to its end, however long that takes.
    Endless,
}

/// What was read.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Piped {
    pub text: String,
    /// Why that may not be all of it.
    pub cut: Option<Cut>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Cut {
    /// There is more than is read.
    TooLong,
    /// It fell silent, and has not ended.
    Silent,
}

/// Reads the standard input; `None` where it is a terminal or there is nothing in it.
pub(super) fn read(patience: Patience) -> Outcome<Option<Piped>> {
    let stdin = io::stdin();
    if stdin.is_terminal() {
        return Ok(None);
    }
    let cannot = |error: io::Error| {
        let error = CommandError::invalid("the standard input cannot be read").because(error);
        error.with_hint("relive run -n \"fix the failing test\"")
    };
    let (bytes, cut) = read_from(&stdin, patience).map_err(cannot)?;
    let not_text = |why: &str| {
        let error = CommandError::invalid(format!("the standard input is not text: it {why}"));
        error.with_hint("relive run -n \"fix the failing test\"")
    };
    if bytes.contains(&0) {
        return Err(not_text("has a NUL byte"));
    }
    let text = text_of(bytes, cut).ok_or_else(|| not_text("is not UTF-8"))?;
    Ok((!text.trim().is_empty() || cut == Some(Cut::Silent)).then_some(Piped { text, cut }))
}

/// Returns the text, without the beginning of a character that was cut; `None` if it is not UTF-8.
fn text_of(bytes: Vec<u8>, cut: Option<Cut>) -> Option<String> {
    String::from_utf8(bytes).map_or_else(
        |wrong| {
            let error = wrong.utf8_error();
            let mut whole = wrong.into_bytes();
            let is_cut = cut.is_some() && error.error_len().is_none();
            whole.truncate(error.valid_up_to());
            String::from_utf8(whole).ok().filter(|_| is_cut)
        },
        Some,
    )
}

fn read_from(input: &impl std::os::fd::AsFd, patience: Patience) -> io::Result<(Vec<u8>, Option<Cut>)> {
    let (mut bytes, mut buffer) = (Vec::new(), vec![0; 64 << 10]);
    let mut heard = Instant::now();
    loop {
        let limit = if bytes.is_empty() { FIRST_WITHIN } else { SILENT_WITHIN };
        let left = limit.saturating_sub(heard.elapsed());
        if patience == Patience::Short && left.is_zero() {
            return Ok((bytes, Some(Cut::Silent)));
        }
        let timeout = (patience == Patience::Short).then(|| Timespec {
            tv_sec: i64::try_from(left.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: left.subsec_nanos().into(),
        });
        match poll(&mut [PollFd::new(input, PollFlags::IN)], timeout.as_ref()) {
            Ok(0) | Err(rustix::io::Errno::INTR) => continue,
            Ok(_) => {}
            Err(error) => return Err(error.into()),
        }
        match rustix::io::read(input, &mut buffer) {
            Ok(0) => return Ok((bytes, None)),
            Ok(count) => bytes.extend_from_slice(&buffer[..count]),
            Err(rustix::io::Errno::INTR | rustix::io::Errno::AGAIN) => {}
            Err(error) => return Err(error.into()),
        }
        if bytes.len() > READ_MAX {
            bytes.truncate(READ_MAX);
            return Ok((bytes, Some(Cut::TooLong)));
        }
        heard = Instant::now();
    }
}

/// What a person is told about what was read.
pub(super) fn note(piped: &Piped) -> String {
    let bytes = piped.text.len();
    match piped.cut {
        None => format!("read {bytes} bytes of context from stdin (use -n to ignore stdin)"),
        Some(Cut::TooLong) => format!("read only the first {bytes} bytes of the standard input as context"),
        Some(Cut::Silent) if bytes == 0 => format!(
            "standard input is open, but nothing came for {} s: continuing without it (-n skips this, -i waits for its end)",
            FIRST_WITHIN.as_secs()
        ),
        Some(Cut::Silent) => format!(
            "nothing more came from standard input for {} s: continuing with {bytes} bytes (-i waits for its end)",
            SILENT_WITHIN.as_secs()
        ),
    }
}

/// Reads the intent of `run -`, to its end.
pub(super) fn intent() -> Outcome<String> {
    if io::stdin().is_terminal() {
        let error = CommandError::invalid("`run -` reads the intent from the standard input, which is a terminal");
        return Err(error.with_hint("relive run - < intent.md"));
    }
    match read(Patience::Endless)? {
        Some(Piped { cut: Some(_), .. }) => {
            let message = format!("the intent is longer than {READ_MAX} bytes");
            Err(CommandError::invalid(message).with_hint("relive run \"do what is piped in\" < FILE"))
        }
        Some(Piped { text, cut: None }) => Ok(text),
        None => Ok(String::new()),
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;
    use std::os::unix::net::UnixStream;

    use super::*;

    #[test]
    fn standard_input_is_read_up_to_a_limit() {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        theirs.write_all(b"a\nb").unwrap();
        drop(theirs);
        assert_eq!(read_from(&ours, Patience::Short).unwrap(), (b"a\nb".to_vec(), None));
        let zeros = std::fs::File::open("/dev/zero").unwrap();
        let (bytes, cut) = read_from(&zeros, Patience::Endless).unwrap();
        assert_eq!((bytes.len(), cut), (READ_MAX, Some(Cut::TooLong)));
    }

    #[test]
    fn only_a_cut_may_leave_a_part_of_a_character() {
        let text = |bytes: &[u8], cut| text_of(bytes.to_vec(), cut);
        assert_eq!(text("a\u{e9}".as_bytes(), None).as_deref(), Some("a\u{e9}"));
        assert_eq!(text(b"a\xc3", Some(Cut::TooLong)).as_deref(), Some("a"));
        assert_eq!(text(b"a\xc3", None), None);
        assert_eq!(text(b"a\xffb", Some(Cut::TooLong)), None);
    }

    #[test]
    fn a_pipe_that_never_says_anything_is_left_alone() {
        let (ours, _theirs) = UnixStream::pair().unwrap();
        assert_eq!(read_from(&ours, Patience::Short).unwrap(), (Vec::new(), Some(Cut::Silent)));
    }
}
