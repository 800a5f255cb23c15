// gather: copies the rows of all fields of a batch, selected by id: to[places[v]] = src[ids[v]], in rows of
// bytes. One launch per batch.
//
// An id outside the source (id >= rows of the field) writes zeros and reads nothing. A place outside the
// batch (place >= rows of the batch) writes nothing. No byte outside a row is read.
//
// The ids are in host memory, where a read takes more than a microsecond, or in device memory.
//
// gather_fields reads rows of host memory that is mapped into the device. 8 blocks of 512 threads saturate a
// PCIe 5.0 x16 link as well as 16 do, and leave the other multiprocessors to the compute stream.
//
// - Visit order. The host orders the visits as the rows lie in the source, if that pays. Reads in flight at
//   the same time should be close together, since the address of a page is then looked up once. So the warps
//   take visits round-robin, in pieces of up to 8. A warp reads the ids of up to 32 visits in one load and
//   distributes them by shuffles.
// - Lanes per row. A whole warp copies a long row, or several warps if there are fewer rows than warps. 8
//   lanes or one lane copy a short row, so that many rows are in flight.
// - Overlap. A warp copies the long rows of a visit one after the other. If they overlap, as tokens and their
//   targets do, the second comes from the cache.
//
// gather_resident reads rows of device memory. The host cuts long rows into parts, and one warp, 8 lanes or
// one lane copy a part: each finds its own id, and waits for no other. So a small batch takes as long as two
// reads, one behind the other, and a batch of any width has all multiprocessors. gather_resident_few has the
// ids among its parameters.
//
// Word size. gather_fields copies rows of whole 16-byte words, all 16-byte aligned, as one run with several
// loads in flight per lane. Rows with the same offset within a 16-byte word as their target, and long rows,
// use 16-byte loads, four in flight per lane. All others use aligned 4-byte loads, shifted into place.

typedef unsigned char u8;
typedef unsigned int u32;
typedef unsigned long long u64;

// Visit v copies a row from src + ids[v] * stride to to + places[v] * row_bytes.
struct GatherField {
    const u8* src;
    u64 stride;
    u64 rows;
    u8* to;
    u64 row_bytes;
};

struct GatherFields {
    GatherField at[16];
};

// Copies words of type W with LANES lanes, four loads in flight per lane. Both pointers are aligned to W.
template <u32 LANES, typename W>
static __device__ __forceinline__ void gather_words(const W* src, W* dst, u64 words, u32 lane) {
#pragma unroll 1
    for (u64 i = lane; i < words; i += 4 * LANES) {
        W four[4];
#pragma unroll
        for (u32 j = 0; j < 4; ++j)
            if (i + LANES * j < words) four[j] = src[i + LANES * j];
#pragma unroll
        for (u32 j = 0; j < 4; ++j)
            if (i + LANES * j < words) dst[i + LANES * j] = four[j];
    }
}

// Copies 4-byte words to an aligned dst from an unaligned src. Each word is assembled from the two
// aligned words around it; the caller ensures that both lie within the row.
template <u32 LANES>
static __device__ __forceinline__ void gather_shifted(const u8* src, u32* dst, u64 words, u32 lane) {
    const u32 shift = 8 * (u32)((u64)src & 3);
    const u32* from = (const u32*)((u64)src & ~3ull);
#pragma unroll 1
    for (u64 i = lane; i < words; i += 4 * LANES) {
        u32 low[4], high[4];
#pragma unroll
        for (u32 j = 0; j < 4; ++j) {
            if (i + LANES * j < words) {
                low[j] = from[i + LANES * j];
                high[j] = from[i + LANES * j + 1];
            }
        }
#pragma unroll
        for (u32 j = 0; j < 4; ++j)
            if (i + LANES * j < words) dst[i + LANES * j] = __funnelshift_r(low[j], high[j], shift);
    }
}

