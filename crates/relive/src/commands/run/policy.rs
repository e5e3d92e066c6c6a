//! The flags that say which tools may be used.

use std::collections::BTreeMap;

use crate::error::{CommandError, Outcome};

#[derive(Debug, clap::Args)]
#[group(skip)]
pub(crate) struct Args {
    /// It may use this tool without asking; `*` is every tool that is not named
    #[arg(long, value_name = "TOOL")]
    allow: Vec<String>,
    /// You are asked before each use of this tool
    #[arg(long, value_name = "TOOL")]
    ask: Vec<String>,
    /// It may not use this tool
    #[arg(long, value_name = "TOOL")]
    deny: Vec<String>,
    /// Whatever you would be asked is allowed
    #[arg(short, long)]
    pub(crate) yes: bool,
}

impl Args {
    /// By tool. What is said twice, and differently, is a mistake.
    pub(crate) fn by_tool(&self) -> Outcome<BTreeMap<String, String>> {
        let mut policy: BTreeMap<String, String> = BTreeMap::new();
        for (word, tools) in [("allow", &self.allow), ("ask", &self.ask), ("deny", &self.deny)] {
            for tool in tools {
                if let Some(before) = policy.insert(tool.clone(), word.to_owned()).filter(|before| before != word) {
                    let message = format!("{tool}: both --{before} and --{word}");
                    return Err(CommandError::invalid(message).with_hint("say one of them"));
                }
            }
        }
        Ok(policy)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
        assert!(args(&["read"], &[]).by_tool().unwrap_err().message.contains("both --allow and --ask"));
    }
}
