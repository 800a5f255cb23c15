//! The objects in a folder of a store.

use std::sync::{PoisonError, mpsc};

use feedline_core::Result;
use object_store::path::Path;

use super::fetch::{failure, retried};
use super::{Remote, config, in_folder, thread};

impl Remote {
    /// The URLs of the objects directly in the folder at `url`, sorted by name.
    ///
    /// # Errors
    /// `Config` for the URL of a web server, which does not list files; `Data` if the store cannot be asked.
    pub(crate) fn list(&self, url: &str) -> Result<Vec<String>> {
        let inner = &self.0;
        inner.thread.check()?;
        // The place of an object in the folder: a bucket alone is no object.
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
            let mut parts: Vec<_> = place.path.parts().collect();
            parts.pop();
            let folder = Path::from_iter(parts);
            let once = || async {
                let listed = place.store.list_with_delimiter(Some(&folder)).await;
                listed.map_err(|error| failure(&error))
            };
            let what = "list the folder";
            let listed = retried(&place, &shared.options, &shared.counts, (what, 0), once).await;
            // Fails if the caller has gone; nobody needs the answer then.
            let _ = sender.send(listed);
        });
        let listed = listed.recv().map_err(|_| thread::ended())?;
        let listed = listed.map_err(|failure| failure.error.at_path(shown))?;
        let mut names: Vec<_> =
            listed.objects.iter().filter_map(|object| Some(object.location.filename()?.to_owned())).collect();
        names.sort();
        Ok(names.iter().map(|name| in_folder(url, "", name)).collect())
    }
}
