//! Packs token ids into a `.bin` with its `.idx`, as Megatron reads them.

use std::fs::File;
use std::io::{BufReader, BufWriter, Read, Seek, SeekFrom, Write};
use std::path::Path;
use std::sync::mpsc::{Receiver, sync_channel};
use std::thread;

use feedline_core::{DType, Dataset, ElementType, Error, ErrorKind, Fingerprint, Result, Values};

use super::journal::{self, Journal, Part, Written};
use super::partial::Partial;
use super::{cannot, refuse};
use crate::error::data;
use crate::text::token_files::index;

/// Max documents that a thread reads at a time.
const TOGETHER: u64 = 32;
/// Max batches of documents per thread that wait to be written.
const WAITING: usize = 2;

/// Megatron uses `i32` for vocabularies of this size or more.
const SMALL_VOCABULARY: usize = 65_500;

/// How to pack token ids.
#[derive(Clone, Debug)]
pub struct TokenPackOptions {
    /// The dtype of the ids in the file: `u8`, `u16`, `i8`, `i16`, `i32` or `i64`. Megatron uses `u16` for a
    /// vocabulary of fewer than 65,500 tokens, and `i32` for larger ones.
    pub dtype: DType,
    /// The field with the ids. It is a list of whole numbers.
    pub field: String,
    /// An id that is added to each document, such as the id of the token that ends a text.
    pub end: Option<u32>,
    /// The number of threads that read and tokenize. 0 is one per core.
    pub threads: usize,
}

impl TokenPackOptions {
    /// Packs the field `ids` as ids of `dtype`. Adds no token, and uses one thread per core.
    pub fn new(dtype: DType) -> Self {
        Self { dtype, field: "ids".to_owned(), end: None, threads: 0 }
    }

    /// As [`new`](Self::new), with the dtype that Megatron uses for a vocabulary of `tokens` tokens.
    pub fn of_vocabulary(tokens: usize) -> Self {
        Self::new(if tokens < SMALL_VOCABULARY { DType::U16 } else { DType::I32 })
    }
}

/// Outcome of [`pack_tokens`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PackedTokens {
    /// Documents.
    pub documents: u64,
    /// Ids of all documents.
    pub tokens: u64,
    /// Documents of an earlier run that were reused.
    pub kept: u64,
}

/// Writes each sample's token ids as a document of the file `to`, a `.bin`, and of the `.idx` beside it.
/// Threads read and tokenize. The documents keep their order. Calls `progress` with the number of documents
/// written so far.
///
/// The files are Megatron's, byte for byte. [`TokenDocuments`](crate::TokenDocuments) reads them and knows
/// all lengths. A document is one sequence, unless the data set states the lengths of its sequences, as
/// `TokenDocuments` does. Until the files are complete, they are called `NAME.partial`. A later run of the
/// same source and options resumes an interrupted run, if the checksums of the bytes on disk match. The
/// memory does not grow with the number of documents.
///
/// ```
/// use feedline_core::DType;
/// use feedline_datasets::{TokenPackOptions, Tokens, TokenOptions, open, pack_tokens};
///
/// # let dir = std::env::temp_dir().join(format!("feedline-doc-pack-tokens-{}", std::process::id()));
/// # std::fs::create_dir_all(&dir)?;
/// let (source, target) = (dir.join("ids.npy"), dir.join("corpus.bin"));
/// # let mut npy = b"\x93NUMPY\x01\0\x46\0".to_vec();
/// # npy.extend(b"{'descr': '<i8', 'fortran_order': False, 'shape': (2, 3), }");
/// # npy.resize(79, b' ');
/// # npy.push(b'\n');
/// # npy.extend((1..=6i64).flat_map(i64::to_le_bytes));
/// # std::fs::write(&source, npy)?;
/// let options = TokenPackOptions { field: "array".into(), ..TokenPackOptions::new(DType::U16) };
/// let packed = pack_tokens(&*open(&source)?, &target, &options, |_| {})?;
/// assert_eq!((packed.documents, packed.tokens), (2, 6));
/// let windows = Tokens::open(&[(target, 1.0)], TokenOptions::stated(2))?;
/// # std::fs::remove_dir_all(&dir)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// `Config` for a field that does not exist or holds no whole numbers, for another dtype of ids, and for a
/// target that exists or is not called `.bin`. `Data` if a sample cannot be read, an id is too large for the
/// dtype, or a file cannot be written. The error names the file and the sample.
pub fn pack_tokens(
    set: &dyn Dataset,
    to: impl AsRef<Path>,
    options: &TokenPackOptions,
    mut progress: impl FnMut(u64),
) -> Result<PackedTokens> {
    let to = to.as_ref();
    let at = |error: Error| if error.path().is_some() { error } else { error.at_path(to) };
    let source = Source::new(set, options).map_err(at)?;
    if to.extension().is_none_or(|extension| extension != "bin") {
        return Err(at(refuse(
            "the ids go to a file called .bin, with the .idx beside it: give such a name",
        )));
    }
    if to.exists() {
        return Err(at(refuse("this exists already: remove it, or choose another name")));
    }
    pack(&source, to, &mut progress).map_err(at)
}

