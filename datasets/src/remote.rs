//! Files in object stores and on web servers, read in blocks that are cached in memory and on disk.
//!
//! A task on the thread of [`Remote`] fetches each block once. Readers wait for the block. While they read
//! on, the blocks after it are prefetched. Opening a file pins its version: every request names the version
//! (`If-Match`), and every answer must name the same one.

use std::fmt;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, mpsc};

use bytes::Bytes;
use feedline_core::{Error, ErrorKind, Result};

use crate::error::data;

mod ahead;
mod blocks;
mod disk_cache;
mod fetch;
mod http;
mod kept;
mod list;
mod options;
mod tag;
mod thread;
mod url;
mod whole;

use ahead::Ahead;
pub(crate) use ahead::{Opening, Wanted};
use blocks::{Blocks, Delivery, Key};
use disk_cache::DiskCache;
#[cfg(feature = "zarr")]
pub(crate) use fetch::is_missing;
pub(crate) use fetch::may_be_folder;
use fetch::{Failure, FailureKind, Fetch};
use kept::Kept;
pub(crate) use list::{Listed, Names};
pub use options::{RemoteCache, RemoteOptions};
use tag::Tag;
use thread::Thread;
pub(crate) use url::in_folder;
use url::{Place, Stores};

/// Opens files by their URLs: `s3://`, `gs://`, `az://`, `http://` and `https://`.
///
/// All files opened by one `Remote` share its thread, its memory and its cache on disk, see
/// [`RemoteOptions`]. The thread ends when the `Remote` and all its files are dropped.
///
/// The version of a file is its strong ETag. If it has none, the version is the time of the last write, in
/// whole seconds. Opening such a file waits until the last write is two seconds ago.
///
/// Up to ten redirects are followed, also to other hosts, as many servers redirect to their files.
/// Credentials (the header `Authorization`) are not sent to another host. A redirect from https to http is
/// refused. The answer of the last host must have the pinned version too. User and password in a URL are
/// neither sent nor shown.
///
/// If a server answers a range request with the whole object (status 200), the object is read into memory, up
/// to [`RemoteOptions::whole_bytes`].
///
/// ```no_run
/// use feedline_datasets::{Remote, RemoteCache, RemoteOptions};
///
/// let mut options = RemoteOptions::default();
/// options.cache = Some(RemoteCache { folder: "/var/cache/train".into(), bytes: 100 << 30 });
/// options.store.push(("aws_region".into(), "eu-west-1".into()));
/// let remote = Remote::new(options)?;
/// let train = remote.open("s3://bucket/train-{00000..00063}.tar")?;
/// println!("{} samples, {:?}", train.len(), remote.stats());
/// # Ok::<(), feedline_core::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Remote(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    stores: Mutex<Stores>,
    shared: Arc<Shared>,
    thread: Thread,
    files: AtomicU64,
}

/// The state that the tasks share. It holds no reference to the thread, so that the thread can end.
struct Shared {
    options: RemoteOptions,
    blocks: Arc<Blocks>,
    ahead: Ahead,
    cache: Option<DiskCache>,
    counts: Counts,
}

#[derive(Debug, Default)]
struct Counts {
    requests: AtomicU64,
    retries: AtomicU64,
    bytes: AtomicU64,
    from_cache: AtomicU64,
    damaged: AtomicU64,
}

/// Statistics of a [`Remote`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RemoteStats {
    /// Requests sent, retries included.
    pub requests: u64,
    /// Requests sent again after a failure.
    pub retries: u64,
    /// Bytes of complete answers.
    pub bytes: u64,
    /// Blocks that came from the cache on disk.
    pub from_cache: u64,
    /// Cache files that were damaged or foreign. They were removed, and their blocks were fetched again.
    pub damaged: u64,
    /// Bytes of blocks that are now in memory and in flight.
    pub memory: u64,
    /// Max bytes that were in memory and in flight at one time.
    pub max_memory: u64,
}

impl Remote {
    /// Starts the thread, and creates the folder of the cache.
    ///
    /// # Errors
    /// `Config` for options that contradict each other. `Data` if the folder of the cache cannot be made.
    /// `Unavailable` if the thread cannot be started.
    pub fn new(options: RemoteOptions) -> Result<Self> {
        options.check()?;
        let cache = options.cache.as_ref().map(DiskCache::new).transpose()?;
        let stores = Mutex::new(Stores::new(&options));
        let blocks = Blocks::new(options.memory_bytes, options.in_flight);
        let ahead = Ahead::new(options.in_flight);
        let shared = Arc::new(Shared { options, blocks, ahead, cache, counts: Counts::default() });
        Ok(Self(Arc::new(Inner { stores, shared, thread: Thread::start()?, files: AtomicU64::new(0) })))
    }

