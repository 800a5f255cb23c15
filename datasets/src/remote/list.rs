//! The objects in a folder of a store.

use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::sync::{Arc, OnceLock, PoisonError, mpsc};

use feedline_core::Result;
use futures_util::TryStreamExt;
use object_store::ObjectMeta;
use object_store::path::Path;

use super::fetch::{failure, retried};
use super::tag::Tag;
use super::url::Place;
use super::{Object, Remote, RemoteFile, config, in_folder, thread};

/// What a listing has of an object.
pub(crate) struct Listed {
    place: Place,
    tag: Tag,
}

impl Remote {
    /// The URLs of the objects directly in the folder at `url`, sorted by name.
    ///
    /// # Errors
    /// `Config` for the URL of a web server, which does not list files; `Data` if the store cannot be asked.
    pub(crate) fn list(&self, url: &str) -> Result<Vec<String>> {
        let (_, _, objects) = self.listed(url, false)?;
        let names = objects.iter().filter_map(|object| Some(object.location.filename()?.to_owned()));
        let mut names: Vec<_> = names.collect();
        names.sort();
        Ok(names.iter().map(|name| in_folder(url, "", name)).collect())
    }

    /// The folder at `url`, without what could be secret, and the objects in it and in the folders below it,
    /// in the order of a walk on disk, each with its name from the folder on. They are not fetched before
    /// they are read.
    ///
    /// # Errors
    /// As [`list`](Self::list).
    pub(crate) fn below(&self, url: &str) -> Result<(PathBuf, Vec<(String, RemoteFile)>)> {
        let (shown, names) = self.names(url, true)?;
        let file = |(name, listed): (String, Listed)| {
            let file = self.of_listed(&in_folder(url, "", &name), listed)?;
            Ok((name, file))
        };
        let files = names.into_iter().map(file).collect::<Result<_>>()?;
        Ok((shown.trim_end_matches('/').into(), files))
    }

    /// The folder at `url`, without what could be secret, and the objects in it, or also those `below` it, in the
    /// order of a walk on disk, each with its name from the folder on.
    ///
    /// # Errors
    /// As [`list`](Self::list).
    pub(crate) fn names(&self, url: &str, below: bool) -> Result<(String, Vec<(String, Listed)>)> {
        let (place, shown, mut objects) = self.listed(url, below)?;
        objects.sort_by(|a, b| a.location.cmp(&b.location));
        let folder = folder_of(&place);
        let name_of = |object: &ObjectMeta| {
            let parts: Vec<_> = object.location.prefix_match(&folder)?.collect();
            Some(parts.iter().map(AsRef::as_ref).collect::<Vec<&str>>().join("/"))
        };
        let mut named = Vec::with_capacity(objects.len());
        for object in &objects {
            let Some(name) = name_of(object).filter(|name| !name.is_empty()) else { continue };
            // Some programs write an empty object for a folder.
            let inside = format!("{}/", object.location);
            let first = objects.partition_point(|other| other.location.as_ref() < inside.as_str());
            let is_inside = |other: &ObjectMeta| other.location.as_ref().starts_with(&inside);
            if object.size == 0 && objects.get(first).is_some_and(is_inside) {
                continue;
            }
            let (store, path) = (place.store.clone(), object.location.clone());
            let place = Place { store, path, shown: format!("{shown}{name}") };
            named.push((name, Listed { place, tag: Tag::of(object) }));
        }
        named.sort_by(|(a, _), (b, _)| order(a).cmp(order(b)));
        Ok((shown, named))
    }

    /// The object at `url`, which a listing has. It is fetched only if the listing does not pin its version.
    pub(crate) fn of_listed(&self, url: &str, listed: Listed) -> Result<RemoteFile> {
        let Listed { place, tag } = listed;
        if tag.strong().is_none() {
            return self.file(url);
        }
        let id = self.0.files.fetch_add(1, Ordering::Relaxed);
        let path = PathBuf::from(&place.shown);
        let object = Object { id, place: Arc::new(place), tag, whole: None, changed: OnceLock::new() };
        Ok(RemoteFile { remote: self.clone(), object: Arc::new(object), path })
    }

    /// The place of an object in the folder at `url`, the folder's URL without what could be secret, and the
    /// objects directly in it, or also those `below`.
    fn listed(&self, url: &str, below: bool) -> Result<(Place, String, Vec<ObjectMeta>)> {
        let inner = &self.0;
        inner.thread.check()?;
        // The place of an object in the folder: a bucket alone is not an object.
        let inside = in_folder(url, "", "_");
        let place = inner.stores.lock().unwrap_or_else(PoisonError::into_inner).place(&inside)?;
        let shown = place.shown.trim_end_matches('_').to_owned();
        if shown.starts_with("http") {
            let why = "a web server does not list its files: give a range of names, such as {000..099}";
            return Err(config(why).at_path(shown));
        }
        let (sender, listed) = mpsc::sync_channel(1);
        let shared = inner.shared.clone();
        inner.thread.spawn(async move {
            let folder = folder_of(&place);
            let once = || async {
                let listed = if below {
                    place.store.list(Some(&folder)).try_collect().await
                } else {
                    place.store.list_with_delimiter(Some(&folder)).await.map(|listed| listed.objects)
                };
                listed.map_err(|error| failure(&error))
            };
            let what = "list the folder";
            let listed = retried(&place, &shared.options, &shared.counts, (what, 0), once).await;
            // Fails if the caller has gone; nobody needs the answer then.
            let _ = sender.send(listed.map(|objects| (place, objects)));
        });
        let listed = listed.recv().map_err(|_| thread::ended())?;
        match listed {
            Ok((place, objects)) => Ok((place, shown, objects)),
            Err(failure) => Err(failure.error.at_path(shown)),
        }
    }
}

/// The key that sorts names as a walk on disk visits them: by folder, the files of a folder before its
/// subfolders.
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
