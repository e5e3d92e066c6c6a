//! Which tools a new agent may use without asking: what is built in, the configuration over it, and the request over
//! that. It is resolved once and kept in the journal, so a configuration that changes later changes nothing.

use std::collections::BTreeMap;

use relive_api::RunRequest;
use relive_core::ErrorCode;
use relive_journal::policy::{EVERY_TOOL, Permission, Policy};

use crate::error::{Error, Result};

const WORDS: [(&str, Permission); 3] =
    [("allow", Permission::Allow), ("ask", Permission::Ask), ("deny", Permission::Deny)];

/// The policy of a new agent.
pub(crate) fn resolve(configured: &Policy, request: &RunRequest) -> Result<Policy> {
    let layer: BTreeMap<String, Permission> =
        request.policy.iter().map(|(tool, word)| Ok((known(tool)?, permission(tool, word)?))).collect::<Result<_>>()?;
    let policy = configured.clone().with(&layer);
    Ok(if request.yes { policy.without_questions() } else { policy })
}

/// What the configuration says.
pub(crate) fn configured(tools: &relive_config::Tools) -> Policy {
    let said = tools.permissions().iter().map(|(tool, permission)| {
        let permission = match permission {
            relive_config::Permission::Allow => Permission::Allow,
            relive_config::Permission::Ask => Permission::Ask,
            relive_config::Permission::Deny => Permission::Deny,
        };
        (tool.clone(), permission)
    });
    Policy::built_in().with(&said.collect())
}

fn known(tool: &str) -> Result<String> {
    let all = relive_agent::tools::all();
    let names = || relive_config::TOOLS.into_iter().chain(all.iter().map(|tool| tool.name())).chain([EVERY_TOOL]);
    if names().any(|name| name == tool) {
        return Ok(tool.to_owned());
    }
    let hint = match relive_types::suggest::closest(tool, names()) {
        Some(found) => format!("did you mean `{found}`?"),
        None => format!("there are {}", relive_config::TOOLS.join(", ")),
    };
    Err(Error::new(ErrorCode::Invalid, format!("there is no tool `{tool}`")).with_hint(hint))
}

fn permission(tool: &str, word: &str) -> Result<Permission> {
    let found = WORDS.into_iter().find(|(name, _)| *name == word);
    let wrong = || Error::new(ErrorCode::Invalid, format!("{tool}: `{word}` is not one of allow, ask, deny"));
    found.map(|(_, permission)| permission).ok_or_else(wrong)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    /// `config.yaml` can name every tool, and only tools.
    #[test]
    fn the_tools_of_the_configuration_are_the_tools() {
        let tests_own = ["append_outside", "panic"];
        let there: BTreeSet<&str> = relive_agent::tools::all().iter().map(|tool| tool.name()).collect();
        let named: BTreeSet<&str> = relive_config::TOOLS.into_iter().collect();
        let unnamed: Vec<_> = there.difference(&named).filter(|name| !tests_own.contains(name)).collect();
        assert_eq!(unnamed, Vec::<&&str>::new());
        let missing: Vec<_> = named.difference(&there).filter(|name| **name != "shell").collect();
        assert_eq!(missing, Vec::<&&str>::new());
    }
}
