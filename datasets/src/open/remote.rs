//! Opens files and folders by their URLs.

#[cfg(feature = "object-store")]
use std::path::PathBuf;
use std::sync::Arc;
#[cfg(feature = "object-store")]
use std::time::Duration;

use feedline_core::{Dataset, Result};
#[cfg(feature = "object-store")]
use feedline_core::{Error, ErrorKind};

use crate::OpenOptions;
#[cfg(feature = "object-store")]
use crate::text::token_files::index::{Index, is_index};
#[cfg(feature = "object-store")]
use crate::{Folder, TokenDocuments, shards};

#[cfg(feature = "object-store")]
use super::formats::{self, File, Place};
#[cfg(feature = "object-store")]
use super::kind::{Kind, START, kind, named};
#[cfg(feature = "object-store")]
use super::{INDICES, listed, pattern, unknown};
#[cfg(feature = "object-store")]
use crate::error::data;
#[cfg(feature = "object-store")]
use crate::formats::sample_file::SampleFile;
#[cfg(feature = "object-store")]
use crate::io::at_once::at_once;
#[cfg(feature = "object-store")]
use crate::io::bytes::Content;
#[cfg(feature = "object-store")]
use crate::io::indexed_folder::IndexedFolder;
#[cfg(feature = "object-store")]
use crate::remote::{Listed, Names, Remote, RemoteFile};

pub(crate) const SCHEMES: [&str; 9] = ["http", "https", "s3", "s3a", "gs", "az", "azure", "abfs", "abfss"];

/// Opens a file by its URL: `s3://`, `gs://`, `az://`, `http://` or `https://`.
///
/// Every format that [`open`](crate::open) reads is recognised by its content, plain or gzip.
///
/// The key of an object in a bucket is taken as it is written: `s3://b/a%20b #1` has the key `a%20b #1`. The
/// URL of a web server is percent-encoded.
///
/// A URL may name a folder, with or without a slash at its end. If the folder has an `index.json`, its files
/// are MDS shards. If it has an `_index.json`, they are files of `pack`. If `.zarr` is in its path and it has
/// a `zarr.json`, `.zgroup` or `.zarray`, they are a Zarr store. The objects of any other folder in a store
/// are shards of one format, or pictures, or one folder of pictures per class, as [`Folder`](crate::Folder)
/// reads them.
///
/// `Records::open_remote` reads records. For several files, use one [`Remote`](crate::Remote). Its
/// documentation describes which bytes it fetches, and when.
///
/// A range, a list or a star in the name opens several objects, one after another: `s3://b/a-{000..099}.tar`,
/// `s3://b/{a,b}.csv`, `s3://b/train/*.parquet`. A star needs a store, since web servers do not list their
/// files.
///
/// ```no_run
/// use feedline_datasets::{RemoteOptions, open_url};
///
/// let reader = open_url("https://example.com/train.parquet", RemoteOptions::default())?;
/// println!("{} samples of {}", reader.len(), reader.spec());
/// # Ok::<(), feedline_core::Error>(())
/// ```
///
/// # Errors
/// `Config` for a URL or an option that cannot be used. `Data` if the object is missing, damaged or of
/// another kind, if access is refused, or if all attempts to fetch it failed. The error names the byte, and
/// the URL without the parts that may be secret.
#[cfg(feature = "object-store")]
pub fn open_url(url: &str, options: crate::RemoteOptions) -> Result<Arc<dyn Dataset>> {
    Remote::new(options)?.open(url)
}

#[cfg(feature = "object-store")]
impl Remote {
    /// Opens a file by its URL, as [`open_url`] does.
    ///
    /// # Errors
    /// As [`open_url`].
    pub fn open(&self, url: &str) -> Result<Arc<dyn Dataset>> {
        self.open_with(url, &OpenOptions::default())
    }

    /// As [`open`](Self::open), with other options. An object is never held in memory as a whole, regardless
    /// of `memory_limit`. Only gzip objects are.
    ///
    /// # Errors
    /// As [`open_url`]. `Config` for an option that this kind of data does not use, other than
    /// `memory_limit`.
    pub fn open_with(&self, url: &str, options: &OpenOptions) -> Result<Arc<dyn Dataset>> {
        let reader = self.open_any(url, options)?;
        super::check_used(&*reader, options).map_err(|error| error.at_path(shown(url)))?;
        Ok(reader)
    }

