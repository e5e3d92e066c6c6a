//! The scripted model.

use std::time::Duration;

use futures_util::StreamExt as _;
use relive_agent::script::Script;
use relive_agent::tools;
use relive_llm::{Delta, Message, Model as _, ModelError, Purpose, Question, ToolCall};
use relive_types::{Usage, Uuid};
use tokio::time::Instant;

use crate::support::World;

fn question(messages: Vec<Message>) -> Question {
    let answers = messages.iter().filter(|message| matches!(message, Message::Model { .. })).count() as u64;
    let (tools, messages) = ("[]".into(), messages.into());
    Question { step: 3, system_prompt: "".into(), tools, messages, answers, purpose: Purpose::Step }
}

fn model(text: &str, calls: Vec<ToolCall>) -> Message {
    Message::Model { thinking: None, text: Some(text.to_owned()), calls, carry: None }
}

fn call(id: &str, name: &str, args: &str) -> ToolCall {
    ToolCall { id: id.to_owned(), name: name.to_owned(), args: args.to_owned() }
}

/// Returns the answer after this many answers.
async fn after(script: &Script, answers: usize) -> Vec<Result<Delta, ModelError>> {
    let mut messages = vec![Message::User { text: "go".to_owned() }];
    messages.extend((0..answers).map(|_| model("", Vec::new())));
    match script.ask(question(messages)).await {
        Ok(answer) => answer.collect().await,
        Err(error) => vec![Err(error)],
    }
}

fn text(answer: &[Result<Delta, ModelError>]) -> String {
    let texts = answer.iter().filter_map(|delta| match delta {
        Ok(Delta::Text(text)) => Some(text.as_str()),
        Ok(Delta::Thinking(_) | Delta::Call(_) | Delta::Carry(_) | Delta::Usage(_) | Delta::Progress) | Err(_) => None,
    });
    texts.collect()
}

/// Checks that the script is refused at this line and column, with these words.
fn check_bad(script: &str, place: &str, words: &str) {
    let error = Script::parse(script, "bad.yaml").unwrap_err();
    assert!(matches!(error, ModelError::BadScript(_)));
    let message = error.to_string();
    assert!(message.contains(words), "{words:?} is not in\n{message}");
    assert!(message.contains(&format!("bad.yaml:{place}")), "{place} is not in\n{message}");
    assert!(message.contains('^'), "no caret in\n{message}");
    assert!(words.is_empty() || message.matches(words).count() == 1, "said twice:\n{message}");
}

#[test]
fn errors_show_line_and_caret() {
    check_bad("turns:\n  - text: hi\n    cals: []\n", "3:5", "no such key: `cals` (did you mean `calls`?)");
    check_bad("turn: []\n", "1:1", "no such key: `turn` (did you mean `turns`?)");
    check_bad("turns:\n  - text: {a: b}\n", "2:11", "a text, or a list of texts");
    check_bad("turns:\n  - text: 5\n", "2:5", "a text, or a list of texts");
    check_bad("turns:\n  - delay: soon\n", "2:5", "a duration like");
    check_bad("turns:\n  - delay: 50\n", "2:5", "a duration like");
    check_bad("turns:\n  - hang: maybe\n", "2:11", "neither `true` nor `false`");
    check_bad("turns:\n  - repeat: 0\n", "2:5", "must be a whole number of at least 1");
    check_bad("turns:\n  - calls:\n      - {name: read, args: [1]}\n", "3:28", "a section with keys is needed");
    check_bad("turns:\n  - calls:\n      - {args: {}}\n", "3:", "name");
    check_bad("turns:\n  - usage: {in: 3}\n", "2:13", "no such key: `in` (expected one of input, output, cost_usd)");
    check_bad("turns:\n  - text: a\n    text: b\n", "3:5", "is given twice");
    check_bad("turns:\n  - text: a\n   - text: b\n", "3:", "");
    check_bad("turns:\n  - text: a\n  - fail_after_chunks: 1\n", "3:", "`fail_after_chunks` without `fail`");
    check_bad("turns:\n  - fail: x\n    hang: true\n", "", "`fail` and `hang` together");
}

/// It may be any file of the user.
#[test]
fn no_line_of_a_file_without_turns_is_shown() {
    for text in ["machine x login y password SECRET\n", "KEY=SECRET: {\n"] {
        let error = Script::parse(text, "bad.yaml").unwrap_err();
        assert_eq!(error.to_string(), "script bad.yaml has no `turns:`");
    }
}

#[test]
#[expect(clippy::disallowed_methods, reason = "a test's own file")]
fn a_missing_script_is_named() {
    let world = World::new();
    let error = Script::open("no.yaml", &world.cwd).unwrap_err().to_string();
    assert!(error.contains(world.cwd.join("no.yaml").to_str().unwrap()) && error.contains("no such file"), "{error}");
    std::fs::write(world.cwd.join("binary.yaml"), b"\xff").unwrap();
    let error = Script::open("binary.yaml", &world.cwd).unwrap_err().to_string();
    assert!(error.ends_with("binary.yaml is not UTF-8 text"), "{error}");
    world.put("s.yaml", "turns: [{text: from the folder}]");
    assert!(Script::open("s.yaml", &world.cwd).is_ok());
}

#[tokio::test]
async fn the_number_of_answers_selects_the_turn() {
    let script = "turns: [{text: 'one {{turn}}'}, {text: 'two {{turn}} {{step}}', repeat: 3}, {text: last}]";
    let script = Script::parse(script, "s").unwrap();
    for (answers, expect) in ["one 1", "two 2 3", "two 3 3", "two 4 3", "last", "done", "done"].iter().enumerate() {
        let answer = after(&script, answers).await;
        assert_eq!(text(&answer), *expect);
        assert_eq!(answer, after(&script, answers).await, "the same question has the same answer");
    }
    let endless = Script::parse("turns: [{text: again, repeat: 4294967295}, {text: more}]", "s").unwrap();
    assert_eq!(text(&after(&endless, 1_000_000).await), "again");
}

