//! `relive logs --spawns`: each start of the program of a CLI agent.

use jiff::Timestamp;
use relive_api::Process;
use relive_client::Source;
use relive_core::{Body, ErrorCode};
use relive_types::program::quote;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use unicode_width::UnicodeWidthStr as _;

use super::Args;
use super::secrets::masked;
use crate::client::Client;
use crate::error::{CommandError, Outcome};
use crate::render::line::Line;
use crate::render::time::Clock;

/// What a line begins with that continues the one before.
const CONTINUED: &str = "    ";

/// A start of a program.
#[derive(Debug, PartialEq, Serialize)]
struct Spawn {
    at: Option<Timestamp>,
    /// `new`, `resume` or `fork`.
    how: String,
    argv: Vec<String>,
    cwd: String,
    env_names: Vec<String>,
    /// Whether its model calls go through the gateway.
    gateway: bool,
    ended_at: Option<Timestamp>,
    /// `crashed` if another program was started in its place, otherwise as `info` has it.
    status: Option<Value>,
    why: Option<Value>,
}

#[derive(Deserialize)]
struct Launched {
    argv: Vec<String>,
    how: String,
    gateway: Option<serde::de::IgnoredAny>,
}

/// The starts in a journal, as its records are read.
#[derive(Default)]
struct Spawns {
    cwd: String,
    env_names: Vec<String>,
    all: Vec<Spawn>,
}

impl Spawns {
    fn take_in(&mut self, line: &Line) {
        match line.kind.as_str() {
            "spawned" => {
                self.cwd = line.field("cwd").unwrap_or_default();
                self.env_names = line.field("env_names").unwrap_or_default();
            }
            "cli" => {
                if let Some(launched) = line.field::<Launched>("launched") {
                    self.all.push(self.spawn(line.at, launched));
                }
                if line.field::<u32>("crashed").is_some() {
                    self.end(line.at, Some("crashed".into()), None);
                }
            }
            "ended" => {
                let cause = line.field::<Value>("cause");
                self.end(line.at, line.field("status"), cause.map(|cause| cause["why"].clone()));
            }
            _ => {}
        }
    }

    fn spawn(&self, at: Option<Timestamp>, launched: Launched) -> Spawn {
        Spawn {
            at,
            how: launched.how,
            argv: masked(launched.argv),
            cwd: self.cwd.clone(),
            env_names: self.env_names.clone(),
            gateway: launched.gateway.is_some(),
            ended_at: None,
            status: None,
            why: None,
        }
    }

    fn end(&mut self, at: Option<Timestamp>, status: Option<Value>, why: Option<Value>) {
        if let Some(last) = self.all.last_mut().filter(|last| last.ended_at.is_none()) {
            (last.ended_at, last.status, last.why) = (at, status, why);
        }
    }
}

pub(super) async fn run(client: &Client<'_>, args: &Args, process: &Process) -> Outcome<u8> {
    let context = client.context();
    if process.body != Body::Cli {
        let message = format!("PID {} is not a CLI agent", process.pid);
        let error = CommandError::new(ErrorCode::Invalid, message);
        return Err(error.with_hint(format!("relive info {}", process.pid)));
    }
    let (mut spawns, mut last) = (Spawns::default(), None);
    client
        .read(&process.uuid.to_string(), Source::Journal, &mut last, async |event| {
            if let Some(line) = Line::parse(&event.data) {
                spawns.take_in(&line);
            }
            Ok::<_, CommandError>(())
        })
        .await?;
    let is_recent = |spawn: &&Spawn| args.since.zip(spawn.at).is_none_or(|(since, at)| at >= since);
    let clock = if args.utc { Clock::utc() } else { Clock::local() };
    for spawn in spawns.all.iter().filter(is_recent) {
        if context.json {
            context.print_json(spawn)?;
        } else {
            context.print(&text(spawn, &clock, context.out.width))?;
        }
    }
    Ok(0)
}

/// Describes a start. On a terminal, lines that are too long continue indented.
fn text(spawn: &Spawn, clock: &Clock, width: Option<usize>) -> String {
    let time = |at: Option<Timestamp>| at.map(|at| clock.second(at)).unwrap_or_default();
    let words: Vec<String> = spawn.argv.iter().map(|word| quote(word)).collect();
    let gateway = if spawn.gateway { ", through the gateway" } else { "" };
    let mut lines = vec![
        format!("{} {}{gateway}: {}", time(spawn.at), spawn.how, words.join(" ")),
        format!("  directory: {}", spawn.cwd),
        format!("  variables: {}", spawn.env_names.join(" ")),
    ];
    if let Some(status) = &spawn.status {
        let kind = status["kind"].as_str().or(status.as_str()).unwrap_or("ended");
        let why = spawn.why.as_ref().and_then(Value::as_str).map(|why| format!(" ({why})")).unwrap_or_default();
        lines.push(format!("  {} {kind}{why}", time(spawn.ended_at)));
    }
    lines.iter().map(|line| wrapped(&crate::terminal::without_controls(line), width)).collect()
}

/// Breaks a line between words. A longer word stays whole, so that it can be copied.
fn wrapped(line: &str, width: Option<usize>) -> String {
    let (Some(width), words) = (width, line.trim_start().split(' ')) else { return format!("{line}\n") };
    let mut out = line[..line.len() - line.trim_start().len()].to_owned();
    let mut used = out.width();
    for (place, word) in words.enumerate() {
        if place > 0 && used + 1 + word.width() > width {
            out.push('\n');
            out.push_str(CONTINUED);
            used = CONTINUED.len();
        } else if place > 0 {
            out.push(' ');
            used += 1;
        }
        out.push_str(word);
        used += word.width();
    }
    out.push('\n');
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_lines_continue_indented_on_a_terminal() {
        let line = "  variables: HOME PATH LANGUAGE";
        assert_eq!(wrapped(line, None), format!("{line}\n"));
        assert_eq!(wrapped(line, Some(20)), "  variables: HOME\n    PATH LANGUAGE\n");
        assert_eq!(wrapped("a b", Some(1)), "a\n    b\n");
    }

    #[test]
    fn each_start_has_its_end() {
        let mut spawns = Spawns::default();
        let records = [
            r#"{"kind":"spawned","cwd":"/w","env_names":["HOME"]}"#,
            r#"{"kind":"cli","launched":{"argv":["claude"],"how":"new","gateway":{"port":1,"token":"x"}}}"#,
            r#"{"kind":"cli","at":"2026-11-17T12:00:00Z","crashed":1}"#,
            r#"{"kind":"cli","launched":{"argv":["claude"],"how":"resume"}}"#,
            r#"{"kind":"ended","at":"2026-11-17T12:00:01Z","status":{"kind":"killed"},"cause":{"why":"user"}}"#,
        ];
        records.iter().for_each(|record| spawns.take_in(&Line::parse(record).unwrap()));
        let shown: Vec<_> = spawns.all.iter().map(|spawn| (spawn.how.as_str(), spawn.gateway, &spawn.status)).collect();
        let (crashed, killed) = (Some(Value::from("crashed")), Some(serde_json::json!({"kind": "killed"})));
        assert_eq!(shown, [("new", true, &crashed), ("resume", false, &killed)]);
        assert_eq!((spawns.all[1].cwd.as_str(), spawns.all[1].env_names.as_slice()), ("/w", &["HOME".to_owned()][..]));
    }
}
