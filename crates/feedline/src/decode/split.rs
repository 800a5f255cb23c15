//! When a batch is split, and a batch whose rows several workers decode.

use std::ops::RangeInclusive;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError, RwLock};
use std::time::Duration;

use feedline_core::{Error, Result, Substituted, Timeline, timeline::now};
use feedline_device::Pinned;
use feedline_device::slots::{SharedFill, WAKE_UP};

use super::decoder::Decoder;
use super::rows::Reader;
use super::worker::Worker;
use crate::job::{Delivery, HostInfo, Job};

/// A batch that takes one worker less time than this is decoded by that worker alone; a longer one is split.
/// A piece must take much longer than a [`WAKE_UP`].
///
/// Machine: 16 cores of a Xeon beside an H200, 2026-11-21. Bench: `tiny`, `gather`.
const PIECE: Duration = WAKE_UP.saturating_mul(5);

/// A batch that takes one worker less time than this, and that a cache can hold ([`CACHED`]), is split only
/// for workers that have nothing else to do.
///
/// Two workers that write one slot move its lines between the caches of their cores. Batches of 256 rows of
/// 784 bytes to an H200 by four workers took 190 us of their time each when all four shared every batch, and
/// 95 us when one worker decoded them all. Batches of 3.2 MB by twelve workers are a quarter faster when all
/// are split. 2026-11-24. Bench: `readers`, `tiny`.
pub(super) const LONG: Duration = WAKE_UP.saturating_mul(50);

/// The sizes of batches for which workers have slots of their own. Smaller ones cost less than their
/// hand-over; larger ones do not stay in the cache of a core.
///
/// Machine: 16 cores of a Xeon beside an H200, 2026-11-24. Bench: `tiny` (100 and 400 KB), `readers` (200
/// KB).
pub(crate) const CACHED: RangeInclusive<usize> = 64 << 10..=1 << 20;

/// The shortest piece of a batch that is split.
///
/// A batch of half a millisecond in pieces of a tenth would keep five of sixteen workers busy, and the
/// others would wait for the last of them. Machine and date as above. Bench: `gather` at 15 workers.
const SHORT_PIECE: Duration = Duration::from_micros(25);

/// A batch whose rows several workers decode, in pieces.
pub(crate) struct Split {
    number: u64,
    /// The slot. The worker that finishes the last piece takes it out.
    fill: RwLock<Option<SharedFill<Pinned, HostInfo>>>,
    piece_rows: usize,
    busy_ns: AtomicU64,
    /// The part of `busy_ns` in which other processes read samples.
    elsewhere_ns: AtomicU64,
    substituted: Mutex<Vec<Substituted>>,
    /// The first row of the first piece that failed, and why.
    error: Mutex<Option<(usize, Error)>>,
}

impl Split {
    /// Splits the batch of `job` into pieces of `piece_rows` rows.
    pub(super) fn new(job: Job, decoder: &Decoder, piece_rows: usize) -> Result<Self> {
        let Job { timeline: Timeline { number, .. }, mut lease, .. } = job;
        let info = &mut lease.info_mut().batch;
        let (rows, substituted) = (info.ids.len(), std::mem::take(&mut info.substituted));
        Ok(Self {
            number,
            fill: RwLock::new(Some(SharedFill::new(lease, decoder.layout.clone(), rows)?)),
            piece_rows,
            busy_ns: AtomicU64::new(0),
            elsewhere_ns: AtomicU64::new(0),
            substituted: Mutex::new(substituted),
            error: Mutex::new(None),
        })
    }

    /// Decodes pieces until none is left.
    pub(super) fn join(&self, decoder: &Decoder, worker: &Worker<'_>) {
        decoder.hand_in(self.number, || self.decode(decoder, worker));
    }

    /// As [`join`](Self::join). The worker that finishes the last piece gets the outcome of the batch.
    pub(super) fn decode(&self, decoder: &Decoder, worker: &Worker<'_>) -> Result<Option<Delivery>> {
        if !self.decode_pieces(decoder, worker)? {
            return Ok(None);
        }
        // Only the worker that finishes the last piece reaches this line; the others have no piece left.
        let Some(fill) = self.fill.write().unwrap_or_else(PoisonError::into_inner).take() else {
            return Ok(None);
        };
        let busy = self.busy_ns.load(Ordering::Relaxed);
        let elsewhere = self.elsewhere_ns.load(Ordering::Relaxed);
        decoder.set_row_ns(piece_time(busy, elsewhere), fill.info().batch.ids.len());
        if let Some((_, error)) = self.error.lock().unwrap_or_else(PoisonError::into_inner).take() {
            return Err(error);
        }
        let substituted =
            std::mem::take(&mut *self.substituted.lock().unwrap_or_else(PoisonError::into_inner));
        decoder.finish(fill.into_lease(), substituted, busy, worker)
    }

