//! How a conversation with an ACP agent begins: it is asked what it can do, and then for a conversation.

use relive_cli_agent::Capabilities;
use relive_journal::history::CliFacts;
use relive_journal::record::{CliCapabilities, CliStart};
use serde_json::json;

/// The version of the protocol that Relive speaks.
const VERSION: u64 = 1;
/// The capabilities of an agent that can do everything.
pub(super) const EVERYTHING: CliCapabilities =
    CliCapabilities { version: VERSION, load: true, resume: true, fork: true };
const INITIALIZE_ID: &str = "relive-initialize";
/// The same for every way to begin: a daemon that adopts the program need not know which one it was.
const SESSION_ID: &str = "relive-session";

/// Returns what an agent has said that it can do, for the journal.
pub(super) fn recorded(offered: Capabilities) -> CliCapabilities {
    let Capabilities { version, load, resume, fork } = offered;
    CliCapabilities { version, load, resume, fork }
}

/// Returns the first message to an agent. Relive offers it no files and no terminals: it has its own. A person can fill in its
/// forms.
pub(super) fn initialize() -> String {
    let info = json!({"name": "relive", "title": "Relive", "version": env!("CARGO_PKG_VERSION")});
    let forms = json!({"form": {}});
    let files = json!({"readTextFile": false, "writeTextFile": false});
    let offered = json!({"fs": files, "terminal": false, "elicitation": forms});
    let params = json!({"protocolVersion": VERSION, "clientCapabilities": offered, "clientInfo": info});
    line("initialize", INITIALIZE_ID, &params)
}

/// Returns the message that asks for the conversation, or why there is none to be had.
pub(super) fn begin(
    facts: &CliFacts,
    how: CliStart,
    cwd: &str,
    capabilities: CliCapabilities,
) -> Result<String, String> {
    let name = &facts.agent.agent;
    if capabilities.version != VERSION {
        let version = capabilities.version;
        return Err(format!(
            "`{name}` speaks version {version} of the Agent Client Protocol, and not version {VERSION}"
        ));
    }
    if let Some(refused) = refusal(name, how, capabilities) {
        return Err(refused);
    }
    let (method, session) = match how {
        CliStart::New => ("session/new", None),
        CliStart::Resume if capabilities.load => ("session/load", facts.session_id.as_deref()),
        CliStart::Resume => ("session/resume", facts.session_id.as_deref()),
        CliStart::Fork => ("session/fork", facts.origin_session.as_deref()),
    };
    let mut params = json!({"cwd": cwd, "mcpServers": []});
    if let Some(session) = session {
        params["sessionId"] = session.into();
    }
    Ok(line(method, SESSION_ID, &params))
}

/// Returns why an agent with these capabilities cannot begin a run like this, if it cannot.
pub(super) fn refusal(name: &str, how: CliStart, capabilities: CliCapabilities) -> Option<String> {
    let CliCapabilities { load, resume, fork, version: _ } = capabilities;
    match how {
        CliStart::Resume if !load && !resume => Some(format!(
            "a conversation of `{name}` cannot be continued: the agent offers neither session/load nor session/resume"
        )),
        CliStart::Fork if !fork => {
            Some(format!("a conversation of `{name}` cannot be forked: the agent does not offer session/fork"))
        }
        CliStart::New | CliStart::Resume | CliStart::Fork => None,
    }
}

fn line(method: &str, id: &str, params: &serde_json::Value) -> String {
    format!("{}\n", json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}))
}

#[cfg(test)]
mod tests {
    use super::super::agents::start_of;
    use super::super::agents::tests::facts;
    use super::*;

    #[test]
    fn a_conversation_begins_in_the_way_that_the_agent_offers() {
        let check = |session, origin, capabilities, expect: Result<(&str, Option<&str>), &str>| {
            let facts = facts("opencode", session, origin);
            let begun = begin(&facts, start_of(&facts), "/w", capabilities);
            match expect {
                Ok((method, named)) => {
                    let line: serde_json::Value = serde_json::from_str(&begun.unwrap()).unwrap();
                    assert_eq!((line["method"].as_str(), line["params"]["sessionId"].as_str()), (Some(method), named));
                    assert_eq!((&line["params"]["cwd"], &line["id"]), (&json!("/w"), &json!(SESSION_ID)));
                }
                Err(said) => assert!(begun.unwrap_err().contains(said)),
            }
        };
        check(None, None, EVERYTHING, Ok(("session/new", None)));
        check(Some("a"), None, EVERYTHING, Ok(("session/load", Some("a"))));
        check(Some("a"), None, CliCapabilities { load: false, ..EVERYTHING }, Ok(("session/resume", Some("a"))));
        check(None, Some("b"), EVERYTHING, Ok(("session/fork", Some("b"))));
        let nothing = CliCapabilities { version: 1, load: false, resume: false, fork: false };
        check(None, None, nothing, Ok(("session/new", None)));
        check(Some("a"), None, nothing, Err("`opencode` cannot be continued"));
        check(None, Some("b"), nothing, Err("`opencode` cannot be forked: the agent does not offer session/fork"));
        check(None, None, CliCapabilities { version: 2, ..EVERYTHING }, Err("speaks version 2"));
    }
}
