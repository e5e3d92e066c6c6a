//! `relive agent-events`: the output of a CLI agent, as neutral events and states.

use std::fs::File;
use std::io::{self, BufWriter, Read, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::builder::{PossibleValuesParser, TypedValueParser};
use jiff::Timestamp;
use relive_cli_agent::{AgentStream, Dialect, LineReport};

use crate::error::{CommandError, Outcome};

const AUTO: &str = "auto";
const CHUNK_BYTES: usize = 64 * 1024;

/// Translate the output of a CLI agent to events, and show its state after every line
#[derive(Debug, clap::Args)]
#[command(before_long_help = "\
Examples:
  relive agent-events claude.jsonl
  claude -p --output-format stream-json --verbose \"hi\" | relive agent-events -
  relive agent-events --dialect codex-exec run.jsonl | jq -c '{line, activity}'")]
#[command(after_long_help = "\
Prints one JSON object for each line of the input, with or without --json:
  {\"line\":3,\"dialect\":\"claude\",\"events\":[{\"kind\":\"text\",...}],\"activity\":\"responding\",\"lifecycle\":\"working\"}

  line       number of the line, from 1
  dialect    null until it is detected
  activity   idle | thinking | running_tool | responding
  lifecycle  spawning (until the first known line) | working | idle
  waiting    approval | question; absent if the CLI does not wait for an answer

If no line belongs to only one dialect, none is detected: dialect stays null, every line is
unknown or malformed, and the lifecycle stays spawning. --dialect sets it.

Only the output of the CLI is read: a turn or an answer that was written to its input appears
when the CLI reports it.

A line that is not JSON, is larger than 16 MiB or has an unknown type is an event as well:
the exit code is still 0. docs/cli-agents.md lists all kinds of events.")]
pub(crate) struct Args {
    /// The output format; `auto` detects it from the first line that only one format can contain
    #[arg(long, value_name = "D", default_value = AUTO, value_parser = dialect_parser())]
    dialect: DialectChoice,
    /// The recorded output of a CLI agent, a FIFO, or `-` for standard input
    file: PathBuf,
}

#[derive(Debug, Clone, Copy)]
enum DialectChoice {
    Auto,
    Fixed(Dialect),
}

fn dialect_parser() -> impl TypedValueParser<Value = DialectChoice> {
    let names = Dialect::ALL.into_iter().map(Dialect::name);
    PossibleValuesParser::new([AUTO].into_iter().chain(names)).try_map(|name| match name.as_str() {
        AUTO => Ok(DialectChoice::Auto),
        name => name.parse().map(DialectChoice::Fixed),
    })
}

pub(crate) fn run(args: &Args) -> Outcome<u8> {
    let dialect = match args.dialect {
        DialectChoice::Auto => None,
        DialectChoice::Fixed(dialect) => Some(dialect),
    };
    // The countdown to the idle kill is not printed, so it does not run.
    let stream = AgentStream::new(dialect, Duration::ZERO, Timestamp::now());
    let out = BufWriter::new(crate::stdout::Stdout);
    if args.file == Path::new("-") {
        translate(stream, io::stdin().lock(), out, "standard input")?;
    } else {
        let name = args.file.display().to_string();
        let file = File::open(&args.file).map_err(|error| unreadable(&name, error))?;
        translate(stream, file, out, &name)?;
    }
    Ok(0)
}

/// Writes each report as soon as its line is complete, so that a pipe can be watched.
fn translate(mut stream: AgentStream, mut input: impl Read, mut out: impl Write, name: &str) -> Outcome<()> {
    let mut chunk = vec![0; CHUNK_BYTES];
    loop {
        let bytes = match input.read(&mut chunk) {
            Ok(0) => break,
            Ok(count) => &chunk[..count],
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => {
                out.flush()?;
                return Err(unreadable(name, error));
            }
        };
        let mut written = Ok(());
        stream.push(bytes, Timestamp::now(), |_, report| write_report(&mut out, &report, &mut written));
        written?;
        out.flush()?;
    }
    let mut written = Ok(());
    stream.finish(Timestamp::now(), |_, report| write_report(&mut out, &report, &mut written));
    written?;
    out.flush()?;
    Ok(())
}

/// Writes a report unless an earlier one could not be written.
fn write_report(out: &mut impl Write, report: &LineReport, written: &mut io::Result<()>) {
    if written.is_ok() {
        *written =
            serde_json::to_writer(&mut *out, report).map_err(io::Error::from).and_then(|()| out.write_all(b"\n"));
    }
}

fn unreadable(name: &str, error: io::Error) -> CommandError {
    CommandError::invalid(format!("cannot read {name}")).because(error)
}
