use proptest::prelude::*;
use relive_journal::LINE_MAX;
use relive_journal::record::ModelEnded;

use super::*;

fn call(id: &str, name: &str, args: &str) -> Delta {
    Delta::Call(ToolCall { id: id.to_owned(), name: name.to_owned(), args: args.to_owned() })
}

fn heard(deltas: impl IntoIterator<Item = Delta>) -> Heard {
    let mut heard = Heard::default();
    for delta in deltas {
        heard.take(delta).unwrap();
    }
    heard
}

/// Returns the recorded arguments of one call.
fn recorded(args: &str) -> String {
    let calls = heard([call("c", "read", args)]).take_calls();
    match &calls[0].args {
        Json::Inline(raw) => raw.get().to_owned(),
        Json::Blob(_) => unreachable!(),
    }
}

fn nested(depth: usize) -> String {
    format!("{{\"a\":{}{}}}", "[".repeat(depth - 1), "]".repeat(depth - 1))
}

#[test]
fn arguments_above_a_limit_become_a_refusal_for_the_model() {
    let check = |args: &str, expect: &str| {
        let recorded = recorded(args);
        assert!(recorded.starts_with("{\"refused_arguments\":") && recorded.contains(expect), "{recorded:.200}");
    };
    check(&nested(127), "nested 127 deep");
    check(&nested(65), "nested 65 deep");
    check(&nested(100_000), "nested 100000 deep");
    check(&format!("{{\"a\":\"{}\"}}", "x".repeat(16 << 20)), "16777224 bytes long");
    check("{\"a\":", "not JSON");
    assert_eq!(recorded(&nested(64)), nested(64));
    assert_eq!(recorded(" "), "{}");
    assert_eq!(recorded(r#"{"a":"[[{\"\\"}"#), r#"{"a":"[[{\"\\"}"#);
    assert_eq!(depth(r#"{"a":"[[{\"\\"}"#), 1);
}

#[test]
fn ids_names_and_calls_are_bounded() {
    let many = (0..300).map(|number| call(&format!("{number}{}", "i".repeat(10_000)), &"n\u{1}".repeat(500), "{}"));
    let mut heard = heard(many);
    let calls = heard.take_calls();
    assert_eq!(calls.len(), CALLS_MAX);
    let ids: std::collections::HashSet<_> = calls.iter().map(|call| call.id.clone()).collect();
    assert_eq!(ids.len(), CALLS_MAX, "every id is still that of one call");
    assert!(calls.iter().all(|call| call.id.len() <= ID_MAX && call.name.len() == NAME_MAX));
    assert_eq!(heard.take_text(), "[172 more calls were left out: at most 128 of one answer are made]");
}

#[test]
fn an_endless_answer_is_cut() {
    for delta in [Delta::Text("x".repeat(1000)), Delta::Text(String::new()), Delta::Progress, call("", "", "{}")] {
        let mut heard = Heard::default();
        let error = (0..=PIECES_MAX).find_map(|_| heard.take(delta.clone()).err());
        assert!(matches!(error, Some(ModelError::TooLong(_))), "{delta:?}");
        assert!(heard.text.len() <= ANSWER_MAX);
    }
}

fn deltas() -> impl Strategy<Value = Vec<Delta>> {
    let args = prop_oneof![
        "\\PC{0,20}",
        (1..200_usize).prop_map(nested),
        "[a-z\"\\\\\n]{0,2000}".prop_map(|text| serde_json::json!({ "a": text }).to_string()),
    ];
    let delta = prop_oneof![
        "(?s).{0,200}".prop_map(Delta::Text),
        "(?s).{0,200}".prop_map(Delta::Thinking),
        args.clone().prop_map(Delta::Carry),
        ("(?s).{0,400}", "(?s).{0,100}", args).prop_map(|(id, name, args)| call(&id, &name, &args)),
        Just(Delta::Progress),
    ];
    prop::collection::vec(delta, 0..200)
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(64) })]

    #[test]
    fn any_answer_fits_into_a_readable_record(deltas in deltas()) {
        let mut heard = heard(deltas);
        let calls = heard.take_calls();
        let answer = ModelEnded {
            thinking: None,
            text: None,
            usage: Usage::default(),
            carry: heard.take_carry(),
            git: None,
            calls,
        };
        // The journal moves payloads of more than 1 KiB out of a record that would be too long.
        let outside: usize = answer.calls.iter().map(|call| match &call.args {
            Json::Inline(raw) if raw.get().len() > 1024 => raw.get().len().saturating_sub(2500),
            Json::Inline(_) | Json::Blob(_) => 0,
        }).sum();
        let line = serde_json::to_string(&answer).unwrap();
        prop_assert!(line.len() - outside < LINE_MAX - 20_000, "{}", line.len());
        let again: ModelEnded = serde_json::from_str(&line).unwrap();
        prop_assert_eq!(again, answer);
    }
}
