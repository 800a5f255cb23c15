//! Opens files and folders by their URLs.

#[cfg(feature = "object-store")]
use std::panic::resume_unwind;
#[cfg(feature = "object-store")]
use std::sync::atomic::{AtomicUsize, Ordering};

#[cfg(feature = "object-store")]
use feedline_core::ErrorKind;
use feedline_core::Result;

#[cfg(feature = "object-store")]
use crate::Shards;
use crate::{OpenOptions, Reader};

#[cfg(feature = "object-store")]
use super::kind::{Kind, START, kind, kind_by_name};
#[cfg(feature = "object-store")]
use super::{pattern, unknown};
#[cfg(feature = "object-store")]
use crate::bytes::Content;
#[cfg(feature = "object-store")]
use crate::error::data;
#[cfg(feature = "object-store")]
use crate::remote::{Remote, RemoteFile};

/// Shards that are opened at a time.
#[cfg(feature = "object-store")]
const AT_ONCE: usize = 16;

pub(crate) const SCHEMES: [&str; 9] = ["http", "https", "s3", "s3a", "gs", "az", "azure", "abfs", "abfss"];

/// Opens a file by its URL: `s3://`, `gs://`, `az://`, `http://` or `https://`.
///
/// Every format that [`open`](crate::open) reads is recognised by its content, plain or gzip. The URL of a
/// folder, with or without a slash at its end, is one of MDS shards, or one that `pack` wrote, by its
/// `index.json` or `_index.json`; any other folder of a store is its objects, as shards of one format.
/// `Records::open_remote` reads records. Use one [`Remote`](crate::Remote) for several files; its
/// documentation describes what is fetched and when.
///
/// A range, a list or a star in the name opens several objects, one after another: `s3://b/a-{000..099}.tar`,
/// `s3://b/{a,b}.csv`, `s3://b/train/*.parquet`. Web servers do not list their files, so a star needs a
/// store.
///
/// ```no_run
/// use feedline_datasets::{RemoteOptions, open_url};
///
/// let reader = open_url("https://example.com/train.parquet", RemoteOptions::default())?;
/// println!("{} samples of {}", reader.len(), reader.schema());
/// # Ok::<(), feedline_core::Error>(())
/// ```
///
/// # Errors
/// `Config` for a URL or an option that cannot be used; `Data` when the object is missing, of another kind,
/// or damaged, when access is refused, and when all attempts to fetch it failed. Names the URL, without what
/// could be secret, and the byte.
#[cfg(feature = "object-store")]
pub fn open_url(url: &str, options: crate::RemoteOptions) -> Result<Box<dyn Reader>> {
    Remote::new(options)?.open(url)
}

#[cfg(feature = "object-store")]
impl Remote {
    /// Opens a file by its URL, as [`open_url`] does.
    ///
    /// # Errors
    /// As [`open_url`].
    pub fn open(&self, url: &str) -> Result<Box<dyn Reader>> {
        self.open_with(url, &OpenOptions::default())
    }

    /// As [`open`](Self::open), with other options. What lies in a store is never held in memory as a whole,
    /// whatever `memory_limit`, unless it is gzip.
    ///
    /// # Errors
    /// As [`open_url`].
    pub fn open_with(&self, url: &str, options: &OpenOptions) -> Result<Box<dyn Reader>> {
        if pattern::is_pattern(without_query(url)) {
            return self.shards(&self.matching(url)?, options);
        }
        if without_query(url).ends_with('/') {
            return self.folder(url, options);
        }
        let file = match self.file(url) {
            // Stores have no object for a folder; web servers answer with a page that lists it.
            Err(error) if crate::remote::may_be_folder(&error) => {
                return match self.folder(url, options) {
                    Err(index) if crate::remote::is_missing(&index) => Err(error),
                    opened => opened,
                };
            }
            file => file?,
        };
        let path = file.path().to_path_buf();
        self.of_file(url, file, options)
            .map_err(|error| if error.path().is_some() { error } else { error.at_path(path) })
    }

