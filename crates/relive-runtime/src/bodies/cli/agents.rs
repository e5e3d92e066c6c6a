//! The CLI agents that are known by name, and the command lines of their runs.

use std::time::Duration;

use relive_cli_agent::Dialect;
use relive_core::{Timestamp, Uuid};
use relive_journal::history::CliFacts;
use relive_journal::record::CliStart;
use relive_types::CliAgent;
use serde_json::{Value, json};

use super::{acp, route};

/// The names of the agents that need no file.
pub(crate) const BUILT_IN: [&str; 5] = ["claude", "codex", "gemini", "opencode", "qwen"];

/// The prefix of an `--agent` that is the command of an ACP agent, and not a name.
pub(crate) const ACP_PREFIX: &str = "acp:";

/// What a codex may do without asking: write below its directory. It asks for everything else.
const CODEX_SANDBOX: &str = "workspace-write";
const CODEX_APPROVALS: &str = "on-request";
/// What it may do in an isolation of Relive's: its own sandbox needs namespaces, which it could not make there.
const CODEX_SANDBOX_INSIDE: &str = "danger-full-access";

/// Returns the definition of an agent that needs no file.
pub(crate) fn built_in(name: &str) -> Option<CliAgent> {
    let words = |text: &str| text.split_whitespace().map(str::to_owned).collect::<Vec<String>>();
    match name {
        "claude" => Some(CliAgent {
            agent: name.to_owned(),
            dialect: Dialect::Claude.name().to_owned(),
            command: words(
                "claude -p --input-format stream-json --output-format stream-json --verbose --include-partial-messages \
                 --permission-prompt-tool stdio",
            ),
            start: words("--session-id {session}"),
            resume: words("--resume {session}"),
            fork: words("--resume {origin} --fork-session --session-id {session}"),
            with_model: words("--model {model}"),
            ..CliAgent::default()
        }),
        "codex" => Some(CliAgent {
            agent: name.to_owned(),
            dialect: Dialect::CodexAppServer.name().to_owned(),
            command: words("codex app-server"),
            ..CliAgent::default()
        }),
        "gemini" => Some(acp_agent(name, "gemini --acp", "--model {model}")),
        // It takes the model of its own settings.
        "opencode" => Some(acp_agent(name, "opencode acp", "")),
        "qwen" => Some(acp_agent(name, "qwen --acp", "--model {model}")),
        _ => acp_command(name),
    }
}

/// Returns the program with the full-screen interface of an agent that needs no file; empty if it is not known how its
/// conversation is named there.
pub(crate) fn built_in_terminal(name: &str) -> Vec<String> {
    if name == "claude" { vec![name.to_owned()] } else { Vec::new() }
}

/// Returns an agent that is named by its command: `acp:COMMAND ARGUMENT...`.
fn acp_command(name: &str) -> Option<CliAgent> {
    let command = name.strip_prefix(ACP_PREFIX)?;
    Some(acp_agent(name, command, "")).filter(|agent| !agent.command.is_empty())
}

fn acp_agent(name: &str, command: &str, with_model: &str) -> CliAgent {
    let words = |text: &str| text.split_whitespace().map(str::to_owned).collect::<Vec<String>>();
    CliAgent {
        agent: name.to_owned(),
        dialect: Dialect::Acp.name().to_owned(),
        command: words(command),
        with_model: words(with_model),
        ..CliAgent::default()
    }
}

/// Returns the dialect of an agent. Only those that can be written to are accepted when a process is created.
pub(crate) fn dialect_of(agent: &CliAgent) -> Dialect {
    agent.dialect.parse().unwrap_or(Dialect::Claude)
}

/// Returns the provider of an agent's models, as prices and usage name it.
pub(crate) fn provider_of(agent: &CliAgent) -> &'static str {
    match dialect_of(agent) {
        Dialect::Claude => "anthropic",
        Dialect::CodexExec | Dialect::CodexAppServer => "openai",
        Dialect::Gemini => "gemini",
        Dialect::Acp => match route::program_of(agent) {
            "gemini" => "gemini",
            "qwen" => "openai",
            _ => "cli",
        },
        Dialect::Qwen | Dialect::Opencode => "cli",
    }
}

/// Tells whether the conversation is begun, continued and forked by messages, and not by arguments.
pub(super) fn by_messages(dialect: Dialect) -> bool {
    match dialect {
        Dialect::CodexAppServer | Dialect::Acp => true,
        Dialect::Claude | Dialect::Qwen | Dialect::CodexExec | Dialect::Gemini | Dialect::Opencode => false,
    }
}

/// Returns how the next run begins.
pub(super) fn start_of(facts: &CliFacts) -> CliStart {
    match (&facts.session_id, &facts.origin_session) {
        (Some(_), _) => CliStart::Resume,
        (None, Some(_)) => CliStart::Fork,
        (None, None) => CliStart::New,
    }
}

