//! Texts of a source as token ids.

use std::fmt;
use std::path::{Path, PathBuf};

use feedline_core::source::{Shard, Source};
use feedline_core::{
    Context, DType, Error, ErrorKind, Fingerprint, Layout, OneRow, ReadError, Result, Row, Spec,
};

use super::{Checked, IDS, encode, load};
use crate::error::one_line;

/// A [`Source`] that turns the text field of another source into token ids. A `tokenizer.json` of Hugging
/// Face defines the ids.
///
/// The field `ids` (`i64`, of varying length) replaces the text. The text is a ragged field of `u8`. The
/// other fields stay. The ids are those of [`Tokenized`](super::Tokenized), without special tokens. The
/// thread that decodes a record tokenizes its text: a worker of a loader, or a thread of
/// [`PackedSource`](feedline_core::PackedSource).
///
/// ```
/// use feedline_core::{DType, PackedSource, Source, Spec, source};
/// use feedline_datasets::TokenizedSource;
///
/// # let dir = std::env::temp_dir().join(format!("feedline-doc-tokenized-source-{}", std::process::id()));
/// # std::fs::create_dir_all(&dir)?;
/// # let tokenizer = dir.join("tokenizer.json");
/// # std::fs::write(&tokenizer, r#"{"model": {"type": "WordLevel", "unk_token": "?", "vocab":
/// #     {"?": 0, "a": 1, "rose": 2, "is": 3}}, "pre_tokenizer": {"type": "Whitespace"}}"#)?;
/// let spec = Spec::new().ragged("text", DType::U8, [], 1 << 20)?;
/// let texts = ["a rose is", "a rose is a rose"];
/// let lines = move |_epoch, _shard| Ok(texts.map(|line| Ok(line.into())).into_iter());
/// let texts = source::from_iter(1, spec, lines, |line, row, _| Ok(row.write_ragged(0, line)?));
/// let ids = TokenizedSource::new(texts, "text", &tokenizer)?;
/// let windows = PackedSource::builder(ids, 4).field("ids").in_order().build()?;
/// assert_eq!(windows.spec().fields()[0].shape(), [4]);
/// # std::fs::remove_dir_all(&dir)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct TokenizedSource {
    texts: Box<dyn Source>,
    layout: Layout,
    /// The text field.
    field: usize,
    tokenizer: Checked,
    path: PathBuf,
    spec: Spec,
    /// The hash of the tokenizer's file.
    content: u64,
}

impl TokenizedSource {
    /// Tokenizes the ragged `u8` field `field` of `texts`. It holds UTF-8. `tokenizer` is the path of the
    /// `tokenizer.json`.
    ///
    /// # Errors
    /// `Config` if there is no such field, the field is not ragged `u8`, or another field is called `ids`.
    /// `Data` if the tokenizer's file cannot be read or is of another kind. The error names the file.
    pub fn new(texts: impl Source, field: &str, tokenizer: impl AsRef<Path>) -> Result<Self> {
        let own = texts.spec();
        let index = own.index_of(field)?;
        let mut spec = Spec::new();
        for (at, of) in own.fields().iter().enumerate() {
            let max = of.as_ragged().map(|ragged| ragged.max_per_sample());
            spec = match (at == index, max) {
                (true, Some(max)) if of.dtype() == DType::U8 && of.shape().is_empty() => {
                    // A token has at least one byte of text.
                    spec.ragged(IDS, DType::I64, [], max)?
                }
                (true, _) => {
                    let why = format!("field \"{field}\" is no text: it must be ragged, of u8");
                    return Err(Error::new(ErrorKind::Config, why));
                }
                (false, Some(max)) => spec.ragged(of.name(), of.dtype(), of.shape().to_vec(), max)?,
                (false, None) => spec.field(of.name(), of.dtype(), of.shape().to_vec())?,
            };
        }
        let path = tokenizer.as_ref().to_path_buf();
        let (tokenizer, content) = load(&path)?;
        let layout = Layout::new(own, 1)?;
        Ok(Self { texts: Box::new(texts), layout, field: index, tokenizer, path, spec, content })
    }

    fn encode(&self, text: &[u8]) -> Result<Vec<i64>> {
        let name = self.layout.spec().fields()[self.field].name();
        let text = std::str::from_utf8(text).map_err(|error| {
            let why = format!("field \"{name}\" is not UTF-8 from its byte {} on", error.valid_up_to());
            Error::new(ErrorKind::Sample, why + ": convert it first")
        })?;
        let ids = encode(&self.tokenizer, text, false).map_err(|error| {
            let why = format!("field \"{name}\" cannot be tokenized by {}", self.path.display());
            Error::new(ErrorKind::Sample, one_line(why)).with_source(one_line(error))
        })?;
        Ok(ids.into_iter().map(i64::from).collect())
    }
}

impl Source for TokenizedSource {
    fn shards(&self) -> u64 {
        self.texts.shards()
    }

    fn spec(&self) -> &Spec {
        &self.spec
    }

    fn open(&self, epoch: u64, shard: u64, offset: u64) -> Result<Box<dyn Shard>, ReadError> {
        self.texts.open(epoch, shard, offset)
    }

    fn decode(&self, record: &[u8], row: &mut Row<'_, '_>, context: &mut Context) -> Result<(), ReadError> {
        context.scoped_scratch(|one: &mut OneRow, context| {
            let read = one.decode(&*self.texts, &self.layout, record, context)?;
            for index in 0..self.layout.spec().fields().len() {
                match index == self.field {
                    true => row.write_ragged(index, &self.encode(read.values(index))?)?,
                    false => row.put(index, read.values(index))?,
                }
            }
            Ok(())
        })
    }

    fn path(&self, shard: u64) -> Option<&Path> {
        self.texts.path(shard)
    }

    /// Covers the texts and every byte of the tokenizer's file.
    fn fingerprint(&self) -> u64 {
        let state = Fingerprint::new().bytes(b"tokenized source").number(self.texts.fingerprint());
        state.number(self.content).number(self.field as u64).value()
    }
}

impl fmt::Debug for TokenizedSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TokenizedSource({}, {} shards)", self.path.display(), self.shards())
    }
}
