//! Conversations as token ids and labels.

mod sequences;

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use feedline_core::{
    About, Context, DType, Dataset, ElementType, Error, ErrorKind, Field, Fingerprint, Meaning, Prefetched,
    ReadError, Result, Row, Spec, Storage, Value, named,
};

use self::sequences::Sequence;
use crate::error::{at_file, one_line};
use crate::open::{check_used, open_any};
use crate::over::set_over;
use crate::text::tokenized::{Checked, load};
use crate::{Buffers, ChatTemplate, Nulls, OpenOptions, PathOrTable};
use feedline_template::{folder_of, parsed};

/// The label of a token that is not learnt.
const IGNORED: i64 = -100;

/// Which tokens of a conversation have labels.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Learn {
    /// Tokens that the template marks with `{% generation %}`: the answers of the assistant. A template
    /// without such marks is an error.
    #[default]
    Marked,
    /// Tokens after each `start`, up to and including the next `end`, such as `<|im_start|>assistant\n` and
    /// `<|im_end|>`. The last answer may lack its end, if the conversation ends with a message of the
    /// `assistant`. Another answer without an end is an error, since the texts are not those of the template;
    /// so it is if no conversation has an answer.
    Between {
        /// The text before an answer. It is not learnt.
        start: String,
        /// The text that ends an answer. It is learnt.
        end: String,
    },
    /// All tokens.
    All,
}

/// How conversations become token ids.
#[derive(Clone, Debug)]
pub struct ChatOptions {
    /// Which tokens are learnt. The labels of other tokens are -100. Ignored for prompts with completions and
    /// for preferences: there, the completion is learnt.
    pub learn: Learn,
    /// A template to use instead of the tokenizer's.
    pub template: Option<String>,
    /// The column of the messages.
    pub messages: String,
    /// The column with the tools that a conversation may call, as JSON schemas. A data set may lack it.
    pub tools: String,
    /// The column with further template variables, an object per conversation. A data set may lack it.
    pub variables: String,
    /// Further template variables for all conversations. Each is a name and a JSON value, such as
    /// `enable_thinking` and `false`.
    pub context: Vec<(String, String)>,
    /// Whether to add the beginning of an answer to each conversation. Default: to [prompts](Chats::prompts)
    /// only.
    pub add_generation_prompt: Option<bool>,
    /// Max tokens of a conversation. The first ones are kept; the last ones of [prompts](Chats::prompts),
    /// which end with the beginning of the answer.
    pub max_tokens: Option<usize>,
    /// Today's date, for templates that use it: [`ChatTemplate::with_today`].
    pub today: Option<String>,
    /// Whether prompts that are texts begin with the special tokens that the tokenizer adds before a text,
    /// such as BOS, as in TRL. A prompt that begins with them does not get them twice. Messages get what the
    /// template writes.
    pub special_tokens: bool,
}

impl Default for ChatOptions {
    fn default() -> Self {
        Self {
            learn: Learn::Marked,
            template: None,
            messages: "messages".to_owned(),
            tools: "tools".to_owned(),
            variables: "chat_template_kwargs".to_owned(),
            context: Vec::new(),
            add_generation_prompt: None,
            max_tokens: None,
            today: None,
            special_tokens: true,
        }
    }
}

/// The kind of conversation in a sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Shape {
    Conversation,
    Completion,
    Preference,
    Prompt,
}

