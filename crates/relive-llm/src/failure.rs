//! Converts the error of a provider to a [`ModelError`].
//!
//! **Invariant:** the text of an error names the provider, is short, and holds no key, whatever the provider sent.

use std::time::Duration;

use genai::webc::StreamTimeout;
use jiff::fmt::rfc2822;
use reqwest::StatusCode;
use reqwest::header::{DATE, HeaderMap, RETRY_AFTER};
use serde_json::Value;

use crate::access::Secret;
use crate::adapter::Timeouts;
use crate::model::ModelError;

/// The most bytes of a provider's message that are quoted.
const QUOTED_MAX: usize = 300;

/// Converts the errors of one model.
#[derive(Debug)]
pub(crate) struct Failures {
    pub(crate) provider: &'static str,
    pub(crate) key: Secret,
    pub(crate) timeouts: Timeouts,
}

/// An error response of a provider.
struct Said {
    status: Option<StatusCode>,
    /// The provider's own name for the kind of error.
    kind: String,
    message: String,
    retry_after: Option<Duration>,
}

impl Failures {
    /// Returns the error for a connection that broke in the middle of an answer.
    pub(crate) fn cut(&self) -> ModelError {
        ModelError::Cut(format!("{} broke off in the middle of its answer", self.provider))
    }

    /// Returns the error for a refusal of which only the status is known.
    pub(crate) fn refused(&self, status: StatusCode) -> ModelError {
        self.http(status, "the reason is too long to read", &HeaderMap::new())
    }

    #[expect(clippy::wildcard_enum_match_arm, reason = "genai has many, and these are what a provider does")]
    pub(crate) fn tell(&self, error: &genai::Error) -> ModelError {
        use genai::Error;
        match error {
            Error::HttpError { status, body, headers, .. } => self.http(*status, body, headers),
            Error::WebStream { error, .. } => self.broken(error.as_ref()),
            Error::WebModelCall { webc_error, .. } | Error::WebAdapterCall { webc_error, .. } => {
                self.broken(webc_error)
            }
            Error::ChatResponse { body, .. } => self.said(said(None, body, None)),
            // An error in the middle of a stream, or lines that are not JSON: a retry may help.
            Error::StreamParse { serde_error, .. } if serde_error.to_string().contains("recursion limit") => {
                ModelError::TooLong(self.text("sent an answer that is nested too deeply"))
            }
            Error::StreamParse { serde_error, .. } => {
                ModelError::Cut(self.text(&format!("broke off: {}", quoted(&serde_error.to_string()))))
            }
            other => ModelError::Failed(self.text(&format!("cannot be called: {}", quoted(&other.to_string())))),
        }
    }

    fn http(&self, status: StatusCode, body: &str, headers: &HeaderMap) -> ModelError {
        let json = serde_json::from_str(body).unwrap_or_else(|_| Value::String(body.to_owned()));
        self.said(said(Some(status), &json, Some(headers)))
    }

    fn said(&self, said: Said) -> ModelError {
        let Said { status, kind, message, retry_after } = said;
        let code = status.map_or(0, |status| status.as_u16());
        let shown = match status {
            Some(status) => format!("answered {}: {}", status.as_u16(), quoted(&message)),
            None => format!("broke off: {}", quoted(&message)),
        };
        let text = self.text(&shown);
        let names = |words: &[&str]| words.iter().any(|word| kind.contains(word) || message.contains(word));
        if matches!(code, 401 | 403) || names(&["API_KEY_INVALID", "API key not valid", "authentication_error"]) {
            let status = status.map(|status| format!(" ({})", status.as_u16())).unwrap_or_default();
            return ModelError::Unauthorized(self.text(&format!("refused the key{status}: {}", quoted(&message))));
        }
        if names(&["insufficient_quota", "billing_hard_limit"]) || code == 402 {
            return ModelError::Failed(text);
        }
        if code == 413
            || names(&["context_length_exceeded", "prompt is too long", "maximum context length"])
            || names(&["exceeds the maximum number of tokens", "exceeds the context window"])
        {
            return ModelError::ContextFull(text);
        }
        // Within a stream there is no status, only the provider's text.
        let in_stream = status.is_none();
        if code == 429 || in_stream && names(&["rate_limit", "RESOURCE_EXHAUSTED"]) {
            return ModelError::RateLimited { text, retry_after };
        }
        let is_theirs = matches!(code, 408 | 409 | 500..=599);
        let theirs = ["overloaded", "api_error", "server_error", "INTERNAL", "UNAVAILABLE"];
        if is_theirs || in_stream && names(&theirs) {
            return ModelError::Overloaded { text, retry_after };
        }
        ModelError::Failed(text)
    }

