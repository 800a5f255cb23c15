//! Damaged or incomplete records, and records mixed from different runs, are never taken for shorter or other
//! runs, and never written to. Saved batches are readable files.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use feedline::record::file::{Frame, MAGIC, RankRecord};
use feedline::{BadSamples, ErrorKind, InMemory, Loader, LoaderBuilder, Pad, World};
use feedline_core::Budget;
use feedline_record::{Run, safetensors};
use feedline_testkit::fixtures::{Fine, failing};
use feedline_testkit::{watchdog::LIMIT, with_watchdog};
use serde_json::Value;

use crate::record;

/// 5 steps per epoch, of which one has a substitute.
fn builder(seed: u64) -> LoaderBuilder {
    Loader::builder(failing(Fine::new(40, 20).unwrap(), [3]))
        .batch_size(8)
        .shuffle()
        .seed(seed)
        .bad_samples(BadSamples::Substitute { budget: Budget::Count(100) })
}

/// A record of three epochs.
fn recorded(folder: &Path) -> Run {
    record(builder(5), folder, 3).unwrap();
    Run::open(folder).unwrap()
}

/// The places of the frames in the bytes of a record, each with its kind.
fn frames(bytes: &[u8]) -> Vec<(std::ops::Range<usize>, u8)> {
    let (mut at, mut frames) = (MAGIC.len(), Vec::new());
    while let Some((_, len)) = Frame::read(&bytes[at..]) {
        frames.push((at..at + len, bytes[at]));
        at += len;
    }
    assert_eq!(at, bytes.len());
    frames
}

#[test]
fn every_flipped_bit_is_damage_with_its_step_and_the_file_stays() {
    with_watchdog(4 * LIMIT, || {
        let dir = tempfile::tempdir().unwrap();
        let run = recorded(&dir.path().join("run"));
        let file = run.folder().join("rank-0.rec");
        let bytes = std::fs::read(&file).unwrap();
        assert!(bytes.len() < 1 << 16, "shorter than the writer's buffer");
        let places = frames(&bytes);
        let is_in_a_head =
            |at: usize| places.iter().any(|(place, _)| (place.start..place.start + 8).contains(&at));
        // Flips two bits of each byte after the kind and the length.
        for bit in (0..8 * bytes.len()).filter(|bit| is_in_a_head(bit / 8) || [0, 5].contains(&(bit % 8))) {
            let mut flipped = bytes.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            std::fs::write(&file, &flipped).unwrap();
            let error = Run::open(run.folder()).map(|run| run.steps()).expect_err("damage").to_string();
            if bit / 8 < MAGIC.len() {
                assert!(error.contains("not the record of a run"), "bit {bit}: {error}");
                continue;
            }
            let steps = places.iter().filter(|(place, kind)| place.end <= bit / 8 && *kind == 1).count();
            let place = match places.iter().any(|(place, kind)| place.end <= bit / 8 && *kind == 3) {
                true => format!("damaged at step {steps}"),
                false => "damaged before its first step".to_owned(),
            };
            assert!(error.contains(&place), "bit {bit}, {place}: {error}");
            if bit % 997 == 0 {
                let error = record(builder(5), run.folder(), 1).unwrap_err().to_string();
                assert!(error.contains(&place), "bit {bit}: {error}");
                assert_eq!(std::fs::read(&file).unwrap(), flipped, "bit {bit}: the file was written");
            }
        }
    });
}

