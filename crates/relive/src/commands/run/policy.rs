//! The flags that allow and deny tools.

use std::collections::BTreeMap;

use relive_types::program::quote;

use crate::error::{CommandError, Outcome};

#[derive(Debug, clap::Args)]
#[group(skip)]
pub(crate) struct Args {
    /// Allow a tool, or commands such as 'shell:git status*', without asking; `*` means every tool that is not named
    #[arg(long, value_name = "TOOL|RULE")]
    allow: Vec<String>,
    /// Ask before every use of this tool
    #[arg(long, value_name = "TOOL")]
    ask: Vec<String>,
    /// Forbid this tool
    #[arg(long, value_name = "TOOL")]
    deny: Vec<String>,
    /// Allow everything without asking
    #[arg(short, long)]
    pub(crate) yes: bool,
}

impl Args {
    /// Returns the word of each tool. A tool with two different words is refused.
    pub(crate) fn by_tool(&self) -> Outcome<BTreeMap<String, String>> {
        let mut policy: BTreeMap<String, String> = BTreeMap::new();
        for (word, tools) in [("allow", &self.allow), ("ask", &self.ask), ("deny", &self.deny)] {
            for tool in tools {
                if tool.trim().is_empty() {
                    let error = CommandError::invalid(format!("--{word}: the name of the tool is empty"));
                    let what = if word == "allow" { "'shell:git status*'" } else { "shell" };
                    return Err(error.with_hint(format!("relive run --{word} {what} \"fix the test\"")));
                }
                if word == "allow" && is_bare_command(tool) {
                    let error = CommandError::invalid(format!("there is no tool `{tool}`"));
                    let rule = quote(&format!("shell:{tool}"));
                    return Err(error.with_hint(format!("relive run --allow {rule} \"fix the test\"")));
                }
                if let Some(before) = policy.insert(tool.clone(), word.to_owned()).filter(|before| before != word) {
                    let message = format!("{tool}: --{before} and --{word} cannot be used together");
                    return Err(CommandError::invalid(message));
                }
            }
        }
        Ok(policy)
    }
}

/// Returns whether this is a pattern for commands without the tool that runs them. No name of a tool has such letters.
fn is_bare_command(tool: &str) -> bool {
    tool != "*" && !tool.contains(':') && tool.contains([' ', '*'])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_without_its_tool_is_refused_with_the_rule_that_was_meant() {
        let allowing = |tool: &str| Args { allow: vec![tool.into()], ask: vec![], deny: vec![], yes: false }.by_tool();
        let error = allowing("git status*").unwrap_err();
        assert_eq!(error.message, "there is no tool `git status*`");
        assert_eq!(error.hint.as_deref(), Some("relive run --allow 'shell:git status*' \"fix the test\""));
        for fine in ["*", "shell", "shell:git status*"] {
            assert!(allowing(fine).is_ok(), "{fine}");
        }
    }

    #[test]
    fn a_tool_has_one_policy() {
        let args = |ask: &[&str], deny: &[&str]| Args {
            allow: vec!["read".into()],
            ask: ask.iter().map(ToString::to_string).collect(),
            deny: deny.iter().map(ToString::to_string).collect(),
            yes: false,
        };
        let policy = args(&["write", "write"], &["*"]).by_tool().unwrap();
        assert_eq!(serde_json::to_string(&policy).unwrap(), r#"{"*":"deny","read":"allow","write":"ask"}"#);
        assert!(
            args(&["read"], &[]).by_tool().unwrap_err().message.contains("--allow and --ask cannot be used together")
        );
    }
}
