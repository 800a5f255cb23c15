//! The keys and values of a store, up to a total size.

use std::collections::HashMap;
use std::io;

/// The maximum size of all keys and values, in bytes.
const MAX_BYTES: usize = 64 << 20;

/// Bytes that an entry takes besides its key and value.
const ENTRY_BYTES: usize = 64;

#[derive(Debug, Default)]
pub(super) struct Entries {
    values: HashMap<Vec<u8>, Vec<u8>>,
    bytes: usize,
}

impl Entries {
    /// The value of `key`.
    pub(super) fn get(&self, key: &[u8]) -> Option<&[u8]> {
        self.values.get(key).map(Vec::as_slice)
    }

    /// Sets `key`.
    ///
    /// # Errors
    /// If there is no room left; nothing changes then.
    pub(super) fn set(&mut self, key: Vec<u8>, value: Vec<u8>) -> io::Result<()> {
        let size = |value: &Vec<u8>| ENTRY_BYTES + key.len() + value.len();
        let bytes = self.bytes - self.values.get(&key).map_or(0, size) + size(&value);
        if bytes > MAX_BYTES {
            return Err(io::ErrorKind::StorageFull.into());
        }
        self.bytes = bytes;
        self.values.insert(key, value);
        Ok(())
    }

    /// Adds `number` to `key`, which is decimal text, and returns the sum. Other text counts as 0.
    ///
    /// # Errors
    /// As for [`set`](Self::set).
    pub(super) fn add(&mut self, key: Vec<u8>, number: i64) -> io::Result<i64> {
        let before = self.get(&key).and_then(|text| std::str::from_utf8(text).ok()?.parse::<i64>().ok());
        let sum = before.unwrap_or(0).wrapping_add(number);
        self.set(key, sum.to_string().into_bytes()).map(|()| sum)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_small_entries_fill_it_as_few_large_ones_do() {
        let mut entries = Entries::default();
        let mut keys = 0..2_000_000u32;
        let refused = keys.find(|key| entries.set(key.to_le_bytes().to_vec(), Vec::new()).is_err());
        assert_eq!(refused, Some((MAX_BYTES / (ENTRY_BYTES + 4)) as u32));
        assert!(entries.add(b"more".to_vec(), 1).is_err());
        // A value may be replaced by one of its size.
        entries.set(7u32.to_le_bytes().to_vec(), Vec::new()).unwrap();
        assert_eq!(entries.bytes, entries.values.len() * (ENTRY_BYTES + 4));
    }
}
