//! What a user can choose about files in object stores.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use feedline_core::Result;

use super::config;

/// How files in object stores are read.
#[derive(Clone)]
pub struct RemoteOptions {
    /// Bytes that one request asks for, 1 MiB. Choose less where samples are small and read in random order,
    /// more where they are read in order.
    pub block_bytes: u64,
    /// Bytes of blocks in memory and on the way, for all files together, 64 MiB. It bounds what is fetched
    /// ahead. A thread that reads holds at most one block besides.
    pub memory_bytes: u64,
    /// How often a block is asked for before its failure is an error, 6 times.
    pub attempts: u32,
    /// The wait before a block is asked for again, 100 ms. It doubles each time, up to 10 s, and is shortened
    /// by up to half, so that workers do not come all at once.
    pub backoff: Duration,
    /// The time within which an answer has to be whole, 30 s.
    pub request_time: Duration,
    /// The time that all attempts for one block may take together, 2 minutes.
    pub total_time: Duration,
    /// Where blocks are kept on disk; `None` keeps none.
    pub cache: Option<RemoteCache>,
    /// Options of the store, by the names that the crate `object_store` has for them: `aws_region`,
    /// `aws_endpoint`, `skip_signature`, `google_service_account`, `azure_storage_account_name`, ... They add
    /// to the environment, such as `AWS_ACCESS_KEY_ID`. No error and no `Debug` shows a value.
    pub store: Vec<(String, String)>,
}

/// A folder of blocks, shared by all processes that name it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RemoteCache {
    /// The folder; it is created if it is not there.
    pub folder: PathBuf,
    /// Bytes of its files. Where a block would exceed them, blocks used longest ago are removed first.
    pub bytes: u64,
}

impl Default for RemoteOptions {
    fn default() -> Self {
        Self {
            block_bytes: 1 << 20,
            memory_bytes: 64 << 20,
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
        // The kind of a file is told by its first 512 bytes.
        if !(512..=1 << 30).contains(&self.block_bytes) {
            return Err(config(format!("block_bytes are {}: choose 512 to 1 GiB", self.block_bytes)));
        }
        if self.memory_bytes < self.block_bytes {
            return Err(config(format!(
                "memory_bytes are {}, less than one block of {}: choose more",
                self.memory_bytes, self.block_bytes
            )));
        }
        if self.attempts == 0 || self.request_time.is_zero() || self.total_time.is_zero() {
            return Err(config("attempts, request_time and total_time must not be zero"));
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
            .field("attempts", &self.attempts)
            .field("backoff", &self.backoff)
            .field("request_time", &self.request_time)
            .field("total_time", &self.total_time)
            .field("cache", &self.cache)
            .field("store", &names)
            .finish()
    }
}
