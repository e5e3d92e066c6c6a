//! Forms that an MCP server or an ACP agent wants a person to fill in (elicitation), as far as one line can answer them.

use std::fmt;

use serde_json::{Value, json};

/// The answer that declines a form. It is proposed with every form.
pub const DECLINE: &str = "(decline)";

/// The name of a form among the calls of an agent.
pub const FORM_TOOL: &str = "elicitation";

/// More than any form has; a tree of a longer text would take much memory.
const MAX_BYTES: usize = 256 << 10;
/// The longest value that is offered as a choice, as for every question.
const CHOICE_MAX: usize = 200;
/// How many choices have a number, with the one that declines.
const CHOICES_MAX: usize = 9;

/// A form with at most one field.
#[derive(Debug, Clone, PartialEq)]
pub struct Form {
    message: String,
    /// The MCP server that asks; ACP agents ask for themselves.
    server: Option<String>,
    field: Option<Field>,
}

#[derive(Debug, Clone, PartialEq)]
struct Field {
    name: String,
    /// What it is for, in the words of the form.
    about: Option<String>,
    kind: Kind,
}

#[derive(Debug, Clone, PartialEq)]
enum Kind {
    Text(Bounds<usize>),
    Integer(Bounds<f64>),
    Number(Bounds<f64>),
    YesNo,
    /// The values, each with the name that is shown.
    OneOf(Vec<(String, Value)>),
}

/// The least and the most that a number, or the length of a text in characters, may be.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Bounds<T> {
    least: Option<T>,
    most: Option<T>,
}

impl<T: PartialOrd + fmt::Display> Bounds<T> {
    fn contains(&self, value: &T) -> bool {
        self.least.as_ref().is_none_or(|least| value >= least) && self.most.as_ref().is_none_or(|most| value <= most)
    }

    /// Returns what is within the bounds, after a space.
    fn words(&self) -> String {
        match (&self.least, &self.most) {
            (None, None) => String::new(),
            (Some(least), None) => format!(" of at least {least}"),
            (None, Some(most)) => format!(" of at most {most}"),
            (Some(least), Some(most)) => format!(" from {least} to {most}"),
        }
    }
}

/// The reason why a form cannot be answered here.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum UnfitForm {
    #[error("it has {0} fields")]
    Fields(usize),
    #[error("it wants an address to be opened: {0}")]
    Address(String),
    #[error("its field `{0}` is neither a text, a number, a choice nor yes or no")]
    Field(String),
    #[error("it is not a form that can be read")]
    Unreadable,
}

/// An answer that does not fit, with the answers that do.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("it can only be answered with: {expected}")]
pub struct UnfitAnswer {
    expected: String,
}

/// What an answer does with a form.
#[derive(Debug, Clone, PartialEq)]
pub enum Filled {
    /// The content that is sent.
    Accepted(Value),
    Declined,
}

impl Form {
    /// Reads the request for a form: `message`, and `requestedSchema` or, from claude, `requested_schema`.
    pub fn read(request: &str) -> Result<Self, UnfitForm> {
        let small = Some(request).filter(|request| request.len() <= MAX_BYTES);
        let value = small.and_then(|request| serde_json::from_str(request).ok()).ok_or(UnfitForm::Unreadable)?;
        Self::of(&value)
    }

    /// Reads the request for a form that is parsed already.
    pub fn of(request: &Value) -> Result<Self, UnfitForm> {
        if let Some(address) = request["url"].as_str() {
            return Err(UnfitForm::Address(address.chars().take(CHOICE_MAX).collect()));
        }
        let schema = [&request["requestedSchema"], &request["requested_schema"]];
        let schema = schema.into_iter().find(|schema| schema.is_object()).ok_or(UnfitForm::Unreadable)?;
        let fields = schema["properties"].as_object();
        let field = match fields.map_or(0, serde_json::Map::len) {
            0 => None,
            1 => fields
                .and_then(|fields| fields.iter().next())
                .map(|(name, field)| read_field(name, field))
                .transpose()?,
            more => return Err(UnfitForm::Fields(more)),
        };
        let server = [&request["serverName"], &request["mcp_server_name"]];
        Ok(Self {
            message: request["message"].as_str().unwrap_or_default().to_owned(),
            server: server.into_iter().find_map(|server| server.as_str().map(str::to_owned)),
            field,
        })
    }

