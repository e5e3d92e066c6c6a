//! Messages to a CLI, compared with those of the recordings.

use relive_cli_agent::{
    Answer, ApprovalRequest, Dialect, EncodeError, Encoder, Event, EventKind, Line, Parser, TurnOutcome,
};
use serde_json::{Value, json};

use crate::support::{Pipe, files, fixtures, name, recording};

fn value(line: &str) -> Value {
    assert!(line.ends_with('\n') && !line.trim_end().contains('\n'), "{line}");
    serde_json::from_str(line).unwrap()
}

fn events(dialect: Dialect, lines: &[&str]) -> Vec<Event> {
    let mut parser = Parser::new(Some(dialect));
    lines.iter().flat_map(|line| parser.read(Line::Whole(line.as_bytes()))).collect()
}

fn encoder(dialect: Dialect, lines: &[&str]) -> Encoder {
    let mut encoder = Encoder::new(dialect).unwrap();
    events(dialect, lines).iter().for_each(|event| encoder.observe(event));
    encoder
}

fn approval(dialect: Dialect, line: &str) -> ApprovalRequest {
    let EventKind::ApprovalAsked(request) = events(dialect, &[line]).remove(0).kind else {
        unreachable!("not an approval: {line}");
    };
    request
}

/// Compares a message with a recorded one, except for the id that the sender chooses.
#[track_caller]
fn assert_same(mut ours: Value, mut recorded: Value) {
    for id in ["id", "request_id"] {
        for message in [&mut ours, &mut recorded] {
            if message.get("method").is_some() || message["type"] == "control_request" {
                message.as_object_mut().unwrap().remove(id);
            }
        }
    }
    assert_eq!(ours, recorded);
}

#[test]
fn turns_and_interrupts_of_claude_match_the_recordings() {
    let mut compared = 0;
    for path in files(&fixtures().join("streams"), "jsonl") {
        if !(name(&path).starts_with("claude") && name(&path).ends_with(".stdin")) {
            continue;
        }
        let mut encoder = Encoder::new(Dialect::Claude).unwrap();
        for recorded in recording(&path) {
            let message: Value = serde_json::from_str(&recorded.line).unwrap();
            let ours = match message["message"]["content"][0]["text"].as_str() {
                Some(text) => encoder.user_turn(text).unwrap(),
                None if message["request"]["subtype"] == "interrupt" => encoder.interrupt().unwrap(),
                None => continue,
            };
            assert_same(value(&ours), message);
            compared += 1;
        }
    }
    assert_eq!(compared, 23);
}