    /// As [`open_with`](Self::open_with). Also takes options of columns that only some formats use.
    fn open_any(&self, url: &str, options: &OpenOptions) -> Result<Arc<dyn Dataset>> {
        if !pattern::is_pattern(without_query(url)) {
            return self.open_one(url, options);
        }
        match super::one_set(options, "a pattern of objects").and_then(|()| self.pattern(url, options)) {
            // The key itself may have braces or stars.
            Err(error) if is_bucket(url) && finds_none(&error) => self.open_one(url, options).or(Err(error)),
            opened => opened,
        }
    }

    /// As [`open_with`](Self::open_with), for a URL that is no pattern.
    fn open_one(&self, url: &str, options: &OpenOptions) -> Result<Arc<dyn Dataset>> {
        if without_query(url).ends_with('/') {
            return self.folder(url, options);
        }
        let file = match self.file(url) {
            // A store has no object for a folder. A web server answers with a page that lists the folder.
            Err(error) if crate::remote::may_be_folder(&error) => {
                return match self.folder(url, options) {
                    Err(index) if crate::remote::may_be_folder(&index) => Err(error),
                    opened => opened,
                };
            }
            file => file?,
        };
        // A server without ranges may answer with the page of a folder, of any type.
        if file.is_whole() && !name_of(url).trim_end_matches(".zarr").contains('.') {
            match self.folder(url, options) {
                Err(index) if crate::remote::may_be_folder(&index) => {}
                opened => return opened,
            }
        }
        not_listed(options)?;
        if let Some(index) = self.index_beside(url)? {
            super::one_set(options, "a file of tokens")?;
            return of_pair(file, index);
        }
        self.of_object(url, Object::new(file)?, options)
    }

    /// The index beside a `.bin` of token ids, if there is one.
    pub(crate) fn index_beside(&self, url: &str) -> Result<Option<RemoteFile>> {
        let Some(index) = beside(url, ".bin", ".idx") else { return Ok(None) };
        let file = match self.file(&index) {
            Err(error) if crate::remote::may_be_folder(&error) => return Ok(None),
            file => file?,
        };
        let mut start = vec![0; file.len().min(16) as usize];
        file.read_at(0, &mut start)?;
        Ok(is_index(&start).then_some(file))
    }

    /// Opens a folder by its index. If it has none, opens all its objects as shards of one format.
    fn folder(&self, url: &str, options: &OpenOptions) -> Result<Arc<dyn Dataset>> {
        let is_missing = |opened: &Result<_>| opened.as_ref().is_err_and(crate::remote::may_be_folder);
        let one = || not_listed(options).and_then(|()| super::one_set(options, "a folder of one set"));
        let mut opened = Vec::new();
        for (index, open, _) in INDICES.into_iter().filter(|(.., part)| without_query(url).contains(part)) {
            let folder = open(&IndexedFolder::in_store(self, url, index), options);
            if !is_missing(&folder) {
                return one().and(folder);
            }
            opened.push(folder);
        }
        let opened = opened.swap_remove(0);
        let of_pictures = |root: PathBuf, names: Names| -> Result<Arc<dyn Dataset>> {
            super::one_set(options, "a folder of one set")?;
            let objects = self.of_names(url, names)?;
            Ok(Arc::new(Folder::of_objects(&root, objects, options)?))
        };
        let listed = match self.kept_names(url, options.listing_age) {
            Ok(Some((root, names))) => return of_pictures(root, names),
            Ok(None) => self.directly_in(url),
            Err(error) => Err(error),
        };
        let (root, names, has_folders) = match listed {
            Ok(listed) => listed,
            // A web server does not list its files. So the error is that the index is missing.
            Err(error) if error.kind() == ErrorKind::Config => return opened,
            Err(error) => return Err(error),
        };
        let is_shown = |url: &String| !name_of(url).starts_with(['.', '_']);
        let urls = names.iter().map(|(name, _)| crate::remote::in_folder(url, "", name));
        let urls = without_indices(urls.filter(is_shown).collect());
        let is_sample = |url: &String| {
            if super::is_sound(without_query(url)) {
                return Ok(true);
            }
            Object::new(self.file(url)?).map(|first| first.kind == Kind::Image)
        };
        if !urls.first().map_or(Ok(true), is_sample)? {
            not_listed(options)?;
            return self.shards(super::of_split(urls, options.split)?, &options.of_one_set());
        }
        // Each object is listed once.
        let names = if has_folders {
            self.names(url, true, options.listing_age)?.1
        } else {
            if !options.listing_age.is_zero() && !names.is_empty() {
                self.keep(url, &names)?;
            }
            names
        };
        if names.is_empty() { opened } else { of_pictures(root, names) }
    }

