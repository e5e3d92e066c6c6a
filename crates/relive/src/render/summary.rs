//! The last line of `run`: the end and the usage.

use relive_api::{Exit, Process};
use relive_core::{Body, Pid, ProcessStatus};

use super::exit::{not_started, phrase};
use super::processes::{COST_UNKNOWN, dollars, has_spent, is_claimed};
use super::time::elapsed;
use crate::terminal::one_line;

/// `PID 5 completed: 3 steps, 12.3k tokens in, 456 out, $0.0123, 41s`.
pub(crate) fn line(process: &Process, exit: Option<&Exit>) -> String {
    if let Some(why) = not_started(process) {
        return format!("PID {} could not be started: {why}", process.pid);
    }
    // A program has no steps and no tokens.
    if process.body == Body::Exec {
        let code = exit.filter(|exit| exit.reason == "exited").map(|exit| super::exit::code(process, exit));
        let end = match code {
            Some(code) => format!("PID {} ended with exit code {code}", process.pid),
            None => end(process.pid, process.status.as_ref(), exit),
        };
        return format!("{end} after {}", elapsed(process.elapsed_ms));
    }
    let tree = process.tree.as_ref().filter(|tree| tree.processes > 1);
    let (tokens_in, tokens_out, cost, estimated) = match tree {
        Some(tree) => (tree.tokens_in, tree.tokens_out, tree.cost_usd, tree.estimated),
        None => (process.tokens_in, process.tokens_out, process.cost_usd, process.estimated || is_claimed(process)),
    };
    let about = if estimated { "~" } else { "" };
    let steps = if process.step == 1 { "1 step".to_owned() } else { format!("{} steps", process.step) };
    let mut parts = vec![steps, format!("{about}{} tokens in, {about}{} out", count(tokens_in), count(tokens_out))];
    if has_spent(cost, tokens_in.saturating_add(tokens_out)) {
        parts.push(cost.map_or_else(|| format!("cost {COST_UNKNOWN}"), |cost| format!("{about}{}", dollars(cost))));
    }
    parts.push(elapsed(process.elapsed_ms));
    if let Some(tree) = tree {
        parts.push(format!("including {}", descendants(tree.processes - 1)));
    }
    let (end, parts) = (end(process.pid, process.status.as_ref(), exit), parts.join(", "));
    match exit {
        // The reason may be a sentence with colons and commas.
        Some(exit) if exit.code != 0 => format!("{end} ({parts})"),
        Some(_) | None => format!("{end}: {parts}"),
    }
}

/// Returns the end alone.
pub(crate) fn end(pid: Pid, status: Option<&ProcessStatus>, exit: Option<&Exit>) -> String {
    match exit {
        Some(exit) if exit.code == 0 => format!("PID {pid} {}", one_line(&exit.reason)),
        Some(exit) => format!("PID {pid} {}", phrase(status, exit)),
        None => format!("PID {pid} ended"),
    }
}

/// How many steps a note names.
const STEPS_NAMED_MAX: usize = 10;

/// Returns the note that changes of some steps are not known: `no snapshot after steps 2 and 3: relive steps 5`.
pub(crate) fn without_snapshot(pid: Pid, steps: &[u32]) -> String {
    let (named, others) = steps.split_at(steps.len().min(STEPS_NAMED_MAX));
    let others = if others.is_empty() { None } else { Some(format!("{} others", others.len())) };
    let mut words: Vec<String> = named.iter().map(u32::to_string).chain(others).collect();
    let steps = match (words.pop(), words.as_slice()) {
        (None, _) => "some steps".to_owned(),
        (Some(only), []) => format!("step {only}"),
        (Some(last), before) => format!("steps {} and {last}", before.join(", ")),
    };
    format!("no snapshot after {steps}: relive steps {pid}")
}

fn descendants(number: usize) -> String {
    if number == 1 { "1 descendant".to_owned() } else { format!("{number} descendants") }
}

/// `999`, `1.2k`, `34.5M`.
fn count(number: u64) -> String {
    let tenths = |unit: u64| format!("{}.{}", number / unit, number % unit / (unit / 10));
    match number {
        0..1_000 => number.to_string(),
        1_000..1_000_000 => format!("{}k", tenths(1_000)),
        1_000_000.. => format!("{}M", tenths(1_000_000)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::render::processes::tests::process;
    use relive_api::TreeUsage;
    use relive_core::Usd;

    #[test]
    fn steps_without_a_snapshot_are_named_or_counted() {
        let check = |steps: std::ops::Range<u32>, expect: &str| {
            let note = without_snapshot(Pid(5), &steps.collect::<Vec<_>>());
            assert_eq!(note, format!("no snapshot after {expect}: relive steps 5"));
        };
        check(0..0, "some steps");
        check(2..3, "step 2");
        check(2..4, "steps 2 and 3");
        check(2..5, "steps 2, 3 and 4");
        check(1..501, "steps 1, 2, 3, 4, 5, 6, 7, 8, 9, 10 and 490 others");
    }

    #[test]
    fn the_summary_shows_the_end_and_the_usage() {
        let cost_usd = Usd::from_dollars(0.01234);
        let one =
            Process { step: 3, tokens_in: 12_345, tokens_out: 456, cost_usd, elapsed_ms: 41_000, ..process(5, 0) };
        let exit = Exit { code: 0, reason: "completed".into(), err: None };
        assert_eq!(line(&one, Some(&exit)), "PID 5 completed: 3 steps, 12.3k tokens in, 456 out, $0.0123, 41s");
        let tree = TreeUsage { processes: 3, tokens_in: 2_500_000, tokens_out: 1_000, cost_usd: None, estimated: true };
        let tree = Process { step: 1, tree: Some(tree), ..one };
        let exit = Exit { code: 1, reason: "the model\nfailed".into(), err: None };
        let tree = Process { status: Some(ProcessStatus::Exited { code: 1 }), ..tree };
        assert_eq!(
            line(&tree, Some(&exit)),
            "PID 5 ended: the model failed (1 step, ~2.5M tokens in, ~1.0k out, cost unknown, 41s, including 2 descendants)"
        );
    }
}
