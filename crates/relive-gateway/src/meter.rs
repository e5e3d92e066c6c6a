//! Reads the usage out of an answer while it passes.

use serde::Deserialize;
use serde_json::value::RawValue;

use crate::api::Api;

/// The longest event that is read: an answer repeats itself as a whole in the last one.
const EVENT_MAX: usize = 32 << 20;
/// More tokens than any call has. A provider that reports more is not believed.
const TOKENS_MAX: u64 = 1 << 32;
/// The approximate number of bytes of a token.
const BYTES_PER_TOKEN: u64 = 4;

/// The tokens of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Counted {
    pub(crate) tokens_in: u64,
    pub(crate) tokens_out: u64,
    pub(crate) cache_read: u64,
    pub(crate) cache_write: u64,
    pub(crate) estimated: bool,
}

/// Counts the tokens of one answer.
#[derive(Debug)]
pub(crate) struct Meter {
    api: Api,
    /// Whether the answer is a stream of events. Otherwise it is one JSON text.
    is_stream: bool,
    line: Vec<u8>,
    /// Whether the line is too long to be read.
    is_skipped: bool,
    input: Option<u64>,
    output: Option<u64>,
    cache_read: u64,
    cache_write: u64,
    /// Whether something could not be read, so that usage may be missing.
    is_unread: bool,
    /// The length of what the model has said.
    said: u64,
    is_done: bool,
}

#[derive(Deserialize)]
struct Event<'a> {
    #[serde(rename = "type")]
    kind: Option<&'a str>,
    object: Option<&'a str>,
    #[serde(borrow)]
    delta: Option<&'a RawValue>,
    usage: Option<Usage>,
    message: Option<Within>,
    response: Option<Within>,
    #[serde(default, borrow)]
    choices: Vec<Choice<'a>>,
    #[serde(default, borrow)]
    candidates: Vec<Candidate<'a>>,
    #[serde(rename = "usageMetadata")]
    metadata: Option<GeminiUsage>,
}

/// A part of an answer of Gemini. The last one says why it is the last.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Candidate<'a> {
    #[serde(borrow)]
    content: Option<&'a RawValue>,
    #[serde(borrow)]
    finish_reason: Option<&'a str>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct GeminiUsage {
    prompt_token_count: Option<u64>,
    candidates_token_count: Option<u64>,
    thoughts_token_count: Option<u64>,
    tool_use_prompt_token_count: Option<u64>,
    cached_content_token_count: Option<u64>,
}

#[derive(Deserialize)]
struct Within {
    usage: Option<Usage>,
}

#[derive(Deserialize)]
struct Choice<'a> {
    #[serde(borrow)]
    delta: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct Usage {
    input_tokens: Option<u64>,
    output_tokens: Option<u64>,
    cache_creation_input_tokens: Option<u64>,
    cache_read_input_tokens: Option<u64>,
    prompt_tokens: Option<u64>,
    completion_tokens: Option<u64>,
    input_tokens_details: Option<Details>,
    prompt_tokens_details: Option<Details>,
}

#[derive(Deserialize)]
struct Details {
    cached_tokens: Option<u64>,
}

impl Usage {
    fn counts(&self) -> [Option<u64>; 8] {
        [
            self.input_tokens,
            self.output_tokens,
            self.cache_creation_input_tokens,
            self.cache_read_input_tokens,
            self.prompt_tokens,
            self.completion_tokens,
            cached(self.input_tokens_details.as_ref()),
            cached(self.prompt_tokens_details.as_ref()),
        ]
    }
}

impl GeminiUsage {
    fn counts(&self) -> [Option<u64>; 5] {
        [
            self.prompt_token_count,
            self.candidates_token_count,
            self.thoughts_token_count,
            self.tool_use_prompt_token_count,
            self.cached_content_token_count,
        ]
    }
}

impl Meter {
    pub(crate) fn new(api: Api, is_stream: bool) -> Self {
        Self {
            api,
            is_stream,
            line: Vec::new(),
            is_skipped: false,
            input: None,
            output: None,
            cache_read: 0,
            cache_write: 0,
            is_unread: false,
            said: 0,
            is_done: false,
        }
    }

    /// Takes in bytes of the body, and returns whether the answer is complete with them.
    pub(crate) fn feed(&mut self, mut bytes: &[u8]) -> bool {
        if !self.is_stream {
            self.collect(bytes);
            return false;
        }
        while let Some(end) = memchr::memchr(b'\n', bytes) {
            if self.line.is_empty() && !self.is_skipped {
                self.read_line(&bytes[..end]);
            } else {
                self.collect(&bytes[..end]);
                let line = std::mem::take(&mut self.line);
                if !std::mem::take(&mut self.is_skipped) {
                    self.read_line(&line);
                }
            }
            bytes = &bytes[end + 1..];
        }
        self.collect(bytes);
        self.is_done
    }

    fn collect(&mut self, bytes: &[u8]) {
        if self.line.len() + bytes.len() > EVENT_MAX {
            (self.line, self.is_skipped) = (Vec::new(), true);
        }
        if !self.is_skipped {
            self.line.extend_from_slice(bytes);
        }
    }

