//! Makes the sequences of a sample. The template renders them, the tokenizer encodes them, and the tokens to
//! learn are marked.

use std::ops::Range;

use feedline_core::{Context, Dataset, Error, ErrorKind, Result, Values};

use super::{Chats, Learn, Shape};
use crate::error::{data, one_line};
use crate::text::tokenized::{Encoded, encode_with_places, special_before};
use feedline_template::{Dict, Value, list, text};
use feedline_template::{Rendered, parsed};

impl Chats {
    /// The ids and labels of each sequence of a sample.
    pub(super) fn sequences(
        &self,
        sample: u64,
        values: &mut Vec<feedline_core::Value>,
        context: &mut Context,
    ) -> Result<Vec<Sequence>> {
        self.inner.copy(sample, values, context)?;
        let text = |field: usize| {
            std::str::from_utf8(&values[field].bytes).map_err(|error| {
                let name = &self.inner.spec().fields()[field].name();
                data(format!("column \"{name}\" is not UTF-8 from its byte {} on", error.valid_up_to()))
            })
        };
        let value = |field: Option<usize>| match field {
            Some(field) => parsed(text(field)?.trim()).map_err(|error| {
                let name = &self.inner.spec().fields()[field].name();
                data(format!("column \"{name}\": {}", error.message()))
            }),
            None => Ok(Value::None),
        };
        let tools = match value(self.columns.tools)? {
            // The list was written as a text.
            Value::Text(text) => parsed(&text)?,
            tools => tools,
        };
        let variables = self.variables(value(self.columns.variables)?)?;
        if let Some(field) = self.columns.messages {
            return Ok(vec![self.conversation(value(Some(field))?, tools, &variables)?]);
        }
        let message = |field: Option<usize>| match field {
            Some(field) => self.message(text(field)?),
            None => Ok(Part::Text(String::new())),
        };
        let prompt = message(self.columns.prompt)?;
        if self.shape == Shape::Prompt {
            return Ok(vec![self.prompt(prompt, tools, &variables)?]);
        }
        let answers = self.columns.answers.into_iter().flatten();
        answers
            .map(|answer| self.completion(&prompt, message(Some(answer))?, tools.clone(), &variables))
            .collect()
    }

    /// The variables of the template, except the messages.
    fn variables(&self, of_sample: Value) -> Result<Value> {
        let mut all = Dict::default();
        for (name, json) in &self.options.context {
            all.set(text(name), parsed(json)?);
        }
        let of_sample = match of_sample {
            Value::Text(text) => parsed(&text)?,
            value => value,
        };
        match &of_sample {
            Value::None => {}
            // A value is null if only other conversations have its key.
            Value::Dict(own) => own
                .entries()
                .iter()
                .filter(|(_, value)| !matches!(value, Value::None))
                .for_each(|(name, value)| all.set(name.clone(), value.clone())),
            other => {
                let (column, found) = (&self.options.variables, other.type_name());
                return Err(data(format!("column \"{column}\" is a {found}, not an object of variables")));
            }
        }
        Ok(Value::Dict(all.into()))
    }

    /// `text` as messages if it is a JSON list of objects with a role, otherwise as plain text.
    fn message(&self, text: &str) -> Result<Part> {
        let trimmed = text.trim_start();
        if !trimmed.starts_with('[') || !trimmed.contains("\"role\"") {
            return Ok(Part::Text(text.to_owned()));
        }
        match parsed(trimmed.trim_end()) {
            Ok(Value::List(messages)) => Ok(Part::Messages(messages.to_vec())),
            // The text looks like JSON, but is not JSON.
            _ => Ok(Part::Text(text.to_owned())),
        }
    }

    fn rendered(
        &self,
        messages: Vec<Value>,
        tools: Value,
        variables: &Value,
        prompt: bool,
    ) -> Result<Rendered> {
        self.template
            .run(list(messages), tools, variables, prompt)
            .map_err(|error| self.template.refused(&error))
    }

    fn conversation(&self, messages: Value, tools: Value, variables: &Value) -> Result<Sequence> {
        let Value::List(messages) = messages else {
            let found = messages.type_name();
            return Err(data(format!(
                "column \"{}\" is a {found}, not a list of messages",
                self.options.messages
            )));
        };
        let prompt = self.adds_prompt();
        let rendered = self.rendered(messages.to_vec(), tools, variables, prompt)?;
        let spans = match &self.options.learn {
            Learn::Marked => rendered.spans,
            Learn::Between { start, end } => {
                let last = match messages.last() {
                    _ if prompt => Last::Prompt,
                    Some(Value::Dict(last)) if last.text("role").is_some_and(is_assistant) => Last::Answer,
                    _ => Last::Other,
                };
                between(&rendered.text, start, end, last)?
            }
            Learn::All => std::iter::once(0..usize::MAX).collect(),
        };
        let (ids, places) = self.encode(&rendered.text)?;
        let is_learnt =
            |place: &(usize, usize)| spans.iter().any(|span| place.0 < span.end && place.1 > span.start);
        let learnt = places.iter().map(is_learnt).collect();
        Ok(Sequence { ids, learnt })
    }

    /// The sequence of a prompt alone, of which nothing is learnt.
    fn prompt(&self, prompt: Part, tools: Value, variables: &Value) -> Result<Sequence> {
        match prompt {
            Part::Messages(messages) => self.conversation(list(messages), tools, variables),
            Part::Text(text) => {
                let ids = [self.special_tokens(&text, "")?, self.encode(&text)?.0].concat();
                Ok(Sequence { ids, learnt: Vec::new() })
            }
        }
    }

