//! Caches and sets in memory with ragged fields: every row equals the row of the original set.

use std::fs::{self, OpenOptions};
use std::io::{Seek, SeekFrom, Write};

use feedline_core::compose::Cached;
use feedline_core::{InMemory, from_fn};

use super::cached_file::Folder;
use super::*;

const LEN: u64 = 60;
const BUDGET: u64 = 1 << 20;
/// The header of a file, and the places of its index.
const HEADER: u64 = 64;
const PLACE: u64 = 24;
const INDEX: u64 = HEADER + LEN * PLACE;

fn spec() -> Spec {
    let spec = Spec::new().ragged("text", DType::U8, [], 40).expect("a spec");
    let spec = spec.field("number", DType::I64, []).expect("a spec");
    spec.ragged("pairs", DType::U16, [2], 9).expect("a spec")
}

/// The fields of sample `id`; a fifth of the texts are empty.
fn values(first: u64, id: u64) -> (Vec<u8>, i64, Vec<u16>) {
    let text = if id.is_multiple_of(5) { 0 } else { id * 7 % 41 };
    let pairs = (0..2 * (id * 3 % 10)).map(|at| (first + id * 100 + at) as u16);
    ((0..text).map(|at| (first + id * 31 + at) as u8).collect(), (first + id) as i64, pairs.collect())
}

/// A set that counts its reads, without random numbers.
fn uneven(first: u64, len: u64) -> (impl Dataset, Arc<Mutex<Vec<u64>>>) {
    let reads = Arc::new(Mutex::new(Vec::new()));
    let seen = reads.clone();
    let set = from_fn(len, spec(), move |id, row, _| {
        seen.lock().expect("the reads").push(id);
        let (text, number, pairs) = values(first, id);
        row.write_ragged(0, &text)?;
        row.field_mut::<i64>(1)?[0] = number;
        Ok(row.write_ragged(2, &pairs)?)
    });
    (set.version(first), reads)
}

/// The bytes of the fields of each of `ids`, which are read by one `read_many`.
#[track_caller]
fn rows(set: &dyn Dataset, ids: &[u64]) -> Vec<[Vec<u8>; 3]> {
    let layout = Layout::new(set.spec(), ids.len()).expect("a layout");
    let mut slab = vec![0_u64; layout.bytes() / 8];
    let slab: &mut [u8] = bytemuck::cast_slice_mut(&mut slab);
    let mut rows = feedline_core::Rows::new(&layout, slab, ids.len());
    rows.poison();
    let read = set.read_many(ids, &mut rows, &mut Context::new(SEED, 0));
    read.unwrap_or_else(|(index, error)| panic!("row {index}: {error}"));
    rows.check_written().expect("whole rows");
    drop(rows);
    let row = |row: usize| {
        let number = slab[layout.offset(1) + 8 * row..][..8].to_vec();
        [layout.row_values(slab, 0, row).to_vec(), number, layout.row_values(slab, 2, row).to_vec()]
    };
    (0..ids.len()).map(row).collect()
}

/// Checks `ids` of `set` against the values that they are made of.
#[track_caller]
fn assert_rows(set: &dyn Dataset, first: u64, ids: &[u64]) {
    for (&id, row) in ids.iter().zip(rows(set, ids)) {
        let (text, number, pairs) = values(first, id);
        let pairs = pairs.into_iter().flat_map(u16::to_ne_bytes).collect();
        assert_eq!(row, [text, number.to_ne_bytes().to_vec(), pairs], "sample {id}");
    }
}

fn assert_clean(set: &dyn Dataset) {
    let options = CheckOptions { samples: Samples::Spread(set.len()), epochs: 2, seed: SEED };
    let report = check_dataset(set, &options).expect("a check");
    assert!(report.is_clean(), "{report}");
}

fn shuffled() -> Vec<u64> {
    (0..LEN).map(|n| n * 17 % LEN).collect()
}

