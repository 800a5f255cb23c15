//! Texts as token ids. Hugging Face's tokenizers make them.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use feedline_core::{
    About, Context, DType, Dataset, ElementType, Error, ErrorKind, Field, FieldStream, Fingerprint,
    Prefetched, ReadError, Result, Row, Sink, Spec, Storage, StridedColumn,
};
use tokenizers::{PostProcessor, TruncationParams};

use crate::error::{at_file, check_names, data, one_line};
use crate::io::panics::catch_panics;
use crate::over::set_over;

mod checked;
mod source;

use checked::encode;
pub(crate) use checked::{Checked, Encoded, encode_with_places, special_before};
pub use source::TokenizedSource;

/// The name of the field with the token ids.
const IDS: &str = "ids";

/// A data set whose text field becomes token ids. A `tokenizer.json` of Hugging Face defines the ids.
///
/// The field `ids` replaces the text. It is `i64`, as embedding layers and losses take it, and its one
/// dimension varies. The other fields stay. Each sample is tokenized when it is read, on the thread that
/// reads it. So the workers of a loader share the work. The ids are those of the Python package `tokenizers`.
/// They have no special tokens unless [asked for](Self::with_special_tokens). Texts are neither truncated nor
/// padded, even if the tokenizer's file asks for it: see [`truncated`](Self::truncated).
///
/// If a regular expression of the tokenizer gives up on a text, the text is a bad sample. An example is a
/// text with a million blanks in a row. The error has the kind `Sample`, and names the text and the
/// expression.
///
/// A text is tokenized again in every epoch. To tokenize it once, write the inner set by
/// [`pack`](crate::pack()).
///
/// ```
/// use std::sync::Arc;
/// use feedline_core::Packed;
/// use feedline_datasets::{Bounded, Tokenized, open};
///
/// # let dir = std::env::temp_dir().join(format!("feedline-doc-tokenized-{}", std::process::id()));
/// # std::fs::create_dir_all(&dir)?;
/// # let (text, tokenizer) = (dir.join("corpus.txt"), dir.join("tokenizer.json"));
/// # std::fs::write(&text, "a rose is\na rose is a rose\n")?;
/// # std::fs::write(&tokenizer, r#"{"model": {"type": "WordLevel", "unk_token": "?", "vocab":
/// #     {"?": 0, "a": 1, "rose": 2, "is": 3}}, "pre_tokenizer": {"type": "Whitespace"}}"#)?;
/// let ids = Tokenized::new(open(&text)?, "text", &tokenizer)?;
/// let documents = Bounded::measured(Arc::new(ids))?; // finds the longest document, once
/// assert_eq!(documents.lengths("ids")?, [3, 5]);
/// let lengths = documents.lengths("ids")?.to_vec();
/// let windows = Packed::in_order(documents, "ids", &lengths, 4)?;
/// assert_eq!(windows.padding_share(), 0.0); // "a rose is a", "rose is a rose"
/// # std::fs::remove_dir_all(&dir)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Tokenized {
    inner: Arc<dyn Dataset>,
    /// The text field of the inner set.
    field: usize,
    tokenizer: Checked,
    path: PathBuf,
    special_tokens: bool,
    /// Max tokens of a text.
    max: Option<usize>,
    spec: Spec,
    /// The hash of the tokenizer's file.
    content: u64,
}

impl Tokenized {
    /// Tokenizes the field `field` of `inner`, which holds text or bytes in UTF-8. `tokenizer` is the path
    /// of the `tokenizer.json`.
    ///
    /// # Errors
    /// `Config` if there is no such field, the field is not text, or another field is called `ids`. `Data` if
    /// the tokenizer's file cannot be read or is of another kind. The error names the file.
    pub fn new(inner: Arc<dyn Dataset>, field: &str, tokenizer: impl AsRef<Path>) -> Result<Self> {
        let refuse = |why: String| {
            let error = Error::new(ErrorKind::Config, why);
            Err(inner.path(0).map_or(error.clone(), |path| error.at_path(path)))
        };
        let mut fields = inner.spec().fields().to_vec();
        let is_text = |of: &Field| {
            matches!(of.element(), ElementType::Text | ElementType::Bytes) && of.dims() == [None]
        };
        let Some(at) = fields.iter().position(|of| of.name() == field && is_text(of)) else {
            return refuse(format!("no field \"{field}\" that holds text, in {}", inner.spec()));
        };
        fields[at] = Field::variable(IDS, ElementType::Number(DType::I64));
        let spec = Spec::of_fields(fields);
        if check_names(&spec).is_err() {
            return refuse(format!("there is a field \"{IDS}\" beside \"{field}\": leave it out"));
        }
        let path = tokenizer.as_ref().to_path_buf();
        let (tokenizer, content) = load(&path)?;
        let (special_tokens, max) = (false, None);
        Ok(Self { inner, field: at, tokenizer, path, special_tokens, max, spec, content })
    }

    /// Adds the special tokens that the tokenizer has for a single text, such as `[CLS]` and `[SEP]`, or the
    /// end of a document.
    ///
    /// [`truncated`](Self::truncated) must leave room for these tokens. If `truncated` was called before with
    /// fewer, each read is an error of kind `Config`. If it is called after, `truncated` returns the error.
    pub fn with_special_tokens(mut self) -> Self {
        self.special_tokens = true;
        self
    }