    fn read_line(&mut self, line: &[u8]) {
        let Some(data) = line.strip_prefix(b"data:") else { return };
        let data = data.trim_ascii();
        if data == b"[DONE]" {
            self.is_done = true;
        } else {
            self.read_json(data);
        }
    }

    fn read_json(&mut self, text: &[u8]) {
        // What cannot be read is passed on, and then the usage is an estimate.
        let Ok(event) = serde_json::from_slice::<Event<'_>>(text) else {
            self.is_unread |= memchr::memmem::find(text, b"\"usage").is_some();
            return;
        };
        let within = event.message.or(event.response).and_then(|within| within.usage);
        if let Some(usage) = event.usage.or(within) {
            self.take(&usage);
        }
        if let Some(usage) = event.metadata {
            self.take_metadata(&usage);
        }
        let choices = event.choices.iter().filter_map(|choice| choice.delta);
        let contents = event.candidates.iter().filter_map(|candidate| candidate.content);
        for delta in event.delta.into_iter().chain(choices).chain(contents) {
            self.said += delta.get().len() as u64;
        }
        self.is_done |= match self.api {
            Api::Anthropic => matches!(event.kind, Some("message_stop" | "message")),
            Api::Responses => {
                matches!(event.kind, Some("response.completed" | "response.failed" | "response.incomplete"))
                    || event.object == Some("response")
            }
            Api::Chat => event.object == Some("chat.completion"),
            Api::Gemini => event.candidates.iter().any(|candidate| candidate.finish_reason.is_some()),
        };
    }

    fn take(&mut self, usage: &Usage) {
        if usage.counts().into_iter().flatten().any(|count| count > TOKENS_MAX) {
            self.is_unread = true;
            return;
        }
        match self.api {
            Api::Anthropic => {
                if let Some(fresh) = usage.input_tokens {
                    self.cache_read = usage.cache_read_input_tokens.unwrap_or(self.cache_read);
                    self.cache_write = usage.cache_creation_input_tokens.unwrap_or(self.cache_write);
                    self.input = Some(fresh + self.cache_read + self.cache_write);
                }
                self.output = usage.output_tokens.or(self.output);
            }
            Api::Responses => {
                self.input = usage.input_tokens.or(self.input);
                self.output = usage.output_tokens.or(self.output);
                self.cache_read = cached(usage.input_tokens_details.as_ref()).unwrap_or(self.cache_read);
            }
            Api::Chat => {
                self.input = usage.prompt_tokens.or(self.input);
                self.output = usage.completion_tokens.or(self.output);
                self.cache_read = cached(usage.prompt_tokens_details.as_ref()).unwrap_or(self.cache_read);
            }
            // It reports its usage under another name.
            Api::Gemini => {}
        }
    }

    /// Takes the usage of Gemini, which each part of an answer repeats up to there.
    fn take_metadata(&mut self, usage: &GeminiUsage) {
        if usage.counts().into_iter().flatten().any(|count| count > TOKENS_MAX) {
            self.is_unread = true;
            return;
        }
        if let Some(prompt) = usage.prompt_token_count {
            self.input = Some(prompt + usage.tool_use_prompt_token_count.unwrap_or(0));
        }
        if let Some(said) = usage.candidates_token_count {
            self.output = Some(said + usage.thoughts_token_count.unwrap_or(0));
        }
        self.cache_read = usage.cached_content_token_count.unwrap_or(self.cache_read);
    }

    /// Returns whether the last event of a stream has not come.
    pub(crate) fn is_unfinished_stream(&self) -> bool {
        self.is_stream && !self.is_done
    }

    /// Counts an answer that is over. `asked` is the length of the question.
    pub(crate) fn total(&mut self, asked: u64) -> Counted {
        if !self.is_stream && !self.is_skipped {
            let text = std::mem::take(&mut self.line);
            self.read_json(&text);
        }
        let estimated = self.input.is_none() || self.output.is_none() || !self.is_done || self.is_unread;
        let said = self.said.div_ceil(BYTES_PER_TOKEN);
        // A stream that was cut has said how much the model read, and not how much it wrote.
        let output = match self.output {
            Some(output) if self.is_done && !self.is_unread => output,
            output => output.unwrap_or(0).max(said),
        };
        Counted {
            tokens_in: self.input.unwrap_or_else(|| estimate(asked)),
            tokens_out: output,
            cache_read: self.cache_read,
            cache_write: self.cache_write,
            estimated,
        }
    }
}

fn cached(details: Option<&Details>) -> Option<u64> {
    details.and_then(|details| details.cached_tokens)
}

