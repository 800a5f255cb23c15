//! The files that nvJPEG accepts by their headers but refuses while decoding.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hasher};
use std::sync::Mutex;

use super::locked;

/// Files that the CPU decodes from the second time on, because a file that nvJPEG refuses fails its whole
/// batch. Keeps 8 bytes per file.
#[derive(Debug, Default)]
pub(crate) struct Refused {
    /// Hashes of the refused files, by file length. Most files have another length than these files, and are
    /// not hashed.
    by_length: Mutex<HashMap<usize, Vec<u64>>>,
}

impl Refused {
    pub(super) fn add(&self, file: &[u8]) {
        let hash = hash(file);
        let mut by_length = locked(&self.by_length);
        let hashes = by_length.entry(file.len()).or_default();
        if !hashes.contains(&hash) {
            hashes.push(hash);
        }
    }

    pub(super) fn contains(&self, file: &[u8]) -> bool {
        let by_length = locked(&self.by_length);
        by_length.get(&file.len()).is_some_and(|hashes| hashes.contains(&hash(file)))
    }
}

fn hash(file: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    hasher.write(file);
    hasher.finish()
}

/// Finds the refused files by bisection. Calls `decode` for the range `0..count`, and for both halves of each
/// range for which it returned false. Returns the single files for which `decode` returned false, in order.
///
/// # Errors
/// The errors of `decode`.
pub(super) fn find_refused<E>(
    count: usize,
    mut decode: impl FnMut(std::ops::Range<usize>) -> Result<bool, E>,
) -> Result<Vec<usize>, E> {
    let (mut left, mut refused) = (Vec::new(), Vec::new());
    left.push(0..count);
    while let Some(range) = left.pop() {
        if decode(range.clone())? {
            continue;
        }
        if range.len() == 1 {
            refused.push(range.start);
            continue;
        }
        let middle = range.start + range.len() / 2;
        left.extend([middle..range.end, range.start..middle]);
    }
    Ok(refused)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_told_apart_by_their_bytes() {
        let refused = Refused::default();
        refused.add(b"first");
        refused.add(b"first");
        let contains = [&b"first"[..], b"third", b"longer"].map(|file| refused.contains(file));
        assert_eq!(contains, [true, false, false]);
        refused.add(b"third");
        assert!(refused.contains(b"first") && refused.contains(b"third"));
        assert_eq!(locked(&refused.by_length)[&5].len(), 2);
    }

    #[test]
    fn every_refused_file_is_found_and_the_others_are_decoded_once_the_refused_are_apart() {
        for count in 1..20_usize {
            for pattern in 0..1_u32 << count.min(10) {
                let is_refused = |file: usize| pattern >> file & 1 == 1;
                let mut decoded = vec![0; count];
                let refused = find_refused(count, |range| {
                    assert!(!range.is_empty());
                    let is_good = !range.clone().any(is_refused);
                    if is_good {
                        range.for_each(|file| decoded[file] += 1);
                    }
                    Ok::<_, ()>(is_good)
                });
                let wanted: Vec<_> = (0..count).filter(|&file| is_refused(file)).collect();
                assert_eq!(refused, Ok(wanted));
                assert!((0..count).all(|file| decoded[file] == usize::from(!is_refused(file))));
            }
        }
    }

    #[test]
    fn an_error_ends_the_search() {
        assert_eq!(find_refused(8, |_| Err("device lost")), Err("device lost"));
    }
}
