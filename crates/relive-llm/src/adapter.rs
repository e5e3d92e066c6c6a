//! One model of a provider: sends a question and streams the answer as [`Delta`]s.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use futures_util::{FutureExt as _, StreamExt as _, stream};
use genai::adapter::AdapterKind;
use genai::chat::{ChatOptions, ReasoningEffort, StreamEnd};
use genai::resolver::{AuthData, Endpoint};
use genai::{ModelIden, ServiceTarget};
use relive_types::{Usage, Usd};
use serde_json::{Value, json};

use crate::access::{Access, Secret};
use crate::carry::Carry;
use crate::failure::Failures;
use crate::model::{Answer, Delta, Model, ModelError, Question, ToolCall};
use crate::prices::{Price, Prices};
use crate::providers::{self, Provider};
use crate::request::chat_request;
use crate::stream::{self as listening, Heard, Listener, Meter, Pieces};
use crate::windows::Windows;
use crate::{OpenError, client};

/// Counted for a call whose end is never learned. Its real usage is unknown; this is the size of a long answer.
const RESERVED_TOKENS: u64 = 16_384;

/// How long a provider may send nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timeouts {
    /// Until the first byte of its answer, connecting included.
    pub first_byte: Duration,
    /// Between two pieces of its answer.
    pub idle: Duration,
}

impl Timeouts {
    /// Returns the timeouts for a model of this name.
    pub(crate) fn of(name: &str) -> Self {
        // Ollama answers after it has loaded the model, which may be larger than the memory.
        let first_byte = if name.starts_with("ollama/") { 600 } else { 60 };
        Self { first_byte: Duration::from_secs(first_byte), idle: Duration::from_secs(300) }
    }
}

/// A model of a provider, cheap to clone.
#[derive(Debug, Clone)]
pub(crate) struct Adapter(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    client: genai::Client,
    target: ServiceTarget,
    options: ChatOptions,
    provider: Provider,
    price: Option<Price>,
    window: u64,
    failures: Failures,
}

impl Adapter {
    pub(crate) fn new(
        name: &str,
        access: Access,
        prices: &Prices,
        windows: &Windows,
        timeouts: Timeouts,
    ) -> Result<Self, OpenError> {
        let (provider, model) = providers::split_name(name)?;
        let target = provider.target(&access)?;
        let options = options(target.adapter, model, timeouts);
        let known_as = format!("{}/{model}", provider.family());
        let (price, window) = (prices.of(&known_as), windows.of(&known_as));
        let failures = Failures { provider: provider.name, key: Secret::new(&target.key), timeouts };
        let target = ServiceTarget {
            endpoint: Endpoint::from_owned(target.base_url),
            auth: AuthData::from_single(target.key),
            model: ModelIden::new(target.adapter, model.to_owned()),
        };
        let client = client::client()?;
        Ok(Self(Arc::new(Inner { client, target, options, provider, price, window, failures })))
    }
}

/// Returns the options that are sent beside the question.
fn options(adapter: AdapterKind, model: &str, timeouts: Timeouts) -> ChatOptions {
    let reasons = wants_thinking(adapter, model);
    let options = ChatOptions::default()
        .with_stream_header_timeout(timeouts.first_byte)
        .with_stream_read_timeout(timeouts.idle)
        .with_capture_usage(true)
        .with_capture_content(true)
        .with_capture_tool_calls(pieces(adapter) == Pieces::Together)
        .with_capture_reasoning_content(reasons);
    if adapter == AdapterKind::OpenAIResp && reasons {
        // Not every account may ask for a summary of the thinking; without this line its requests would be refused.
        let effort = ReasoningEffort::from_model_name(model).0.and_then(|effort| effort.as_keyword());
        let reasoning = effort.map_or(Value::Null, |effort| json!({"effort": effort}));
        return options.with_extra_body(json!({"reasoning": reasoning}));
    }
    options
}

/// Returns how `genai` reports the calls of this format.
fn pieces(adapter: AdapterKind) -> Pieces {
    if matches!(adapter, AdapterKind::OpenAI | AdapterKind::DeepSeek) { Pieces::Apart } else { Pieces::Together }
}

/// Returns whether to ask for the thinking. Models that do not think refuse the option.
fn wants_thinking(adapter: AdapterKind, model: &str) -> bool {
    let version = |prefix: &str| {
        let rest = model.strip_prefix(prefix)?;
        let number: String = rest.chars().take_while(|letter| letter.is_ascii_digit() || *letter == '.').collect();
        number.trim_end_matches('.').parse::<f32>().ok()
    };
    if adapter == AdapterKind::OpenAIResp {
        let thinks = version("gpt-").is_some_and(|version| version >= 5.0) || version("o").is_some();
        return thinks && !model.contains("-chat");
    }
    adapter != AdapterKind::Gemini || version("gemini-").is_some_and(|version| version >= 2.5)
}

impl Model for Adapter {
    fn reserved_tokens(&self) -> u64 {
        RESERVED_TOKENS
    }

    fn context_tokens(&self) -> Option<u64> {
        Some(self.0.window)
    }