    /// Converts an error of the connection: not reached, timed out or broken.
    fn broken(&self, error: &(dyn std::error::Error + 'static)) -> ModelError {
        if let Some(genai::Error::HttpError { status, body, headers, .. }) = error.downcast_ref() {
            return self.http(*status, body, headers);
        }
        if let Some(timeout) = error.downcast_ref::<StreamTimeout>() {
            let (after, silence) = match timeout {
                StreamTimeout::Headers => (self.timeouts.first_byte, "did not answer within"),
                StreamTimeout::Read => (self.timeouts.idle, "sent nothing for"),
            };
            let text = self.text(&format!("{silence} {}", seconds(after)));
            return ModelError::TimedOut { text, after };
        }
        if let Some(error) = error.downcast_ref::<reqwest::Error>()
            && error.is_connect()
        {
            return ModelError::Cut(self.text(&format!("cannot be reached: {}", quoted(&innermost(error)))));
        }
        self.cut()
    }

    fn text(&self, said: &str) -> String {
        self.key.masked(&format!("{} {said}", self.provider))
    }
}

fn said(status: Option<StatusCode>, body: &Value, headers: Option<&HeaderMap>) -> Said {
    // Anthropic and OpenAI: {"error":{"type","message","code"}}; Gemini: a list of, or one, {"error":{"status",
    // "message","details"}}; Ollama: {"error":"text"}; in a stream, what is within `error`.
    let body = body.get(0).unwrap_or(body);
    let error = body.get("error").unwrap_or(body);
    let word = |name: &str| error.get(name).and_then(Value::as_str).unwrap_or_default();
    let message = error.get("message").and_then(Value::as_str).or_else(|| error.as_str()).unwrap_or("no reason given");
    let details = error.get("details").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    let reasons: Vec<&str> = details.iter().filter_map(|detail| detail.get("reason")?.as_str()).collect();
    let kind = format!("{} {} {} {}", word("type"), word("code"), word("status"), reasons.join(" "));
    let delay = details.iter().find_map(|detail| detail.get("retryDelay")?.as_str());
    let retry_after = headers.and_then(retry_after).or_else(|| in_seconds(delay?.strip_suffix('s')?));
    Said { status, kind, message: message.to_owned(), retry_after }
}

/// Returns how long the provider asks to wait before a retry, if its headers say so.
fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let header = |name: &str| headers.get(name)?.to_str().ok().map(str::trim);
    if let Some(millis) = header("retry-after-ms").and_then(|text| text.parse::<u64>().ok()) {
        return Some(Duration::from_millis(millis));
    }
    let text = header(RETRY_AFTER.as_str())?;
    in_seconds(text).or_else(|| {
        // A date is relative to the server's clock.
        let moment = |text: &str| rfc2822::DateTimeParser::new().parse_timestamp(text).ok();
        let (until, now) = (moment(text)?, moment(header(DATE.as_str())?)?);
        Some(until.duration_since(now).try_into().unwrap_or_default())
    })
}

fn in_seconds(text: &str) -> Option<Duration> {
    Duration::try_from_secs_f64(text.parse().ok()?).ok()
}