#[test]
fn a_frame_that_is_cut_out_as_a_whole_is_noticed() {
    with_watchdog(LIMIT, || {
        let dir = tempfile::tempdir().unwrap();
        let whole = recorded(&dir.path().join("run"));
        let ids: Vec<_> = whole.steps().map(|step| whole.ids(step, 0).unwrap()).collect();
        let file = whole.folder().join("rank-0.rec");
        let bytes = std::fs::read(&file).unwrap();
        let places = frames(&bytes);
        let mut noticed = BTreeMap::<u8, [usize; 2]>::new();
        for (place, kind) in &places {
            let without = [&bytes[..place.start], &bytes[place.end..]].concat();
            std::fs::write(&file, without).unwrap();
            let is_noticed = match Run::open(whole.folder()) {
                Err(_) => true,
                Ok(run) => {
                    let read: Vec<_> = run.steps().map(|step| run.ids(step, 0)).collect();
                    let is_right = |(step, read): (usize, &feedline::Result<Vec<u64>>)| {
                        assert!(
                            read.as_ref().map_or(true, |read| *read == ids[step]),
                            "step {step}, {place:?}"
                        );
                        read.is_ok()
                    };
                    let are_right = read.iter().enumerate().all(is_right);
                    // A sample is found only where it was.
                    if let Ok(seen) = run.sightings(7) {
                        assert!(seen.iter().all(|seen| ids[seen.step as usize][seen.row] == 7));
                    }
                    !are_right || run.steps() != whole.steps()
                }
            };
            noticed.entry(*kind).or_default()[usize::from(is_noticed)] += 1;
        }
        let notes = noticed.remove(&5).unwrap();
        assert_eq!(notes, [15, 0], "a value that is missing says nothing of the steps");
        assert!(noticed.values().all(|[missed, seen]| *missed == 0 && *seen > 0), "{noticed:?}");
    });
}

#[test]
fn the_files_of_ranks_are_of_one_run() {
    with_watchdog(LIMIT, || {
        let dir = tempfile::tempdir().unwrap();
        let numbers = |from: u8| InMemory::new().field("x", [], Vec::from_iter(from..from + 40)).unwrap();
        let of = |name: &str, rank: u32, seed: u64, batch: usize, from: u8| -> PathBuf {
            let folder = dir.path().join(name);
            let builder = Loader::builder(numbers(from)).batch_size(batch).shuffle().seed(seed);
            record(builder.world(World::new(rank, 2).unwrap()), &folder, 2).unwrap();
            folder.join(format!("rank-{rank}.rec"))
        };
        let first = of("run", 0, 3, 4, 0);
        let folder = first.parent().unwrap();
        let second = folder.join("rank-1.rec");
        std::fs::copy(of("same", 1, 3, 4, 0), &second).unwrap();
        assert_eq!(Run::open(folder).unwrap().steps(), 0..10);
        for (name, seed, batch, from, part) in [
            ("seed", 4, 4, 0, "its seed is 4 instead of 3"),
            ("batch", 3, 8, 0, "at step 0, its batch is 8 instead of 4"),
            ("data", 3, 4, 1, "its fingerprint is"),
        ] {
            let other = of(name, 1, seed, batch, from);
            std::fs::copy(&other, &second).unwrap();
            let error = Run::open(folder).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Data);
            assert!(error.to_string().contains(part), "{name}: {error}");
            // A rank does not begin to write beside the file of another run.
            std::fs::remove_file(&second).unwrap();
            let builder = Loader::builder(numbers(from)).batch_size(batch).shuffle().seed(seed);
            let built = record(builder.world(World::new(1, 2).unwrap()), folder, 1);
            assert_eq!(built.is_err(), name != "batch", "{name}");
            std::fs::remove_file(&second).ok();
        }
        std::fs::copy(&first, &second).unwrap();
        let error = Run::open(folder).unwrap_err().to_string();
        assert!(error.contains("it is the file of rank 0"), "{error}");
    });
}

