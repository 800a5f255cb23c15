//! Chat templates: Jinja with the results and error messages of Python's Jinja, as transformers uses it.
//!
//! Every supported operator, filter, test and method has Python's result. Floats, `None` and lists are
//! written as Python writes them, and `strip` removes the same characters as `str.strip`. Anything else is an
//! error that names the expression. The environment is that of `apply_chat_template`: `trim_blocks`,
//! `lstrip_blocks`, `break` and `continue`, `{% generation %}`, lenient undefined values, and the sandbox.
//!
//! | file | what |
//! | --- | --- |
//! | `lexer.rs`, `tag.rs`, `expression.rs`, `parser.rs`, `ast.rs` | the source, its tokens, its tree |
//! | `names.rs` | which names a block hides |
//! | `run.rs`, `scope.rs`, `eval.rs` | a run: scopes, loops, macros, expressions, each `{% generation %}` |
//! | `value.rs`, `collection.rs` | values, lists and dicts |
//! | `json.rs`, `written.rs` | JSON that is read; values as `str`, `repr` and `json.dumps` write them |
//! | `given.rs` | the arguments of calls, and the parameters that take them |
//! | `filters.rs`, `jinja_tests.rs`, `methods.rs`, `functions.rs` | what expressions call, a row each |
//! | `operators.rs`, `compare.rs`, `texts.rs`, `date.rs` | how Python computes, compares and writes |
#![forbid(unsafe_code)]

use std::fmt;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use feedline_core::{Error, ErrorKind, Fingerprint, Result, named};

mod ast;
mod collection;
mod compare;
mod date;
mod eval;
mod expression;
mod filters;
mod functions;
mod given;
mod jinja_tests;
mod json;
mod lexer;
mod methods;
mod names;
mod operators;
mod parser;
mod run;
mod scope;
mod tag;
mod texts;
mod value;
mod written;

pub use collection::Dict;
pub use value::{Raised, Value, list, text};

use ast::Block;
use date::Date;
use run::Run;
use scope::Scope;
use value::{TEMPLATE, UNSUPPORTED, raise, type_error};

/// An error about invalid content of a file.
fn data(message: impl Into<String>) -> Error {
    Error::new(ErrorKind::Data, message)
}

/// A text of a file on one line.
fn one_line(text: impl fmt::Display) -> String {
    text.to_string().chars().map(|char| if char.is_control() { ' ' } else { char }).collect()
}

/// The names that special tokens have in templates.
const TOKENS: [&str; 7] =
    ["bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token"];

/// The chat template of a tokenizer.
pub struct ChatTemplate {
    source: String,
    root: Block,
    has_generation: bool,
    tokens: Vec<(String, String)>,
    date: Option<Date>,
    path: Option<PathBuf>,
}

/// The text of a rendered conversation.
#[derive(Debug, Default)]
pub struct Rendered {
    /// The text.
    pub text: String,
    /// The character range of each `{% generation %}`.
    pub spans: Vec<Range<usize>>,
}

impl ChatTemplate {
    /// Compiles a template, without special tokens.
    ///
    /// # Errors
    /// `Data` if the source is not a template, or has tags that chat templates do not have. The error names
    /// the line.
    pub fn new(source: &str) -> Result<Self> {
        let source = lexer::normalised(source);
        let (root, has_generation) = parser::parse(&source)
            .map_err(|error| data(format!("this is no chat template: {}", one_line(&error.message))))?;
        Ok(Self { source, root, has_generation, tokens: Vec::new(), date: None, path: None })
    }

