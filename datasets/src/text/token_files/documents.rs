//! The documents in a file of token ids.

use std::fmt;
use std::path::{Path, PathBuf};

use feedline_core::{
    About, Context, DType, Dataset, ElementType, Field, Fingerprint, ReadError, Result, Row, Spec, Storage,
};

use super::index::Index;
use super::llm_c::{HEADER, Header};
use super::{widen, widened};
use crate::error::{data, inside};
use crate::io::bytes::Content;
use crate::io::disk::DiskFile;
use crate::io::of_one_file;
use crate::{Buffers, MEMORY_LIMIT, MappedFile};

/// The number of ids that are searched for beginnings of documents at a time.
const BLOCK: u64 = 1 << 19;

/// The documents in a `.bin` with its `.idx`, as Megatron and fairseq write them, or in a file of llm.c.
///
/// | field | type | what |
/// | --- | --- | --- |
/// | `ids` | `i64`, varies | the ids of a document; the file's type if that is a floating-point type |
/// | `ids.lengths` | `i64`, varies | of a pair: the ids of each of its sequences |
/// | `ids.modes` | `i8`, varies | of a pair with modes: that of each sequence |
///
/// A document may be empty. The index states the number of ids of each document. So
/// [`Bounded::measured`](crate::Bounded::measured) reads no ids. In a file of llm.c, each document begins
/// with the token that ends a text: 50256 of GPT-2, or 128000 of Llama 3.
///
/// ```
/// use feedline_core::{Dataset, Values};
/// use feedline_datasets::TokenDocuments;
///
/// # let dir = std::env::temp_dir().join(format!("feedline-doc-documents-{}", std::process::id()));
/// # std::fs::create_dir_all(&dir)?;
/// # let bin = dir.join("corpus.bin");
/// # std::fs::write(&bin, [5, 0, 6, 0, 7, 0])?;
/// # let mut index = b"MMIDIDX\0\0\x01\0\0\0\0\0\0\0\x08".to_vec();
/// # index.extend([2u64, 3].iter().flat_map(|n| n.to_le_bytes()));
/// # index.extend([2u32, 1].iter().flat_map(|n| n.to_le_bytes()));
/// # index.extend([0u64, 4, 0, 1, 2].iter().flat_map(|n| n.to_le_bytes()));
/// # std::fs::write(dir.join("corpus.idx"), index)?;
/// let documents = TokenDocuments::open(bin)?; // corpus.idx lies beside it
/// let mut values = Values::new();
/// values.read(&documents, 0)?;
/// assert_eq!(documents.len(), 2);
/// assert_eq!(values.fields()[0].bytes, [5_i64, 6].map(i64::to_le_bytes).concat());
/// # std::fs::remove_dir_all(&dir)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct TokenDocuments {
    path: PathBuf,
    content: Content,
    dtype: DType,
    places: Places,
    schema: Spec,
    fingerprint: u64,
}

/// The positions of the documents.
enum Places {
    Index(Box<Index>),
    /// The first id of each document, and the end.
    Starts(Vec<u64>),
}