    fn cost(&self, tokens_in: u64, tokens_out: u64) -> Option<Usd> {
        self.0.price.map(|price| price.cost(&Usage { tokens_in, tokens_out, ..Usage::default() }))
    }

    fn ask(&self, question: Question) -> BoxFuture<'static, Result<Answer, ModelError>> {
        let Self(inner) = self.clone();
        async move {
            let request = chat_request(&question, inner.provider.name, inner.target.model.adapter_kind)?;
            let meter = Arc::new(Meter::default());
            let options = inner.options.clone().with_raw_frame_sink_arc(meter.clone());
            let sent = inner.client.exec_chat_stream(inner.target.clone(), request, Some(&options)).await;
            let answer = sent.map_err(|error| inner.failures.tell(&error))?;
            let listener = Listener::new(answer.stream, meter, pieces(inner.target.model.adapter_kind));
            Ok(stream::unfold(Some((listener, inner)), next).flat_map(stream::iter).boxed())
        }
        .boxed()
    }
}

type Deltas = Vec<Result<Delta, ModelError>>;
type Listening = Option<(Listener, Arc<Inner>)>;

/// Converts the next event. Nothing follows a failure or the end.
async fn next(state: Listening) -> Option<(Deltas, Listening)> {
    let (mut listener, inner) = state?;
    let failures = &inner.failures;
    let last = match listener.next().await {
        Heard::Deltas(deltas) => {
            return Some((deltas.into_iter().map(Ok).collect(), Some((listener, inner))));
        }
        Heard::End(end, calls) => inner.end(*end, calls),
        Heard::Cut(deltas) => deltas.into_iter().map(Ok).collect(),
        Heard::Failed(error) => vec![Err(failures.tell(&error))],
        Heard::TooLong(what) => vec![Err(Heard::too_long(failures.provider, what))],
        Heard::Refused(status) => vec![Err(failures.refused(status))],
        Heard::Broken => vec![Err(failures.cut())],
    };
    Some((last, None))
}

impl Inner {
    fn end(&self, end: StreamEnd, collected: Vec<ToolCall>) -> Deltas {
        let adapter = self.target.model.adapter_kind;
        // For these two, genai reports an end when the connection breaks without one.
        let has_no_reason = adapter == AdapterKind::Gemini && end.captured_stop_reason.is_none();
        let has_no_count = adapter == AdapterKind::Ollama && end.captured_usage.is_none();
        if has_no_reason || has_no_count {
            return vec![Err(self.failures.cut())];
        }
        let usage = end.captured_usage.as_ref().and_then(|usage| self.usage(usage));
        let parts = end.captured_content.map(genai::chat::MessageContent::into_parts).unwrap_or_default();
        let carry = Carry::of(self.provider.name, adapter, &parts);
        let calls = parts.into_iter().filter_map(genai::chat::ContentPart::into_tool_call).map(listening::call);
        let calls = calls.chain(collected.into_iter().map(listening::collected));
        let pieces = calls.map(Delta::Call).chain(carry.map(Delta::Carry)).chain(usage.map(Delta::Usage));
        pieces.map(Ok).collect()
    }

    /// Returns the usage that the provider reports; `None` if it reports none.
    fn usage(&self, said: &genai::chat::Usage) -> Option<Usage> {
        let count = |tokens: Option<i32>| tokens.and_then(|tokens| u64::try_from(tokens).ok());
        let (tokens_in, tokens_out) = (count(said.prompt_tokens), count(said.completion_tokens));
        if tokens_in.is_none() && tokens_out.is_none() {
            return None;
        }
        let cached = said.prompt_tokens_details.as_ref();
        let mut usage = Usage {
            tokens_in: tokens_in.unwrap_or(0),
            tokens_out: tokens_out.unwrap_or(0),
            cache_read: cached.and_then(|details| count(details.cached_tokens)).unwrap_or(0),
            cache_write: cached.and_then(|details| count(details.cache_creation_tokens)).unwrap_or(0),
            ..Usage::default()
        };
        usage.cost_usd = self.price.map(|price| price.cost(&usage));
        Some(usage)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thinking_is_requested_only_from_models_that_think() {
        let check = |adapter, model: &str, expect: bool| assert_eq!(wants_thinking(adapter, model), expect, "{model}");
        check(AdapterKind::OpenAIResp, "gpt-5", true);
        check(AdapterKind::OpenAIResp, "gpt-5.1-codex", true);
        check(AdapterKind::OpenAIResp, "o3", true);
        check(AdapterKind::OpenAIResp, "o4-mini", true);
        check(AdapterKind::OpenAIResp, "gpt-4.1", false);
        check(AdapterKind::OpenAIResp, "gpt-5-chat-latest", false);
        check(AdapterKind::Gemini, "gemini-2.5-pro", true);
        check(AdapterKind::Gemini, "gemini-3-pro", true);
        check(AdapterKind::Gemini, "gemini-2.0-flash", false);
        check(AdapterKind::Anthropic, "claude-sonnet-4-5", true);
    }
}
