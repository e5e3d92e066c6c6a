//! Which tools an agent may use without asking.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::check::Expected;

/// The name that stands for every tool that is not named.
pub const EVERY_TOOL: &str = "*";

/// Every tool there is, in the order of their names. A test of the daemon holds it against the tools themselves.
pub const TOOLS: [&str; 10] =
    ["done", "edit", "list", "read", "search", "shell", "sleep", "spawn_agent", "wait_agent", "write"];

pub(crate) const PERMISSION: Expected = Expected::Word(&["allow", "ask", "deny"]);

/// Whether a tool may be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Permission {
    /// It may.
    Allow,
    /// A human is asked each time.
    Ask,
    /// It may not.
    Deny,
}

/// What each tool may do, all of them named. In a file only what differs need be said; `*` stands for all that the
/// file does not name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "BTreeMap<String, Permission>")]
pub struct Tools(BTreeMap<String, Permission>);

impl Tools {
    /// By name; `*` is among them.
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
        Self(all.collect())
    }
}