// The 16 bytes at byte `shift` of two words in a row; `shift` is less than 16.
static __device__ __forceinline__ uint4 gather_between(const uint4& low, const uint4& high, u32 shift) {
    u32 x[7] = {low.x, low.y, low.z, low.w, high.x, high.y, high.z};
    u32 last = high.w;
    if (shift & 8) {
#pragma unroll
        for (u32 t = 0; t < 5; ++t) x[t] = x[t + 2];
        x[5] = last;
    }
    if (shift & 4) {
#pragma unroll
        for (u32 t = 0; t < 5; ++t) x[t] = x[t + 1];
    }
    const u32 bits = 8 * (shift & 3);
    return make_uint4(__funnelshift_r(x[0], x[1], bits), __funnelshift_r(x[1], x[2], bits),
                      __funnelshift_r(x[2], x[3], bits), __funnelshift_r(x[3], x[4], bits));
}

static __device__ __forceinline__ uint4 gather_from_lane(const uint4& word, u32 lane) {
    return make_uint4(__shfl_sync(~0u, word.x, lane), __shfl_sync(~0u, word.y, lane),
                      __shfl_sync(~0u, word.z, lane), __shfl_sync(~0u, word.w, lane));
}

// Copies a long row whose offset within a 16-byte word differs from its target's. Every load and store of its
// inside is an aligned word: a lane gets the second half of its target from the next lane. All lanes of the
// warp must call this together.
static __device__ __forceinline__ void gather_realigned(const u8* src, u8* dst, u64 bytes, u32 lane) {
    u64 head = (16 - ((u64)dst & 15)) & 15;
    const u32 shift = (u32)((u64)src + head) & 15;
    // The first word starts before the first target word; all of its bytes must belong to the row.
    if (head < shift) head += 16;
    if (head > bytes) head = bytes;
    u64 words = (bytes - head) / 16;
    if (words > 0 && 16 * words + 16 - shift > bytes - head) words -= 1;
    const u64 tail = head + 16 * words;
    // At most 31 bytes each.
    u8 first = 0, last = 0;
    if (lane < head) first = src[lane];
    if (tail + lane < bytes) last = src[tail + lane];
    const uint4* from = (const uint4*)((u64)(src + head) - shift);
    uint4* to = (uint4*)(dst + head);
#pragma unroll 1
    for (u64 i = 0; i < words; i += 128) {
        uint4 four[4], after = make_uint4(0, 0, 0, 0);
#pragma unroll
        for (u32 j = 0; j < 4; ++j) {
            four[j] = after;
            if (i + 32 * j + lane <= words) four[j] = from[i + 32 * j + lane];
        }
        if (lane == 31 && i + 128 <= words) after = from[i + 128];
#pragma unroll
        for (u32 j = 0; j < 4; ++j) {
            uint4 high = gather_from_lane(four[j], (lane + 1) & 31);
            const uint4 next = j < 3 ? gather_from_lane(four[(j + 1) & 3], 0) : after;
            if (lane == 31) high = next;
            if (i + 32 * j + lane < words) to[i + 32 * j + lane] = gather_between(four[j], high, shift);
        }
    }
    if (lane < head) dst[lane] = first;
    if (tail + lane < bytes) dst[tail + lane] = last;
}

template <u32 LANES>
static __device__ __forceinline__ void gather_row(const u8* src, u8* dst, u64 bytes, u32 lane) {
    const u64 grain = ((u64)src & 15) == ((u64)dst & 15) ? 16 : 4;
    if (LANES == 32 && grain != 16) return gather_realigned(src, dst, bytes, lane);
    u64 head = (grain - ((u64)dst & (grain - 1))) & (grain - 1);
    const bool shifted = (((u64)src + head) & 3) != 0;
    // The first shifted word starts in the aligned word before it, all of whose bytes must belong to the row.
    if (shifted && head < (((u64)src + head) & 3)) head += 4;
    if (head > bytes) head = bytes;
    gather_words<LANES>(src, dst, head, lane);
    src += head;
    dst += head;
    bytes -= head;
    u64 words = bytes / grain;
    if (grain == 16) {
        gather_words<LANES>((const uint4*)src, (uint4*)dst, words, lane);
    } else if (!shifted) {
        gather_words<LANES>((const u32*)src, (u32*)dst, words, lane);
    } else {
        // The last word needs the aligned word after it. If that passes the end of the row, copy its
        // bytes singly.
        if (words > 0 && ((u64)src & ~3ull) + 4 * words + 4 > (u64)src + bytes) words -= 1;
        gather_shifted<LANES>(src, (u32*)dst, words, lane);
    }
    gather_words<LANES>(src + grain * words, dst + grain * words, bytes - grain * words, lane);
}

