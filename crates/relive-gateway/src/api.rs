//! The wire formats that are counted, and the errors of each.

use hyper::Method;
use serde::{Deserialize, Serialize};
use serde_json::json;

/// A wire format.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Api {
    Anthropic,
    Responses,
    Chat,
    Gemini,
}

impl Api {
    /// Returns the format of a request by its path; none if it is no model call.
    pub(crate) fn of(path: &str) -> Option<Self> {
        let path = path.trim_end_matches('/');
        if gemini_model(path).is_some() {
            Some(Self::Gemini)
        } else if path.ends_with("/messages") {
            Some(Self::Anthropic)
        } else if path.ends_with("/responses") || path.ends_with("/responses/compact") {
            Some(Self::Responses)
        } else if path.ends_with("/chat/completions") {
            Some(Self::Chat)
        } else {
            None
        }
    }

    /// Returns whether a request that is no model call is passed on. Reading costs nothing; of the rest only what the CLIs
    /// ask for and providers do not bill. Anything else could be a model call in another shape.
    pub(crate) fn is_free(method: &Method, path: &str) -> bool {
        let path = path.trim_end_matches('/');
        let counts = path.ends_with("/messages/count_tokens")
            || path.rsplit_once("/models/").is_some_and(|(_, call)| call.ends_with(":countTokens"));
        matches!(*method, Method::GET | Method::HEAD) || (*method == Method::POST && counts)
    }

    /// Returns the provider, as prices name it.
    #[must_use]
    pub fn provider(self) -> &'static str {
        match self {
            Self::Anthropic => "anthropic",
            Self::Responses | Self::Chat => "openai",
            Self::Gemini => "gemini",
        }
    }

    /// Returns the status and the body of a refusal that the agent does not try again: 402, which codex would repeat five
    /// times, so that it gets the error of an account without credit.
    pub(crate) fn over_budget(self, message: &str) -> (u16, String) {
        match self {
            Self::Anthropic => (402, self.error(402, "billing_error", message)),
            Self::Responses => (429, self.error(429, "insufficient_quota", message)),
            Self::Chat => (402, self.error(402, "insufficient_quota", message)),
            Self::Gemini => (402, self.error(402, "RESOURCE_EXHAUSTED", message)),
        }
    }

    /// Returns the body of an error.
    pub(crate) fn error(self, status: u16, kind: &str, message: &str) -> String {
        let body = match self {
            Self::Anthropic => json!({"type": "error", "error": {"type": kind, "message": message}}),
            Self::Responses | Self::Chat => {
                json!({"error": {"message": message, "type": kind, "param": null, "code": kind}})
            }
            Self::Gemini => json!({"error": {"code": status, "message": message, "status": kind}}),
        };
        body.to_string()
    }
}

/// Returns the model of a call to Gemini, which its path names.
pub(crate) fn gemini_model(path: &str) -> Option<&str> {
    let (_, call) = path.rsplit_once("/models/")?;
    let (model, method) = call.split_once(':')?;
    matches!(method, "generateContent" | "streamGenerateContent").then_some(model)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_model_calls_are_counted() {
        for (path, api) in [
            ("/v1/messages", Some(Api::Anthropic)),
            ("/v1/messages/count_tokens", None),
            ("/v1/responses", Some(Api::Responses)),
            ("/v1/responses/compact", Some(Api::Responses)),
            ("/v1/chat/completions", Some(Api::Chat)),
            ("/v1/models", None),
            ("/v1beta/models/gemini-3-pro:streamGenerateContent", Some(Api::Gemini)),
            ("/v1beta/models/gemini-3-pro:generateContent", Some(Api::Gemini)),
            ("/v1beta/models/gemini-3-pro:countTokens", None),
            ("/", None),
        ] {
            assert_eq!(Api::of(path), api, "{path}");
        }
    }

    #[test]
    fn a_refusal_has_the_shape_of_the_provider() {
        let (status, body) = Api::Anthropic.over_budget("used up");
        let body: serde_json::Value = serde_json::from_str(&body).unwrap();
        assert_eq!((status, &body["error"]["type"]), (402, &json!("billing_error")));
        let (status, body) = Api::Responses.over_budget("used up");
        let body: serde_json::Value = serde_json::from_str(&body).unwrap();
        assert_eq!((status, &body["error"]["code"]), (429, &json!("insufficient_quota")));
        let (status, body) = Api::Chat.over_budget("used up");
        let body: serde_json::Value = serde_json::from_str(&body).unwrap();
        assert_eq!((status, &body["error"]["code"]), (402, &json!("insufficient_quota")));
        let (status, body) = Api::Gemini.over_budget("used up");
        let body: serde_json::Value = serde_json::from_str(&body).unwrap();
        let expect = json!({"code": 402, "message": "used up", "status": "RESOURCE_EXHAUSTED"});
        assert_eq!((status, &body["error"]), (402, &expect));
    }
}