    /// Returns the question that a person reads.
    #[must_use]
    pub fn question(&self) -> String {
        let mut lines = vec![self.message.clone()];
        if let Some(Field { name, about, kind }) = &self.field {
            let about = about.as_ref().map(|about| format!(": {about}")).unwrap_or_default();
            let kind = kind.words().map(|kind| format!(" ({kind})")).unwrap_or_default();
            lines.push(format!("{name}{about}{kind}"));
        }
        if let Some(Field { kind: Kind::OneOf(values), .. }) = &self.field
            && values.len() >= CHOICES_MAX
        {
            let names: Vec<&str> = values.iter().map(|(name, _)| name.as_str()).collect();
            lines.push(format!("one of: {}", names.join(", ")));
        }
        lines.extend(self.server.as_ref().map(|server| format!("(asked by the MCP server {server})")));
        lines.join("\n")
    }

    /// Returns the answers that are proposed. The last one declines.
    #[must_use]
    pub fn choices(&self) -> Vec<String> {
        let named = match self.field.as_ref().map(|field| &field.kind) {
            None => vec!["accept".to_owned()],
            Some(Kind::Text(_) | Kind::Integer(_) | Kind::Number(_)) => Vec::new(),
            Some(Kind::YesNo) => vec!["yes".to_owned(), "no".to_owned()],
            Some(Kind::OneOf(values)) => values.iter().map(|(name, _)| name.clone()).collect(),
        };
        named.into_iter().take(CHOICES_MAX - 1).chain([DECLINE.to_owned()]).collect()
    }

    /// Fills the form in. Fails with what is expected if the answer is not that.
    pub fn fill(&self, answer: &str) -> Result<Filled, UnfitAnswer> {
        let word = answer.trim();
        if word == DECLINE {
            return Ok(Filled::Declined);
        }
        let Some(field) = &self.field else {
            let accepts = ["accept", "yes"].iter().any(|accept| word.eq_ignore_ascii_case(accept));
            return accepts.then(|| Filled::Accepted(json!({}))).ok_or_else(|| self.unfit());
        };
        let value = match &field.kind {
            Kind::Text(length) => length.contains(&answer.chars().count()).then(|| Value::from(answer)),
            Kind::Integer(bounds) => {
                #[expect(clippy::cast_precision_loss, reason = "the bounds are numbers of JSON")]
                let fits = |number: &i64| bounds.contains(&(*number as f64));
                word.parse::<i64>().ok().filter(fits).map(Value::from)
            }
            Kind::Number(bounds) => {
                let fits = |number: &f64| number.is_finite() && bounds.contains(number);
                word.parse::<f64>().ok().filter(fits).map(Value::from)
            }
            Kind::YesNo => match word.to_ascii_lowercase().as_str() {
                "yes" | "y" | "true" => Some(Value::from(true)),
                "no" | "n" | "false" => Some(Value::from(false)),
                _ => None,
            },
            Kind::OneOf(values) => {
                let by_name = values.iter().find(|(name, _)| name == word);
                by_name.or_else(|| values.iter().find(|(_, value)| value == word)).map(|(_, value)| value.clone())
            }
        };
        let content = |value| Filled::Accepted(Value::Object([(field.name.clone(), value)].into_iter().collect()));
        value.map(content).ok_or_else(|| self.unfit())
    }

    fn unfit(&self) -> UnfitAnswer {
        let names: Vec<String> = match self.field.as_ref().map(|field| &field.kind) {
            None => vec!["accept".to_owned()],
            Some(Kind::OneOf(values)) => values.iter().map(|(name, _)| name.clone()).collect(),
            Some(Kind::YesNo) => vec!["yes".to_owned(), "no".to_owned()],
            Some(kind @ (Kind::Text(_) | Kind::Integer(_) | Kind::Number(_))) => kind.words().into_iter().collect(),
        };
        UnfitAnswer { expected: names.into_iter().chain([DECLINE.to_owned()]).collect::<Vec<_>>().join(", ") }
    }
}

