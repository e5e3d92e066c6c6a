//! `spawn_agent` and `wait_agent`: child agents, identified by a UUID that is in the journal before they are created.

use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use relive_journal::recovery::{Finding, Lookup, Recovery};
use relive_types::Uuid;
use serde_json::{Value, json};

use super::args::Args;
use crate::tool::{ChildRequest, Context, Patience, Tool, ToolResult};

#[derive(Debug)]
pub(super) struct SpawnAgent;

struct Child {
    intent: String,
    name: Option<String>,
    model: Option<String>,
}

fn parse_child(args: &str) -> Result<Child, ToolResult> {
    let mut args = Args::parse("spawn_agent", args, &["intent", "name", "model"])?;
    let intent = args.text("intent")?;
    if intent.trim().is_empty() {
        return Err(ToolResult::failed("spawn_agent: `intent` must say what the child shall do"));
    }
    Ok(Child { intent, name: args.optional_text("name")?, model: args.optional_text("model")? })
}

impl Tool for SpawnAgent {
    fn name(&self) -> &'static str {
        "spawn_agent"
    }

    fn definition(&self) -> Value {
        json!({
            "name": "spawn_agent",
            "description": "Start a child agent that works on its own, beside you. Answers at once with {\"uuid\": ...}; wait_agent waits for its end.",
            "input_schema": {
                "type": "object",
                "properties": {
                    "intent": {"type": "string", "description": "What it shall do. It knows nothing else of what you know."},
                    "name": {"type": "string", "description": "A short name for people to see."},
                    "model": {"type": "string", "description": "PROVIDER/MODEL; yours if absent."}
                },
                "required": ["intent"],
                "additionalProperties": false
            }
        })
    }

    fn prepare(&self, context: Context, args: String) -> BoxFuture<'static, Result<Recovery, ToolResult>> {
        super::ready(parse_child(&args).map(|_| Recovery::Lookup { what: Lookup::Child(context.host.new_uuid()) }))
    }

    fn run(&self, context: Context, args: String, recovery: Recovery, _: String) -> BoxFuture<'static, ToolResult> {
        async move {
            let Recovery::Lookup { what: Lookup::Child(uuid) } = recovery else {
                return super::foreign_recovery("spawn_agent");
            };
            let Child { intent, name, model } = match parse_child(&args) {
                Ok(child) => child,
                Err(failed) => return failed,
            };
            let request = ChildRequest { uuid, parent: context.uuid, name, intent, model };
            match context.host.spawn_agent(request).await {
                Ok(()) => spawned(uuid),
                Err(error) => ToolResult::failed(format!("spawn_agent: {error}")),
            }
        }
        .boxed()
    }

    fn look(&self, context: Context, recovery: Recovery, _: String) -> BoxFuture<'static, Finding> {
        async move {
            let Recovery::Lookup { what: Lookup::Child(uuid) } = recovery else { return Finding::Lost };
            if context.host.exists(uuid).await { Finding::Finished } else { Finding::Absent }
        }
        .boxed()
    }

    fn found_done(&self, _: String, recovery: Recovery) -> ToolResult {
        match recovery {
            Recovery::Lookup { what: Lookup::Child(uuid) } => spawned(uuid),
            Recovery::Rerun
            | Recovery::Join
            | Recovery::Check { .. }
            | Recovery::Lookup { .. }
            | Recovery::SameKey
            | Recovery::Doubt => super::foreign_recovery("spawn_agent"),
        }
    }
}

fn spawned(uuid: Uuid) -> ToolResult {
    ToolResult::ok(json!({"uuid": uuid}).to_string())
}

#[derive(Debug)]
pub(super) struct WaitAgent;

fn parse_wait(args: &str) -> Result<(Uuid, Option<Duration>), ToolResult> {
    let mut args = Args::parse("wait_agent", args, &["uuid", "timeout"])?;
    Ok((args.uuid("uuid")?, args.optional_duration("timeout")?))
}

impl Tool for WaitAgent {
    fn name(&self) -> &'static str {
        "wait_agent"
    }

    fn definition(&self) -> Value {
        json!({
            "name": "wait_agent",
            "description": "Wait until a child agent ends. Answers {\"uuid\", \"code\", \"reason\", \"text\"}: code 0 is success, text is the last it said.",
            "input_schema": {
                "type": "object",
                "properties": {
                    "uuid": {"type": "string", "description": "As spawn_agent answered it."},
                    "timeout": {"type": ["string", "number"], "description": "Give up waiting after this, like \"30s\"; the child continues."}
                },
                "required": ["uuid"],
                "additionalProperties": false
            }
        })
    }

    fn patience(&self) -> Patience {
        Patience::Leave
    }

    fn prepare(&self, context: Context, args: String) -> BoxFuture<'static, Result<Recovery, ToolResult>> {
        super::ready(parse_wait(&args).and_then(|(uuid, _)| {
            if uuid == context.uuid {
                return Err(ToolResult::failed("wait_agent: `uuid` is your own; you would wait for ever"));
            }
            Ok(Recovery::Lookup { what: Lookup::Wait(uuid) })
        }))
    }

    // The journal has no deadline for a wait, so its timeout starts over when the wait continues after a resume.
    fn run(&self, context: Context, args: String, recovery: Recovery, _: String) -> BoxFuture<'static, ToolResult> {
        async move {
            let Recovery::Lookup { what: Lookup::Wait(uuid) } = recovery else {
                return super::foreign_recovery("wait_agent");
            };
            let timeout = match parse_wait(&args) {
                Ok((_, timeout)) => timeout,
                Err(failed) => return failed,
            };
            let wait = context.host.wait_agent(context.uuid, uuid);
            let ended = match timeout {
                None => wait.await,
                Some(timeout) => match tokio::time::timeout(timeout, wait).await {
                    Ok(ended) => ended,
                    Err(_) => {
                        return ToolResult::failed(format!(
                            "wait_agent: timed out after {timeout:?}; {uuid} continues"
                        ));
                    }
                },
            };
            match ended {
                Ok(end) => {
                    let answer = json!({"uuid": uuid, "code": end.code, "reason": end.reason, "text": end.last_text});
                    ToolResult::ok(answer.to_string())
                }
                Err(error) => ToolResult::failed(format!("wait_agent: {error}")),
            }
        }
        .boxed()
    }

    fn look(&self, _: Context, _: Recovery, _: String) -> BoxFuture<'static, Finding> {
        super::ready(Finding::Running)
    }
}
