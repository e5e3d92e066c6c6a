//! The plans of compose and supervisor files, for people.

use relive_types::WorkspaceKind;
use relive_types::program::quote;

use crate::file::{ComposeFile, Condition, Node, Run, SupervisedChild, SupervisorFile, Task, Work};
use crate::restart::Policy;

/// The longest text of a node that is shown.
const SHOWN: usize = 60;

impl ComposeFile {
    /// Describes what would happen, one line for each node in the order of their starts.
    #[must_use]
    pub fn plan(&self) -> String {
        let mut lines = Vec::new();
        for (level, places) in self.graph().levels().into_iter().enumerate() {
            for place in places {
                lines.push(format!("{}. {}", level + 1, self.line(&self.nodes[place])));
            }
        }
        lines.join("\n")
    }

    fn line(&self, node: &Node) -> String {
        let mut line = format!("{}: {}", node.name, what(&node.task));
        if !node.depends_on.is_empty() {
            let on = node.depends_on.iter().map(|dependency| {
                let name = &self.nodes[dependency.node].name;
                match dependency.condition {
                    Condition::Succeeded => name.clone(),
                    Condition::Completed | Condition::Started => format!("{name} ({})", dependency.condition.word()),
                }
            });
            line.push_str(&format!(", after {}", on.collect::<Vec<_>>().join(", ")));
        }
        match node.retries.max {
            0 => {}
            1 => line.push_str(", up to 1 retry"),
            max => line.push_str(&format!(", up to {max} retries")),
        }
        if node.is_service() {
            line.push_str(", kept running until the others have ended");
        }
        line + &place_of(&node.task)
    }
}

impl SupervisorFile {
    /// Describes what would be started, one line for each child; those of a supervisor below this one are indented.
    #[must_use]
    pub fn plan(&self) -> String {
        let mut lines = Vec::new();
        self.add_lines(0, &mut lines);
        lines.join("\n")
    }

    fn add_lines(&self, depth: usize, lines: &mut Vec<String>) {
        for SupervisedChild { name, run, restart, fresh } in &self.children {
            let (what, place) = match run {
                Run::Task(task) => (what(task), place_of(task)),
                Run::Supervisor(below) => (format!("supervisor, {}", below.strategy.word()), String::new()),
            };
            let restart = match restart {
                Policy::Permanent => "",
                Policy::Transient => ", restarted after a failure",
                Policy::Temporary => ", never restarted",
            };
            let fresh = if *fresh { ", as a new process each time" } else { "" };
            lines.push(format!("{}{name}: {what}{restart}{fresh}{place}", "  ".repeat(depth)));
            if let Run::Supervisor(below) = run {
                below.add_lines(depth + 1, lines);
            }
        }
    }
}

/// Describes where a task works, and what it may reach.
fn place_of(task: &Task) -> String {
    let mut place = String::new();
    if task.workspace == Some(WorkspaceKind::Own) {
        place.push_str(", on a copy");
    }
    if let Some(isolation) = task.isolation.filter(|isolation| !isolation.is_none()) {
        place.push_str(&format!(", {isolation}"));
    }
    if let Some(network) = &task.network {
        place.push_str(&format!(", network {network}"));
    }
    place
}

fn what(task: &Task) -> String {
    let (kind, text) = match &task.work {
        Work::Agent { intent, .. } => ("agent", intent.clone()),
        Work::Cli { cli, intent, .. } => (cli.as_str(), intent.clone()),
        Work::Exec { command } => ("exec", command.iter().map(|word| quote(word)).collect::<Vec<_>>().join(" ")),
    };
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let shown: String = text.chars().take(SHOWN).collect();
    let more = if shown.len() < text.len() { "..." } else { "" };
    format!("{kind} {shown}{more}")
}
