//! Blocks on disk. Several processes share their folder.
//!
//! A file holds one block. It has a line that names the format, the length of the block's key, the key, the
//! length and the CRC-32C of the content, and the content. When a file is complete, it is renamed to its
//! final name. The file `_lock` holds the total bytes. It is locked while files are added or removed. Reads
//! take no lock.

use std::fs::{self, File, TryLockError};
use std::io::{Read, Seek, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use feedline_core::{Fingerprint, Result};

use super::RemoteCache;
use crate::error::data;
use crate::io::own_file;

const MAGIC: &[u8] = b"feedline block 1\n";
const LOCK: &str = "_lock";
const BLOCK: &str = "block";
const PARTIAL: &str = "partial";
/// Max attempts to take the lock, and the wait between them. After them, the block is not cached.
const TRIES: (u32, Duration) = (100, Duration::from_millis(10));

/// The folder.
#[derive(Clone)]
pub(super) struct DiskCache(Arc<RemoteCache>);

/// Outcome of a look-up.
pub(super) enum Found {
    Block(Bytes),
    /// A truncated, changed or foreign file. It was removed.
    Damaged,
    None,
}

impl DiskCache {
    pub(super) fn new(options: &RemoteCache) -> Result<Self> {
        let folder = &options.folder;
        fs::create_dir_all(folder).map_err(|error| {
            data("cannot create the folder of the cache").with_source(error).at_path(folder)
        })?;
        Ok(Self(Arc::new(options.clone())))
    }

    /// Looks up the block of `key`. It has `bytes` bytes.
    pub(super) async fn get(&self, key: String, bytes: u64) -> Found {
        let cache = self.0.clone();
        let found = tokio::task::spawn_blocking(move || cache.read(&key, bytes)).await;
        found.unwrap_or(Found::None)
    }

    /// Caches a block. A failure is ignored: the block is then fetched again.
    pub(super) async fn put(&self, key: String, content: Bytes) {
        let cache = self.0.clone();
        let _ = tokio::task::spawn_blocking(move || cache.write(&key, &content)).await;
    }
}

impl RemoteCache {
    fn path(&self, key: &str) -> PathBuf {
        let name = Fingerprint::new().bytes(key.as_bytes()).value();
        self.folder.join(format!("{name:016x}.{BLOCK}"))
    }

    fn read(&self, key: &str, bytes: u64) -> Found {
        let path = self.path(key);
        let Ok(mut file) = own_file::open(&path) else { return Found::None };
        match content(&mut file, key, bytes) {
            Some(content) => {
                // Set the time of the last use. This fails in a read-only folder, but the folder can still be
                // read.
                let _ = file.set_modified(SystemTime::now());
                Found::Block(content)
            }
            None => {
                let _ = fs::remove_file(&path);
                Found::Damaged
            }
        }
    }

    /// Adds a block. If there is no room, evicts other blocks.
    fn write(&self, key: &str, content: &[u8]) -> std::io::Result<()> {
        let path = self.path(key);
        let mut head = MAGIC.to_vec();
        head.extend((key.len() as u32).to_le_bytes());
        head.extend(key.as_bytes());
        head.extend((content.len() as u64).to_le_bytes());
        head.extend(checksum(key, content).to_le_bytes());
        let bytes = (head.len() + content.len()) as u64;
        if bytes > self.bytes {
            return Ok(());
        }
        let Some(mut lock) = self.lock()? else { return Ok(()) };
        if path.exists() {
            return Ok(());
        }
        let mut total = [0; 8];
        // A file that is new or partially written holds no number.
        let known = lock.read_exact(&mut total).is_ok().then(|| u64::from_le_bytes(total));
        let mut total = match known {
            Some(total) => total,
            None => self.remove_until(self.bytes)?,
        };
        if total.saturating_add(bytes) > self.bytes {
            // Evict a tenth more than needed, so that the folder is not listed for every block.
            total = self.remove_until((self.bytes - bytes).min(self.bytes / 10 * 9))?;
        }
        // Count the bytes first. If the process ends here, the number is too large. The next listing of the
        // folder corrects it.
        lock.rewind()?;
        lock.write_all(&(total + bytes).to_le_bytes())?;
        let partial = path.with_extension(PARTIAL);
        let mut file = own_file::create(&partial)?;
        file.write_all(&head)?;
        file.write_all(content)?;
        fs::rename(&partial, &path)
    }

    /// Takes the lock. `None` if it does not become free in time. Dropping the file releases it.
    fn lock(&self) -> std::io::Result<Option<File>> {
        let path = self.folder.join(LOCK);
        let file = own_file::open_or_create(&path)?;
        for _ in 0..TRIES.0 {
            match file.try_lock() {
                Ok(()) => return Ok(Some(file)),
                Err(TryLockError::Error(error)) => return Err(error),
                Err(TryLockError::WouldBlock) => std::thread::sleep(TRIES.1),
            }
        }
        Ok(None)
    }

    /// Evicts the least recently used blocks until the others have at most `limit` bytes. Returns the bytes
    /// of the others. The caller holds the lock, so partial files are left over from processes that have
    /// ended.
    fn remove_until(&self, limit: u64) -> std::io::Result<u64> {
        let (mut blocks, mut total) = (Vec::new(), 0);
        for entry in fs::read_dir(&self.folder)? {
            let path = entry?.path();
            match path.extension().and_then(|extension| extension.to_str()) {
                Some(PARTIAL) => fs::remove_file(&path)?,
                // Another process may have removed a damaged block.
                Some(BLOCK) => {
                    let Ok(metadata) = fs::metadata(&path) else { continue };
                    total += metadata.len();
                    blocks.push((metadata.modified()?, metadata.len(), path));
                }
                _ => {}
            }
        }
        blocks.sort();
        for (_, bytes, path) in blocks {
            if total <= limit {
                break;
            }
            remove(&path)?;
            total -= bytes;
        }
        Ok(total)
    }
}

fn remove(path: &Path) -> std::io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// The content of a block's file. `None` if the file is incomplete or belongs to another key.
fn content(file: &mut File, key: &str, bytes: u64) -> Option<Bytes> {
    let before = MAGIC.len() + 4 + key.len();
    let head = before + 8 + 4;
    // A truncated or foreign file is not read.
    if file.metadata().ok()?.len() != head as u64 + bytes {
        return None;
    }
    let mut all = vec![0; head + usize::try_from(bytes).ok()?];
    file.read_exact(&mut all).ok()?;
    let (named, rest) = all.split_at(before);
    let named = named.strip_prefix(MAGIC)?.strip_prefix(&(key.len() as u32).to_le_bytes())?;
    let (length, rest) = rest.split_first_chunk()?;
    let (expected, content) = rest.split_first_chunk()?;
    let is_whole = named == key.as_bytes()
        && u64::from_le_bytes(*length) == bytes
        && u32::from_le_bytes(*expected) == checksum(key, content);
    is_whole.then(|| Bytes::from(all).slice(head..))
}

fn checksum(key: &str, content: &[u8]) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(key.as_bytes()), content)
}