// The visit that a lane holds.
struct Visit {
    u64 id;
    // The row of the batch; NOWHERE if the lane holds no visit, or its place is outside the batch.
    u64 place;
};

enum : u64 { NOWHERE = ~0ull, OUTSIDE = ~1ull };

// The visit that another lane holds. All lanes of the warp must call this together.
static __device__ __forceinline__ Visit visit_of(const Visit& own, u32 lane) {
    return {__shfl_sync(~0u, own.id, lane & 31), __shfl_sync(~0u, own.place, lane & 31)};
}

// Copies bytes from..from + bytes of the row of a visit, with LANES lanes.
template <u32 LANES>
static __device__ __forceinline__ void gather_visit(const GatherField& field, const Visit& visit, u64 from,
                                                    u64 bytes, u32 lane) {
    u8* to = field.to + visit.place * field.row_bytes + from;
    if (visit.id < field.rows) {
        gather_row<LANES>(field.src + visit.id * field.stride + from, to, bytes, lane);
    } else {
#pragma unroll 1
        for (u64 i = lane; i < bytes; i += LANES) to[i] = 0;
    }
}

// Copies the rows of `count` visits, which the lanes hold in order, with LANES lanes per row. All lanes of
// the warp must call this together.
template <u32 LANES>
static __device__ __forceinline__ void gather_some(const GatherField& field, const Visit& own, u32 count,
                                                   u32 lane) {
#pragma unroll 1
    for (u32 r = 0; r < count; r += 32 / LANES) {
        const u32 mine = r + lane / LANES;
        const Visit visit = visit_of(own, mine);
        if (mine < count && visit.place != NOWHERE)
            gather_visit<LANES>(field, visit, 0, field.row_bytes, lane % LANES);
    }
}

// The same for whole rows of 16-byte words, all 16-byte aligned: the words of all rows form one run, so
// that every lane has eight loads in flight whatever the row width. All rows of the batch together have
// fewer than 2^32 words. All lanes of the warp must call this together.
static __device__ __forceinline__ void gather_run(const GatherField& field, const Visit& own, u32 count,
                                                  u32 lane) {
    const u32 words = (u32)(field.row_bytes / 16), all = words * count;
#pragma unroll 1
    for (u32 begin = 0; begin < all; begin += 256) {
        uint4 eight[8];
        u32 to[8];
#pragma unroll
        for (u32 j = 0; j < 8; ++j) {
            const u32 i = begin + 32 * j + lane, r = i / words, word = i - r * words;
            const Visit visit = visit_of(own, r);
            const bool valid = i < all && visit.place != NOWHERE;
            to[j] = valid ? (u32)visit.place * words + word : ~0u;
            eight[j] = make_uint4(0, 0, 0, 0);
            if (valid && visit.id < field.rows)
                eight[j] = ((const uint4*)(field.src + visit.id * field.stride))[word];
        }
#pragma unroll
        for (u32 j = 0; j < 8; ++j)
            if (to[j] != ~0u) ((uint4*)field.to)[to[j]] = eight[j];
    }
}

// Whether all rows are whole 16-byte words, fewer than 2^32 together.
static __device__ __forceinline__ bool is_words(const GatherField& field, u64 rows) {
    const u64 grains = (u64)field.src | field.stride | (u64)field.to | field.row_bytes;
    return (grains & 15) == 0 && rows * field.row_bytes < 1ull << 36;
}

