//! The number of items per sample, for each field of varying size. One pass over a data set counts them, and
//! a file keeps them.
//!
//! The file has, in this order: the magic bytes, the version, the key of the inner set, the number of
//! samples, the number of counted fields, the counts (`u32`, field by field), and a checksum. All are
//! little-endian. If the file is damaged or belongs to other data, the items are counted again, and the file
//! is replaced.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use feedline_core::{Context, Dataset, Error, ErrorKind, Fingerprint, Result, Sink, on_threads, user_cache};
use feedline_core::{Meaning, before_labels};

use crate::error::data;
use crate::io::system;

/// The first bytes of the file.
const MAGIC: [u8; 8] = *b"fllength";
const VERSION: u64 = 1;
/// Bytes before the counts.
const HEAD: usize = 5 * size_of::<u64>();
const CHECKSUM: usize = size_of::<u64>();
/// The count of a bad sample, which cannot be decoded. No field has as many items.
const BAD: u32 = u32::MAX;
/// The number of samples that a thread counts at a time.
const CHUNK: u64 = 256;

/// The counts for each field of a data set. `None` for fields of one size. Behind them, for each of
/// the fields of labels, the tokens of each sample before the first that is learnt, or all of them.
pub(crate) type Lengths = Vec<Option<Arc<[u32]>>>;

/// The counts of `inner`, from a file or by a pass over its samples. `items` has the bytes per item of each
/// counted field.
///
/// The pass uses all cores. Without a `cache`, the file is in the user's cache. It need not be writable.
/// Nothing is written beside the data, as its folder may be shared. A file that an earlier version wrote
/// there is still read. A bad sample is an error, or a mark for [`bad_samples`] if `marks_bad`.
pub(crate) fn counted(
    inner: &dyn Dataset,
    items: &[Option<usize>],
    cache: Option<&Path>,
    marks_bad: bool,
) -> Result<Lengths> {
    if let Some(lengths) = known(inner, items)? {
        return Ok(lengths);
    }
    let labels = labels(inner).map(|_| Some(size_of::<i64>()));
    let items = &items.iter().copied().chain(labels).collect::<Vec<_>>();
    let key = key(inner, items)?;
    let is_marked = |lengths: &Lengths| lengths.iter().flatten().any(|counts| counts.contains(&BAD));
    let load =
        |path: &Path| load(path, key, inner.len(), items).filter(|lengths| marks_bad || !is_marked(lengths));
    if let Some(path) = cache {
        if let Some(lengths) = load(path) {
            return Ok(lengths);
        }
        let lengths = count(inner, items, marks_bad)?;
        let saved = save(path, key, inner.len(), &lengths);
        let failed = |error| data("cannot write the file of lengths").with_source(error).at_path(path);
        return saved.map(|()| lengths).map_err(failed);
    }
    let first = inner.path(0).filter(|path| path.is_file());
    let own = first.and_then(|first| in_the_users_cache(first, key));
    let beside = first.and_then(beside);
    if let Some(lengths) = own.iter().chain(&beside).find_map(|path| load(path)) {
        return Ok(lengths);
    }
    let lengths = count(inner, items, marks_bad)?;
    if let Some(path) = own {
        // A failure is ignored: the file only saves time.
        let _ = path.parent().map(fs::create_dir_all);
        let _ = save(&path, key, inner.len(), &lengths);
    }
    Ok(lengths)
}

/// The bad samples that are marked in `lengths`. Their counts become 0.
pub(super) fn bad_samples(lengths: &mut Lengths) -> Vec<u64> {
    let counts = lengths.iter().flatten().next().into_iter().flat_map(|counts| counts.iter());
    let bad = (0..).zip(counts).filter(|&(_, &count)| count == BAD).map(|(sample, _)| sample);
    let bad: Vec<u64> = bad.collect();
    for counts in lengths.iter_mut().flatten().filter(|_| !bad.is_empty()) {
        *counts = counts.iter().map(|&count| if count == BAD { 0 } else { count }).collect();
    }
    bad
}

/// The fields of labels of `inner`.
pub(super) fn labels(inner: &dyn Dataset) -> impl Iterator<Item = usize> {
    let fields = inner.spec().fields().iter().enumerate();
    fields.filter(|(_, field)| field.meaning() == Meaning::Labels).map(|(index, _)| index)
}

