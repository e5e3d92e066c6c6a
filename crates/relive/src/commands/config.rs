//! `relive config`: shows and edits the configuration.

mod edit;

use std::io;
use std::os::unix::fs::MetadataExt as _;

use relive_api::Paths;
use relive_config::{Config, ConfigError};
use serde_json::json;

use super::HOME_HINT;
use crate::context::Context;
use crate::error::{CommandError, Outcome, plain};

/// Show or edit the configuration
///
/// The daemon reloads config.yaml when it changes. `relive daemon status` names the settings that need a restart.
#[derive(Debug, clap::Args)]
#[command(before_long_help = "\
Examples:
  relive config show   show all settings, including defaults
  relive config edit   edit config.yaml in $VISUAL or $EDITOR, and check it
  relive config show > all-settings.yaml")]
pub(crate) struct Args {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, clap::Subcommand)]
enum Verb {
    /// Show all settings, including defaults, and the file they come from
    #[command(before_long_help = "\
Examples:
  relive config show
  relive config show --json | jq .config.gc")]
    Show,
    /// Edit config.yaml in $VISUAL or $EDITOR; an invalid file is not saved
    #[command(before_long_help = "\
Examples:
  relive config edit
  EDITOR=nano relive config edit")]
    Edit,
    /// Print the path of config.yaml, even if it does not exist
    #[command(before_long_help = "\
Examples:
  relive config path
  less \"$(relive config path)\"")]
    Path,
}

pub(crate) fn run(context: &Context, args: &Args) -> Outcome<u8> {
    match args.verb {
        Verb::Show => show(context),
        Verb::Edit => edit::run(context),
        Verb::Path => path(context),
    }
}

fn path(context: &Context) -> Outcome<u8> {
    let path = &context.paths.config;
    if context.json {
        context.print_json(&json!({ "path": path.display().to_string(), "exists": path.exists() }))?;
    } else {
        context.print_line(&path.display().to_string())?;
    }
    Ok(0)
}

/// Returns the effective configuration, or all mistakes in it.
pub(crate) fn load(paths: &Paths) -> Outcome<Config> {
    let path = &paths.config;
    Config::load(path).map_err(|error| match error {
        // Nothing that an editor could mend.
        ConfigError::Unreadable { path, source } => {
            let error = CommandError::invalid(format!("cannot read {}: {}", path.display(), plain(&source)));
            if source.kind() == io::ErrorKind::PermissionDenied && !is_home_ours() {
                return error.with_hint(HOME_HINT);
            }
            error
        }
        ConfigError::Wrong { .. } => {
            let error = CommandError::invalid("the configuration is invalid").because(error);
            error.with_hint("relive config edit")
        }
    })
}

/// Returns whether `HOME` is a directory of the user that runs this command, which `su` and `sudo` may leave it not to be.
fn is_home_ours() -> bool {
    let home = std::env::var_os("HOME").map(std::fs::metadata);
    let own = rustix::process::geteuid().as_raw();
    home.and_then(Result::ok).is_none_or(|home| home.uid() == own)
}

fn show(context: &Context) -> Outcome<u8> {
    let path = &context.paths.config;
    let config = load(&context.paths)?;
    let exists = path.exists();
    if context.json {
        context.print_json(&json!({ "path": path.display().to_string(), "exists": exists, "config": config }))?;
        return Ok(0);
    }
    let origin = if exists { "" } else { " (no such file: all settings have their defaults)" };
    let yaml =
        config.to_yaml().map_err(|error| CommandError::internal("cannot print the configuration").because(error))?;
    context.print(&format!("# {}{origin}\n{}\n", path.display(), yaml.trim_end()))?;
    Ok(0)
}
