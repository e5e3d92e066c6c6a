//! Refuses to continue a process that a limit has stopped, and would stop again at once, and limits that do nothing.

use std::sync::Arc;

use relive_api::{Process, ResumeRequest};
use relive_core::{Body, ErrorCode, Limits, Pid, SuspendReason, Usd, Uuid};
use relive_flow::{Flow, SlotState, SlotStatus, Start};
use relive_journal::record::OnBudget;

use relive_types::program::quote;

use crate::error::Error;
use crate::flows::Reopening;
use crate::hints::{Ended, Raise, Used, resume_with};
use crate::runtime::Runtime;

/// A limit that a process can reach.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Limit {
    Steps,
    Tokens,
    Cost,
    Time,
}

impl Limit {
    const ALL: [Self; 4] = [Self::Steps, Self::Tokens, Self::Cost, Self::Time];

    fn option(self) -> &'static str {
        match self {
            Self::Steps => "--max-steps",
            Self::Tokens => "--max-tokens",
            Self::Cost => "--max-cost",
            Self::Time => "--timeout",
        }
    }

    /// Returns the value of a limit, in the unit in which it is counted.
    fn of(self, limits: Limits) -> Option<u64> {
        match self {
            Self::Steps => limits.max_steps.map(u64::from),
            Self::Tokens => limits.max_tokens,
            Self::Cost => limits.max_cost_usd.map(Usd::nanos),
            Self::Time => limits.timeout_ms,
        }
    }

    fn is_raised_by(self, raise: Raise) -> bool {
        match self {
            Self::Steps => raise.steps.is_some(),
            Self::Tokens => raise.tokens.is_some(),
            Self::Cost => raise.cost.is_some(),
            Self::Time => raise.timeout_ms.is_some(),
        }
    }

    /// Returns how much a process has used: tokens and cost with its descendants, steps and time of its own.
    fn used(self, process: &Process) -> u64 {
        let tree = process.tree.as_ref();
        match self {
            Self::Steps => process.step.into(),
            Self::Tokens => {
                let own = process.tokens_in.saturating_add(process.tokens_out);
                tree.map_or(0, |tree| tree.tokens_in.saturating_add(tree.tokens_out)).max(own)
            }
            Self::Cost => tree.and_then(|tree| tree.cost_usd).max(process.cost_usd).map_or(0, Usd::nanos),
            Self::Time => process.elapsed_ms,
        }
    }

    /// Returns an amount as a person reads it.
    fn tell(self, amount: u64) -> String {
        match self {
            Self::Steps if amount == 1 => "1 step".to_owned(),
            Self::Steps => format!("{amount} steps"),
            Self::Tokens => format!("{amount} tokens"),
            Self::Cost => format!("${}", Usd::from_nanos(amount)),
            Self::Time => seconds(amount),
        }
    }

    /// Returns an amount as its option takes it.
    fn typed(self, amount: u64) -> String {
        match self {
            Self::Steps | Self::Tokens => amount.to_string(),
            Self::Cost => Usd::from_nanos(amount).to_string(),
            Self::Time => seconds(amount),
        }
    }
}

fn seconds(millis: u64) -> String {
    if millis.is_multiple_of(1000) { format!("{}s", millis / 1000) } else { format!("{millis}ms") }
}