/// The bytes per sample of the field `field` of `inner`. The field holds files.
#[cfg(feature = "images")]
pub(crate) fn of_field(inner: &dyn Dataset, field: usize) -> Result<Arc<[u32]>> {
    let fields = inner.spec().fields();
    let varies = |field: &&feedline_core::Field| field.dims().first() == Some(&None);
    if let Some(known) = inner.storage().lengths()? {
        // The inner set knows the lengths of all fields that vary.
        let place = fields[..field].iter().filter(varies).count();
        return Ok(known.into_iter().nth(place).unwrap_or_default().into());
    }
    let items: Vec<_> = (0..fields.len()).map(|index| (index == field).then_some(1)).collect();
    let mut lengths = counted(inner, &items, None, false)?;
    Ok(lengths.swap_remove(field).unwrap_or_default())
}

/// The counts, if the inner set knows them without reading samples.
fn known(inner: &dyn Dataset, items: &[Option<usize>]) -> Result<Option<Lengths>> {
    let Some(mut lengths) = inner.storage().lengths()?.map(Vec::into_iter) else { return Ok(None) };
    let lengths = items.iter().map(|item| item.and_then(|_| lengths.next()).map(Arc::from));
    let lengths: Lengths = lengths.collect();
    let is_whole = lengths.iter().zip(items).all(|(lengths, item)| lengths.is_some() == item.is_some());
    Ok(is_whole.then_some(lengths))
}

/// The path in the user's cache. The file `first` holds the first sample of the data.
fn in_the_users_cache(first: &Path, key: u64) -> Option<PathBuf> {
    let place = std::path::absolute(first).ok()?;
    let place = Fingerprint::new().bytes(place.as_os_str().as_encoded_bytes()).value();
    Some(user_cache()?.join("lengths").join(format!("{place:016x}-{key:016x}")))
}

/// The path beside the file of the first sample. Earlier versions wrote there. Its name begins with a dot, so
/// that it is not a sample of the folder.
fn beside(first: &Path) -> Option<PathBuf> {
    let mut name = std::ffi::OsString::from(".");
    name.push(first.file_name()?);
    name.push(".lengths");
    Some(first.with_file_name(name))
}

/// A hash of the data's fingerprint and the counted fields.
fn key(inner: &dyn Dataset, items: &[Option<usize>]) -> Result<u64> {
    let of_reader = Fingerprint::checked(|| inner.fingerprint())?;
    let state = Fingerprint::new().bytes(inner.about().format.as_bytes()).number(of_reader);
    let state = state.bytes(inner.spec().to_string().as_bytes()).number(VERSION);
    Ok(items.iter().fold(state, |state, item| state.number(item.unwrap_or_default() as u64)).value())
}

/// What is counted of a sample.
struct Counted {
    /// The index of the counts in [`Lengths`].
    to: usize,
    field: usize,
    /// Bytes of an item.
    item: usize,
    is_label: bool,
}

impl Counted {
    /// The count in the bytes of the field. `None` if they are no whole items.
    fn count(&self, bytes: &[u8]) -> Option<u32> {
        let items = match self.is_label {
            true => before_labels(bytes.as_chunks().0.iter().map(|label| i64::from_le_bytes(*label))),
            false => bytes.len() / self.item,
        };
        u32::try_from(items).ok().filter(|_| bytes.len().is_multiple_of(self.item))
    }
}

/// Counts the items of every sample.
fn count(inner: &dyn Dataset, items: &[Option<usize>], marks_bad: bool) -> Result<Lengths> {
    let len = inner.len();
    let labels = Vec::from_iter(labels(inner));
    let first = items.len() - labels.len();
    let of = |(to, item): (usize, &Option<usize>)| {
        let label = to.checked_sub(first).map(|label| labels[label]);
        Some(Counted { to, field: label.unwrap_or(to), item: (*item)?, is_label: label.is_some() })
    };
    let counted: Vec<Counted> = items.iter().enumerate().filter_map(of).collect();
    let (next, outcome) = (AtomicU64::new(0), Mutex::new(Ok(())));
    let one_thread = || {
        let (mut chunks, mut context) = (Vec::new(), Context::new(0, 0));
        loop {
            let first = next.fetch_add(CHUNK, Ordering::Relaxed);
            if first >= len {
                return chunks;
            }
            let samples = first..len.min(first + CHUNK);
            match count_chunk(inner, (&counted, marks_bad), samples, &mut context) {
                Ok(chunk) => chunks.push((first, chunk)),
                Err(error) => {
                    // This makes the other threads end after their chunk.
                    next.store(len, Ordering::Relaxed);
                    *outcome.lock().unwrap_or_else(PoisonError::into_inner) = Err(error);
                    return chunks;
                }
            }
        }
    };
    let threads = thread::available_parallelism().map_or(1, |cores| cores.get() as u64);
    let threads = threads.min(len.div_ceil(CHUNK));
    // A panic in a data set continues here, as on a single thread.
    let mut chunks = on_threads(threads as usize, "fl-lengths", one_thread).concat();
    outcome.into_inner().unwrap_or_else(PoisonError::into_inner)?;
    chunks.sort_unstable_by_key(|(first, _)| *first);
    let mut lengths: Lengths = vec![None; items.len()];
    for (at, &Counted { to, .. }) in counted.iter().enumerate() {
        let of_field = chunks.iter().flat_map(|(_, chunk)| chunk.iter().skip(at).step_by(counted.len()));
        lengths[to] = Some(of_field.copied().collect());
    }
    Ok(lengths)
}

