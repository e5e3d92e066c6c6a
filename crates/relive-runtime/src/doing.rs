//! The current activity of a process, as one line for a person. It is derived on request from the owner's state in
//! memory, so that it costs a step nothing.

use std::time::Duration;

use relive_api::Process;
use relive_cli_agent::{Activity as CliActivity, Lifecycle, Waiting};
use relive_core::{Body, Display, State, Timestamp, View};
use relive_journal::History;
use relive_journal::history::{OpenCall, Phase, Place};
use relive_journal::payload::Json;
use relive_journal::record::Call;
use relive_session::stage::Stage;
use tokio::time::Instant;

use crate::bodies::{LiveAgent, LiveSession, Shim};
use crate::runtime::{Published, Runtime};
use crate::view::of_view;

/// How long a listing waits, for all processes together, for turns to end.
const PATIENCE: Duration = Duration::from_millis(50);
/// How much of an argument is shown.
const ARGUMENT_MAX: usize = 200;
/// The arguments that describe a call best, the best first.
const TELLING: [&str; 7] = ["command", "pattern", "path", "name", "uuid", "duration", "intent"];

/// Returns until when a listing waits for turns.
pub(crate) fn patience() -> Instant {
    Instant::now() + PATIENCE
}

/// The activity of an agent, according to its journal.
enum Activity {
    Asking { since: Option<Timestamp> },
    Calling { first: OpenCall, more: usize, answer: Option<Place> },
}

impl Runtime {
    /// Returns a process of the table. A program that waits at its gate is `ready`, which only its session knows, and one that
    /// is frozen with the session it entered is `suspended`.
    pub(crate) fn shown(&self, state: &Published, view: &View<'_>) -> Process {
        let process = of_view(state, view);
        if view.body == Body::Cli {
            return self.with_agent(process);
        }
        if view.body != Body::Exec || !matches!(view.display, Display::Running | Display::Suspended) {
            return process;
        }
        if let Some(with) = self.frozen_with(state, view.uuid) {
            let told = with.told(true);
            let process = Process { resumable: false, hint: told.resume, ..process };
            if view.display == Display::Suspended {
                return process;
            }
            return Process {
                display: Display::Suspended.word().to_owned(),
                paused: true,
                paused_at: with.paused_at,
                suspend_reason: Some(with.reason),
                paused_by: Some(format!("the pause of {}, whose session it entered", told.who)),
                ..process
            };
        }
        if view.display == Display::Suspended {
            return process;
        }
        let session = self.owners.find(view.uuid).and_then(|owner| owner.session());
        // Every program passes this stage, but only one with a gate stays there.
        let stage = session.and_then(|session| match &*session.borrow() {
            Some(LiveSession { shim: Shim::Answers { connection, .. }, program, .. }) if program.gate => {
                Some(connection.seen().borrow().snapshot.stage)
            }
            Some(LiveSession { .. }) | None => None,
        });
        let display = match stage {
            Some(Stage::Starting | Stage::Spawned) => Display::Loading,
            Some(Stage::Ready) => Display::Ready,
            Some(Stage::Running | Stage::Exited | Stage::Signaled | Stage::Aborted | Stage::Errored) | None => {
                return process;
            }
        };
        Process { display: display.word().to_owned(), ..process }
    }

    /// Adds the current activity of a process.
    pub(crate) async fn with_doing(&self, process: Process, patience: Instant) -> Process {
        let doing = if process.state != State::Running || process.paused {
            None
        } else if process.display == Display::Ready.word() {
            Some("held at its gate".to_owned())
        } else if process.body == Body::Agent {
            self.agent_does(&process, patience).await
        } else if process.body == Body::Cli {
            match self.bodies.cli.pool.place(process.uuid) {
                Some(place) => Some(format!("queued, {} of {}", place.place, place.of)),
                None => self.bodies.cli.agents.get(process.uuid).and_then(|agent| self.cli_does(&agent)),
            }
        } else {
            None
        };
        Process { doing, ..process }
    }

    /// Adds what is known of a CLI agent that runs. One that has not said anything yet is being loaded.
    fn with_agent(&self, process: Process) -> Process {
        if let Some(place) = self.bodies.cli.pool.place(process.uuid) {
            let is_shown = process.display == Display::Running.word();
            let display = if is_shown { Display::Loading.word().to_owned() } else { process.display };
            return Process { display, agent: Some(place.to_json()), ..process };
        }
        let Some(agent) = self.bodies.cli.agents.get(process.uuid) else { return process };
        let is_loading = agent.lifecycle == Lifecycle::Spawning && process.display == Display::Running.word();
        let display = if is_loading { Display::Loading.word().to_owned() } else { process.display };
        Process { display, agent: Some(agent.to_json()), ..process }
    }

