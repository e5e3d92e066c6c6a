//! `relive gc`: collect histories that are due.

use std::collections::HashMap;
use std::time::Duration;

use relive_api::{GcAnswer, GcCandidate, GcRequest, Process};
use relive_core::{ErrorCode, Uuid};
use relive_types::program::quote;
use relive_types::short_id::short;
use serde_json::json;

use super::rm::count;
use super::targets::{Scope, matching};
use crate::client::{Client, Start};
use crate::context::Context;
use crate::error::{CommandError, Outcome};
use crate::render;
use crate::render::size::bytes;
use crate::render::table::{Align, Cell, Column, Table};
use crate::render::time::{as_millis, local_minute};
use crate::terminal::one_line;

/// More than this many are not removed without being asked about.
const UNASKED_MAX: usize = 100;

/// Remove processes that ended long ago, with their journals
#[derive(Debug, clap::Args)]
#[command(before_long_help = "\
Examples:
  relive gc --dry-run                   show what would be removed, and why
  relive gc                             remove; asks if there are more than 100
  relive gc -y                          remove without asking
  relive gc --older-than 7d             remove what ended a week ago; asks first")]
pub(crate) struct Args {
    /// Show what would be removed, and remove nothing
    #[arg(long, conflicts_with = "force")]
    dry_run: bool,
    /// Do not ask for confirmation, however many there are
    #[arg(short = 'y', long, visible_alias = "yes")]
    force: bool,
    /// Remove what ended longer ago than this, instead of what the configuration says
    #[arg(long, value_name = "DURATION", value_parser = parse_age)]
    older_than: Option<Age>,
}

/// A duration, and how it was typed, for hints.
#[derive(Debug, Clone)]
struct Age {
    duration: Duration,
    typed: String,
}

fn parse_age(text: &str) -> Result<Age, relive_types::duration::ParseError> {
    Ok(Age { duration: relive_types::duration::parse(text)?, typed: text.to_owned() })
}

pub(crate) async fn run(context: &Context, args: &Args) -> Outcome<u8> {
    let client = Client::open(context, Start::IfHistories).await?;
    let older_than_ms = args.older_than.as_ref().map(|age| as_millis(age.duration));
    let collect = GcRequest { older_than_ms, ..GcRequest::default() };
    let asked = !args.dry_run && !args.force && !context.json;
    // An age that was typed may be a mistake, unlike the rules of the configuration: a person is asked as by `rm`. A script
    // without a terminal is not, up to the same number as without it.
    let unasked_max = if args.older_than.is_some() && context.can_ask() { 0 } else { UNASKED_MAX };
    let request = GcRequest { dry_run: args.dry_run, at_most: asked.then_some(unasked_max), older_than_ms };
    let mut answer = match &client {
        Some(client) => client.gc(&request).await?,
        None => nothing(),
    };
    if let Some(client) = &client
        && asked
        && !answer.collected
        && !answer.candidates.is_empty()
    {
        if !confirm(context, args, &answer)? {
            context.say("nothing was removed");
            return Ok(0);
        }
        answer = client.gc(&collect).await?;
    }
    let total = answer.candidates.len();
    while answer.left > 0 {
        let so_far = format!("removed {} of {}", answer.removed.len(), count(total));
        context.say(&so_far);
        // A daemon that is stopped meanwhile is not started again.
        let Some(client) = Client::open(context, Start::Never).await? else {
            return Err(CommandError::unavailable(format!("{so_far}: the daemon was stopped")).with_hint(unasked(args)));
        };
        let part = client.gc(&collect).await?;
        answer.left = part.left;
        answer.snapshots = part.snapshots.or(answer.snapshots);
        answer.not_freed = part.not_freed.or(answer.not_freed);
        answer.removed.extend(part.removed);
        answer.freed_bytes += part.freed_bytes;
        answer.failures.extend(part.failures);
        let known = &answer.warnings;
        let new: Vec<String> = part.warnings.into_iter().filter(|text| !known.contains(text)).collect();
        answer.warnings.extend(new);
    }
    for warning in &answer.warnings {
        context.say(&format!("warning: {warning}"));
    }
    if let (true, Some(failure)) = (answer.removed.is_empty(), answer.failures.first()) {
        let message = format!("cannot remove {}: {failure}", count(answer.failures.len()));
        return Err(CommandError::internal(message));
    }
    for failure in &answer.failures {
        context.say(&format!("warning: not removed: {failure}"));
    }
    let ended = match &client {
        Some(client) if args.dry_run && !context.json && !answer.candidates.is_empty() => {
            // Only for the names: what would be removed is known.
            matching(client, Scope::Ended, None).await.unwrap_or_default()
        }
        Some(_) | None => Vec::new(),
    };
    tell(context, args, &answer, &ended)?;
    match &answer.not_freed {
        Some(why) if args.dry_run => {
            context.say(&format!("note: {why}"));
            Ok(0)
        }
        Some(why) => {
            context.say(&format!("error: {why}"));
            Ok(CommandError::new(ErrorCode::Exhausted, why.as_str()).exit_code())
        }
        None => Ok(0),
    }
}

