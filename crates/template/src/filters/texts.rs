//! Filters that make texts: title, indent, wordcount and tojson.

use super::super::collection::bounded_text;
use super::super::given::Args;
use super::super::run::{MAX_TEXT, Run};
use super::super::texts::{is_break, lower};
use super::super::value::{Evaluated, Value, is_space, raise, text, type_error, unsupported};
use super::super::written::Writer;

pub(super) fn words(of: &str) -> Evaluated {
    if !of.is_ascii() {
        return unsupported("wordcount of a text with letters that are not ASCII is not read");
    }
    let is_word = |char: char| char == '_' || char.is_alphanumeric();
    Ok(Value::Int(of.split(|char| !is_word(char)).filter(|word| !word.is_empty()).count() as i128))
}

/// Jinja's `title`. Words begin after spaces, hyphens and brackets.
pub(super) fn title(of: &str) -> String {
    let is_break = |char: char| is_space(char) || ['-', '(', '{', '[', '<'].contains(&char);
    let capitalized = |word: &str| {
        let mut chars = word.chars();
        let first = chars.next().map(|first| first.to_uppercase().collect::<String>());
        first.unwrap_or_default() + &lower(chars.as_str())
    };
    let parts = of.split_inclusive(is_break).map(|part| {
        let word = part.trim_end_matches(is_break);
        capitalized(word) + &part[word.len()..]
    });
    parts.collect()
}

pub(super) fn to_json(
    _: &mut Run<'_>,
    of: &Value,
    [ascii, indent, separators, sort_keys]: Args,
) -> Evaluated {
    let indent = match (&indent, indent.as_int().map(usize::try_from)) {
        (Value::None, _) => None,
        (Value::Text(indent), _) => Some(indent.to_string()),
        (_, Some(Ok(spaces))) if spaces <= 64 => Some(" ".repeat(spaces)),
        _ => return unsupported("this indent of tojson is not read"),
    };
    let mut writer = Writer::json(indent);
    (writer.ascii, writer.sort_keys) = (ascii.is_true(), sort_keys.is_true());
    if let Some(separators) = separators.some() {
        let [comma, colon] = &separators.items()?[..] else {
            return raise("ValueError", "separators of tojson are two texts");
        };
        (writer.comma, writer.colon) = (comma.to_text()?.to_string(), colon.to_text()?.to_string());
    }
    writer.written(of).map(text)
}

pub(super) fn indent(_: &mut Run<'_>, of: &Value, [width, first, blank, _]: Args) -> Evaluated {
    let spaces = match (width.as_int().map(|spaces| usize::try_from(spaces.max(0))), width.as_text()) {
        (Some(Ok(spaces)), _) if spaces <= MAX_TEXT => " ".repeat(spaces),
        (Some(_), _) => return unsupported("an indent is too large"),
        (None, Some(spaces)) => spaces.to_owned(),
        (None, None) => {
            return type_error(format!("can't multiply sequence by non-int of type '{}'", width.type_name()));
        }
    };
    let Some(whole) = of.as_text() else {
        return type_error(format!("unsupported operand type(s) for +=: '{}' and 'str'", of.type_name()));
    };
    if whole.chars().any(|char| char != '\n' && is_break(char)) {
        return unsupported("indent of a text with other line breaks than \\n is not read");
    }
    bounded_text(whole.matches('\n').count().saturating_mul(spaces.len()))?;
    // Jinja adds a line break, so that an empty last line is kept.
    let lines = whole.split('\n').enumerate().map(|(at, line)| {
        let has_indent = if at == 0 { first.is_true() } else { blank.is_true() || !line.is_empty() };
        if has_indent { spaces.clone() + line } else { line.to_owned() }
    });
    Ok(of.like(lines.collect::<Vec<_>>().join("\n")))
}