    fn cli_does(&self, agent: &LiveAgent) -> Option<String> {
        if let Some(until) = agent.gateway.and_then(|gateway| gateway.limited_until) {
            return Some(format!("waits for the quota of its provider, which resets in {}", span(self.until(until))));
        }
        if let Some(note) = &agent.note {
            return Some(note.clone());
        }
        if let Some(waiting) = agent.waiting.filter(|_| agent.in_terminal) {
            let tool = agent.asked.as_ref().map(|asked| format!(": {}", asked.tool)).unwrap_or_default();
            return Some(match waiting {
                Waiting::Approval => format!("asks for permission in its terminal{tool}"),
                Waiting::Question => "asks something in its terminal".to_owned(),
            });
        }
        if agent.in_terminal && agent.lifecycle == Lifecycle::Idle && agent.reports {
            return Some("idle, in its terminal".to_owned());
        }
        if agent.in_terminal && !agent.reports {
            let since = agent.turn_since.map(|since| span(self.since(since)));
            return Some(match (since, agent.gateway) {
                (Some(since), _) => format!("asks its model {since}"),
                (None, Some(_)) => "in its terminal, no model call".to_owned(),
                // Its calls do not pass through Relive.
                (None, None) => "in its terminal".to_owned(),
            });
        }
        match (agent.lifecycle, agent.activity) {
            (Lifecycle::Spawning | Lifecycle::Killed, _) => None,
            (Lifecycle::Idle, _) => Some(match agent.idle_kill_at {
                Some(at) => format!("idle, ends in {}", span(self.until(at))),
                None => "idle".to_owned(),
            }),
            (Lifecycle::Working, CliActivity::RunningTool) => {
                let (tool, since) = agent.tool.as_ref()?;
                Some(format!("{tool} {}", span(self.since(*since))))
            }
            (Lifecycle::Working, CliActivity::Responding) => Some("responding".to_owned()),
            (Lifecycle::Working, CliActivity::Thinking | CliActivity::Idle) => {
                let since = agent.turn_since.map(|since| format!(" {}", span(self.since(since))));
                Some(format!("thinking{}", since.unwrap_or_default()))
            }
        }
    }

    fn until(&self, at: Timestamp) -> Duration {
        at.duration_since(self.now()).try_into().unwrap_or_default()
    }

    async fn agent_does(&self, process: &Process, patience: Instant) -> Option<String> {
        let owner = self.owners.find(process.uuid)?;
        if let Some(again) = owner.asks_again_at() {
            return Some(format!("retrying in {}", span(again.saturating_duration_since(Instant::now()))));
        }
        match owner.look(patience, activity).await?? {
            Activity::Asking { since } => Some(format!("asking the model {}", span(self.since(since?)))),
            Activity::Calling { first, more, answer } => {
                let about = match answer {
                    Some(answer) => {
                        let read = self.argument(process.uuid, answer, first.call);
                        tokio::time::timeout_at(patience, read).await.ok().flatten()
                    }
                    None => None,
                };
                if let Some(about) = about.as_ref().filter(|_| first.name == "sleep" && more == 0) {
                    // Two durations: how long it sleeps, and how long it has slept.
                    return Some(format!("sleep {about} ({})", span(self.since(first.at))));
                }
                let about = about.map(|about| format!(": {about}")).unwrap_or_default();
                let more = if more > 0 { format!(" and {more} more") } else { String::new() };
                Some(format!("{}{about}{more} {}", first.name, span(self.since(first.at))))
            }
        }
    }

    fn since(&self, at: Timestamp) -> Duration {
        self.now().duration_since(at).try_into().unwrap_or_default()
    }

    /// Reads the argument of a call that describes it best.
    async fn argument(&self, uuid: relive_core::Uuid, answer: Place, call: u32) -> Option<String> {
        let data = std::sync::Arc::clone(&self.data);
        let calls = self.pools.reads.run(move || data.calls(uuid, answer)).await.ok()?.ok()?;
        telling(calls.get(call as usize)?)
    }
}

fn activity(history: &History) -> Option<Activity> {
    match &history.phase {
        Phase::Asking { .. } => Some(Activity::Asking { since: history.asked_at }),
        Phase::Calling { .. } => {
            let mut open = history.open_calls();
            let first = open.next()?.clone();
            Some(Activity::Calling { first, more: open.count(), answer: history.answer_place })
        }
        Phase::Boundary => None,
    }
}

fn telling(call: &Call) -> Option<String> {
    let Json::Inline(text) = &call.args else { return None };
    let args: serde_json::Map<String, serde_json::Value> = serde_json::from_str(text.get()).ok()?;
    let value = TELLING.iter().find_map(|name| args.get(*name))?;
    let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let shown: String = line.chars().take(ARGUMENT_MAX).collect();
    Some(if shown.len() < line.len() { format!("{shown}...") } else { shown })
}

/// `12s`, `1m05s`, `2h03m`.
fn span(time: Duration) -> String {
    let seconds = time.as_secs();
    let (minutes, hours) = (seconds / 60, seconds / 3600);
    match () {
        () if minutes == 0 => format!("{seconds}s"),
        () if hours == 0 => format!("{minutes}m{:02}s", seconds % 60),
        () => format!("{hours}h{:02}m", minutes % 60),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_is_described_by_its_best_argument_in_one_line() {
        let check = |args: &str, expect: Option<&str>| {
            let call = Call { id: "1".into(), name: "shell".into(), args: Json::parse(args).unwrap() };
            assert_eq!(telling(&call).as_deref(), expect, "{args}");
        };
        check(r#"{"path":"b","command":"make\n  -j4"}"#, Some("make -j4"));
        check(r#"{"path":"src/lib.rs","text":"long"}"#, Some("src/lib.rs"));
        check(r#"{"duration":30}"#, Some("30"));
        check("{}", None);
        check("[]", None);
        let long = format!(r#"{{"command":"{}"}}"#, "x".repeat(300));
        check(&long, Some(&format!("{}...", "x".repeat(200))));
    }

    #[test]
    fn spans_have_two_units_at_most() {
        let check = |seconds, text: &str| assert_eq!(span(Duration::from_secs(seconds)), text);
        check(0, "0s");
        check(59, "59s");
        check(65, "1m05s");
        check(7_380, "2h03m");
    }
}
