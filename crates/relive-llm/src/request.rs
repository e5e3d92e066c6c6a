//! Converts a [`Question`] to the request that a provider expects.

use genai::adapter::AdapterKind;
use genai::chat::{
    CacheControl, ChatMessage, ChatRequest, ChatRole, ContentPart, MessageContent, Tool, ToolCall, ToolResponse,
};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::carry::Carry;
use crate::model::{Message, ModelError, Question};

/// The definition of a tool in [`Question::tools`].
#[derive(Deserialize)]
struct Definition {
    name: String,
    #[serde(default)]
    description: Option<String>,
    #[serde(default)]
    input_schema: Option<Value>,
}

/// Builds the request.
pub(crate) fn chat_request(
    question: &Question,
    provider: &str,
    adapter: AdapterKind,
) -> Result<ChatRequest, ModelError> {
    let mut builder = Builder { provider, adapter, messages: Vec::new() };
    for message in question.messages.iter() {
        builder.take(message)?;
    }
    let mut messages = builder.messages;
    if adapter == AdapterKind::Anthropic
        && let Some(last) = messages.last_mut()
    {
        // The next question begins with all of this one, so the provider can read it from its cache.
        last.options = Some(CacheControl::Ephemeral.into());
    }
    let mut request = ChatRequest::new(messages);
    if !question.system_prompt.is_empty() {
        request = request.with_system(question.system_prompt.as_ref());
    }
    let definitions: Vec<Definition> = serde_json::from_str(&question.tools)
        .map_err(|error| ModelError::Failed(format!("the tool definitions are invalid: {error}")))?;
    if !definitions.is_empty() {
        request = request.with_tools(definitions.into_iter().map(tool));
    }
    Ok(request)
}

fn tool(definition: Definition) -> Tool {
    let Definition { name, description, input_schema } = definition;
    let schema = input_schema.unwrap_or_else(|| json!({"type": "object", "properties": {}}));
    let tool = Tool::new(name).with_schema(schema);
    match description {
        Some(description) => tool.with_description(description),
        None => tool,
    }
}

struct Builder<'a> {
    provider: &'a str,
    adapter: AdapterKind,
    messages: Vec<ChatMessage>,
}

impl Builder<'_> {
    fn take(&mut self, message: &Message) -> Result<(), ModelError> {
        match message {
            Message::User { text } => self.push(ChatRole::User, ContentPart::from_text(text)),
            Message::Summary { text } => {
                let text = format!("What was said so far, in brief:\n\n{text}");
                self.push(ChatRole::User, ContentPart::from_text(text));
            }
            Message::Model { thinking, text, calls, carry } => {
                let carry = Carry::read(carry.as_deref(), self.provider);
                let thinking = thinking.as_deref().unwrap_or_default();
                let mut parts = match &carry {
                    Some(carry) => carry.thoughts(self.adapter, thinking),
                    // DeepSeek wants its thinking back while it uses tools.
                    None if self.adapter == AdapterKind::DeepSeek && !calls.is_empty() && !thinking.is_empty() => {
                        vec![ContentPart::ReasoningContent(thinking.to_owned())]
                    }
                    None => Vec::new(),
                };
                // Providers refuse an empty text.
                parts.extend(text.iter().filter(|text| !text.trim().is_empty()).map(ContentPart::from_text));
                for (number, call) in calls.iter().enumerate() {
                    let mut call = ToolCall {
                        call_id: call.id.clone(),
                        fn_name: call.name.clone(),
                        fn_arguments: arguments(&call.args)?,
                        thought_signatures: None,
                    };
                    if let Some(carry) = &carry {
                        carry.sign(number, &mut call);
                    }
                    parts.push(ContentPart::ToolCall(call));
                }
                if parts.iter().any(|part| part.is_text() || part.is_tool_call()) {
                    self.messages.push(ChatMessage::assistant(MessageContent::from_parts(parts)));
                }
            }
            Message::Tool { id, ok, result } => {
                let failed = !ok && self.adapter == AdapterKind::Anthropic;
                let part = if failed {
                    let block = json!({"type": "tool_result", "tool_use_id": id, "content": result, "is_error": true});
                    ContentPart::from_custom(block, None)
                } else {
                    ContentPart::ToolResponse(ToolResponse::new(id, result))
                };
                self.push(ChatRole::Tool, part);
            }
        }
        Ok(())
    }

    /// Appends to the last message if the role is the same, except for results to Ollama, which needs one message each.
    fn push(&mut self, role: ChatRole, part: ContentPart) {
        let alone = role == ChatRole::Tool && self.adapter == AdapterKind::Ollama;
        match self.messages.last_mut() {
            Some(last) if last.role == role && !alone => last.content.push(part),
            Some(_) | None => self.messages.push(ChatMessage::new(role, MessageContent::from_parts(vec![part]))),
        }
    }
}

fn arguments(text: &str) -> Result<Value, ModelError> {
    serde_json::from_str(text)
        .map_err(|error| ModelError::Failed(format!("the arguments of a call are not JSON: {error}")))
}
