//! JSON as Python's `json` reads and writes it: keys keep their order, and whole numbers their digits.

use std::fmt::Write as _;
use std::rc::Rc;

use super::collection::in_order;
use super::run::MAX_TEXT;
use super::value::{Dict, Raised, Value, compare, float, list, raised, text, unsupported};

/// Max depth of lists and objects.
const MAX_DEPTH: usize = 128;

/// Parses a JSON text.
pub(crate) fn parse(json: &str) -> Result<Value, String> {
    let mut reader = Reader { rest: json };
    let value = reader.value(0)?;
    reader.space();
    if reader.rest.is_empty() { Ok(value) } else { Err(reader.unexpected()) }
}

struct Reader<'j> {
    rest: &'j str,
}

impl Reader<'_> {
    fn space(&mut self) {
        self.rest = self.rest.trim_start_matches([' ', '\t', '\n', '\r']);
    }

    fn unexpected(&self) -> String {
        let near: String = self.rest.chars().take(20).collect();
        format!("this is no JSON, at {near:?}")
    }

    fn take(&mut self, token: &str) -> bool {
        match self.rest.strip_prefix(token) {
            Some(rest) => {
                self.rest = rest;
                true
            }
            None => false,
        }
    }

    fn value(&mut self, depth: usize) -> Result<Value, String> {
        if depth > MAX_DEPTH {
            return Err(format!("it is nested more than {MAX_DEPTH} times"));
        }
        self.space();
        for (token, value) in
            [("null", Value::None), ("true", Value::Bool(true)), ("false", Value::Bool(false))]
        {
            if self.take(token) {
                return Ok(value);
            }
        }
        match self.rest.as_bytes().first() {
            Some(b'"') => self.string().map(text),
            Some(b'[') => {
                let mut items = Vec::new();
                self.each('[', ']', |reader| {
                    items.push(reader.value(depth + 1)?);
                    Ok(())
                })?;
                Ok(list(items))
            }
            Some(b'{') => {
                let mut dict = Dict::default();
                self.each('{', '}', |reader| {
                    let key = reader.string()?;
                    reader.space();
                    if !reader.take(":") {
                        return Err(reader.unexpected());
                    }
                    dict.set(text(key), reader.value(depth + 1)?);
                    Ok(())
                })?;
                Ok(Value::Dict(Rc::new(dict)))
            }
            Some(b'-' | b'0'..=b'9') => self.number(),
            _ => Err(self.unexpected()),
        }
    }

    fn each(
        &mut self,
        begin: char,
        end: char,
        mut item: impl FnMut(&mut Self) -> Result<(), String>,
    ) -> Result<(), String> {
        self.rest = self.rest.strip_prefix(begin).unwrap_or(self.rest);
        self.space();
        if let Some(rest) = self.rest.strip_prefix(end) {
            self.rest = rest;
            return Ok(());
        }
        loop {
            self.space();
            item(self)?;
            self.space();
            if let Some(rest) = self.rest.strip_prefix(end) {
                self.rest = rest;
                return Ok(());
            }
            if !self.take(",") {
                return Err(self.unexpected());
            }
        }
    }

    fn number(&mut self) -> Result<Value, String> {
        let is_of = |char: char| char.is_ascii_digit() || ['-', '+', '.', 'e', 'E'].contains(&char);
        let end = self.rest.find(|char| !is_of(char)).unwrap_or(self.rest.len());
        let (number, rest) = self.rest.split_at(end);
        // JSON's grammar of numbers is narrower than Rust's.
        serde_json::from_str::<&serde_json::value::RawValue>(number).map_err(|_| self.unexpected())?;
        self.rest = rest;
        if number.contains(['.', 'e', 'E']) {
            return number.parse().map(Value::Float).map_err(|_| format!("the number {number} is not read"));
        }
        number.parse().map(Value::Int).map_err(|_| format!("the number {number} is too large"))
    }

    fn string(&mut self) -> Result<String, String> {
        let Some(rest) = self.rest.strip_prefix('"') else { return Err(self.unexpected()) };
        let mut end = 0;
        let bytes = rest.as_bytes();
        while bytes.get(end).is_some_and(|byte| *byte != b'"') {
            end += if bytes[end] == b'\\' { 2 } else { 1 };
        }
        let Some(quoted) = self.rest.get(..end + 2) else { return Err(self.unexpected()) };
        let string = serde_json::from_str(quoted).map_err(|error| error.to_string())?;
        self.rest = &self.rest[end + 2..];
        Ok(string)
    }
}

