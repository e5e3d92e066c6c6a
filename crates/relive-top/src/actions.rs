//! Actions: each is a command of Relive, as it would be typed.

use relive_api::{AnswerKind, Item, Process, with_words};
use relive_core::Body;
use relive_types::Uuid;
use relive_types::program::{commands, quote, relive_commands};

use crate::content::Tab;
use crate::rows::RowKind;
use crate::state::{Effect, Focus, Output, Prompt, State, asks};

/// The signals of the menu, each with its key.
pub(crate) const SIGNALS: [(char, &str, &str); 5] = [
    ('1', "TERM", "ask it to end"),
    ('2', "KILL", "end it now, with everything below it"),
    ('3', "INT", "interrupt it"),
    ('4', "PAUSE", "pause it"),
    ('5', "RESUME", "resume it"),
];

impl State {
    /// Returns what an action is about: what is tagged, else what is selected.
    fn targets(&self) -> Vec<&Process> {
        let mut targets: Vec<&Process> =
            self.tagged.iter().filter_map(|uuid| self.known.get(uuid)).map(|known| &known.process).collect();
        if targets.is_empty() {
            targets.extend(self.process());
        }
        targets
    }

    /// Returns the ids of what an action is about.
    pub(crate) fn target_ids(&self) -> Vec<String> {
        self.targets().into_iter().map(|process| process.short.clone()).collect()
    }

    /// Runs a command, and shows it.
    pub(crate) fn command(&mut self, words: Vec<String>, output: Output) -> Vec<Effect> {
        self.commands(vec![words], output)
    }

    /// Runs commands one after the other, and shows them.
    fn commands(&mut self, commands: Vec<Vec<String>>, output: Output) -> Vec<Effect> {
        self.status = shown(&commands);
        self.own.begin(self.status.clone(), &commands);
        vec![Effect::Run { commands, output }]
    }

    fn on_targets(&mut self, verb: &[&str], targets: Vec<String>) -> Vec<Effect> {
        if targets.is_empty() {
            return Vec::new();
        }
        let output = Output::of_each(targets.len());
        self.command(verb.iter().map(|word| (*word).to_owned()).chain(targets).collect(), output)
    }

    /// Tells whether `p` resumes: all that it is about is paused, or will be once it is answered. `None` if all of it has ended.
    pub(crate) fn would_resume(&self) -> Option<bool> {
        let mut living = self.targets().into_iter().filter(|process| process.dead_at.is_none()).peekable();
        living.peek()?;
        Some(living.all(|process| if asks(process) { process.pause_kept } else { process.paused }))
    }

    /// Pauses what lives of the targets with everything below it, or resumes it if all of it is paused.
    pub(crate) fn pause_or_resume(&mut self) -> Vec<Effect> {
        let Some(resumes) = self.would_resume() else {
            if let Some(id) = self.process().map(|process| process.short.clone()) {
                self.status = format!("it has ended; to start it again: relive resume {id}");
            }
            return Vec::new();
        };
        let living = self.targets().into_iter().filter(|process| process.dead_at.is_none());
        let targets = living.map(|process| process.short.clone()).collect();
        self.on_targets(&[if resumes { "resume" } else { "pause" }, "--subtree"], targets)
    }

    pub(crate) fn signal(&mut self, key: char, targets: Vec<String>) -> Vec<Effect> {
        let Some((_, name, _)) = SIGNALS.iter().find(|(signal, _, _)| *signal == key) else { return Vec::new() };
        self.on_targets(&["kill", "-s", name], targets)
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
        self.command(words, Output::StatusLine)
    }

    pub(crate) fn rewind(&mut self) -> Vec<Effect> {
        let Some(id) = self.process().map(|process| process.short.clone()) else { return Vec::new() };
        let Some(step) = self.step().filter(|_| self.tab == Tab::Timeline) else {
            "choose a step in the Timeline first (Tab, then Enter)".clone_into(&mut self.status);
            return Vec::new();
        };
        let step = step.to_string();
        let then = ["rewind", &id, "--to-step", &step, "-y"].map(str::to_owned).to_vec();
        let words = ["rewind", &id, "--to-step", &step, "--dry-run"].map(str::to_owned).to_vec();
        self.command(words, Output::Plan { then })
    }

    pub(crate) fn diff(&mut self) -> Vec<Effect> {
        let Some(id) = self.process().map(|process| process.short.clone()) else { return Vec::new() };
        let step = self.step().filter(|_| self.tab == Tab::Timeline).map(|step| step.to_string());
        let words = ["diff".to_owned(), id].into_iter().chain(step).collect();
        self.command(words, Output::Window)
    }