/// Returns why an agent cannot begin a run like this, if its definition has no way to. What an ACP agent can do is said
/// by the program that is started for the run: it may be newer than the last one.
pub(crate) fn refusal(facts: &CliFacts, how: CliStart) -> Option<String> {
    let agent = &facts.agent;
    let (arguments, key, verb) = match how {
        CliStart::New => return None,
        CliStart::Resume => (&agent.resume, "resume", "continued"),
        CliStart::Fork => (&agent.fork, "fork", "forked"),
    };
    let cannot = arguments.is_empty() && (agent.terminal || !by_messages(dialect_of(agent)));
    cannot.then(|| format!("a conversation of `{0}` cannot be {verb}: agents/{0}.yaml has no `{key}`", agent.agent))
}

/// Returns why an agent cannot begin a run like this, by its definition and by what its last program said.
pub(crate) fn refusal_of_last(facts: &CliFacts, how: CliStart) -> Option<String> {
    let offered = |capabilities| acp::refusal(&facts.agent.agent, how, capabilities);
    refusal(facts, how).or_else(|| facts.capabilities.and_then(offered))
}

/// Returns the command line of a run.
pub(super) fn argv(uuid: Uuid, facts: &CliFacts, how: CliStart) -> Vec<String> {
    let agent = &facts.agent;
    let session = facts.session_id.clone().unwrap_or_else(|| uuid.to_string());
    let origin = facts.origin_session.as_deref().unwrap_or_default();
    let arguments = match how {
        CliStart::New => &agent.start,
        CliStart::Resume => &agent.resume,
        CliStart::Fork => &agent.fork,
    };
    let model = agent.model.iter().flat_map(|model| agent.with_model.iter().map(|word| word.replace("{model}", model)));
    let arguments = arguments.iter().map(|word| word.replace("{session}", &session).replace("{origin}", origin));
    agent.command.iter().cloned().chain(arguments).chain(model).collect()
}

/// Returns the messages by which a run begins, for agents that need some. Each is a line. An ACP agent is asked for its
/// conversation when it has said what it can do.
pub(super) fn handshake(facts: &CliFacts, how: CliStart, cwd: &str) -> Vec<String> {
    match dialect_of(&facts.agent) {
        Dialect::CodexAppServer => codex_handshake(facts, how, cwd),
        Dialect::Acp => vec![acp::initialize()],
        Dialect::Claude | Dialect::Qwen | Dialect::CodexExec | Dialect::Gemini | Dialect::Opencode => Vec::new(),
    }
}

/// Returns the messages by which a program begins or has begun, for a parser that is to know their replies.
pub(super) fn expected(facts: &CliFacts, cwd: &str) -> Vec<String> {
    let how = start_of(facts);
    let mut lines = handshake(facts, how, cwd);
    if dialect_of(&facts.agent) == Dialect::Acp {
        lines.extend(acp::begin(facts, how, cwd, acp::EVERYTHING));
    }
    lines
}

fn codex_handshake(facts: &CliFacts, how: CliStart, cwd: &str) -> Vec<String> {
    let version = env!("CARGO_PKG_VERSION");
    let initialize = json!({"clientInfo": {"name": "relive", "title": "Relive", "version": version}});
    let sandbox = if facts.agent.isolated { CODEX_SANDBOX_INSIDE } else { CODEX_SANDBOX };
    let mut params = json!({"cwd": cwd, "approvalPolicy": CODEX_APPROVALS, "sandbox": sandbox});
    if let Some(model) = &facts.agent.model {
        params["model"] = Value::String(model.clone());
    }
    let (method, thread) = match how {
        CliStart::New => ("thread/start", None),
        CliStart::Resume => ("thread/resume", facts.session_id.as_deref()),
        CliStart::Fork => ("thread/fork", facts.origin_session.as_deref()),
    };
    if let Some(thread) = thread {
        params["threadId"] = Value::String(thread.to_owned());
    }
    let lines = [
        json!({"id": "relive-initialize", "method": "initialize", "params": initialize}),
        json!({"method": "initialized"}),
        json!({"id": "relive-thread", "method": method, "params": params}),
    ];
    lines.iter().map(|line| format!("{line}\n")).collect()
}

/// How long gemini may take from its start to its first conversation.
const GEMINI_STARTS_WITHIN: Duration = Duration::from_secs(30);
const MINUTE_S: i64 = 60;

