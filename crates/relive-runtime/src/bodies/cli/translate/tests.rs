use relive_cli_agent::Parser;

use super::*;

/// Records in a few words, from the lines of a claude.
fn records(translator: &mut Translator, lines: &[&str]) -> Vec<String> {
    let mut parser = Parser::new(Some(relive_cli_agent::Dialect::Claude));
    for line in lines {
        for event in parser.read(relive_cli_agent::Line::Whole(line.as_bytes())) {
            translator.take_in(&event, Some(3));
        }
    }
    shown(translator)
}

fn shown(translator: &mut Translator) -> Vec<String> {
    let text = |text: &relive_journal::payload::Text| text.head(99).to_owned();
    let show = |record: Record| {
        if let Record::ModelStarted(started) = record {
            format!("ask {}", started.model)
        } else if let Record::ModelEnded(ended) = record {
            let calls: Vec<&str> = ended.calls.iter().map(|call| call.name.as_str()).collect();
            let said = ended.text.as_ref().map(text).unwrap_or_default();
            format!("said {said:?} calls {calls:?} tokens {}", ended.usage.tokens_in)
        } else if let Record::Partial(partial) = record {
            let said = partial.text.as_ref().map(text).unwrap_or_default();
            format!("partial {said:?} {:?}", partial.cause)
        } else if let Record::CallEnded(ended) = record {
            format!("result {} {}", ended.call, ended.ok)
        } else if let Record::Cli(CliRecord { turn: Some(turn), .. }) = record {
            format!("turn {:?} {:?}", turn.state, turn.input)
        } else if let Record::Cli(CliRecord { session: Some(session), .. }) = record {
            format!("session {}", session.id)
        } else {
            record.kind().to_owned()
        }
    };
    let said = translator.take().into_iter();
    said.filter_map(|said| if let Said::Record(record) = said { Some(show(*record)) } else { None }).collect()
}

fn translator() -> Translator {
    Translator::new(Before { provider: "anthropic", model: Some("m".to_owned()), ..Before::default() })
}

const INIT: &str = r#"{"type":"system","subtype":"init","session_id":"s","model":"m","uuid":"u"}"#;
const RESULT: &str = r#"{"type":"result","subtype":"success","is_error":false,"session_id":"s","usage":{"input_tokens":7,"output_tokens":1}}"#;

fn says(text: &str) -> String {
    format!(
        r#"{{"type":"assistant","message":{{"id":"a","content":[{{"type":"text","text":"{text}"}}]}},"session_id":"s","uuid":"u"}}"#
    )
}

fn uses(id: &str) -> String {
    format!(
        r#"{{"type":"assistant","message":{{"id":"a","content":[{{"type":"tool_use","id":"{id}","name":"Bash","input":{{"command":"ls"}}}}]}},"session_id":"s","uuid":"u"}}"#
    )
}

fn returns(id: &str) -> String {
    format!(
        r#"{{"type":"user","message":{{"content":[{{"type":"tool_result","tool_use_id":"{id}","content":"x"}}]}},"session_id":"s","uuid":"u"}}"#
    )
}

#[test]
fn a_turn_with_a_tool_is_two_steps_and_its_tokens_are_those_of_the_last() {
    let lines = [INIT, &says("I look."), &uses("t1"), &returns("t1"), &says("Done."), RESULT];
    assert_eq!(
        records(&mut translator(), &lines),
        [
            "session s",
            "turn Open Some(3)",
            "ask anthropic/m",
            r#"said "I look." calls ["Bash"] tokens 0"#,
            "result 0 true",
            "ask anthropic/m",
            r#"said "Done." calls [] tokens 7"#,
            "turn Completed None",
        ]
    );
}

#[test]
fn parallel_calls_are_one_step_and_a_call_without_a_result_fails_with_the_turn() {
    let lines = [INIT, &uses("t1"), &uses("t2"), &returns("t2"), RESULT];
    let expect = [
        r#"said "" calls ["Bash", "Bash"] tokens 0"#,
        "result 1 true",
        "result 0 false",
        "ask anthropic/m",
        r#"said "" calls [] tokens 7"#,
        "turn Completed None",
    ];
    assert_eq!(records(&mut translator(), &lines)[3..], expect);
}

