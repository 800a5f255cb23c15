//! Streams of token ids, cut into windows for the training of language models.

use std::fmt;
use std::path::{Path, PathBuf};

use feedline_core::{
    About, Context, DType, Dataset, Error, ErrorKind, Fingerprint, ReadError, Result, Row, Spec, Storage,
    StridedColumn, named,
};

use crate::error::{data, outside};
use crate::formats::headed::check_tokens;
use crate::io::bytes::{Content, MEMORY_LIMIT};
use crate::io::disk::DiskFile;
#[cfg(feature = "object-store")]
use crate::remote::RemoteFile;
use crate::text::token_files::index::{Index, is_index};
use crate::text::token_files::{Ids, check_ids};

/// Index of the field `tokens`. The field `targets` follows it.
const TOKENS: usize = 0;

/// How to split token streams into windows.
///
/// ```
/// use feedline_core::DType;
/// use feedline_datasets::TokenOptions;
/// // Windows of 2,048 tokens that overlap by half, and never reach across token 50256. Shorter documents are
/// // left out.
/// let whole = TokenOptions::new(DType::U16, 2048);
/// let options = TokenOptions { stride: 1024, separator: Some(50256), skip_short: true, ..whole };
/// # assert_eq!(options.window, 2048);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TokenOptions {
    /// The dtype of the ids: a whole number, little-endian. The files have no header. `None` if the files
    /// state the dtype: a `.bin` beside its `.idx`, a file of llm.c, or a `.npy`.
    pub dtype: Option<DType>,
    /// Tokens per window.
    pub window: usize,
    /// Tokens from the start of one window to the start of the next. Default: the length of a window.
    pub stride: usize,
    /// The token that ends a document. If it is given, no window crosses into another document. The end of a
    /// document may be too short for a window with its targets. It is then in no window: see
    /// [`Tokens::left_out`].
    pub separator: Option<u32>,
    /// Whether documents without any window are left out. By default they are an error. The error states
    /// their number. To use short documents, pack them: [`Packed`](feedline_core::Packed).
    pub skip_short: bool,
    /// Files of up to this many bytes are held in memory.
    pub memory_limit: u64,
}

impl TokenOptions {
    /// Consecutive windows of `window` tokens of `dtype`. They cross documents. Files of up to
    /// [`MEMORY_LIMIT`] are held in memory.
    pub fn new(dtype: DType, window: usize) -> Self {
        Self { dtype: Some(dtype), ..Self::stated(window) }
    }

    /// As [`new`](Self::new), for files that state the dtype of their ids.
    pub fn stated(window: usize) -> Self {
        let (dtype, separator, skip_short) = (None, None, false);
        Self { dtype, window, stride: window, separator, skip_short, memory_limit: MEMORY_LIMIT }
    }
}

/// Counts of the tokens that are in no window of [`Tokens`], neither as a token nor as a target.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LeftOut {
    /// Documents without a token in any window.
    pub documents: u64,
    /// Tokens in no window: all tokens of these documents, and the ends of other documents.
    pub tokens: u64,
    /// All tokens of the files.
    pub of: u64,
}

impl fmt::Display for LeftOut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { documents, tokens, of } = self;
        write!(f, "{tokens} of {of} tokens are in no window, {documents} documents have none")
    }
}

/// One file of tokens.
#[derive(Debug)]
struct Stream {
    path: PathBuf,
    content: Content,
    /// The byte of the first token.
    first: u64,
    /// The first token of each window, if no window crosses documents.
    starts: Option<Vec<u64>>,
    /// Windows in the file.
    windows: u64,
    left_out: LeftOut,
    /// Samples per epoch: windows times weight, rounded.
    samples: u64,
}

/// Windows of token streams: fields `tokens` and `targets`, both `[window]`. A target is the next token.
///
/// There are two kinds of files. Headerless files are arrays of whole numbers; you state their dtype. Other
/// files state it themselves ([`TokenOptions::stated`]): a `.bin` beside its `.idx`, as Megatron writes them,
/// a file of llm.c, or a `.npy` of one dimension. If you state a dtype, `open` refuses text files and files
/// that begin with the header of a known format. [`TokenDocuments`](crate::TokenDocuments) reads a `.bin` by
/// documents.
///
/// A single file of weight 1 without a separator has a [column](Storage::column) for zero-copy loading.
///
/// ```
/// use feedline_core::{DType, Dataset};
/// use feedline_datasets::{TokenOptions, Tokens};
///
/// let path = std::env::temp_dir().join(format!("feedline-doc-tokens-{}", std::process::id()));
/// std::fs::write(&path, (0..10u16).flat_map(u16::to_le_bytes).collect::<Vec<_>>())?;
/// let tokens = Tokens::open(&[(&path, 1.0)], TokenOptions::new(DType::U16, 4))?;
/// assert_eq!(tokens.len(), 2); // 0..4 and 4..8; a third window lacks its targets
/// # std::fs::remove_file(&path)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Tokens {
    options: TokenOptions,
    dtype: DType,
    streams: Vec<Stream>,
    /// Cumulative sample counts of the streams.
    ends: Vec<u64>,
    spec: Spec,
    fingerprint: u64,
}

