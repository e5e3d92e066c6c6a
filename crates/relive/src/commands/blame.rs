//! `relive blame`: which process, step and prompt wrote a line.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt as _;

use relive_api::{BlameRequest, BlamedLine};

use relive_core::ErrorCode;
use relive_types::short_id;

use crate::client::{Client, Start};
use crate::context::Context;
use crate::error::{CommandError, Outcome};
use crate::render::files::typed;
use crate::render::table::{Align, Cell, Column, draw, fit};
use crate::terminal::{Look, one_line};

/// Show which process and step wrote the lines of a file
#[derive(Debug, clap::Args)]
#[command(before_long_help = "\
Examples:
  relive blame src/main.rs
  relive blame src/main.rs:42   one line, and the intent that led to it")]
pub(crate) struct Args {
    /// The file, optionally with a line number
    #[arg(value_name = "FILE[:LINE]")]
    place: OsString,
}

pub(crate) async fn run(context: &Context, args: &Args) -> Outcome<u8> {
    let (file, line) = parse(&args.place);
    if file.is_empty() {
        return Err(CommandError::invalid("the name of the file is empty"));
    }
    let path = std::path::absolute(&file)?;
    let path = path.canonicalize().unwrap_or(path);
    let client = Client::open(context, Start::IfHistories).await?;
    let client = client
        .ok_or_else(|| CommandError::new(ErrorCode::NotFound, "no process has run yet, so none wrote this file"))?;
    let blame = client.blame(&BlameRequest { path: typed(path.as_os_str()), line }).await?;
    if context.json {
        context.print_json(&blame)?;
        return Ok(0);
    }
    if blame.changed_since {
        context.say("note: the file was changed since the last snapshot, so lines may have moved");
    }
    let left = |header| Column { header, align: Align::Left };
    let right = |header| Column { header, align: Align::Right };
    let columns = [left("ID"), right("STEP"), left("INTENT"), right("LINE"), left("TEXT")];
    let rows: Vec<Vec<Cell>> = blame.lines.iter().map(|line| row(line, &context.out)).collect();
    context.print(&draw(&columns, columns.len() - 1, &rows, &context.out))?;
    Ok(0)
}

fn row(line: &BlamedLine, look: &Look) -> Vec<Cell> {
    const INTENT_MAX: usize = 24;
    let intent = line.intent.as_deref().map_or_else(|| "-".to_owned(), |text| fit(&one_line(text), INTENT_MAX, look));
    let uuid = line.uuid.map_or_else(|| "-".to_owned(), short_id::short);
    let step = match (line.step, line.steps) {
        (Some(step), _) => step.to_string(),
        (None, Some((first, last))) if first.checked_add(1) == Some(last) => format!("{first} or {last}"),
        (None, Some((first, last))) => format!("{first} to {last}"),
        (None, None) => "-".to_owned(),
    };
    [uuid, step, intent, line.line.to_string(), crate::terminal::without_controls(&line.text).into_owned()]
        .map(Cell::plain)
        .to_vec()
}

/// A file may have a colon in its name: what follows the last one is a line only if it is a number.
fn parse(place: &OsStr) -> (OsString, Option<u64>) {
    let bytes = place.as_bytes();
    let number = |text: &[u8]| std::str::from_utf8(text).ok()?.parse().ok();
    let colon = bytes.iter().rposition(|&byte| byte == b':');
    match colon.and_then(|at| Some((&bytes[..at], number(&bytes[at + 1..])?))) {
        Some((file, line)) if !std::path::Path::new(place).exists() => (OsStr::from_bytes(file).to_owned(), Some(line)),
        _ => (place.to_owned(), None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_after_a_colon_is_a_line() {
        let check = |place: &[u8], file: &[u8], line: Option<u64>| {
            assert_eq!(parse(OsStr::from_bytes(place)), (OsStr::from_bytes(file).to_owned(), line));
        };
        check(b"a.rs:42", b"a.rs", Some(42));
        check(b"a.rs", b"a.rs", None);
        check(b"a:b", b"a:b", None);
        check(b"\xff:7", b"\xff", Some(7));
    }
}
