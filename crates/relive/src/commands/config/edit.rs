//! `relive config edit`: a copy is edited and checked, and takes the place of the file when it can be used.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

use relive_config::Config;
use relive_core::ErrorCode;
use relive_types::program::quote;
use serde_json::json;

use crate::context::Context;
use crate::error::{CommandError, Outcome};
use crate::user_file;

/// The beginning of a new file.
const TEMPLATE: &str = "\
# The configuration of Relive. Every key has a default; `relive config show` shows them all.
#
# default_model: anthropic/claude-sonnet-4-5
# gc: {retention_days: 30}
";

const DEFAULT_EDITOR: &str = "vi";
/// The number of unfinished edits that are kept beside the file.
const ASIDE_MAX: u32 = 99;

pub(super) fn run(context: &Context) -> Outcome<u8> {
    if editor().is_none() && !context.can_ask() {
        let message = format!("{DEFAULT_EDITOR} needs a terminal, and neither VISUAL nor EDITOR names another editor");
        return Err(CommandError::invalid(message).with_hint("relive config path"));
    }
    // The file itself, where the name is a link.
    let path = fs::canonicalize(&context.paths.config).unwrap_or_else(|_| context.paths.config.clone());
    let before = text_of(&path)?;
    let edit = Edit::begin(context, path, before)?;
    loop {
        open_editor(&edit.copy)?;
        match Config::load(&edit.copy) {
            Ok(_) => return edit.finish(context),
            Err(error) => {
                let error = CommandError::invalid("the configuration is invalid").because(error);
                if !context.can_ask() {
                    context.say(&edit.kept());
                    return Err(error.with_hint("relive config edit"));
                }
                context.say_on(&crate::report::as_text(&error, &context.err));
                if !context.ask("Edit it again?") {
                    context.say(&edit.kept());
                    return Ok(0);
                }
            }
        }
    }
}

/// Returns the configuration, or what a new one begins with.
fn text_of(path: &Path) -> Outcome<String> {
    match fs::metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(TEMPLATE.to_owned()),
        Ok(_) | Err(_) => user_file::read(path),
    }
}

/// A copy of the file that is being edited. It stays if it cannot be used, and the next edit continues it.
struct Edit {
    path: PathBuf,
    copy: PathBuf,
    /// The text that the edit began with: the file must still have it when it is replaced.
    base: PathBuf,
    before: String,
}

impl Edit {
    /// Begins an edit, or continues one that was not finished. One that began with another text than the file has now is
    /// put aside: it would undo what was changed since.
    #[expect(clippy::disallowed_methods, reason = "files of the user's, which the daemon only reads")]
    fn begin(context: &Context, path: PathBuf, before: String) -> Outcome<Self> {
        let beside = |end: &str| path.with_extension(format!("yaml.{end}"));
        let (copy, base) = (beside("edit"), beside("edit-base"));
        if copy.exists() {
            let (left, began_with) = (user_file::read(&copy), user_file::read(&base));
            let is_same = |text: &Outcome<String>| text.as_ref().is_ok_and(|text| *text == before);
            if is_same(&began_with) && !is_same(&left) {
                context.say(&format!("continuing the edit that was not finished: {}", copy.display()));
                return Ok(Self { path, copy, base, before });
            }
            if !is_same(&left) {
                // None that was put aside before is replaced.
                let is_free = |aside: &PathBuf| aside.symlink_metadata().is_err();
                let numbered = (2..=ASIDE_MAX).map(|number| beside(&format!("edit-old-{number}")));
                let aside = std::iter::once(beside("edit-old")).chain(numbered).find(is_free).ok_or_else(|| {
                    let message = format!("there are {ASIDE_MAX} unfinished edits beside {}", path.display());
                    CommandError::invalid(message)
                        .with_hint(format!("ls {}*", quote(&beside("edit-old").display().to_string())))
                })?;
                fs::rename(&copy, &aside).map_err(|error| failed("cannot be put aside", &copy, error))?;
                let (file, aside) = (path.display(), aside.display());
                context
                    .say(&format!("{file} has changed since an edit that was not finished, which is in {aside} now"));
            }
        }
        let write = |to: &Path| fs::write(to, &before).map_err(|error| failed("cannot be written", to, error));
        if let Some(directory) = path.parent() {
            fs::create_dir_all(directory).map_err(|error| failed("cannot be created", directory, error))?;
        }
        write(&base)?;
        write(&copy)?;
        Ok(Self { path, copy, base, before })
    }

    /// Puts the copy in the place of the file, unless that has changed meanwhile.
    #[expect(clippy::disallowed_methods, reason = "files of the user's, which the daemon only reads")]
    fn finish(self, context: &Context) -> Outcome<u8> {
        let Self { path, copy, base, before } = &self;
        let after = user_file::read(copy)?;
        if after == *before {
            // What cannot be removed is compared again the next time.
            let _ = (fs::remove_file(copy), fs::remove_file(base));
            return tell(context, path, false, "nothing was changed");
        }
        if text_of(path)? != *before {
            let (file, yours) = (path.display(), copy.display());
            let message =
                format!("{file} was changed while you edited it, so it was not replaced; your text is in {yours}");
            let quoted = [path, copy].map(|path| quote(&path.display().to_string()));
            return Err(CommandError::new(ErrorCode::Conflict, message).with_hint(format!("diff {}", quoted.join(" "))));
        }
        fs::rename(copy, path).map_err(|error| failed("cannot be replaced", path, error))?;
        let _ = fs::remove_file(base);
        tell(context, path, true, &format!("saved {}", path.display()))
    }

    /// Says where the changes are that cannot be used.
    fn kept(&self) -> String {
        format!("{} was not changed; your changes are in {}", self.path.display(), self.copy.display())
    }
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
