//! The objects in a folder of a store.

use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::sync::{Arc, OnceLock, PoisonError, mpsc};
use std::time::Duration;

use feedline_core::Result;
use futures_util::TryStreamExt;
use object_store::ObjectMeta;
use object_store::path::Path;

use super::fetch::{failure, retried};
use super::kept::{self, Kept};
use super::tag::Tag;
use super::url::Place;
use super::{Object, Remote, RemoteFile, config, in_folder, thread};

/// An object in a listing.
pub(crate) struct Listed {
    place: Place,
    tag: Tag,
    kept: Option<Arc<Kept>>,
}

/// The objects of a folder with their relative names. The order is that of a walk on disk.
pub(crate) type Names = Vec<(String, Listed)>;

/// A listed folder.
struct Listing {
    /// The place of any object in the folder.
    inside: Place,
    /// The folder's URL, without the parts that may be secret.
    shown: String,
    /// The objects with their full names.
    objects: Vec<(Path, Tag)>,
    /// Whether the folder has subfolders that were not listed.
    has_folders: bool,
    /// The file that keeps the listing, if the listing came from one.
    kept: Option<Arc<Kept>>,
}

impl Remote {
    /// The folder at `url` without the parts that may be secret, the objects directly in it, and whether it
    /// has subfolders.
    ///
    /// # Errors
    /// `Config` for the URL of a web server, which does not list files. `Data` if the store does not list the
    /// folder.
    pub(crate) fn directly_in(&self, url: &str) -> Result<(PathBuf, Names, bool)> {
        let listing = self.listed(url, false)?;
        let has_folders = listing.has_folders;
        let (shown, names) = listing.names();
        Ok((shown.trim_end_matches('/').into(), names, has_folders))
    }

    /// The kept listing of the folder at `url` and the folders below it. `None` if there is none of at most
    /// `age`.
    pub(crate) fn kept_names(&self, url: &str, age: Duration) -> Result<Option<(PathBuf, Names)>> {
        let Some(listing) = self.kept(url, true, age)? else { return Ok(None) };
        let (shown, names) = listing.names();
        Ok(Some((shown.trim_end_matches('/').into(), names)))
    }

    /// The folder at `url` without the parts that may be secret, and the objects in it. If `below` is true,
    /// also the objects in subfolders. If `age` is above zero, a kept listing is used, and a new one is kept.
    ///
    /// # Errors
    /// As [`directly_in`](Self::directly_in).
    pub(crate) fn names(&self, url: &str, below: bool, age: Duration) -> Result<(String, Names)> {
        if let Some(kept) = self.kept(url, below, age)? {
            return Ok(kept.names());
        }
        let listing = self.listed(url, below)?;
        if !age.is_zero() {
            kept::save(&self.place_of_list(&listing.shown, below), &listing.objects);
        }
        Ok(listing.names())
    }

    /// Keeps the listing of a folder without subfolders. Such a listing has all objects below the folder.
    pub(crate) fn keep(&self, url: &str, names: &Names) -> Result<()> {
        let (_, shown) = self.inside(url)?;
        let objects: Vec<_> =
            names.iter().map(|(_, listed)| (listed.place.path.clone(), listed.tag.clone())).collect();
        kept::save(&self.place_of_list(&shown, true), &objects);
        Ok(())
    }

    /// The listed object at `url`. It is opened now only if the listing does not pin its version.
    pub(crate) fn of_listed(&self, url: &str, listed: Listed) -> Result<RemoteFile> {
        let Listed { place, tag, kept } = listed;
        if tag.strong().is_none() {
            return self.file(url);
        }
        let id = self.0.files.fetch_add(1, Ordering::Relaxed);
        let path = PathBuf::from(&place.shown);
        let object = Object { id, place: Arc::new(place), tag, whole: None, changed: OnceLock::new(), kept };
        Ok(RemoteFile { remote: self.clone(), object: Arc::new(object), path })
    }

    /// The objects of a folder, each with its name. Reading an object fetches it.
    pub(crate) fn of_names(&self, url: &str, names: Names) -> Result<Vec<(String, RemoteFile)>> {
        let file = |(name, listed): (String, Listed)| {
            let file = self.of_listed(&in_folder(url, "", &name), listed)?;
            Ok((name, file))
        };
        names.into_iter().map(file).collect()
    }