impl Kind {
    /// Returns what a person has to type, unless that is any text or one of the choices.
    fn words(&self) -> Option<String> {
        match self {
            Self::Text(Bounds { least: None, most: None }) | Self::OneOf(_) | Self::YesNo => None,
            Self::Text(length) => Some(format!("a text with a length{}", length.words())),
            Self::Integer(bounds) => Some(format!("a whole number{}", bounds.words())),
            Self::Number(bounds) => Some(format!("a number{}", bounds.words())),
        }
    }
}

fn read_field(name: &str, field: &Value) -> Result<Field, UnfitForm> {
    let unfit = || UnfitForm::Field(name.chars().take(CHOICE_MAX).collect());
    let bounds = Bounds { least: field["minimum"].as_f64(), most: field["maximum"].as_f64() };
    let kind = match field["type"].as_str() {
        Some("string") => {
            let length = |name: &str| field[name].as_u64().and_then(|length| usize::try_from(length).ok());
            let text = || Kind::Text(Bounds { least: length("minLength"), most: length("maxLength") });
            values_of(field).map_or_else(|| Ok(text()), |values| values.map(Kind::OneOf).ok_or_else(unfit))?
        }
        Some("boolean") => Kind::YesNo,
        Some("integer") => Kind::Integer(bounds),
        Some("number") => Kind::Number(bounds),
        Some(_) | None => return Err(unfit()),
    };
    let about = [&field["title"], &field["description"]].into_iter().filter_map(|text| text.as_str());
    let about = about.collect::<Vec<_>>().join(": ");
    Ok(Field { name: name.to_owned(), about: (!about.is_empty()).then_some(about), kind })
}