/// Conversations of a data set as token ids and labels. The tokenizer's chat template makes the text.
///
/// | of | columns | fields, `i64`, of varying length |
/// | --- | --- | --- |
/// | [`Chats::new`] | `messages` | `ids`, `labels` |
/// | [`Chats::completions`] | `prompt`, `completion` | `ids`, `labels` |
/// | [`Chats::preferences`] | `chosen`, `rejected` (`prompt`) | `chosen`, `rejected`, `.labels` of both |
/// | [`Chats::prompts`] | `prompt`, or `messages` | `ids` |
///
/// A label is the token's id, or -100 for a token that is not learnt. Models that shift labels take them
/// unchanged. Messages are lists of objects with `role` and `content`, in JSON Lines, or as `list<struct>` in
/// Parquet and Arrow. Prompts, completions and preferences may be texts instead. If the inner set has the
/// columns `tools` and `chat_template_kwargs`, the template gets them.
///
/// Prompt and completion are messages or texts, with a rule for each, as in TRL. Messages have the ids of
/// `apply_chat_template` and nothing else: BOS and end are in the template or nowhere. Texts have the
/// tokenizer's special tokens, such as BOS, unless [`ChatOptions::special_tokens`] is false; then the prompt;
/// then the completion, tokenized by itself, and `eos_token`, unless it ends with that.
///
/// A conversation without an answer, or whose answer [`ChatOptions::max_tokens`] cuts off, has labels of -100
/// only. [`Bounded::before_labels`](crate::Bounded::before_labels) finds these.
///
/// Text and ids are those of `apply_chat_template` of transformers. If the template refuses a conversation,
/// it is a bad sample, and the error has the template's message; see
/// [`Bounded::measured_with_bad_samples`](crate::Bounded::measured_with_bad_samples). The workers of a loader
/// share the work.
/// [`pack`](crate::pack()) does it once.
///
/// ```
/// use std::sync::Arc;
/// use feedline_datasets::{Bounded, ChatOptions, Chats, Lines};
///
/// # let dir = std::env::temp_dir().join(format!("feedline-doc-chats-{}", std::process::id()));
/// # std::fs::create_dir_all(&dir)?;
/// # std::fs::write(dir.join("tokenizer.json"), r#"{"model": {"type": "WordLevel", "unk_token": "?", "vocab":
/// #     {"?": 0, "user": 1, "assistant": 2, "Hi": 3, "Hello": 4, ":": 5}},
/// #     "pre_tokenizer": {"type": "Whitespace"}}"#)?;
/// let template = "{% for m in messages %}{{ m.role }}: {% if m.role == 'assistant' %}\
///     {% generation %}{{ m.content }}{% endgeneration %}{% else %}{{ m.content }}{% endif %} {% endfor %}";
/// # let chats = dir.join("chats.txt");
/// # std::fs::write(&chats, "[{\"role\": \"user\", \"content\": \"Hi\"}, \
/// #     {\"role\": \"assistant\", \"content\": \"Hello\"}]\n")?;
/// # let options = ChatOptions { messages: "text".into(), ..Default::default() };
/// let options = ChatOptions { template: Some(template.into()), ..options };
/// let chats = Chats::new(Arc::new(Lines::open(&chats)?), dir.join("tokenizer.json"), options)?;
/// let data = Bounded::measured(Arc::new(chats))?; // ids 1 5 3 2 5 4, labels -100 -100 -100 -100 -100 4
/// assert_eq!(data.lengths("labels")?, [6]);
/// # std::fs::remove_dir_all(&dir)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Chats {
    inner: Arc<dyn Dataset>,
    shape: Shape,
    /// The indices of the fields that hold the columns.
    columns: Columns,
    tokenizer: Arc<Checked>,
    template: ChatTemplate,
    options: ChatOptions,
    spec: Spec,
    /// Whether prompts are texts that get special tokens.
    has_special_tokens: bool,
    tokenizer_path: PathBuf,
    /// The hash of the tokenizer's file.
    content: u64,
}

/// The index of each column's field in the inner set. `None` if the inner set lacks the column.
#[derive(Clone, Copy, Debug, Default)]
struct Columns {
    messages: Option<usize>,
    prompt: Option<usize>,
    /// The completion alone, or the chosen and the rejected answer.
    answers: [Option<usize>; 2],
    tools: Option<usize>,
    variables: Option<usize>,
}

impl Chats {
    /// The conversations of `inner`. `tokenizer` is the tokenizer's folder or its `tokenizer.json`.
    ///
    /// # Errors
    /// `Config` if the inner set has no column of messages, or if the options ask for marks and the template
    /// marks nothing to learn. `Data` if the tokenizer or its template cannot be read. The error names the
    /// file.
    pub fn new(inner: Arc<dyn Dataset>, tokenizer: impl AsRef<Path>, options: ChatOptions) -> Result<Self> {
        Self::of_shape(inner, tokenizer.as_ref(), options, Shape::Conversation)
    }

    /// The conversations in the file or the folder at `path`, as [`new`](Self::new). If a conversation lacks
    /// a column, such as `tools`, the template does not get it.
    ///
    /// # Errors
    /// As [`new`](Self::new) and [`open`](crate::open).
    pub fn open(path: impl AsRef<Path>, tokenizer: impl AsRef<Path>, options: ChatOptions) -> Result<Self> {
        Self::new(open_chats(path, &OpenOptions::default())?, tokenizer, options)
    }

