//! Rows copied into a slot: long ones past the caches, short ones with those to come asked for ahead.

/// Rows of at least as many bytes go past the caches. Measured on a Sapphire Rapids, rows at random places, batches of 256, one
/// thread and two: from 16 KiB on a sixth to a third faster than by plain stores, at 8 KiB the same, at 3 KiB slower by a tenth.
const STREAMED: usize = 16 << 10;

/// How many rows ahead of the one that is copied another is asked for.
const AHEAD: usize = 4;

/// Bytes of it: the processor sees by itself that the rest follows. And of shorter rows it has several under way by itself.
/// Measured as above: rows of 3 KiB a sixth faster, of 784 bytes by nothing to a twentieth.
const PREFETCHED: usize = 512;

/// Copies `rows` into `to`, one after the other, by plain stores.
///
/// Rows at random places wait for memory each, so the beginning of those that come next is asked for meanwhile.
///
/// ```
/// let mut to = [0; 6];
/// feedline_slots::copy_rows(&mut to, &[b"one", b"two"]);
/// assert_eq!(&to, b"onetwo");
/// ```
///
/// # Panics
/// When the rows are not exactly as long as `to`.
pub fn copy_rows(to: &mut [u8], rows: &[&[u8]]) {
    copy(to, rows, usize::MAX);
}

/// The same, with long rows past the caches: for few threads, whose copies are what a batch waits for.
///
/// A plain store reads the line it writes, and keeps it in the caches, from which it drives what will be read. Nobody reads a
/// long row here again before the device does. So it is written by non-temporal stores, the widest this processor has, and
/// the call fences them before it returns: what was written may be handed to another thread, and to the device, as if by
/// plain stores. Where memory itself is what many threads wait for, this is the slower way: the device then reads from
/// memory what it would have found in the last cache.
///
/// ```
/// let mut to = [0; 6];
/// feedline_slots::stream_rows(&mut to, &[b"one", b"two"]);
/// assert_eq!(&to, b"onetwo");
/// ```
///
/// # Panics
/// When the rows are not exactly as long as `to`.
pub fn stream_rows(to: &mut [u8], rows: &[&[u8]]) {
    copy(to, rows, STREAMED);
}

/// Rows of `streamed` bytes and more go past the caches.
fn copy(to: &mut [u8], rows: &[&[u8]], streamed: usize) {
    let mut rest = to;
    for (index, &row) in rows.iter().enumerate() {
        let (place, after) = std::mem::take(&mut rest).split_at_mut(row.len());
        if row.len() < streamed {
            match rows.get(index + AHEAD) {
                Some(next) if next.len() >= PREFETCHED => prefetch(&next[..PREFETCHED]),
                _ => {}
            }
            place.copy_from_slice(row);
        } else {
            Stores::best().copy(place, row);
        }
        rest = after;
    }
    assert!(rest.is_empty(), "{} bytes more than the rows have", rest.len());
}

/// What a long row is written by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stores {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    Avx512,
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    Avx,
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    Sse2,
    /// Ordinary stores, where there are no others.
    #[cfg_attr(all(target_arch = "x86_64", not(miri)), allow(dead_code))]
    Plain,
}

#[cfg(all(target_arch = "x86_64", not(miri)))]
impl Stores {
    /// The widest this processor has; it is asked once.
    fn best() -> Self {
        [Self::Avx512, Self::Avx].into_iter().find(|stores| stores.are_there()).unwrap_or(Self::Sse2)
    }

    fn are_there(self) -> bool {
        match self {
            Self::Avx512 => is_x86_feature_detected!("avx512f"),
            Self::Avx => is_x86_feature_detected!("avx"),
            Self::Sse2 | Self::Plain => true,
        }
    }

    /// Copies `from` into `to`, which is as long; every byte is there, for everybody, when this returns.
    fn copy(self, to: &mut [u8], from: &[u8]) {
        assert_eq!(to.len(), from.len(), "as many bytes as there is room for");
        assert!(self.are_there(), "{self:?} on a processor that has them");
        match self {
            // SAFETY: the processor has what the function needs: asked above.
            Self::Avx512 => unsafe { x86::copy_512(to, from) },
            // SAFETY: as above.
            Self::Avx => unsafe { x86::copy_256(to, from) },
            // SAFETY: every x86-64 has it.
            Self::Sse2 => unsafe { x86::copy_128(to, from) },
            Self::Plain => to.copy_from_slice(from),
        }
    }
}

#[cfg(not(all(target_arch = "x86_64", not(miri))))]
impl Stores {
    fn best() -> Self {
        Self::Plain
    }

    #[cfg(test)]
    fn are_there(self) -> bool {
        true
    }

    fn copy(self, to: &mut [u8], from: &[u8]) {
        to.copy_from_slice(from);
    }
}

/// Asks memory for `bytes`.
#[cfg(all(target_arch = "x86_64", not(miri)))]
fn prefetch(bytes: &[u8]) {
    for line in bytes.chunks(64) {
        // SAFETY: a hint; it touches nothing, whatever the address.
        unsafe { std::arch::x86_64::_mm_prefetch::<{ std::arch::x86_64::_MM_HINT_T0 }>(line.as_ptr().cast()) }
    }
}

