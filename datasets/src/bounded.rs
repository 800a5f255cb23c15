//! The limits of fields that vary in size, and how rows are copied.

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use feedline_core::{DType, Dataset, Error, ErrorKind, Field, Result, Spec, Values};

use self::lengths::Lengths;
use self::row_memory::RowMemory;
use crate::error::{at_file, check_not_empty};

pub(crate) mod lengths;
mod read;
pub(crate) mod row_memory;

#[cfg(feature = "tabular")]
pub(crate) use read::grouped;

/// The samples of a [`Dataset`](feedline_core::Dataset) whose fields have no limit, with one for each: a
/// batch needs it.
///
/// | field of the inner set | field of this set |
/// | --- | --- |
/// | one size, as `[28, 28]` | the same |
/// | the first dimension varies, as `[?]` or `[?, 3]` | ragged; an item is `[]` or `[3]` |
/// | others vary, as `[?, ?, 3]` | ragged, of single elements; and `NAME.shape` (`i64`, one per dimension) |
///
/// Text and bytes are `u8`. `read` uses no random numbers.
///
/// [`measured`](Self::measured) finds the limits itself. It makes one pass over all samples, and keeps the
/// result in the user's cache. [`stated`](Self::stated) takes one for each field, [`limited`](Self::limited)
/// one for all. [`new`](Self::new) is for samples of one size.
///
/// If the fields are in memory, there is a [column](feedline_core::Storage::column) for zero-copy loading. If
/// all rows of a table have one size, and take no more bytes than its cache
/// ([`OpenOptions::cache_bytes`](crate::OpenOptions::cache_bytes)), they are decoded once and held in memory.
///
/// ```
/// use feedline_core::{Dataset, lengths};
/// use feedline_datasets::{Bounded, open};
///
/// # let path = std::env::temp_dir().join(format!("feedline-doc-bounded-{}.txt", std::process::id()));
/// std::fs::write(&path, "To be, or not to be,\nthat is\n\nthe question:\n")?;
/// let lines = Bounded::limited(open(&path)?, 100)?; // lines of up to 100 bytes
/// assert_eq!(lengths(&lines, "text")?, [20, 7, 0, 13]);
/// # std::fs::remove_file(&path)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Bounded {
    inner: Arc<dyn Dataset>,
    /// The max number of items per sample, in fields without a limit of their own.
    max_per_sample: usize,
    /// For single fields, the max number of items per sample.
    limits: Vec<(String, usize)>,
    spec: Spec,
    /// Whether it is that of the inner set, which then writes the rows itself.
    is_same: bool,
    /// Whether the inner set puts its fields into the rows of a batch: their indices are the same, and it
    /// reads from no composed set.
    puts: bool,
    fields: Vec<Kind>,
    /// The items of each sample, for each field of the inner set. Empty if the samples are not measured.
    lengths: Lengths,
    /// The samples that could not be measured.
    bad_samples: Vec<u64>,
    /// The rows in memory, if all have one size.
    memory: Option<RowMemory>,
}

/// How a field of the inner set is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Fixed,
    Ragged,
    /// Ragged, and followed by a field for the shape. The shape has this many dimensions.
    Shaped(usize),
}

impl Bounded {
    /// The data set of `inner`, whose samples have one size.
    ///
    /// # Errors
    /// `Config` if [`Spec::closed`] refuses a field; `Data` if there are no samples.
    pub fn new(inner: Arc<dyn Dataset>) -> Result<Self> {
        Self::stated(inner, &[])
    }

    /// The data set of `inner`. `limits` has the max number of items per sample of each field that varies in
    /// size.
    ///
    /// # Errors
    /// As [`new`](Self::new), for a field without a limit; as [`limit`](Self::limit).
    pub fn stated(inner: Arc<dyn Dataset>, limits: &[(String, usize)]) -> Result<Self> {
        let is_stated = |field: &&Field| limits.iter().any(|(name, _)| *name == field.name());
        let others = inner.spec().fields().iter().filter(|field| !is_stated(field));
        Spec::of_fields(others.cloned()).closed().map_err(|error| at_file(&*inner, 0, error))?;
        check_not_empty(&*inner)?;
        let data = Self::of_set(inner, 1).laid_out()?;
        limits.iter().try_fold(data, |data, (field, max)| data.limit(field, *max))
    }