/// The data set and the options of a run.
struct Source<'a> {
    set: &'a dyn Dataset,
    options: &'a TokenPackOptions,
    field: usize,
    /// The dtype of the ids in the data set.
    dtype: DType,
    /// The fields with the lengths of the sequences, and with their modes.
    lengths: Option<usize>,
    modes: Option<usize>,
}

/// Documents in the form in which they are written.
#[derive(Default)]
struct Batch {
    documents: u64,
    tokens: u64,
    ids: Vec<u8>,
    /// For each document, the number of its sequences, and then the length and mode of each sequence.
    sequences: Vec<u8>,
}

impl<'a> Source<'a> {
    fn new(set: &'a dyn Dataset, options: &'a TokenPackOptions) -> Result<Self> {
        let fields = set.spec().fields();
        let find = |name: &str| fields.iter().position(|field| field.name() == name);
        let Some(field) = find(&options.field) else {
            let why = format!("no field \"{}\" of token ids, in {}", options.field, set.spec());
            return Err(Error::new(ErrorKind::Config, crate::error::one_line(why)));
        };
        let dtype = match (fields[field].element(), fields[field].dims().len()) {
            (ElementType::Number(dtype), 1) if !is_fraction(dtype) => dtype,
            _ => {
                let why =
                    format!("field \"{}\" is no list of whole numbers: {}", options.field, fields[field]);
                return Err(Error::new(ErrorKind::Config, crate::error::one_line(why)));
            }
        };
        if index::code(options.dtype).is_none() || is_fraction(options.dtype) {
            return Err(refuse(
                "an .idx knows ids of the types u8, i8, i16, u16, i32 and i64: give one of them",
            ));
        }
        let part = |name: &str, dtype: DType| {
            let at = find(&format!("{}.{name}", options.field))?;
            (fields[at].element() == ElementType::Number(dtype)).then_some(at)
        };
        let lengths = part("lengths", DType::I64);
        let modes = lengths.and_then(|_| part("modes", DType::I8));
        Ok(Self { set, options, field, dtype, lengths, modes })
    }

    /// The key of the packed files. It covers the source and the options: everything that changes the files'
    /// bytes.
    fn fingerprint(&self) -> Result<[u64; 3]> {
        let TokenPackOptions { dtype, field, end, threads: _ } = self.options;
        let form = format!("{dtype} {field} {end:?}");
        let set = Fingerprint::checked(|| self.set.fingerprint())?;
        Ok([set, self.set.len(), crc32c::crc32c(form.as_bytes()).into()])
    }

    /// Reads a batch of documents, from `first` on.
    fn batch(&self, first: u64, values: &mut Values) -> Result<Batch> {
        let mut batch = Batch::default();
        for sample in first..(first + TOGETHER).min(self.set.len()) {
            let added = values.read(self.set, sample).and_then(|()| self.add(values, &mut batch));
            added.map_err(|error| if error.sample().is_some() { error } else { error.at_sample(sample) })?;
        }
        Ok(batch)
    }

    fn add(&self, values: &Values, to: &mut Batch) -> Result<()> {
        let ids = &values.fields()[self.field].bytes;
        let mut count = (ids.len() / self.dtype.size()) as u64;
        for id in ids.chunks_exact(self.dtype.size()) {
            write_id(whole(self.dtype, id), self.options.dtype, &mut to.ids)?;
        }
        let mut lengths: Vec<u64> = match self.lengths {
            Some(at) => {
                values.fields()[at].bytes.as_chunks().0.iter().map(|of| u64::from_le_bytes(*of)).collect()
            }
            None => vec![count],
        };
        if lengths.iter().sum::<u64>() != count {
            return Err(data("the sequences of a document have not as many ids as the document"));
        }
        if let Some(end) = self.options.end {
            write_id(end.into(), self.options.dtype, &mut to.ids)?;
            count += 1;
            match lengths.last_mut() {
                Some(last) => *last += 1,
                None => lengths.push(1),
            }
        }
        let modes = self.modes.map(|at| values.fields()[at].bytes.as_slice()).unwrap_or_default();
        let number = |number: u64| {
            i32::try_from(number)
                .map_err(|_| data(format!("a sequence of {number} ids: an .idx has at most 2^31")))
        };
        to.sequences.extend(number(lengths.len() as u64)?.to_le_bytes());
        for (at, length) in lengths.iter().enumerate() {
            to.sequences.extend(number(*length)?.to_le_bytes());
            to.sequences.push(modes.get(at).copied().unwrap_or_default());
        }
        to.documents += 1;
        to.tokens += count;
        Ok(())
    }
}

