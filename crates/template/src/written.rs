//! Values as texts: as Python's `repr` and as `json.dumps` write them.

use std::fmt::Write as _;

use super::compare::{compare, in_order};
use super::run::MAX_TEXT;
use super::value::{Evaluated, Value, type_error, unsupported};

/// The options of a text.
pub(super) struct Style {
    /// Whether the text is JSON, not Python's `repr`.
    pub(super) is_json: bool,
    /// The indentation per level.
    pub(super) indent: Option<String>,
    pub(super) ascii: bool,
    pub(super) sort_keys: bool,
    pub(super) comma: String,
    pub(super) colon: String,
}

/// The text that Python's `repr` makes.
pub(super) fn repr(of: &Value) -> Evaluated<String> {
    Style { is_json: false, ..Style::json(None) }.written(of)
}

impl Style {
    /// The default of `json.dumps`.
    pub(super) fn json(indent: Option<String>) -> Self {
        let comma = if indent.is_some() { "," } else { ", " }.to_owned();
        Self { is_json: true, indent, ascii: false, sort_keys: false, comma, colon: ": ".to_owned() }
    }

    pub(super) fn written(&self, of: &Value) -> Evaluated<String> {
        let mut to = String::new();
        self.write(of, 0, &mut to)?;
        Ok(to)
    }

    fn write(&self, of: &Value, depth: usize, to: &mut String) -> Evaluated<()> {
        if to.len() > MAX_TEXT {
            return unsupported(format!("a text of more than {} MiB", MAX_TEXT >> 20));
        }
        let item = |item: &Value, to: &mut String| self.write(item, depth + 1, to);
        match of {
            Value::Text(text) | Value::Safe(text) if self.is_json => quote(text, self.ascii, to),
            Value::Text(text) => to.push_str(&repr_text(text)),
            Value::Safe(text) => _ = write!(to, "Markup({})", repr_text(text)),
            Value::List(items) => self.all("[", items.iter(), "]", depth, to, item)?,
            Value::Tuple(items) if self.is_json => self.all("[", items.iter(), "]", depth, to, item)?,
            Value::Tuple(items) => {
                let end = if items.len() == 1 { ",)" } else { ")" };
                self.all("(", items.iter(), end, depth, to, item)?;
            }
            Value::Dict(dict) => {
                let mut entries: Vec<_> = dict.entries().iter().collect();
                if self.sort_keys {
                    entries = in_order(entries, |(left, _), (right, _)| compare("<", left, right))?;
                }
                self.all("{", entries.into_iter(), "}", depth, to, |(key, value), to| {
                    self.key(key, depth + 1, to)?;
                    to.push_str(&self.colon);
                    self.write(value, depth + 1, to)
                })?;
            }
            Value::View(name, items) if !self.is_json && *name != "range" => {
                to.push_str(name);
                self.all("([", items.iter(), "])", depth, to, item)?;
            }
            Value::Undefined(_) if !self.is_json => to.push_str("Undefined"),
            of => match self.word(of) {
                Some(word) => to.push_str(&word),
                None if self.is_json => {
                    return type_error(format!("Object of type {} is not JSON serializable", of.type_name()));
                }
                None => return unsupported(format!("the text of a {} is not written", of.type_name())),
            },
        }
        Ok(())
    }

    fn key(&self, key: &Value, depth: usize, to: &mut String) -> Evaluated<()> {
        match self.word(key) {
            _ if !self.is_json || key.as_text().is_some() => self.write(key, depth, to)?,
            Some(word) => quote(&word, self.ascii, to),
            None => {
                let found = key.type_name();
                return type_error(format!("keys must be str, int, float, bool or None, not {found}"));
            }
        }
        Ok(())
    }

    /// The text of a constant or a number.
    fn word(&self, of: &Value) -> Option<String> {
        let of_two = |json: &str, python: &str| if self.is_json { json } else { python }.to_owned();
        Some(match of {
            Value::None => of_two("null", "None"),
            Value::Bool(true) => of_two("true", "True"),
            Value::Bool(false) => of_two("false", "False"),
            Value::Int(number) => number.to_string(),
            Value::Float(number) if number.is_nan() => of_two("NaN", "nan"),
            Value::Float(f64::INFINITY) => of_two("Infinity", "inf"),
            Value::Float(f64::NEG_INFINITY) => of_two("-Infinity", "-inf"),
            Value::Float(number) => float(*number),
            _ => return None,
        })
    }

