//! Actions: each is a command of Relive, as it would be typed.

use relive_api::{Answer, Item, Process, quoted};
use relive_types::Uuid;

use crate::content::Tab;
use crate::rows::RowKind;
use crate::state::{Effect, Overlay, Prompt, State};

/// The signals of the menu, each with its key.
pub(crate) const SIGNALS: [(char, &str, &str); 5] = [
    ('1', "TERM", "ask it to end"),
    ('2', "KILL", "end it now, with everything below it"),
    ('3', "INT", "interrupt it"),
    ('4', "PAUSE", "pause it"),
    ('5', "RESUME", "resume it"),
];

impl State {
    /// Returns the ids of what an action is about: what is tagged, else what is selected.
    fn targets(&self) -> Vec<String> {
        let mut targets: Vec<&Process> =
            self.tagged.iter().filter_map(|uuid| self.known.get(uuid)).map(|known| &known.process).collect();
        if targets.is_empty() {
            targets.extend(self.process());
        }
        targets.into_iter().map(|process| process.short.clone()).collect()
    }

    /// Runs a command, and shows it.
    pub(crate) fn command(&mut self, words: Vec<String>, wanted: bool) -> Vec<Effect> {
        self.status = shown(&words);
        vec![Effect::Run { words, wanted }]
    }

    fn on_targets(&mut self, verb: &[&str]) -> Vec<Effect> {
        let targets = self.targets();
        if targets.is_empty() {
            return Vec::new();
        }
        self.command(verb.iter().map(|word| (*word).to_owned()).chain(targets).collect(), false)
    }

    /// Pauses what is selected with everything below it, or resumes it.
    pub(crate) fn pause_or_resume(&mut self) -> Vec<Effect> {
        let Some(process) = self.process() else { return Vec::new() };
        if process.dead_at.is_some() || process.paused {
            return self.on_targets(&["resume", "--subtree"]);
        }
        self.on_targets(&["pause", "--subtree"])
    }

    pub(crate) fn signal(&mut self, key: char) -> Vec<Effect> {
        let Some((_, name, _)) = SIGNALS.iter().find(|(signal, _, _)| *signal == key) else { return Vec::new() };
        self.on_targets(&["kill", "-s", name])
    }

    /// Returns the step at the cursor of the detail pane.
    fn step(&self) -> Option<u32> {
        let line = self.line.unwrap_or(self.lines.len().saturating_sub(1));
        self.lines.get(..=line).unwrap_or(&self.lines).iter().rev().find_map(|line| line.step)
    }

    /// Forks what is selected, from the step at the cursor where one is shown.
    pub(crate) fn fork(&mut self) -> Vec<Effect> {
        let Some(id) = self.process().map(|process| process.short.clone()) else { return Vec::new() };
        let mut words = vec!["resume".to_owned(), "--fork".to_owned()];
        if self.tab == Tab::Timeline {
            let Some(step) = self.step() else {
                "there is no step to fork from yet".clone_into(&mut self.status);
                return Vec::new();
            };
            words.extend(["--from-step".to_owned(), step.to_string()]);
        }
        words.push(id);
        self.command(words, false)
    }

    pub(crate) fn rewind(&mut self) -> Vec<Effect> {
        let Some(id) = self.process().map(|process| process.short.clone()) else { return Vec::new() };
        let Some(step) = self.step().filter(|_| self.tab == Tab::Timeline) else {
            "choose a step in the Timeline first (Tab, then Enter)".clone_into(&mut self.status);
            return Vec::new();
        };
        // It can be undone: the files of now are kept.
        let words = ["rewind", &id, "--to-step", &step.to_string(), "-y"].map(str::to_owned).to_vec();
        self.command(words, false)
    }

    pub(crate) fn diff(&mut self) -> Vec<Effect> {
        let Some(id) = self.process().map(|process| process.short.clone()) else { return Vec::new() };
        let step = self.step().filter(|_| self.tab == Tab::Timeline).map(|step| step.to_string());
        let words = ["diff".to_owned(), id].into_iter().chain(step).collect();
        self.command(words, true)
    }

    pub(crate) fn attach(&mut self) -> Vec<Effect> {
        let Some(id) = self.process().map(|process| process.short.clone()) else { return Vec::new() };
        vec![Effect::Attach { words: vec!["attach".to_owned(), id] }]
    }

    /// Returns the item that is selected, or that the selected process has.
    pub(crate) fn item(&self) -> Option<&Item> {
        match &self.row()?.kind {
            RowKind::Item(item) => Some(item),
            RowKind::Process { .. } => self.known.get(&self.selected_uuid()?)?.item.as_ref(),
        }
    }

    /// Tells whether a key answers the row that is selected.
    pub(crate) fn has_answer(&self, key: char) -> bool {
        let Some(RowKind::Item(item)) = self.row().map(|row| &row.kind) else { return false };
        item.answers.iter().any(|answer| answer.key == key)
    }

    /// Answers the selected item by the key of an answer.
    pub(crate) fn answer(&mut self, key: char) -> Vec<Effect> {
        let Some(item) = self.item() else { return Vec::new() };
        let Some(answer) = item.answers.iter().find(|answer| answer.key == key) else { return Vec::new() };
        if !self.was_seen(item) {
            "this is new: look at it before you answer".clone_into(&mut self.status);
            return Vec::new();
        }
        if needs_text(answer) {
            let prompt = Prompt::Answer(item.uuid);
            self.overlay = Some(Overlay::Typing { prompt, typed: String::new() });
            return Vec::new();
        }
        let command = item.exact_command(answer);
        self.type_in(&command)
    }

    /// Answers the question of a process with a text.
    pub(crate) fn answer_with(&mut self, uuid: Uuid, text: &str) -> Vec<Effect> {
        let item = self.known.get(&uuid).and_then(|known| known.item.as_ref());
        let command = item.and_then(|item| {
            let answer = item.answers.iter().find(|answer| needs_text(answer))?;
            Some(item.exact_command(answer).replacen("--answer TEXT", &format!("--answer {}", quoted(text)), 1))
        });
        match command {
            Some(command) => self.type_in(&command),
            None => {
                "this question has its answer already".clone_into(&mut self.status);
                Vec::new()
            }
        }
    }

    pub(crate) fn send(&mut self, uuid: Uuid, text: &str) -> Vec<Effect> {
        let Some(id) = self.known.get(&uuid).map(|known| known.process.short.clone()) else { return Vec::new() };
        self.command(vec!["send".to_owned(), id, text.to_owned()], false)
    }

    /// Runs a line that begins with `relive`, or with what follows it.
    pub(crate) fn type_in(&mut self, line: &str) -> Vec<Effect> {
        let wanted = ["logs", "info", "diff", "steps", "ps", "usage", "inbox", "lineage", "help"];
        let Some(mut words) = relive_api::words(line).filter(|words| !words.is_empty()) else {
            self.status = format!("this has to be typed in a shell: {line}");
            return Vec::new();
        };
        if words[0] == "relive" {
            words.remove(0);
        }
        let acks = words.get(1).is_some_and(|word| word == "ack");
        let shows = words.first().is_some_and(|word| wanted.contains(&word.as_str())) && !acks;
        if words.is_empty() { Vec::new() } else { self.command(words, shows) }
    }
}

fn needs_text(answer: &Answer) -> bool {
    answer.command.ends_with("--answer TEXT")
}

/// Returns a command as it would be typed.
pub(crate) fn shown(words: &[String]) -> String {
    let words: Vec<String> = words.iter().map(|word| quoted(word)).collect();
    format!("relive {}", words.join(" "))
}