impl Runtime {
    /// Refuses new limits that do nothing: those of agents for a program or a tree, and dollars for a script without costs.
    pub(crate) async fn limits_without_effect(self: &Arc<Self>, id: &str, request: &ResumeRequest) -> Option<Error> {
        let Limits { max_steps, max_tokens, max_cost_usd, timeout_ms } = request.limits;
        if request.limits == Limits::default() {
            return None;
        }
        // A failure to look is told by the resume itself.
        let process = self.process_in_brief(id).await.ok()?;
        if process.body == Body::Cli && timeout_ms.is_some() {
            return self.check_time_of_agent(id, &process, request).await;
        }
        if max_steps.is_none() && max_tokens.is_none() && max_cost_usd.is_none() {
            return None;
        }
        let steps = max_steps.map(|_| Limit::Steps.option());
        let (what, without_effect) = match process.body {
            Body::Agent => {
                let model = request.model.as_deref().or(process.model.as_deref())?;
                let (cwd, whose) = (process.cwd.as_ref(), (process.uuid, &request.env));
                return self.check_cost_of_script(request.limits, model, cwd, whose).await.err();
            }
            Body::Cli => return None,
            Body::Exec => {
                let spending = [max_tokens.map(|_| Limit::Tokens.option()), max_cost_usd.map(|_| Limit::Cost.option())];
                ("a program", [steps].into_iter().chain(spending).flatten().collect::<Vec<_>>())
            }
            Body::Compose => ("a run of a compose file", steps.into_iter().collect()),
            Body::Supervisor => ("a supervisor", steps.into_iter().collect()),
        };
        if without_effect.is_empty() {
            return None;
        }
        let named = without_effect.join(" and ");
        let limits = if without_effect.len() == 1 { "limits" } else { "limit" };
        let message = format!("PID {} is {what}: {named} {limits} only agents", process.pid);
        let fork = if request.fork.is_some() { " --fork" } else { "" };
        let timeout = timeout_ms.map(|millis| format!(" --timeout {}", seconds(millis))).unwrap_or_default();
        Some(Error::new(ErrorCode::Invalid, message).with_hint(format!("relive resume{fork} {id}{timeout}")))
    }

    /// Refuses a time limit for a CLI agent that is to be suspended at its limits, as its start does: its shim ends it then.
    async fn check_time_of_agent(
        self: &Arc<Self>,
        id: &str,
        process: &Process,
        request: &ResumeRequest,
    ) -> Option<Error> {
        let (data, uuid) = (Arc::clone(&self.data), process.uuid);
        let history = self.pools.journal.run(move || data.history(uuid)).await.ok()?.ok()?.0;
        if history.identity.as_ref()?.spawned.on_budget != OnBudget::Suspend {
            return None;
        }
        let name = history.cli.as_ref().map(|facts| facts.agent.agent.clone()).unwrap_or_default();
        let message = format!(
            "--timeout cannot be used with the CLI agent `{name}`, which was started with --on-budget suspend: at a time limit it always ends"
        );
        let Limits { max_tokens, max_cost_usd, .. } = request.limits;
        let mut hint = format!("relive resume{} {id}", if request.fork.is_some() { " --fork" } else { "" });
        hint.extend(max_tokens.map(|tokens| format!(" --max-tokens {tokens}")));
        hint.extend(max_cost_usd.map(|cost| format!(" --max-cost {cost}")));
        Some(Error::new(ErrorCode::Invalid, message).with_hint(hint))
    }

    /// Returns the refusal of a model for a process that asks none.
    pub(crate) async fn model_without_effect(self: &Arc<Self>, id: &str, request: &ResumeRequest) -> Option<Error> {
        request.model.as_ref()?;
        // A failure to look is told by the resume itself.
        let process = self.process_in_brief(id).await.ok()?;
        let what = match process.body {
            Body::Agent | Body::Cli => return None,
            Body::Exec => "a program",
            Body::Compose => "a run of a compose file",
            Body::Supervisor => "a supervisor",
        };
        let message = format!("process {} is {what}: --model is only for agents", process.uuid);
        let fork = if request.fork.is_some() { " --fork" } else { "" };
        Some(Error::new(ErrorCode::Invalid, message).with_hint(format!("relive resume{fork} {id}")))
    }

    /// Returns the refusal of a request that would have no effect: a limit stops the process, or its fork, again at once.
    /// `id` is what was typed.
    pub(crate) async fn stops_at_once(
        self: &Arc<Self>,
        id: &str,
        uuid: Uuid,
        request: &ResumeRequest,
    ) -> Option<Error> {
        let hint = |raise| again(id, request, raise);
        if let Some(refusal) = self.stops_again(None, hint, uuid, request).await {
            return Some(refusal);
        }
        let process =
            self.process_in_brief(&uuid.to_string()).await.ok().filter(|process| process.dead_at.is_some())?;
        match process.body {
            Body::Compose | Body::Supervisor => self.tree_stops(&process, hint, request).await,
            Body::Agent | Body::Exec | Body::Cli => None,
        }
    }

