//! Commands that let a suspended process continue.

use std::sync::Arc;

use relive_api::Process;
use relive_core::status::MAX_STEPS_EXCEEDED;
use relive_core::{Limits, Pid, SuspendReason, Usd, View, Why};

use crate::budgets::Exhausted;
use crate::runtime::Runtime;

/// Returns the command that lets a process continue, as far as the process itself shows it.
pub(crate) fn hint(view: &View<'_>, limits: Limits, refused_key: Option<&str>) -> Option<String> {
    let pid = view.pid;
    if view.successor_pid.is_some() {
        return None;
    }
    if let Some(exit) = &view.exit {
        let ended =
            Ended { pid, exit_reason: &exit.reason, why: view.why, step: view.step, elapsed_ms: view.elapsed_ms };
        return ended.hint(limits, view.tokens_in.saturating_add(view.tokens_out), view.cost_usd);
    }
    match view.suspend_reason? {
        SuspendReason::NeedsCredentials => crate::credentials::credentials_hint(view.model?, pid, refused_key),
        SuspendReason::BudgetExceeded => own_limit(view, limits).map(|raised| format!("relive resume {pid} {raised}")),
        SuspendReason::Stalled | SuspendReason::CrashLoop | SuspendReason::DiskFull => {
            Some(format!("relive resume {pid}"))
        }
        SuspendReason::User
        | SuspendReason::IoError
        | SuspendReason::InDoubt
        | SuspendReason::Approval
        | SuspendReason::Quota
        | SuspendReason::DaemonStop => None,
    }
}

/// A process that has ended.
pub(crate) struct Ended<'a> {
    pub(crate) pid: Pid,
    pub(crate) exit_reason: &'a str,
    pub(crate) why: Option<Why>,
    pub(crate) step: u32,
    pub(crate) elapsed_ms: u64,
}

impl Ended<'_> {
    /// Returns the command by which a process continues that a limit has ended. A plain resume would end at once.
    pub(crate) fn hint(&self, limits: Limits, spent: u64, cost: Option<Usd>) -> Option<String> {
        let raised = if self.why == Some(Why::Timeout) {
            format!("--timeout {}", seconds(twice(limits.timeout_ms?.max(self.elapsed_ms))))
        } else if self.why == Some(Why::Budget) {
            let tokens = limits.max_tokens.filter(|max| spent >= *max).map(|max| max.max(spent));
            let cost = limits.max_cost_usd.zip(cost).filter(|(max, cost)| cost >= max);
            let cost = cost.map(|(max, cost)| max.max(cost));
            // Another limit was refused before it was reached: the next call would have been above it.
            let tokens = tokens.or_else(|| limits.max_tokens.filter(|_| cost.is_none()));
            let cost = cost.or_else(|| limits.max_cost_usd.filter(|_| tokens.is_none()));
            if tokens.is_none() && cost.is_none() {
                // The limit is an ancestor's.
                return None;
            }
            raised(tokens, cost)
        } else if self.exit_reason == MAX_STEPS_EXCEEDED {
            format!("--max-steps {}", twice(limits.max_steps?.max(self.step).into()))
        } else {
            return None;
        };
        Some(format!("relive resume {} {raised}", self.pid))
    }
}

/// A duration as `--timeout` takes it, rounded up.
fn seconds(millis: u64) -> String {
    format!("{}s", millis.div_ceil(1000))
}

/// Returns the option that raises the limit which a process itself has reached.
fn own_limit(view: &View<'_>, limits: Limits) -> Option<String> {
    if let Some(max) = limits.max_steps.filter(|max| view.step >= *max) {
        return Some(format!("--max-steps {}", twice(max.max(view.step).into())));
    }
    if let Some(max) = limits.timeout_ms.filter(|max| view.elapsed_ms >= *max) {
        return Some(format!("--timeout {}", seconds(twice(max.max(view.elapsed_ms)))));
    }
    let spent = view.tokens_in.saturating_add(view.tokens_out);
    let tokens = limits.max_tokens.filter(|max| spent >= *max).map(|max| max.max(spent));
    let cost =
        limits.max_cost_usd.zip(view.cost_usd).filter(|(max, spent)| spent >= max).map(|(max, cost)| max.max(cost));
    (tokens.is_some() || cost.is_some()).then(|| raised(tokens, cost))
}

/// Returns the options that allow twice as much.
fn raised(tokens: Option<u64>, cost: Option<Usd>) -> String {
    let tokens = tokens.map(|tokens| format!("--max-tokens {}", twice(tokens)));
    let cost = cost.map(|cost| {
        let dollars = Usd::from_nanos(twice(cost.nanos())).to_string();
        format!("--max-cost {}", dollars.trim_end_matches('0').trim_end_matches('.'))
    });
    tokens.into_iter().chain(cost).collect::<Vec<_>>().join(" ")
}

/// Doubles a limit; zero becomes one.
fn twice(limit: u64) -> u64 {
    limit.max(1).saturating_mul(2)
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
        Process { hint: Some(hint), ..process }
    }

    /// Adds the same hint from the journals, if no account is open.
    pub(crate) async fn with_known_budget_hint(self: &Arc<Self>, process: Process) -> Process {
        if process.suspend_reason != Some(SuspendReason::BudgetExceeded) || process.hint.is_some() {
            return process;
        }
        let hint = match self.exhausted(process.uuid).await {
            Some(exhausted) => self.raise(process.pid, exhausted),
            // The limit was raised since.
            None => format!("relive resume {}", process.pid),
        };
        Process { hint: Some(hint), ..process }
    }

    /// Returns the commands that raise a limit, and then resume the process that waits for that.
    fn raise(&self, pid: Pid, exhausted: Exhausted) -> String {
        let Exhausted { payer, tokens, cost } = exhausted;
        let raised = raised(tokens, cost);
        match self.living(payer) {
            Some(payer) if payer.of.pid == pid => format!("relive resume {pid} {raised}"),
            Some(payer) => format!("relive resume {} {raised} && relive resume {pid}", payer.of.pid),
            None => format!("relive resume {payer} {raised} && relive resume {pid}"),
        }
    }
}