    /// Prompts with completions. The completion is learnt.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub fn completions(
        inner: Arc<dyn Dataset>,
        tokenizer: impl AsRef<Path>,
        options: ChatOptions,
    ) -> Result<Self> {
        Self::of_shape(inner, tokenizer.as_ref(), options, Shape::Completion)
    }

    /// Pairs of preferences. A pair is a chosen and a rejected conversation, or two answers to a prompt.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub fn preferences(
        inner: Arc<dyn Dataset>,
        tokenizer: impl AsRef<Path>,
        options: ChatOptions,
    ) -> Result<Self> {
        Self::of_shape(inner, tokenizer.as_ref(), options, Shape::Preference)
    }

    /// Prompts for generation, without labels: the column `prompt`, of messages or texts, or the messages in
    /// [`ChatOptions::messages`] if that is another column than by default, or there is no `prompt`. Messages
    /// end with the beginning of the answer. [`ChatOptions::learn`] is ignored.
    ///
    /// ```
    /// use std::sync::Arc;
    /// use feedline_core::Values;
    /// use feedline_datasets::{ChatOptions, Chats, Lines};
    ///
    /// # let dir = std::env::temp_dir().join(format!("feedline-doc-prompts-{}", std::process::id()));
    /// # std::fs::create_dir_all(&dir)?;
    /// # std::fs::write(dir.join("tokenizer.json"), r#"{"model": {"type": "WordLevel", "unk_token": "?",
    /// #     "vocab": {"?": 0, "user": 1, "assistant": 2, "Hi": 3, ":": 4}},
    /// #     "pre_tokenizer": {"type": "Whitespace"}}"#)?;
    /// # let file = dir.join("prompts.txt");
    /// std::fs::write(&file, r#"[{"role": "user", "content": "Hi"}]"#)?;
    /// # let options = ChatOptions { messages: "text".into(), ..Default::default() };
    /// let template = "{% for m in messages %}{{ m.role }}: {{ m.content }} {% endfor %}\
    ///     {% if add_generation_prompt %}assistant:{% endif %}";
    /// let options = ChatOptions { template: Some(template.into()), ..options };
    /// let prompts = Chats::prompts(Arc::new(Lines::open(&file)?), dir.join("tokenizer.json"), options)?;
    /// let mut values = Values::new();
    /// values.read(&prompts, 0)?;
    /// assert_eq!(values.fields()[0].bytes.len(), 5 * size_of::<i64>()); // ids 1 4 3 2 4
    /// # std::fs::remove_dir_all(&dir)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub fn prompts(
        inner: Arc<dyn Dataset>,
        tokenizer: impl AsRef<Path>,
        options: ChatOptions,
    ) -> Result<Self> {
        // No labels need the marks of a template, or texts around an answer.
        let options = ChatOptions { learn: Learn::All, ..options };
        Self::of_shape(inner, tokenizer.as_ref(), options, Shape::Prompt)
    }

    fn of_shape(
        inner: Arc<dyn Dataset>,
        tokenizer: &Path,
        options: ChatOptions,
        shape: Shape,
    ) -> Result<Self> {
        let refuse = |why: String| Err(at_file(&*inner, 0, Error::new(ErrorKind::Config, why)));
        let find = |name: &str| {
            let is_text = |of: &Field| {
                of.name() == name
                    && matches!(of.element(), ElementType::Text | ElementType::Bytes)
                    && of.dims() == [None]
            };
            inner.spec().fields().iter().position(is_text)
        };
        let defaults = ChatOptions::default();
        let mut columns = Columns {
            tools: find(&options.tools),
            variables: find(&options.variables),
            ..Columns::default()
        };
        // The columns that must exist, and the fields.
        let (needed, ids): (Vec<(&str, Option<usize>)>, &[&str]) = match shape {
            Shape::Conversation => {
                columns.messages = find(&options.messages);
                (vec![(&options.messages, columns.messages)], &["ids", "labels"])
            }
            Shape::Completion => {
                columns.prompt = find("prompt");
                columns.answers[0] = find("completion");
                (vec![("prompt", columns.prompt), ("completion", columns.answers[0])], &["ids", "labels"])
            }
            Shape::Preference => {
                columns.prompt = find("prompt");
                columns.answers = [find("chosen"), find("rejected")];
                let [chosen, rejected] = columns.answers;
                let ids = &["chosen", "chosen.labels", "rejected", "rejected.labels"];
                (vec![("chosen", chosen), ("rejected", rejected)], ids)
            }
            Shape::Prompt => {
                let is_default = options.messages == defaults.messages;
                columns.prompt = find("prompt").filter(|_| is_default);
                columns.messages = find(&options.messages).filter(|_| columns.prompt.is_none());
                let name = if is_default { "prompt" } else { &options.messages };
                (vec![(name, columns.prompt.or(columns.messages))], &["ids"])
            }
        };
        let missing = needed.into_iter().filter(|(_, found)| found.is_none()).map(|(name, _)| name);
        let mut missing: Vec<&str> = missing.collect();
        for (name, default, found) in [
            (&options.tools, &defaults.tools, columns.tools),
            (&options.variables, &defaults.variables, columns.variables),
        ] {
            missing.extend((name != default && found.is_none()).then_some(name.as_str()));
        }
        let is_in_one = matches!(shape, Shape::Conversation | Shape::Prompt);
        if !is_in_one && options.messages != defaults.messages {
            let why = format!("messages names the column \"{}\"", one_line(&options.messages));
            return refuse(why + ", which is for conversations in one column: leave it out");
        }
        if let Some(missing) = missing.first() {
            let has = inner.spec();
            return refuse(format!("no column \"{missing}\" of messages or texts, in {}", one_line(has)));
        }
        if options.max_tokens == Some(0) {
            return refuse("conversations of max 0 tokens have none: give at least 1".to_owned());
        }
        if let Learn::Between { start, end } = &options.learn
            && (start.is_empty() || end.is_empty())
        {
            let why = "an empty text begins or ends the answers: give texts that the template writes there";
            return refuse(why.to_owned());
        }
        let path = match tokenizer.is_dir() {
            true => tokenizer.join("tokenizer.json"),
            false => tokenizer.to_path_buf(),
        };
        let (tokenizer, content) = load(&path)?;
        let template = match &options.template {
            Some(source) => {
                let config = folder_of(&path);
                let own = ChatTemplate::of_tokenizer(config);
                let tokens = own.ok().map(ChatTemplate::into_tokens).unwrap_or_default();
                tokens.iter().fold(ChatTemplate::new(source)?, |template, (name, token)| {
                    template.with_token(name, token)
                })
            }
            None => ChatTemplate::of_tokenizer(&path)?,
        };
        let template = match &options.today {
            Some(date) => template.with_today(date)?,
            None => template,
        };
        if shape == Shape::Conversation && options.learn == Learn::Marked && !template.has_generation() {
            let how = named(
                "give ChatOptions::learn, Learn::Between or Learn::All, or a template with the mark",
                "give learn=(\"<|im_start|>assistant\\n\", \"<|im_end|>\"), the texts around an answer, or \
                 learn=\"all\", or a template with the mark",
            );
            let why = format!("the chat template does not mark what is learnt, by {{% generation %}}: {how}");
            return refuse(why);
        }
        for (name, json) in &options.context {
            parsed(json).map_err(|error| {
                let why = format!("the variable \"{name}\" of the template: {}", error.message());
                Error::new(ErrorKind::Config, why)
            })?;
        }
        let number = ElementType::Number(DType::I64);
        let spec = Spec::of_fields(ids.iter().enumerate().map(|(index, name)| {
            let meaning = if index % 2 == 1 { Meaning::Labels } else { Meaning::Plain };
            Field::variable(*name, number).with_meaning(meaning)
        }));
        let tokenizer = Arc::new(tokenizer);
        let mut chats = Self {
            inner,
            shape,
            columns,
            tokenizer,
            template,
            options,
            spec,
            has_special_tokens: false,
            tokenizer_path: path,
            content,
        };
        chats.has_special_tokens = chats.options.special_tokens && chats.begins_with_special_tokens();
        chats.check_learns()?;
        Ok(chats)
    }

    /// Whether conversations end with the beginning of an answer.
    fn adds_prompt(&self) -> bool {
        self.options.add_generation_prompt.unwrap_or(self.shape == Shape::Prompt)
    }

    /// Refuses texts around an answer of which no conversation has any. Reads up to the first that has.
    fn check_learns(&self) -> Result<()> {
        let is_asked = self.shape == Shape::Conversation && !self.adds_prompt();
        let Learn::Between { start, end } = &self.options.learn else { return Ok(()) };
        if !is_asked || self.len() == 0 {
            return Ok(());
        }
        let max = self.options.max_tokens.unwrap_or(usize::MAX);
        let (mut values, mut context) = (Vec::new(), Context::new(0, 0));
        let mut learns = |sample: u64| match self.sequences(sample, &mut values, &mut context) {
            Ok(all) => all.iter().any(|of| of.learnt.iter().take(max).any(|&learnt| learnt)),
            // The sample is an error of its own.
            Err(_) => true,
        };
        if (0..self.len()).any(&mut learns) {
            return Ok(());
        }
        let why = format!(
            "no conversation has a token to learn between {start:?} and {end:?}, so that all labels are \
             -100: give texts that the template writes{}",
            if self.options.max_tokens.is_some() { ", or a larger max_tokens" } else { "" }
        );
        Err(at_file(&*self.inner, 0, Error::new(ErrorKind::Config, why)))
    }
}