/// Estimates the tokens of a text.
pub(crate) fn estimate(bytes: u64) -> u64 {
    bytes.div_ceil(BYTES_PER_TOKEN)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ANTHROPIC: &str = "event: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"model\":\"m\",\
        \"usage\":{\"input_tokens\":10,\"cache_read_input_tokens\":5,\"cache_creation_input_tokens\":2,\"output_tokens\":1}}}\n\n\
        data: {\"type\":\"content_block_delta\",\"delta\":{\"type\":\"text_delta\",\"text\":\"0123456789\"}}\n\n\
        data: {\"type\":\"message_delta\",\"delta\":{},\"usage\":{\"output_tokens\":20}}\n\n\
        event: message_stop\ndata: {\"type\":\"message_stop\"}\n\n";
    const RESPONSES: &str = "data: {\"type\":\"response.created\",\"response\":{\"usage\":null}}\n\n\
        data: {\"type\":\"response.output_text.delta\",\"delta\":\"0123456789\"}\n\n\
        data: {\"type\":\"response.completed\",\"response\":{\"object\":\"response\",\"usage\":{\"input_tokens\":17,\
        \"input_tokens_details\":{\"cached_tokens\":5},\"output_tokens\":20}}}\n\n";
    const CHAT: &str = "data: {\"object\":\"chat.completion.chunk\",\"choices\":[{\"delta\":{\"content\":\"0123456789\"}}]}\n\n\
        data: {\"choices\":[],\"usage\":{\"prompt_tokens\":17,\"prompt_tokens_details\":{\"cached_tokens\":5},\
        \"completion_tokens\":20}}\n\ndata: [DONE]\n\n";

    const GEMINI: &str = "data: {\"candidates\":[{\"content\":{\"parts\":[{\"text\":\"0123456789\"}]}}],\
        \"usageMetadata\":{\"promptTokenCount\":17,\"cachedContentTokenCount\":5,\"candidatesTokenCount\":2}}\r\n\r\n\
        data: {\"candidates\":[{\"content\":{\"parts\":[]},\"finishReason\":\"STOP\"}],\"usageMetadata\":{\"promptTokenCount\":17,\
        \"cachedContentTokenCount\":5,\"candidatesTokenCount\":15,\"thoughtsTokenCount\":5}}\r\n\r\n";

    fn count(api: Api, text: &[u8], piece: usize) -> (bool, Counted) {
        let mut meter = Meter::new(api, true);
        let mut done = false;
        for piece in text.chunks(piece) {
            done |= meter.feed(piece);
        }
        (done, meter.total(400))
    }

    #[test]
    fn whole_streams_are_exact_however_they_are_cut_into_pieces() {
        for (api, text, cache_write) in [
            (Api::Anthropic, ANTHROPIC, 2),
            (Api::Responses, RESPONSES, 0),
            (Api::Chat, CHAT, 0),
            (Api::Gemini, GEMINI, 0),
        ] {
            let exact = Counted { tokens_in: 17, tokens_out: 20, cache_read: 5, cache_write, estimated: false };
            for piece in [1, 7, 100_000] {
                assert_eq!(count(api, text.as_bytes(), piece), (true, exact), "{api:?} in pieces of {piece}");
            }
        }
    }

    #[test]
    fn a_stream_that_is_cut_is_estimated_at_every_byte() {
        for (api, text) in
            [(Api::Anthropic, ANTHROPIC), (Api::Responses, RESPONSES), (Api::Chat, CHAT), (Api::Gemini, GEMINI)]
        {
            let last = text.trim_end().len();
            for end in 0..last {
                let (done, counted) = count(api, &text.as_bytes()[..end], 100_000);
                assert!(!done && counted.estimated, "{api:?} at {end}");
                assert!(counted.tokens_in == 17 || counted.tokens_in == 100, "{counted:?}");
            }
        }
        let (_, cut) = count(Api::Anthropic, &ANTHROPIC.as_bytes()[..ANTHROPIC.find("message_delta").unwrap()], 9);
        assert!(cut.tokens_in == 17 && cut.tokens_out > 1, "{cut:?}");
    }

    #[test]
    fn a_usage_that_cannot_be_is_estimated() {
        for (from, to) in [
            ("{\"output_tokens\":20}", "{\"output_tokens\":9223372036854775808}"),
            ("{\"output_tokens\":20}", "{\"output_tokens\":9.3e18}"),
            ("{\"output_tokens\":20}", "{\"output_tokens\":-1}"),
            ("\"input_tokens\":10", "\"input_tokens\":18446744073709551615"),
        ] {
            assert!(ANTHROPIC.contains(from));
            let (done, counted) = count(Api::Anthropic, ANTHROPIC.replace(from, to).as_bytes(), 100_000);
            assert!(done && counted.estimated && counted.tokens_out >= 2, "{to}: {counted:?}");
        }
    }

    #[test]
    fn an_answer_that_is_no_stream_is_counted_too() {
        let mut meter = Meter::new(Api::Anthropic, false);
        let text = "{\"type\":\"message\",\n\"usage\":{\"input_tokens\":17,\"output_tokens\":20}}";
        assert!(!meter.feed(text.as_bytes()));
        assert_eq!(meter.total(1), Counted { tokens_in: 17, tokens_out: 20, ..Counted::default() });
    }

    #[test]
    fn any_bytes_are_passed_over() {
        let (done, counted) = count(Api::Chat, b"data: {\n\xff\xfe data:\n\ndata:\n\n{}", 3);
        assert!(!done && counted.estimated);
    }
}