/// The counts of a range of samples. The counts of one sample are side by side.
fn count_chunk(
    inner: &dyn Dataset,
    (counted, marks_bad): (&[Counted], bool),
    samples: std::ops::Range<u64>,
    context: &mut Context,
) -> Result<Vec<u32>> {
    let mut counts = vec![0; counted.len() * (samples.end - samples.start) as usize];
    for (sample, row) in samples.zip(counts.chunks_exact_mut(counted.len().max(1))) {
        let mut count = |field: usize, bytes: &[u8], _: Option<&[usize]>| {
            for (to, counted) in row.iter_mut().zip(counted).filter(|(_, counted)| counted.field == field) {
                *to = counted.count(bytes).ok_or_else(|| {
                    let (name, item) = (inner.spec().fields()[field].name(), counted.item);
                    let why = format!("field \"{name}\" has {} bytes, in items of {item}", bytes.len());
                    Error::new(ErrorKind::Sample, why).at_sample(sample)
                })?;
            }
            Ok(())
        };
        match inner.visit(sample, &mut Sink::new(&mut count), context) {
            Err(error) if marks_bad && error.kind() == ErrorKind::Sample => row.fill(BAD),
            visited => visited?,
        }
    }
    Ok(counts)
}

/// The counts in the file at `path`. `None` if the file is missing, damaged or of other data.
fn load(path: &Path, key: u64, len: u64, items: &[Option<usize>]) -> Option<Lengths> {
    let fields = items.iter().flatten().count();
    let counts = usize::try_from(len).ok()?.checked_mul(fields)?;
    let size = counts.checked_mul(size_of::<u32>())?.checked_add(HEAD + CHECKSUM)?;
    // A file of another size is not read.
    let metadata = fs::metadata(path).ok().filter(fs::Metadata::is_file)?;
    if metadata.len() != size as u64 {
        return None;
    }
    let bytes = fs::read(path).ok().filter(|bytes| bytes.len() == size)?;
    let (content, checksum) = bytes.split_at(size - CHECKSUM);
    let (head, counts) = content.split_at(HEAD);
    let sum = Fingerprint::new().bytes(content).value();
    if head != self::head(key, len, fields) || checksum != sum.to_le_bytes() {
        return None;
    }
    let (counts, _) = counts.as_chunks::<4>();
    let mut counts = counts.iter().map(|count| u32::from_le_bytes(*count));
    Some(items.iter().map(|item| item.map(|_| counts.by_ref().take(len as usize).collect())).collect())
}

/// Writes the file by a rename, so that no reader sees a part of it.
fn save(path: &Path, key: u64, len: u64, lengths: &Lengths) -> std::io::Result<()> {
    let fields = lengths.iter().flatten().count();
    let mut content = head(key, len, fields);
    for counts in lengths.iter().flatten() {
        content.extend(counts.iter().flat_map(|count| count.to_le_bytes()));
    }
    let sum = Fingerprint::new().bytes(&content).value();
    content.extend(sum.to_le_bytes());
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let mut builder = tempfile::Builder::new();
    system::as_any_new_file(&mut builder);
    let mut file = builder.prefix(".lengths").tempfile_in(folder)?;
    file.write_all(&content)?;
    file.as_file().sync_all()?;
    file.persist(path)?;
    Ok(())
}

fn head(key: u64, len: u64, fields: usize) -> Vec<u8> {
    let mut head = MAGIC.to_vec();
    [VERSION, key, len, fields as u64].iter().for_each(|number| head.extend(number.to_le_bytes()));
    head
}
