//! `relive config`: what is configured, and where.

use relive_api::Paths;
use relive_config::Config;
use serde_json::json;

use crate::context::Context;
use crate::error::{CommandError, Outcome};

/// Show the configuration
#[derive(Debug, clap::Args)]
#[command(before_long_help = "\
Examples:
  relive config show                                      what holds, defaults included
  relive config show > ~/.config/relive/config.yaml.new   begin a file with everything in it")]
pub(crate) struct Args {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, clap::Subcommand)]
enum Verb {
    /// Show what holds, defaults included, and where it comes from
    Show,
}

pub(crate) fn run(context: &Context, args: &Args) -> Outcome<u8> {
    match args.verb {
        Verb::Show => show(context),
    }
}

/// What holds, or all that is wrong with it.
pub(crate) fn load(paths: &Paths) -> Outcome<Config> {
    let path = &paths.config;
    Config::load(path).map_err(|error| {
        let error = CommandError::invalid("the configuration cannot be used").because(error);
        error.with_hint(format!("${{EDITOR:-vi}} {}", path.display()))
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
    let origin = if exists { "" } else { " (no such file: all defaults)" };
    let yaml = config.to_yaml().map_err(|error| CommandError::internal("cannot show it").because(error))?;
    context.print(&format!("# {}{origin}\n{}\n", path.display(), yaml.trim_end()))?;
    Ok(0)
}
