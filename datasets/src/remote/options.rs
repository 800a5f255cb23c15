//! Options of files in object stores.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use feedline_core::Result;

use super::config;

/// How files in object stores are read.
#[derive(Clone)]
pub struct RemoteOptions {
    /// Bytes per request. Default: 1 MiB. Use fewer for small samples in random order, and more for
    /// sequential reads.
    pub block_bytes: u64,
    /// Max bytes of blocks in memory and in flight, over all files. Default: 64 MiB. Limits the prefetch. In
    /// addition, each reading thread holds up to one block.
    pub memory_bytes: u64,
    /// Max bytes of an object that is read whole into memory, because its server does not support ranges.
    /// Default: 1 GiB. `memory_bytes` does not count such objects.
    pub whole_bytes: u64,
    /// Max prefetch requests in flight. Default: 64. They fetch objects of samples of later batches, and
    /// blocks after the block that is being read.
    pub in_flight: usize,
    /// Max attempts per block. Default: 6.
    pub attempts: u32,
    /// Wait before the first retry. Default: 100 ms. It doubles with each retry, up to 10 s. A jitter of up
    /// to half is subtracted.
    pub backoff: Duration,
    /// Time limit of one request. Default: 30 s.
    pub request_time: Duration,
    /// Time limit of all attempts for one block. Default: 2 minutes.
    pub total_time: Duration,
    /// Cache of blocks on disk. `None` for no cache.
    pub cache: Option<RemoteCache>,
    /// Options of the store, with their names in the crate `object_store`: `aws_region`, `aws_endpoint`,
    /// `skip_signature`, `google_service_account`, `azure_storage_account_name` and so on. They are added to
    /// those of the environment, such as `AWS_ACCESS_KEY_ID`. No error and no `Debug` shows a value.
    pub store: Vec<(String, String)>,
}

/// A folder of blocks. All processes that use the folder share it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RemoteCache {
    /// The folder. It is created if it is missing.
    pub folder: PathBuf,
    /// Max bytes of the folder's files. The least recently used blocks are evicted first.
    pub bytes: u64,
}

impl Default for RemoteOptions {
    fn default() -> Self {
        Self {
            block_bytes: 1 << 20,
            memory_bytes: 64 << 20,
            whole_bytes: 1 << 30,
            in_flight: 64,
            attempts: 6,
            backoff: Duration::from_millis(100),
            request_time: Duration::from_secs(30),
            total_time: Duration::from_secs(120),
            cache: None,
            store: Vec::new(),
        }
    }
}

impl RemoteOptions {
    pub(super) fn check(&self) -> Result<()> {
        // The first 512 bytes determine the kind of a file.
        if !(512..=1 << 30).contains(&self.block_bytes) {
            return Err(config(format!("block_bytes are {}: choose 512 to 1 GiB", self.block_bytes)));
        }
        if self.memory_bytes < self.block_bytes {
            return Err(config(format!(
                "memory_bytes are {}, less than one block of {}: choose more",
                self.memory_bytes, self.block_bytes
            )));
        }
        if self.attempts == 0
            || self.in_flight == 0
            || self.request_time.is_zero()
            || self.total_time.is_zero()
        {
            return Err(config("in_flight, attempts, request_time and total_time must not be zero"));
        }
        Ok(())
    }
}

impl fmt::Debug for RemoteOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<_> = self.store.iter().map(|(name, _)| name).collect();
        f.debug_struct("RemoteOptions")
            .field("block_bytes", &self.block_bytes)
            .field("memory_bytes", &self.memory_bytes)
            .field("whole_bytes", &self.whole_bytes)
            .field("in_flight", &self.in_flight)
            .field("attempts", &self.attempts)
            .field("backoff", &self.backoff)
            .field("request_time", &self.request_time)
            .field("total_time", &self.total_time)
            .field("cache", &self.cache)
            .field("store", &names)
            .finish()
    }
}
