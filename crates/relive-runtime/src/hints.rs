//! What a person can type so that a suspended process continues.

use std::sync::Arc;

use relive_api::Process;
use relive_core::{Limits, Pid, SuspendReason, Usd, View};

use crate::budgets::Exhausted;
use crate::runtime::Runtime;

/// Returns the command by which a process continues, as far as the process itself shows it.
pub(crate) fn hint(view: &View<'_>, limits: Limits) -> Option<String> {
    let pid = view.pid;
    match view.suspend_reason? {
        SuspendReason::NeedsCredentials => crate::credentials::credentials_hint(view.model?, pid),
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

/// Returns the option that raises the limit which a process has reached by itself.
fn own_limit(view: &View<'_>, limits: Limits) -> Option<String> {
    if let Some(max) = limits.max_steps.filter(|max| view.step >= *max) {
        return Some(format!("--max-steps {}", twice(max.max(view.step).into())));
    }
    if let Some(max) = limits.timeout_ms.filter(|max| view.elapsed_ms >= *max) {
        return Some(format!("--timeout {}ms", twice(max.max(view.elapsed_ms))));
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

/// A limit of nothing is raised to something.
fn twice(limit: u64) -> u64 {
    limit.max(1).saturating_mul(2)
}

impl Runtime {
    /// Adds the hint of a process whose budget is used up by its tree, from the accounts that are open.
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

    /// The same, from the journals where no account is open.
    pub(crate) async fn with_known_budget_hint(self: &Arc<Self>, process: Process) -> Process {
        if process.suspend_reason != Some(SuspendReason::BudgetExceeded) || process.hint.is_some() {
            return process;
        }
        let hint = match self.exhausted(process.uuid).await {
            Some(exhausted) => self.raise(process.pid, exhausted),
            // Somebody has raised the limit since.
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