#[test]
fn what_a_kill_has_left_is_known() {
    with_watchdog(LIMIT, || {
        let dir = tempfile::tempdir().unwrap();
        let run = recorded(&dir.path().join("run"));
        assert_eq!(run.cuts().count(), 0);
        let file = run.folder().join("rank-0.rec");
        let bytes = std::fs::read(&file).unwrap();
        for left in [&[1_u8, 0, 0][..], &[0; 7], &[0; 4096], &[5, 0, 0, 0, 18, 0, 0, 0, 9]] {
            std::fs::write(&file, [&bytes, left].concat()).unwrap();
            let cut = Run::open(run.folder()).unwrap();
            assert_eq!(cut.cuts().collect::<Vec<_>>(), [(file.clone(), left.len() as u64)]);
            assert_eq!(cut.steps(), run.steps());
            assert_eq!(RankRecord::read(&file).unwrap().unwrap().bytes, bytes.len() as u64);
        }
        // Bytes that begin no frame.
        for left in [&[9_u8, 0, 0][..], &[1; 40], &[5, 0, 0, 0, 19, 0], &[5, 0, 0, 0, 19, 0, 0, 0], &[3, 1]] {
            std::fs::write(&file, [&bytes, left].concat()).unwrap();
            let opened = Run::open(run.folder());
            // Only two bytes of a length are left.
            assert_eq!(opened.is_ok(), left.len() == 6, "{left:?}");
        }
    });
}

/// The tensors of a safetensors file: name, bytes, and shape.
fn tensors(file: &[u8]) -> BTreeMap<String, (std::ops::Range<usize>, Value)> {
    let (len, rest) = file.split_first_chunk().unwrap();
    let (header, data) = rest.split_at(u64::from_le_bytes(*len) as usize);
    let header: Value = serde_json::from_slice(header).unwrap();
    let mut tensors = BTreeMap::new();
    for (name, tensor) in header.as_object().unwrap() {
        let at = |end: usize| tensor["data_offsets"][end].as_u64().unwrap() as usize;
        tensors.insert(name.clone(), (at(0)..at(1), tensor["shape"].clone()));
    }
    // Tensors neither overlap nor leave gaps, because readers refuse both.
    let mut places: Vec<_> = tensors.values().map(|(place, _)| place.clone()).collect();
    places.sort_by_key(|place| place.start);
    let end = places.iter().fold(0, |end, place| {
        assert_eq!(place.start, end);
        place.end
    });
    assert_eq!(end, data.len());
    tensors
}

#[test]
fn fields_with_the_names_of_the_saved_tensors_are_saved_beside_them() {
    with_watchdog(LIMIT, || {
        let texts = || (0..8_usize).map(|len| vec![len as u8; len]);
        let field = |set: InMemory, name: &str| set.field(name, [], Vec::from_iter(0..8_i64)).unwrap();
        let set = InMemory::new().ragged("x", [], 8, texts()).unwrap().ragged("y", [], 8, texts()).unwrap();
        let names = ["ids", "ids_", "x.offsets", "y.lengths", "__metadata__"];
        let set = names.iter().fold(set, |set, name| field(set, name));
        let builder = Loader::builder(set).batch_size(4).pad("y", Pad::longest());
        let batch = builder.build_host().unwrap().epoch(0).unwrap().next().unwrap().unwrap();
        let file = safetensors(&batch).unwrap();
        let found = tensors(&file);
        let expected = [
            "__metadata___",
            "ids",
            "ids_",
            "ids__",
            "x",
            "x.offsets",
            "x.offsets_",
            "y",
            "y.lengths",
            "y.lengths_",
        ];
        assert_eq!(found.keys().map(String::as_str).collect::<Vec<_>>(), expected);
        let data = &file[file.len() - found.values().map(|(place, _)| place.end).max().unwrap()..];
        for (name, numbers) in
            [("ids", [0_i64, 1, 2, 3]), ("ids__", [0, 1, 2, 3]), ("__metadata___", [0, 1, 2, 3])]
        {
            let bytes: Vec<u8> = numbers.iter().flat_map(|number| number.to_le_bytes()).collect();
            assert_eq!(data[found[name].0.clone()], bytes, "{name}");
        }
        let offsets: Vec<u8> = [0_u32, 0, 1, 3, 6].iter().flat_map(|number| number.to_le_bytes()).collect();
        assert_eq!(data[found["x.offsets_"].0.clone()], offsets);
        assert_eq!(found["y"].1, serde_json::json!([4, 3]));
    });
}
