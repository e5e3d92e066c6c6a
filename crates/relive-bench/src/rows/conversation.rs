//! The memory of a daemon for one long conversation, next to the size of the conversation.

use std::fs;

use crate::Result;
use crate::daemon::{Daemon, Home, memory, peak};
use crate::options::Options;
use crate::place::Place;
use crate::runs::{self, Work};
use crate::table::{Mark, Row, kilobytes};

/// The size of each step: large, but still inside the journal.
const STEP_BYTES: usize = 32 << 10;
/// The most memory for each byte.
const BYTES_EACH_MAX: f64 = 2.5;

pub(super) fn measure(options: &Options, place: &Place) -> Result<Vec<Row>> {
    let root = place.directory("conversation")?;
    let (bytes, steps) = (options.conversation_bytes, options.conversation_bytes.div_ceil(STEP_BYTES));
    eprintln!("conversation: {} MB in {steps} steps", bytes >> 20);
    let turn = "  - calls: [{name: read, args: {path: note.txt}}]\n";
    let work = Work::new(root.join("work"), &format!("{turn}    repeat: {steps}\n"))?;
    fs::write(work.path().join("note.txt"), "a line that is as long as most.\n".repeat(STEP_BYTES / 32))?;
    let (_, daemon) = Daemon::start(&Home::new(root.join("home"))?)?;
    let (base, _) = memory(daemon.os_pid())?;
    runs::run(&daemon.client()?, &work)?;
    let more = peak(daemon.os_pid())?.saturating_sub(base);
    let (after, _) = memory(daemon.os_pid())?;
    eprintln!("conversation: {} resident after it has ended, {} before", kilobytes(after), kilobytes(base));
    #[expect(clippy::cast_precision_loss, reason = "a ratio is not exact")]
    let ratio = more as f64 / bytes as f64;
    Ok(vec![Row {
        name: format!("{} MB conversation: peak memory", bytes >> 20),
        ours: kilobytes(more),
        peer: format!("{}  said", kilobytes(bytes as u64)),
        ratio: ratio.into(),
        mark: Mark::AtMost(BYTES_EACH_MAX),
    }])
}