    /// Decodes pieces until none is left; returns whether that finished the batch.
    fn decode_pieces(&self, decoder: &Decoder, worker: &Worker<'_>) -> Result<bool> {
        let fill = self.fill.read().unwrap_or_else(PoisonError::into_inner);
        let Some(fill) = &*fill else { return Ok(false) };
        let host_info = fill.info();
        let reader = Reader { decoder, input: decoder.input()?, host_info, substituted: &self.substituted };
        let (mut is_finished, mut pieces) = (false, None::<(u64, u64)>);
        while let Some(mut piece) = fill.claim(self.piece_rows) {
            let first = piece.range().start;
            let start = now();
            if decoder.requests.wants(&host_info.batch) {
                match reader.read_piece(decoder.to_write(piece.rows()), worker) {
                    Ok(elsewhere) => {
                        self.elsewhere_ns.fetch_add(elsewhere, Ordering::Relaxed);
                    }
                    Err(error) => {
                        decoder.requests.set_failed(self.number);
                        self.fail(first, error);
                        // Pieces are claimed in order: earlier rows are read or being read by another worker.
                        // Later rows are given up.
                        is_finished |= fill.give_up();
                    }
                }
            }
            let end = now();
            self.busy_ns.fetch_add(end - start, Ordering::Relaxed);
            worker.set_idle_since(end);
            pieces = Some((pieces.map_or(start, |(first, _)| first), end));
            is_finished |= piece.finish();
        }
        if let Some(times) = pieces {
            decoder.record(worker, "decode", &host_info.batch, times);
        }
        Ok(is_finished)
    }

    /// Keeps the error of the first failed row, so that the same data gives the same error.
    fn fail(&self, first: usize, error: Error) {
        let mut earliest = self.error.lock().unwrap_or_else(PoisonError::into_inner);
        if earliest.as_ref().is_none_or(|(row, _)| first < *row) {
            *earliest = Some((first, error));
        }
    }
}

/// The decode time from which the size of pieces is computed, if the workers were `busy` nanoseconds and
/// other processes read for `elsewhere` of them.
///
/// A piece that another process or Python code reads is a hundred times as long, 10 ms: its hand-over takes
/// 0.1 ms (a message, two wake-ups and a check of the generators, or the interpreter's lock), and on a busy
/// machine a wake-up takes milliseconds. The time of the whole read cannot be used here: it includes this
/// waiting, so pieces would become shorter and shorter.
pub(super) fn piece_time(busy: u64, elsewhere: u64) -> u64 {
    if elsewhere == 0 { busy } else { (elsewhere / 100).max(1) }
}

/// The number of workers for a batch that takes one of them `time` and has `bytes` bytes. `unused` counts the
/// workers that have nothing else to do.
pub(super) fn workers_for(
    (time, bytes): (Duration, usize),
    unused: impl FnOnce() -> usize,
    all: usize,
) -> usize {
    match time {
        _ if time <= PIECE => 1,
        _ if time < LONG && bytes <= *CACHED.end() => 1 + unused(),
        _ => all,
    }
}

/// Rows per piece if a row takes `row_ns` and there are `workers`.
pub fn piece_rows(rows: usize, row_ns: u64, workers: usize) -> usize {
    if row_ns == 0 {
        // No time is known before the first batch.
        return rows.div_ceil(4 * workers).max(1);
    }
    let batch = Duration::from_nanos(row_ns.saturating_mul(rows as u64));
    let piece = if batch > PIECE { (batch / workers as u32).clamp(SHORT_PIECE, PIECE) } else { PIECE };
    (piece.as_nanos() as u64 / row_ns).clamp(1, rows.max(1) as u64) as usize
}

#[cfg(test)]
mod tests {
    use super::{Duration, piece_rows, piece_time, workers_for};

    #[test]
    fn pieces_that_another_process_reads_are_a_hundred_times_as_long_and_do_not_depend_on_the_wait() {
        let rows = |busy, elsewhere| piece_rows(128, piece_time(busy, elsewhere) / 128, 1);
        assert_eq!([rows(128 * 100_000, 0), rows(128 * 100_000, 128 * 100_000)], [1, 100]);
        assert_eq!(rows(128 * 10_000_000, 128 * 100_000), 100, "most of it was waiting");
    }

    #[test]
    fn a_batch_that_a_cache_holds_is_split_for_unused_workers_and_a_long_or_large_one_for_all() {
        for (us, kib, unused, workers) in [
            (100, 200, 3, 1),
            (100, 3000, 3, 1),
            (101, 200, 3, 4),
            (999, 1024, 0, 1),
            (999, 1025, 0, 12),
            (1000, 200, 0, 12),
        ] {
            let batch = (Duration::from_micros(us), kib << 10);
            assert_eq!(workers_for(batch, || unused, 12), workers, "{us} us, {kib} KiB, {unused} unused");
        }
    }

    #[test]
    fn a_piece_is_neither_too_long_nor_too_short() {
        // 4096 rows of 200 ns are 820 us.
        for (workers, rows) in [(1, 500), (2, 500), (10, 409), (16, 256), (64, 125)] {
            assert_eq!(piece_rows(4096, 200, workers), rows, "{workers} workers");
        }
        // A batch of 100 us or less is not split, a longer one is.
        assert_eq!([piece_rows(500, 200, 16), piece_rows(501, 200, 16)], [500, 125]);
        let odd = [piece_rows(0, 200, 16), piece_rows(3, u64::MAX, 16), piece_rows(8, 1 << 40, 1)];
        assert_eq!(odd, [1; 3]);
        assert_eq!(piece_rows(4096, 0, 16), 64, "before the first batch");
    }
}
