//! New limits of a node that its process cannot continue with.

use std::sync::Arc;

use relive_api::{Process, ResumeRequest};
use relive_core::{Body, ErrorCode, Limits, Pid, Usd, Uuid};

use super::{Redo, command};
use crate::error::{Error, Result};
use crate::hints::{Raise, about_twice};
use crate::reached::with_given;
use crate::runtime::Runtime;

impl Runtime {
    /// Refuses limits that do nothing for the last process of a node, and those that would end it at once.
    pub(super) async fn check_limits_of_node(
        self: &Arc<Self>,
        run: Pid,
        last: Uuid,
        redo: &Redo,
        request: &ResumeRequest,
    ) -> Result<()> {
        if request.limits == Limits::default() {
            return Ok(());
        }
        let id = last.to_string();
        let process = self.process_in_brief(&id).await?;
        if let Some(refusal) = self.limits_without_effect(&id, request).await {
            return Err(match with_effect(process.body, request.limits) {
                Some(limits) => refusal.with_hint(command(run, redo, &with_given(Raise::default(), limits))),
                None => refusal,
            });
        }
        // One that runs is refused as such.
        let Some(Exceeded { used, option, raise }) = exceeded(&process, request).filter(|_| process.dead_at.is_some())
        else {
            return Ok(());
        };
        let whom = format!("node {} (PID {})", redo.node, process.pid);
        let message = format!("{whom} has used {used}, so {option} would end it at once");
        Err(Error::new(ErrorCode::Conflict, message).with_hint(super::again(run, redo, raise)))
    }
}

/// Returns those of the limits that a process other than an agent can have.
fn with_effect(body: Body, limits: Limits) -> Option<Limits> {
    match body {
        Body::Agent | Body::Cli => None,
        Body::Exec => Some(Limits { timeout_ms: limits.timeout_ms, ..Limits::default() }),
        Body::Compose | Body::Supervisor => Some(Limits { max_steps: None, ..limits }),
    }
}

/// A new limit that is not above what a process has used.
#[derive(Debug, PartialEq, Eq)]
struct Exceeded {
    used: String,
    /// The limit as it was typed.
    option: String,
    /// A limit that lets the process continue.
    raise: Raise,
}

fn exceeded(process: &Process, request: &ResumeRequest) -> Option<Exceeded> {
    let Limits { max_steps, max_tokens, max_cost_usd, timeout_ms: _ } = request.limits;
    // A fork has the steps before it.
    let steps = request.from_step.unwrap_or(process.step);
    if let Some(max) = max_steps.filter(|max| *max <= steps) {
        let used = if steps == 1 { "1 step".to_owned() } else { format!("{steps} steps") };
        let raise = Raise { steps: Some(about_twice(steps.into())), ..Raise::default() };
        return Some(Exceeded { used, option: format!("--max-steps {max}"), raise });
    }
    if request.fork.is_some() {
        // It has spent nothing yet.
        return None;
    }
    let tree = process.tree.as_ref();
    let own = process.tokens_in.saturating_add(process.tokens_out);
    let tokens = tree.map_or(0, |tree| tree.tokens_in.saturating_add(tree.tokens_out)).max(own);
    if let Some(max) = max_tokens.filter(|max| *max <= tokens) {
        let raise = Raise { tokens: Some(about_twice(tokens)), ..Raise::default() };
        return Some(Exceeded { used: format!("{tokens} tokens"), option: format!("--max-tokens {max}"), raise });
    }
    let cost = tree.and_then(|tree| tree.cost_usd).max(process.cost_usd)?;
    let max = max_cost_usd.filter(|max| *max <= cost)?;
    let raise = Raise { cost: Some(Usd::from_nanos(about_twice(cost.nanos()))), ..Raise::default() };
    Some(Exceeded { used: format!("${cost}"), option: format!("--max-cost {max}"), raise })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_keeps_only_its_timeout_and_a_tree_all_but_its_steps() {
        let cost = Some(Usd::from_nanos(5));
        let all = Limits { max_steps: Some(1), max_tokens: Some(2), max_cost_usd: cost, timeout_ms: Some(3) };
        let check = |body: Body, expect: Option<Limits>| assert_eq!(with_effect(body, all), expect, "{body:?}");
        check(Body::Exec, Some(Limits { timeout_ms: Some(3), ..Limits::default() }));
        check(Body::Supervisor, Some(Limits { max_steps: None, ..all }));
        check(Body::Agent, None);
    }
}