    /// The template of a tokenizer. It is `chat_template.jinja` beside `tokenizer.json`. Without this file,
    /// it is `chat_template` in `tokenizer_config.json`. The template sees the special tokens of
    /// `tokenizer_config.json`. `path` is the folder, or a file in it.
    ///
    /// # Errors
    /// `Data` if there is no template, or the template is damaged. The error names the file.
    pub fn of_tokenizer(path: impl AsRef<Path>) -> Result<Self> {
        let folder = folder_of(path.as_ref());
        let (config, file) = (folder.join("tokenizer_config.json"), folder.join("chat_template.jinja"));
        let read = |path: &Path| {
            std::fs::read_to_string(path)
                .map_err(|error| data("cannot read the file").with_source(error).at_path(path))
        };
        let described = match config.is_file() {
            true => json::parse(&read(&config)?).map_err(|why| data(one_line(why)).at_path(&config))?,
            false => Value::None,
        };
        let (source, at) = if file.is_file() {
            (read(&file)?, file)
        } else {
            let source = match described.field("chat_template") {
                Some(Value::List(all)) => {
                    let name = |of: &Value| of.field("name").and_then(Value::as_text) == Some("default");
                    all.iter().find(|of| name(of)).and_then(|of| of.field("template"))
                }
                other => other,
            };
            let source = source.and_then(Value::as_text).ok_or_else(|| {
                let why = format!(
                    "the tokenizer has no chat template, neither in {} nor in chat_template.jinja beside it: \
                     save one with it, or give one, {}",
                    config.display(),
                    named("ChatOptions::template", "template=")
                );
                data(why).at_path(folder)
            })?;
            (source.to_owned(), config)
        };
        let mut template = Self::new(&source).map_err(|error| error.at_path(&at))?;
        for name in TOKENS {
            let token = described.field(name);
            let content = token.and_then(|token| token.field("content")).or(token);
            if let Some(token) = content.and_then(Value::as_text) {
                template.tokens.push((name.to_owned(), token.to_owned()));
            }
        }
        template.path = Some(at);
        Ok(template)
    }

    /// Adds a special token that the template sees by `name`, such as `bos_token`.
    pub fn with_token(mut self, name: &str, token: &str) -> Self {
        self.tokens.retain(|(own, _)| own != name);
        self.tokens.push((name.to_owned(), token.to_owned()));
        self
    }

    /// Sets the date for the template's `strftime_now`: `2026-03-05`, or with a time, `2026-03-05T09:07:00`.
    /// Without a date, a template that asks for today's date is an error, since its text would change every
    /// day.
    ///
    /// # Errors
    /// `Config` if `date` is not a date.
    pub fn with_today(mut self, date: &str) -> Result<Self> {
        let parsed = Date::parse(date).ok_or_else(|| {
            let why =
                format!("\"{}\" is no date: write it as 2026-03-05, or 2026-03-05T09:07:00", one_line(date));
            Error::new(ErrorKind::Config, why)
        })?;
        self.date = Some(parsed);
        Ok(self)
    }

    /// Whether the template marks the assistant's answers with `{% generation %}`.
    pub fn has_generation(&self) -> bool {
        self.has_generation
    }

    /// The text of a conversation in JSON. It is the text of `apply_chat_template(..., tokenize=False)` of
    /// transformers. `tools` and `variables` may be empty. `variables` is an object of further template
    /// variables.
    ///
    /// ```
    /// use feedline_template::ChatTemplate;
    ///
    /// let text = "{% for m in messages %}<{{ m.role }}>{{ m.content | trim }}\n{% endfor %}";
    /// let template = ChatTemplate::new(text)?;
    /// let messages = r#"[{"role": "user", "content": " Hello. "}]"#;
    /// assert_eq!(template.render(messages, "", "", false)?, "<user>Hello.\n");
    /// # Ok::<(), feedline_core::Error>(())
    /// ```
    ///
    /// # Errors
    /// `Sample` for invalid JSON, and for a conversation that the template refuses. The error then has the
    /// template's message.
    pub fn render(&self, messages: &str, tools: &str, variables: &str, prompt: bool) -> Result<String> {
        let [messages, tools, variables] = [messages, tools, variables].map(parsed);
        let rendered = self.run(messages?, tools?, &variables?, prompt);
        rendered.map(|rendered| rendered.text).map_err(|error| self.refused(&error))
    }
}

/// # For loaders
///
/// What the readers of chats call. It may change in any release.
impl ChatTemplate {
    /// The special token called `name`.
    pub fn token(&self, name: &str) -> Option<&str> {
        self.tokens.iter().find(|(own, _)| own == name).map(|(_, token)| token.as_str())
    }

    /// The special tokens with their names.
    pub fn into_tokens(self) -> Vec<(String, String)> {
        self.tokens
    }

