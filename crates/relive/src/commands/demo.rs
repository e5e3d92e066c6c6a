//! `relive demo`: see `crate::demo`.

use std::path::PathBuf;

use crate::error::{CommandError, Outcome};

/// Show what a journal is good for: one is killed with -9 in mid-step, recovered and forked
#[derive(Debug, clap::Args)]
#[command(before_long_help = "\
Examples:
  relive demo   needs no key, no network and no configuration")]
pub(crate) struct Args {}

/// The program that is killed in the demo
#[derive(Debug, clap::Args)]
pub(crate) struct WriterArgs {
    data: PathBuf,
    world: PathBuf,
}

pub(crate) fn run() -> Outcome<u8> {
    finish(crate::demo::run())
}

pub(crate) fn write(args: &WriterArgs) -> Outcome<u8> {
    finish(crate::demo::write(&args.data, &args.world))
}

fn finish(outcome: Result<(), Box<dyn std::error::Error>>) -> Outcome<u8> {
    outcome.map(|()| 0).map_err(|error| CommandError::internal(error.to_string()))
}