    /// Opens the objects that match a pattern. They are shards, or each is a sample.
    fn pattern(&self, url: &str, options: &OpenOptions) -> Result<Arc<dyn Dataset>> {
        let matching = self.matching(url, options.listing_age)?;
        if matching.iter().all(|(_, listed)| listed.is_none()) {
            not_listed(options)?;
        }
        let options = &options.of_one_set();
        let is_sample = |(url, listed): &(String, Option<Listed>)| {
            let name = without_query(url);
            let is_named = super::is_picture(name) || super::is_sound(name);
            if is_named || listed.is_none() {
                return Ok(is_named);
            }
            self.file(url).and_then(Object::new).map(|first| first.kind == Kind::Image)
        };
        if !matching.first().map_or(Ok(false), is_sample)? {
            return self.shards(matching.into_iter().map(|(url, _)| url).collect(), options);
        }
        let level = listed::class_level(without_query(url), options)?;
        let file = |(url, listed): (String, Option<Listed>)| {
            let file = match listed {
                Some(listed) => SampleFile::listed(self.of_listed(&url, listed)?),
                None => SampleFile::at_url(self, url),
            };
            let class = level.map(|level| listed::class_of(file.path(), level)).transpose()?;
            Ok((class, file))
        };
        let root = PathBuf::from(super::shown(listed::root(without_query(url))));
        let files = matching.into_iter().map(file).collect::<Result<_>>()?;
        Ok(Arc::new(Folder::of_list(&root, files, options)?))
    }

    /// The URLs that match `url`. For a star, each URL has its entry of the listing.
    fn matching(&self, url: &str, age: Duration) -> Result<Vec<(String, Option<Listed>)>> {
        let (url, query) = split_query(url);
        let mut urls = Vec::new();
        for name in pattern::expand(url)? {
            let Some(star) = name.find('*') else {
                urls.push((name + query, None));
                continue;
            };
            let (folder, rest) = name.split_at(name[..star].rfind('/').map_or(0, |slash| slash + 1));
            let parts: Vec<_> = rest.split('/').collect();
            let folder = format!("{folder}{query}");
            for (name, listed) in self.names(&folder, parts.len() > 1, age)?.1 {
                let below: Vec<_> = name.split('/').collect();
                if listed::fits_below(&below, &parts) {
                    urls.push((crate::remote::in_folder(&folder, "", &name), Some(listed)));
                }
            }
        }
        if urls.is_empty() {
            return Err(data(NONE_FITS).at_path(url));
        }
        Ok(urls)
    }

