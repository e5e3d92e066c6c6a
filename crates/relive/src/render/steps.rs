//! The steps of a journal, one row each.

use std::collections::BTreeSet;

use relive_api::NotKept;
use relive_core::Timestamp;
use relive_journal::payload::Json;
use relive_journal::record::{self, Compacted, ModelEnded, Partial, Snapshot};
use relive_journal::recovery::Recovery;
use relive_types::rule::COMMAND_TOOL;
use serde::{Deserialize, Serialize};

use super::approval::exact;
use super::files::{Lines, not_kept, summary};
use super::line::Line;
use super::table::{Align, Cell, Column, draw};
use super::time::Clock;
use crate::terminal::{Look, one_line};

/// One model call and the tool calls it asked for.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub(crate) struct Step {
    pub step: u32,
    pub at: Option<Timestamp>,
    pub tokens_in: u64,
    pub tokens_out: u64,
    pub calls: Vec<String>,
    /// The calls that were denied, and so never made.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub denied: Vec<DeniedCall>,
    /// The beginning of the model's text.
    pub text: String,
    /// The model was cut off.
    pub partial: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cost_usd: Option<relive_core::Usd>,
    /// The changes to files, if they are known.
    pub files: Option<ChangedFiles>,
    /// Whether it may have changed files, and no snapshot tells.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub files_unknown: bool,
    /// Why there is no snapshot, where that is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub files_unknown_why: Option<String>,
    /// Files that its snapshot could not keep, and the one before did not miss.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub not_kept: Vec<NotKept>,
    /// Whether the model or a call is not done: nothing can be forked from it yet.
    #[serde(skip)]
    pub is_open: bool,
}

impl Step {
    /// Returns the changes to files in words; `None` if nothing is recorded.
    pub(crate) fn files_shown(&self) -> Option<String> {
        let unknown = self.files_unknown.then(|| "unknown".to_owned());
        self.files.map(ChangedFiles::shown).or(unknown)
    }

    fn set_unknown(&mut self, why: Option<&str>) {
        self.files_unknown = true;
        self.files_unknown_why = why.map(str::to_owned).or(self.files_unknown_why.take());
    }
}

/// A call that was not made.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct DeniedCall {
    /// Its place among the calls of the step.
    pub call: u32,
    pub name: String,
    pub args: Json,
}

impl DeniedCall {
    /// Returns what was denied on one line: a command as such.
    fn shown(&self) -> String {
        let Self { name, args, .. } = self;
        let args = match args {
            Json::Inline(raw) => {
                let command = serde_json::from_str::<Command>(raw.get()).ok().filter(|_| name == COMMAND_TOOL);
                command.map_or_else(|| raw.get().to_owned(), |command| command.command)
            }
            Json::Blob(blob) => blob.head.clone(),
        };
        let (args, exact_name) = (exact(&args), exact(name));
        match args.char_indices().nth(DENIED_HEAD) {
            Some((end, _)) => format!("{exact_name} (denied: {}...)", &args[..end]),
            None => format!("{exact_name} (denied: {args})"),
        }
    }
}

#[derive(Deserialize)]
struct Command {
    command: String,
}

/// The steps of a journal, as far as it was read.
#[derive(Debug, Default)]
pub(crate) struct Steps {
    pub rows: Vec<Step>,
    /// The calls of the last step that have no outcome.
    open_calls: BTreeSet<u32>,
    /// The calls of the last step.
    last_calls: Vec<record::Call>,
    /// Whether the last snapshot shows the files: there is one, and it does not say that nobody looked.
    are_files_seen: bool,
    /// Why not, if not.
    unseen_why: Option<String>,
    /// The first step of those after which nobody looked.
    unseen_from: Option<u32>,
    /// The files that the last snapshot could not keep.
    last_not_kept: Vec<NotKept>,
    /// The calls that may have changed files, as long as nobody is known to have looked since.
    unlooked: Vec<Unlooked>,
    /// The last incarnation that wrote the journal.
    epoch: u32,
}

/// A call, as far as it is of interest here.
#[derive(Deserialize)]
struct Call {
    recovery: Recovery,
}

/// A call after which nobody is known to have looked at the files.
#[derive(Debug)]
struct Unlooked {
    step: u32,
    /// The incarnation that made it.
    epoch: u32,
}