#[cfg(not(all(target_arch = "x86_64", not(miri))))]
fn prefetch(_: &[u8]) {}

#[cfg(all(target_arch = "x86_64", not(miri)))]
mod x86 {
    use std::arch::x86_64::*;

    /// Copies by non-temporal stores of whole, aligned vectors; what is before the first and behind the last by plain ones.
    macro_rules! copy {
        ($feature:literal, $name:ident, $vector:ty, $load:ident, $store:ident) => {
            #[target_feature(enable = $feature)]
            pub(super) fn $name(to: &mut [u8], from: &[u8]) {
                // SAFETY: any bytes are a vector, and any vector is bytes.
                let (head, body, last_batch) = unsafe { to.align_to_mut::<$vector>() };
                let (from_head, rest) = from.split_at(head.len());
                let (from_body, from_tail) = rest.split_at(size_of_val(body));
                for (to, from) in body.iter_mut().zip(from_body.chunks_exact(size_of::<$vector>())) {
                    // SAFETY: `from` is as long as a vector; it need not be aligned.
                    let vector = unsafe { $load(from.as_ptr().cast()) };
                    // SAFETY: `to` is an aligned vector that is ours to write. Nobody touches it before the fence below: it is
                    // borrowed until this returns, and nothing on the way there panics.
                    unsafe { $store(std::ptr::from_mut(to).cast(), vector) };
                }
                head.copy_from_slice(from_head);
                last_batch.copy_from_slice(from_tail);
                _mm_sfence();
            }
        };
    }

    copy!("avx512f", copy_512, __m512i, _mm512_loadu_si512, _mm512_stream_si512);
    copy!("avx", copy_256, __m256i, _mm256_loadu_si256, _mm256_stream_si256);
    copy!("sse2", copy_128, __m128i, _mm_loadu_si128, _mm_stream_si128);
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// All ways of this processor.
    fn ways() -> Vec<Stores> {
        #[cfg(all(target_arch = "x86_64", not(miri)))]
        let ways = [Stores::Avx512, Stores::Avx, Stores::Sse2, Stores::Plain];
        #[cfg(not(all(target_arch = "x86_64", not(miri))))]
        let ways = [Stores::Plain];
        ways.into_iter().filter(|way| way.are_there()).collect()
    }

    /// Bytes that differ from place to place.
    fn bytes(len: usize) -> Vec<u8> {
        (0..len as u64).map(|at| (at.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 56) as u8).collect()
    }

    /// Copies `len` bytes to `to` bytes behind an aligned place, from `from` behind one, and looks at all around.
    #[track_caller]
    fn check(way: Stores, len: usize, to: usize, from: usize) {
        const CANARY: u8 = 0xC5;
        let mut room = vec![CANARY; len + 256];
        let start = room.as_ptr().align_offset(64).min(64) + to;
        let source = bytes(len + 128);
        let source = &source[source.as_ptr().align_offset(64).min(64) + from..][..len];
        way.copy(&mut room[start..start + len], source);
        assert_eq!(&room[start..start + len], source, "{way:?}: {len} bytes to {to} from {from}");
        let outside = room[..start].iter().chain(&room[start + len..]);
        assert!(outside.clone().all(|&byte| byte == CANARY), "{way:?}: {len} bytes to {to}: written outside");
    }

    #[test]
    fn every_length_and_alignment_is_copied_and_nothing_beside_it() {
        let (lens, places) = if cfg!(miri) { (0..40, 0..3) } else { (0..300, 0..64) };
        for way in ways() {
            for len in lens.clone() {
                for place in places.clone() {
                    check(way, len, place, (place * 7 + len) % 64);
                }
            }
            for len in [4095, 4096, 16_385, 150_528, if cfg!(miri) { 0 } else { 1 << 20 }] {
                for place in [0, 1, 16, 33, 63] {
                    check(way, len, place, 64 - place.max(1));
                }
            }
        }
    }

    #[test]
    fn the_widest_stores_are_taken() {
        assert_eq!(Some(&Stores::best()), ways().first());
    }

    #[test]
    #[should_panic(expected = "1 bytes more than the rows have")]
    fn room_that_the_rows_do_not_fill_is_refused() {
        stream_rows(&mut [0; 3], &[&[1, 2]]);
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: if cfg!(miri) { 4 } else { 256 }, ..ProptestConfig::default() })]

        #[test]
        fn rows_of_any_lengths_come_one_after_the_other(
            lens in prop::collection::vec(prop_oneof![8 => 0..2000usize, 1 => STREAMED - 2..STREAMED + 300], 0..12),
            start in 0..64usize,
        ) {
            let source = bytes(lens.iter().sum());
            let mut rest = &source[..];
            let rows: Vec<&[u8]> = lens.iter().map(|&len| rest.split_off(..len).unwrap_or_default()).collect();
            for copy in [copy_rows, stream_rows] {
                let mut to = vec![0xC5; source.len() + 128];
                copy(&mut to[start..start + source.len()], &rows);
                prop_assert_eq!(&to[start..start + source.len()], &source[..]);
                prop_assert!(to[..start].iter().chain(&to[start + source.len()..]).all(|&byte| byte == 0xC5));
            }
        }
    }
}
