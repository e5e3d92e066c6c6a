//! Failures are classified correctly.

use std::future::ready;
use std::time::Duration;

use futures_util::StreamExt as _;
use relive_fake_model::{Failure, FakeModel, Turn};
use relive_llm::{Access, OpenError, Prices, Secret, Timeouts, Windows};
use relive_llm::{Delta, ModelError};
use relive_types::model_name::NoSuchModel;

use crate::support::{Heard, KEY, MODELS, ask, hear, model, patient, question, user};

fn provider(name: &str) -> &str {
    name.split_once('/').unwrap().0
}

async fn status(name: &str, status: u16, retry_after: Option<&str>) -> ModelError {
    let failure = Failure::Status(status, retry_after.map(str::to_owned));
    let heard = hear(name, Turn::text("never").after(failure)).await;
    assert_eq!(heard.text, "", "{name}");
    heard.error.unwrap()
}

#[tokio::test]
async fn a_refused_key_is_reported_as_unauthorized() {
    for name in MODELS {
        let error = status(name, 401, None).await;
        assert_eq!(error, ModelError::Unauthorized(format!("{} refused the key (401): fake 401", provider(name))));
    }
}

#[tokio::test]
async fn a_rate_limit_has_the_time_to_wait() {
    for name in MODELS {
        for (said, after) in [(Some("3"), Some(3)), (Some("7200"), Some(7200)), (None, None)] {
            let text = format!("{} answered 429: fake 429", provider(name));
            let retry_after = after.map(Duration::from_secs);
            assert_eq!(status(name, 429, said).await, ModelError::RateLimited { text, retry_after });
        }
    }
}

#[tokio::test]
async fn an_overloaded_provider_is_reported_as_unavailable() {
    for name in MODELS {
        for code in [500, 503, 529] {
            let error = status(name, code, None).await;
            assert!(matches!(error, ModelError::Overloaded { retry_after: None, .. }), "{name}: {error:?}");
        }
        assert!(matches!(status(name, 404, None).await, ModelError::Failed(_)), "{name}");
    }
}

#[tokio::test]
async fn text_before_a_broken_connection_is_kept_and_the_break_reported() {
    for name in MODELS {
        let turn = Turn::text("one ").then("two ").then("three ").then("four ").then("five ").then("six ");
        // The pieces before the text differ between providers; this is somewhere in the middle of it.
        let heard = hear(name, turn.after(Failure::Cut(5))).await;
        let whole = "one two three four five six ";
        assert!(whole.starts_with(&heard.text) && (4..whole.len()).contains(&heard.text.len()), "{name}: {heard:?}");
        let error = format!("{} broke off in the middle of its answer", provider(name));
        assert_eq!(heard.error, Some(ModelError::Cut(error)), "{name}");
        assert_eq!(heard.usage, None, "{name}");
    }
}

#[tokio::test]
async fn a_server_that_never_answers_times_out_by_name() {
    for name in MODELS {
        let server = FakeModel::start([Turn::text("never").after(Failure::Silence)]);
        let after = Duration::from_millis(200);
        let heard = ask(&patient(name, &server, Timeouts { first_byte: after, idle: after }), &[user("go")]).await;
        let text = format!("{} did not answer within 200 ms", provider(name));
        assert_eq!(heard.error, Some(ModelError::TimedOut { text, after }), "{name}");
    }
}

#[tokio::test]
async fn a_server_that_falls_silent_times_out_by_name() {
    for name in MODELS {
        let turn = Turn::text("one ").then("two").then("three").then("four");
        let server = FakeModel::start([turn.after(Failure::Stall(4))]);
        let timeouts = Timeouts { first_byte: Duration::from_secs(20), idle: Duration::from_millis(200) };
        let heard = ask(&patient(name, &server, timeouts), &[user("go")]).await;
        let text = format!("{} sent nothing for 200 ms", provider(name));
        assert_eq!(heard.error, Some(ModelError::TimedOut { text, after: timeouts.idle }), "{name}");
        assert!(heard.text.starts_with("one"), "{name}: {heard:?}");
    }
}

#[tokio::test]
async fn a_missing_server_is_reported_as_unreachable() {
    for name in MODELS {
        let server = FakeModel::start([]);
        let model = model(name, &server);
        drop(server);
        let Heard { error: Some(ModelError::Cut(text)), .. } = ask(&model, &[user("go")]).await else {
            panic!("{name}")
        };
        assert!(text.starts_with(&format!("{} cannot be reached: ", provider(name))), "{text}");
    }
}

#[tokio::test]
async fn a_conversation_that_is_refused_says_why() {
    for name in MODELS {
        let server = FakeModel::start([]);
        let orphan = relive_llm::Message::Tool { id: "x".to_owned(), ok: true, result: "r".to_owned() };
        let heard = ask(&model(name, &server), &[user("go"), orphan]).await;
        let Some(ModelError::Failed(text)) = heard.error else { panic!("{name}: {heard:?}") };
        assert!(text.contains("answered 400: the results"), "{text}");
    }
}

#[tokio::test]
async fn dropping_an_answer_ends_the_call() {
    for name in MODELS {
        let turn = Turn::text("one ").then("two").then("three").then("four");
        let server = FakeModel::start([turn.after(Failure::Stall(4))]);
        let mut answer = model(name, &server).ask(question(vec![user("go")])).await.unwrap();
        let first = answer.by_ref().skip_while(|delta| ready(matches!(delta, Ok(Delta::Progress)))).next().await;
        assert!(matches!(first, Some(Ok(Delta::Text(_)))), "{name}: {first:?}");
        assert_eq!(server.under_way(), 1, "{name}");
        drop(answer);
        while server.under_way() > 0 {
            tokio::task::yield_now().await;
        }
    }
}

#[test]
fn a_model_that_cannot_be_opened_has_a_helpful_error() {
    let open = |name: &str, key: Option<&str>, base_url: Option<&str>| {
        let access = Access { base_url: base_url.map(str::to_owned), key: key.map(Secret::new) };
        relive_llm::open(name, access, &Prices::builtin(), &Windows::builtin()).map(drop)
    };
    let unknown = |name: &str, closest: Option<&'static str>| {
        Err(OpenError::UnknownProvider(NoSuchModel { name: name.to_owned(), closest }))
    };
    assert_eq!(open("antropic/claude", Some(KEY), None), unknown("antropic/claude", Some("anthropic")));
    assert_eq!(open("nobody/x", Some(KEY), None), unknown("nobody/x", None));
    assert_eq!(open("anthropic", Some(KEY), None), unknown("anthropic", Some("anthropic")));
    let needs = OpenError::NeedsKey { provider: "gemini", variable: "GEMINI_API_KEY" };
    assert_eq!(needs.to_string(), "gemini needs a key: GEMINI_API_KEY is not set");
    assert_eq!(open("gemini/x", None, None), Err(needs.clone()));
    assert_eq!(open("gemini/x", Some("  \n"), None), Err(needs));
    assert!(matches!(open("openai/x", Some(KEY), Some("localhost:1")), Err(OpenError::BadUrl { .. })));
    let Err(error) = open("openai/x", Some(KEY), Some("foo")) else { panic!("it is no address") };
    let words = "OPENAI_BASE_URL is not a server address: it begins with neither http:// nor https://";
    assert_eq!(error.to_string(), words);
    assert_eq!(open("anthropic/x", Some(KEY), None), Ok(()));
    assert_eq!(format!("{:?} {}", Secret::new(KEY), Secret::new(KEY)), "Secret [secret]");
}
