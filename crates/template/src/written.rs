//! Values as texts: as Python's `repr` and as `json.dumps` write them.

use std::fmt::Write as _;

use super::compare::{compare, in_order};
use super::run::MAX_TEXT;
use super::value::{Evaluated, Value, type_error, unsupported};

/// Writes a text with these options.
pub(super) struct Writer {
    /// Whether the text is JSON, not Python's `repr`.
    is_json: bool,
    /// The indentation per level.
    indent: Option<String>,
    pub(super) ascii: bool,
    pub(super) sort_keys: bool,
    pub(super) comma: String,
    pub(super) colon: String,
    depth: usize,
    to: String,
}

/// The text that Python's `repr` makes.
pub(super) fn repr(of: &Value) -> Evaluated<String> {
    let mut writer = Writer::json(None);
    writer.is_json = false;
    writer.written(of)
}

impl Writer {
    /// The default of `json.dumps`.
    pub(super) fn json(indent: Option<String>) -> Self {
        let comma = if indent.is_some() { "," } else { ", " }.to_owned();
        let (colon, to) = (": ".to_owned(), String::new());
        Self { is_json: true, indent, ascii: false, sort_keys: false, comma, colon, depth: 0, to }
    }

    pub(super) fn written(mut self, of: &Value) -> Evaluated<String> {
        self.write(of)?;
        Ok(self.to)
    }

    fn write(&mut self, of: &Value) -> Evaluated<()> {
        if self.to.len() > MAX_TEXT {
            return unsupported(format!("a text of more than {} MiB", MAX_TEXT >> 20));
        }
        match of {
            Value::Text(text) | Value::Safe(text) if self.is_json => self.quote(text),
            Value::Text(text) => self.to.push_str(&repr_text(text)),
            Value::Safe(text) => _ = write!(self.to, "Markup({})", repr_text(text)),
            Value::List(items) => self.all("[", items.iter(), "]", Self::write)?,
            Value::Tuple(items) if self.is_json => self.all("[", items.iter(), "]", Self::write)?,
            Value::Tuple(items) if items.len() == 1 => self.all("(", items.iter(), ",)", Self::write)?,
            Value::Tuple(items) => self.all("(", items.iter(), ")", Self::write)?,
            Value::Dict(dict) => {
                let mut entries: Vec<_> = dict.entries().iter().collect();
                if self.sort_keys {
                    entries = in_order(entries, |(left, _), (right, _)| compare("<", left, right))?;
                }
                self.all("{", entries.into_iter(), "}", Self::entry)?;
            }
            Value::View(name, items) if !self.is_json && *name != "range" => {
                self.to.push_str(name);
                self.all("([", items.iter(), "])", Self::write)?;
            }
            Value::Undefined(_) if !self.is_json => self.to.push_str("Undefined"),
            of => match self.word(of) {
                Some(word) => self.to.push_str(&word),
                None if self.is_json => {
                    return type_error(format!("Object of type {} is not JSON serializable", of.type_name()));
                }
                None => return unsupported(format!("the text of a {} is not written", of.type_name())),
            },
        }
        Ok(())
    }

    fn entry(&mut self, (key, value): &(Value, Value)) -> Evaluated<()> {
        match self.word(key) {
            _ if !self.is_json || key.as_text().is_some() => self.write(key)?,
            Some(word) => self.quote(&word),
            None => {
                let found = key.type_name();
                return type_error(format!("keys must be str, int, float, bool or None, not {found}"));
            }
        }
        self.to.push_str(&self.colon);
        self.write(value)
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
        &mut self,
        begin: &str,
        items: impl ExactSizeIterator<Item = T>,
        end: &str,
        write: fn(&mut Self, T) -> Evaluated<()>,
    ) -> Evaluated<()> {
        let is_empty = items.len() == 0;
        self.to.push_str(begin);
        self.depth += 1;
        for (at, item) in items.enumerate() {
            self.to.push_str(if at == 0 { "" } else { &self.comma });
            self.line();
            write(self, item)?;
        }
        self.depth -= 1;
        if !is_empty {
            self.line();
        }
        self.to.push_str(end);
        Ok(())
    }

    /// Begins a line, if there is an indentation.
    fn line(&mut self) {
        if let Some(indent) = &self.indent {
            self.to.push('\n');
            (0..self.depth).for_each(|_| self.to.push_str(indent));
        }
    }

    /// Writes a text as JSON does.
    fn quote(&mut self, text: &str) {
        let to = &mut self.to;
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
                char if self.ascii && !(' '..='~').contains(&char) => {
                    for unit in char.encode_utf16(&mut [0; 2]) {
                        _ = write!(to, "\\u{unit:04x}");
                    }
                }
                char => to.push(char),
            }
        }
        to.push('"');
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
        match char {
            '\n' => to.push_str("\\n"),
            '\r' => to.push_str("\\r"),
            '\t' => to.push_str("\\t"),
            '\\' => to.push_str("\\\\"),
            char if char == quote => to.extend(['\\', char]),
            char if is_printable(char) => to.push(char),
            _ if code <= 0xFF => _ = write!(to, "\\x{code:02x}"),
            _ if code <= 0xFFFF => _ = write!(to, "\\u{code:04x}"),
            _ => _ = write!(to, "\\U{code:08x}"),
        }
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
