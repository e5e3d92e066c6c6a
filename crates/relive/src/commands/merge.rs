//! `relive merge`: the changes of an own workspace, brought back.

use relive_api::{FileConflict, FilesChanged, MergeRequest};
use relive_core::ErrorCode;

use crate::client::Client;
use crate::context::Context;
use crate::error::Outcome;
use crate::render::files::{count, stat};
use relive_types::file_name::shown;
use relive_types::text::exact;

/// Merge the changes in a process's own workspace into the directory it was copied from
///
/// Each file is merged three ways. If both sides changed the same lines, nothing is written and the files are listed; with
/// --force, these files are written with conflict markers.
#[derive(Debug, clap::Args)]
#[command(before_long_help = "\
Examples:
  relive merge 6                   merge into the directory that was copied
  relive merge 6 --into ../other   merge into another directory
  relive merge 6 --dry-run         show what would change")]
pub(crate) struct Args {
    /// The PID, the name, or the UUID of a process; the first or last digits of a UUID are enough
    id: String,
    /// Merge into this directory instead
    #[arg(long, value_name = "DIR")]
    into: Option<std::path::PathBuf>,
    /// Write files with conflicts too, with conflict markers
    #[arg(long)]
    force: bool,
    /// Show what would change, and change nothing
    #[arg(long)]
    dry_run: bool,
}

pub(crate) async fn run(context: &Context, args: &Args) -> Outcome<u8> {
    let client = Client::about(context, &args.id).await?;
    let absolute = |path: &std::path::PathBuf| std::path::absolute(path).map(|path| path.display().to_string());
    let request =
        MergeRequest { into: args.into.as_ref().map(absolute).transpose()?, force: args.force, dry_run: args.dry_run };
    let changed = client.merge(&args.id, &request).await?;
    let way_out = match args.force {
        true => format!("the other versions are only in `relive workspace path {}`", args.id),
        false => way_out(&changed.conflicts).to_owned(),
    };
    tell(context, &changed, "merged", &way_out, None)
}

/// Says what --force does with these conflicts.
fn way_out(conflicts: &[FileConflict]) -> &'static str {
    let has_markers = |conflict: &FileConflict| matches!(conflict.kind.as_str(), "lines" | "both_added");
    match (conflicts.iter().any(has_markers), conflicts.iter().all(has_markers)) {
        (_, true) => "--force writes them with conflict markers",
        (true, false) => {
            "--force writes texts with conflict markers, and leaves the other files as they are in the target"
        }
        (false, false) => "--force merges the rest, and leaves these files as they are in the target",
    }
}

/// Says what became of files: `done` is the verb in its past form, and `way_out` the hint if there are only conflicts.
pub(crate) fn tell(
    context: &Context,
    changed: &FilesChanged,
    done: &str,
    way_out: &str,
    undo: Option<&str>,
) -> Outcome<u8> {
    let is_refused = changed.written == 0 && !changed.conflicts.is_empty();
    let code = match (is_refused, changed.verified || changed.dry_run) {
        (true, _) => ErrorCode::Conflict.exit_code(),
        (false, false) => 1,
        (false, true) => 0,
    };
    if context.json {
        context.print_json(changed)?;
        return Ok(code);
    }
    if let Some(note) = &changed.note {
        context.say(&format!("note: {}", exact(note)));
    }
    for conflict in &changed.conflicts {
        context.say(&format!("conflict: {} ({})", shown(&conflict.path), conflict.kind.replace('_', " ")));
    }
    if is_refused {
        let conflicts = count(changed.conflicts.len() as u64);
        context.say(&format!("error: both sides changed {conflicts}, so nothing was written"));
        context.say(&format!("\nhint: {way_out}"));
        return Ok(code);
    }
    let path = shown(&changed.path);
    if changed.files.is_empty() {
        context.say(&format!("nothing to change in {path}"));
        return Ok(code);
    }
    context.print(&stat(&changed.files, &context.out))?;
    let verified = if changed.verified { "verified" } else { "NOT verified" };
    context.say(&match changed.dry_run {
        true => format!("{} would be {done} in {path}", count(changed.written)),
        false => {
            let undo = undo.map(|undo| format!(" (undo: {undo})")).unwrap_or_default();
            format!("{done} {} in {path}, {verified}{undo}", count(changed.written))
        }
    });
    Ok(code)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hint_of_a_conflict_promises_markers_only_for_texts() {
        let check = |kinds: &[&str], expect: &str| {
            let conflict = |kind: &&str| FileConflict { path: "a".to_owned(), kind: (*kind).to_owned() };
            let told = way_out(&kinds.iter().map(conflict).collect::<Vec<_>>());
            assert!(told.contains(expect) && (told.contains("markers") == (expect != "the rest")), "{kinds:?}: {told}");
        };
        check(&["lines", "both_added"], "writes them with");
        check(&["lines", "binary"], "leaves the other files");
        check(&["binary", "removed_and_changed", "type", "mode"], "the rest");
    }
}
