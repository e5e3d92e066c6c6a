//! The permissions of a new agent's tools: built-in ones, overridden by the configuration, overridden by the request.
//! They are determined once and recorded in the journal, so that later changes of the configuration do not apply.

use std::collections::BTreeMap;

use relive_api::RunRequest;
use relive_core::ErrorCode;
use relive_journal::policy::{EVERY_TOOL, Permission, Policy};
use relive_types::CommandRule;
use relive_types::rule::{COMMAND_TOOL, RuleError};

use crate::error::{Error, Result};

const WORDS: [(&str, Permission); 3] =
    [("allow", Permission::Allow), ("ask", Permission::Ask), ("deny", Permission::Deny)];

/// Returns the policy of a new agent.
pub(crate) fn resolve(configured: &Policy, request: &RunRequest) -> Result<Policy> {
    let layer: BTreeMap<String, Permission> =
        request.policy.iter().map(|(tool, word)| entry(tool, word)).collect::<Result<_>>()?;
    let policy = configured.clone().with(&layer);
    Ok(if request.yes { policy.without_questions() } else { policy })
}

/// The configuration with the rules of an agent's file laid over it.
pub(crate) fn with_agent(configured: &Policy, allow: &[String]) -> Policy {
    configured.clone().with(&allow.iter().map(|rule| (rule.clone(), Permission::Allow)).collect())
}

fn entry(tool: &str, word: &str) -> Result<(String, Permission)> {
    if !CommandRule::is_meant(tool) {
        return Ok((known(tool)?, permission(tool, word)?));
    }
    let rule: CommandRule =
        tool.parse().map_err(|error: RuleError| Error::new(ErrorCode::Invalid, error.to_string()))?;
    match permission(tool, word)? {
        Permission::Allow => Ok((rule.to_string(), Permission::Allow)),
        // A command can be written in many ways, so a pattern that forbids one would promise too much.
        Permission::Ask | Permission::Deny => {
            let message = format!("`{rule}`: a rule for commands can only allow");
            let hint = format!("relive run --{word} {COMMAND_TOOL} \"fix the test\"");
            Err(Error::new(ErrorCode::Invalid, message).with_hint(hint))
        }
    }
}

/// The policy of an agent that a program below another agent asks for. It may be stricter than that agent's, and never
/// looser: otherwise one call that was allowed would allow all others.
pub(crate) fn resolve_below(inherited: &Policy, request: &RunRequest) -> Result<Policy> {
    let policy = resolve(inherited, request)?;
    let tools = relive_agent::tools::all();
    let names = relive_config::TOOLS.into_iter().chain(tools.iter().map(|tool| tool.name())).chain([EVERY_TOOL]);
    let looser = names.into_iter().find(|tool| rank(policy.of(tool)) > rank(inherited.of(tool)));
    let by_rule = || request.policy.keys().find(|tool| CommandRule::is_meant(tool)).map(String::as_str);
    let asks = inherited.of(COMMAND_TOOL) != Permission::Allow;
    match looser.or_else(|| by_rule().filter(|_| asks)) {
        None => Ok(policy),
        Some(tool) => {
            let message = format!("`{tool}` would be allowed without asking: only a person allows that");
            Err(Error::new(ErrorCode::Permission, message).with_hint("leave out --yes and --allow"))
        }
    }
}

fn rank(permission: Permission) -> u8 {
    match permission {
        Permission::Deny => 0,
        Permission::Ask => 1,
        Permission::Allow => 2,
    }
}

/// Returns the policy of the configuration.
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
    let message = format!("there is no tool `{tool}`");
    Err(match relive_types::suggest::closest(tool, names()) {
        Some(found) => Error::new(ErrorCode::Invalid, message).with_hint(format!("did you mean `{found}`?")),
        None => Error::new(ErrorCode::Invalid, format!("{message}: the tools are {}", relive_config::TOOLS.join(", "))),
    })
}

fn permission(tool: &str, word: &str) -> Result<Permission> {
    let found = WORDS.into_iter().find(|(name, _)| *name == word);
    let wrong = || Error::new(ErrorCode::Invalid, format!("{tool}: `{word}` is not one of allow, ask, deny"));
    found.map(|(_, permission)| permission).ok_or_else(wrong)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    /// Checks that `config.yaml` can name every tool, and only tools.
    #[test]
    fn the_configuration_knows_every_tool() {
        let tests_own = ["append_outside", "panic"];
        let there: BTreeSet<&str> = relive_agent::tools::all().iter().map(|tool| tool.name()).collect();
        let named: BTreeSet<&str> = relive_config::TOOLS.into_iter().collect();
        let unnamed: Vec<_> = there.difference(&named).filter(|name| !tests_own.contains(name)).collect();
        assert_eq!(unnamed, Vec::<&&str>::new());
        let missing: Vec<_> = named.difference(&there).filter(|name| **name != "shell").collect();
        assert_eq!(missing, Vec::<&&str>::new());
    }
}