    /// Keeps the first `max` tokens of each text, special tokens included.
    ///
    /// # Errors
    /// `Config` for 0. If special tokens are added, also for fewer tokens than the special ones.
    pub fn truncated(mut self, max: usize) -> Result<Self> {
        if max == 0 {
            return Err(Error::new(ErrorKind::Config, "texts of max 0 tokens have none: give at least 1"));
        }
        self.max = Some(max);
        self.check_room()?;
        // The crate subtracts the special tokens even if they are not added.
        let max_length = max.max(self.special_tokens_of_a_text());
        let truncation = TruncationParams { max_length, ..Default::default() };
        let set = self.tokenizer.with_truncation(Some(truncation));
        set.map(drop).map_err(|error| {
            let why = format!("cannot truncate to {max} tokens");
            Error::new(ErrorKind::Config, why).with_source(one_line(error)).at_path(&self.path)
        })?;
        Ok(self)
    }

    /// The number of tokens that the tokenizer knows, including tokens that were added.
    pub fn vocabulary(&self) -> usize {
        self.tokenizer.get_vocab_size(true)
    }

    /// The id of a token, such as the one that ends a text.
    pub fn token_id(&self, token: &str) -> Option<u32> {
        self.tokenizer.token_to_id(token)
    }

    /// The number of special tokens that the tokenizer has for a single text.
    fn special_tokens_of_a_text(&self) -> usize {
        self.tokenizer.get_post_processor().map_or(0, |processor| processor.added_tokens(false))
    }

    /// Checks that the max number of tokens leaves room for the special tokens.
    fn check_room(&self) -> Result<()> {
        let Some(max) = self.max.filter(|_| self.special_tokens) else { return Ok(()) };
        let special = self.special_tokens_of_a_text();
        if special <= max {
            return Ok(());
        }
        let why = format!(
            "the tokenizer adds {special} special tokens to a text, which is cut to {max}: allow at least \
             {special} tokens, or leave the special tokens out"
        );
        Err(Error::new(ErrorKind::Config, why).at_path(&self.path))
    }

    /// The ids of a text as bytes of `i64`.
    fn encode(&self, text: &[u8]) -> Result<Vec<u8>> {
        let name = &self.inner.spec().fields()[self.field].name();
        let text = std::str::from_utf8(text).map_err(|error| {
            let why = format!("field \"{name}\" is not UTF-8 from its byte {} on", error.valid_up_to());
            data(why + ": convert it first")
        })?;
        self.check_room()?;
        let ids = encode(&self.tokenizer, text, self.special_tokens).map_err(|error| {
            let why = format!("field \"{name}\" cannot be tokenized by {}", self.path.display());
            Error::new(ErrorKind::Sample, one_line(why)).with_source(one_line(error))
        })?;
        let ids = ids.into_iter().take(self.max.unwrap_or(usize::MAX));
        Ok(ids.flat_map(|id| i64::from(id).to_le_bytes()).collect())
    }
}

/// The tokenizer in a `tokenizer.json`, without truncation and padding. Also the hash of the file.
pub(crate) fn load(path: &Path) -> Result<(Checked, u64)> {
    let bytes = std::fs::read(path);
    let bytes =
        bytes.map_err(|error| data("cannot read the tokenizer's file").with_source(error).at_path(path))?;
    let content = Fingerprint::new().bytes(&bytes).value();
    let parse = || {
        serde_json::from_slice(&bytes).map_err(|error| {
            let why = "this is not a tokenizer.json of Hugging Face's tokenizers: save one by Tokenizer.save";
            data(why).with_source(one_line(error))
        })
    };
    // The crate panics for some errors of the file.
    let parsed = catch_panics("the tokenizer's file", parse);
    let mut tokenizer: Checked = parsed.map_err(|error| error.at_path(path))?;
    tokenizer.with_padding(None);
    // Without a limit this cannot fail.
    let _ = tokenizer.with_truncation(None);
    Ok((tokenizer, content))
}

impl Dataset for Tokenized {
    set_over!(self => About { categories: &[], row_memory: 0, ..self.inner.about() });

    fn read(&self, sample: u64, row: &mut Row<'_, '_>, context: &mut Context) -> Result<(), ReadError> {
        let (texts, wants_ids) = (self.field, row.wants(self.field));
        let mut encoded = |field: usize, bytes: &[u8], shape: Option<&[usize]>| match field == texts {
            true if wants_ids => {
                let ids = self
                    .encode(bytes)
                    .map_err(|error| at_file(&*self.inner, sample, error.at_sample(sample)));
                row.put(field, &ids?)
            }
            true => Ok(()),
            false => row.put_shaped(field, bytes, shape),
        };
        Ok(self.inner.visit(sample, &mut Sink::new(&mut encoded), context)?)
    }

    /// Covers the inner set, every byte of the tokenizer's file, and the options.
    fn fingerprint(&self) -> u64 {
        let max = self.max.unwrap_or_default() as u64;
        let state = Fingerprint::new().number(self.inner.fingerprint()).number(self.content);
        state.number(self.field as u64).number(u64::from(self.special_tokens)).number(max).value()
    }
}

impl Storage for Tokenized {
    fn stream(&self, sample: u64, field: usize) -> Result<Option<FieldStream<'_>>> {
        if field == self.field { Ok(None) } else { self.inner.storage().stream(sample, field) }
    }

    fn column(&self, field: usize) -> Option<StridedColumn<'_>> {
        if field == self.field { None } else { self.inner.storage().column(field) }
    }

    fn slice(&self, sample: u64, field: usize) -> Option<&[u8]> {
        if field == self.field { None } else { self.inner.storage().slice(sample, field) }
    }

    fn prefetch(&self, samples: &[u64], context: &mut Context) -> Prefetched {
        self.inner.storage().prefetch(samples, context)
    }
}

impl fmt::Debug for Tokenized {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Tokenized({:?}, {})", self.inner, self.path.display())
    }
}
