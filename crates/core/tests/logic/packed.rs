//! Packed windows: each item of each document once per epoch, in whole documents, with next to no padding.

use feedline_core::{
    CheckOptions, Context, DType, Dataset, Error, ErrorKind, Layout, Packed, PackedOptions, Random,
    ReadError, Row, Rows, Spec, check_dataset, from_fn,
};

/// Documents of given lengths; item `i` of document `d` is `1000 * d + i`.
struct Documents {
    lengths: Vec<u32>,
    spec: Spec,
}

fn documents(lengths: &[u32]) -> Documents {
    let most = lengths.iter().max().map_or(1, |&most| most.max(1) as usize);
    let spec = Spec::new().field("id", DType::I64, []).unwrap().ragged("item", DType::I32, [], most).unwrap();
    Documents { lengths: lengths.to_vec(), spec }
}

impl Dataset for Documents {
    fn len(&self) -> u64 {
        self.lengths.len() as u64
    }

    fn spec(&self) -> &Spec {
        &self.spec
    }

    fn read(&self, id: u64, row: &mut Row<'_, '_>, _: &mut Context) -> Result<(), ReadError> {
        row.field_mut::<i64>(0)?[0] = id as i64;
        let items: Vec<i32> = (0..self.lengths[id as usize] as i32).map(|at| 1000 * id as i32 + at).collect();
        Ok(row.write_ragged(1, &items)?)
    }
}

fn options(window: usize) -> PackedOptions {
    PackedOptions { window, split: false, shuffle: None }
}

fn pack(lengths: &[u32], options: PackedOptions) -> Result<Packed, Error> {
    Packed::new(documents(lengths), "item", lengths, options)
}

/// Items, positions, number used and `cu_seqlens` of a batch of windows.
fn batch(packed: &Packed, epoch: u64, windows: &[u64]) -> (Vec<i32>, Vec<u32>, Vec<u32>, Vec<u32>) {
    let layout = Layout::new(packed.spec(), windows.len()).unwrap();
    let mut slab = vec![0xC5; layout.bytes()];
    let mut rows = Rows::new(&layout, &mut slab, windows.len());
    packed.read_many(windows, &mut rows, &mut Context::new(0, epoch)).unwrap();
    drop(rows);
    let mut extents = Vec::new();
    layout.finish(&mut slab, windows.len(), &mut extents).unwrap();
    let words = |at: usize, count: usize| -> Vec<u32> {
        slab[at..][..4 * count].chunks(4).map(|word| u32::from_ne_bytes(word.try_into().unwrap())).collect()
    };
    let items = windows.len() * packed.spec().fields()[0].elements();
    let all = words(layout.offset(0), items).into_iter().map(|item| item as i32).collect();
    let cu_seqlens = words(layout.values(3).start, extents[0].items);
    (all, words(layout.offset(1), items), words(layout.offset(2), windows.len()), cu_seqlens)
}

/// Checks every window of an epoch against the documents.
fn check_epoch(lengths: &[u32], packed: &Packed, epoch: u64) {
    let window = packed.spec().fields()[0].elements();
    let mut seen: Vec<Vec<bool>> = lengths.iter().map(|&length| vec![false; length as usize]).collect();
    let windows: Vec<u64> = (0..packed.len()).collect();
    for two in windows.chunks(2) {
        let (items, positions, used, cu_seqlens) = batch(packed, epoch, two);
        let mut ends = vec![0];
        for (row, &id) in two.iter().enumerate() {
            let mut at = row * window;
            for piece in packed.pieces(epoch, id) {
                for (position, item) in piece.items.clone().enumerate() {
                    assert_eq!(items[at], 1000 * piece.document as i32 + item as i32);
                    assert_eq!(positions[at] as usize, position);
                    let seen = &mut seen[piece.document as usize][item];
                    assert!(!std::mem::replace(seen, true), "{piece:?} comes twice");
                    at += 1;
                }
                ends.push(at as u32);
            }
            assert_eq!(used[row] as usize, at - row * window);
            let padding = at..(row + 1) * window;
            assert!(padding.clone().all(|at| (items[at], positions[at]) == (0, 0)));
            ends.extend((!padding.is_empty()).then_some(padding.end as u32));
        }
        assert_eq!(cu_seqlens, ends);
    }
    assert!(seen.iter().flatten().all(|&seen| seen), "an item is missing");
}

