//! Compiled kernels on disk, so that the second start compiles nothing.
//!
//! Each entry is one file. Its name identifies the program, the GPU and the compiler. Its first line holds a
//! checksum of the rest. A file is written under a temporary name, and renamed when it is complete. So
//! concurrent or killed processes leave only complete files. A damaged file counts as missing.

use std::fs;
use std::io::Write;
use std::path::PathBuf;

use feedline_core::{Error, ErrorKind, Result};

use crate::program::hash;

pub use feedline_core::CACHE_VARIABLE;

/// Max size of a file. Larger files are ignored. A program of feedline takes less than a thousandth of it.
const MAX_BYTES: u64 = 256 << 20;

/// A folder of compiled kernels.
///
/// ```
/// # let folder = tempfile::tempdir().unwrap();
/// use feedline_kernel_compiler::Cache;
/// let cache = Cache::at(folder.path());
/// assert_eq!(cache.read("step-compute_90.ptx"), None);
/// cache.write("step-compute_90.ptx", ".version 8.7")?;
/// assert_eq!(cache.read("step-compute_90.ptx").as_deref(), Some(".version 8.7"));
/// # Ok::<(), feedline_core::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Cache {
    folder: PathBuf,
}

impl Cache {
    /// The user's cache. It is `$FEEDLINE_CACHE`, or else the folder `feedline` in `$XDG_CACHE_HOME`, or else
    /// in `~/.cache`.
    ///
    /// Returns `None` if it is turned off or no variable names a folder.
    pub fn user() -> Option<Self> {
        feedline_core::user_cache().map(|folder| Self { folder })
    }

    /// A cache in `folder`. The first write creates the folder.
    pub fn at(folder: impl Into<PathBuf>) -> Self {
        Self { folder: folder.into() }
    }

    /// The entry called `name`; `None` if it is missing or damaged.
    pub fn read(&self, name: &str) -> Option<String> {
        let path = self.folder.join(name);
        // The check comes before the file is opened: opening a named pipe blocks, and a device file may be
        // endless.
        let metadata = fs::metadata(&path).ok()?;
        if !metadata.is_file() || metadata.len() > MAX_BYTES {
            return None;
        }
        let file = fs::read_to_string(&path).ok()?;
        let (first, text) = file.split_once('\n')?;
        (first == first_line(text)).then(|| text.to_owned())
    }

    /// Writes the entry called `name`, atomically for other processes.
    ///
    /// # Errors
    /// `Data` if the folder cannot be written.
    pub fn write(&self, name: &str, text: &str) -> Result<()> {
        self.try_write(name, text).map_err(|error| {
            let why = format!(
                "cannot cache compiled kernels: make the folder writable or set {CACHE_VARIABLE} to another"
            );
            Error::new(ErrorKind::Data, why).with_source(error).at_path(self.folder.join(name))
        })
    }

    fn try_write(&self, name: &str, text: &str) -> std::io::Result<()> {
        fs::create_dir_all(&self.folder)?;
        let mut file = tempfile::Builder::new().prefix(".writing-").tempfile_in(&self.folder)?;
        writeln!(file, "{}", first_line(text))?;
        file.write_all(text.as_bytes())?;
        // Without the sync, a crash may leave an empty file under the new name.
        file.as_file().sync_all()?;
        file.persist(self.folder.join(name))?;
        Ok(())
    }
}

fn first_line(text: &str) -> String {
    format!("// feedline kernels, {} bytes, checksum {:016x}", text.len(), hash(text.as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_damaged_entry_is_missing() {
        let folder = tempfile::tempdir().unwrap();
        let cache = Cache::at(folder.path());
        let path = folder.path().join("entry");
        cache.write("entry", "line one\nline two\n").unwrap();
        let whole = fs::read(&path).unwrap();
        assert_eq!(cache.read("entry").as_deref(), Some("line one\nline two\n"));
        for end in 0..whole.len() {
            fs::write(&path, &whole[..end]).unwrap();
            assert_eq!(cache.read("entry"), None, "cut to {end} bytes");
        }
        for at in 0..whole.len() {
            let mut changed = whole.clone();
            changed[at] ^= 1;
            fs::write(&path, &changed).unwrap();
            assert_eq!(cache.read("entry"), None, "byte {at} changed");
        }
        fs::write(&path, [0xff; 40]).unwrap();
        assert_eq!(cache.read("entry"), None);
    }

    /// A read of any of these files would hang or fill the memory.
    #[test]
    #[cfg(unix)]
    fn special_and_huge_files_are_missing() {
        let _watchdog = feedline_testkit::Watchdog::new(feedline_testkit::watchdog::LIMIT, "no regular file");
        let folder = tempfile::tempdir().unwrap();
        let cache = Cache::at(folder.path());
        let pipe = folder.path().join("pipe");
        assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
        std::os::unix::fs::symlink("/dev/zero", folder.path().join("zeros")).unwrap();
        let huge = fs::File::create(folder.path().join("huge")).unwrap();
        huge.set_len(1 << 40).unwrap();
        for name in ["pipe", "zeros", "huge"] {
            assert_eq!(cache.read(name), None, "{name}");
        }
    }

    #[test]
    fn a_folder_that_cannot_be_created_is_an_error() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let error = Cache::at(file.path().join("below")).write("entry", "text").unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Data);
        assert!(error.to_string().contains(CACHE_VARIABLE), "{error}");
    }

    #[test]
    fn readers_see_whole_entries_while_writers_write() {
        let folder = tempfile::tempdir().unwrap();
        let cache = &Cache::at(folder.path());
        let texts: Vec<String> = (0..4).map(|i| i.to_string().repeat(100_000 + i)).collect();
        cache.write("entry", &texts[0]).unwrap();
        std::thread::scope(|scope| {
            for text in &texts {
                scope.spawn(move || (0..20).for_each(|_| cache.write("entry", text).unwrap()));
            }
            for _ in 0..200 {
                let read = cache.read("entry").expect("an entry is never missing or torn");
                assert!(texts.contains(&read));
            }
        });
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "a temporary file was left");
    }
}