/// Reads all samples through a new cache at `path`, checks them, and returns how many were found in it.
#[track_caller]
fn hits(path: &Path) -> u64 {
    let cached = uneven(0, LEN).0.cached_in_file(path, BUDGET).expect("a cache");
    assert_rows(&cached, 0, &shuffled());
    assert!(cached.write_error().is_none(), "{:?}", cached.write_error());
    cached.stats().hits
}

#[test]
fn a_cache_in_memory_reads_each_sample_once() {
    let (set, reads) = uneven(0, LEN);
    let cached = set.cached(BUDGET as usize).expect("a cache");
    // One batch with rows that are cached and rows that are not.
    assert_rows(&cached, 0, &[3, 40, 7]);
    assert_rows(&cached, 0, &[40, 1, 3, 2, 59, 7]);
    assert_eq!((cached.stats().hits, cached.stats().misses), (3, 6));
    for _ in 0..3 {
        assert_rows(&cached, 0, &shuffled());
    }
    let mut reads = std::mem::take(&mut *reads.lock().expect("the reads"));
    reads.sort_unstable();
    assert_eq!(reads, Vec::from_iter(0..LEN));
    assert_clean(&cached);
}

#[test]
fn a_budget_in_memory_holds_and_what_does_not_fit_is_read_again() {
    let (set, _) = uneven(0, LEN);
    // A row takes up to 48 + 44 bytes and 64 more.
    let cached = set.cached(10 * 156).expect("a cache");
    assert_rows(&cached, 0, &shuffled());
    assert_rows(&cached, 0, &shuffled());
    assert!((10..20).contains(&cached.stats().hits), "{} hits", cached.stats().hits);
    let (set, _) = uneven(0, LEN);
    let none = set.cached(63).expect("a cache");
    assert_clean(&none);
    assert_eq!(none.stats().hits, 0);
}

#[test]
fn a_failure_passes_through_with_the_rows_before_it() {
    let (set, _) = uneven(0, LEN);
    let failing = set.map(spec(), |sample, row, _| {
        if sample.field::<i64>(1)?[0] == 4 {
            return Err("planned failure".into());
        }
        row.write_ragged_bytes(0, sample.bytes(0))?;
        row.bytes_mut(1).copy_from_slice(sample.bytes(1));
        Ok(row.write_ragged_bytes(2, sample.bytes(2))?)
    });
    let cached = failing.expect("a map").cached(BUDGET as usize).expect("a cache");
    for hits in [0, 2] {
        let layout = Layout::new(cached.spec(), 4).expect("a layout");
        let mut slab = vec![0_u64; layout.bytes() / 8];
        let mut rows = feedline_core::Rows::new(&layout, bytemuck::cast_slice_mut(&mut slab), 4);
        let read = cached.read_many(&[2, 3, 4, 5], &mut rows, &mut Context::new(SEED, 0));
        let (index, error) = read.expect_err("a failure");
        assert!(index == 2 && error.to_string().contains("planned failure"), "{index}: {error}");
        assert_eq!(rows.check_written().expect_err("rows that are missing").0, 2);
        assert_eq!(cached.stats().hits, hits);
    }
}

#[test]
fn the_next_run_finds_the_rows_in_the_file() {
    let folder = Folder::new("ragged-next");
    assert_eq!(hits(&folder.file()), 0);
    assert_eq!(hits(&folder.file()), LEN);
    let used: u64 =
        (0..LEN).map(|id| values(0, id)).map(|(a, _, b)| (24 + a.len() + 2 * b.len()) as u64).sum();
    let len = fs::metadata(folder.file()).expect("the file").len();
    assert_eq!(len, INDEX + used, "a file has what its rows need");
    assert_clean(&uneven(0, LEN).0.cached_in_file(folder.file(), BUDGET).expect("a cache"));
    let (set, reads) = uneven(0, LEN);
    let cached = set.cached_in_file(folder.file(), BUDGET).expect("a cache");
    assert_rows(&cached, 0, &shuffled());
    assert!(reads.lock().expect("the reads").is_empty());
}

