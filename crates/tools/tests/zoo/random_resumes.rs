//! For each way in which data is held, 200 resumes at random steps, with random workers and depths, continue
//! with the samples, bytes and cursors of the run. A table gives the same batches from memory, from a cache
//! and from disk.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use feedline::dataset::Random;
use feedline::{Loader, LoaderBuilder};
use feedline_datasets::{Bounded, Manifest, ManifestOptions, OpenOptions, Table, open, open_with};
use feedline_testkit::restore::{EPOCHS, From, MIXES, Mix, Pipeline, Step};
use feedline_testkit::{Watchdog, watchdog};

use crate::common::alone_in_parts;
use crate::made::write;
use crate::restoring::{Restored, sources};

const RESUMES: u64 = 200;
const BATCH: usize = 4;
/// Samples of the sets that are made here.
const LEN: u64 = 90;

type Build<'a> = &'a dyn Fn() -> LoaderBuilder;

fn restored(build: Build<'_>, mix: Mix) -> Restored {
    Restored::new(build().batch_size(BATCH).shuffle().seed(11), mix)
}

/// Resumes a run of the loaders of `build` at random steps; returns its steps.
fn resumes(name: &str, build: Build<'_>) -> Vec<Step> {
    let _watchdog = Watchdog::new(watchdog::LIMIT, name);
    let mut run = restored(build, MIXES[0]);
    let steps: Vec<Step> = (0..EPOCHS).flat_map(|epoch| run.run(From::Epoch(epoch), usize::MAX)).collect();
    assert_eq!(steps.len() as u64, EPOCHS * LEN.div_ceil(BATCH as u64), "{name}");
    let mut random =
        Random::from_key(name.bytes().fold(46, |key: u64, byte| key.rotate_left(7) ^ u64::from(byte)));
    for _ in 0..RESUMES {
        let at = random.below(steps.len() as u64) as usize;
        let mix = MIXES[random.below(MIXES.len() as u64) as usize];
        let mut loader = restored(build, mix);
        let mut have = loader.run(From::Cursor(steps[at].cursor), 1 + random.below(5) as usize);
        if have.is_empty() {
            let next = steps[at].epoch + 1;
            have.extend((next < EPOCHS).then(|| loader.run(From::Epoch(next), 2)).into_iter().flatten());
        }
        let want = &steps[at + 1..][..have.len()];
        assert!(!have.is_empty() || at + 1 == steps.len(), "{name}: nothing came after step {at}");
        assert!(have == want, "{name}: resumed after step {at} with {mix:?}");
    }
    steps
}

fn sample_of(id: u64) -> Vec<u8> {
    [&b"BM"[..], &vec![id as u8; 1 + id as usize % 40]].concat()
}

/// Files that are a sample each, and a manifest of them.
fn files(dir: &Path) -> PathBuf {
    let mut manifest = "file,kind\n".to_owned();
    for id in 0..LEN {
        write(dir, &format!("files/{}/{id:02}.bmp", ["ant", "bee"][id as usize % 2]), &sample_of(id));
        manifest += &format!(
            "files/{}/{id:02}.bmp,{}\n",
            ["ant", "bee"][id as usize % 2],
            ["b", "a"][id as usize % 2]
        );
    }
    write(dir, "manifest.csv", manifest.as_bytes())
}