impl Tokens {
    /// Opens `files`, each with a weight. The weight is how often each window of the file is in an epoch, on
    /// average.
    ///
    /// A weight of 2 gives each window twice, and 0.5 gives every second window. Samples are in the order of
    /// the files; the loader's sampler shuffles them. With a separator, this reads each file once.
    ///
    /// # Errors
    /// `Config` if there is no file, the window or the stride is zero, the dtype is no whole number, or a
    /// weight is not a positive number.
    ///
    /// `Data` for a file that cannot be read, begins with the header of a known format, has no window, or has
    /// a length that is not a multiple of the token size. Also if the files state different dtypes. With a
    /// separator, also for a document without a window ([`TokenOptions::skip_short`]).
    pub fn open(files: &[(impl AsRef<Path>, f64)], options: TokenOptions) -> Result<Self> {
        Self::of_files(files, options, |path| {
            let read = |path: &Path| {
                let file = DiskFile::open(path).and_then(|file| Content::of_file(file, options.memory_limit));
                file.map_err(|error| error.at_path(path))
            };
            let (content, index) = (read(path)?, path.with_extension("idx"));
            let index = if index != path && index.is_file() { Some((read(&index)?, index)) } else { None };
            Ok((path.to_path_buf(), content, index))
        })
    }

    /// As [`open`](Self::open), for URLs of files in a store. The files are not held in memory.
    ///
    /// # Errors
    /// As [`open`](Self::open), and those of [`Remote`](crate::Remote).
    #[cfg(feature = "object-store")]
    pub fn open_remote(
        remote: &crate::Remote,
        urls: &[(impl AsRef<str>, f64)],
        options: TokenOptions,
    ) -> Result<Self> {
        let urls: Vec<_> = urls.iter().map(|(url, weight)| (url.as_ref(), *weight)).collect();
        Self::of_files(&urls, options, |path| {
            let url = path.to_string_lossy();
            let file = remote.file(&url)?;
            let index = if options.dtype.is_none() { remote.index_beside(&url)? } else { None };
            let path = |file: &RemoteFile| file.path().to_path_buf(); // without what could be secret
            let index = index.map(|index| (Content::Remote(index.clone()), path(&index)));
            Ok((path(&file), Content::Remote(file), index))
        })
    }

    /// The tokens in no window. With a separator, they are the tokens of short documents and the ends of
    /// other documents. Without one, they are the end of each file. Each file counts once, regardless of its
    /// weight.
    pub fn left_out(&self) -> LeftOut {
        self.streams.iter().fold(LeftOut::default(), |all, stream| LeftOut {
            documents: all.documents + stream.left_out.documents,
            tokens: all.tokens + stream.left_out.tokens,
            of: all.of + stream.left_out.of,
        })
    }

