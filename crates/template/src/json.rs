//! JSON as Python's `json` reads it: keys keep their order, and whole numbers their digits.

use std::rc::Rc;

use super::value::{Dict, Value, list, text};

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
        let rest = self.rest.strip_prefix(token);
        self.rest = rest.unwrap_or(self.rest);
        rest.is_some()
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
                self.all("]", |reader| reader.value(depth + 1).map(|item| items.push(item)))?;
                Ok(list(items))
            }
            Some(b'{') => {
                let mut dict = Dict::default();
                self.all("}", |reader| {
                    let key = reader.string()?;
                    reader.space();
                    if !reader.take(":") {
                        return Err(reader.unexpected());
                    }
                    reader.value(depth + 1).map(|value| dict.set(text(key), value))
                })?;
                Ok(Value::Dict(Rc::new(dict)))
            }
            Some(b'-' | b'0'..=b'9') => self.number(),
            _ => Err(self.unexpected()),
        }
    }

    /// Reads the items between a bracket and `end`.
    fn all(
        &mut self,
        end: &str,
        mut item: impl FnMut(&mut Self) -> Result<(), String>,
    ) -> Result<(), String> {
        self.rest = &self.rest[1..];
        self.space();
        let mut is_first = true;
        while !self.take(end) {
            if !std::mem::take(&mut is_first) && !self.take(",") {
                return Err(self.unexpected());
            }
            self.space();
            item(self)?;
            self.space();
        }
        Ok(())
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
