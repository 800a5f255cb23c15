//! Formats by their URLs, from a server on this machine.

use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;

use feedline::{DType, Loader, Spec};
use feedline_core::Dataset;
use feedline_datasets::{
    ArrowFile, Bounded, PackOptions, ParquetFile, Records, Remote, RemoteOptions, open, pack,
};

use crate::entry::{Entry, LEN};
use crate::formats;
use crate::made::{npy, tar, write};
use crate::restoring::read_source;
use crate::server::{Served, Server};

/// Every kind that is read by its URL.
pub fn by_url(root: &Path, dir: &Path) -> Vec<Entry> {
    let server = Rc::new(Server::start());
    let remote = Rc::new(Remote::new(RemoteOptions::default()).unwrap());
    let put = |name: &str, path: &Path| server.put(name, Served::new(std::fs::read(path).unwrap()));
    let put_folder = |name: &str, path: &Path| {
        for file in std::fs::read_dir(path).unwrap().map(|file| file.unwrap().path()) {
            put(&format!("{name}/{}", file.file_name().unwrap().to_str().unwrap()), &file);
        }
        server.url(&format!("{name}/"))
    };
    type Open = fn(&Remote, &str) -> Arc<dyn Dataset>;
    let entry = |name: &'static str, url: String, (step, open): (usize, Open)| {
        let (server, remote) = (server.clone(), remote.clone());
        Entry::new(name, move || {
            let _served = &server;
            let ids = Vec::from_iter((0..LEN * step as u64).step_by(step).take(LEN as usize));
            let set = Bounded::limited(open(&remote, &url), 2000).unwrap();
            Loader::builder(feedline::Dataset::subset(set, ids).unwrap())
        })
    };
    let any: (usize, Open) = (1, |remote, url| remote.open(url).unwrap());
    let arrow: (usize, Open) =
        (4, |remote, url| Box::new(ArrowFile::open_remote(remote, url, formats::columns()).unwrap()));
    let parquet: (usize, Open) =
        (4, |remote, url| Box::new(ParquetFile::open_remote(remote, url, formats::columns()).unwrap()));
    let golden = root.join("datasets/tests/golden/tables");
    let members =
        Vec::from_iter((0..LEN).map(|id| (format!("{id:04}.bin"), vec![id as u8; 1 + id as usize])));
    let members = Vec::from_iter(members.iter().map(|(name, bytes)| (name.as_str(), &bytes[..])));
    let numbers = Vec::from_iter((0..LEN as u32).flat_map(u32::to_le_bytes));
    let source = write(dir, "remote.npy", &npy("<u4", false, &format!("({LEN},)"), &numbers));
    pack(&*open(source).unwrap(), dir.join("remote"), PackOptions { shard_bytes: Some(40) }, |_| ()).unwrap();
    let records = server.put("records", Served::new(numbers));
    let index = formats::documents(dir);
    let bin = put("pair.bin", &index.with_extension("bin"));
    let (held, shared) = (server.clone(), remote.clone());
    vec![
        entry("WebDataset Tar by URL", server.put("a.tar", Served::new(tar(&members))), any),
        entry("TokenDocuments TokenIndex by URL", put("pair.idx", &index), any),
        entry("TokenDocuments of a .bin by URL", bin, any),
        entry("ArrowFile Arrow by URL", put("a.arrow", &golden.join("lz4.arrow")), arrow),
        entry("ParquetFile Parquet by URL", put("a.parquet", &golden.join("snappy.parquet")), parquet),
        entry("Mds Mds by URL", server.put("a.mds", Served::new(formats::shard())), any),
        entry("Zipped MdsIndex by URL", put_folder("mds", &formats::shards(dir)), any),
        entry("Concat PackIndex by URL", put_folder("packed", &dir.join("remote")), any),
        Entry::new("Records by URL", move || {
            let _served = &held;
            let spec = Spec::new().field("number", DType::U32, []).unwrap();
            Loader::builder(Records::open_remote(&shared, &records, spec).unwrap())
        }),
    ]
}

/// Checks that `entries` have every kind that `Remote::open` reads.
pub fn assert_all_kinds(root: &Path, entries: &[Entry]) {
    let source = read_source(&root.join("datasets/src/open/remote.rs"));
    let kinds =
        source.lines().filter_map(|line| line.trim().strip_prefix("Kind::")?.split_once(" => remote_"));
    let kinds = Vec::from_iter(kinds.map(|(kind, _)| kind));
    assert!(kinds.len() >= 6, "only {kinds:?} were found");
    for kind in kinds {
        let is_listed = entries.iter().any(|entry| entry.name.split(' ').nth(1) == Some(kind));
        assert!(is_listed, "Kind::{kind} by URL is not in the zoo");
    }
}