// Without places, visit v fills row v.
extern "C" __global__ void __launch_bounds__(512)
gather_fields(const u64* __restrict__ ids, const u32* __restrict__ places, u64 rows, u32 fields,
              const __grid_constant__ GatherFields all) {
    if (rows == 0) return;
    const u32 lane = threadIdx.x & 31;
    const u64 warps = (u64)gridDim.x * (blockDim.x / 32);
    const u64 warp = (u64)blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32;
    // Either several visits per warp, or several warps per visit.
    const u64 parts = rows < warps ? warps / rows : 1;
    const u64 unit = warp / parts, part = warp % parts, units = warps / parts;
    // Whether all rows are whole words.
    bool all_words = true;
#pragma unroll 1
    for (u32 f = 0; f < fields; ++f) all_words &= all.at[f].row_bytes <= 16 || is_words(all.at[f], rows);
    // The longest row of words that is copied in one run with others, and the longest of other rows that are
    // copied several at a time.
    const u64 run = parts > 1 ? 256 : all_words ? 4096 : 1024, longest = 256;
    bool has_long = false;
#pragma unroll 1
    for (u32 f = 0; f < fields; ++f)
        has_long |= all.at[f].row_bytes > (parts == 1 && is_words(all.at[f], rows) ? run : longest);
    // Each unit processes its share in equal pieces of up to 8 visits: piece t of unit u begins at visit
    // (t * units + u) * piece. One load fetches the ids of as many pieces as fit the lanes, while the pieces
    // before are copied.
    const u64 share = (rows + units - 1) / units, rounds = (share + 7) / 8;
    const u32 piece = (u32)((share + rounds - 1) / rounds), pieces = 32 / piece;
    const auto fetch = [&](u64 round) {
        const u64 visit = ((round + lane / piece) * units + unit) * piece + lane % piece;
        Visit own = {0, NOWHERE};
        if (lane < pieces * piece && visit < rows) {
            own.id = ids[visit];
            own.place = places ? places[visit] : visit;
            if (own.place >= rows) own.place = OUTSIDE;
        }
        return own;
    };
    Visit next = fetch(0);
#pragma unroll 1
    for (u64 round = 0; (round * units + unit) * piece < rows; round += pieces) {
        Visit own = next;
        // The visits fill the lanes from 0 on, so the idle lanes are the last ones.
        const u32 count = (u32)__popc(__ballot_sync(~0u, own.place != NOWHERE));
        if (own.place == OUTSIDE) own.place = NOWHERE;
        next = fetch(round + pieces);
        // Short rows, field by field, so that many are in flight.
#pragma unroll 1
        for (u32 f = 0; f < fields; ++f) {
            const GatherField& field = all.at[f];
            const bool in_run = parts == 1 && is_words(field, rows);
            if (field.row_bytes > (in_run ? run : longest)) continue;
            if (in_run && field.row_bytes > 16) gather_run(field, own, count, lane);
            else if (part == 0 && field.row_bytes > 16) gather_some<8>(field, own, count, lane);
            else if (part == 0) gather_some<1>(field, own, count, lane);
        }
        // Long rows, visit by visit.
#pragma unroll 1
        for (u32 r = 0; has_long && r < count; ++r) {
            const Visit visit = visit_of(own, r);
            if (visit.place == NOWHERE) continue;
#pragma unroll 1
            for (u32 f = 0; f < fields; ++f) {
                const GatherField& field = all.at[f];
                if (field.row_bytes <= (parts == 1 && is_words(field, rows) ? run : longest)) continue;
                // A part is at least as long as one warp has in flight, and starts on a 16-byte word.
                u64 bytes = (field.row_bytes / parts + 15) / 16 * 16 + 16;
                if (parts == 1) bytes = field.row_bytes;
                else if (bytes < 2048) bytes = 2048;
                const u64 from = part * bytes;
                if (from >= field.row_bytes) continue;
                const u64 left = field.row_bytes - from;
                gather_visit<32>(field, visit, from, left < bytes ? left : bytes, lane);
            }
        }
    }
}