fn quoted(text: &str) -> String {
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let end = line.floor_char_boundary(QUOTED_MAX);
    if end < line.len() { format!("{}...", &line[..end]) } else { line }
}

/// Returns the innermost cause: the errors around it only repeat the address.
fn innermost(error: &dyn std::error::Error) -> String {
    let mut cause = error;
    while let Some(next) = cause.source() {
        cause = next;
    }
    cause.to_string()
}

fn seconds(duration: Duration) -> String {
    if duration.subsec_millis() == 0 {
        format!("{} s", duration.as_secs())
    } else {
        format!("{} ms", duration.as_millis())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
        pairs.iter().map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap())).collect()
    }

    #[test]
    fn retry_after_is_read_from_every_known_header() {
        let check = |pairs: &[(&'static str, &str)], expect: Option<f64>| {
            assert_eq!(retry_after(&headers(pairs)), expect.map(Duration::from_secs_f64), "{pairs:?}");
        };
        check(&[("retry-after", "7")], Some(7.0));
        check(&[("retry-after", "1.5")], Some(1.5));
        check(&[("retry-after-ms", "250"), ("retry-after", "9")], Some(0.25));
        let date = ("date", "Sun, 15 Nov 2026 10:00:00 GMT");
        check(&[("retry-after", "Sun, 15 Nov 2026 11:00:00 GMT"), date], Some(3600.0));
        check(&[("retry-after", "Sun, 15 Nov 2026 09:00:00 GMT"), date], Some(0.0));
        check(&[("retry-after", "Sun, 15 Nov 2026 11:00:00 GMT")], None);
        check(&[("retry-after", "-3")], None);
        check(&[("retry-after", "soon")], None);
        check(&[], None);
    }

    #[test]
    fn error_responses_are_classified_and_never_show_the_key() {
        let timeouts = Timeouts::of("anthropic/x");
        let failures = Failures { provider: "anthropic", key: Secret::new("sk-secret"), timeouts };
        let tell = |status: u16, body: &str| {
            let error = failures.http(StatusCode::from_u16(status).unwrap(), body, &HeaderMap::new());
            assert!(!error.to_string().contains("sk-secret") && !format!("{error:?}").contains("sk-secret"));
            format!("{error:?}").split(['(', ' ']).next().unwrap().to_owned()
        };
        let check = |status: u16, body: &str, expect: &str| assert_eq!(tell(status, body), expect, "{status} {body}");
        check(401, r#"{"error":{"message":"wrong key: sk-secret"}}"#, "Unauthorized");
        check(
            400,
            r#"{"error":{"status":"INVALID_ARGUMENT","details":[{"reason":"API_KEY_INVALID"}]}}"#,
            "Unauthorized",
        );
        check(429, r#"{"error":{"type":"rate_limit_error","message":"slow"}}"#, "RateLimited");
        check(429, r#"{"error":{"code":"insufficient_quota","message":"pay"}}"#, "Failed");
        check(529, r#"{"error":{"type":"overloaded_error"}}"#, "Overloaded");
        check(502, "<html>bad gateway</html>", "Overloaded");
        check(400, r#"{"error":{"code":"context_length_exceeded","message":"long"}}"#, "ContextFull");
        check(
            400,
            r#"{"error":{"type":"invalid_request_error","message":"prompt is too long: 9 > 8"}}"#,
            "ContextFull",
        );
        check(400, r#"{"error":{"type":"invalid_request_error","message":"no such thing"}}"#, "Failed");
        check(404, r#"{"error":"model 'x' not found"}"#, "Failed");
        check(500, "", "Overloaded");
    }

    #[test]
    fn the_retry_delay_of_gemini_is_read_from_the_body() {
        let body = serde_json::json!([{"error": {"code": 429, "status": "RESOURCE_EXHAUSTED", "message": "quota",
            "details": [{"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "34.5s"}]}}]);
        assert_eq!(said(None, &body, None).retry_after, Some(Duration::from_millis(34_500)));
    }
}
