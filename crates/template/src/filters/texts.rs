//! Filters that make texts: title, indent, wordcount and tojson.

use super::super::eval::Given;
use super::super::json::{Style, dump};
use super::super::run::MAX_TEXT;
use super::super::texts::{is_break, lower};
use super::super::value::{Value, is_space, raised, text, unsupported};
use super::Done;

/// The text `made`. It is marked as safe if `of` is.
pub(super) fn like(of: &Value, made: impl AsRef<str>) -> Value {
    if matches!(of, Value::Safe(_)) { Value::Safe(made.as_ref().into()) } else { text(made) }
}

pub(super) fn words(of: &str) -> usize {
    let is_word = |char: char| char == '_' || char.is_alphanumeric();
    of.split(|char| !is_word(char)).filter(|word| !word.is_empty()).count()
}

/// Jinja's `title`. Words begin after spaces, hyphens and brackets.
pub(super) fn title(of: &str) -> String {
    let is_break = |char: char| is_space(char) || ['-', '(', '{', '[', '<'].contains(&char);
    let (mut to, mut word) = (String::new(), String::new());
    for char in of.chars() {
        if is_break(char) {
            to.push_str(&capitalized_word(&word));
            word.clear();
            to.push(char);
        } else {
            word.push(char);
        }
    }
    to + &capitalized_word(&word)
}

fn capitalized_word(word: &str) -> String {
    let mut chars = word.chars();
    let Some(first) = chars.next() else { return String::new() };
    first.to_uppercase().collect::<String>() + &lower(chars.as_str())
}

pub(super) fn to_json(of: &Value, mut given: Given) -> Done {
    let mut style = Style {
        ascii: given.take(0, "ensure_ascii").is_some_and(|ascii| ascii.is_true()),
        ..Style::default()
    };
    style.indent = match given.take(1, "indent") {
        None | Some(Value::None) => None,
        Some(Value::Text(indent)) => Some(indent.to_string()),
        Some(indent) => match indent.as_int().map(usize::try_from) {
            Some(Ok(spaces)) if spaces <= 64 => Some(" ".repeat(spaces)),
            _ => return unsupported("this indent of tojson is not read"),
        },
    };
    if let Some(separators) = given.take(2, "separators").filter(|of| !matches!(of, Value::None)) {
        let parts = separators.items()?;
        let [comma, colon] = &parts[..] else {
            return Err(raised("ValueError", "separators of tojson are two texts"));
        };
        style.separators = Some((comma.to_text()?.to_string(), colon.to_text()?.to_string()));
    }
    style.sort_keys = given.take(3, "sort_keys").is_some_and(|sorts| sorts.is_true());
    given.end("tojson", 4)?;
    Ok(text(dump(of, &style)?))
}

pub(super) fn indent(of: &Value, mut given: Given) -> Done {
    let width = given.take(0, "width").unwrap_or(Value::Int(4));
    let first = given.take(1, "first").is_some_and(|first| first.is_true());
    let blank = given.take(2, "blank").is_some_and(|blank| blank.is_true());
    given.end("indent", 3)?;
    let spaces = match (width.as_int().map(|spaces| usize::try_from(spaces.max(0))), width.as_text()) {
        (Some(Ok(spaces)), _) if spaces <= MAX_TEXT => " ".repeat(spaces),
        (Some(_), _) => return unsupported("an indent is too large"),
        (None, Some(spaces)) => spaces.to_owned(),
        (None, None) => {
            let why = format!("can't multiply sequence by non-int of type '{}'", width.type_name());
            return Err(raised("TypeError", why));
        }
    };
    let Some(whole) = of.as_text() else {
        let why = format!("unsupported operand type(s) for +=: '{}' and 'str'", of.type_name());
        return Err(raised("TypeError", why));
    };
    if whole.chars().any(|char| char != '\n' && is_break(char)) {
        return unsupported("indent of a text with other line breaks than \\n is not read");
    }
    if whole.matches('\n').count().saturating_mul(spaces.len()) > MAX_TEXT {
        return unsupported("a text is longer than 64 MiB");
    }
    // Jinja adds a line break, so that an empty last line is kept.
    let mut to = String::new();
    for (at, line) in whole.split('\n').enumerate() {
        if at > 0 {
            to.push('\n');
        }
        if (at > 0 && (blank || !line.is_empty())) || (at == 0 && first) {
            to.push_str(&spaces);
        }
        to.push_str(line);
    }
    Ok(like(of, to))
}
