//! Commands that let a suspended process continue.

use std::fmt;
use std::sync::Arc;

use relive_api::Process;
use relive_core::status::{BUDGET_EXCEEDED, MAX_STEPS_EXCEEDED};
use relive_core::{Body, Limits, Pid, SuspendReason, Usd, View, Why};
use relive_types::LimitKind;

use crate::budgets::Exhausted;
use crate::runtime::Runtime;

/// Returns how to raise the limit of its own that has stopped a process.
pub(crate) fn own_raise(view: &View<'_>, limits: Limits) -> Option<Raise> {
    match (&view.exit, view.suspend_reason) {
        _ if view.successor_pid.is_some() => None,
        (Some(exit), _) => Ended { exit_reason: &exit.reason, why: view.why }.raise(limits, Used::of(view)),
        (None, Some(SuspendReason::BudgetExceeded)) => Used::of(view).own_limit(limits),
        (None, _) => None,
    }
}

/// Returns the command that lets a process continue, as far as the process itself shows it.
pub(crate) fn hint(view: &View<'_>, limits: Limits, refused_key: Option<&str>) -> Option<String> {
    let pid = view.pid;
    if view.successor_pid.is_some() {
        return None;
    }
    if view.exit.is_some() {
        return own_raise(view, limits).map(|raise| resume_with(pid, raise));
    }
    match view.suspend_reason? {
        SuspendReason::NeedsCredentials if matches!(view.body, Body::Compose | Body::Supervisor) => {
            Some(format!("relive resume {pid}"))
        }
        SuspendReason::NeedsCredentials => crate::credentials::credentials_hint(view.model?, pid, refused_key),
        SuspendReason::BudgetExceeded => own_raise(view, limits).map(|raise| resume_with(pid, raise)),
        SuspendReason::Stalled | SuspendReason::CrashLoop | SuspendReason::DiskFull => {
            Some(format!("relive resume {pid}"))
        }
        // What was paused together with a tree stays paused when the tree is resumed alone.
        SuspendReason::User if matches!(view.body, Body::Compose | Body::Supervisor) => {
            Some(format!("relive resume --subtree {pid}"))
        }
        SuspendReason::User
        | SuspendReason::IoError
        | SuspendReason::InDoubt
        | SuspendReason::Approval
        | SuspendReason::Question
        | SuspendReason::Quota
        | SuspendReason::DaemonStop => None,
    }
}

/// Returns the command that lets a process continue that a limit has stopped.
pub(crate) fn resume_with(pid: Pid, raise: Raise) -> String {
    format!("relive resume {pid} {raise}")
}

/// The limits that stop a process, each with a value that lets it continue: about twice as much.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Raise {
    pub(crate) steps: Option<u64>,
    pub(crate) timeout_ms: Option<u64>,
    pub(crate) tokens: Option<u64>,
    pub(crate) cost: Option<Usd>,
}

impl Raise {
    /// Allows about twice as many tokens and dollars.
    fn budget(tokens: Option<u64>, cost: Option<Usd>) -> Self {
        let cost = cost.map(|cost| Usd::from_nanos(about_twice(cost.nanos())));
        Self { tokens: tokens.map(about_twice), cost, ..Self::default() }
    }

    /// Returns the limit that was reached; the first one if there are two.
    pub(crate) fn limit(self) -> Option<LimitKind> {
        let Self { steps, timeout_ms, tokens, cost } = self;
        let steps = steps.map(|_| LimitKind::MaxSteps);
        let timeout = timeout_ms.map(|_| LimitKind::Timeout);
        steps.or(timeout).or(tokens.map(|_| LimitKind::MaxTokens)).or(cost.map(|_| LimitKind::MaxCost))
    }
}

impl From<Exhausted> for Raise {
    fn from(exhausted: Exhausted) -> Self {
        Self::budget(exhausted.tokens, exhausted.cost)
    }
}

/// The options of `relive resume`.
impl fmt::Display for Raise {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let dollars = |cost: Usd| cost.to_string().trim_end_matches('0').trim_end_matches('.').to_owned();
        let options = [
            self.steps.map(|steps| format!("--max-steps {steps}")),
            self.timeout_ms.map(|millis| format!("--timeout {}", seconds(millis))),
            self.tokens.map(|tokens| format!("--max-tokens {tokens}")),
            self.cost.map(|cost| format!("--max-cost {}", dollars(cost))),
        ];
        f.write_str(&options.into_iter().flatten().collect::<Vec<_>>().join(" "))
    }
}

/// What a process has used of its limits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Used {
    pub(crate) step: u32,
    pub(crate) elapsed_ms: u64,
    pub(crate) tokens: u64,
    pub(crate) cost: Option<Usd>,
}

impl Used {
    fn of(view: &View<'_>) -> Self {
        let tokens = view.tokens_in.saturating_add(view.tokens_out);
        Self { step: view.step, elapsed_ms: view.elapsed_ms, tokens, cost: view.cost_usd }
    }