#[test]
fn a_call_that_comes_while_another_is_open_waits_for_it() {
    let mut translator = translator();
    records(&mut translator, &[INIT, &uses("t1")]);
    translator.flush();
    assert_eq!(shown(&mut translator), [r#"said "" calls ["Bash"] tokens 0"#]);
    // The second was reported too late for the first record, and ends first.
    assert_eq!(records(&mut translator, &[&uses("t2"), &returns("t2")]), Vec::<String>::new());
    let expect = ["result 0 true", "ask anthropic/m", r#"said "" calls ["Bash"] tokens 0"#, "result 0 true"];
    assert_eq!(records(&mut translator, &[&returns("t1")]), expect);
}

#[test]
fn pieces_of_a_text_and_the_whole_text_are_one_text() {
    let mut text = Collected::default();
    assert_eq!(text.add("Hel", true), "Hel");
    assert_eq!(text.add("lo", true), "lo");
    assert_eq!(text.add("Hello", false), "");
    assert_eq!(text.add("Again", false), "\n\nAgain");
    assert_eq!(text.take().as_deref(), Some("Hello\n\nAgain"));
    assert_eq!(text.take(), None);
}

#[test]
fn a_program_that_ends_in_a_turn_leaves_nothing_open() {
    let mut translator = translator();
    records(&mut translator, &[INIT, &says("I begin")]);
    translator.program_ended();
    let cause = "the agent ended in the middle of its turn";
    assert_eq!(
        shown(&mut translator),
        [format!("partial \"I begin\" Some({cause:?})"), "turn Interrupted None".to_owned()]
    );
    assert!(!translator.is_turn_open() && translator.is_empty());
}

#[test]
fn usage_of_the_whole_conversation_is_counted_once() {
    let mut translator = Translator::new(Before { reported: (100, 10), ..Before::default() });
    let report = |input, output| ReportedUsage {
        scope: UsageScope::Session,
        input_tokens: Some(input),
        output_tokens: Some(output),
        cache_read_tokens: Some(50),
        cache_write_tokens: None,
        cost_usd: None,
    };
    translator.count(&report(160, 12));
    translator.count(&report(200, 15));
    let usage = translator.usage.unwrap();
    assert_eq!((usage.tokens_in, usage.tokens_out, translator.reported), (100, 5, (200, 15)));
}

#[test]
fn an_answer_that_was_cut_and_begun_again_is_recorded_once() {
    let mut text = Collected::default();
    assert_eq!(text.add("before", false), "before");
    for piece in ["one", "one", " two"] {
        text.add(piece, true);
    }
    assert_eq!(text.add("one two", false), "");
    assert_eq!(text.add("after", false), "\n\nafter");
    assert_eq!(text.take().as_deref(), Some("before\n\none two\n\nafter"));
}

#[test]
fn an_answer_that_was_cut_is_one_of_its_own() {
    let piece = |text: &str| EventKind::Text { text: text.to_owned(), delta: true };
    let whole = || EventKind::Text { text: "second answer".to_owned(), delta: false };
    let retry = || EventKind::Retry {
        attempt: Some(1),
        max_attempts: None,
        delay_ms: None,
        status: None,
        message: "cut off".to_owned(),
    };
    let check = |events: &[EventKind], expect: &[&str]| {
        let mut translator = translator();
        events.iter().for_each(|event| translator.take_in(&event.clone().into(), Some(3)));
        translator.flush();
        assert_eq!(shown(&mut translator)[1..], *expect, "{events:?}");
    };
    let again = "said \"second answer\" calls [] tokens 0";
    let told = ["ask anthropic/m", "partial \"abc\" Some(\"cut off\")", "ask anthropic/m", again];
    check(&[piece("abc"), retry(), piece("second "), piece("answer"), whole()], &told);
    // It did not say that it asks again.
    let untold =
        ["ask anthropic/m", "partial \"abc\" Some(\"it was cut off and begun again\")", "ask anthropic/m", again];
    check(&[piece("abc"), piece("second "), piece("answer"), whole()], &untold);
    // Nothing was cut.
    check(&[retry(), piece("second "), piece("answer"), whole()], &["ask anthropic/m", again]);
}

#[test]
fn the_claims_of_a_cli_do_not_count_where_the_gateway_counts() {
    let counting = Counting::Gateway;
    let mut translator = Translator::new(Before { provider: "anthropic", counting, ..Before::default() });
    let said = records(&mut translator, &[INIT, &says("one"), RESULT]);
    assert!(said.contains(&"said \"one\" calls [] tokens 0".to_owned()), "{said:?}");
    assert_eq!(translator.no_usage().cost_usd, Some(relive_core::Usd::default()));
}

#[test]
fn an_endless_answer_is_kept_up_to_a_limit_and_says_so() {
    let mut translator = translator();
    let piece = "é".repeat(500_000);
    let mut shown = 0;
    let mut warnings = 0;
    for _ in 0..40 {
        translator.take_in(&EventKind::Text { text: piece.clone(), delta: true }.into(), Some(3));
        for said in translator.take() {
            match said {
                Said::Event("text", body) => shown += body["text"].as_str().unwrap().len(),
                Said::Event("warning", _) => warnings += 1,
                Said::Event(..) | Said::Record(_) => {}
            }
        }
    }
    assert_eq!((shown, warnings, translator.text.pieces.len()), (COLLECTED_MAX, 1, COLLECTED_MAX));
    translator.flush();
    assert!(matches!(&translator.take()[0], Said::Record(record) if matches!(&**record, Record::ModelEnded(ended)
        if ended.text.as_ref().unwrap().head(usize::MAX).len() == COLLECTED_MAX)));
    // The next answer is whole again.
    let mut text = Collected::default();
    text.add(&"x".repeat(COLLECTED_MAX - 1), true);
    assert_eq!(text.add(&"x".repeat(COLLECTED_MAX), false), "x");
    assert_eq!(text.add("more", false), "");
    assert_eq!(text.take().map(|text| text.len()), Some(COLLECTED_MAX));
    assert_eq!(text.add("new", true), "new");
}

#[test]
fn an_interrupted_turn_does_not_repeat_what_claude_tells_its_developers() {
    let mut translator = translator();
    records(&mut translator, &[INIT, &says("I begin")]);
    let result = r#"{"type":"result","subtype":"error_during_execution","is_error":true,"terminal_reason":"aborted_tools","session_id":"s","errors":["[ede_diagnostic] result_type=user last_content_type=n/a"]}"#;
    let said = records(&mut translator, &[result]);
    assert_eq!(said, [r#"partial "I begin" Some("the turn was interrupted")"#, "turn Interrupted None"]);
}

#[test]
fn a_call_whose_input_comes_later_is_recorded_with_it() {
    let started = |input: &str| {
        format!(
            r#"{{"jsonrpc":"2.0","method":"session/update","params":{{"sessionId":"s","update":{{"sessionUpdate":"tool_call","toolCallId":"t","status":"pending","title":"Shell","rawInput":{input}}}}}}}"#
        )
    };
    let mut parser = Parser::new(Some(relive_cli_agent::Dialect::Acp));
    let mut translator = translator();
    for (input, is_known) in [("{}", false), (r#"{"command":"ls"}"#, true)] {
        for event in parser.read(relive_cli_agent::Line::Whole(started(input).as_bytes())) {
            translator.take_in(&event, Some(3));
        }
        assert_eq!(translator.has_calls(), is_known, "it waits for its input");
    }
    translator.flush();
    let said = translator.take();
    let called = said.iter().find_map(|said| match said {
        Said::Event("call", body) => Some(body.clone()),
        Said::Event(..) | Said::Record(_) => None,
    });
    assert_eq!(called.unwrap()["args"], r#"{"command":"ls"}"#);
}

/// Takes in an update of a call by an ACP agent.
fn update(parser: &mut Parser, translator: &mut Translator, id: &str, status: &str, input: &str) {
    let line = format!(
        r#"{{"jsonrpc":"2.0","method":"session/update","params":{{"sessionId":"s","update":{{"sessionUpdate":"tool_call_update","toolCallId":"{id}","status":"{status}","title":"{id}","rawInput":{input}}}}}}}"#
    );
    for event in parser.read(relive_cli_agent::Line::Whole(line.as_bytes())) {
        translator.take_in(&event, Some(3));
    }
}

fn called(said: &[Said]) -> Vec<(String, String)> {
    let text = |body: &Value, field: &str| body[field].as_str().unwrap().to_owned();
    let called = said.iter().filter_map(|said| match said {
        Said::Event("call", body) => Some((text(body, "name"), text(body, "args"))),
        Said::Event(..) | Said::Record(_) => None,
    });
    called.collect()
}

#[test]
fn a_call_whose_input_is_to_come_is_not_recorded_with_a_call_beside_it() {
    let (known, later) = (r#"{"command":"ls"}"#, r#"{"command":"rm"}"#);
    let pair = |name: &str, args: &str| (name.to_owned(), args.to_owned());
    let mut parser = Parser::new(Some(relive_cli_agent::Dialect::Acp));
    let mut translator = translator();
    update(&mut parser, &mut translator, "a", "pending", known);
    update(&mut parser, &mut translator, "b", "pending", "{}");
    update(&mut parser, &mut translator, "a", "completed", known);
    assert_eq!(called(&translator.take()), [pair("a", known)]);
    assert!(!translator.is_empty() && !translator.has_calls(), "the other one waits for its input");
    update(&mut parser, &mut translator, "b", "in_progress", later);
    assert!(translator.has_calls());
    update(&mut parser, &mut translator, "b", "completed", later);
    assert_eq!(called(&translator.take()), [pair("b", later)]);
    // The input of a call that is over, or whose turn is, does not come.
    update(&mut parser, &mut translator, "c", "pending", "{}");
    update(&mut parser, &mut translator, "c", "completed", "{}");
    assert_eq!(called(&translator.take()), [pair("c", "{}")]);
    update(&mut parser, &mut translator, "d", "pending", "{}");
    translator.program_ended();
    assert_eq!(called(&translator.take()), [pair("d", "{}")]);
    assert!(translator.is_empty());
}

#[test]
fn a_request_for_permission_does_not_record_a_call_beside_it_whose_input_is_to_come() {
    let (known, later) = (r#"{"command":"ls"}"#, r#"{"command":"rm"}"#);
    let mut parser = Parser::new(Some(relive_cli_agent::Dialect::Acp));
    let mut translator = translator();
    update(&mut parser, &mut translator, "b", "pending", "{}");
    update(&mut parser, &mut translator, "a", "pending", known);
    let asks = r#"{"jsonrpc":"2.0","id":1,"method":"session/request_permission","params":{"sessionId":"s","toolCall":{"toolCallId":"a","title":"a","rawInput":{"command":"ls"}},"options":[{"optionId":"o","name":"Yes","kind":"allow_once"}]}}"#;
    let events = parser.read(relive_cli_agent::Line::Whole(asks.as_bytes()));
    let request = events.iter().find_map(|event| {
        if let EventKind::ApprovalAsked(request) = &event.kind { Some(request.clone()) } else { None }
    });
    assert_eq!(translator.call_for(&request.unwrap()), 0);
    assert_eq!(called(&translator.take()), [("a".to_owned(), known.to_owned())]);
    update(&mut parser, &mut translator, "b", "in_progress", later);
    update(&mut parser, &mut translator, "a", "completed", known);
    assert_eq!(called(&translator.take()), [("b".to_owned(), later.to_owned())]);
}