fn is_fraction(dtype: DType) -> bool {
    matches!(dtype, DType::F16 | DType::BF16 | DType::F32 | DType::F64 | DType::Bool)
}

fn whole(dtype: DType, id: &[u8]) -> i64 {
    let mut wide = [0; 8];
    wide[..id.len()].copy_from_slice(id);
    let number = i64::from_le_bytes(wide);
    match dtype {
        DType::I8 => i64::from(number as i8),
        DType::I16 => i64::from(number as i16),
        DType::I32 => i64::from(number as i32),
        _ => number,
    }
}

fn write_id(id: i64, dtype: DType, to: &mut Vec<u8>) -> Result<()> {
    let fits = match dtype {
        DType::U8 => u8::try_from(id).is_ok(),
        DType::I8 => i8::try_from(id).is_ok(),
        DType::U16 => u16::try_from(id).is_ok(),
        DType::I16 => i16::try_from(id).is_ok(),
        DType::I32 => i32::try_from(id).is_ok(),
        _ => true,
    };
    if !fits {
        return Err(data(format!("id {id} does not fit into {dtype}: give a wider type, such as i32")));
    }
    to.extend(&id.to_le_bytes()[..dtype.size()]);
    Ok(())
}

/// A file that is written sequentially, with the checksum of all its bytes.
struct Output {
    to: BufWriter<File>,
    part: Part,
}

impl Output {
    fn resumed(partial: &mut Partial, part: Option<Part>) -> Result<Self> {
        let io = |error| cannot("write the file", error);
        let part = part.unwrap_or(Part { at: 0, bytes: 0, crc32c: 0 });
        let mut file = partial.file().try_clone().map_err(io)?;
        file.set_len(part.bytes).and_then(|()| file.seek(SeekFrom::Start(part.bytes))).map_err(io)?;
        Ok(Self { to: BufWriter::with_capacity(1 << 20, file), part })
    }

    fn write(&mut self, bytes: &[u8]) -> Result<()> {
        self.to.write_all(bytes).map_err(|error| cannot("write the file", error))?;
        self.part.crc32c = crc32c::crc32c_append(self.part.crc32c, bytes);
        self.part.bytes += bytes.len() as u64;
        Ok(())
    }

    fn flush(&mut self) -> Result<()> {
        self.to.flush().map_err(|error| cannot("write the file", error))
    }
}

fn pack(source: &Source<'_>, to: &Path, progress: &mut dyn FnMut(u64)) -> Result<PackedTokens> {
    let journal = Journal::of_source(to, source.fingerprint()?);
    let mut bin = Partial::open(to.to_path_buf())?;
    let mut list = Partial::open(to.with_extension("sequences"))?;
    let found = journal.find_in(&mut [bin.file(), list.file()]);
    let kept = found.samples;
    let mut part = found.parts.iter().copied();
    let mut ids = Output::resumed(&mut bin, part.next())?;
    let mut sequences = Output::resumed(&mut list, part.next())?;
    let mut documents = kept;
    let mut save = ids.part.bytes + journal::EVERY;
    in_order(source, kept, &mut |batch: Batch| {
        ids.write(&batch.ids)?;
        sequences.write(&batch.sequences)?;
        documents += batch.documents;
        progress(documents);
        if ids.part.bytes >= save {
            save = ids.part.bytes + journal::EVERY;
            ids.flush()?;
            sequences.flush()?;
            let parts = vec![ids.part, sequences.part];
            let written = Written { samples: documents, parts, blocks: Vec::new() };
            journal.save_of(&[ids.to.get_ref(), sequences.to.get_ref()], &written)?;
        }
        Ok(())
    })?;
    ids.flush()?;
    sequences.flush()?;
    drop((ids, sequences));
    let mut idx = Partial::create(to.with_extension("idx"))?;
    write_index(source, list.file(), idx.file()).map_err(|error| idx.name_in(error))?;
    // The `.bin` gets its name last. Until then, the next run resumes here.
    idx.finish()?;
    let bytes = bin.finish()?;
    list.remove()?;
    journal.end()?;
    Ok(PackedTokens { documents, tokens: bytes / source.options.dtype.size() as u64, kept })
}