#[test]
fn every_item_is_in_one_window_of_an_epoch_and_no_document_is_split() {
    let random = &mut Random::from_key(3);
    for case in 0..60 {
        let window = 1 + random.below(50) as usize;
        let split = case % 3 == 0;
        let most = if split { 120 } else { window as u64 };
        let mut lengths: Vec<u32> = (0..random.below(80)).map(|_| random.below(most + 1) as u32).collect();
        lengths.push(1);
        let options = PackedOptions { window, split, shuffle: (case % 2 == 0).then_some(case) };
        let packed = pack(&lengths, options).unwrap();
        for epoch in 0..2 {
            check_epoch(&lengths, &packed, epoch);
        }
        let whole = (0..packed.len())
            .flat_map(|window| packed.pieces(0, window))
            .all(|piece| piece.items == (0..lengths[piece.document as usize] as usize));
        assert!(whole || split);
        assert_eq!(packed.longest(), lengths.iter().map(|&n| (n as usize).min(window)).max().unwrap());
    }
}

#[test]
fn documents_in_order_fill_every_window_but_the_last() {
    let random = &mut Random::from_key(4);
    for case in 0..60 {
        let window = 1 + random.below(50) as usize;
        let mut lengths: Vec<u32> = (0..random.below(80)).map(|_| random.below(120) as u32).collect();
        lengths.push(1);
        let packed = Packed::in_order(documents(&lengths), "item", &lengths, window).unwrap();
        check_epoch(&lengths, &packed, case % 2);
        let all =
            (0..).zip(&lengths).flat_map(|(id, &length)| (0..length as i32).map(move |at| 1000 * id + at));
        let all: Vec<i32> = all.collect();
        assert_eq!(packed.len(), all.len().div_ceil(window) as u64);
        let windows: Vec<u64> = (0..packed.len()).collect();
        let (items, ..) = batch(&packed, case, &windows);
        assert_eq!(items[..all.len()], all);
        assert!(items[all.len()..].iter().all(|&item| item == 0));
        assert_eq!(packed.longest(), longest_piece(&packed));
    }
}

fn longest_piece(packed: &Packed) -> usize {
    let pieces = (0..packed.len()).flat_map(|window| packed.pieces(0, window));
    pieces.map(|piece| piece.items.len()).max().unwrap()
}

#[test]
fn segments_number_the_documents_of_a_window_from_one() {
    let lengths = [3, 0, 9, 2, 1];
    let packed = Packed::in_order(documents(&lengths), "item", &lengths, 8).unwrap();
    let layout = Layout::new(packed.spec(), 2).unwrap();
    let mut slab = vec![0xC5; layout.bytes()];
    let mut rows = Rows::new(&layout, &mut slab, 2);
    packed.read_many(&[0, 1], &mut rows, &mut Context::new(0, 0)).unwrap();
    rows.check_written().unwrap();
    let segment = packed.spec().index_of("segment").unwrap();
    assert_eq!(*rows.row(0).field_mut::<u32>(segment).unwrap(), [1, 1, 1, 2, 2, 2, 2, 2]);
    assert_eq!(*rows.row(1).field_mut::<u32>(segment).unwrap(), [1, 1, 1, 1, 2, 2, 3, 0]);
    let whole = Packed::new(documents(&lengths), "item", &lengths, options(9)).unwrap();
    let cut = Packed::in_order(documents(&lengths), "item", &lengths, 9).unwrap();
    assert!(whole.spec().index_of("segment").is_err() && whole.fingerprint() != cut.fingerprint());
}

