//! Listings of folders. The user's cache keeps them between runs.
//!
//! A file has, in this order: the magic bytes, the version, the key of the folder, the time of the listing,
//! the number of objects, the objects, and a checksum. All are little-endian. A file that is damaged, too old
//! or of another folder is ignored.

use std::fs;
use std::io::Write;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use feedline_core::{Fingerprint, named, user_cache};
use object_store::path::Path;

use super::tag::Tag;
use crate::io::system;

const MAGIC: [u8; 8] = *b"fllisted";
const VERSION: u64 = 1;
const CHECKSUM: usize = size_of::<u64>();

/// Environment variables with the addresses of stores.
const ENDPOINTS: [&str; 6] = [
    "AWS_ENDPOINT",
    "AWS_ENDPOINT_URL",
    "AWS_ENDPOINT_URL_S3",
    "AZURE_ENDPOINT",
    "AZURE_STORAGE_ENDPOINT",
    "GOOGLE_BASE_URL",
];

/// The file for the listing of a folder.
pub(super) struct Place {
    /// `None` if the user has no cache.
    path: Option<PathBuf>,
    key: u64,
}

impl Place {
    /// The file for the folder `shown` in a store with these options. If `below` is true, the listing covers
    /// the folders below it.
    pub(super) fn new(shown: &str, below: bool, store: &[(String, String)]) -> Self {
        // Two stores may have buckets of one name, so the options with the address are part of the key. Other
        // options may be secret.
        let is_place = |(name, _): &&(String, String)| name.contains("endpoint") || name.contains("url");
        let state = Fingerprint::new().number(VERSION).number(below.into()).bytes(shown.as_bytes());
        let state = store
            .iter()
            .filter(is_place)
            .fold(state, |state, (name, value)| state.bytes(name.as_bytes()).bytes(value.as_bytes()));
        let values = ENDPOINTS.iter().filter_map(std::env::var_os);
        let state = values.fold(state, |state, value| state.bytes(value.as_encoded_bytes()));
        let key = state.value();
        Self { path: user_cache().map(|cache| cache.join("listings").join(format!("{key:016x}"))), key }
    }
}

/// A listing that was read from the cache.
pub(super) struct Kept {
    path: PathBuf,
    time: SystemTime,
}

impl Kept {
    /// Text for the error about an object that differs from the listing. Makes the next start list the folder
    /// again.
    pub(super) fn outdated(&self) -> String {
        // Another start may have written a new listing.
        if read_time(&self.path) == Some(self.time) {
            let _ = fs::remove_file(&self.path);
        }
        let age = self.time.elapsed().unwrap_or_default().as_secs();
        let option = named("OpenOptions::listing_age", "listing_age=");
        format!(
            "the list of its folder was kept for {age} s ({option}): start again, which lists the folder anew"
        )
    }
}

/// Keeps a listing. Errors are ignored, as a listing only saves time.
pub(super) fn save(place: &Place, objects: &[(Path, Tag)]) {
    let (Some(path), Ok(time)) = (&place.path, SystemTime::now().duration_since(UNIX_EPOCH)) else { return };
    let mut content = MAGIC.to_vec();
    for number in [VERSION, place.key, time.as_secs(), objects.len() as u64] {
        content.extend(number.to_le_bytes());
    }
    for (name, tag) in objects {
        text(&mut content, name.as_ref());
        tag.write(&mut content);
    }
    content.extend(Fingerprint::new().bytes(&content).value().to_le_bytes());
    let _ = write(path, &content);
}

/// Writes the file under another name, then renames it.
fn write(path: &std::path::Path, content: &[u8]) -> std::io::Result<()> {
    let folder = path.parent().unwrap_or(std::path::Path::new("."));
    fs::create_dir_all(folder)?;
    let mut builder = tempfile::Builder::new();
    system::as_any_new_file(&mut builder);
    let mut file = builder.prefix(".listing").tempfile_in(folder)?;
    file.write_all(content)?;
    file.persist(path)?;
    Ok(())
}

/// The objects of a folder, each with its version.
type Listing = Vec<(Path, Tag)>;

/// The listing at `place`, if it is at most `age` old.
pub(super) fn load(place: &Place, age: Duration) -> Option<(Listing, Arc<Kept>)> {
    let path = place.path.clone()?;
    let bytes = fs::read(&path).ok()?;
    let (content, checksum) = bytes.split_at_checked(bytes.len().checked_sub(CHECKSUM)?)?;
    if checksum != Fingerprint::new().bytes(content).value().to_le_bytes() {
        return None;
    }
    let mut rest = content.strip_prefix(&MAGIC)?;
    let [version, key, seconds, count] = [(); 4].map(|()| number(&mut rest));
    if (version?, key?) != (VERSION, place.key) {
        return None;
    }
    let time = UNIX_EPOCH.checked_add(Duration::from_secs(seconds?))?;
    // A listing from the future has an unknown age.
    if time.elapsed().ok()? > age {
        return None;
    }
    let object = |_| Some((Path::parse(string(&mut rest)?).ok()?, Tag::read(&mut rest)?));
    let objects = (0..count?).map(object).collect::<Option<_>>()?;
    Some((objects, Arc::new(Kept { path, time })))
}

/// The time of the listing in a file.
fn read_time(path: &std::path::Path) -> Option<SystemTime> {
    let bytes = fs::read(path).ok()?;
    let mut rest = bytes.strip_prefix(&MAGIC)?;
    let [_, _, seconds] = [(); 3].map(|()| number(&mut rest));
    UNIX_EPOCH.checked_add(Duration::from_secs(seconds?))
}

/// Appends the length of a text, then the text.
pub(super) fn text(to: &mut Vec<u8>, text: &str) {
    to.extend((text.len() as u64).to_le_bytes());
    to.extend_from_slice(text.as_bytes());
}

/// Reads a number from the front of `from`, and removes it.
pub(super) fn number(from: &mut &[u8]) -> Option<u64> {
    let (number, rest) = from.split_first_chunk()?;
    *from = rest;
    Some(u64::from_le_bytes(*number))
}

/// Reads a text from the front of `from`, and removes it.
pub(super) fn string(from: &mut &[u8]) -> Option<String> {
    let len = usize::try_from(number(from)?).ok()?;
    let (text, rest) = from.split_at_checked(len)?;
    *from = rest;
    String::from_utf8(text.to_vec()).ok()
}
