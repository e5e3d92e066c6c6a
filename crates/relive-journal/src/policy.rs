//! The permissions of an agent's tools, determined when it is created and recorded with it.
//!
//! A policy is a list of layers that override each other: the built-in one, the configuration, the flags. In each layer
//! `*` stands for every tool that the layer does not name, including those that an earlier layer names. A rule, such as
//! `shell:git status*`, allows single commands of a tool that asks or is denied; a layer that names the tool drops the
//! rules of the layers below it.

use std::collections::BTreeMap;

use relive_types::CommandRule;
use relive_types::rule::COMMAND_TOOL;
use serde::{Deserialize, Serialize};

/// The name that stands for every unnamed tool.
pub const EVERY_TOOL: &str = "*";
/// The tool that needs an approval by default: it can do anything the user can.
const ASKED_BY_DEFAULT: &str = "shell";

/// Whether a tool may be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Permission {
    Allow,
    /// A person is asked each time.
    Ask,
    /// The tool is denied, and the model is told.
    Deny,
}

/// The permission of each tool. An empty policy means the built-in one.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Policy {
    tools: BTreeMap<String, Permission>,
}

impl Policy {
    /// Returns the built-in policy, written out.
    #[must_use]
    pub fn built_in() -> Self {
        let tools = [(EVERY_TOOL, Permission::Allow), (ASKED_BY_DEFAULT, Permission::Ask)];
        Self { tools: tools.into_iter().map(|(tool, permission)| (tool.to_owned(), permission)).collect() }
    }

    #[must_use]
    pub fn with(mut self, layer: &BTreeMap<String, Permission>) -> Self {
        if layer.contains_key(EVERY_TOOL) {
            self.tools.clear();
        } else if layer.contains_key(COMMAND_TOOL) {
            self.tools.retain(|name, _| !CommandRule::is_meant(name));
        }
        self.tools.extend(layer.iter().map(|(tool, permission)| (tool.clone(), *permission)));
        self
    }

    /// Allows every tool that would otherwise be asked about.
    #[must_use]
    pub fn without_questions(mut self) -> Self {
        for permission in self.tools.values_mut().filter(|permission| **permission == Permission::Ask) {
            *permission = Permission::Allow;
        }
        self
    }

    /// Returns the permission of a tool.
    #[must_use]
    pub fn of(&self, tool: &str) -> Permission {
        let said = self.tools.get(tool).or_else(|| self.tools.get(EVERY_TOOL)).copied();
        said.unwrap_or(if tool == ASKED_BY_DEFAULT { Permission::Ask } else { Permission::Allow })
    }

    /// Returns the rule that allows this command, if there is one.
    #[must_use]
    pub fn rule_for(&self, command: &str) -> Option<CommandRule> {
        let allowed = self.tools.iter().filter(|(_, permission)| **permission == Permission::Allow);
        // A rule that a later version wrote and this one cannot read allows nothing.
        allowed.filter_map(|(name, _)| name.parse::<CommandRule>().ok()).find(|rule| rule.matches(command))
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
    fn later_layers_win_and_a_star_covers_tools_its_layer_does_not_name() {
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
    fn a_rule_holds_until_a_later_layer_names_its_tool() {
        let map = |layer: &[(&str, Permission)]| layer.iter().map(|(tool, it)| ((*tool).to_owned(), *it)).collect();
        let ruled = Policy::built_in().with(&map(&[("shell:git status*", Allow)]));
        let rule = |policy: &Policy| policy.rule_for("git status -s").map(|rule| rule.to_string());
        assert_eq!((rule(&ruled).as_deref(), ruled.of("shell")), (Some("shell:git status*"), Ask));
        assert_eq!(ruled.rule_for("git status; rm -rf /"), None);
        let both = ruled.clone().with(&map(&[("shell:ls", Allow), ("write", Ask)]));
        assert!(rule(&both).is_some() && both.rule_for("ls").is_some());
        for layer in [[("shell", Ask)], [("shell", Deny)], [("*", Ask)]] {
            assert_eq!(rule(&ruled.clone().with(&map(&layer))), None, "{layer:?}");
        }
        let narrow = Policy::built_in().with(&map(&[("*", Deny), ("shell:git status*", Allow)]));
        assert!(rule(&narrow).is_some() && narrow.of("shell") == Deny);
        assert_eq!(Policy::built_in().with(&map(&[("shell:git status*", Ask)])).rule_for("git status"), None);
    }

    #[test]
    fn a_journal_without_a_policy_means_the_built_in_one() {
        for tool in ["shell", "write", "read"] {
            assert_eq!(Policy::default().of(tool), Policy::built_in().of(tool), "{tool}");
        }
    }
}