/// Calls `take` with the documents from `first` on, in order. Of `n` threads, each makes every nth batch.
fn in_order(source: &Source<'_>, first: u64, take: &mut dyn FnMut(Batch) -> Result<()>) -> Result<()> {
    let batches = (source.set.len() - first).div_ceil(TOGETHER);
    let threads = match source.options.threads {
        0 => thread::available_parallelism().map_or(1, usize::from),
        threads => threads,
    };
    let threads = (threads as u64).min(batches).max(1);
    thread::scope(|scope| {
        let start = |thread: u64| -> Result<Receiver<Result<Batch>>> {
            let (to, made) = sync_channel(WAITING);
            let work = move || {
                let mut values = Values::new();
                for batch in (thread..batches).step_by(threads as usize) {
                    let made = source.batch(first + batch * TOGETHER, &mut values);
                    let is_over = made.is_err();
                    // After an error, the receiver is gone.
                    if to.send(made).is_err() || is_over {
                        return;
                    }
                }
            };
            let spawned = thread::Builder::new().name(format!("pack-{thread}")).spawn_scoped(scope, work);
            spawned.map(|_| made).map_err(|error| cannot("start a thread", error))
        };
        let made: Vec<_> = (0..threads).map(start).collect::<Result<_>>()?;
        for batch in 0..batches {
            let batch = made[(batch % threads) as usize].recv();
            take(batch.map_err(|_| data("a thread that reads documents has panicked"))??)?;
        }
        Ok(())
    })
}

/// Writes the index of the sequences in `list`.
fn write_index(source: &Source<'_>, list: &mut File, to: &mut File) -> Result<()> {
    let io = |error| cannot("write the file", error);
    let documents = source.set.len();
    let mut to = BufWriter::with_capacity(1 << 20, to);
    let mut sequences = 0_u64;
    each(list, documents, &mut |count, _| {
        sequences += u64::from(count.is_none());
        Ok(())
    })?;
    let code = index::code(source.options.dtype).unwrap_or_default();
    to.write_all(&index::header_of(code, sequences, documents + 1)).map_err(io)?;
    each(list, documents, &mut |count, (length, _)| match count {
        Some(_) => Ok(()),
        None => to.write_all(&length.to_le_bytes()).map_err(io),
    })?;
    let (mut start, size) = (0_i64, source.options.dtype.size() as i64);
    each(list, documents, &mut |count, (length, _)| {
        if count.is_none() {
            to.write_all(&start.to_le_bytes()).map_err(io)?;
            start += i64::from(length) * size;
        }
        Ok(())
    })?;
    let mut first = 0_i64;
    each(list, documents, &mut |count, _| {
        if let Some(count) = count {
            to.write_all(&first.to_le_bytes()).map_err(io)?;
            first += i64::from(count);
        }
        Ok(())
    })?;
    to.write_all(&first.to_le_bytes()).map_err(io)?;
    if source.modes.is_some() {
        each(list, documents, &mut |count, (_, mode)| match count {
            Some(_) => Ok(()),
            None => to.write_all(&[mode]).map_err(io),
        })?;
    }
    to.flush().map_err(io)
}

/// Calls `take` for each document with the number of its sequences. After that, calls it for each sequence
/// with its length and mode.
fn each(
    list: &mut File,
    documents: u64,
    take: &mut dyn FnMut(Option<i32>, (i32, u8)) -> Result<()>,
) -> Result<()> {
    let io = |error| cannot("read the file", error);
    list.rewind().map_err(io)?;
    let mut list = BufReader::with_capacity(1 << 20, list);
    let mut number = [0; 4];
    for _ in 0..documents {
        list.read_exact(&mut number).map_err(io)?;
        let count = i32::from_le_bytes(number);
        take(Some(count), (0, 0))?;
        for _ in 0..count {
            let mut mode = [0];
            list.read_exact(&mut number).and_then(|()| list.read_exact(&mut mode)).map_err(io)?;
            take(None, (i32::from_le_bytes(number), mode[0]))?;
        }
    }
    Ok(())
}