/// Opens conversations for [`Chats`], as [`open_with`](crate::open_with) does. A missing value, such as that
/// of a conversation without tools, is empty.
///
/// # Errors
/// As [`open_with`](crate::open_with).
pub fn open_chats(from: impl Into<PathOrTable>, options: &OpenOptions) -> Result<Arc<dyn Dataset>> {
    let from = from.into();
    let inner = open_any(&from, &OpenOptions { nulls: Nulls::Fill, ..options.clone() })?;
    check_used(&*inner, options).map_err(|error| from.at(error))?;
    Ok(inner)
}

impl Dataset for Chats {
    set_over!(self => About { classes: None, categories: &[], row_memory: 0, ..self.inner.about() });

    fn read(&self, sample: u64, row: &mut Row<'_, '_>, context: &mut Context) -> Result<(), ReadError> {
        let sequences = context
            .scoped_scratch(|values: &mut Vec<Value>, context| self.sequences(sample, values, context));
        let sequences = sequences.map_err(|error| at_file(&*self.inner, sample, error).at_sample(sample))?;
        let buffers = context.scratch::<Buffers>();
        let max = self.options.max_tokens.unwrap_or(usize::MAX);
        for (field, Sequence { ids, learnt }) in (0..).step_by(2).zip(sequences) {
            let ids = match self.shape {
                Shape::Prompt => &ids[ids.len().saturating_sub(max)..],
                _ => &ids[..max.min(ids.len())],
            };
            buffers.value.clear();
            buffers.value.extend(ids.iter().flat_map(|&id| i64::from(id).to_le_bytes()));
            row.put(field, &buffers.value)?;
            if self.shape == Shape::Prompt {
                break;
            }
            let label = |(&id, learnt)| if learnt { i64::from(id) } else { IGNORED };
            buffers.value.clear();
            buffers.value.extend(ids.iter().zip(learnt).map(label).flat_map(i64::to_le_bytes));
            row.put(field + 1, &buffers.value)?;
        }
        Ok(())
    }

    /// Covers the inner set, every byte of the tokenizer's file, the template and the options.
    fn fingerprint(&self) -> u64 {
        let ChatOptions { learn, max_tokens, context, .. } = &self.options;
        let state = Fingerprint::new().bytes(b"chats").number(self.inner.fingerprint()).number(self.content);
        let state = self.template.fingerprint(state).number(self.shape as u64);
        let options =
            format!("{learn:?} {} {max_tokens:?} {context:?} {:?}", self.adds_prompt(), self.columns);
        let state = state.bytes(options.as_bytes());
        // Texts once had no special tokens.
        if self.has_special_tokens { state.bytes(b"special tokens").value() } else { state.value() }
    }
}

impl Storage for Chats {
    fn prefetch(&self, samples: &[u64], context: &mut Context) -> Prefetched {
        self.inner.storage().prefetch(samples, context)
    }
}

impl fmt::Debug for Chats {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Chats({:?}, {})", self.inner, self.tokenizer_path.display())
    }
}
