//! `relive diff`: what a process changed in the files it works on.

use relive_api::DiffQuery;

use relive_types::text::exact;

use crate::client::Client;
use crate::context::Context;
use crate::error::Outcome;
use crate::render::files::{not_kept, stat, summary_by_author, unified};

/// Show how a process changed its files
#[derive(Debug, clap::Args)]
#[command(before_long_help = "\
Examples:
  relive diff 5          all changes, also those made by commands
  relive diff 5 12       the changes of step 12
  relive diff 5 3..12    the changes after step 3, up to step 12
  relive diff 5 --stat   only file names and numbers of lines")]
pub(crate) struct Args {
    /// The PID, the name, or the UUID of a process; the first or last digits of a UUID are enough
    id: String,
    /// One step, or the changes after step N up to step M
    #[arg(value_name = "N[..M]", value_parser = parse_steps)]
    steps: Option<Steps>,
    /// Show only the changed files and their numbers of lines
    #[arg(long)]
    stat: bool,
}

/// The steps to compare.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Steps {
    from: u32,
    to: Option<u32>,
}

fn parse_steps(text: &str) -> Result<Steps, String> {
    let number = |text: &str| text.parse::<u32>().map_err(|_| "use a step or a range, such as 12 or 3..12".to_owned());
    match text.split_once("..") {
        None => Ok(Steps { from: number(text)?, to: None }),
        Some((from, to)) => Ok(Steps { from: number(from)?, to: Some(number(to)?) }),
    }
}

pub(crate) async fn run(context: &Context, args: &Args) -> Outcome<u8> {
    let client = Client::about(context, &args.id).await?;
    let query = DiffQuery {
        from: args.steps.map(|steps| steps.from),
        to: args.steps.and_then(|steps| steps.to),
        text: !context.json && !args.stat,
    };
    let diff = client.diff(&args.id, query).await?;
    if context.json {
        context.print_json(&diff)?;
        return Ok(0);
    }
    if let Some(note) = &diff.note {
        context.say(&format!("note: {}", exact(note)));
    }
    if let Some(skipped) = not_kept(&diff.not_kept, &diff.skipped) {
        context.say(&format!("note: in no snapshot: {skipped}"));
    }
    if diff.files.is_empty() {
        if diff.note.is_none() {
            context.print_line("no file changed")?;
        }
        return Ok(0);
    }
    context.print(&stat(&diff.files, &context.out))?;
    context.print_line(&summary_by_author(&diff.files))?;
    if let Some(text) = &diff.diff {
        context.print(&format!("\n{}", unified(text, &context.out)))?;
    }
    Ok(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_or_a_range() {
        assert_eq!(parse_steps("12"), Ok(Steps { from: 12, to: None }));
        assert_eq!(parse_steps("3..12"), Ok(Steps { from: 3, to: Some(12) }));
        for wrong in ["", "..", "a", "1..b", "1...2", "-1"] {
            assert!(parse_steps(wrong).is_err(), "{wrong}");
        }
    }
}
