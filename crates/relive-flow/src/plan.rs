//! The plan of a compose file, for people.

use relive_types::WorkspaceKind;
use relive_types::program::quote;

use crate::file::{ComposeFile, Condition, Node, Work};

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
        let mut line = format!("{}: {}", node.name, what(node));
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
        if node.task.workspace == Some(WorkspaceKind::Own) {
            line.push_str(", on a copy");
        }
        if let Some(isolation) = node.task.isolation.filter(|isolation| !isolation.is_none()) {
            line.push_str(&format!(", {isolation}"));
        }
        if let Some(network) = &node.task.network {
            line.push_str(&format!(", network {network}"));
        }
        line
    }
}

fn what(node: &Node) -> String {
    let (kind, text) = match &node.task.work {
        Work::Agent { intent, .. } => ("agent", intent.clone()),
        Work::Cli { cli, intent, .. } => (cli.as_str(), intent.clone()),
        Work::Exec { command } => ("exec", command.iter().map(|word| quote(word)).collect::<Vec<_>>().join(" ")),
    };
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let shown: String = text.chars().take(SHOWN).collect();
    let more = if shown.len() < text.len() { "..." } else { "" };
    format!("{kind} {shown}{more}")
}