/// The changes of a step to files.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub(crate) struct ChangedFiles {
    pub changed: u64,
    pub added: u64,
    pub removed: u64,
    /// The number of files that others changed.
    pub foreign: u64,
    /// How many of them were not compared line by line.
    #[serde(skip_serializing_if = "is_zero")]
    pub uncounted: u64,
    /// The first step whose changes these are too, because no snapshot was taken after it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub from_step: Option<u32>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_zero(number: &u64) -> bool {
    *number == 0
}

impl ChangedFiles {
    fn shown(self) -> String {
        let foreign = if self.foreign == 0 { String::new() } else { format!(" ({} by others)", self.foreign) };
        if self.changed == 0 {
            "none".to_owned()
        } else {
            let Self { added, removed, uncounted, .. } = self;
            let since = self.from_step.map_or_else(String::new, |step| format!(", since step {step}"));
            format!("{}{foreign}{since}", summary(self.changed, Lines { added, removed, uncounted }))
        }
    }
}

/// The number of characters kept of a step's text.
const TEXT_HEAD: usize = 400;
/// How many characters of the arguments of a denied call are shown.
const DENIED_HEAD: usize = 60;

impl Steps {
    /// Takes the next line of the journal.
    pub(crate) fn fold(&mut self, text: &str) {
        let Some(line) = Line::parse(text) else { return };
        self.epoch = line.epoch.unwrap_or(self.epoch);
        match line.kind.as_str() {
            // A body that stops takes the last snapshot first.
            "paused" | "ended" => {
                let epoch = self.epoch;
                return self.unlooked.retain(|call| call.epoch != epoch);
            }
            "snapshot" => return self.note_files(text),
            "call_started" => return self.note_call(line.step, text),
            "call_ended" => {
                self.note_denied(&line);
                return self.settle(&line);
            }
            "doubt" => return self.settle(&line),
            "resolved" if line.field::<String>("outcome").is_some_and(|outcome| outcome != "retry") => {
                return self.settle(&line);
            }
            _ => {}
        }
        let steps = &mut self.rows;
        if line.step == 0 {
            return;
        }
        let (usage, said, calls, partial) = match line.kind.as_str() {
            "model_ended" => match serde_json::from_str::<ModelEnded>(text) {
                Ok(ended) => {
                    self.last_calls = ended.calls;
                    let names = self.last_calls.iter().map(|call| call.name.clone()).collect();
                    (ended.usage, ended.text, names, false)
                }
                Err(_) => return,
            },
            "partial" => match serde_json::from_str::<Partial>(text) {
                Ok(partial) => (partial.usage, partial.text, Vec::new(), true),
                Err(_) => return,
            },
            // It was asked for within the step, before the step itself.
            "compacted" => match serde_json::from_str::<Compacted>(text) {
                Ok(Compacted { usage: Some(usage), .. }) => (usage, None, Vec::new(), false),
                Ok(Compacted { usage: None, .. }) | Err(_) => return,
            },
            _ => return,
        };
        // A model that was asked again within a step, after a crash, is the same step.
        if steps.last().is_none_or(|last| last.step != line.step) {
            steps.push(Step { step: line.step, ..Step::default() });
        }
        let Some(step) = steps.last_mut() else { return };
        step.at = line.at;
        step.cost_usd = match (step.cost_usd, usage.cost_usd) {
            (Some(before), Some(now)) => Some(before.saturating_add(now)),
            (before, now) => before.or(now),
        };
        step.tokens_in += usage.tokens_in;
        step.tokens_out += usage.tokens_out;
        self.open_calls = (0..).zip(&calls).map(|(place, _)| place).collect();
        step.is_open = line.kind != "model_ended" || !calls.is_empty();
        step.calls = calls;
        step.text = said.map(|said| said.head(TEXT_HEAD).to_owned()).unwrap_or_default();
        step.partial = partial;
    }

