//! Copies rows into a slot. On x86-64, long rows are written by non-temporal stores, and shorter rows are
//! copied with prefetching. Other processors use plain stores.
//!
//! Arm's processors detect long runs of stores and then write past the caches by themselves (write streaming
//! mode). So there a plain copy serves for both. This was not measured, because no Arm machine was at hand.

/// Rows of at least this many bytes are written by non-temporal stores.
///
/// Measured on a Sapphire Rapids: rows at random addresses, batches of 256, one and two threads. Compared
/// with plain stores, non-temporal stores are a sixth to a third faster from 16 KiB, equal at 8 KiB, and a
/// tenth slower at 3 KiB.
const STREAMED: usize = 16 << 10;

/// How many rows ahead of the current one to prefetch.
const AHEAD: usize = 4;

/// How many bytes of a row to prefetch. The hardware prefetcher continues from there, and needs no help with
/// shorter rows. Measured as above, rows of 3 KiB are a sixth faster, and rows of 784 bytes up to a
/// twentieth.
const PREFETCHED: usize = 512;

/// Copies `rows` into `to`, one after the other, by plain stores.
///
/// Each row at a random address is a cache miss, so the start of later rows is prefetched.
///
/// ```
/// let mut to = [0; 6];
/// feedline_device::slots::copy_rows(&mut to, &[b"one", b"two"]);
/// assert_eq!(&to, b"onetwo");
/// ```
///
/// # Panics
/// If the rows together are not exactly as long as `to`.
pub fn copy_rows(to: &mut [u8], rows: &[&[u8]]) {
    copy(to, rows, usize::MAX);
}

/// Like [`copy_rows`], but writes long rows past the caches. Use it when few threads copy, and batches wait
/// for these threads.
///
/// A plain store first reads the cache line that it writes, and evicts lines that are still needed. The host
/// does not read a long row again, so the row is written by the widest non-temporal stores of the processor.
/// The call fences these stores before it returns. So the bytes may be handed to another thread or to the
/// device, as after plain stores.
///
/// With many threads, memory bandwidth is the limit and this function is slower: the device then reads the
/// bytes from memory instead of the last-level cache.
///
/// ```
/// let mut to = [0; 6];
/// feedline_device::slots::stream_rows(&mut to, &[b"one", b"two"]);
/// assert_eq!(&to, b"onetwo");
/// ```
///
/// # Panics
/// If the rows together are not exactly as long as `to`.
pub fn stream_rows(to: &mut [u8], rows: &[&[u8]]) {
    copy(to, rows, STREAMED);
}

/// Copies `rows`. Rows of at least `streamed` bytes are written past the caches.
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
    assert!(rest.is_empty(), "the destination is {} bytes longer than the rows", rest.len());
}

/// The store instructions for long rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stores {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    Avx512,
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    Avx,
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    Sse2,
    /// Plain stores, on other processors.
    #[cfg_attr(all(target_arch = "x86_64", not(miri)), allow(dead_code))]
    Plain,
}

#[cfg(all(target_arch = "x86_64", not(miri)))]
impl Stores {
    /// The widest stores of this processor. The standard library caches the detection.
    fn best() -> Self {
        [Self::Avx512, Self::Avx].into_iter().find(|stores| stores.is_supported()).unwrap_or(Self::Sse2)
    }

    fn is_supported(self) -> bool {
        match self {
            Self::Avx512 => is_x86_feature_detected!("avx512f"),
            Self::Avx => is_x86_feature_detected!("avx"),
            Self::Sse2 | Self::Plain => true,
        }
    }