/// Returns the values that a text may have; `Some(None)` if they cannot be shown as choices.
fn values_of(field: &Value) -> Option<Option<Vec<(String, Value)>>> {
    let named: Vec<(Option<&str>, Option<&str>)> = if let Some(values) = field["enum"].as_array() {
        let names = field["enumNames"].as_array();
        let name_of = |place: usize| names.and_then(|names| names.get(place)?.as_str());
        values.iter().enumerate().map(|(place, value)| (name_of(place), value.as_str())).collect()
    } else {
        let values = field["oneOf"].as_array().or_else(|| field["anyOf"].as_array())?;
        values.iter().map(|value| (value["title"].as_str(), value["const"].as_str())).collect()
    };
    let shown = |(name, value): (Option<&str>, Option<&str>)| {
        let value = value?;
        let name = name.unwrap_or(value).trim();
        let fits = !name.is_empty() && name.len() <= CHOICE_MAX && name != DECLINE;
        fits.then(|| (name.to_owned(), Value::from(value)))
    };
    let values: Option<Vec<_>> = named.into_iter().map(shown).collect();
    Some(values.filter(|values| !values.is_empty()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn form(fields: Value) -> Result<Form, UnfitForm> {
        let request = json!({"message": "Deploy?", "serverName": "ops",
            "requestedSchema": {"type": "object", "properties": fields}});
        Form::read(&request.to_string())
    }

    #[test]
    fn a_form_of_one_field_is_filled_in_with_one_line() {
        let check = |field: Value, choices: &[&str], answer: &str, expect: Result<Value, &str>| {
            let form = form(json!({ "x": field })).unwrap();
            assert_eq!(form.choices().split_last().unwrap().1, choices);
            let filled = match form.fill(answer) {
                Ok(Filled::Accepted(content)) => Ok(content["x"].clone()),
                Ok(Filled::Declined) => unreachable!("declined"),
                Err(unfit) => Err(unfit.to_string()),
            };
            assert_eq!(filled, expect.map_err(|text| format!("it can only be answered with: {text}")), "{field}");
            assert_eq!(form.fill(" (decline)\n"), Ok(Filled::Declined));
        };
        check(json!({"type": "string"}), &[], " my words ", Ok(json!(" my words ")));
        check(json!({"type": "boolean"}), &["yes", "no"], "No", Ok(json!(false)));
        check(json!({"type": "boolean"}), &["yes", "no"], "maybe", Err("yes, no, (decline)"));
        check(json!({"type": "integer"}), &[], "7", Ok(json!(7)));
        check(json!({"type": "integer"}), &[], "7.5", Err("a whole number, (decline)"));
        check(json!({"type": "number"}), &[], "7.5", Ok(json!(7.5)));
        check(json!({"type": "number"}), &[], "NaN", Err("a number, (decline)"));
        let percent = json!({"type": "integer", "minimum": 1, "maximum": 100});
        check(percent.clone(), &[], "100", Ok(json!(100)));
        check(percent.clone(), &[], "101", Err("a whole number from 1 to 100, (decline)"));
        check(percent, &[], "0", Err("a whole number from 1 to 100, (decline)"));
        let positive = json!({"type": "number", "minimum": 0.5});
        check(positive, &[], "0.4", Err("a number of at least 0.5, (decline)"));
        let short = json!({"type": "string", "minLength": 1, "maxLength": 3});
        check(short.clone(), &[], "äöü", Ok(json!("äöü")));
        check(short.clone(), &[], "four", Err("a text with a length from 1 to 3, (decline)"));
        check(short, &[], "", Err("a text with a length from 1 to 3, (decline)"));
        let colours = json!({"type": "string", "enum": ["r", "g"], "enumNames": ["red", "green"]});
        check(colours.clone(), &["red", "green"], "green", Ok(json!("g")));
        check(colours.clone(), &["red", "green"], "r", Ok(json!("r")));
        check(colours, &["red", "green"], "blue", Err("red, green, (decline)"));
        let titled = json!({"type": "string", "oneOf": [{"const": "1", "title": "One"}, {"const": "2"}]});
        check(titled, &["One", "2"], "One", Ok(json!("1")));
    }

    #[test]
    fn a_form_without_fields_is_accepted_or_declined() {
        let form = form(json!({})).unwrap();
        assert_eq!(
            (form.question().as_str(), form.choices()),
            ("Deploy?\n(asked by the MCP server ops)", vec!["accept".to_owned(), DECLINE.to_owned()])
        );
        assert_eq!(form.fill("accept"), Ok(Filled::Accepted(json!({}))));
        assert!(form.fill("perhaps").is_err());
    }

    #[test]
    fn what_cannot_be_answered_in_one_line_is_named() {
        let text = json!({"type": "string"});
        let check = |fields: Value, expect: &str| assert_eq!(form(fields).unwrap_err().to_string(), expect);
        check(json!({"a": text, "b": text}), "it has 2 fields");
        let expect = "its field `a` is neither a text, a number, a choice nor yes or no";
        check(json!({"a": {"type": "array"}}), expect);
        check(json!({"a": {"type": "string", "enum": []}}), expect);
        check(json!({"a": {"type": "string", "enum": ["x".repeat(201)]}}), expect);
        let url = json!({"message": "Log in", "mode": "url", "url": "https://example.org"}).to_string();
        assert_eq!(Form::read(&url).unwrap_err().to_string(), "it wants an address to be opened: https://example.org");
        assert_eq!(Form::read("{}"), Err(UnfitForm::Unreadable));
        assert_eq!(
            Form::read(r#"{"requestedSchema":{"properties":{}},"message":"\ud83d"}"#),
            Err(UnfitForm::Unreadable)
        );
        assert_eq!(Form::read(&" ".repeat(MAX_BYTES + 1)), Err(UnfitForm::Unreadable));
    }

    #[test]
    fn more_values_than_numbers_are_in_the_text() {
        let values: Vec<String> = (1..=12).map(|number| format!("v{number}")).collect();
        let form = form(json!({"x": {"type": "string", "enum": values, "description": "which one"}})).unwrap();
        assert!(form.question().contains("x: which one\none of: v1, v2,"), "{}", form.question());
        assert_eq!((form.choices().len(), form.choices()[8].as_str()), (9, DECLINE));
        assert_eq!(form.fill("v12"), Ok(Filled::Accepted(json!({"x": "v12"}))));
    }
}