    /// Keeps what a denied call would have done.
    fn note_denied(&mut self, line: &Line) {
        let number = line.field::<u32>("call").filter(|_| line.field::<bool>("denied").unwrap_or(false));
        let call = number.and_then(|number| Some((number, self.last_calls.get(usize::try_from(number).ok()?)?)));
        if let (Some((number, call)), Some(step)) = (call, self.rows.iter_mut().rfind(|row| row.step == line.step)) {
            step.denied.push(DeniedCall { call: number, name: call.name.clone(), args: call.args.clone() });
        }
    }

    /// Takes the outcome of a call. A step is complete when all of its calls have one.
    fn settle(&mut self, line: &Line) {
        if line.field::<u32>("call").is_some_and(|call| self.open_calls.remove(&call))
            && self.open_calls.is_empty()
            && let Some(step) = self.rows.last_mut()
        {
            step.is_open = false;
        }
    }

    /// Takes a call. What it changes is not known if no snapshot was taken before it.
    fn note_call(&mut self, step: u32, text: &str) {
        let Ok(Call { recovery }) = serde_json::from_str(text) else { return };
        if matches!(recovery, Recovery::Rerun | Recovery::Lookup { .. }) {
            return;
        }
        let epoch = self.epoch;
        // It has waited for the snapshot of the steps before.
        self.unlooked.retain(|call| call.epoch != epoch || call.step >= step);
        self.unlooked.push(Unlooked { step, epoch });
        if self.are_files_seen {
            return;
        }
        if let Some(step) = self.rows.iter_mut().rfind(|row| row.step == step) {
            step.set_unknown(self.unseen_why.as_deref());
        }
    }

    /// Takes what is known of the process besides its journal: whether it may still look at its files. A snapshot gets into
    /// the journal with the next record, so one that was taken last is lost with a daemon that is killed.
    pub(crate) fn finish(&mut self, is_at_rest: bool) {
        for call in std::mem::take(&mut self.unlooked) {
            let is_lost = is_at_rest || call.epoch != self.epoch;
            if let Some(row) = self.rows.iter_mut().find(|row| row.step == call.step && is_lost && !row.files_unknown) {
                row.set_unknown(Some("the daemon ended before it had recorded a snapshot"));
            }
        }
    }

    /// Takes an event. It says why there were never any snapshots, which no record can.
    pub(crate) fn fold_event(&mut self, text: &str) {
        let Some(line) = Line::parse(text).filter(|line| line.kind == "snapshots_off") else { return };
        let Some(why) = line.field::<String>("text") else { return };
        let unexplained = self.rows.iter_mut().filter(|row| row.files_unknown && row.files_unknown_why.is_none());
        unexplained.for_each(|row| row.files_unknown_why = Some(why.clone()));
    }

    /// Tells whether a reason is missing that an event may tell.
    pub(crate) fn wants_events(&self) -> bool {
        self.rows.iter().any(|row| row.files_unknown && row.files_unknown_why.is_none())
    }

    /// Returns why files of steps are not known or not kept, one line for each reason.
    pub(crate) fn reasons(&self) -> Vec<String> {
        let mut unknown: Vec<(&str, Vec<u32>)> = Vec::new();
        for row in self.rows.iter().filter(|row| row.files.is_none()) {
            let Some(why) = &row.files_unknown_why else { continue };
            match unknown.last_mut().filter(|(last, _)| last == why) {
                Some((_, steps)) => steps.push(row.step),
                None => unknown.push((why, vec![row.step])),
            }
        }
        let unknown = unknown
            .into_iter()
            .map(|(why, steps)| format!("the changes of {} are unknown: {}", numbered(&steps), one_line(why)));
        let lacking = self.rows.iter().filter_map(|row| {
            let named = not_kept(&row.not_kept, &[])?;
            Some(format!("step {}: not kept: {named}", row.step))
        });
        unknown.chain(lacking).collect()
    }