    /// Returns the refusal of a process that a limit of its own stops again. `node` is its name in a run, and `hint` returns
    /// what was typed with new limits.
    pub(crate) async fn stops_again(
        self: &Arc<Self>,
        node: Option<&str>,
        hint: impl Fn(Raise) -> String,
        uuid: Uuid,
        request: &ResumeRequest,
    ) -> Option<Error> {
        if let Some(living) = self.living(uuid) {
            let state = self.lock();
            let (_, reason) = state.table.machine(living.of.pid)?.pause()?;
            if reason != SuspendReason::BudgetExceeded {
                return None;
            }
        }
        // A failure to look is told by the resume itself.
        let process = self.process_in_brief(&uuid.to_string()).await.ok()?;
        let reached = self.reached(&process).await?;
        refusal(&process, node, hint, request, reached)
    }

    /// Returns what keeps a process from continuing.
    async fn reached(self: &Arc<Self>, process: &Process) -> Option<Reached> {
        let uuid = process.uuid;
        let (history, _) = self.on_journal(move |data| data.history(uuid)).await.ok()?.ok()?;
        let used = Used {
            step: process.step,
            elapsed_ms: process.elapsed_ms,
            tokens: process.tokens_in.saturating_add(process.tokens_out),
            cost: process.cost_usd,
        };
        if process.dead_at.is_some() {
            let exit = process.exit.as_ref().filter(|_| process.successor_pid.is_none())?;
            let ended = Ended { exit_reason: &exit.reason, why: process.why };
            return ended.raise(history.limits, used).map(Reached::Own);
        }
        if let Some(raise) = used.own_limit(history.limits) {
            return Some(Reached::Own(raise));
        }
        let exhausted = self.exhausted(uuid).await?;
        Some(if exhausted.payer == uuid {
            Reached::Own(exhausted.into())
        } else {
            Reached::Ancestors { hint: self.raise(process.pid, exhausted) }
        })
    }
}

impl Runtime {
    /// Returns the refusal of a tree that ended and has nothing left to spend, or has a node that its own limit stops again.
    /// A tree that was at a limit itself, and gets a larger one, runs its other nodes: one at its own limit could not be
    /// resumed in it before, and can after that.
    async fn tree_stops(
        self: &Arc<Self>,
        tree: &Process,
        hint: impl Fn(Raise) -> String,
        request: &ResumeRequest,
    ) -> Option<Error> {
        let reopening = self.reopening(tree.uuid).await.ok()?;
        let exhausted = self.exhausted(tree.uuid).await.filter(|_| reopening.after.has_agents_left());
        let was_at_limit = exhausted.is_some() || self.reached(tree).await.is_some();
        let reached = exhausted.map(|exhausted| match exhausted.payer == tree.uuid {
            true => Reached::Own(exhausted.into()),
            false => Reached::Ancestors { hint: self.raise(tree.pid, exhausted) },
        });
        if let Some(refusal) = reached.and_then(|reached| refusal(tree, None, hint, request, reached)) {
            return Some(refusal);
        }
        if was_at_limit {
            return None;
        }
        for (node, uuid) in resumed_after_limit(&reopening) {
            let hint = |raise| format!("relive compose resume {} --node {node} {raise}", tree.pid);
            let stops = self.stops_again(Some(node), hint, uuid, &ResumeRequest::default()).await;
            if stops.is_some() {
                return stops;
            }
        }
        None
    }

    /// Returns the command that has a node at its limit continue in its tree.
    pub(crate) async fn limit_hint(self: &Arc<Self>, tree: Pid, node: &str, uuid: Uuid) -> Option<String> {
        let hint = |raise| format!("relive compose resume {tree} --node {node} {raise}");
        let refusal = self.stops_again(Some(node), hint, uuid, &ResumeRequest::default()).await;
        refusal.and_then(|refusal| refusal.hint())
    }

    /// Refuses to continue a node if the run has nothing left to spend. `after` is the run with the node as it would be.
    pub(crate) async fn lacks_budget(self: &Arc<Self>, run: &Process, after: &Flow, node: &str) -> Option<Error> {
        let exhausted = self.exhausted(run.uuid).await.filter(|_| after.has_agents_left())?;
        let pid = run.pid;
        let raise = match exhausted.payer == run.uuid {
            true => resume_with(pid, exhausted.into()),
            false => self.raise(pid, exhausted),
        };
        let message = format!("run {pid} has used up its budget, so {node} would end at once");
        let hint = match run.dead_at {
            // That continues all nodes that did not succeed.
            Some(_) => raise,
            None => format!("{raise} && relive compose resume {pid} --node {node}"),
        };
        Some(Error::new(ErrorCode::Conflict, message).with_hint(hint))
    }
}

