//! Permissions of tools.

use std::collections::BTreeMap;

use relive_types::CommandRule;
use serde::{Deserialize, Serialize};

use crate::check::Expected;

/// The name that stands for every unnamed tool.
pub const EVERY_TOOL: &str = "*";

/// Every tool, sorted by name. A test of the daemon compares it with the tools themselves.
pub const TOOLS: [&str; 13] = [
    "abandon",
    "ask",
    "done",
    "edit",
    "list",
    "read",
    "search",
    "shell",
    "sleep",
    "spawn_agent",
    "terminate",
    "wait_agent",
    "write",
];

pub(crate) const PERMISSION: Expected = Expected::Word(&["allow", "ask", "deny"]);

/// Whether a tool may be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Permission {
    Allow,
    /// A person is asked each time.
    Ask,
    Deny,
}

/// The permission of each tool. A file names only the tools that differ; `*` stands for all tools that the file does
/// not name. A rule such as `shell:git status*` allows single commands of a tool that asks or is denied.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "BTreeMap<String, Permission>")]
pub struct Tools(BTreeMap<String, Permission>);

impl Tools {
    /// Returns the permissions by name, including `*`.
    #[must_use]
    pub fn permissions(&self) -> &BTreeMap<String, Permission> {
        &self.0
    }
}

impl Default for Tools {
    fn default() -> Self {
        BTreeMap::new().into()
    }
}

impl From<BTreeMap<String, Permission>> for Tools {
    fn from(said: BTreeMap<String, Permission>) -> Self {
        let every = said.get(EVERY_TOOL).copied();
        let unsaid = |tool: &str| match every {
            Some(permission) => permission,
            None if tool == "shell" => Permission::Ask,
            None => Permission::Allow,
        };
        let names = TOOLS.into_iter().chain([EVERY_TOOL]);
        let all = names.map(|tool| (tool.to_owned(), said.get(tool).copied().unwrap_or_else(|| unsaid(tool))));
        let rules = said.iter().filter(|(name, _)| CommandRule::is_meant(name));
        Self(all.chain(rules.map(|(rule, permission)| (rule.clone(), *permission))).collect())
    }
}
