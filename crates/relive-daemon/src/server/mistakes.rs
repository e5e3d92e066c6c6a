//! Rewrites errors of serde, which name Rust types, in terms of JSON.

/// Returns the message of a parser in plain words.
pub(super) fn plain(message: &str) -> String {
    let message = message.strip_prefix("Failed to deserialize query string: ").unwrap_or(message);
    if let Some(place) = message.strip_prefix("EOF while parsing ").and_then(|rest| rest.split_once(" at line ")) {
        return format!("it ends too early, at line {}", place.1);
    }
    if let Some((name, reason)) = message.rsplit_once(": ")
        && let Some(reason) = number(reason)
    {
        return format!("{name}: {reason}");
    }
    let Some((found, rest)) = message.rsplit_once(", expected ") else { return message.to_owned() };
    let (expected, place) =
        rest.split_once(" at line ").map_or((rest, None), |(expected, place)| (expected, Some(place)));
    let place = place.map(|place| format!(" at line {place}")).unwrap_or_default();
    let found = match found {
        "invalid type: sequence" => "invalid type: list",
        "invalid type: map" => "invalid type: object",
        found => found,
    };
    format!("{found}, expected {}{place}", json_type(expected))
}

/// Returns the words for a type.
fn json_type(expected: &str) -> &str {
    match expected {
        "u8" | "u16" | "u32" | "u64" | "usize" => "a whole number of at least 0",
        "i8" | "i16" | "i32" | "i64" | "isize" => "a whole number",
        "f32" | "f64" => "a number",
        "a sequence" => "a list",
        "a map" => "an object",
        expected if expected.starts_with("struct ") => "an object",
        expected => expected,
    }
}

/// Returns what is wrong with a number in a query, if that is what the parser says.
fn number(reason: &str) -> Option<&'static str> {
    match reason {
        "invalid digit found in string" | "cannot parse integer from empty string" => {
            Some("this is not a whole number")
        }
        "number too large to fit in target type" => Some("this number is too large"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mistakes_are_told_without_types_of_rust() {
        #[derive(Debug, serde::Deserialize)]
        #[expect(dead_code, reason = "nothing of it is ever read")]
        struct Sent {
            step: u32,
            paths: Vec<String>,
        }
        let check = |body: &str, expect: &str| {
            let error = serde_json::from_str::<Sent>(body).unwrap_err();
            assert_eq!(plain(&error.to_string()), expect);
        };
        let number = "expected a whole number of at least 0";
        check(r#"{"step": "x"}"#, &format!("invalid type: string \"x\", {number} at line 1 column 12"));
        check(r#"{"step": -1}"#, &format!("invalid value: integer `-1`, {number} at line 1 column 11"));
        check(r#"{"step": []}"#, &format!("invalid type: list, {number} at line 1 column 9"));
        check(r#"{"paths": 3}"#, "invalid type: integer `3`, expected a list at line 1 column 11");
        check("3", "invalid type: integer `3`, expected an object at line 1 column 1");
        check("", "it ends too early, at line 1 column 0");
        check("{}", "missing field `step` at line 1 column 2");
        check("{]", "key must be a string at line 1 column 2");
        let query = "Failed to deserialize query string: from: invalid digit found in string";
        assert_eq!(plain(query), "from: this is not a whole number");
    }
}