    /// Statistics of all files, up to now.
    pub fn stats(&self) -> RemoteStats {
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let counts = &self.0.shared.counts;
        let (memory, max_memory) = self.0.shared.blocks.bytes();
        RemoteStats {
            requests: count(&counts.requests),
            retries: count(&counts.retries),
            bytes: count(&counts.bytes),
            from_cache: count(&counts.from_cache),
            damaged: count(&counts.damaged),
            memory,
            max_memory,
        }
    }

    /// Opens a file. Fetches the first block, and pins the version.
    pub(crate) fn file(&self, url: &str) -> Result<RemoteFile> {
        let inner = &self.0;
        // Check before taking any lock: in a forked process, a thread of the parent may hold a lock for ever.
        inner.thread.check()?;
        let place = inner.stores.lock().unwrap_or_else(PoisonError::into_inner).place(url)?;
        let shown = PathBuf::from(&place.shown);
        let (sender, first) = mpsc::sync_channel(1);
        let shared = inner.shared.clone();
        let place = Arc::new(place);
        let task_place = place.clone();
        inner.thread.spawn(async move {
            // Sending fails if the caller is gone. Then nobody needs the answer.
            let _ = sender.send(first_block(&shared, &task_place).await);
        });
        let first = first.recv().map_err(|_| thread::ended())?;
        let (bytes, tag, is_whole) = first.map_err(|failure| failure.error.at_path(&shown))?;
        if tag.len == 0 {
            return Err(data("the object is empty: write it again").at_path(shown));
        }
        let id = inner.files.fetch_add(1, Ordering::Relaxed);
        let whole = if is_whole {
            Some(bytes)
        } else {
            inner.shared.blocks.offer(Key { file: id, block: 0 }, bytes);
            None
        };
        let object = Object { id, place, tag, whole, changed: OnceLock::new(), kept: None };
        Ok(RemoteFile { remote: self.clone(), object: Arc::new(object), path: shown })
    }
}

/// An object in a store. Its version is pinned when it is opened.
struct Object {
    id: u64,
    place: Arc<Place>,
    tag: Tag,
    /// All bytes of the file, if the server does not support ranges.
    whole: Option<Bytes>,
    /// The error of the first answer with another version.
    changed: OnceLock<Error>,
    /// The listing of an earlier run that has this object.
    kept: Option<Arc<Kept>>,
}

/// An open file in an object store.
#[derive(Clone)]
pub(crate) struct RemoteFile {
    remote: Remote,
    object: Arc<Object>,
    /// The URL, without query, user and password.
    path: PathBuf,
}

impl RemoteFile {
    /// The URL, without query, user and password.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// The length of the file when it was opened, in bytes.
    pub(crate) fn len(&self) -> u64 {
        self.object.tag.len
    }

    /// Whether the file was read as a whole, because its server does not support ranges.
    pub(crate) fn is_whole(&self) -> bool {
        self.object.whole.is_some()
    }

    /// Fills `to` with the bytes from `offset` on. Blocks until they have arrived.
    pub(crate) fn read_at(&self, offset: u64, to: &mut [u8]) -> Result<()> {
        if to.is_empty() {
            return Ok(());
        }
        let beyond =
            || data("these bytes are beyond the end of the object").at_path(&self.path).at_offset(offset);
        let end = offset.checked_add(to.len() as u64).filter(|end| *end <= self.len()).ok_or_else(beyond)?;
        if let Some(whole) = &self.object.whole {
            to.copy_from_slice(whole.get(offset as usize..end as usize).ok_or_else(beyond)?);
            return Ok(());
        }
        let size = self.shared().options.block_bytes;
        let last = (end - 1) / size;
        for number in offset / size..=last {
            let block = self.block(number, last)?;
            let start = number * size;
            let (from, until) = (offset.max(start), end.min(start + size));
            let part = block.get((from - start) as usize..(until - start) as usize).ok_or_else(beyond)?;
            to[(from - offset) as usize..(until - offset) as usize].copy_from_slice(part);
        }
        Ok(())
    }

    /// Checks that no answer so far came from another version of the file.
    pub(crate) fn check_unchanged(&self) -> Result<()> {
        self.object.changed.get().cloned().map_or(Ok(()), Err)
    }

    fn shared(&self) -> &Arc<Shared> {
        &self.remote.0.shared
    }