#[test]
fn tables_resume_at_random_steps_with_the_same_batches_from_memory_cache_and_disk() {
    alone_in_parts(|| {
        let test = "tables_resume_at_random_steps_with_the_same_batches_from_memory_cache_and_disk";
        let Some(root) = sources(test) else { return };
        let dir = tempfile::tempdir().unwrap();
        let parquet = root.join("datasets/tests/golden/tables/zstd.parquet");
        let columns = Some(["price", "pair"].map(str::to_owned).to_vec());
        let of_parquet = |cache_bytes: u64| {
            let options = OpenOptions { columns: columns.clone(), cache_bytes, ..Default::default() };
            Bounded::new(open_with(&parquet, &options).unwrap()).unwrap()
        };
        let lines: String = (0..LEN).map(|id| format!("{id},{}.5,{}\n", id * 3, id % 7)).collect();
        let csv = write(dir.path(), "table.csv", ("a,b,c\n".to_owned() + &lines).as_bytes());
        let of_csv = |cache_bytes: u64| {
            let options = OpenOptions { cache_bytes, ..Default::default() };
            Table::open_with(&csv, options).stack("x", ["a", "b"]).standardize("x").build().unwrap()
        };
        // Three cache sizes: all rows fit, one of three row groups fits, nothing is cached.
        let held = |data: &dyn feedline::Dataset| data.about().table_rows.map(|(_, is_held)| is_held);
        let [memory, cache, disk] = [1 << 20, 1000, 0];
        assert_eq!(
            [memory, cache, disk].map(|bytes| held(&of_parquet(bytes))),
            [Some(true), Some(false), None]
        );
        assert_eq!([memory, cache, disk].map(|bytes| held(&of_csv(bytes))), [Some(true), Some(false), None]);
        let mut all = Vec::new();
        for bytes in [memory, cache, disk] {
            let name = format!("parquet, {bytes} bytes");
            all.push(resumes(&name, &|| Loader::builder(of_parquet(bytes))));
        }
        assert!(all[0] == all[1] && all[0] == all[2], "the batches of Parquet differ");
        all.clear();
        for bytes in [memory, cache, disk] {
            all.push(resumes(&format!("csv, {bytes} bytes"), &|| Loader::builder(of_csv(bytes))));
        }
        assert!(all[0] == all[1] && all[0] == all[2], "the batches of CSV differ");
    });
}

#[test]
fn manifests_and_lists_of_files_resume_at_random_steps() {
    alone_in_parts(|| {
        let dir = tempfile::tempdir().unwrap();
        let manifest = files(dir.path());
        let of_manifest = || {
            let set = Manifest::open(&manifest, &ManifestOptions::default()).unwrap();
            Loader::builder(Bounded::limited(Arc::new(set), 64).unwrap())
        };
        let steps = resumes("manifest", &of_manifest);
        assert_eq!(steps[0].ids.len(), BATCH);
        let pattern = dir.path().join("files/*/*.bmp");
        resumes("pattern", &|| Loader::builder(Bounded::limited(open(&pattern).unwrap(), 64).unwrap()));
    });
}

#[cfg(feature = "object-store")]
#[test]
fn buckets_of_objects_resume_at_random_steps() {
    use crate::server::{Served, Server};
    use feedline_datasets::{Remote, RemoteOptions};

    alone_in_parts(|| {
        let server = Server::start();
        let mut manifest = "file,kind\n".to_owned();
        for id in 0..LEN {
            let name = format!("set/{}/{id:02}.bmp", ["ant", "bee"][id as usize % 2]);
            server.put(&format!("bucket/{name}"), Served::new(sample_of(id)));
            manifest += &format!("{},{}\n", server.url(&format!("bucket/{name}")), id % 2);
        }
        let endpoint = server.url("");
        let store = [
            ("aws_endpoint", endpoint.trim_end_matches('/')),
            ("aws_allow_http", "true"),
            ("aws_region", "r"),
            ("skip_signature", "true"),
        ];
        let store = store.map(|(name, value)| (name.to_owned(), value.to_owned())).to_vec();
        let opened = |url: &str| {
            let remote = Remote::new(RemoteOptions { store: store.clone(), ..Default::default() }).unwrap();
            Loader::builder(Bounded::limited(remote.open(url).unwrap(), 64).unwrap())
        };
        let folder = resumes("bucket", &|| opened("s3://bucket/set/"));
        let pattern = resumes("pattern of a bucket", &|| opened("s3://bucket/set/*/*.bmp"));
        let bytes = |steps: &[Step]| steps.iter().map(|step| step.bytes.clone()).collect::<Vec<_>>();
        assert!(bytes(&folder) == bytes(&pattern), "both have the same files in the same order");
        let dir = tempfile::tempdir().unwrap();
        let path = write(dir.path(), "manifest.csv", manifest.as_bytes());
        resumes("manifest of URLs", &|| {
            let set = Manifest::open(&path, &ManifestOptions::default()).unwrap();
            Loader::builder(Bounded::limited(Box::new(set), 64).unwrap())
        });
    });
}
