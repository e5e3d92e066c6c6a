//! `relive paths`: shows the paths of data, configuration, socket and log.

use serde_json::json;

use crate::context::Context;
use crate::error::Outcome;

/// Show the paths of the data, the configuration, the socket and the log
#[derive(Debug, clap::Args)]
#[command(before_long_help = "\
Examples:
  relive paths
  cd \"$(relive paths --json | jq -r .data)\"")]
pub(crate) struct Args {}

pub(crate) fn run(context: &Context) -> Outcome<u8> {
    let paths = &context.paths;
    if let Some(note) = relive_api::Paths::unused_runtime_directory() {
        context.say(&format!("note: {note}"));
    }
    if context.json {
        let (data, config) = (paths.data.display().to_string(), paths.config.display().to_string());
        let (socket, log) = (paths.socket.display().to_string(), paths.log.display().to_string());
        context.print_json(&json!({ "data": data, "config": config, "socket": socket, "log": log }))?;
        return Ok(0);
    }
    for (name, path) in
        [("data", &paths.data), ("config", &paths.config), ("socket", &paths.socket), ("log", &paths.log)]
    {
        context.print_line(&format!("{name:<8}{}", path.display()))?;
    }
    Ok(0)
}