#[tokio::test(start_paused = true)]
async fn chunks_come_one_by_one() {
    let script = "
turns:
  - thinking: hm
    text: [a, b]
    delay: 1s
    chunk_delay: 50ms
    calls: [{name: read, args: {path: f}}, {name: done}]
    usage: {input: 7, output: 9, cost_usd: 0.5}
";
    let script = Script::parse(script, "s").unwrap();
    let mut answer = script.ask(question(Vec::new())).await.unwrap();
    let began = Instant::now();
    let mut seen = Vec::new();
    while let Some(delta) = answer.next().await {
        seen.push((began.elapsed().as_millis(), delta.unwrap()));
    }
    let cost_usd = Some(relive_types::Usd::from_nanos(500_000_000));
    assert_eq!(
        seen,
        [
            (1000, Delta::Thinking("hm".to_owned())),
            (1050, Delta::Text("a".to_owned())),
            (1100, Delta::Text("b".to_owned())),
            (1100, Delta::Call(call("call_1_1", "read", r#"{"path":"f"}"#))),
            (1100, Delta::Call(call("call_1_2", "done", "{}"))),
            (1100, Delta::Usage(Usage { tokens_in: 7, tokens_out: 9, cost_usd, ..Usage::default() })),
        ]
    );
    assert_eq!(script.reserved_tokens(), 16);
}

#[tokio::test(start_paused = true)]
async fn a_model_may_fail_or_hang() {
    let script = "
turns:
  - {fail: overloaded, delay: 2s}
  - {text: [a, b, c], fail: 'cut {{turn}}', fail_after_chunks: 2}
  - {text: a, hang: true}
";
    let script = Script::parse(script, "s").unwrap();
    let failed = |text: &str| Err(ModelError::Failed(text.to_owned()));
    let began = Instant::now();
    assert_eq!(script.ask(question(Vec::new())).await.err(), Some(ModelError::Failed("overloaded".to_owned())));
    assert_eq!(began.elapsed(), Duration::from_secs(2));
    let said = |text: &str| Ok(Delta::Text(text.to_owned()));
    assert_eq!(after(&script, 1).await, [said("a"), said("b"), failed("cut 2")]);
    let messages = vec![model("", Vec::new()), model("", Vec::new())];
    let mut hanging = script.ask(question(messages)).await.unwrap();
    assert_eq!(hanging.next().await, Some(said("a")));
    assert!(tokio::time::timeout(Duration::from_secs(1_000_000), hanging.next()).await.is_err());
}

#[tokio::test]
async fn placeholders_are_filled_from_the_conversation() {
    let script = "
turns:
  - calls:
      - name: write
        args: {path: '{{uuid}}', n: 5, list: ['{{ result }}', '{{child}} {{child.1}} {{child.9}} {{other}} {{']}
    repeat: 9
";
    let script = Script::parse(script, "s").unwrap().with_uuid(Uuid::nil());
    let spawn = |id: &str| call(id, "spawn_agent", "{}");
    let tool = |id: &str, result: &str| Message::Tool { id: id.to_owned(), ok: true, result: result.to_owned() };
    let messages = vec![
        model("", vec![spawn("a"), call("b", "read", "{}"), spawn("c")]),
        tool("a", r#"{"uuid":"u-1"}"#),
        tool("b", r#"{"uuid":"no child"}"#),
        tool("c", r#"{"uuid":"u-2"}"#),
    ];
    let answer: Vec<_> = script.ask(question(messages)).await.unwrap().collect().await;
    let Some(Ok(Delta::Call(asked))) = answer.first() else { panic!("{answer:?}") };
    assert_eq!(asked.id, "call_2_1");
    let args: serde_json::Value = serde_json::from_str(&asked.args).unwrap();
    assert_eq!(args["path"], Uuid::nil().to_string());
    assert_eq!(args["list"][0], r#"{"uuid":"u-2"}"#);
    assert_eq!(args["list"][1], "u-2 u-1 {{child.9}} {{other}} {{");
}

#[test]
fn the_example_in_the_docs_is_valid() {
    let page = include_str!("../../../../docs/scripts.md");
    let example = page.split("```").nth(1).unwrap().strip_prefix("yaml\n").unwrap();
    Script::parse(example, "docs/scripts.md").unwrap();
}

/// The demo, with a loop of three lines.
#[tokio::test(start_paused = true)]
async fn the_demo_does_what_it_says() {
    let world = World::new();
    let script = Script::open("demo", &world.cwd).unwrap();
    let mut messages = vec![Message::User { text: "show me".to_owned() }];
    for turn in 1.. {
        let answer: Vec<_> = script.ask(question(messages.clone())).await.unwrap().collect().await;
        let calls: Vec<ToolCall> = answer
            .iter()
            .filter_map(|delta| if let Ok(Delta::Call(call)) = delta { Some(call.clone()) } else { None })
            .collect();
        messages.push(model(&text(&answer), calls.clone()));
        if calls.is_empty() {
            assert_eq!(turn, 6);
            break;
        }
        for call in calls {
            assert!(tools::find(&call.name).is_some());
            let result = world.works(&call.name, serde_json::from_str(&call.args).unwrap()).await;
            messages.push(Message::Tool { id: call.id, ok: true, result });
        }
    }
    assert_eq!(world.get("relive-demo.txt"), "[x] write a list\n[x] think about it\n[x] tick everything off\n");
}
