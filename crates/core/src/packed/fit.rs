//! Assigns the pieces of documents to windows.

use std::collections::{BTreeMap, VecDeque};

/// A compact [`Piece`](super::Piece).
#[derive(Clone, Copy)]
pub(super) struct Stored {
    pub(super) document: u64,
    pub(super) start: u32,
    pub(super) len: u32,
}

/// The first items of a document of `length` items that fit in one window.
pub(super) fn keep_first(length: u32, window: usize) -> u32 {
    // A window is at most 2^31 - 1.
    length.min(window as u32)
}

/// Cuts each document into pieces of at most `window` items; none if it has no items. `first` is the number
/// of the first document.
pub(super) fn cut(lengths: impl Iterator<Item = u32>, first: u64, window: usize) -> Vec<Stored> {
    // A window is at most 2^31 - 1.
    let window = window as u32;
    let pieces = (first..).zip(lengths).flat_map(|(document, length)| {
        let starts = (0..length.div_ceil(window)).map(move |piece| piece * window);
        starts.map(move |start| Stored { document, start, len: window.min(length - start) })
    });
    pieces.collect()
}

/// Cuts the concatenated documents where a window is full.
pub(super) fn cut_in_order(lengths: impl Iterator<Item = u32>, window: usize) -> Vec<Stored> {
    let (mut pieces, mut room) = (Vec::new(), window as u32);
    for (document, length) in (0..).zip(lengths) {
        let mut start = 0;
        while start < length {
            let len = room.min(length - start);
            pieces.push(Stored { document, start, len });
            start += len;
            room -= len;
            if room == 0 {
                room = window as u32;
            }
        }
    }
    pieces
}

/// For pieces of [`cut_in_order`], the first piece of each window, and the end.
pub(super) fn window_starts(pieces: &[Stored], window: usize) -> Vec<usize> {
    let (mut starts, mut used) = (vec![0], 0);
    for (piece, end) in pieces.iter().zip(1..) {
        used += piece.len as usize;
        if used == window || end == pieces.len() {
            starts.push(end);
            used = 0;
        }
    }
    starts
}

/// Puts each piece into the fullest window that has room for it. Among equally full windows, the one that
/// became so full first is taken, as TRL does. Returns the pieces window by window, and the start of each
/// window.
pub(super) fn best_fit(pieces: &[Stored], window: usize) -> (Vec<usize>, Vec<usize>) {
    // Windows with room for more items, by that room.
    let mut open: BTreeMap<usize, VecDeque<usize>> = BTreeMap::new();
    let mut windows: Vec<Vec<usize>> = Vec::new();
    for (piece, len) in pieces.iter().map(|piece| piece.len as usize).enumerate() {
        let fullest =
            open.range_mut(len..).next().and_then(|(&room, at)| Some((room, at.pop_front()?, at.is_empty())));
        let (room, at) = match fullest {
            Some((room, at, is_last)) => {
                if is_last {
                    open.remove(&room);
                }
                (room, at)
            }
            None => {
                windows.push(Vec::new());
                (window, windows.len() - 1)
            }
        };
        windows[at].push(piece);
        if room > len {
            open.entry(room - len).or_default().push_back(at);
        }
    }
    let mut starts = vec![0];
    starts.extend(windows.iter().scan(0, |end, pieces| {
        *end += pieces.len();
        Some(*end)
    }));
    (windows.concat(), starts)
}