// How a field is cut: its first block, the parts of a row, the bytes of a part (whole 16-byte words), and
// the lanes that copy one, as a power of two: 0, 3 or 5.
struct GatherCut {
    u32 first;
    u32 parts;
    u32 bytes;
    u32 lanes;
};

struct GatherCuts {
    GatherCut at[16];
};

// The ids of a small batch. One outside the source has a number outside of it here, too.
struct GatherFew {
    u32 ids[768];
};

// Copies a part of a row whose bytes or addresses are not whole 16-byte words, or writes zeros. Not inlined:
// the time of a small batch is also that of loading the code.
static __device__ __noinline__ void gather_any(const u8* src, u8* to, u64 bytes, u32 lanes, u32 lane) {
    if (src == 0) {
#pragma unroll 1
        for (u64 i = lane; i < bytes; i += 1u << lanes) to[i] = 0;
    } else if (lanes == 5) {
        gather_row<32>(src, to, bytes, lane);
    } else if (lanes == 3) {
        gather_row<8>(src, to, bytes, lane);
    } else {
        gather_row<1>(src, to, bytes, lane);
    }
}

template <typename Id>
static __device__ __forceinline__ void gather_parts(const Id* ids, const u32* places, u64 rows, u32 fields,
                                                    const GatherFields& all, const GatherCuts& cuts) {
    u32 f = 0;
    while (f + 1 < fields && blockIdx.x >= cuts.at[f + 1].first) ++f;
    const GatherField& field = all.at[f];
    const GatherCut& cut = cuts.at[f];
    const u32 lanes = 1u << cut.lanes, lane = threadIdx.x & (lanes - 1);
    const u64 unit = (u64)(blockIdx.x - cut.first) * (blockDim.x >> cut.lanes) + (threadIdx.x >> cut.lanes);
    // The parts of a row are neighbours. All lanes of a warp that copies one have the same unit.
    const u64 visit = cut.parts == 1 ? unit : unit / cut.parts;
    const u64 from = (unit - visit * cut.parts) * cut.bytes;
    if (visit >= rows || from >= field.row_bytes) return;
    const u64 id = ids[visit], place = places ? places[visit] : visit;
    if (place >= rows) return;
    const u64 left = field.row_bytes - from, bytes = left < cut.bytes ? left : cut.bytes;
    const u8* src = id < field.rows ? field.src + id * field.stride + from : 0;
    u8* to = field.to + place * field.row_bytes + from;
    const u32 words = (u32)bytes / 16;
    if (src == 0 || ((u64)src | (u64)to | bytes) & 15 || words > 4 * lanes)
        return gather_any(src, to, bytes, cut.lanes, lane);
    // Up to four words per lane, all in flight. Short rows are not read again soon and leave the cache to the
    // batch: 5.0 instead of 4.5 us for 4096 rows of 784 bytes without it, and long ones at 1295 GB/s with it
    // instead of 1318 (H100).
    const uint4* source = (const uint4*)src + lane;
    uint4* target = (uint4*)to + lane;
    const bool is_short = cut.parts == 1;
    uint4 four[4];
#pragma unroll
    for (u32 j = 0; j < 4; ++j)
        if (lane + lanes * j < words) four[j] = is_short ? __ldcs(source + lanes * j) : source[lanes * j];
#pragma unroll
    for (u32 j = 0; j < 4; ++j)
        if (lane + lanes * j < words) target[lanes * j] = four[j];
}

extern "C" __global__ void __launch_bounds__(256)
gather_resident(const u64* __restrict__ ids, const u32* __restrict__ places, u64 rows, u32 fields,
                const __grid_constant__ GatherFields all, const __grid_constant__ GatherCuts cuts) {
    gather_parts(ids, places, rows, fields, all, cuts);
}

// Visit v fills row v.
extern "C" __global__ void __launch_bounds__(256)
gather_resident_few(u64 rows, u32 fields, const __grid_constant__ GatherFields all,
                    const __grid_constant__ GatherCuts cuts, const __grid_constant__ GatherFew few) {
    gather_parts(few.ids, 0, rows, fields, all, cuts);
}