    /// Opens a folder by the index that it has, or all objects in it as shards of one format.
    fn folder(&self, url: &str, options: &OpenOptions) -> Result<Box<dyn Reader>> {
        let is_missing = |opened: &Result<_>| opened.as_ref().is_err_and(crate::remote::is_missing);
        let opened = remote_mds_folder(self, url);
        if !is_missing(&opened) {
            return opened;
        }
        let packed = remote_packed(self, url);
        if !is_missing(&packed) {
            return packed;
        }
        let urls = match self.list(url) {
            Ok(urls) => urls,
            // A web server does not list its files: the missing index is the error there.
            Err(error) if error.kind() == ErrorKind::Config => return opened,
            Err(error) => return Err(error),
        };
        let is_shown = |url: &String| !name_of(url).starts_with(['.', '_']);
        let urls: Vec<_> = urls.into_iter().filter(is_shown).collect();
        if urls.is_empty() { opened } else { self.shards(&super::of_split(urls, options.split)?, options) }
    }

    /// The URLs that `url` stands for.
    fn matching(&self, url: &str) -> Result<Vec<String>> {
        let (url, query) = url.split_at(without_query(url).len());
        let mut urls = Vec::new();
        for name in pattern::expand(url)? {
            match name.rsplit_once('/') {
                Some((folder, file)) if file.contains('*') => {
                    let listed = self.list(&format!("{folder}/{query}"))?;
                    urls.extend(listed.into_iter().filter(|url| pattern::fits(name_of(url), file)));
                }
                _ => urls.push(name + query),
            }
        }
        if urls.is_empty() {
            return Err(data("no object fits the pattern: check the URL").at_path(url));
        }
        Ok(urls)
    }

    /// Opens shards of one format, several at a time.
    fn shards(&self, urls: &[String], options: &OpenOptions) -> Result<Box<dyn Reader>> {
        let next = AtomicUsize::new(0);
        let open = || {
            let mut opened = Vec::new();
            loop {
                let number = next.fetch_add(1, Ordering::Relaxed);
                let Some(url) = urls.get(number) else { return opened };
                opened.push((number, self.open_with(url, options)));
            }
        };
        let mut opened = std::thread::scope(|threads| {
            let threads: Vec<_> = (0..urls.len().min(AT_ONCE)).map(|_| threads.spawn(open)).collect();
            let joined = threads.into_iter().map(|thread| thread.join());
            joined.flat_map(|opened| opened.unwrap_or_else(|panic| resume_unwind(panic))).collect::<Vec<_>>()
        });
        opened.sort_by_key(|(number, _)| *number);
        Ok(Box::new(Shards::new(opened.into_iter().map(|(_, opened)| opened).collect::<Result<_>>()?)?))
    }

    fn of_file(&self, url: &str, file: RemoteFile, options: &OpenOptions) -> Result<Box<dyn Reader>> {
        let path = file.path().to_path_buf();
        // Inflates gzip, so that its content tells the format.
        let content = Content::of_remote(file.clone())?;
        let mut bytes = vec![0; content.len().min(START as u64) as usize];
        content.read_at(0, &mut bytes)?;
        let kind = match kind(&bytes, content.len()) {
            kind @ (Kind::Unknown | Kind::Text | Kind::JsonLines) => match kind_by_name(&path) {
                Kind::Unknown => kind,
                named => named,
            },
            kind => kind,
        };
        match kind {
            Kind::Arrow => remote_arrow(file, options),
            Kind::Parquet => remote_parquet(file, options),
            Kind::Mds => remote_mds(file),
            Kind::MdsIndex => remote_mds_folder(self, url),
            Kind::PackIndex => remote_packed(self, url),
            Kind::Refused(why) => Err(data(why)),
            kind => super::content::open(kind, &path, content, options)?.ok_or_else(|| unknown(&bytes)),
        }
    }
}

#[cfg(all(feature = "object-store", feature = "arrow"))]
fn remote_packed(remote: &Remote, url: &str) -> Result<Box<dyn Reader>> {
    Ok(Box::new(crate::pack::open_remote(remote, url)?))
}