#[test]
fn claude_names_a_message_that_it_takes_by_the_id_that_it_was_given() {
    let id = "01a1f1f5-206b-741f-8b00-000000000006";
    let mut encoder = Encoder::new(Dialect::Claude).unwrap();
    encoder.name_next_message(id.into());
    assert_eq!(value(&encoder.user_turn("go").unwrap())["uuid"], id);
    assert_eq!(value(&encoder.user_turn("go").unwrap())["uuid"], Value::Null);
    let says = |state: &str| {
        let ids = r#""uuid":"u","session_id":"s""#;
        let line = format!(r#"{{"type":"command_lifecycle","command_uuid":"{id}","state":"{state}",{ids}}}"#);
        events(Dialect::Claude, &[&line]).remove(0).kind
    };
    assert_eq!(says("started"), EventKind::MessageTaken { id: id.into() });
    assert_eq!(says("completed"), EventKind::MessageTaken { id: id.into() });
    for state in ["cancelled", "discarded", "refused"] {
        assert_eq!(serde_json::to_value(says(state)).unwrap(), json!({"kind": "message_dropped", "id": id}), "{state}");
    }
    assert!(matches!(says("queued"), EventKind::Other { .. }));
    assert!(matches!(says("paused"), EventKind::Unknown { .. }), "a state that is not known yet");
}

/// Encodes a recorded message to a CLI once more, and names its kind.
fn encode_again(
    encoder: &mut Encoder,
    message: &Value,
    asked: Option<&ApprovalRequest>,
) -> Option<(&'static str, String)> {
    let params = &message["params"];
    let texts =
        [&message["message"]["content"], &params["input"], &params["prompt"]].map(|list| list[0]["text"].as_str());
    let method = message["method"].as_str().unwrap_or_default();
    let is_turn = message["type"] == "user" || ["turn/start", "session/prompt"].contains(&method);
    if is_turn {
        return Some(("turn", encoder.user_turn(texts.into_iter().flatten().next().unwrap()).unwrap()));
    }
    let is_interrupt =
        message["request"]["subtype"] == "interrupt" || ["turn/interrupt", "session/cancel"].contains(&method);
    if is_interrupt {
        return Some(("interrupt", encoder.interrupt().unwrap()));
    }
    let reply = message.get("result").or_else(|| message.pointer("/response/response"))?.to_string();
    let is_denied = reply.contains("\"deny\"") || reply.contains("reject") || reply.contains("cancel\"");
    let answer = if is_denied { Answer::Deny { reason: Some("not now".into()) } } else { Answer::Allow };
    Some((if is_denied { "deny" } else { "allow" }, encoder.answer(asked.unwrap(), &answer).unwrap()))
}

#[test]
fn messages_to_every_duplex_cli_match_the_recordings() {
    for (name, dialect, expected) in [
        ("codex_app_server_duplex", Dialect::CodexAppServer, "turn allow turn interrupt turn"),
        ("claude_permission_stdio", Dialect::Claude, "turn allow turn deny turn interrupt"),
        ("qwen_duplex", Dialect::Qwen, "turn allow turn deny turn interrupt"),
        ("acp_opencode", Dialect::Acp, "turn allow turn deny turn interrupt"),
        ("acp_qwen", Dialect::Acp, "turn allow turn deny turn interrupt"),
    ] {
        let mut parser = Parser::new(Some(dialect));
        let mut encoder = Encoder::new(dialect).unwrap();
        let mut asked = None;
        let mut compared = Vec::new();
        for recorded in recording(&fixtures().join(format!("streams/{name}.jsonl"))) {
            if recorded.pipe == Pipe::Stdout {
                for event in parser.read(Line::Whole(recorded.line.as_bytes())) {
                    encoder.observe(&event);
                    if let EventKind::ApprovalAsked(request) = event.kind {
                        asked = Some(request);
                    }
                }
                continue;
            }
            let message: Value = serde_json::from_str(&recorded.line).unwrap();
            if let Some((kind, ours)) = encode_again(&mut encoder, &message, asked.as_ref()) {
                assert_same(value(&ours), message);
                compared.push(kind);
            }
        }
        assert_eq!(compared.join(" "), expected, "{name}");
    }
}

#[test]
fn answers_of_claude_repeat_the_input_and_the_suggestions() {
    let line = r#"{"type":"control_request","request_id":"p1","request":{"subtype":"can_use_tool","tool_name":"Bash",
        "input":{"command":"\ud83d"},"permission_suggestions":[{"type":"addRules"}],"tool_use_id":"t"}}"#
        .replace('\n', "");
    let request = approval(Dialect::Claude, &line);
    let encoder = Encoder::new(Dialect::Claude).unwrap();
    let allow = encoder.answer(&request, &Answer::Allow).unwrap();
    // Half a surrogate pair is not a valid string to serde, and still goes back unchanged.
    let expected = r#"{"type":"control_response","response":{"subtype":"success","request_id":"p1","response":{"behavior":"allow","updatedInput":{"command":"\ud83d"}}}}"#;
    assert_eq!(allow.trim_end(), expected);
    let always = encoder.answer(&request, &Answer::AllowAlways).unwrap();
    assert!(always.contains(r#","updatedPermissions":[{"type":"addRules"}]}"#), "{always}");
    let deny = value(&encoder.answer(&request, &Answer::Deny { reason: Some("too \"risky\"".into()) }).unwrap());
    assert_eq!(deny["response"]["response"], json!({ "behavior": "deny", "message": "too \"risky\"" }));
}

#[test]
fn a_question_of_claude_is_answered_by_an_allow_that_has_the_answers() {
    let check = |questions: &str, text: &str, expect: Value| {
        let line = format!(
            r#"{{"type":"control_request","request_id":"q1","request":{{"subtype":"can_use_tool","tool_name":"AskUserQuestion","input":{{"questions":[{questions}]}}}}}}"#
        );
        let EventKind::Question { request_id, input: Some(input), .. } =
            events(Dialect::Claude, &[&line]).remove(0).kind
        else {
            unreachable!("not a question: {line}");
        };
        let reply = value(&encoder(Dialect::Claude, &[]).reply(&request_id, &input, text));
        assert_eq!((&reply["type"], &reply["response"]["request_id"]), (&json!("control_response"), &json!("q1")));
        let response = &reply["response"]["response"];
        assert_eq!(response["behavior"], "allow");
        assert_eq!(response["updatedInput"]["answers"], expect);
        let asked: Value = serde_json::from_str(&format!("[{questions}]")).unwrap();
        assert_eq!(response["updatedInput"]["questions"], asked, "what it asked is repeated");
    };
    let (colour, size) = (r#"{"question":"Which \"colour\"?"}"#, r#"{"question":"Which size?"}"#);
    let both = format!("{colour},{size}");
    check(colour, "one\ntwo", json!({"Which \"colour\"?": "one\ntwo"}));
    check(&both, "blue\n\n large", json!({"Which \"colour\"?": "blue", "Which size?": "large"}));
    check(&both, "neither", json!({"Which \"colour\"?": "neither", "Which size?": "neither"}));
}

#[test]
fn questions_of_codex_are_answered_by_their_ids() {
    let check = |questions: &str, text: &str, expect: Value| {
        let params =
            format!(r#"{{"threadId":"t","turnId":"u","itemId":"i","isBlocking":true,"questions":[{questions}]}}"#);
        let line = format!(r#"{{"method":"item/tool/requestUserInput","id":2,"params":{params}}}"#);
        let mut asked = events(Dialect::CodexAppServer, &[&line]);
        let EventKind::Question { request_id, input: Some(input), tool_id, .. } = asked.remove(0).kind else {
            unreachable!("not a question: {line}");
        };
        assert_eq!(tool_id.as_deref(), Some("i"));
        let reply = value(&encoder(Dialect::CodexAppServer, &[]).reply(&request_id, &input, text));
        assert_eq!(reply, json!({"id": 2, "result": {"answers": expect}}));
    };
    let (colour, size) = (r#"{"id":"a","header":"A","question":"?"}"#, r#"{"id":"b\"","header":"B","question":"?"}"#);
    let both = format!("{colour},{size}");
    check(colour, "one\ntwo", json!({"a": {"answers": ["one\ntwo"]}}));
    check(&both, "blue\n\n large", json!({"a": {"answers": ["blue"]}, "b\"": {"answers": ["large"]}}));
    check(&both, "neither", json!({"a": {"answers": ["neither"]}, "b\"": {"answers": ["neither"]}}));
}

/// Returns the reply of a person to a request, or the refusal of one that nobody can answer.
fn replied(dialect: Dialect, line: &str, text: &str) -> Value {
    let mut refused = None;
    for Event { kind, .. } in events(dialect, &[line]) {
        if let EventKind::Question { request_id, input: Some(input), .. } = &kind {
            return value(&encoder(dialect, &[]).reply(request_id, input, text));
        }
        if let EventKind::UnsupportedRequest { request_id, refusal, .. } = &kind {
            refused = Some(value(&encoder(dialect, &[]).refuse(request_id.as_str(), *refusal)));
        }
    }
    refused.unwrap()
}

#[test]
fn a_form_is_filled_in_or_declined_in_every_dialect() {
    let check = |fields: Value, text: &str, expect: Value| {
        let schema = json!({"type": "object", "properties": fields});
        let params =
            json!({"threadId": "t", "sessionId": "s", "message": "m", "mode": "form", "requestedSchema": schema});
        let codex = json!({"id": 3, "method": "mcpServer/elicitation/request", "params": params}).to_string();
        assert_eq!(replied(Dialect::CodexAppServer, &codex, text), json!({"id": 3, "result": expect}));
        let acp = json!({"jsonrpc": "2.0", "id": 3, "method": "elicitation/create", "params": params}).to_string();
        assert_eq!(replied(Dialect::Acp, &acp, text), json!({"jsonrpc": "2.0", "id": 3, "result": expect}));
        let request = json!({"subtype": "elicitation", "message": "m", "requested_schema": schema});
        let claude = json!({"type": "control_request", "request_id": "r", "request": request}).to_string();
        let response = json!({"subtype": "success", "request_id": "r", "response": expect});
        let expect = json!({"type": "control_response", "response": response});
        assert_eq!(replied(Dialect::Claude, &claude, text), expect);
    };
    let accepted = |content: Value| json!({"action": "accept", "content": content});
    let declined = json!({"action": "decline"});
    check(json!({"x": {"type": "boolean"}}), "yes", accepted(json!({"x": true})));
    check(json!({"x": {"type": "string"}}), "my words", accepted(json!({"x": "my words"})));
    check(json!({}), "accept", accepted(json!({})));
    check(json!({"x": {"type": "string"}}), "(decline)", declined.clone());
    check(json!({"x": {"type": "boolean"}}), "perhaps", declined.clone());
    // Nobody is asked, and the agent goes on.
    check(json!({"x": {"type": "string"}, "y": {"type": "string"}}), "yes", declined);
}

#[test]
fn a_request_that_nobody_can_fulfil_gets_an_error() {
    let codex = |method: &str| json!({"id": 4, "method": method, "params": {"threadId": "t"}}).to_string();
    let error = json!({"id": 4, "error": {"code": -32601, "message": "Method not found"}});
    for method in ["item/tool/call", "item/tool/requestUserInput", "made/up"] {
        assert_eq!(replied(Dialect::CodexAppServer, &codex(method), "x"), error, "{method}");
    }
    let claude =
        r#"{"type":"control_request","request_id":"r","request":{"subtype":"request_user_dialog","dialog_kind":"x"}}"#;
    let reply = replied(Dialect::Claude, claude, "x");
    assert_eq!((&reply["response"]["subtype"], &reply["response"]["request_id"]), (&json!("error"), &json!("r")));
}

#[test]
fn answers_of_codex_choose_among_the_decisions_that_it_offers() {
    let encoder = Encoder::new(Dialect::CodexAppServer).unwrap();
    let line = |decisions: &str| {
        let params = format!(r#"{{"itemId":"c","command":"ls"{decisions}}}"#);
        format!(r#"{{"method":"item/commandExecution/requestApproval","id":"x","params":{params}}}"#)
    };
    let amendment = r#"{"acceptWithExecpolicyAmendment":{"execpolicy_amendment":["ls"]}}"#;
    let offered =
        approval(Dialect::CodexAppServer, &line(&format!(r#","availableDecisions":["accept",{amendment},"cancel"]"#)));
    let plain = approval(Dialect::CodexAppServer, &line(""));
    let deny = Answer::Deny { reason: None };
    for (request, answer, decision) in [
        (&offered, &Answer::Allow, json!("accept")),
        (&offered, &Answer::AllowAlways, serde_json::from_str(amendment).unwrap()),
        (&offered, &deny, json!("cancel")),
        (&plain, &Answer::Allow, json!("accept")),
        (&plain, &Answer::AllowAlways, json!("acceptForSession")),
        (&plain, &deny, json!("decline")),
    ] {
        let message = value(&encoder.answer(request, answer).unwrap());
        assert_eq!(message, json!({ "id": "x", "result": { "decision": decision } }));
    }
    let only_always = approval(Dialect::CodexAppServer, &line(r#","availableDecisions":["acceptForSession"]"#));
    assert_eq!(encoder.answer(&only_always, &Answer::Allow), Err(EncodeError::NotOffered));
    assert_eq!(encoder.answer(&only_always, &deny), Err(EncodeError::NotOffered));
    assert!(encoder.answer(&only_always, &Answer::AllowAlways).is_ok());
    let offered = [Answer::Allow, Answer::AllowAlways, deny].map(|answer| encoder.offers(&only_always, &answer));
    assert_eq!(offered, [false, true, false]);
    assert!(encoder.offers(&plain, &Answer::Allow) && encoder.offers(&plain, &Answer::Deny { reason: None }));
}

#[test]
fn messages_to_an_acp_agent_name_its_conversation_and_its_options() {
    let mut encoder =
        encoder(Dialect::Acp, &[r#"{"jsonrpc":"2.0","id":1,"result":{"sessionId":"sess_1","modes":{}}}"#]);
    let turn = value(&encoder.user_turn("go\nnow").unwrap());
    assert_eq!(turn["method"], "session/prompt");
    let prompt = json!([{ "type": "text", "text": "go\nnow" }]);
    assert_eq!(turn["params"], json!({ "sessionId": "sess_1", "prompt": prompt }));
    let interrupt = value(&encoder.interrupt().unwrap());
    assert_eq!(interrupt, json!({ "jsonrpc": "2.0", "method": "session/cancel", "params": { "sessionId": "sess_1" } }));

    let options = r#"[{"optionId":"y","kind":"allow_once"},{"optionId":"n","kind":"reject_once"}]"#;
    let ask = |options: &str| {
        let params = format!(r#"{{"toolCall":{{"toolCallId":"c"}},"options":{options}}}"#);
        format!(r#"{{"jsonrpc":"2.0","id":5,"method":"session/request_permission","params":{params}}}"#)
    };
    let offered = approval(Dialect::Acp, &ask(options));
    let nothing = approval(Dialect::Acp, &ask("[]"));
    let deny = Answer::Deny { reason: None };
    for (request, answer, outcome) in [
        (&offered, &Answer::Allow, json!({ "outcome": "selected", "optionId": "y" })),
        (&offered, &Answer::AllowAlways, json!({ "outcome": "selected", "optionId": "y" })),
        (&offered, &deny, json!({ "outcome": "selected", "optionId": "n" })),
        (&nothing, &deny, json!({ "outcome": "cancelled" })),
    ] {
        let message = value(&encoder.answer(request, answer).unwrap());
        assert_eq!(message, json!({ "jsonrpc": "2.0", "id": 5, "result": { "outcome": outcome } }));
    }
}

#[test]
fn a_message_that_cannot_be_written_is_refused_with_its_cause() {
    for dialect in Dialect::ALL {
        assert_eq!(Encoder::new(dialect).is_ok(), dialect.is_duplex(), "{dialect}");
    }
    for dialect in [Dialect::CodexAppServer, Dialect::Acp] {
        let mut encoder = Encoder::new(dialect).unwrap();
        assert_eq!(encoder.user_turn("go"), Err(EncodeError::NoSession));
        assert_eq!(encoder.interrupt(), Err(EncodeError::NoSession));
    }
    let mut encoder =
        encoder(Dialect::CodexAppServer, &[r#"{"method":"thread/started","params":{"thread":{"id":"t"}}}"#]);
    assert_eq!(encoder.interrupt(), Err(EncodeError::NoTurn));
    let turn = EventKind::TurnStarted { turn_id: Some("u".into()) };
    encoder.observe(&Event { kind: turn.clone(), subagent: Some("x".into()) });
    assert_eq!(encoder.interrupt(), Err(EncodeError::NoTurn), "a subagent's turn is not the agent's");
    encoder.observe(&turn.into());
    assert!(encoder.interrupt().is_ok());
    encoder.observe(&EventKind::TurnEnded { outcome: TurnOutcome::Completed, message: None }.into());
    assert_eq!(encoder.interrupt(), Err(EncodeError::NoTurn));
}

#[test]
fn codex_gets_back_the_permissions_that_it_asked_for() {
    let encoder = Encoder::new(Dialect::CodexAppServer).unwrap();
    let line = r#"{"method":"item/permissions/requestApproval","id":3,"params":{"itemId":"c","reason":"why","permissions":{"network":{"enabled":true}}}}"#;
    let request = approval(Dialect::CodexAppServer, line);
    assert_eq!(
        (request.tool.as_str(), request.input.as_ref().unwrap().as_str()),
        ("permissions", r#"{"network":{"enabled":true}}"#)
    );
    let asked = json!({ "network": { "enabled": true } });
    for (answer, result) in [
        (Answer::Allow, json!({ "permissions": asked, "scope": "turn" })),
        (Answer::AllowAlways, json!({ "permissions": asked, "scope": "session" })),
        (Answer::Deny { reason: None }, json!({ "permissions": {}, "scope": "turn" })),
    ] {
        assert_eq!(value(&encoder.answer(&request, &answer).unwrap()), json!({ "id": 3, "result": result }));
    }
}

/// Cancelling is close to denying, but nothing is close to allowing.
#[test]
fn an_allow_that_an_acp_agent_does_not_offer_is_refused() {
    let encoder = Encoder::new(Dialect::Acp).unwrap();
    let options = r#"[{"optionId":"n","kind":"reject_once"},{"optionId":"y","kind":"allow_always"}]"#;
    let params = format!(r#"{{"toolCall":{{"toolCallId":"c"}},"options":{options}}}"#);
    let line = format!(r#"{{"jsonrpc":"2.0","id":5,"method":"session/request_permission","params":{params}}}"#);
    let request = approval(Dialect::Acp, &line);
    assert_eq!(encoder.answer(&request, &Answer::Allow), Err(EncodeError::NotOffered));
    assert!(encoder.answer(&request, &Answer::AllowAlways).is_ok());
    assert!(encoder.answer(&request, &Answer::Deny { reason: None }).is_ok());
    let deny = Answer::Deny { reason: None };
    let offered = [Answer::Allow, Answer::AllowAlways, deny].map(|answer| encoder.offers(&request, &answer));
    assert_eq!(offered, [false, true, true]);
}

/// Gemini does not send the input of the call: what it says in its place is shown to whoever is asked.
#[test]
fn a_request_without_the_input_of_its_call_has_what_it_says_of_the_call() {
    let check = |call: &str, expect: Option<&str>| {
        let params = format!(r#"{{"toolCall":{{"toolCallId":"c",{call}}},"options":[]}}"#);
        let line = format!(r#"{{"jsonrpc":"2.0","id":5,"method":"session/request_permission","params":{params}}}"#);
        let input = approval(Dialect::Acp, &line).input;
        assert_eq!(input.as_ref().map(|input| input.as_str()), expect, "{call}");
    };
    check(r#""title":"ls","rawInput":{"command":"ls"},"kind":"execute""#, Some(r#"{"command":"ls"}"#));
    check(r#""title":"ls","content":[],"locations":[],"kind":"execute""#, Some(r#"{"kind":"execute"}"#));
    let diff = r#"[{"type":"diff","path":"/w/a","oldText":"","newText":"x"}]"#;
    let content = format!(r#""content":{diff},"locations":[{{"path":"/w/a"}}],"kind":"edit""#);
    let expect = format!(r#"{{"kind":"edit","content":{diff},"locations":[{{"path":"/w/a"}}]}}"#);
    check(&content, Some(&expect));
    check(r#""title":"ls""#, None);
}

/// A line to claude's standard input would answer nothing.
#[test]
fn the_answer_to_a_hook_is_the_response_to_the_hook() {
    let suggestions = r#""permission_suggestions":[{"type":"addRules"}]"#;
    let body = format!(
        r#"{{"hook_event_name":"PermissionRequest","tool_name":"Bash","tool_input":{{"command":"ls"}},{suggestions}}}"#
    );
    let request = approval(Dialect::Claude, &body);
    let encoder = Encoder::new(Dialect::Claude).unwrap();
    assert_eq!(encoder.answer(&request, &Answer::Allow), Err(EncodeError::AskedByHook));
    let permissions = json!([{ "type": "addRules" }]);
    for (answer, decision) in [
        (Answer::Allow, json!({ "behavior": "allow" })),
        (Answer::AllowAlways, json!({ "behavior": "allow", "updatedPermissions": permissions })),
        (Answer::Deny { reason: Some("no".into()) }, json!({ "behavior": "deny", "message": "no" })),
    ] {
        let response: Value = serde_json::from_str(&Encoder::hook_answer(&request, &answer).unwrap()).unwrap();
        let output = json!({ "hookEventName": "PermissionRequest", "decision": decision });
        assert_eq!(response, json!({ "hookSpecificOutput": output }));
    }
    let line = r#"{"type":"control_request","request_id":"p","request":{"subtype":"can_use_tool","tool_name":"Bash"}}"#;
    let of_stream = approval(Dialect::Claude, line);
    assert_eq!(Encoder::hook_answer(&of_stream, &Answer::Allow), Err(EncodeError::NotAskedByHook));
}

#[test]
fn a_dialog_that_only_a_notification_shows_cannot_be_answered() {
    let request = approval(
        Dialect::Claude,
        r#"{"hook_event_name":"Notification","notification_type":"permission_prompt","message":"Claude needs your permission to use Bash"}"#,
    );
    let encoder = Encoder::new(Dialect::Claude).unwrap();
    assert_eq!(encoder.answer(&request, &Answer::Allow), Err(EncodeError::AskedOnScreen));
    assert_eq!(Encoder::hook_answer(&request, &Answer::Allow), Err(EncodeError::AskedOnScreen));
}

#[test]
fn the_answer_to_an_older_codex_is_one_of_its_words() {
    let line =
        r#"{"id":3,"method":"execCommandApproval","params":{"conversationId":"a","callId":"c","command":["ls"]}}"#;
    let request = approval(Dialect::CodexAppServer, line);
    let encoder = Encoder::new(Dialect::CodexAppServer).unwrap();
    for (answer, decision) in [
        (Answer::Allow, "approved"),
        (Answer::AllowAlways, "approved_for_session"),
        (Answer::Deny { reason: None }, "denied"),
    ] {
        let line: Value = serde_json::from_str(&encoder.answer(&request, &answer).unwrap()).unwrap();
        assert_eq!(line, json!({ "id": 3, "result": { "decision": decision } }));
    }
}
