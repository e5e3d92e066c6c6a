//! `relive version`.

use serde_json::json;

use crate::context::Context;
use crate::error::Outcome;

/// Show the version
#[derive(Debug, clap::Args)]
#[command(before_long_help = "\
Examples:
  relive version
  relive version --json | jq -r .version")]
pub(crate) struct Args {}

pub(crate) fn run(context: &Context) -> Outcome<u8> {
    let version = env!("CARGO_PKG_VERSION");
    if context.json {
        context.print_json(&json!({ "version": version, "api": relive_api::API_VERSION }))?;
    } else {
        context.print_line(&format!("relive {version}"))?;
    }
    Ok(0)
}
