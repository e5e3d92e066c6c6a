//! `relive config edit`: a copy is edited and checked, and takes the place of the file when it can be used.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

use relive_config::Config;
use serde_json::json;

use crate::context::Context;
use crate::error::{CommandError, Outcome};
use crate::user_file;

/// What a new file begins with.
const TEMPLATE: &str = "\
# The configuration of Relive. Every key has a default; `relive config show` shows them all.
#
# default_model: anthropic/claude-sonnet-4-5
# gc: {retention_days: 30}
";

const DEFAULT_EDITOR: &str = "vi";

pub(super) fn run(context: &Context) -> Outcome<u8> {
    if editor().is_none() && !context.can_ask() {
        let message = format!("{DEFAULT_EDITOR} needs a terminal, and neither VISUAL nor EDITOR names another editor");
        return Err(CommandError::invalid(message).with_hint("relive config path"));
    }
    // The file itself, where the name is a link.
    let path = fs::canonicalize(&context.paths.config).unwrap_or_else(|_| context.paths.config.clone());
    let copy = path.with_extension("yaml.edit");
    let before = match fs::metadata(&path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => TEMPLATE.to_owned(),
        Ok(_) | Err(_) => user_file::read(&path)?,
    };
    if !copy.exists() {
        begin(&copy, &before).map_err(|error| failed("cannot be written", &copy, error))?;
    }
    loop {
        open_editor(&copy)?;
        match Config::load(&copy) {
            Ok(_) => return finish(context, &path, &copy, &before),
            Err(error) => {
                let error = CommandError::invalid("the configuration is invalid").because(error);
                if !context.can_ask() {
                    let kept = format!("{} was not changed; your changes are in {}", path.display(), copy.display());
                    context.say(&kept);
                    return Err(error.with_hint("relive config edit"));
                }
                context.say_on(&crate::report::as_text(&error, &context.err));
                if !context.ask("Edit it again?") {
                    context.say(&format!("{} was not changed; your changes are in {}", path.display(), copy.display()));
                    return Ok(0);
                }
            }
        }
    }
}

#[expect(clippy::disallowed_methods, reason = "a file of the user's, which the daemon only reads")]
fn begin(copy: &Path, text: &str) -> io::Result<()> {
    if let Some(directory) = copy.parent() {
        fs::create_dir_all(directory)?;
    }
    fs::write(copy, text)
}

#[expect(clippy::disallowed_methods, reason = "a file of the user's, which the daemon only reads")]
fn finish(context: &Context, path: &Path, copy: &PathBuf, before: &str) -> Outcome<u8> {
    let after = user_file::read(copy)?;
    if after == before {
        // What cannot be removed is edited the next time.
        let _ = fs::remove_file(copy);
        return tell(context, path, false, "nothing was changed");
    }
    fs::rename(copy, path).map_err(|error| failed("cannot be replaced", path, error))?;
    tell(context, path, true, &format!("saved {}", path.display()))
}

fn tell(context: &Context, path: &Path, saved: bool, words: &str) -> Outcome<u8> {
    if context.json {
        context.print_json(&json!({ "path": path.display().to_string(), "saved": saved }))?;
    } else {
        context.say(words);
    }
    Ok(0)
}

/// Returns the editor that the user has chosen.
fn editor() -> Option<String> {
    let set = |name: &str| std::env::var(name).ok().filter(|value| !value.trim().is_empty());
    set("VISUAL").or_else(|| set("EDITOR"))
}

fn open_editor(file: &Path) -> Outcome<()> {
    let editor = editor().unwrap_or_else(|| DEFAULT_EDITOR.to_owned());
    // The variable may have options in it, as every program that uses it lets it.
    let status = Command::new("/bin/sh").args(["-c", &format!("{editor} \"$1\""), "sh"]).arg(file).status();
    match status {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => {
            Err(CommandError::invalid(format!("the editor `{editor}` ended with {status}: nothing was changed"))
                .with_hint("EDITOR=nano relive config edit"))
        }
        Err(error) => Err(CommandError::invalid(format!("the editor `{editor}` cannot be run")).because(error)),
    }
}

fn failed(what: &str, path: &Path, error: io::Error) -> CommandError {
    CommandError::invalid(format!("{} {what}", path.display())).because(error)
}