/// The options of `json.dumps`.
#[derive(Clone, Default)]
pub(super) struct Style {
    /// The indentation per level.
    pub(super) indent: Option<String>,
    pub(super) ascii: bool,
    pub(super) sort_keys: bool,
    pub(super) separators: Option<(String, String)>,
}

/// The JSON of a value.
pub(super) fn dump(value: &Value, style: &Style) -> Result<String, Raised> {
    let mut to = String::new();
    write(value, style, 0, &mut to)?;
    Ok(to)
}

fn write(value: &Value, style: &Style, depth: usize, to: &mut String) -> Result<(), Raised> {
    if to.len() > MAX_TEXT {
        return unsupported(format!("a text of more than {} MiB", MAX_TEXT >> 20));
    }
    let (comma, colon) = match &style.separators {
        Some((comma, colon)) => (comma.as_str(), colon.as_str()),
        None if style.indent.is_some() => (",", ": "),
        None => (", ", ": "),
    };
    let line = |depth: usize, to: &mut String| {
        if let Some(indent) = &style.indent {
            to.push('\n');
            (0..depth).for_each(|_| to.push_str(indent));
        }
    };
    match value {
        Value::None => to.push_str("null"),
        Value::Bool(value) => to.push_str(if *value { "true" } else { "false" }),
        Value::Int(number) => _ = write!(to, "{number}"),
        Value::Float(number) => to.push_str(&number_text(*number)),
        Value::Text(text) | Value::Safe(text) => quote(text, style.ascii, to),
        Value::List(items) | Value::Tuple(items) if items.is_empty() => to.push_str("[]"),
        Value::Dict(dict) if dict.entries().is_empty() => to.push_str("{}"),
        Value::List(items) | Value::Tuple(items) => {
            to.push('[');
            for (at, item) in items.iter().enumerate() {
                to.push_str(if at == 0 { "" } else { comma });
                line(depth + 1, to);
                write(item, style, depth + 1, to)?;
            }
            line(depth, to);
            to.push(']');
        }
        Value::Dict(dict) => {
            let mut entries: Vec<_> = dict.entries().iter().collect();
            if style.sort_keys {
                entries = in_order(entries, |(left, _), (right, _)| compare("<", left, right))?;
            }
            to.push('{');
            for (at, (key, value)) in entries.into_iter().enumerate() {
                to.push_str(if at == 0 { "" } else { comma });
                line(depth + 1, to);
                let key = match key {
                    Value::Text(key) | Value::Safe(key) => key.to_string(),
                    Value::None => "null".to_owned(),
                    Value::Bool(key) => if *key { "true" } else { "false" }.to_owned(),
                    Value::Int(key) => key.to_string(),
                    Value::Float(key) => number_text(*key),
                    other => {
                        let why =
                            format!("keys must be str, int, float, bool or None, not {}", other.type_name());
                        return Err(raised("TypeError", why));
                    }
                };
                quote(&key, style.ascii, to);
                to.push_str(colon);
                write(value, style, depth + 1, to)?;
            }
            line(depth, to);
            to.push('}');
        }
        other => {
            let why = format!("Object of type {} is not JSON serializable", other.type_name());
            return Err(raised("TypeError", why));
        }
    }
    Ok(())
}

fn number_text(number: f64) -> String {
    match number {
        number if number.is_nan() => "NaN".to_owned(),
        f64::INFINITY => "Infinity".to_owned(),
        f64::NEG_INFINITY => "-Infinity".to_owned(),
        number => float(number),
    }
}

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