impl TokenDocuments {
    /// Opens a `.bin` with the `.idx` beside it, or a file of llm.c. The path may name the `.bin` or the
    /// `.idx`. Both files are held in memory up to [`MEMORY_LIMIT`].
    ///
    /// # Errors
    /// `Data` if a file is missing or damaged, or the two files do not belong together. The error names the
    /// file and the byte.
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        Self::open_with(path.as_ref(), MEMORY_LIMIT)
    }

    /// As [`open`](Self::open), for a mapped `.bin`.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn from_mapped(file: MappedFile) -> Result<Self> {
        let path = file.path().to_path_buf();
        let content = Content::Mapped(file);
        let index = path.with_extension("idx");
        match index.is_file() {
            true => Self::of_pair(path, content, &index, MEMORY_LIMIT),
            false => Self::of_llm_c(path.clone(), content).map_err(|error| error.at_path(path)),
        }
    }

    pub(crate) fn open_with(path: &Path, limit: u64) -> Result<Self> {
        let is_index = path.extension().is_some_and(|extension| extension == "idx");
        let (bin, index) = (path.with_extension("bin"), path.with_extension("idx"));
        let path = if is_index { &bin } else { path };
        let content = DiskFile::open(path).and_then(|file| Content::of_file(file, limit));
        let content = content.map_err(|error| error.at_path(path))?;
        if is_index || index.is_file() {
            return Self::of_pair(path.to_path_buf(), content, &index, limit);
        }
        Self::of_llm_c(path.to_path_buf(), content).map_err(|error| error.at_path(path))
    }

    fn of_pair(path: PathBuf, content: Content, index: &Path, limit: u64) -> Result<Self> {
        let file = DiskFile::open(index).and_then(|file| Content::of_file(file, limit));
        let index = file
            .and_then(|file| Index::of_content(file, content.len()))
            .map_err(|error| error.at_path(index))?;
        Self::of_index(path, content, index)
    }

    /// The documents of `content` that `index` lists.
    pub(crate) fn of_index(path: PathBuf, content: Content, index: Index) -> Result<Self> {
        index.ids(&content).map_err(|error| error.at_path(&path))?;
        index.check_sequences(content.len()).map_err(|error| error.at_path(path.with_extension("idx")))?;
        let dtype = index.dtype();
        let ids = ElementType::Number(widened(dtype));
        let mut fields = vec![Field::variable("ids", ids)];
        fields.push(Field::variable("ids.lengths", ElementType::Number(DType::I64)));
        if index.has_modes() {
            fields.push(Field::variable("ids.modes", ElementType::Number(DType::I8)));
        }
        let state = index.content().fingerprint_sampled(Fingerprint::new().bytes(b"documents"))?;
        let fingerprint = content.fingerprint_sampled(state)?.value();
        let places = Places::Index(Box::new(index));
        Ok(Self { path, content, dtype, places, schema: Spec::of_fields(fields), fingerprint })
    }

    /// The documents of a file of llm.c.
    pub(crate) fn of_llm_c(path: PathBuf, content: Content) -> Result<Self> {
        let start = content.read(0, content.len().min(HEADER) as usize)?;
        let Some(Header { dtype, tokens, begin }) = Header::parsed(&start, content.len())? else {
            let name = path.with_extension("idx");
            let name = name.file_name().unwrap_or_default().to_string_lossy().into_owned();
            return Err(data(format!(
                "there is no {name} beside the file, and it has no header of llm.c: {}",
                raw()
            )));
        };
        let (size, mut starts, mut at) = (dtype.size() as u64, vec![0], 0);
        while at < tokens {
            let part = BLOCK.min(tokens - at);
            let ids = content.read(HEADER + at * size, (part * size) as usize)?;
            for (id, token) in ids.chunks_exact(size as usize).enumerate() {
                let mut wide = [0; 4];
                wide[..token.len()].copy_from_slice(token);
                let first = at + id as u64;
                if u32::from_le_bytes(wide) == begin && first > 0 {
                    starts.push(first);
                }
            }
            at += part;
        }
        content.check_unchanged()?;
        if starts.len() == 1 && tokens > BLOCK {
            let why =
                format!("no token {begin} begins a document among {tokens} ids: read windows, {}", windows());
            return Err(data(why));
        }
        starts.push(tokens);
        let ids = Field::variable("ids", ElementType::Number(widened(dtype)));
        let fingerprint = content.fingerprint_sampled(Fingerprint::new().bytes(b"llm.c"))?.value();
        let (places, schema) = (Places::Starts(starts), Spec::of_fields([ids]));
        Ok(Self { path, content, dtype, places, schema, fingerprint })
    }

    /// Reads the ids of a document, and the length of each sequence. Returns the modes of the sequences.
    fn fill(&self, document: u64, ids: &mut Vec<u8>, lengths: &mut Vec<u8>) -> Result<Vec<u8>> {
        let (mut modes, has_modes) = (Vec::new(), self.schema.fields().len() > 2);
        ids.clear();
        lengths.clear();
        match &self.places {
            Places::Starts(starts) => {
                let (first, end) = (starts[document as usize], starts[document as usize + 1]);
                self.append(HEADER + first * self.dtype.size() as u64, end - first, ids)?;
            }
            Places::Index(index) => {
                for sequence in index.document(document)? {
                    let place = index.sequence(sequence, self.content.len())?;
                    self.append(place.first, place.ids, ids)?;
                    lengths.extend((place.ids as i64).to_le_bytes());
                    if has_modes {
                        modes.push(index.mode(sequence)?);
                    }
                }
                index.content().check_unchanged()?;
            }
        }
        self.content.check_unchanged()?;
        Ok(modes)
    }

    /// Appends `ids` ids from byte `first` on.
    fn append(&self, first: u64, ids: u64, to: &mut Vec<u8>) -> Result<()> {
        let bytes = usize::try_from(ids).ok().and_then(|ids| ids.checked_mul(self.dtype.size()));
        let bytes = bytes.ok_or_else(|| data(format!("{ids} ids are more than the address space holds")))?;
        match self.content.bytes() {
            // In bounds: each sequence was checked against the length of the file.
            Some(all) => widen(self.dtype, &all[first as usize..][..bytes], to),
            None => widen(self.dtype, &self.content.read(first, bytes)?, to),
        }
        Ok(())
    }
}