    pub(crate) fn attach(&mut self) -> Vec<Effect> {
        let Some(process) = self.process() else { return Vec::new() };
        let (pid, id) = (process.pid, process.short.clone());
        if process.dead_at.is_some() {
            self.status = format!("PID {pid} has ended: there is nothing to attach to");
            return Vec::new();
        }
        match process.body {
            Body::Compose | Body::Supervisor => {
                self.status = format!("PID {pid}: there is nothing to attach to; what it runs is below it");
                Vec::new()
            }
            Body::Agent | Body::Exec | Body::Cli => {
                let words = vec!["attach".to_owned(), id];
                self.own.begin(shown(std::slice::from_ref(&words)), std::slice::from_ref(&words));
                vec![Effect::Attach { words }]
            }
        }
    }

    /// Returns the item that is selected, or that the selected process has.
    pub(crate) fn item(&self) -> Option<&Item> {
        match &self.row()?.kind {
            RowKind::Item(item) => Some(item),
            RowKind::Process { .. } => self.known.get(&self.selected_uuid()?)?.item.as_ref(),
        }
    }

    /// Tells whether a key answers what the selected row asks: then it has no other meaning there.
    pub(crate) fn has_answer(&self, key: char) -> bool {
        self.item().is_some_and(|item| item.answers.iter().any(|answer| answer.key == key))
    }

    /// Answers the selected item by the key of an answer. `is_open` tells whether the window with all of it is open.
    pub(crate) fn answer(&mut self, key: char, is_open: bool) -> Vec<Effect> {
        let Some(item) = self.item() else { return Vec::new() };
        let Some(answer) = item.answers.iter().find(|answer| answer.key == key) else { return Vec::new() };
        if !self.was_seen(item, answer) {
            let why = match (self.is_cut(), self.focus) {
                (true, _) if is_open => "read all of it before you answer: PgDn, End",
                (true, _) => "read all of it before you answer: Enter",
                (false, Focus::Detail) => "look at what is asked before you answer: Esc",
                (false, Focus::List) => "this is new: look at it before you answer",
            };
            self.refuse(why);
            return Vec::new();
        }
        if answer.kind != AnswerKind::Look && self.answering.as_ref().is_some_and(|(id, _)| *id == item.id) {
            self.refuse("it is being answered");
            return Vec::new();
        }
        let (command, kind, id) = (item.exact_command(answer), answer.kind, item.id.clone());
        match kind {
            AnswerKind::Text => {
                self.type_for(Prompt::Answer { command, id });
                Vec::new()
            }
            AnswerKind::Look => match relive_commands(&command) {
                // It needs the terminal.
                Some(words) if words.len() == 1 && words[0].first().is_some_and(|word| word == "attach") => {
                    self.attach()
                }
                Some(_) | None => self.run_answer(&command, Output::Window),
            },
            AnswerKind::Command | AnswerKind::Ack => self.give_answer(&command, id),
        }
    }

    /// Answers a question with a text.
    pub(crate) fn answer_with(&mut self, command: &str, id: String, text: &str) -> Vec<Effect> {
        self.give_answer(&with_words(command, text), id)
    }

    /// Runs the command that answers an item.
    fn give_answer(&mut self, line: &str, id: String) -> Vec<Effect> {
        let effects = self.run_answer(line, Output::StatusLine);
        self.answering = (!effects.is_empty()).then(|| (id, self.status.clone()));
        effects
    }

    /// Runs the command of an answer.
    fn run_answer(&mut self, line: &str, output: Output) -> Vec<Effect> {
        let Some(commands) = relive_commands(line) else {
            self.status = format!("this has to be typed in a shell: {line}");
            return Vec::new();
        };
        self.commands(commands, output)
    }

    pub(crate) fn send(&mut self, uuid: Uuid, text: &str) -> Vec<Effect> {
        let Some(id) = self.known.get(&uuid).map(|known| known.process.short.clone()) else {
            "not sent: there is no such process now".clone_into(&mut self.status);
            return Vec::new();
        };
        let mut words = vec!["send".to_owned(), id, text.to_owned()];
        if text.starts_with('-') {
            // It is no option.
            words.insert(1, "--".to_owned());
        }
        self.command(words, Output::StatusLine)
    }

    /// Runs a typed line: commands that begin with `relive`, or with what follows it.
    pub(crate) fn type_in(&mut self, line: &str) -> Vec<Effect> {
        let Some(mut commands) = commands(line) else {
            self.status = format!("this has to be typed in a shell: {line}");
            return Vec::new();
        };
        for words in &mut commands {
            if words.len() > 1 && words[0] == "relive" {
                words.remove(0);
            }
        }
        if commands.is_empty() { Vec::new() } else { self.commands(commands, Output::Window) }
    }
}

/// Returns commands as they would be typed.
pub(crate) fn shown(commands: &[Vec<String>]) -> String {
    let shown = commands.iter().map(|words| {
        let words: Vec<String> = words.iter().map(|word| quote(word)).collect();
        format!("relive {}", words.join(" "))
    });
    shown.collect::<Vec<_>>().join(" && ")
}