    fn all<T>(
        &self,
        begin: &str,
        items: impl ExactSizeIterator<Item = T>,
        end: &str,
        depth: usize,
        to: &mut String,
        write: impl Fn(T, &mut String) -> Evaluated<()>,
    ) -> Evaluated<()> {
        let line = |depth: usize, to: &mut String| {
            if let Some(indent) = &self.indent {
                to.push('\n');
                (0..depth).for_each(|_| to.push_str(indent));
            }
        };
        let is_empty = items.len() == 0;
        to.push_str(begin);
        for (at, item) in items.enumerate() {
            to.push_str(if at == 0 { "" } else { &self.comma });
            line(depth + 1, to);
            write(item, to)?;
        }
        if !is_empty {
            line(depth, to);
        }
        to.push_str(end);
        Ok(())
    }
}

/// A number as Python writes it: the shortest digits, with an exponent below 1e-4 and from 1e16 on.
pub(super) fn float(number: f64) -> String {
    let mut short = format!("{number:e}");
    // If two numbers are equally short and near, Python writes the even one.
    let mantissa = short.split_once('e').map_or("", |(digits, _)| digits);
    let places = mantissa.bytes().filter(u8::is_ascii_digit).count().saturating_sub(1);
    let even = format!("{number:.places$e}");
    if even.parse() == Ok(number) {
        short = even;
    }
    let (digits, exponent) = short.split_once('e').unwrap_or((&short, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    if (-4..16).contains(&exponent) {
        let fraction = (places as i32 - exponent).max(0) as usize;
        let plain = format!("{number:.fraction$}");
        return if plain.contains('.') { plain } else { plain + ".0" };
    }
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{digits}e{sign}{:02}", exponent.unsigned_abs())
}

/// A text as Python's `repr` writes it.
pub(super) fn repr_text(text: &str) -> String {
    let quote = if text.contains('\'') && !text.contains('"') { '"' } else { '\'' };
    let mut to = String::from(quote);
    for char in text.chars() {
        let code = u32::from(char);
        _ = match char {
            '\n' => write!(to, "\\n"),
            '\r' => write!(to, "\\r"),
            '\t' => write!(to, "\\t"),
            '\\' => write!(to, "\\\\"),
            char if char == quote => write!(to, "\\{char}"),
            char if is_printable(char) => write!(to, "{char}"),
            _ if code <= 0xFF => write!(to, "\\x{code:02x}"),
            _ if code <= 0xFFFF => write!(to, "\\u{code:04x}"),
            _ => write!(to, "\\U{code:08x}"),
        };
    }
    to.push(quote);
    to
}

fn is_printable(char: char) -> bool {
    if char.is_ascii() {
        return !char.is_ascii_control();
    }
    // After another character, `escape_debug` escapes only unprintable characters.
    !format!("a{char}").escape_debug().to_string().contains("\\u{")
}

/// Writes a text as JSON does.
fn quote(text: &str, ascii: bool, to: &mut String) {
    to.push('"');
    for char in text.chars() {
        match char {
            '"' => to.push_str("\\\""),
            '\\' => to.push_str("\\\\"),
            '\n' => to.push_str("\\n"),
            '\r' => to.push_str("\\r"),
            '\t' => to.push_str("\\t"),
            '\x08' => to.push_str("\\b"),
            '\x0C' => to.push_str("\\f"),
            '\0'..='\x1F' => _ = write!(to, "\\u{:04x}", u32::from(char)),
            char if ascii && !(' '..='~').contains(&char) => {
                for unit in char.encode_utf16(&mut [0; 2]) {
                    _ = write!(to, "\\u{unit:04x}");
                }
            }
            char => to.push(char),
        }
    }
    to.push('"');
}