    /// The data set of `inner`. In each ragged field, a sample has at most `max_per_sample` items.
    ///
    /// # Errors
    /// `Config` for an element type that batches do not have, for too many fields, and for a limit of 0.
    /// `Data` if there are no samples.
    pub fn limited(inner: Arc<dyn Dataset>, max_per_sample: usize) -> Result<Self> {
        check_not_empty(&*inner)?;
        Self::of_set(inner, max_per_sample).laid_out()
    }

    fn of_set(inner: Arc<dyn Dataset>, max_per_sample: usize) -> Self {
        let (limits, spec, fields, lengths) = (Vec::new(), Spec::new(), Vec::new(), Lengths::new());
        Self {
            inner,
            max_per_sample,
            limits,
            spec,
            is_same: false,
            puts: false,
            fields,
            lengths,
            bad_samples: Vec::new(),
            memory: None,
        }
    }

    /// The data set of `inner`. The longest samples set its limits. [`lengths`](Self::lengths) returns the
    /// length of each sample. If all have one size, nothing is read.
    ///
    /// The first time, this blocks while all cores read every sample. It writes the lengths to a file in the
    /// [user's cache](feedline_core::user_cache), in the folder `lengths`. The next time, it reads them from
    /// there, unless the path or the [fingerprint](feedline_core::Dataset::fingerprint) has changed. For
    /// files in a store, or if there is no writable cache, each call reads all samples. Nothing is written
    /// beside the data.
    ///
    /// ```
    /// use feedline_core::Sampler;
    /// use feedline_datasets::{Bounded, open};
    ///
    /// # let path = std::env::temp_dir().join(format!("feedline-doc-measured-{}.txt", std::process::id()));
    /// std::fs::write(&path, "To be, or not to be,\nthat is\n\nthe question:\n")?;
    /// let lines = Bounded::measured(open(&path)?)?;
    /// assert_eq!(lines.lengths("text")?, [20, 7, 0, 13]);
    /// let sampler = Sampler::bucketed(lines.lengths("text")?, 2, 1)?;
    /// # drop(sampler);
    /// # std::fs::remove_file(&path)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As [`limited`](Self::limited), and those of [`Dataset::read`](feedline_core::Dataset::read).
    pub fn measured(inner: Arc<dyn Dataset>) -> Result<Self> {
        Self::measure(inner, None, false)
    }

    /// As [`measured`](Self::measured), but a sample that cannot be decoded, such as a conversation that a
    /// chat template refuses, is no error yet. Its [length](Self::lengths) is 0,
    /// [`bad_samples`](Self::bad_samples) has it, and to read it is an error: a loader gives it a
    /// substitute, if its policy for bad samples allows.
    ///
    /// ```
    /// use std::sync::Arc;
    /// use feedline_datasets::{Bounded, ChatOptions, Chats, Learn, Lines};
    ///
    /// # let dir = std::env::temp_dir().join(format!("feedline-doc-refused-{}", std::process::id()));
    /// # std::fs::create_dir_all(&dir)?;
    /// # let (chats, tokenizer) = (dir.join("chats.txt"), dir.join("tokenizer.json"));
    /// # std::fs::write(&tokenizer, r#"{"model": {"type": "WordLevel", "unk_token": "?", "vocab":
    /// #     {"?": 0, "Hi": 1}}, "pre_tokenizer": {"type": "Whitespace"}}"#)?;
    /// std::fs::write(&chats, "[{\"content\": \"Hi\"}]\n[]\n")?;
    /// let template = "{{ messages[0].content or raise_exception('no messages') }}";
    /// let options = ChatOptions { messages: "text".into(), learn: Learn::All, ..Default::default() };
    /// let options = ChatOptions { template: Some(template.into()), ..options };
    /// let chats = Chats::new(Arc::new(Lines::open(&chats)?), &tokenizer, options)?;
    /// let data = Bounded::measured_with_bad_samples(Arc::new(chats))?;
    /// assert_eq!((data.lengths("ids")?, data.bad_samples()), (&[1, 0][..], &[1][..]));
    /// # std::fs::remove_dir_all(&dir)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As [`measured`](Self::measured), but `Sample` only if all samples are bad: the error of the first.
    pub fn measured_with_bad_samples(inner: Arc<dyn Dataset>) -> Result<Self> {
        Self::measure(inner, None, true)
    }

