//! What a program printed, straight from its session's log: on the streams it was printed on, byte for byte; with
//! timestamps line by line; with `--json` one object a piece.

use std::collections::VecDeque;
use std::io;
use std::path::Path;

use relive_api::{Process, Session};
use relive_session::SessionDirectory;
use relive_session::log::{Item, Reader};

use super::Args;
use super::printer::{Form, Piece, Printer};
use crate::context::Context;
use crate::error::{CommandError, Outcome};
use crate::session::output::{OUTPUT_LOST, Output, say_gap, write};
use crate::session::{self, Opened};

pub(super) async fn run(context: &Context, args: &Args, process: &Process, session: &Session) -> Outcome<u8> {
    let folder = Path::new(&session.folder);
    let form = match (context.json, args.timestamps) {
        (true, _) => Form::Json(process.pid),
        (false, true) => Form::Timestamps,
        (false, false) => Form::Plain,
    };
    let from = match args.lines {
        Some(lines) => show_last(folder, lines, form)?,
        None => 0,
    };
    let mut printer = Printer::new(form);
    let mut output = Output::start(folder, from, move |item| {
        let pieces = match item {
            Some(item) => {
                warn_of_gap(&item, form);
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
                // A reader of ours who has gone.
                shown = output.finished() => return shown.map(|()| 0).map_err(CommandError::from),
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
    say_lost(context, folder);
    Ok(0)
}

/// Says at the end of the output that some of it is missing: nobody knows where.
fn say_lost(context: &Context, folder: &Path) {
    let record = SessionDirectory::open(folder).and_then(|folder| folder.read_exit());
    if record.is_ok_and(|record| record.is_some_and(|record| record.output_lost)) {
        context.say(OUTPUT_LOST);
    }
}

fn unreadable(error: io::Error) -> CommandError {
    CommandError::internal("the log cannot be read").because(error)
}

fn show(piece: &Piece) -> io::Result<()> {
    write(piece.stream, &piece.bytes)
}

fn warn_of_gap(item: &Item, form: Form) {
    match (item, form) {
        (Item::Gap { from, to }, Form::Plain | Form::Timestamps) => say_gap(*from, *to),
        (Item::Gap { .. }, Form::Json(_)) | (Item::Chunk(_), _) => {}
    }
}

/// Shows the last lines, or objects, there are now. Returns where the log continues after them.
fn show_last(folder: &Path, count: usize, form: Form) -> Outcome<u64> {
    let mut printer = Printer::by_lines(form);
    let mut reader = Reader::open(folder, 0).map_err(unreadable)?;
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
        keep(printer.pieces(item));
    }
    keep(printer.rest());
    kept.iter().try_for_each(show)?;
    Ok(from)
}