#[test]
#[cfg_attr(windows, ignore = "a cache file that is in use cannot be replaced there")]
fn a_cut_file_and_that_of_another_set_are_seen() {
    let folder = Folder::new("ragged-cut");
    hits(&folder.file());
    let whole = fs::read(folder.file()).expect("the file");
    for len in [0, 5, 14, 16, 63, HEADER, INDEX - 1, INDEX, INDEX + 1, INDEX + 1000, whole.len() as u64 - 1] {
        fs::write(folder.file(), &whole[..len as usize]).expect("a cut file");
        let found = hits(&folder.file());
        let max = if len < INDEX { 0 } else { (len - INDEX).div_ceil(24) };
        assert!(found <= max, "{found} of a file of {len} bytes");
        assert_eq!(hits(&folder.file()), LEN, "and then it is whole, after a cut at {len}");
    }
    for (first, len) in [(1000, LEN), (0, LEN - 1)] {
        let other = |first, len| uneven(first, len).0.cached_in_file(folder.file(), BUDGET).expect("a cache");
        assert_rows(&other(first, len), first, &[3, 40, 58, 7]);
        assert_eq!(hits(&folder.file()), 0, "rows of another set are not read");
        assert_eq!(other(first, len).stats().hits, 0);
    }
    // The same set with rows of one size.
    let plain = Numbered::plain(0, LEN).cached_in_file(folder.file(), BUDGET).expect("a cache");
    assert_eq!(numbers(&read(&plain, &[4], 0)), [4]);
    assert_eq!(hits(&folder.file()), 0);
    fs::write(folder.file(), "somebody's data").expect("a file");
    assert!(refused(uneven(0, LEN).0.cached_in_file(folder.file(), BUDGET)).contains("not a cache"));
}

#[test]
fn a_damaged_byte_anywhere_is_seen_and_the_row_is_read_again() {
    let folder = Folder::new("ragged-damage");
    hits(&folder.file());
    let whole = fs::read(folder.file()).expect("the file");
    for at in (0..whole.len()).step_by(31).chain(HEADER as usize..HEADER as usize + 3 * PLACE as usize) {
        let mut damaged = whole.clone();
        damaged[at] ^= 0x55;
        if at < 14 {
            continue; // Not a cache any more.
        }
        fs::write(folder.file(), damaged).expect("a damaged file");
        let found = hits(&folder.file());
        assert_eq!(found, if at < HEADER as usize { 0 } else { LEN - 1 }, "byte {at}");
        assert_eq!(hits(&folder.file()), LEN, "it was written again");
    }
}

#[test]
fn a_damaged_length_allocates_nothing() {
    let folder = Folder::new("ragged-length");
    hits(&folder.file());
    let file = OpenOptions::new().write(true).open(folder.file()).expect("the file");
    file.set_len(1 << 40).expect("a file without blocks");
    (&file).seek(SeekFrom::Start(HEADER + 5 * PLACE)).expect("a place");
    let place = [1, INDEX, 1_u64 << 39].map(u64::to_le_bytes);
    (&file).write_all(place.as_flattened()).expect("a write");
    assert_eq!(hits(&folder.file()), LEN - 1);
}