/// Returns when a program can continue its conversation; `None` if that is now. Gemini names the file of a conversation by the
/// minute in which a program has begun or continued it, and begins the file anew: in the same minute it loses what it has said.
pub(super) fn continues_at(
    agent: &CliAgent,
    launches: &[Timestamp],
    how: CliStart,
    now: Timestamp,
) -> Option<Timestamp> {
    let is_gemini = dialect_of(agent) == Dialect::Acp && route::program_of(agent) == "gemini";
    if !is_gemini || how != CliStart::Resume {
        return None;
    }
    let named_at_latest = launches.last()?.checked_add(GEMINI_STARTS_WITHIN).ok()?;
    let minute = |moment: Timestamp| moment.as_second().div_euclid(MINUTE_S);
    let named = minute(named_at_latest);
    let next = Timestamp::from_second((named + 1) * MINUTE_S).ok()?;
    (named >= minute(now)).then_some(next)
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub(in crate::bodies::cli) fn facts(
        name: &str,
        session_id: Option<&str>,
        origin_session: Option<&str>,
    ) -> CliFacts {
        let mut agent = built_in(name).unwrap();
        agent.model = Some("big".to_owned());
        let (session_id, origin_session) = (session_id.map(str::to_owned), origin_session.map(str::to_owned));
        CliFacts {
            agent,
            session_id,
            origin_session,
            model: None,
            turn: None,
            heard: 0,
            reported: (0, 0),
            read: None,
            launches: Vec::new(),
            gateway: None,
            called_to: 0,
            calls: 0,
            is_refused: false,
            last_input: 1,
            crashed: None,
            restarts: Vec::new(),
            capabilities: None,
            is_queued: false,
            resumed_at: None,
        }
    }

    #[test]
    fn a_run_begins_continues_or_forks_the_conversation() {
        let check = |session, origin, expect: &str| {
            let facts = facts("claude", session, origin);
            let argv = argv(Uuid::nil(), &facts, start_of(&facts)).join(" ");
            assert!(argv.ends_with(&format!("{expect} --model big")), "{argv}");
        };
        let uuid = Uuid::nil();
        check(None, None, &format!("--session-id {uuid}"));
        check(Some("a"), None, "--resume a");
        check(Some("a"), Some("b"), "--resume a");
        check(None, Some("b"), &format!("--resume b --fork-session --session-id {uuid}"));
    }

    #[test]
    fn codex_is_told_by_messages() {
        let check = |session, origin, method: &str, thread: Option<&str>| {
            let facts = facts("codex", session, origin);
            let lines = handshake(&facts, start_of(&facts), "/w");
            let last: Value = serde_json::from_str(lines.last().unwrap()).unwrap();
            assert_eq!((last["method"].as_str(), last["params"]["threadId"].as_str()), (Some(method), thread));
            assert_eq!((&last["params"]["cwd"], &last["params"]["model"]), (&json!("/w"), &json!("big")));
        };
        check(None, None, "thread/start", None);
        check(Some("a"), None, "thread/resume", Some("a"));
        check(None, Some("b"), "thread/fork", Some("b"));
        let sandbox = |isolated| {
            let mut facts = facts("codex", None, None);
            facts.agent.isolated = isolated;
            let last: Value = serde_json::from_str(handshake(&facts, CliStart::New, "/w").last().unwrap()).unwrap();
            last["params"]["sandbox"].as_str().unwrap().to_owned()
        };
        assert_eq!((sandbox(false).as_str(), sandbox(true).as_str()), (CODEX_SANDBOX, CODEX_SANDBOX_INSIDE));
        let claude = facts("claude", None, None);
        assert!(handshake(&claude, CliStart::New, "/w").is_empty());
    }

    #[test]
    fn an_agent_without_arguments_for_it_cannot_be_forked() {
        let mut claude = facts("claude", None, None);
        assert_eq!(refusal(&claude, CliStart::Fork), None);
        assert_eq!(refusal(&facts("codex", None, None), CliStart::Fork), None);
        claude.agent.fork.clear();
        let refused = refusal(&claude, CliStart::Fork).unwrap();
        assert_eq!(refused, "a conversation of `claude` cannot be forked: agents/claude.yaml has no `fork`");
    }

    #[test]
    fn a_gemini_continues_in_another_minute_than_its_last_program_began() {
        let at = |text: &str| format!("2026-11-18T{text}Z").parse::<Timestamp>().unwrap();
        let check = |name: &str, how, launched: &str, now: &str, expect: Option<&str>| {
            let launches = [at("01:00:00"), at(launched)];
            let agent = built_in(name).unwrap();
            assert_eq!(continues_at(&agent, &launches, how, at(now)), expect.map(at), "{name} {launched} {now}");
        };
        check("gemini", CliStart::Resume, "05:08:10", "05:08:40", Some("05:09:00"));
        check("gemini", CliStart::Resume, "05:08:10", "05:09:00", None);
        // Its file may have the name of the next minute.
        check("gemini", CliStart::Resume, "05:08:40", "05:09:20", Some("05:10:00"));
        check("gemini", CliStart::Resume, "05:08:40", "05:08:50", Some("05:10:00"));
        check("gemini", CliStart::New, "05:08:10", "05:08:40", None);
        check("qwen", CliStart::Resume, "05:08:10", "05:08:40", None);
    }
}