    /// Opens shards of one format, several at a time. For CSV and JSON Lines, the types fit the values of all
    /// shards.
    fn shards(&self, urls: Vec<String>, options: &OpenOptions) -> Result<Arc<dyn Dataset>> {
        let urls = without_indices(urls);
        let objects = at_once(urls, |url| {
            // A folder among the shards must have an index.
            match self.file(&url) {
                Err(error) if crate::remote::may_be_folder(&error) => Ok((url, None)),
                // Bare ids may begin like any other format, so the index beside them decides.
                file if beside(&url, ".bin", ".idx").is_some() => file.map(|_| (url, None)),
                file => Object::new(file?).map(|object| (url, Some(object))),
            }
        })?;
        let all = |is: fn(&Object) -> Result<bool>| {
            let mut objects = objects.iter();
            objects.try_fold(true, |all, (_, object)| Ok(all && object.as_ref().map_or(Ok(false), is)?))
        };
        let is_csv = |object: &Object| {
            Ok(object.kind == Kind::Csv || object.kind == Kind::Text && formats::is_table(&object.content)?)
        };
        let open_all = if all(is_csv)? {
            formats::csv_shards
        } else if all(|object| Ok(object.kind == Kind::JsonLines))? {
            formats::jsonl_shards
        } else {
            let opened = at_once(objects, |(url, object)| match object {
                Some(object) => self.of_object(&url, object, options),
                None => self.open_one(&url, options),
            })?;
            return Ok(Arc::new(shards(opened)?));
        };
        let contents = objects.into_iter().filter_map(|(_, object)| object);
        Ok(Arc::new(open_all(contents.map(|object| (object.path, object.content)).collect(), options)?))
    }

    fn of_object(&self, url: &str, object: Object, options: &OpenOptions) -> Result<Arc<dyn Dataset>> {
        let Object { path, file, content, kind, start } = object;
        if kind != Kind::Tar {
            super::one_set(options, "one object").map_err(|error| error.at_path(&path))?;
        }
        let indexed = |index| IndexedFolder::in_store(self, url, index);
        let opened = match kind {
            Kind::MdsIndex => formats::mds_folder(&indexed("index.json"), options),
            Kind::PackIndex => formats::packed(&indexed(super::PACK_INDEX), options),
            Kind::TokenIndex => remote_tokens(self, url, file),
            kind => {
                let file = File { path: &path, start: &start, place: Place::Store(file, content) };
                formats::open(kind, file, options).and_then(|opened| opened.ok_or_else(|| unknown(&start)))
            }
        };
        opened.map_err(|error| if error.path().is_some() { error } else { error.at_path(path) })
    }
}

#[cfg(feature = "object-store")]
const NONE_FITS: &str = "no object fits the pattern: check the URL";

/// Whether `error` means that a pattern is none, or that no object fits it.
#[cfg(feature = "object-store")]
fn finds_none(error: &Error) -> bool {
    let has_none = error.message() == NONE_FITS || crate::remote::may_be_folder(error);
    has_none || error.kind() == ErrorKind::Config
}

/// Refuses the age of a listing for objects that are not listed.
#[cfg(feature = "object-store")]
fn not_listed(options: &OpenOptions) -> Result<()> {
    let age = OpenOptions { listing_age: options.listing_age, ..Default::default() };
    age.check("not such a folder", false)
}

/// An object in a store. Its first bytes tell its kind.
#[cfg(feature = "object-store")]
struct Object {
    path: PathBuf,
    file: RemoteFile,
    content: Content,
    kind: Kind,
    start: Vec<u8>,
}

#[cfg(feature = "object-store")]
impl Object {
    fn new(file: RemoteFile) -> Result<Self> {
        let path = file.path().to_path_buf();
        let read = || {
            // Inflates gzip, so that its content tells the format.
            let content = Content::of_remote(file.clone())?;
            let start = content.read(0, content.len().min(START as u64) as usize)?;
            Ok((content, start))
        };
        let (content, start) = read()
            .map_err(|error: Error| if error.path().is_some() { error } else { error.at_path(&path) })?;
        let kind = named(kind(&start, content.len()), &path);
        Ok(Self { path, file, content, kind, start })
    }
}

/// Opens a URL that was passed to `open` as a path.
#[cfg(feature = "object-store")]
pub(super) fn url(url: &str, options: &OpenOptions) -> Option<Result<Arc<dyn Dataset>>> {
    let open = || Remote::new(Default::default())?.open_any(url, options);
    is_url(url).then(open)
}

#[cfg(not(feature = "object-store"))]
pub(super) fn url(url: &str, _: &OpenOptions) -> Option<Result<Arc<dyn Dataset>>> {
    is_url(url).then(|| Err(no_store(url)))
}