#[test]
#[cfg_attr(windows, ignore = "a cache file that is in use cannot be replaced there")]
fn a_file_keeps_its_budget_and_changes_while_it_is_used() {
    let folder = Folder::new("ragged-budget");
    let budget = INDEX + 800;
    let open = || uneven(0, LEN).0.cached_in_file(folder.file(), budget).expect("a cache");
    let cached = open();
    for _ in 0..3 {
        assert_rows(&cached, 0, &shuffled());
    }
    let kept = fs::metadata(folder.file()).expect("the file").len();
    assert!(
        kept <= budget && (20..100).contains(&cached.stats().hits),
        "{kept} bytes, {} hits",
        cached.stats().hits
    );
    let file = OpenOptions::new().write(true).open(folder.file()).expect("the file");
    file.set_len(INDEX + 100).expect("a cut");
    (&file).seek(SeekFrom::Start(INDEX)).expect("a place");
    (&file).write_all(&[9; 16]).expect("a write");
    assert_rows(&cached, 0, &shuffled());
    fs::remove_file(folder.file()).expect("the file");
    assert_rows(&cached, 0, &shuffled());
    // An index is at most half of the budget.
    let half = uneven(0, LEN).0.cached_in_file(folder.file(), HEADER + 20 * PLACE).expect("a cache");
    assert_eq!(half.stats().kept, 10);
    assert_rows(&half, 0, &shuffled());
    assert_rows(&uneven(0, LEN).0.cached_in_file(folder.0.join("none"), 0).expect("a cache"), 0, &[1, 2]);
}

#[test]
fn several_runs_share_a_file() {
    let folder = Folder::new("ragged-share");
    let open = || -> Cached { uneven(0, LEN).0.cached_in_file(folder.file(), BUDGET).expect("a cache") };
    let (one, two) = (open(), open());
    assert_rows(&one, 0, &shuffled()[..30]);
    assert_rows(&two, 0, &shuffled()[..50]);
    assert_rows(&one, 0, &shuffled());
    assert_eq!((one.stats().hits, two.stats().hits), (50, 30));
    assert_eq!(hits(&folder.file()), LEN, "no row was written over another");
    let all = [one, two, open(), open()];
    std::thread::scope(|scope| {
        for cached in &all {
            scope.spawn(move || (0..4).for_each(|_| assert_rows(cached, 0, &shuffled())));
        }
    });
    assert!(all.iter().all(|cached| cached.write_error().is_none()));
}

#[test]
fn rows_in_memory_are_those_that_were_given() {
    let all: Vec<_> = (0..LEN).map(|id| values(7, id)).collect();
    let set = || {
        let set = InMemory::new().ragged("text", [], 40, all.iter().map(|row| &row.0)).expect("texts");
        let set = set.field("number", [], Vec::from_iter(all.iter().map(|row| row.1))).expect("numbers");
        set.ragged("pairs", [2], 9, all.iter().map(|row| &row.2)).expect("pairs")
    };
    assert_eq!((set().len(), set().spec()), (LEN, &spec()));
    assert_rows(&set(), 7, &shuffled());
    assert_rows(&set().cached(1 << 20).expect("a cache"), 7, &shuffled());
    assert_clean(&set());
    assert!(set().storage().column(0).is_none() && set().storage().column(1).is_some());
    let (good, why) = {
        let layout = Layout::new(set().spec(), 2).expect("a layout");
        let mut slab = vec![0_u64; layout.bytes() / 8];
        let mut rows = feedline_core::Rows::new(&layout, bytemuck::cast_slice_mut(&mut slab), 2);
        set().read_many(&[3, LEN], &mut rows, &mut Context::new(SEED, 0)).expect_err("no such sample")
    };
    assert!(good == 1 && why.to_string().contains("no sample 60"), "{why}");

    let text = |rows: [&'static [u8]; 2]| InMemory::new().ragged("text", [], 5, rows).expect("texts");
    assert_fingerprints_differ([&text([b"ab", b"c"]), &text([b"a", b"bc"]), &text([b"ab", b"d"])]);
    let why = refused(InMemory::new().ragged("text", [], 5, [b"long text"]));
    assert_eq!(why, "field \"text\" has 9 values in sample 0, which are not up to 5 items of 1");
    let why = refused(InMemory::new().ragged("pairs", [2], 5, [vec![1_u16, 2], vec![3]]));
    assert_eq!(why, "field \"pairs\" has 1 values in sample 1, which are not up to 5 items of 2");
    let why = refused(text([b"a", b""]).field("label", [], [1_u8]));
    assert_eq!(why, "field \"label\" has 1 samples, the fields before have 2");
}