/// Advice for files of bare ids.
pub(crate) fn raw() -> &'static str {
    feedline_core::named(
        "if its numbers are ids without a header, open it by Tokens, with their type",
        "if its numbers are ids without a header, open it by feedline.tokens(path, window, dtype=\"u16\")",
    )
}

fn windows() -> &'static str {
    feedline_core::named("by Tokens", "by feedline.tokens(path, window)")
}

impl Dataset for TokenDocuments {
    of_one_file! { self => self.schema, self.path;
        /// Covers every byte of files in memory, and some bytes of other files.
    }

    fn len(&self) -> u64 {
        match &self.places {
            Places::Index(index) => index.documents(),
            Places::Starts(starts) => starts.len() as u64 - 1,
        }
    }

    fn read(&self, sample: u64, row: &mut Row<'_, '_>, context: &mut Context) -> Result<(), ReadError> {
        let buffers = context.scratch::<Buffers>();
        inside(sample, self.len(), &self.path)?;
        // The ids, the length of each sequence, and their modes.
        let Buffers { value: ids, file: lengths, .. } = buffers;
        let modes = self.fill(sample, ids, lengths);
        let modes = modes.map_err(|error| error.at_path(&self.path).at_sample(sample))?;
        let values = [ids, lengths, &modes].into_iter().take(self.schema.fields().len());
        Ok(values.enumerate().try_for_each(|(field, value)| row.put(field, value))?)
    }

    fn about(&self) -> About<'_> {
        let format = match self.places {
            Places::Index(_) => "megatron",
            Places::Starts(_) => "llm.c",
        };
        About { format, ..About::default() }
    }

    fn storage(&self) -> &dyn Storage {
        self
    }
}

impl Storage for TokenDocuments {
    fn lengths(&self) -> Result<Option<Vec<Vec<u32>>>> {
        Ok(Some(match &self.places {
            Places::Index(index) => {
                let counts = index.counts().map_err(|error| error.at_path(&self.path))?;
                let of = |at: usize| counts.iter().map(move |count| count[at]).collect::<Vec<_>>();
                let fields = self.schema.fields().len();
                (0..fields).map(|field| of(field.min(1))).collect()
            }
            Places::Starts(starts) => {
                // A file of llm.c has fewer than 2^32 ids.
                vec![starts.windows(2).map(|ends| (ends[1] - ends[0]) as u32).collect()]
            }
        }))
    }
}

impl fmt::Debug for TokenDocuments {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TokenDocuments({}, {} documents)", self.path.display(), self.len())
    }
}