    /// Takes a snapshot, which stands within the step after the one it is about.
    fn note_files(&mut self, text: &str) {
        let Ok(snapshot) = serde_json::from_str::<Snapshot>(text) else { return };
        self.unlooked.retain(|call| call.step > snapshot.after);
        self.are_files_seen = !snapshot.is_unseen();
        if snapshot.is_unseen() {
            self.unseen_why.clone_from(&snapshot.why);
            self.unseen_from.get_or_insert(snapshot.after);
            if let Some(step) = self.rows.iter_mut().rfind(|step| step.step == snapshot.after) {
                step.set_unknown(snapshot.why.as_deref());
            }
            return;
        }
        let unseen_from = self.unseen_from.take();
        let lacking: Vec<NotKept> = snapshot.not_kept.iter().map(shown_as).collect();
        let before = std::mem::replace(&mut self.last_not_kept, lacking.clone());
        let Snapshot { after, base, changed, added, removed, uncounted, .. } = snapshot;
        let (foreign, before_verb) = (snapshot.foreign_count, snapshot.before_verb);
        // The first snapshot of a process is compared with nothing; that of a fork tells what its step changed.
        let is_of_step = !before_verb && (base.is_some() || changed > 0);
        if let Some(step) = self.rows.iter_mut().rfind(|step| step.step == after && is_of_step) {
            step.not_kept.extend(lacking.into_iter().filter(|file| !before.contains(file)));
            let sum = step.files.unwrap_or_default();
            step.files = Some(ChangedFiles {
                changed: sum.changed + changed,
                added: sum.added + added,
                removed: sum.removed + removed,
                foreign: sum.foreign + foreign,
                uncounted: sum.uncounted + uncounted,
                from_step: unseen_from.filter(|first| *first < after).or(sum.from_step),
            });
        }
    }
}

/// Returns the numbers of steps in words: those that follow each other as a range.
fn numbered(steps: &[u32]) -> String {
    let is_next = |first: &u32, second: &u32| first.checked_add(1) == Some(*second);
    let ranges = steps.chunk_by(is_next).filter_map(|range| match range {
        [] => None,
        [step] => Some(step.to_string()),
        [first, .., last] => Some(format!("{first} to {last}")),
    });
    let ranges: Vec<String> = ranges.collect();
    format!("{} {}", if steps.len() == 1 { "step" } else { "steps" }, ranges.join(", "))
}

fn shown_as(file: &record::NotKept) -> NotKept {
    NotKept { path: file.path.clone(), reason: file.reason.clone() }
}

