//! `relive version`.

use serde_json::{Value, json};

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
    if context.json {
        context.print_json(&as_json())?;
    } else {
        context.print_line(&format!("relive {VERSION}"))?;
    }
    Ok(0)
}

const VERSION: &str = env!("CARGO_PKG_VERSION");

pub(crate) fn as_json() -> Value {
    json!({ "version": VERSION, "api": relive_api::API_VERSION })
}