    /// Returns how to raise the limit that a process itself has reached.
    pub(crate) fn own_limit(self, limits: Limits) -> Option<Raise> {
        let Self { step, elapsed_ms, .. } = self;
        if let Some(max) = limits.max_steps.filter(|max| step >= *max) {
            return Some(Raise { steps: Some(about_twice(max.max(step).into())), ..Raise::default() });
        }
        if let Some(max) = limits.timeout_ms.filter(|max| elapsed_ms >= *max) {
            return Some(Raise { timeout_ms: Some(about_twice(max.max(elapsed_ms))), ..Raise::default() });
        }
        let (tokens, cost) = self.spent(limits);
        (tokens.is_some() || cost.is_some()).then(|| Raise::budget(tokens, cost))
    }

    /// Returns the tokens and dollars that are spent, as far as they reach a limit.
    fn spent(self, limits: Limits) -> (Option<u64>, Option<Usd>) {
        let tokens = limits.max_tokens.filter(|max| self.tokens >= *max).map(|max| max.max(self.tokens));
        let cost = limits.max_cost_usd.zip(self.cost).filter(|(max, cost)| cost >= max);
        (tokens, cost.map(|(max, cost)| max.max(cost)))
    }
}

/// How a process ended.
pub(crate) struct Ended<'a> {
    pub(crate) exit_reason: &'a str,
    pub(crate) why: Option<Why>,
}

impl Ended<'_> {
    /// Returns how to raise the limit that has ended a process. A plain resume would end at once.
    pub(crate) fn raise(&self, limits: Limits, used: Used) -> Option<Raise> {
        if self.why == Some(Why::Timeout) {
            let timeout_ms = Some(about_twice(limits.timeout_ms?.max(used.elapsed_ms)));
            return Some(Raise { timeout_ms, ..Raise::default() });
        }
        // One that failed otherwise has reached no limit: the price of its model is not known.
        if self.why == Some(Why::Budget) && self.exit_reason == BUDGET_EXCEEDED {
            let (tokens, cost) = used.spent(limits);
            // Another limit was refused before it was reached: the next call would have been above it.
            let tokens = tokens.or_else(|| limits.max_tokens.filter(|_| cost.is_none()));
            let cost = cost.or_else(|| limits.max_cost_usd.filter(|_| tokens.is_none()));
            // Without either the limit is an ancestor's.
            return (tokens.is_some() || cost.is_some()).then(|| Raise::budget(tokens, cost));
        }
        let max = limits.max_steps.filter(|_| self.exit_reason == MAX_STEPS_EXCEEDED)?;
        Some(Raise { steps: Some(about_twice(max.max(used.step).into())), ..Raise::default() })
    }
}

/// A duration as `--timeout` takes it, rounded up.
fn seconds(millis: u64) -> String {
    format!("{}s", millis.div_ceil(1000))
}

/// Doubles a limit, or what was used of it, rounded up to two digits; zero counts as one.
pub(crate) fn about_twice(limit: u64) -> u64 {
    let doubled = limit.max(1).saturating_mul(2);
    let unit = 10_u64.pow(doubled.ilog10().saturating_sub(1));
    doubled.div_ceil(unit).saturating_mul(unit)
}

/// Returns the limit that a process itself has for its tree, if that is the one that is used up.
fn own_limit(process: &Process, exhausted: Option<Exhausted>) -> Option<LimitKind> {
    exhausted.filter(|exhausted| exhausted.payer == process.uuid).and_then(|exhausted| Raise::from(exhausted).limit())
}

impl Runtime {
    /// Adds the hint of a process whose tree has used up the budget, from open accounts.
    pub(crate) fn with_budget_hint(&self, process: Process) -> Process {
        if process.suspend_reason != Some(SuspendReason::BudgetExceeded) || process.hint.is_some() {
            return process;
        }
        let exhausted = self.budgets.exhausted(process.uuid);
        let hint = match exhausted {
            Some(exhausted) => self.raise(process.pid, exhausted),
            // The journals know.
            None => format!("relive info {}", process.pid),
        };
        Process { hint: Some(hint), reached_limit: own_limit(&process, exhausted), ..process }
    }

    /// Adds the same hint from the journals, if no account is open.
    pub(crate) async fn with_known_budget_hint(self: &Arc<Self>, process: Process) -> Process {
        if process.suspend_reason != Some(SuspendReason::BudgetExceeded) || process.hint.is_some() {
            return process;
        }
        let exhausted = self.exhausted(process.uuid).await;
        let hint = match exhausted {
            Some(exhausted) => self.raise(process.pid, exhausted),
            // The limit was raised since.
            None => format!("relive resume {}", process.pid),
        };
        Process { hint: Some(hint), reached_limit: own_limit(&process, exhausted), ..process }
    }

    /// Returns the commands that raise a limit, and then resume the process that waits for that.
    pub(crate) fn raise(&self, pid: Pid, exhausted: Exhausted) -> String {
        let (payer, raise) = (exhausted.payer, Raise::from(exhausted));
        match self.living(payer) {
            Some(payer) if payer.of.pid == pid => resume_with(pid, raise),
            Some(payer) => format!("{} && relive resume {pid}", resume_with(payer.of.pid, raise)),
            None => format!("relive resume {payer} {raise} && relive resume {pid}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::about_twice;

    #[test]
    fn a_hint_names_a_round_number() {
        for (limit, expect) in [(0, 2), (2, 4), (62, 130), (450, 900), (213_456, 430_000), (u64::MAX, u64::MAX)] {
            assert_eq!(about_twice(limit), expect, "{limit}");
        }
    }
}