fn nothing() -> GcAnswer {
    GcAnswer {
        collected: false,
        candidates: Vec::new(),
        removed: Vec::new(),
        freed_bytes: 0,
        warnings: Vec::new(),
        failures: Vec::new(),
        left: 0,
        snapshots: None,
        not_freed: None,
    }
}

/// Returns the bytes of the processes that would be removed. Snapshots of files are counted apart.
fn announced(answer: &GcAnswer) -> u64 {
    answer.candidates.iter().map(|candidate| candidate.bytes).sum()
}

/// Returns the same command without a question.
fn unasked(args: &Args) -> String {
    let older = args.older_than.as_ref().map(|age| format!(" --older-than {}", quote(&age.typed)));
    format!("relive gc -y{}", older.unwrap_or_default())
}

fn confirm(context: &Context, args: &Args, answer: &GcAnswer) -> Outcome<bool> {
    let count = count(answer.candidates.len());
    let size = bytes(announced(answer));
    if !context.can_ask() {
        let message = format!("this would remove {count} ({size}), and there is no terminal to ask on");
        return Err(CommandError::invalid(message).with_hint(unasked(args)));
    }
    Ok(context.ask(&format!("Remove {count} ({size})? Removed processes cannot be resumed or read.")))
}

fn tell(context: &Context, args: &Args, answer: &GcAnswer, ended: &[Process]) -> Outcome<()> {
    if args.dry_run {
        if context.json {
            let mut told = json!({ "candidates": answer.candidates, "freed_bytes": announced(answer),
                "snapshots": answer.snapshots });
            if let Some(why) = &answer.not_freed {
                told["not_freed"] = json!(why);
            }
            return context.print_json(&told);
        }
        if !answer.candidates.is_empty() {
            context.print(&table(context, &answer.candidates, ended))?;
        }
        context.say(&match answer.candidates.len() {
            0 => "nothing to remove".to_owned(),
            some => format!("{} would be removed, {} freed", count(some), bytes(announced(answer))),
        });
        if let Some(snapshots) = &answer.snapshots {
            let (all, freed) = (bytes(snapshots.bytes), bytes(snapshots.freed_bytes));
            context.say(&format!("snapshots of files: {all}, of which {freed} would be freed"));
        }
        return Ok(());
    }
    if context.json {
        let (removed, freed_bytes) = (answer.removed.len(), answer.freed_bytes);
        let mut told = json!({ "removed": removed, "freed_bytes": freed_bytes, "uuids": answer.removed });
        if let Some(snapshots) = answer.snapshots.filter(|snapshots| snapshots.freed_bytes > 0) {
            told["snapshots"] = json!(snapshots);
        }
        if let Some(why) = &answer.not_freed {
            told["not_freed"] = json!(why);
        }
        return context.print_json(&told);
    }
    if answer.removed.is_empty() {
        context.say("nothing to remove");
    } else {
        let freed = bytes(answer.freed_bytes);
        context.say(&format!("removed {}, {freed} freed", count(answer.removed.len())));
    }
    if let Some(freed) = answer.snapshots.map(|snapshots| snapshots.freed_bytes).filter(|freed| *freed > 0) {
        context.say(&format!("snapshots of files: {} freed", bytes(freed)));
    }
    Ok(())
}

/// Returns which rule an ended process meets: a key of config.yaml, or the option.
fn reason(word: &str) -> &str {
    if word == "asked" { "--older-than" } else { word }
}

fn table(context: &Context, candidates: &[GcCandidate], ended: &[Process]) -> String {
    let left = |header| Column { header, align: Align::Left };
    let right = |header| Column { header, align: Align::Right };
    let columns =
        [right("PID"), left("ID"), left("NAME"), left("INTENT"), left("ENDED"), right("SIZE"), left("REASON")];
    let by_uuid: HashMap<Uuid, &Process> = ended.iter().map(|process| (process.uuid, process)).collect();
    let rows: Vec<Vec<Cell>> = candidates
        .iter()
        .map(|candidate| {
            let process = by_uuid.get(&candidate.uuid);
            let name = process.and_then(|process| process.name.as_deref());
            vec![
                Cell::plain(process.map_or("-".to_owned(), |process| process.pid.to_string())),
                Cell::plain(short(candidate.uuid)),
                Cell::plain(render::processes::name(name)),
                Cell::plain(process.map_or("-".to_owned(), |process| one_line(&process.intent))),
                Cell::plain(local_minute(candidate.dead_at)),
                Cell::plain(bytes(candidate.bytes)),
                Cell::plain(reason(&candidate.reason)),
            ]
        })
        .collect();
    Table::cutting(&columns, &[2, 3, columns.len() - 1]).draw(&rows, &context.out)
}