#[cfg(all(feature = "object-store", not(feature = "arrow")))]
fn remote_packed(remote: &Remote, url: &str) -> Result<Box<dyn Reader>> {
    remote.file(&crate::remote::in_folder(url, super::PACK_INDEX, super::PACK_INDEX))?;
    Err(super::needs("arrow"))
}

#[cfg(all(feature = "object-store", feature = "arrow"))]
fn remote_arrow(file: RemoteFile, options: &OpenOptions) -> Result<Box<dyn Reader>> {
    Ok(Box::new(crate::ArrowFile::of_remote(file, options.table())?))
}

#[cfg(all(feature = "object-store", not(feature = "arrow")))]
fn remote_arrow(_: RemoteFile, _: &OpenOptions) -> Result<Box<dyn Reader>> {
    Err(super::needs("arrow"))
}

#[cfg(all(feature = "object-store", feature = "parquet"))]
fn remote_parquet(file: RemoteFile, options: &OpenOptions) -> Result<Box<dyn Reader>> {
    Ok(Box::new(crate::ParquetFile::of_remote(file, options.table())?))
}

#[cfg(all(feature = "object-store", not(feature = "parquet")))]
fn remote_parquet(_: RemoteFile, _: &OpenOptions) -> Result<Box<dyn Reader>> {
    Err(super::needs("parquet"))
}

#[cfg(all(feature = "object-store", feature = "mds"))]
fn remote_mds(file: RemoteFile) -> Result<Box<dyn Reader>> {
    Ok(Box::new(crate::mds::Mds::of_remote(file)?))
}

#[cfg(all(feature = "object-store", feature = "mds"))]
fn remote_mds_folder(remote: &Remote, url: &str) -> Result<Box<dyn Reader>> {
    Ok(Box::new(crate::mds::open_remote(remote, url)?))
}

#[cfg(all(feature = "object-store", not(feature = "mds")))]
fn remote_mds(_: RemoteFile) -> Result<Box<dyn Reader>> {
    Err(super::needs("mds"))
}

#[cfg(all(feature = "object-store", not(feature = "mds")))]
fn remote_mds_folder(remote: &Remote, url: &str) -> Result<Box<dyn Reader>> {
    remote.file(&crate::remote::in_folder(url, "index.json", "index.json"))?;
    Err(super::needs("mds"))
}

/// Opens a URL that was passed to `open` as a path.
#[cfg(feature = "object-store")]
pub(super) fn url(url: &str, options: &OpenOptions) -> Option<Result<Box<dyn Reader>>> {
    let open = || Remote::new(Default::default())?.open_with(url, options);
    is_url(url).then(open)
}

#[cfg(not(feature = "object-store"))]
pub(super) fn url(url: &str, _: &OpenOptions) -> Option<Result<Box<dyn Reader>>> {
    is_url(url).then(|| Err(super::needs("object-store").at_path(shown(url))))
}

#[cfg(feature = "object-store")]
fn without_query(url: &str) -> &str {
    url.split(['?', '#']).next().unwrap_or_default()
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
#[cfg(not(feature = "object-store"))]
fn shown(url: &str) -> String {
    let url = url.split(['?', '#']).next().unwrap_or_default();
    let (scheme, rest) = url.split_once("://").unwrap_or_default();
    let (host, path) = rest.find('/').map_or((rest, ""), |at| rest.split_at(at));
    format!("{scheme}://{}{path}", host.rsplit('@').next().unwrap_or_default())
}

#[cfg(all(test, not(feature = "object-store")))]
mod tests {
    #[test]
    fn a_url_that_this_build_does_not_read_is_named_without_secrets() {
        let error = crate::open("s3a://user:hunter2@bucket/a/b.tar?sig=hunter2#x").unwrap_err().to_string();
        assert!(error.contains("feature \"object-store\"") && !error.contains("hunter2"), "{error}");
        assert!(error.ends_with("(file s3a://bucket/a/b.tar)"), "{error}");
    }
}