pub(crate) fn table(steps: &[Step], clock: &Clock, look: &Look) -> String {
    let left = |header| Column { header, align: Align::Left };
    let right = |header| Column { header, align: Align::Right };
    let columns = [right("STEP"), left("TIME"), right("TOKENS"), left("CALLS"), left("FILES"), left("TEXT")];
    let row = |step: &Step| {
        let denied = |place: u32| step.denied.iter().find(|denied| denied.call == place).map(DeniedCall::shown);
        let calls = (0..).zip(&step.calls).map(|(place, name)| denied(place).unwrap_or_else(|| name.clone()));
        let calls = if step.calls.is_empty() { "-".into() } else { one_line(&calls.collect::<Vec<_>>().join(",")) };
        let partial = if step.partial { "[partial] " } else { "" };
        vec![
            Cell::plain(step.step.to_string()),
            Cell::plain(step.at.map_or_else(|| "-".into(), |at| clock.time(at))),
            Cell::plain((step.tokens_in + step.tokens_out).to_string()),
            Cell::plain(calls),
            Cell::plain(step.files_shown().unwrap_or_else(|| "-".into())),
            Cell::plain(format!("{partial}{}", one_line(&step.text))),
        ]
    };
    let rows: Vec<Vec<Cell>> = steps.iter().map(row).collect();
    draw(&columns, columns.len() - 1, &rows, look)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_is_one_row_also_when_its_model_was_asked_twice() {
        let mut steps = Steps::default();
        for line in [
            r#"{"kind":"input","step":0,"id":"a","text":"go"}"#,
            r#"{"kind":"partial","step":1,"text":"I th","usage":{"tokens_in":5,"tokens_out":1}}"#,
            r#"{"at":"2026-11-15T12:00:00Z","kind":"model_ended","step":1,"text":"I think\nso","calls":[{"id":"c","name":"shell","args":{}}],"usage":{"tokens_in":5,"tokens_out":7}}"#,
            r#"{"kind":"snapshot","step":2,"skip":true,"after":1,"tree":"TREE","base":"BASE","grade":"exact","changed":2,"foreign_count":1,"added":12,"removed":3}"#,
            r#"{"kind":"compacted","step":2,"through":3,"summary":"so far","usage":{"tokens_in":40,"tokens_out":2}}"#,
            r#"{"at":"2026-11-15T12:00:01Z","kind":"model_ended","step":2,"text":"Done."}"#,
            r#"{"kind":"snapshot","step":3,"skip":true,"after":2,"tree":"TREE","base":"BASE","grade":"exact","changed":0,"added":0,"removed":0}"#,
        ] {
            steps.fold(&line.replace("TREE", &"0".repeat(64)).replace("BASE", &"1".repeat(64)));
        }
        assert_eq!(
            table(&steps.rows, &Clock::utc(), &Look::plain()),
            "STEP  TIME           TOKENS  CALLS  FILES                            TEXT\n   1  12:00:00.000Z      18  shell  +12 -3 in 2 files (1 by others)  I think so\n   2  12:00:01.000Z      42  -      none                             Done.\n"
        );
    }

    #[test]
    fn a_step_is_open_until_the_model_and_all_calls_are_done() {
        let mut steps = Steps::default();
        let calls = r#"[{"id":"a","name":"shell","args":{}},{"id":"b","name":"shell","args":{}}]"#;
        let answer = |step: u32, calls: &str| format!(r#"{{"kind":"model_ended","step":{step},"calls":{calls}}}"#);
        let about = |kind: &str, call: u32, more: &str| format!(r#"{{"kind":"{kind}","step":1,"call":{call}{more}}}"#);
        let mut check = |line: String, expect: &[bool]| {
            steps.fold(&line);
            assert_eq!(steps.rows.iter().map(|step| step.is_open).collect::<Vec<_>>(), expect, "{line}");
        };
        check(r#"{"kind":"partial","step":1,"text":"I th"}"#.to_owned(), &[true]);
        check(answer(1, calls), &[true]);
        check(about("call_ended", 1, r#","ok":true"#), &[true]);
        check(about("resolved", 0, r#","outcome":"retry""#), &[true]);
        check(about("resolved", 0, r#","outcome":"not_done""#), &[false]);
        check(answer(2, "[]"), &[false, false]);
    }

    #[test]
    fn only_steps_that_follow_each_other_are_a_range() {
        let check = |steps: &[u32], expect: &str| assert_eq!(numbered(steps), expect);
        check(&[3], "step 3");
        check(&[2, 3], "steps 2 to 3");
        check(&[1, 5], "steps 1, 5");
        check(&[1, 2, 3, 5, 7, 8], "steps 1 to 3, 5, 7 to 8");
    }

    #[test]
    fn a_step_without_a_snapshot_is_shown_as_unknown() {
        let answer = |step: u32| format!(r#"{{"kind":"model_ended","step":{step},"text":"I do"}}"#);
        let call = |step: u32, recovery: &str| {
            format!(r#"{{"kind":"call_started","step":{step},"call":0,"name":"t","recovery":{{"by":"{recovery}"}}}}"#)
        };
        let snapshot = |after: u32, tree: u8, base: u8, grade: &str| {
            let id = |byte: u8| format!("{byte:x}").repeat(64);
            let (tree, base) = (id(tree), id(base));
            format!(
                r#"{{"kind":"snapshot","step":9,"after":{after},"tree":"{tree}","base":"{base}","grade":"{grade}","changed":1}}"#
            )
        };
        let mut steps = Steps::default();
        for line in [
            // None was ever taken.
            [answer(1), call(1, "doubt")],
            [answer(2), call(2, "rerun")],
            // One was, and then none for two steps.
            [answer(3), snapshot(2, 1, 0, "exact")],
            [call(3, "doubt"), answer(4)],
            [call(4, "doubt"), snapshot(3, 2, 1, "exact")],
            [answer(5), snapshot(4, 2, 2, "moving").replace(r#","changed":1"#, "")],
            [answer(6), call(6, "join")],
            [answer(7), snapshot(6, 3, 2, "exact")],
        ]
        .into_iter()
        .flatten()
        {
            steps.fold(&line);
        }
        let shown: Vec<_> = steps.rows.iter().map(|step| step.files_shown().unwrap_or_default()).collect();
        let one = "+0 -0 in 1 file";
        assert_eq!(shown, ["unknown", one, one, "unknown", "", "+0 -0 in 1 file, since step 4", ""]);
    }
}