    /// Block `number` of a read whose last block is `last`. Prefetches the blocks after it.
    fn block(&self, number: u64, last: u64) -> Result<Bytes> {
        self.check_unchanged()?;
        let thread = &self.remote.0.thread;
        thread.check()?;
        let blocks = &self.shared().blocks;
        let key = |block| Key { file: self.object.id, block };
        let start = |delivery: Delivery| {
            thread.spawn(fetch_block(self.shared().clone(), self.object.clone(), delivery))
        };
        let block = blocks.pin(key(number), self.bytes_of(number), start);
        let end = self.len().div_ceil(self.shared().options.block_bytes);
        let follow = (last - number).max(blocks.read_before(key(number)));
        for next in (number + 1..end).take(usize::try_from(follow).unwrap_or(usize::MAX)) {
            match blocks.prefetch(key(next), self.bytes_of(next)) {
                blocks::Prefetch::Start(delivery) => start(delivery),
                blocks::Prefetch::Cached => {}
                blocks::Prefetch::NoRoom => break,
            }
        }
        block.wait()
    }

    /// The size of block `number`.
    fn bytes_of(&self, number: u64) -> u64 {
        let size = self.shared().options.block_bytes;
        size.min(self.len() - number * size)
    }
}

impl fmt::Debug for RemoteFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RemoteFile({}, {} bytes)", self.path.display(), self.len())
    }
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared").field("options", &self.options).finish_non_exhaustive()
    }
}

/// Opens an object. Returns its first block and its version. If the server does not support ranges, returns
/// the whole object instead of the block.
async fn first_block(shared: &Shared, place: &Place) -> Result<(Bytes, Tag, bool), Failure> {
    let range = 0..shared.options.block_bytes;
    let fetch = Fetch { place, range, pinned: None };
    match fetch.open(&shared.options, &shared.counts).await {
        Err(failure) if failure.is_about_ranges() => {
            let whole = whole::whole(place, &shared.options, &shared.counts).await;
            whole.map(|(bytes, tag)| (bytes, tag, true))
        }
        opened => opened.map(|(bytes, tag)| (bytes, tag, false)),
    }
}

/// Fetches a block, from the cache on disk or from the store, and delivers it.
async fn fetch_block(shared: Arc<Shared>, object: Arc<Object>, delivery: Delivery) {
    let size = shared.options.block_bytes;
    let start = delivery.key().block * size;
    let range = start..object.tag.len.min(start + size);
    let name = object.tag.strong().map(|_| object.cache_key(size, delivery.key().block));
    if let (Some(cache), Some(name)) = (&shared.cache, &name) {
        match cache.get(name.clone(), range.end - range.start).await {
            disk_cache::Found::Block(bytes) => {
                shared.counts.from_cache.fetch_add(1, Ordering::Relaxed);
                return delivery.done(Ok(bytes));
            }
            disk_cache::Found::Damaged => {
                shared.counts.damaged.fetch_add(1, Ordering::Relaxed);
            }
            disk_cache::Found::None => {}
        }
    }
    let fetch = Fetch { place: &object.place, range: range.clone(), pinned: Some(&object.tag) };
    let fetched = fetch.run(&shared.options, &shared.counts).await;
    let fetched = fetched.map(|(bytes, _)| bytes).map_err(|failure| object.failed(failure, &range));
    if let (Ok(bytes), Some(cache), Some(name)) = (&fetched, &shared.cache, name) {
        cache.put(name, bytes.clone()).await;
    }
    delivery.done(fetched);
}

impl Object {
    /// Key of a block in the cache on disk.
    fn cache_key(&self, size: u64, block: u64) -> String {
        format!("{}\n{}\nblock {block} of {size} bytes", self.place.shown, self.tag)
    }

    /// Adds the position of a block to its error. Keeps the first error about another version.
    fn failed(&self, failure: Failure, range: &Range<u64>) -> Error {
        let is_gone = failure.kind == FailureKind::Changed || failure.is_of_no_object();
        let error = match self.kept.as_ref().filter(|_| is_gone) {
            Some(kept) => data(format!("{}; {}", failure.error.message(), kept.outdated())),
            None => failure.error,
        };
        let error = error.at_path(&self.place.shown).at_offset(range.start);
        if failure.kind == FailureKind::Changed { self.changed.get_or_init(|| error).clone() } else { error }
    }
}

/// The error of a URL or an option that cannot be used.
fn config(message: impl Into<String>) -> Error {
    Error::new(ErrorKind::Config, message)
}