    /// The samples that could not be decoded, of a set that was
    /// [measured with bad samples](Self::measured_with_bad_samples).
    pub fn bad_samples(&self) -> &[u64] {
        &self.bad_samples
    }

    /// As [`measured`](Self::measured), for any data set. The file of lengths is `cache`.
    ///
    /// # Errors
    /// As [`measured`](Self::measured); `Data` if the file cannot be written.
    pub fn measured_at(inner: Arc<dyn Dataset>, cache: impl AsRef<Path>) -> Result<Self> {
        Self::measure(inner, Some(cache.as_ref()), false)
    }

    fn measure(inner: Arc<dyn Dataset>, cache: Option<&Path>, marks_bad: bool) -> Result<Self> {
        if inner.spec().fields().iter().all(|field| !field.dims().contains(&None)) {
            return Self::new(inner);
        }
        let mut data = Self::limited(inner, 1)?;
        let fields = data.inner.spec().fields();
        let items = data.fields.iter().enumerate().map(|(at, kind)| {
            let item = data.spec.fields()[data.place(at)].item_bytes();
            (*kind != Kind::Fixed).then_some(item)
        });
        data.lengths = lengths::counted(&*data.inner, &items.collect::<Vec<_>>(), cache, marks_bad)?;
        data.bad_samples = lengths::bad_samples(&mut data.lengths);
        if data.bad_samples.len() as u64 == data.len() {
            Values::new().read(&*data.inner, 0)?;
        }
        for (field, lengths) in fields.iter().zip(&data.lengths) {
            let max = lengths.iter().flat_map(|lengths| lengths.iter()).max();
            // A limit is at least 1, even if all samples are empty.
            data.limits.extend(max.map(|&max| (field.name().to_owned(), max.max(1) as usize)));
        }
        data.laid_out()
    }

    /// Whether all samples have one size.
    fn is_fixed(&self) -> bool {
        self.fields.iter().all(|&kind| kind == Kind::Fixed)
    }

    /// The data set's index of field `field` of the inner set.
    fn place(&self, field: usize) -> usize {
        field + self.fields[..field].iter().filter(|kind| matches!(kind, Kind::Shaped(_))).count()
    }

    /// The number of items of each sample in the ragged field `field`.
    /// [`Sampler::bucketed`](feedline_core::Sampler::bucketed) and [`Packed`](feedline_core::Packed) take it.
    ///
    /// # Errors
    /// `Config` for a field that does not exist or is not ragged, or a data set that is not
    /// [measured](Self::measured).
    pub fn lengths(&self, field: &str) -> Result<&[u32]> {
        self.check_ragged(field)?;
        let at = self.inner.spec().fields().iter().position(|of| of.name() == field);
        at.and_then(|at| self.lengths.get(at)?.as_deref()).ok_or_else(|| {
            let why = "the lengths are not known: make the data set by Bounded::measured";
            Error::new(ErrorKind::Config, why)
        })
    }

    /// For [conversations](crate::Chats) that were [measured](Self::measured), the number of tokens of each
    /// sample before the first that is learnt, by the field of labels `field`: the first whose label is not
    /// -100, apart from the first token, which nothing predicts. All of its tokens if none is. `None` for
    /// other fields.
    ///
    /// A sample whose number is its [length](Self::lengths) teaches nothing, nor does one that is
    /// [cut](feedline_core::Long::Cut) to fewer tokens than its number.
    pub fn before_labels(&self, field: &str) -> Option<&[u32]> {
        let fields = self.inner.spec().fields();
        let at = lengths::labels(&*self.inner).position(|at| fields[at].name() == field)?;
        self.lengths.get(fields.len() + at)?.as_deref()
    }

