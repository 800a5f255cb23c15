//! A slot that several workers fill: each row belongs to one worker, and one worker finishes the slot.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use feedline_core::{DType, ErrorKind, Layout, Spec};
use feedline_device::slots::{HeapMemory, Ring, SharedFill};

const ROWS: usize = if cfg!(miri) { 40 } else { 1000 };

fn layout() -> Arc<Layout> {
    let spec = Spec::new().field("a", DType::U16, []).unwrap().field("b", DType::U8, [3]).unwrap();
    Arc::new(Layout::new(&spec, ROWS).unwrap())
}

fn ring() -> Ring<HeapMemory> {
    Ring::new(vec![HeapMemory::new(layout().bytes()).unwrap()])
}

#[test]
fn workers_fill_all_rows_between_them_and_one_of_them_finishes() {
    for count in [1, 3, 7, ROWS, ROWS + 1] {
        let (ring, layout) = (ring(), layout());
        let fill = SharedFill::new(ring.acquire().unwrap(), layout.clone(), ROWS).unwrap();
        let (finished, rows) = (AtomicUsize::new(0), AtomicUsize::new(0));
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    while let Some(mut claim) = fill.claim(count) {
                        let range = claim.range();
                        rows.fetch_add(range.len(), Ordering::Relaxed);
                        let mut open = claim.rows();
                        assert_eq!((open.first(), open.len()), (range.start, range.len()));
                        let numbers = range.clone().flat_map(|row| (row as u16).to_le_bytes());
                        open.column_mut(0).iter_mut().zip(numbers).for_each(|(byte, number)| *byte = number);
                        open.column_mut(1).fill(range.start as u8);
                        drop(open);
                        finished.fetch_add(usize::from(claim.finish()), Ordering::Relaxed);
                    }
                });
            }
        });
        assert_eq!((finished.into_inner(), rows.into_inner()), (1, ROWS), "{count} rows at a time");
        let ready = fill.into_lease().ready();
        let bytes = ready.bytes();
        for row in 0..ROWS {
            assert_eq!(bytes[layout.offset(0) + 2 * row..][..2], (row as u16).to_le_bytes(), "row {row}");
            assert_eq!(
                bytes[layout.offset(1) + 3 * row..][..3],
                [(row / count * count) as u8; 3],
                "row {row}"
            );
        }
    }
}

#[test]
fn rows_that_are_given_up_count_as_finished_once() {
    let ring = ring();
    let fill = SharedFill::new(ring.acquire().unwrap(), layout(), 10).unwrap();
    let (first, second) = (fill.claim(3).unwrap(), fill.claim(3).unwrap());
    assert!(!first.finish());
    assert!(!fill.give_up() && !fill.give_up(), "a claim is left");
    assert!(fill.claim(1).is_none() && fill.is_claimed());
    assert!(second.finish(), "the last of all rows");

    let fill = SharedFill::new(fill.into_lease(), layout(), 10).unwrap();
    assert!(fill.give_up(), "all of them at once");
}

#[test]
fn claims_of_any_size_end_with_the_last_row() {
    for count in [usize::MAX, 1 << 63, 0] {
        let ring = ring();
        let fill = SharedFill::new(ring.acquire().unwrap(), layout(), ROWS).unwrap();
        let barrier = std::sync::Barrier::new(4);
        let claim = || {
            barrier.wait();
            (0..3).filter_map(|_| fill.claim(count)).map(|claim| claim.range().len()).sum::<usize>()
        };
        let claimed: usize = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..4).map(|_| scope.spawn(claim)).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).sum()
        });
        assert_eq!(claimed, if count == 0 { 0 } else { ROWS }, "{count} rows at a time");
    }
}

/// A ragged field has no column of rows: the place of a row's values depends on the lengths of all rows
/// before it.
#[test]
fn rows_of_a_ragged_field_cannot_be_shared() {
    let spec = Spec::new().ragged("text", DType::U8, [], 1000).unwrap();
    let layout = Arc::new(Layout::new(&spec.max_per_batch("text", 1000).unwrap(), ROWS).unwrap());
    let ring = Ring::<HeapMemory>::new(vec![HeapMemory::new(layout.bytes()).unwrap()]);
    let error = SharedFill::new(ring.acquire().unwrap(), layout, ROWS).unwrap_err();
    assert_eq!((error.kind(), ring.counts().free), (ErrorKind::Config, 1));
    assert!(error.message().contains("ragged"), "{error}");
}

#[test]
fn a_slot_that_is_too_small_is_refused_and_released() {
    let ring = Ring::<HeapMemory>::new(vec![HeapMemory::new(layout().bytes() - 1).unwrap()]);
    let error = SharedFill::new(ring.acquire().unwrap(), layout(), ROWS).unwrap_err();
    assert_eq!((error.kind(), ring.counts().free), (ErrorKind::Config, 1));
    let ring = self::ring();
    let error = SharedFill::new(ring.acquire().unwrap(), layout(), ROWS + 1).unwrap_err();
    assert_eq!((error.kind(), ring.counts().free), (ErrorKind::Config, 1));
}