    fn of_files(
        files: &[(impl AsRef<Path>, f64)],
        options: TokenOptions,
        open: impl Fn(&Path) -> Result<(PathBuf, Content, Option<(Content, PathBuf)>)>,
    ) -> Result<Self> {
        let refuse = |why: &str| Err(Error::new(ErrorKind::Config, why));
        let TokenOptions { window, stride, .. } = options;
        if options.dtype.is_some_and(|dtype| check_ids(dtype).is_err()) {
            return refuse("tokens are whole numbers: give u16, u32, i32 or i64");
        }
        if window == 0 || stride == 0 {
            return refuse("a window and a stride have at least one token");
        }
        if options.skip_short && options.separator.is_none() {
            return refuse("skip_short is for documents, which a separator ends: give that, or leave it out");
        }
        if files.is_empty() {
            return refuse("there is no file of tokens: give at least one");
        }
        let (mut all, mut stated) = (Vec::new(), options.dtype);
        for (path, weight) in files {
            let (path, content, index) = open(path.as_ref())?;
            let ids = ids(path.clone(), content, index, options.dtype);
            let ids =
                ids.map_err(|error| if error.path().is_some() { error } else { error.at_path(&path) })?;
            if let Some(dtype) = stated.filter(|dtype| *dtype != ids.dtype) {
                let why =
                    format!("the file holds {}, and the first one {dtype}: write both with one", ids.dtype);
                return Err(data(why + " type, or pack their documents, which are i64").at_path(path));
            }
            stated = Some(ids.dtype);
            all.push((ids, *weight));
        }
        let dtype = stated.unwrap_or(DType::U16);
        let most = match dtype {
            DType::U8 => u8::MAX.into(),
            DType::I8 => i8::MAX as u32,
            DType::U16 => u16::MAX.into(),
            DType::I16 => i16::MAX as u32,
            DType::I32 => i32::MAX as u32,
            _ => u32::MAX,
        };
        if let Some(separator) = options.separator.filter(|&separator| separator > most) {
            let why =
                format!("separator is {separator}: tokens of {dtype} reach {most}, so none is equal to it");
            return Err(Error::new(ErrorKind::Config, why));
        }
        let spec = Spec::new().field("tokens", dtype, [window])?.field("targets", dtype, [window])?;
        let (mut streams, mut ends, mut samples) = (Vec::new(), Vec::new(), 0u64);
        let mut state = Fingerprint::new().spec(&spec).number(stride as u64);
        state = state.number(options.separator.map_or(u64::MAX, u64::from));
        for (ids, weight) in all {
            let path = ids.path.clone();
            let stream = Stream::new(ids, weight, &options).map_err(|error| error.at_path(path))?;
            state = state.number(stream.samples);
            state = stream.content.fingerprint_sampled(state)?;
            samples = samples.saturating_add(stream.samples);
            ends.push(samples);
            streams.push(stream);
        }
        Ok(Self { options, dtype, streams, ends, spec, fingerprint: state.value() })
    }

    /// The stream of `sample`, and the offset of its window.
    fn find(&self, sample: u64) -> Result<(&Stream, u64)> {
        let at = self.ends.partition_point(|&end| end <= sample);
        let Some(stream) = self.streams.get(at) else {
            return Err(outside(sample, Dataset::len(self), &self.streams[0].path));
        };
        let inside = sample - if at == 0 { 0 } else { self.ends[at - 1] };
        // Samples are spread evenly over windows: sample i of n is window i * windows / n.
        let window = u128::from(inside) * u128::from(stream.windows) / u128::from(stream.samples);
        let window = window as u64;
        let token = match &stream.starts {
            Some(starts) => starts[window as usize],
            None => window * self.options.stride as u64,
        };
        Ok((stream, stream.first + token * self.dtype.size() as u64))
    }
}

impl Stream {
    fn new(ids: Ids, weight: f64, options: &TokenOptions) -> Result<Self> {
        if !weight.is_finite() || weight <= 0.0 {
            let why = format!("a weight is a number above zero, this file has {weight}");
            return Err(Error::new(ErrorKind::Config, why));
        }
        let Ids { path, content, dtype, first, count: tokens } = ids;
        let (window, stride) = (options.window as u64, options.stride as u64);
        // A window needs one more token: the last target.
        let windows_of = |tokens: u64| tokens.checked_sub(window + 1).map_or(0, |rest| rest / stride + 1);
        // The number of tokens that `windows` windows hold, as tokens or as targets.
        let held = |windows: u64| match windows {
            0 => 0,
            _ => (windows - 1) * stride.min(window + 1) + window + 1,
        };
        let mut left_out = LeftOut { of: tokens, ..LeftOut::default() };
        let starts = match options.separator {
            None => None,
            Some(separator) => {
                let (mut starts, mut begin) = (Vec::new(), 0);
                let ends =
                    documents(&content, (first, first + tokens * dtype.size() as u64), separator, dtype)?;
                for (number, &end) in ends.iter().enumerate() {
                    let windows = windows_of(end - begin);
                    starts.extend((0..windows).map(|window| begin + window * stride));
                    left_out.tokens += end - begin - held(windows);
                    // A separator alone is no document. The last document has no separator.
                    let separators = u64::from(number + 1 < ends.len());
                    left_out.documents += u64::from(windows == 0 && end - begin > separators);
                    begin = end;
                }
                Some(starts)
            }
        };
        let windows = starts.as_ref().map_or(windows_of(tokens), |starts| starts.len() as u64);
        if starts.is_none() {
            left_out.tokens = tokens - held(windows);
        }
        if windows == 0 {
            let of = if options.separator.is_some() { "no document" } else { "the file" };
            let why = format!("{of} has a window of {window} tokens and a target: choose a shorter window");
            return Err(data(why));
        }
        if left_out.documents > 0 && !options.skip_short {
            let LeftOut { documents, tokens, of } = left_out;
            let why = format!(
                "{documents} documents are shorter than a window of {window} tokens and a target, and \
                 {tokens} of {of} tokens would be in no window: choose a shorter window, pack the documents \
                 (Packed), or leave them out by TokenOptions::skip_short"
            );
            return Err(data(why));
        }
        let samples = (windows as f64 * weight).round().max(1.0) as u64;
        Ok(Self { path, content, first, starts, windows, left_out, samples })
    }
}