    /// The max number of items of the ragged field `field` in any batch of `rows` samples, for
    /// `LoaderBuilder::max_per_batch`. It is the sum of the `rows` largest lengths. It is too small for
    /// padded fields: they take `rows` times the longest sample.
    ///
    /// # Errors
    /// As [`lengths`](Self::lengths).
    pub fn max_per_batch(&self, field: &str, rows: usize) -> Result<usize> {
        let mut lengths = self.lengths(field)?.to_vec();
        lengths.sort_unstable_by_key(|&length| std::cmp::Reverse(length));
        Ok(lengths.iter().take(rows).map(|&length| length as usize).sum::<usize>().max(1))
    }

    fn check_ragged(&self, field: &str) -> Result<()> {
        if self.spec.fields()[self.spec.index_of(field)?].as_ragged().is_none() {
            let why = format!("field \"{field}\" is not ragged: every sample has the same length");
            return Err(Error::new(ErrorKind::Config, why));
        }
        Ok(())
    }

    /// Sets another max number of items per sample for the ragged field `field`.
    ///
    /// # Errors
    /// `Config` for a field that does not exist or is not ragged, and for a limit of 0.
    pub fn limit(mut self, field: &str, max_per_sample: usize) -> Result<Self> {
        self.check_ragged(field)?;
        self.limits.push((field.to_owned(), max_per_sample));
        self.laid_out()
    }

    /// The values of the category `column` of a table, in the order of their numbers. `None` if the column is
    /// not a category.
    pub fn classes(&self, column: &str) -> Option<&[String]> {
        let found = self.inner.about().categories.iter().find(|(name, _)| name == column);
        found.map(|(_, classes)| classes.as_slice())
    }

    /// The inner set.
    pub fn inner(&self) -> &dyn Dataset {
        &*self.inner
    }

    /// Derives the spec from the inner set's schema and the limits.
    fn laid_out(self) -> Result<Self> {
        let stated = |name: &str| {
            let own = self.limits.iter().rev().find(|(field, _)| field == name);
            own.map(|(_, max)| *max)
        };
        let (mut spec, mut fields) = (Spec::new(), Vec::new());
        for field in self.inner.spec().fields() {
            let kind;
            (spec, kind) = add(spec, field, stated(field.name()), self.max_per_sample)?;
            fields.push(kind);
        }
        let is_same = spec == *self.inner.spec();
        let puts = self.inner.spec().is_open()
            && self.inner.about().nesting == 0
            && fields.len() == spec.fields().len();
        let data = Self { spec, fields, is_same, puts, ..self };
        let memory = data.is_fixed().then(|| RowMemory::new(&*data.inner, &data.spec)).flatten();
        Ok(Self { memory, ..data })
    }
}

/// Adds the fields of the data set for `field` of the inner set.
fn add(spec: Spec, field: &Field, stated: Option<usize>, max: usize) -> Result<(Spec, Kind)> {
    if field.as_ragged().is_some() && stated.is_none() {
        return Ok((spec.with(field)?, Kind::Ragged));
    }
    let max = stated.unwrap_or(max);
    let Some(first) = field.dims().iter().position(Option::is_none) else {
        return Ok((spec.with(&field.closed()?)?, Kind::Fixed));
    };
    let (dtype, parts) = field.batch_type()?;
    let rest: Option<Vec<usize>> = field.dims().iter().skip(1).copied().collect();
    match rest {
        Some(mut item) if first == 0 => {
            item.extend_from_slice(parts);
            Ok((spec.ragged(field.name(), dtype, item, max)?, Kind::Ragged))
        }
        _ => {
            let dims = field.dims().len();
            let spec = spec.ragged(field.name(), dtype, parts, max)?;
            Ok((spec.field(&format!("{}.shape", field.name()), DType::I64, [dims])?, Kind::Shaped(dims)))
        }
    }
}

impl fmt::Debug for Bounded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Bounded({:?})", self.inner)
    }
}
