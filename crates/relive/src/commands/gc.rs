//! `relive gc`: collect histories that are due.

use relive_api::{GcAnswer, GcRequest};
use serde_json::json;

use crate::client::{Client, Start};
use crate::context::Context;
use crate::error::{CommandError, Outcome};

/// More than this many are not removed without being asked about.
const UNASKED_MAX: usize = 100;

/// Remove the histories of processes that ended long ago
#[derive(Debug, clap::Args)]
#[command(before_long_help = "\
Examples:
  relive gc --dry-run   what would go, and why
  relive gc             asks above 100
  relive gc --force     does not ask")]
pub(crate) struct Args {
    /// Say what would go; change nothing
    #[arg(long, conflicts_with = "force")]
    dry_run: bool,
    /// Do not ask, however many there are
    #[arg(long)]
    force: bool,
}

pub(crate) async fn run(context: &Context, args: &Args) -> Outcome<u8> {
    let client = Client::open(context, Start::IfHistories).await?;
    let collect = GcRequest { dry_run: false, at_most: None };
    let asked = !args.dry_run && !args.force && !context.json;
    let request = GcRequest { dry_run: args.dry_run, at_most: asked.then_some(UNASKED_MAX) };
    let mut answer = match &client {
        Some(client) => client.gc(&request).await?,
        None => nothing(),
    };
    if let Some(client) = &client
        && asked
        && !answer.collected
        && !answer.candidates.is_empty()
    {
        if !confirm(context, &answer)? {
            context.say("nothing was removed");
            return Ok(0);
        }
        answer = client.gc(&collect).await?;
    }
    let total = answer.candidates.len();
    while answer.left > 0 {
        let so_far = format!("removed {} of {total} histories", answer.removed.len());
        context.say(&so_far);
        // A daemon that is stopped meanwhile is not started again.
        let Some(client) = Client::open(context, Start::Never).await? else {
            return Err(
                CommandError::unavailable(format!("{so_far}: the daemon was stopped")).with_hint("relive gc --force")
            );
        };
        let part = client.gc(&collect).await?;
        answer.left = part.left;
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
        let message = format!("none of {} histories could be removed: {failure}", answer.failures.len());
        return Err(CommandError::internal(message));
    }
    for failure in &answer.failures {
        context.say(&format!("warning: not removed: {failure}"));
    }
    tell(context, args, &answer)?;
    Ok(0)
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
    }
}

fn confirm(context: &Context, answer: &GcAnswer) -> Outcome<bool> {
    let count = answer.candidates.len();
    let size = size(answer.candidates.iter().map(|candidate| candidate.bytes).sum());
    if !context.can_ask() {
        let message = format!("{count} histories ({size}) would go, and there is nobody to ask");
        return Err(CommandError::invalid(message).with_hint("relive gc --force"));
    }
    Ok(context.ask(&format!("Remove {count} histories ({size})? They cannot be resumed or read after that.")))
}

fn tell(context: &Context, args: &Args, answer: &GcAnswer) -> Outcome<()> {
    if args.dry_run {
        if context.json {
            return context.print_json(&json!({ "candidates": answer.candidates }));
        }
        for candidate in &answer.candidates {
            let size = size(candidate.bytes);
            context
                .print_line(&format!("{}  {}  {size:>8}  {}", candidate.uuid, candidate.dead_at, candidate.reason))?;
        }
        context.say(&format!("{} histories would go", answer.candidates.len()));
        return Ok(());
    }
    if context.json {
        let (removed, freed_bytes) = (answer.removed.len(), answer.freed_bytes);
        return context.print_json(&json!({ "removed": removed, "freed_bytes": freed_bytes, "uuids": answer.removed }));
    }
    if answer.removed.is_empty() {
        return context.print_line("nothing to collect");
    }
    context.print_line(&format!("removed {} histories, {} freed", answer.removed.len(), size(answer.freed_bytes)))
}

fn size(bytes: u64) -> String {
    const UNITS: [(&str, u64); 3] = [("GB", 1_000_000_000), ("MB", 1_000_000), ("kB", 1000)];
    match UNITS.iter().find(|(_, unit)| bytes >= *unit) {
        Some((name, unit)) => format!("{}.{} {name}", bytes / unit, bytes % unit / (unit / 10)),
        None => format!("{bytes} B"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes() {
        let check = |bytes, text: &str| assert_eq!(size(bytes), text);
        check(0, "0 B");
        check(1_999, "1.9 kB");
        check(50_000_000, "50.0 MB");
        check(2_300_000_000, "2.3 GB");
    }
}