/// The ids of a file. With `dtype`, the file is an array of that type without a header. Without `dtype`, the
/// header or the index beside the file states the type.
fn ids(
    path: PathBuf,
    content: Content,
    index: Option<(Content, PathBuf)>,
    dtype: Option<DType>,
) -> Result<Ids> {
    let is_of_ids = |index: &Content| Ok(is_index(&index.read(0, index.len().min(16) as usize)?));
    let index = match index {
        // A file of another kind may have the name of the index.
        Some((index, path)) if is_of_ids(&index)? => {
            Some(Index::of_content(index, content.len()).map_err(|error| error.at_path(path))?)
        }
        _ => None,
    };
    let Some(dtype) = dtype else {
        let ids = Ids::stated(path, content, index)?;
        check_ids(ids.dtype)?;
        return Ok(ids);
    };
    check_tokens(&content)?;
    if let Some(stated) = index.map(|index| index.dtype()).filter(|stated| *stated != dtype) {
        let how = named("TokenOptions::stated(window)", "feedline.tokens without dtype");
        return Err(data(format!(
            "the .idx beside the file says that its ids are {stated}, not {dtype}: use {how}"
        )));
    }
    let size = dtype.size() as u64;
    if !content.len().is_multiple_of(size) {
        let why = format!("{} bytes are not a whole number of {dtype}: give the right type", content.len());
        return Err(data(why).at_offset(content.len() / size * size));
    }
    let count = content.len() / size;
    Ok(Ids { path, content, dtype, first: 0, count })
}

/// The end of each document in the bytes `from..to`: the token after each separator, and the end of the
/// tokens.
fn documents(content: &Content, (from, to): (u64, u64), separator: u32, dtype: DType) -> Result<Vec<u64>> {
    let size = dtype.size();
    let mut ends = Vec::new();
    let mut block = vec![0; 1 << 20];
    let mut at = from;
    // A separator that the type cannot hold does not occur.
    let is_held = size >= 4 || u64::from(separator) < 1 << (8 * size);
    let separator = u64::from(separator).to_le_bytes();
    while at < to && is_held {
        let part = (to - at).min(block.len() as u64) as usize;
        content.read_at(at, &mut block[..part])?;
        for (index, token) in block[..part].chunks_exact(size).enumerate() {
            if token == &separator[..size] {
                ends.push((at - from) / size as u64 + index as u64 + 1);
            }
        }
        at += part as u64;
    }
    content.check_unchanged()?;
    ends.push((to - from) / size as u64);
    Ok(ends)
}

impl Dataset for Tokens {
    fn len(&self) -> u64 {
        self.ends.last().copied().unwrap_or_default()
    }

    fn spec(&self) -> &Spec {
        &self.spec
    }

    fn read(&self, id: u64, row: &mut Row<'_, '_>, _: &mut Context) -> Result<(), ReadError> {
        let (stream, start) = self.find(id)?;
        let size = self.dtype.size();
        let bytes = self.options.window * size;
        for field in [TOKENS, TOKENS + 1] {
            let from = start + (field * size) as u64;
            match stream.content.bytes() {
                // In bounds: `Stream::open` counts only windows whose last target is in the file.
                Some(all) => row.write(field, &all[from as usize..][..bytes]),
                None => stream.content.read_at(from, row.bytes_mut(field))?,
            }
        }
        Ok(stream.content.check_unchanged()?)
    }

    fn about(&self) -> About<'_> {
        About { format: "tokens", ..About::default() }
    }

    fn storage(&self) -> &dyn Storage {
        self
    }

    fn path(&self, id: u64) -> Option<&Path> {
        self.find(id).ok().map(|(stream, _)| stream.path.as_path())
    }

    /// Covers the options, and every byte of the files in memory. Of other files it covers the length and a
    /// sample of the content.
    fn fingerprint(&self) -> u64 {
        self.fingerprint
    }
}

impl Storage for Tokens {
    fn column(&self, field: usize) -> Option<StridedColumn<'_>> {
        let [stream] = &self.streams[..] else { return None };
        if field > 1 || stream.starts.is_some() || stream.samples != stream.windows {
            return None;
        }
        let size = self.dtype.size();
        let (stride, bytes) = (self.options.stride * size, self.options.window * size);
        let first = stream.first as usize + field * size;
        StridedColumn::new(stream.content.bytes()?, first, stride, stream.windows as usize, bytes).ok()
    }
}
