//! The bytes that fingerprints of files cover.

use std::fs::{self, File};
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use feedline_core::{Context, DType, Dataset, ErrorKind, Fingerprint, ReadError, Row, Spec};

/// A temporary folder, removed on drop.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("feedline-{name}-{}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn write(&self, name: &str, bytes: &[u8], written: SystemTime) -> PathBuf {
        let path = self.0.join(name);
        fs::write(&path, bytes).unwrap();
        File::options().write(true).open(&path).unwrap().set_modified(written).unwrap();
        path
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[test]
fn file_covers_name_size_and_time() {
    let folder = Folder::new("fingerprint-name");
    let then = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000);
    let of = |path: &PathBuf| Fingerprint::new().file(path).unwrap().value();
    let one = of(&folder.write("a", b"12", then));
    assert_eq!(one, of(&folder.write("a", b"34", then)), "the content is not read");
    assert_ne!(one, of(&folder.write("b", b"12", then)));
    assert_ne!(one, of(&folder.write("a", b"123", then)));
    assert_ne!(one, of(&folder.write("a", b"12", then + Duration::from_nanos(1_000_000))));
    assert_ne!(one, of(&folder.write("a", b"12", SystemTime::UNIX_EPOCH - Duration::from_secs(1))));
}

#[test]
fn file_content_covers_only_the_bytes() {
    let folder = Folder::new("fingerprint-content");
    // Longer than two of the blocks in which a file is read.
    let content: Vec<u8> = (0..(2 << 20) + 5).map(|at| (at % 251) as u8).collect();
    let of = |path: &PathBuf| Fingerprint::new().file_content(path).unwrap();
    let now = SystemTime::now();
    let one = of(&folder.write("a", &content, now));
    assert_eq!(one, Fingerprint::new().bytes(&content), "equal to the bytes themselves");
    assert_eq!(one, of(&folder.write("b", &content, now - Duration::from_secs(9))));
    let mut other = content.clone();
    other[(1 << 20) + 7] ^= 1;
    assert_ne!(one, of(&folder.write("a", &other, now)));
}

#[test]
fn the_error_for_a_missing_or_irregular_file_has_its_path() {
    let folder = Folder::new("fingerprint-none");
    let none = folder.0.join("none");
    for path in [&folder.0, &none] {
        for result in [Fingerprint::new().file(path), Fingerprint::new().file_content(path)] {
            let error = result.unwrap_err();
            assert_eq!((error.kind(), error.path()), (ErrorKind::Data, Some(path.as_path())), "{error}");
        }
    }
}

#[test]
fn file_sampled_covers_the_length_and_the_content_but_not_name_and_time() {
    let folder = Folder::new("fingerprint-sampled");
    let of = |path: &PathBuf| Fingerprint::new().file_sampled(path).unwrap();
    let then = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000);
    let small: Vec<u8> = (0..512 << 10).map(|at: u32| (at % 251) as u8).collect();
    let one = of(&folder.write("a", &small, then));
    assert_eq!(one, Fingerprint::new().bytes(&small), "all of a small file");
    assert_eq!(one, of(&folder.write("b", &small, then + Duration::from_secs(9))));

    let large: Vec<u8> = (0..1 << 20).map(|at: u32| (at % 251) as u8).collect();
    let one = of(&folder.write("a", &large, then));
    assert_eq!(one, of(&folder.write("b", &large, SystemTime::now())));
    assert_ne!(one, of(&folder.write("b", &[&large[..], &[0]].concat(), then)), "one byte more");
    // Every byte of the first and the last 64 KiB, and of six parts between them: half a MiB in all.
    let mut covered = 0;
    for block in 0..large.len() / 4096 {
        let mut other = large.clone();
        other[block * 4096 + 17] ^= 1;
        let is_seen = of(&folder.write("b", &other, then)) != one;
        let is_end = block < 16 || block >= large.len() / 4096 - 16;
        assert!(is_seen || !is_end, "block {block}");
        covered += usize::from(is_seen);
    }
    assert!((120..=136).contains(&covered), "{covered} blocks of 4 KiB");
    assert_eq!(Fingerprint::new().file_sampled(folder.0.join("none")).unwrap_err().kind(), ErrorKind::Data);
}

/// A set of ten samples without a fingerprint of its own.
struct Own {
    spec: Spec,
    version: u64,
}

/// The same, and it states no version.
struct Unversioned(Spec);

macro_rules! of_ten {
    ($type:ident, $spec:tt $(, $version:item)?) => {
        impl Dataset for $type {
            fn len(&self) -> u64 {
                10
            }

            fn spec(&self) -> &Spec {
                &self.$spec
            }

            fn read(&self, _: u64, row: &mut Row<'_, '_>, _: &mut Context) -> Result<(), ReadError> {
                row.bytes_mut(0).fill(0);
                Ok(())
            }

            $($version)?
        }
    };
}
of_ten!(
    Own,
    spec,
    fn version(&self) -> u64 {
        self.version
    }
);
of_ten!(Unversioned, 0);

#[test]
fn a_set_that_states_another_version_is_other_data() {
    let spec = || Spec::new().field("x", DType::U8, []).unwrap();
    let of = |version| Own { spec: spec(), version }.fingerprint();
    assert_eq!(of(0), Unversioned(spec()).fingerprint(), "cursors of sets without a version stay valid");
    assert!(of(1) != of(0) && of(1) != of(2));
    let boxed: Box<dyn Dataset> = Box::new(Own { spec: spec(), version: 2 });
    assert_eq!((boxed.version(), boxed.fingerprint()), (2, of(2)));
}