    /// Adds the source, the special tokens and the file to a fingerprint.
    pub fn fingerprint(&self, state: Fingerprint) -> Fingerprint {
        let state = state.bytes(self.source.as_bytes()).bytes(format!("{:?}", self.date).as_bytes());
        self.tokens
            .iter()
            .fold(state, |state, (name, token)| state.bytes(name.as_bytes()).bytes(token.as_bytes()))
    }

    /// The text of `messages`. `prompt` adds the beginning of an answer.
    pub fn run(
        &self,
        messages: Value,
        tools: Value,
        variables: &Value,
        prompt: bool,
    ) -> Result<Rendered, Raised> {
        let mut context = Dict::default();
        context.set(text("messages"), cleaned(&messages)?);
        context.set(text("tools"), tools_checked(tools)?);
        context.set(text("documents"), Value::None);
        context.set(text("add_generation_prompt"), Value::Bool(prompt));
        self.tokens.iter().for_each(|(name, token)| context.set(text(name), text(token)));
        if let Value::Dict(variables) = variables {
            for (name, value) in variables.entries() {
                context.set(Value::Text(name.to_text()?), value.clone());
            }
        }
        let mut run = Run::new(&self.source, self.date, Scope::new(context));
        let text = run.template(&self.root)?;
        Ok(Rendered { text, spans: std::mem::take(&mut run.spans) })
    }

    /// The error for a conversation that the template refuses.
    pub fn refused(&self, error: &Raised) -> Error {
        let Raised { kind, message, at } = error;
        let at =
            at.as_deref().map(|at| one_line(at.chars().take(200).collect::<String>())).unwrap_or_default();
        let why = match *kind {
            TEMPLATE => format!("the chat template refuses this conversation: {message}"),
            UNSUPPORTED => format!("the chat template cannot be run in `{at}`: {message}"),
            kind => format!("the chat template fails in `{at}`: {kind}: {message}"),
        };
        let error = Error::new(ErrorKind::Sample, why);
        match &self.path {
            Some(path) => error.clone().with_source(format!("the template of {}", path.display())),
            None => error,
        }
    }
}

/// The folder of a tokenizer.
pub fn folder_of(path: &Path) -> &Path {
    if path.is_dir() { path } else { path.parent().unwrap_or(Path::new("")) }
}

/// Parses a JSON text. The text may be empty.
pub fn parsed(json: &str) -> Result<Value> {
    if json.is_empty() {
        return Ok(Value::None);
    }
    json::parse(json).map_err(|why| Error::new(ErrorKind::Sample, one_line(why)))
}

/// The keys under which a message may have its reasoning.
const REASONING: [&str; 3] = ["reasoning_content", "thinking", "reasoning"];

/// The messages as transformers passes them to a template. They have no null values, and the reasoning is
/// under all of its keys.
fn cleaned(messages: &Value) -> Result<Value, Raised> {
    let Value::List(all) = messages else { return Ok(messages.clone()) };
    let one = |message: &Value| {
        let Value::Dict(message) = message else {
            let found = written::repr(message)?;
            let why =
                format!("Chat messages should be dicts, dataclasses or pydantic models, but got {found}.");
            return type_error(why);
        };
        let kept = message.entries().iter().filter(|(_, value)| !value.is_none()).cloned();
        let reasoning = REASONING.iter().find_map(|name| message.text(name).and_then(Value::some));
        let under = |name: &str| reasoning.map(|reasoning| (text(name), reasoning.clone())).into_iter();
        let all: Dict = under("thinking").chain(kept).chain(under("reasoning_content")).collect();
        Ok(Value::Dict(Rc::new(all)))
    };
    all.iter().map(one).collect::<Result<_, _>>().map(list)
}

/// The tools as transformers passes them to a template: descriptions of functions.
fn tools_checked(tools: Value) -> Result<Value, Raised> {
    match &tools {
        Value::List(all) if !all.iter().all(|tool| matches!(tool, Value::Dict(_))) => raise(
            "ValueError",
            "Tools should either be a JSON schema, or a callable function with type hints and a docstring \
             suitable for auto-conversion to a schema.",
        ),
        _ => Ok(tools),
    }
}

impl fmt::Debug for ChatTemplate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ChatTemplate({} characters)", self.source.chars().count())
    }
}
