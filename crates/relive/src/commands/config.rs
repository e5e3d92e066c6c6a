//! `relive config`: shows the configuration.

mod edit;

use relive_api::Paths;
use relive_config::Config;
use serde_json::json;

use crate::context::Context;
use crate::error::{CommandError, Outcome};

/// Show or edit the configuration
///
/// The daemon reloads the file when it changes. `relive daemon status` names the settings that need a restart.
#[derive(Debug, clap::Args)]
#[command(before_long_help = "\
Examples:
  relive config show   show all settings, including defaults
  relive config edit   edit the file in $VISUAL or $EDITOR, and check it
  relive config show > ~/.config/relive/config.yaml.new")]
pub(crate) struct Args {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, clap::Subcommand)]
enum Verb {
    /// Show all settings, including defaults, and the file they come from
    Show,
    /// Edit the file in $VISUAL or $EDITOR; an invalid file is not saved
    Edit,
    /// Print the path of the file, even if it does not exist
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
    Config::load(path).map_err(|error| {
        let error = CommandError::invalid("the configuration is invalid").because(error);
        error.with_hint("relive config edit")
    })
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