/// A limit that stops a process.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Reached {
    Own(Raise),
    /// The budget of an ancestor is used up.
    Ancestors {
        /// The commands that raise it, and then resume the process.
        hint: String,
    },
}

/// Returns the nodes of a tree that failed because of a limit, and continue from their journals once it is reopened.
fn resumed_after_limit(reopening: &Reopening) -> impl Iterator<Item = (&str, Uuid)> {
    let Reopening { before, after } = reopening;
    let is_resumed = |state: &SlotState| matches!(state, SlotState::Due { start: Start::Resume { .. }, .. });
    // Looking at all others as well would take long: their journals would be read.
    let is_at_limit = |slot: &SlotStatus<'_>| matches!(slot.state, SlotState::Failed { .. }) && slot.at_end.limit;
    let both = before.slots().zip(after.slots());
    let failed = both.filter(move |(before, after)| is_at_limit(before) && is_resumed(after.state));
    failed.filter_map(|(before, _)| Some((before.name, before.uuid?)))
}

fn refusal(
    process: &Process,
    node: Option<&str>,
    hint_with: impl Fn(Raise) -> String,
    request: &ResumeRequest,
    reached: Reached,
) -> Option<Error> {
    let (is_suspended, is_fork) = (process.dead_at.is_none(), request.fork.is_some());
    if is_fork && request.from_step.is_some_and(|step| step > process.step) {
        // There is no such step: the fork says so.
        return None;
    }
    if is_suspended && (is_fork || process.suspend_reason != Some(SuspendReason::BudgetExceeded)) {
        return None;
    }
    let (it_would, would) = if is_suspended { ("be suspended again", "suspend it again") } else { ("end", "end it") };
    let refused = |message: String| Error::new(ErrorCode::Conflict, message);
    let pid = process.pid;
    let whom = node.map_or_else(|| format!("PID {pid}"), |node| format!("node {node} (PID {pid})"));
    let raise = match reached {
        Reached::Own(raise) => raise,
        Reached::Ancestors { hint } => {
            let message = format!("{whom} has used up the budget of an ancestor, so it would {it_would} at once");
            return Some(refused(message).with_hint(hint));
        }
    };
    for limit in Limit::ALL.into_iter().filter(|limit| limit.is_raised_by(raise)) {
        // A fork has spent nothing yet; its steps continue to count.
        if is_fork && limit != Limit::Steps {
            continue;
        }
        if let (Some(step), Some(max)) = (request.from_step, process.max_steps)
            && step < max
        {
            continue;
        }
        let (option, used) = (limit.option(), limit.used(process));
        let message = match limit.of(request.limits) {
            None => format!("{whom} has reached {option}, so it would {it_would} at once"),
            Some(value) if value <= used => {
                let (used, value) = (limit.tell(used), limit.typed(value));
                format!("{whom} has used {used}, so {option} {value} would {would} at once")
            }
            Some(_) => continue,
        };
        return Some(refused(message).with_hint(hint_with(raise)));
    }
    None
}

/// Returns the command of a request, with the limits that let it continue. Nothing else of what was asked for is lost.
fn again(id: &str, request: &ResumeRequest, raise: Raise) -> String {
    let quoted = |option: &str, text: &Option<String>| text.as_ref().map(|text| format!(" {option} {}", quote(text)));
    let fork = request.fork.map(|_| " --fork".to_owned());
    let from_step = request.from_step.map(|step| format!(" --from-step {step}"));
    let subtree = request.subtree.then(|| " --subtree".to_owned());
    let workspace = request.workspace.map(|kind| format!(" --workspace {}", kind.word()));
    let named = [quoted("--name", &request.name), quoted("--model", &request.model), quoted("--input", &request.input)];
    let before: String = [fork, from_step, subtree, workspace].into_iter().flatten().collect();
    let after: String = named.into_iter().flatten().collect();
    let limits = with_given(raise, request.limits);
    format!("relive resume{before} {id} {limits}{after}")
}

/// Returns the options that raise limits, and those that were given beside them.
pub(crate) fn with_given(raise: Raise, given: Limits) -> String {
    let option = |limit: &Limit| Some(format!(" {} {}", limit.option(), limit.typed(limit.of(given)?)));
    let others: String = Limit::ALL.iter().filter(|limit| !limit.is_raised_by(raise)).filter_map(option).collect();
    format!("{raise}{others}")
}
