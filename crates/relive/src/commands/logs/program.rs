//! Shows the output of a program from its session's log: on the original streams, byte for byte; with timestamps line
//! by line; with `--json` one object per piece.

use std::collections::VecDeque;
use std::io;
use std::path::Path;

use relive_api::{Process, Session};
use relive_session::SessionDirectory;
use relive_session::log::{BEGINNING, Item};

use super::Args;
use super::printer::{Form, Piece, Printer};
use crate::client::refuse_output;
use crate::context::Context;
use crate::error::Outcome;
use crate::session::output::{MissingOutput, Output, open_log, say_gap, unreadable, write};
use crate::session::{self, Opened};

pub(super) async fn run(context: &Context, args: &Args, process: &Process, session: &Session) -> Outcome<u8> {
    refuse_output(&context.paths, &format!("PID {}", process.pid))?;
    let folder = Path::new(&session.folder);
    let form = match (context.json, args.clock()) {
        (true, _) => Form::Json { pid: process.pid, node: args.node.clone() },
        (false, Some(clock)) => Form::Timestamps(clock),
        (false, None) => Form::Plain,
    };
    let since = args.since.map_or(0, |since| u64::try_from(since.as_millisecond()).unwrap_or(0));
    let from = match args.lines {
        Some(lines) => show_last(folder, lines, &form, since)?,
        None => 0,
    };
    let mut printer = Printer::new(form.clone()).with_whole_lines(args.whole_lines);
    let mut output = Output::start(folder, from, move |item| {
        let pieces = match item {
            Some(item) if is_before(&item, since) => Vec::new(),
            Some(item) => {
                warn_of_gap(&item, &form);
                printer.pieces(item)
            }
            None => printer.rest(),
        };
        pieces.iter().try_for_each(show)
    })
    .map_err(unreadable)?;
    if args.follow
        && let Opened::Live(connection) = session::open(&session.folder).await?
    {
        let mut seen = connection.seen();
        seen.mark_changed();
        loop {
            tokio::select! {
                // The reader of this command's output is gone.
                shown = output.finished() => return Ok(shown.map(|()| 0)?),
                changed = seen.changed() => {
                    let now = seen.borrow_and_update().clone();
                    if changed.is_err() || now.ended.is_some() || now.gone {
                        break;
                    }
                    output.grown();
                }
            }
        }
    }
    output.end();
    output.finished().await?;
    let shown = *output.shown().borrow();
    say_lost(context, folder, shown);
    Ok(0)
}

/// Reports at the end of the output that some of it is missing at an unknown place.
fn say_lost(context: &Context, folder: &Path, shown: u64) {
    let record = SessionDirectory::open(folder).and_then(|folder| folder.read_exit());
    let Ok(Some(record)) = record else { return };
    if let Some(missing) = MissingOutput::of_record(&record) {
        context.say(missing.after_output());
    }
    if let missing @ 1.. = record.log_end.saturating_sub(shown.max(BEGINNING)) {
        context.say(&format!("the last {missing} bytes of the log are missing: somebody has cut it off"));
    }
}

fn show(piece: &Piece) -> io::Result<()> {
    write(piece.stream, &piece.bytes)
}

/// Whether a piece was printed before that moment, in milliseconds.
fn is_before(item: &Item, since: u64) -> bool {
    match item {
        Item::Chunk(chunk) => chunk.at_ms < since,
        // Nobody knows when.
        Item::Gap { .. } => since > 0,
    }
}

fn warn_of_gap(item: &Item, form: &Form) {
    match (item, form) {
        (Item::Gap { from, to }, Form::Plain | Form::Timestamps(_)) => say_gap(*from, *to),
        (Item::Gap { .. }, Form::Json { .. }) | (Item::Chunk(_), _) => {}
    }
}

/// Shows the last lines, or objects. Returns where the log continues after them.
fn show_last(folder: &Path, count: usize, form: &Form, since: u64) -> Outcome<u64> {
    let mut printer = Printer::by_lines(form.clone());
    let mut reader = open_log(folder, 0).map_err(unreadable)?;
    let mut kept = VecDeque::new();
    let mut from = 0;
    let mut keep = |pieces: Vec<Piece>| {
        kept.extend(pieces);
        let excess = kept.len().saturating_sub(count);
        kept.drain(..excess);
    };
    while let Some(item) = reader.next().map_err(unreadable)? {
        from = match &item {
            Item::Chunk(chunk) => chunk.next,
            Item::Gap { to, .. } => *to,
        };
        if !is_before(&item, since) {
            keep(printer.pieces(item));
        }
    }
    keep(printer.rest());
    kept.iter().try_for_each(show)?;
    Ok(from)
}