    /// Copies `from` into `to`, which has the same length. All bytes are visible to every thread when this
    /// returns.
    fn copy(self, to: &mut [u8], from: &[u8]) {
        assert_eq!(to.len(), from.len(), "source and destination must have the same length");
        assert!(self.is_supported(), "{self:?} stores need a processor that supports them");
        match self {
            // SAFETY: the processor has AVX-512F: asserted above.
            Self::Avx512 => unsafe { x86::copy_512(to, from) },
            // SAFETY: the processor has AVX: asserted above.
            Self::Avx => unsafe { x86::copy_256(to, from) },
            // SAFETY: every x86-64 processor has SSE2.
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
    fn is_supported(self) -> bool {
        true
    }

    fn copy(self, to: &mut [u8], from: &[u8]) {
        to.copy_from_slice(from);
    }
}

/// Prefetches `bytes` into the caches.
#[cfg(all(target_arch = "x86_64", not(miri)))]
fn prefetch(bytes: &[u8]) {
    for line in bytes.chunks(64) {
        // SAFETY: a prefetch is a hint; it accesses nothing, whatever the address.
        unsafe { std::arch::x86_64::_mm_prefetch::<{ std::arch::x86_64::_MM_HINT_T0 }>(line.as_ptr().cast()) }
    }
}

/// Does nothing, because the hardware prefetcher needs no help here.
#[cfg(not(all(target_arch = "x86_64", not(miri))))]
fn prefetch(_: &[u8]) {}

#[cfg(all(target_arch = "x86_64", not(miri)))]
mod x86 {
    use std::arch::x86_64::*;

    /// Copies aligned vectors by non-temporal stores, and the unaligned start and end by plain stores.
    macro_rules! copy {
        ($feature:literal, $name:ident, $vector:ty, $load:ident, $store:ident) => {
            #[target_feature(enable = $feature)]
            pub(super) fn $name(to: &mut [u8], from: &[u8]) {
                // SAFETY: any bytes are a valid vector, and any vector is valid bytes.
                let (start, body, end) = unsafe { to.align_to_mut::<$vector>() };
                let (from_start, rest) = from.split_at(start.len());
                let (from_body, from_end) = rest.split_at(size_of_val(body));
                for (to, from) in body.iter_mut().zip(from_body.chunks_exact(size_of::<$vector>())) {
                    // SAFETY: `from` is as long as a vector (`chunks_exact`); an unaligned load needs no
                    // alignment.
                    let vector = unsafe { $load(from.as_ptr().cast()) };
                    // SAFETY: `to` is an aligned vector, mutably borrowed until this function returns, so
                    // nothing else touches it before the fence below; nothing between here and the fence
                    // panics.
                    unsafe { $store(std::ptr::from_mut(to).cast(), vector) };
                }
                start.copy_from_slice(from_start);
                end.copy_from_slice(from_end);
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

    /// All stores that this processor supports, widest first.
    fn supported() -> Vec<Stores> {
        #[cfg(all(target_arch = "x86_64", not(miri)))]
        let all = [Stores::Avx512, Stores::Avx, Stores::Sse2, Stores::Plain];
        #[cfg(not(all(target_arch = "x86_64", not(miri))))]
        let all = [Stores::Plain];
        all.into_iter().filter(|stores| stores.is_supported()).collect()
    }

    /// Pseudorandom bytes.
    fn bytes(len: usize) -> Vec<u8> {
        (0..len as u64).map(|at| (at.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 56) as u8).collect()
    }

    /// Copies `len` bytes and checks them and the bytes around them. `to` and `from` are offsets from 64-byte
    /// alignment.
    #[track_caller]
    fn check(stores: Stores, len: usize, to: usize, from: usize) {
        const CANARY: u8 = 0xC5;
        let mut buffer = vec![CANARY; len + 256];
        let start = buffer.as_ptr().align_offset(64).min(64) + to;
        let source = bytes(len + 128);
        let source = &source[source.as_ptr().align_offset(64).min(64) + from..][..len];
        stores.copy(&mut buffer[start..start + len], source);
        assert_eq!(&buffer[start..start + len], source, "{stores:?}: {len} bytes to {to} from {from}");
        let outside = buffer[..start].iter().chain(&buffer[start + len..]);
        assert!(
            outside.clone().all(|&byte| byte == CANARY),
            "{stores:?}: {len} bytes to {to}: wrote outside"
        );
    }

    #[test]
    fn copies_every_length_and_alignment_and_writes_nothing_outside() {
        let (lens, offsets) = if cfg!(miri) { (0..20, 0..2) } else { (0..300, 0..64) };
        let long: &[usize] = if cfg!(miri) { &[4095] } else { &[4095, 4096, 16_385, 150_528, 1 << 20] };
        for stores in supported() {
            for len in lens.clone() {
                for offset in offsets.clone() {
                    check(stores, len, offset, (offset * 7 + len) % 64);
                }
            }
            for &len in long {
                for offset in [0, 1, 16, 33, 63] {
                    check(stores, len, offset, 64 - offset.max(1));
                }
            }
        }
    }

    #[test]
    fn best_is_the_widest_supported() {
        assert_eq!(Some(&Stores::best()), supported().first());
    }

    #[test]
    #[should_panic(expected = "the destination is 1 bytes longer than the rows")]
    fn a_destination_longer_than_the_rows_panics() {
        stream_rows(&mut [0; 3], &[&[1, 2]]);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 1 } else { 256 }))]

        #[test]
        fn rows_of_any_lengths_are_copied_in_order(
            lens in prop::collection::vec(
                prop_oneof![8 => 0..2000usize, 1 => STREAMED - 2..STREAMED + 300],
                0..12,
            ),
            start in 0..64usize,
        ) {
            let source = bytes(lens.iter().sum());
            let mut rest = &source[..];
            let rows: Vec<&[u8]> =
                lens.iter().map(|&len| rest.split_off(..len).unwrap_or_default()).collect();
            for copy in [copy_rows, stream_rows] {
                let mut to = vec![0xC5; source.len() + 128];
                copy(&mut to[start..start + source.len()], &rows);
                prop_assert_eq!(&to[start..start + source.len()], &source[..]);
                prop_assert!(to[..start].iter().chain(&to[start + source.len()..]).all(|&byte| byte == 0xC5));
            }
        }
    }
}
