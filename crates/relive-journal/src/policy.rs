//! Which tools an agent may use without asking, resolved when it begins and kept with it.
//!
//! A policy is a list of layers laid over each other: what is built in, the configuration, the flags. In each layer `*`
//! stands for every tool that the layer does not name, also for those that an earlier layer does.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// The name that stands for every tool that is not named.
pub const EVERY_TOOL: &str = "*";
/// The tool that is put to a human unless somebody says otherwise: it can do anything the user can.
const ASKED_BY_DEFAULT: &str = "shell";

/// Whether a tool may be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Permission {
    /// It is.
    Allow,
    /// A human is asked each time.
    Ask,
    /// It is not, and the model is told so.
    Deny,
}

/// What each tool may do. One that says nothing is the one that is built in.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Policy {
    tools: BTreeMap<String, Permission>,
}

impl Policy {
    /// The one that is built in, in words of its own.
    #[must_use]
    pub fn built_in() -> Self {
        let tools = [(EVERY_TOOL, Permission::Allow), (ASKED_BY_DEFAULT, Permission::Ask)];
        Self { tools: tools.into_iter().map(|(tool, permission)| (tool.to_owned(), permission)).collect() }
    }

    /// With this laid over it.
    #[must_use]
    pub fn with(mut self, layer: &BTreeMap<String, Permission>) -> Self {
        if layer.contains_key(EVERY_TOOL) {
            self.tools.clear();
        }
        self.tools.extend(layer.iter().map(|(tool, permission)| (tool.clone(), *permission)));
        self
    }

    /// With every question answered in advance: yes.
    #[must_use]
    pub fn without_questions(mut self) -> Self {
        for permission in self.tools.values_mut().filter(|permission| **permission == Permission::Ask) {
            *permission = Permission::Allow;
        }
        self
    }

    /// Whether this tool may be used.
    #[must_use]
    pub fn of(&self, tool: &str) -> Permission {
        let said = self.tools.get(tool).or_else(|| self.tools.get(EVERY_TOOL)).copied();
        said.unwrap_or(if tool == ASKED_BY_DEFAULT { Permission::Ask } else { Permission::Allow })
    }

    pub(crate) fn is_unsaid(&self) -> bool {
        self.tools.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Permission::{Allow, Ask, Deny};

    fn check(layers: &[&[(&str, Permission)]], expect: [Permission; 3]) -> Policy {
        let map = |layer: &[(&str, Permission)]| layer.iter().map(|(tool, it)| ((*tool).to_owned(), *it)).collect();
        let policy = layers.iter().fold(Policy::built_in(), |policy, layer| policy.with(&map(layer)));
        assert_eq!(["shell", "write", "read"].map(|tool| policy.of(tool)), expect, "{layers:?}");
        policy
    }

    #[test]
    fn later_layers_win_and_a_star_stands_for_all_that_its_layer_does_not_name() {
        check(&[], [Ask, Allow, Allow]);
        check(&[&[("write", Ask)]], [Ask, Ask, Allow]);
        check(&[&[("write", Ask)], &[("shell", Allow)]], [Allow, Ask, Allow]);
        check(&[&[("write", Ask)], &[("*", Deny), ("read", Allow)]], [Deny, Deny, Allow]);
        check(&[&[("*", Allow)]], [Allow, Allow, Allow]);
        let asked = check(&[&[("*", Ask), ("read", Deny)]], [Ask, Ask, Deny]);
        let answered = asked.without_questions();
        assert_eq!(["shell", "write", "read"].map(|tool| answered.of(tool)), [Allow, Allow, Deny]);
    }

    #[test]
    fn a_journal_that_says_nothing_means_what_is_built_in() {
        for tool in ["shell", "write", "read"] {
            assert_eq!(Policy::default().of(tool), Policy::built_in().of(tool), "{tool}");
        }
    }
}
