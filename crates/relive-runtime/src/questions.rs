//! The questions of claude and codex, as people read them.

use serde_json::Value;

/// The most choices that are proposed, and the longest, as for a native agent.
const CHOICES_MAX: usize = 9;
const CHOICE_MAX: usize = 200;
/// Told where several things are asked at once.
const ONE_EACH: &str = "(answer each on a line of its own)";
/// Told where several of the choices may be taken.
const SEVERAL: &str = "(several may be chosen, with commas between them)";

/// Told where the agent wants a secret.
const SECRET: &str = "(it asks for a secret: your answer is kept in the journal)";

/// Returns the text and the choices of a question. Where several things are asked at once, the choices are in the text.
pub(crate) fn told(questions: &[Value]) -> (String, Vec<String>) {
    match questions {
        [question] => {
            let lines = std::iter::once(text(question).to_owned()).chain(described(question)).chain(notes(question));
            (lines.collect::<Vec<_>>().join("\n"), labels(question))
        }
        _ => {
            let mut lines = Vec::new();
            for (number, question) in (1..).zip(questions) {
                let labels = labels(question);
                let choices = if labels.is_empty() { String::new() } else { format!(" [{}]", labels.join(", ")) };
                lines.push(format!("{number}. {}{choices}", text(question)));
                lines.extend(described(question).map(|line| format!("   {line}")));
                lines.extend(notes(question).map(|line| format!("   {line}")));
            }
            lines.push(ONE_EACH.to_owned());
            (lines.join("\n"), Vec::new())
        }
    }
}

fn text(question: &Value) -> &str {
    question["question"].as_str().unwrap_or_default()
}

fn options(question: &Value) -> impl Iterator<Item = &Value> {
    question["options"].as_array().into_iter().flatten().take(CHOICES_MAX)
}

fn labels(question: &Value) -> Vec<String> {
    let labels = options(question).filter_map(|option| option["label"].as_str());
    labels.map(|label| label[..label.floor_char_boundary(CHOICE_MAX)].to_owned()).collect()
}

/// Returns a line for each choice that is described.
fn described(question: &Value) -> impl Iterator<Item = String> {
    options(question).filter_map(|option| {
        let (label, description) = (option["label"].as_str()?, option["description"].as_str()?);
        (!description.is_empty()).then(|| format!("{label}: {description}"))
    })
}

/// Returns what is to be known of an answer: claude takes several choices, codex asks for secrets.
fn notes(question: &Value) -> impl Iterator<Item = String> {
    let several = (question["multiSelect"] == true).then(|| SEVERAL.to_owned());
    let secret = (question["isSecret"] == true).then(|| SECRET.to_owned());
    several.into_iter().chain(secret)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn one_question_has_its_choices_and_several_have_them_in_the_text() {
        let colour = json!({"question": "Which colour?", "multiSelect": true,
            "options": [{"label": "red", "description": "warm"}, {"label": "blue"}]});
        let (text, choices) = told(std::slice::from_ref(&colour));
        assert_eq!(text, "Which colour?\nred: warm\n(several may be chosen, with commas between them)");
        assert_eq!(choices, ["red", "blue"]);
        let size = json!({"question": "Which size?"});
        let (text, choices) = told(&[colour, size]);
        assert!(text.starts_with("1. Which colour? [red, blue]\n   red: warm\n"), "{text}");
        assert!(text.ends_with("\n2. Which size?\n(answer each on a line of its own)"), "{text}");
        assert_eq!(choices, Vec::<String>::new());
        assert_eq!(told(&[json!(7)]), (String::new(), Vec::new()));
    }
}
