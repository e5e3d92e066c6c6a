//! A conversation as text, for a model that summarizes it: always short enough for its window.

use relive_llm::Message;

/// The most that is shown of one tool's result or arguments.
const ITEM_MAX: usize = 16 * 1024;
/// The least that is shown: less would be useless.
const ITEM_MIN: usize = 64;
/// How much more is shown of messages and summaries.
const WEIGHT: usize = 8;

/// Returns the conversation in at most about `bytes_max` bytes. Long items lose their middle first, then the oldest are
/// dropped.
pub(super) fn transcript(messages: &[Message], bytes_max: usize) -> String {
    let mut item_max = ITEM_MAX;
    loop {
        let items: Vec<String> = messages.iter().map(|message| show(message, item_max)).collect();
        let total: usize = items.iter().map(String::len).sum();
        if total <= bytes_max {
            return items.concat();
        }
        if item_max > ITEM_MIN {
            item_max /= 2;
            continue;
        }
        let mut left = bytes_max;
        let newest = items.iter().rev().take_while(|item| {
            left = left.saturating_sub(item.len());
            left > 0
        });
        let first = items.len() - newest.count();
        return format!("[{first} earlier messages are left out]\n\n{}", items[first..].concat());
    }
}

fn show(message: &Message, item_max: usize) -> String {
    let spoken_max = item_max.saturating_mul(WEIGHT);
    match message {
        Message::User { text } => format!("[user]\n{}\n\n", shorten(text, spoken_max)),
        Message::Summary { text } => format!("[earlier, in brief]\n{}\n\n", shorten(text, spoken_max)),
        Message::Model { thinking: _, text, calls, carry: _ } => {
            let mut shown = format!("[agent]\n{}\n", shorten(text.as_deref().unwrap_or_default(), spoken_max));
            for call in calls {
                shown.push_str(&format!("calls {} {}\n", call.name, shorten(&call.args, item_max)));
            }
            shown + "\n"
        }
        Message::Tool { id: _, ok, result } => {
            let how = if *ok { "result" } else { "failed" };
            format!("[{how}]\n{}\n\n", shorten(result, item_max))
        }
    }
}

/// Removes the middle of a text, if it is too long.
fn shorten(text: &str, max: usize) -> String {
    if text.len() <= max {
        return text.to_owned();
    }
    let head = &text[..text.floor_char_boundary(max / 2)];
    let tail = &text[text.ceil_char_boundary(text.len() - max / 2)..];
    format!("{head} [... {} bytes left out ...] {tail}", text.len() - head.len() - tail.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn result(bytes: usize) -> Message {
        Message::Tool { id: "c".to_owned(), ok: true, result: "é".repeat(bytes / 2) }
    }

    #[test]
    fn a_transcript_fits_its_limit_and_keeps_user_messages_longest() {
        let user = Message::User { text: "do this ".repeat(50) };
        let messages: Vec<Message> = std::iter::once(user).chain((0..20).map(|_| result(10_000))).collect();
        for bytes_max in [usize::MAX, 100_000, 10_000, 6000] {
            let shown = transcript(&messages, bytes_max);
            assert!(shown.len() <= bytes_max, "{} of {bytes_max}", shown.len());
            assert!(shown.contains(&"do this ".repeat(50)), "{bytes_max}");
            assert_eq!(shown.matches("[result]").count(), 20);
        }
        let shown = transcript(&messages, 1000);
        assert!(shown.len() <= 1100 && shown.starts_with('[') && shown.contains("left out"), "{shown}");
    }
}