    /// The place of an object in the folder at `url`, and the folder's URL without the parts that may be
    /// secret. The place is of an object, since a bucket alone has none.
    fn inside(&self, url: &str) -> Result<(Place, String)> {
        let inside = in_folder(url, "", "_");
        let place = self.0.stores.lock().unwrap_or_else(PoisonError::into_inner).place(&inside)?;
        let shown = place.shown.trim_end_matches('_').to_owned();
        if shown.starts_with("http") {
            let why = "a web server does not list its files: give a range of names, such as {000..099}";
            return Err(config(why).at_path(shown));
        }
        Ok((place, shown))
    }

    /// The file that keeps the listing of the folder `shown`.
    fn place_of_list(&self, shown: &str, below: bool) -> kept::Place {
        kept::Place::new(shown, below, &self.0.shared.options.store)
    }

    fn kept(&self, url: &str, below: bool, age: Duration) -> Result<Option<Listing>> {
        if age.is_zero() {
            return Ok(None);
        }
        let (inside, shown) = self.inside(url)?;
        let loaded = kept::load(&self.place_of_list(&shown, below), age);
        let listing =
            |(objects, kept)| Listing { inside, shown, objects, has_folders: false, kept: Some(kept) };
        Ok(loaded.map(listing))
    }

    /// Requests the objects in the folder at `url` from the store. If `below` is true, also the objects in
    /// subfolders.
    fn listed(&self, url: &str, below: bool) -> Result<Listing> {
        let inner = &self.0;
        inner.thread.check()?;
        let (inside, shown) = self.inside(url)?;
        let (sender, listed) = mpsc::sync_channel(1);
        let shared = inner.shared.clone();
        inner.thread.spawn(async move {
            let folder = folder_of(&inside);
            let once = || async {
                let listed = if below {
                    let objects = inside.store.list(Some(&folder)).try_collect::<Vec<_>>().await;
                    objects.map(|objects| (objects, false))
                } else {
                    let listed = inside.store.list_with_delimiter(Some(&folder)).await;
                    listed.map(|listed| (listed.objects, !listed.common_prefixes.is_empty()))
                };
                listed.map_err(|error| failure(&error))
            };
            let what = "list the folder";
            let listed = retried(&inside, &shared.options, &shared.counts, (what, 0), once).await;
            // Sending fails if the caller is gone. Then nobody needs the answer.
            let _ = sender.send(listed.map(|listed| (inside, listed)));
        });
        match listed.recv().map_err(|_| thread::ended())? {
            Ok((inside, (objects, has_folders))) => {
                let object = |object: ObjectMeta| (object.location.clone(), Tag::of_meta(&object));
                let mut objects: Vec<_> = objects.into_iter().map(object).collect();
                objects.sort_by(|(a, _), (b, _)| a.cmp(b));
                Ok(Listing { inside, shown, objects, has_folders, kept: None })
            }
            Err(failure) => Err(failure.error.at_path(shown)),
        }
    }
}

impl Listing {
    /// The folder's URL, and the relative names of its objects.
    fn names(self) -> (String, Names) {
        let Self { inside, shown, objects, kept, .. } = self;
        let folder = folder_of(&inside);
        let name_of = |path: &Path| {
            let parts: Vec<_> = path.prefix_match(&folder)?.collect();
            Some(parts.iter().map(AsRef::as_ref).collect::<Vec<&str>>().join("/"))
        };
        let mut named = Vec::with_capacity(objects.len());
        for (path, tag) in &objects {
            let Some(name) = name_of(path).filter(|name| !name.is_empty()) else { continue };
            // Some programs write an empty object to stand for a folder.
            let inside_it = format!("{path}/");
            let first = objects.partition_point(|(other, _)| other.as_ref() < inside_it.as_str());
            let is_inside = |(other, _): &(Path, Tag)| other.as_ref().starts_with(&inside_it);
            if tag.len == 0 && objects.get(first).is_some_and(is_inside) {
                continue;
            }
            let place =
                Place { store: inside.store.clone(), path: path.clone(), shown: format!("{shown}{name}") };
            named.push((name, Listed { place, tag: tag.clone(), kept: kept.clone() }));
        }
        named.sort_by(|(a, _), (b, _)| order(a).cmp(order(b)));
        (shown, named)
    }
}

/// The key that sorts names in the order of a walk on disk: folder by folder, and the files of a folder
/// before its subfolders.
fn order(name: &str) -> impl Iterator<Item = (bool, &str)> {
    let last = name.matches('/').count();
    name.split('/').enumerate().map(move |(level, part)| (level < last, part))
}

/// The folder of the object at `place`.
fn folder_of(place: &Place) -> Path {
    let mut parts: Vec<_> = place.path.parts().collect();
    parts.pop();
    Path::from_iter(parts)
}
