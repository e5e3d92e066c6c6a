//! The steps of a journal, one row each.

use relive_core::Timestamp;
use relive_journal::record::{Compacted, ModelEnded, Partial, Snapshot};
use serde::Serialize;

use super::files::summary;
use super::line::Line;
use super::table::{Align, Cell, Column, draw};
use super::time::Clock;
use crate::terminal::{Look, one_line};

/// One model call and the tool calls it asked for.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub(crate) struct Step {
    pub step: u32,
    pub at: Option<Timestamp>,
    pub tokens_in: u64,
    pub tokens_out: u64,
    pub calls: Vec<String>,
    /// How it begins.
    pub text: String,
    /// The model was cut off.
    pub partial: bool,
    /// What it cost, where that is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cost_usd: Option<relive_core::Usd>,
    /// What it changed in the files, where that is known.
    pub files: Option<ChangedFiles>,
}

/// What a step changed in the files.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub(crate) struct ChangedFiles {
    pub changed: u64,
    pub added: u64,
    pub removed: u64,
    /// How many of them are not its own work.
    pub foreign: u64,
}

impl ChangedFiles {
    pub(crate) fn shown(self) -> String {
        if self.changed == 0 { "none".to_owned() } else { summary(self.changed, self.added, self.removed) }
    }
}

/// How much of a step's text is kept.
const TEXT_HEAD: usize = 400;

/// Takes the next line of the journal.
pub(crate) fn fold(steps: &mut Vec<Step>, text: &str) {
    let Some(line) = Line::parse(text) else { return };
    if line.kind == "snapshot" {
        return note_files(steps, text);
    }
    if line.step == 0 {
        return;
    }
    let (usage, said, calls, partial) = match line.kind.as_str() {
        "model_ended" => match serde_json::from_str::<ModelEnded>(text) {
            Ok(ended) => (ended.usage, ended.text, ended.calls.into_iter().map(|call| call.name).collect(), false),
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
    step.calls = calls;
    step.text = said.map(|said| said.head(TEXT_HEAD).to_owned()).unwrap_or_default();
    step.partial = partial;
}

/// Takes a snapshot, which stands within the step after the one it is about.
fn note_files(steps: &mut [Step], text: &str) {
    let Ok(snapshot) = serde_json::from_str::<Snapshot>(text) else { return };
    let Snapshot { after, base, changed, added, removed, foreign_count: foreign, before_verb, .. } = snapshot;
    // The first snapshot of a process is compared with nothing; that of a fork tells what its step changed.
    let is_of_step = !before_verb && (base.is_some() || changed > 0);
    if let Some(step) = steps.iter_mut().rfind(|step| step.step == after && is_of_step) {
        let before = step.files.unwrap_or(ChangedFiles { changed: 0, added: 0, removed: 0, foreign: 0 });
        step.files = Some(ChangedFiles {
            changed: before.changed + changed,
            added: before.added + added,
            removed: before.removed + removed,
            foreign: before.foreign + foreign,
        });
    }
}

pub(crate) fn table(steps: &[Step], clock: &Clock, look: &Look) -> String {
    let left = |header| Column { header, align: Align::Left };
    let right = |header| Column { header, align: Align::Right };
    let columns = [right("STEP"), left("TIME"), right("TOKENS"), left("CALLS"), left("FILES"), left("TEXT")];
    let row = |step: &Step| {
        let calls = if step.calls.is_empty() { "-".into() } else { one_line(&step.calls.join(",")) };
        let partial = if step.partial { "[partial] " } else { "" };
        vec![
            Cell::plain(step.step.to_string()),
            Cell::plain(step.at.map_or_else(|| "-".into(), |at| clock.time(at))),
            Cell::plain((step.tokens_in + step.tokens_out).to_string()),
            Cell::plain(calls),
            Cell::plain(step.files.map_or_else(|| "-".into(), |files| files.shown())),
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
        let mut steps = Vec::new();
        for line in [
            r#"{"kind":"input","step":0,"id":"a","text":"go"}"#,
            r#"{"kind":"partial","step":1,"text":"I th","usage":{"tokens_in":5,"tokens_out":1}}"#,
            r#"{"at":"2026-11-15T12:00:00Z","kind":"model_ended","step":1,"text":"I think\nso","calls":[{"id":"c","name":"shell","args":{}}],"usage":{"tokens_in":5,"tokens_out":7}}"#,
            r#"{"kind":"snapshot","step":2,"skip":true,"after":1,"tree":"TREE","base":"TREE","grade":"exact","changed":2,"added":12,"removed":3}"#,
            r#"{"kind":"compacted","step":2,"through":3,"summary":"so far","usage":{"tokens_in":40,"tokens_out":2}}"#,
            r#"{"at":"2026-11-15T12:00:01Z","kind":"model_ended","step":2,"text":"Done."}"#,
            r#"{"kind":"snapshot","step":3,"skip":true,"after":2,"tree":"TREE","base":"TREE","grade":"exact","changed":0,"added":0,"removed":0}"#,
        ] {
            fold(&mut steps, &line.replace("TREE", &"0".repeat(64)));
        }
        assert_eq!(
            table(&steps, &Clock::utc(), &Look::plain()),
            "STEP  TIME           TOKENS  CALLS  FILES              TEXT\n   1  12:00:00.000Z      18  shell  +12 -3 in 2 files  I think so\n   2  12:00:01.000Z      42  -      none               Done.\n"
        );
    }
}