    /// The sequence of a prompt and an answer. The answer is learnt.
    fn completion(&self, prompt: &Part, answer: Part, tools: Value, variables: &Value) -> Result<Sequence> {
        let (before, all) = match (prompt, answer) {
            (Part::Messages(prompt), Part::Messages(answer)) => {
                let whole = prompt.iter().cloned().chain(answer).collect();
                let before = self.rendered(prompt.clone(), tools.clone(), variables, true)?.text;
                (before, self.rendered(whole, tools, variables, false)?.text)
            }
            // The messages are a whole conversation, including the prompt. The last answer is learnt.
            (Part::Text(prompt), Part::Messages(mut whole)) if prompt.is_empty() => {
                let all = self.rendered(whole.clone(), tools.clone(), variables, false)?.text;
                whole.pop();
                let before = match whole.is_empty() {
                    true => String::new(),
                    false => self.rendered(whole, tools, variables, true)?.text,
                };
                (before, all)
            }
            (Part::Text(prompt), Part::Text(answer)) => {
                let special = self.special_tokens(prompt, &answer)?;
                let before = [special, self.encode(prompt)?.0].concat();
                let (answer, _) = self.encode(&answer)?;
                let end = self.template.token("eos_token").map(|end| self.encode(end)).transpose()?;
                let end = end.map(|(ids, _)| ids).filter(|end| !answer.ends_with(end)).unwrap_or_default();
                let learnt = (0..before.len() + answer.len() + end.len()).map(|at| at >= before.len());
                let learnt = learnt.collect();
                return Ok(Sequence { ids: [before, answer, end].concat(), learnt });
            }
            _ => return Err(data("prompt and answer are a text and a list of messages: make both the same")),
        };
        let (before, (ids, _)) = (self.encode(&before)?.0, self.encode(&all)?);
        // As in TRL, the answer begins after the ids of the prompt alone.
        let same = before.iter().zip(&ids).take_while(|(before, id)| before == id).count();
        if same < before.len() {
            let why = "the prompt's ids do not begin those of the prompt with its answer: the template \
                       writes it differently when an answer follows";
            return Err(Error::new(ErrorKind::Sample, why));
        }
        let learnt = (0..ids.len()).map(|at| at >= before.len()).collect();
        Ok(Sequence { ids, learnt })
    }

    /// The ids of a text, and the character range of each id.
    fn encode(&self, text: &str) -> Result<Encoded> {
        encode_with_places(&self.tokenizer, text).map_err(|error| self.not_encoded(error))
    }

    fn not_encoded(&self, error: impl std::fmt::Display) -> Error {
        let why = format!("a conversation cannot be tokenized by {}", self.tokenizer_path.display());
        Error::new(ErrorKind::Sample, one_line(why)).with_source(one_line(error))
    }

    /// The special tokens before a prompt that is a text, and is followed by `answer`: none if the text has
    /// them already.
    fn special_tokens(&self, prompt: &str, answer: &str) -> Result<Vec<u32>> {
        if !self.options.special_tokens {
            return Ok(Vec::new());
        }
        let text = if prompt.is_empty() { answer } else { prompt };
        let (special, ids) =
            special_before(&self.tokenizer, text).map_err(|error| self.not_encoded(error))?;
        Ok(if ids.starts_with(&special) { Vec::new() } else { special })
    }

    /// Whether the first prompt is a text that gets special tokens.
    pub(super) fn begins_with_special_tokens(&self) -> bool {
        let mut values = Values::new();
        let Some(answer) = self.columns.answers[0].or(self.columns.prompt) else { return false };
        if self.len() == 0 || values.read(&*self.inner, 0).is_err() {
            return false;
        }
        let text = |field: usize| String::from_utf8_lossy(&values.fields()[field].bytes).into_owned();
        let prompt = self.columns.prompt.map(text).unwrap_or_default();
        let answer = text(answer);
        let is_text = matches!(self.message(&answer), Ok(Part::Text(_)));
        is_text && self.special_tokens(&prompt, &answer).is_ok_and(|special| !special.is_empty())
    }
}

/// A prompt or an answer.
#[derive(Clone)]
enum Part {
    Text(String),
    Messages(Vec<Value>),
}

/// The ids of a sequence, and whether each id is learnt.
#[derive(Debug)]
pub(super) struct Sequence {
    pub(super) ids: Vec<u32>,
    pub(super) learnt: Vec<bool>,
}

/// What a conversation ends with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Last {
    /// An answer.
    Answer,
    /// The beginning of an answer, which the template adds.
    Prompt,
    /// A message of another role.
    Other,
}

/// Whether the role of a message is that of answers.
fn is_assistant(role: &Value) -> bool {
    role.as_text() == Some("assistant")
}

/// The character ranges after each `start`, up to and including the next `end`.
fn between(text: &str, start: &str, end: &str, last: Last) -> Result<Vec<Range<usize>>> {
    let (mut spans, mut at) = (Vec::new(), 0);
    let chars = |at: usize| text[..at].chars().count();
    while let Some(found) = text[at..].find(start) {
        let first = at + found + start.len();
        let (ends, next) = (text[first..].find(end), text[first..].find(start));
        at = match ends.filter(|ends| next.is_none_or(|next| *ends <= next)) {
            Some(found) => first + found + end.len(),
            None if next.is_none() && last == Last::Prompt => break,
            None if next.is_none() && last == Last::Answer => text.len(),
            None => {
                let (number, other) = (spans.len() + 1, if next.is_some() { "the next" } else { "the end" });
                // The given texts are wrong, not the conversation.
                return Err(Error::new(
                    ErrorKind::Config,
                    format!(
                        "answer {number} of the conversation has no {end:?} before {other}, so that tokens \
                         of others would be learnt: give the text that ends an answer"
                    ),
                ));
            }
        };
        spans.push(chars(first)..chars(at));
    }
    Ok(spans)
}