#[test]
fn documents_of_equal_length_change_places_from_epoch_to_epoch() {
    let lengths: Vec<u32> = (0..300).map(|id| 5 + id % 4).collect();
    let windows = |packed: &Packed, epoch| -> Vec<Vec<u64>> {
        let of = |window| packed.pieces(epoch, window).map(|piece| piece.document).collect();
        (0..packed.len()).map(of).collect()
    };
    let packed = pack(&lengths, PackedOptions { shuffle: Some(7), ..options(32) }).unwrap();
    assert_eq!(windows(&packed, 1), windows(&packed, 1));
    let same = windows(&packed, 0).iter().zip(windows(&packed, 1)).filter(|(zero, one)| *zero == one).count();
    assert!(same <= 2, "{same} of {} windows are the same", packed.len());
    let fixed = pack(&lengths, options(32)).unwrap();
    assert_eq!(windows(&fixed, 0), windows(&fixed, 9));
    assert_ne!(fixed.fingerprint(), packed.fingerprint());
}

#[test]
fn windows_fulfil_the_contract_of_a_data_set_and_have_little_padding() {
    let random = &mut Random::from_key(5);
    let lengths: Vec<u32> = (0..2000).map(|_| 1 + random.below(200) as u32).collect();
    let packed = pack(&lengths, PackedOptions { shuffle: Some(1), ..options(512) }).unwrap();
    assert!(packed.padding_share() < 0.005, "{packed:?}");
    let report = check_dataset(&packed, &CheckOptions::default()).unwrap();
    assert!(report.is_clean(), "{report}");
    assert_eq!(feedline_core::lengths(&documents(&lengths), "item").unwrap(), lengths);
}

#[test]
fn what_cannot_be_packed_is_refused() {
    let of = |lengths: &[u32], given: &[u32], field, options| {
        Packed::new(documents(lengths), field, given, options).map(drop).unwrap_err()
    };
    for (error, part) in [
        (of(&[3], &[3], "id", options(9)), "cannot be packed"),
        (of(&[3], &[3], "item", options(0)), "windows of 0 items"),
        (of(&[3], &[3, 3], "item", options(9)), "2 lengths for 1 documents"),
        (of(&[3, 10], &[3, 10], "item", options(9)), "document 1 has 10 items, a window has 9"),
        (of(&[0, 0], &[0, 0], "item", options(9)), "nothing to pack"),
    ] {
        assert!(error.kind() == ErrorKind::Config && error.message().contains(part), "{error}");
    }
    let changed = Packed::new(documents(&[3, 4]), "item", &[3, 5], options(9)).unwrap();
    let layout = Layout::new(changed.spec(), 1).unwrap();
    let mut slab = vec![0; layout.bytes()];
    let mut rows = Rows::new(&layout, &mut slab, 1);
    let error = changed.read(0, &mut rows.row(0), &mut Context::new(0, 0)).unwrap_err();
    assert!(error.to_string().contains("document 1: it has 4 items, its length was given as 5"), "{error}");
}

#[test]
fn each_document_of_a_window_has_random_numbers_of_its_own() {
    let spec = || Spec::new().ragged("item", DType::I64, [], 2).unwrap();
    let draw = |row: &mut Row<'_, '_>, context: &mut Context| -> Result<(), ReadError> {
        let items = [(); 2].map(|()| context.random().next_u64() as i64);
        Ok(row.write_ragged(0, &items)?)
    };
    let drawn = || from_fn(12, spec(), move |_, row, context| draw(row, context));
    // What draws the numbers is below a stage of its own.
    let copied = drawn().map(spec(), |sample, row, _| Ok(row.write_ragged(0, sample.field::<i64>(0)?)?));
    let sets: [Box<dyn Dataset>; 2] = [Box::new(drawn()), Box::new(copied.unwrap())];
    for set in sets {
        let packed = Packed::new(set, "item", &[2; 12], options(8)).unwrap();
        let layout = Layout::new(packed.spec(), 3).unwrap();
        let mut slab = vec![0_u64; layout.bytes() / 8];
        let mut rows = Rows::new(&layout, bytemuck::cast_slice_mut(&mut slab), 3);
        let mut context = Context::new(0, 0).with_draws(&[5, 0, 9]);
        packed.read_many(&[0, 1, 0], &mut rows, &mut context).unwrap();
        drop(rows);
        let mut items: Vec<u64> = slab[layout.offset(0) / 8..][..24].to_vec();
        items.sort_unstable();
        items.dedup();
        assert_eq!(items.len(), 24, "two documents, or two draws of a window, have the same numbers");
    }
}
