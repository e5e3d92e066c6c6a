//! A conversation that grows at its end and is shared, not copied.

use std::ops::Deref;
use std::sync::Arc;

use crate::model::Message;

/// The messages of a conversation, oldest first.
///
/// A clone shares them. As long as clones are dropped before the next message arrives, as those in a
/// [`crate::Question`] are dropped with the answer, a message is added in place; otherwise the messages are copied
/// once.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Conversation {
    messages: Arc<Vec<Message>>,
    bytes: usize,
}

impl Conversation {
    /// Adds a message at the end.
    pub fn push(&mut self, message: Message) {
        self.bytes += message.bytes();
        Arc::make_mut(&mut self.messages).push(message);
    }

    /// Adds messages at the end.
    pub fn append(&mut self, messages: &mut Vec<Message>) {
        messages.drain(..).for_each(|message| self.push(message));
    }

    /// Returns the length of all messages in bytes, which is kept up to date.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bytes
    }
}

impl Deref for Conversation {
    type Target = [Message];

    fn deref(&self) -> &[Message] {
        &self.messages
    }
}

impl From<Vec<Message>> for Conversation {
    fn from(messages: Vec<Message>) -> Self {
        let bytes = messages.iter().map(Message::bytes).sum();
        Self { messages: Arc::new(messages), bytes }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_added_in_place_once_the_question_is_gone() {
        let mut conversation = Conversation::from(vec![Message::User { text: "one".to_owned() }]);
        let question = conversation.clone();
        assert!(std::ptr::eq(&raw const conversation[0], &raw const question[0]), "shared");
        drop(question);
        conversation.push(Message::User { text: "four".to_owned() });
        let first = Arc::as_ptr(&conversation.messages);
        let question = conversation.clone();
        drop(question);
        conversation.push(Message::User { text: "x".to_owned() });
        assert_eq!(Arc::as_ptr(&conversation.messages), first, "not copied");
        let kept = conversation.clone();
        conversation.append(&mut vec![Message::User { text: "y".to_owned() }]);
        assert_eq!((kept.len(), conversation.len()), (3, 4), "a clone that is kept does not change");
        assert_eq!(conversation.bytes(), "onefourxy".len());
    }
}