/// The error for a URL that this build does not read.
#[cfg(not(feature = "object-store"))]
pub(crate) fn no_store(url: &str) -> feedline_core::Error {
    super::needs("object-store").at_path(shown(url))
}

#[cfg(feature = "object-store")]
fn without_query(url: &str) -> &str {
    split_query(url).0
}

/// The URL before its query or fragment, and the rest. In the key of an object in a bucket, `#` is a
/// character, and so is a `?`, unless `name=value` follows.
pub(crate) fn split_query(url: &str) -> (&str, &str) {
    let end = match is_bucket(url) {
        true => url.find('?').filter(|&end| url[end..].contains('=')),
        false => url.find(['?', '#']),
    };
    url.split_at(end.unwrap_or(url.len()))
}

/// Whether `url` is that of a bucket, whose keys are taken as they are written, rather than of a web server.
pub(crate) fn is_bucket(url: &str) -> bool {
    url.split_once("://").is_some_and(|(scheme, _)| !scheme.to_ascii_lowercase().starts_with("http"))
}

/// The URL of the object beside `url` with the extension `other` instead of `end`.
#[cfg(feature = "object-store")]
fn beside(url: &str, end: &str, other: &str) -> Option<String> {
    let (url, query) = split_query(url);
    Some(format!("{}{other}{query}", url.strip_suffix(end)?))
}

/// `urls` without each `.idx` whose `.bin` is also in `urls`.
#[cfg(feature = "object-store")]
fn without_indices(mut urls: Vec<String>) -> Vec<String> {
    let indices: Vec<_> = urls.iter().filter_map(|url| beside(url, ".bin", ".idx")).collect();
    urls.retain(|url| !indices.contains(url));
    urls
}

/// The documents of the `.bin` beside the index at a URL.
#[cfg(feature = "object-store")]
fn remote_tokens(remote: &Remote, url: &str, index: RemoteFile) -> Result<Arc<dyn Dataset>> {
    match beside(url, ".idx", ".bin") {
        Some(bin) => of_pair(remote.file(&bin)?, index),
        None => Err(data("this is the index of a .bin of token ids: call it .idx")),
    }
}

/// The documents of a `.bin` and its index.
#[cfg(feature = "object-store")]
fn of_pair(bin: RemoteFile, index: RemoteFile) -> Result<Arc<dyn Dataset>> {
    let (path, at) = (bin.path().to_path_buf(), index.path().to_path_buf());
    let index = Index::of_content(Content::Remote(index), bin.len()).map_err(|error| error.at_path(at))?;
    Ok(Arc::new(TokenDocuments::of_index(path, Content::Remote(bin), index)?))
}

/// The name of the object at `url`.
#[cfg(feature = "object-store")]
fn name_of(url: &str) -> &str {
    without_query(url).rsplit('/').next().unwrap_or_default()
}

/// Whether `text` is a URL of a store rather than a path.
pub(crate) fn is_url(text: &str) -> bool {
    text.split_once("://").is_some_and(|(scheme, _)| SCHEMES.contains(&scheme.to_ascii_lowercase().as_str()))
}

/// `url` without user, password and query: these may be secret.
pub(crate) fn shown(url: &str) -> String {
    let url = split_query(url).0;
    let (scheme, rest) = url.split_once("://").unwrap_or_default();
    let (host, path) = rest.find('/').map_or((rest, ""), |at| rest.split_at(at));
    format!("{scheme}://{}{path}", host.rsplit('@').next().unwrap_or_default())
}

#[cfg(all(test, not(feature = "object-store")))]
mod tests {
    #[test]
    fn a_url_that_this_build_does_not_read_is_named_without_secrets() {
        for (url, shown) in [
            ("https://user:hunter2@host/a/b.tar?sig=hunter2#x", "https://host/a/b.tar"),
            ("s3a://user:hunter2@bucket/a/b#2.tar", "s3a://bucket/a/b#2.tar"),
        ] {
            let error = crate::open(url).unwrap_err().to_string();
            assert!(error.contains("feature \"object-store\"") && !error.contains("hunter2"), "{error}");
            assert!(error.ends_with(&format!("(file {shown})")), "{error}");
        }
    }
}
