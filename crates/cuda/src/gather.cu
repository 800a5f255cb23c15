// gather: the fields of samples by id, out of host memory mapped into the device: to[places[v]] = src[ids[v]], rows of bytes.
//
// One launch for all fields of a batch. 8 blocks of 512 threads fill a PCIe 5.0 x16 wire as well as 16 do, and leave the other
// multiprocessors to the compute stream. Visits follow each other as rows lie in the source, where the host has put them so, and
// what is on its way at a time is to lie near each other: a page's address is looked up once. So the visits go round among the
// warps by pieces of up to 8. The ids lie in host memory too, a read of which takes about a microsecond: a warp reads those of
// up to 32 visits in one load and hands them round. Long rows go by a whole warp, or by several where there are fewer rows than
// warps; short ones by 8 lanes or by one, so that many are on their way at a time.
// Rows of whole 16-byte words that all begin on one go as one run, eight loads in flight a lane. Others that start on the same
// byte of a 16-byte word as their target go by 16-byte loads, four in flight a lane; the rest by aligned 4-byte loads, shifted
// into place. No byte outside a row is read.
// An id that is no row (id >= rows of the field) leaves zeros, and nothing is read for it. A place that is none (place >= rows of
// the batch) gets nothing.

typedef unsigned char u8;
typedef unsigned int u32;
typedef unsigned long long u64;

// Visit v takes a row from src + ids[v] * stride to to + places[v] * row_bytes.
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

// Words of type W by LANES lanes, four loads in flight each. Both pointers are aligned to W.
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

// dst is 4-byte aligned, src is not. Each word is cut from the two aligned words around it; the caller sees to it that both
// lie within the row.
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

template <u32 LANES>
static __device__ __forceinline__ void gather_row(const u8* src, u8* dst, u64 bytes, u32 lane) {
    const u64 grain = ((u64)src & 15) == ((u64)dst & 15) ? 16 : 4;
    u64 head = (grain - ((u64)dst & (grain - 1))) & (grain - 1);
    const bool shifted = (((u64)src + head) & 3) != 0;
    // The first shifted word begins in the aligned word before it, whose bytes must all be the row's own.
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
        // The last word reaches on to the aligned word after it: left to the bytes when that passes the row's end.
        if (words > 0 && ((u64)src & ~3ull) + 4 * words + 4 > (u64)src + bytes) words -= 1;
        gather_shifted<LANES>(src, (u32*)dst, words, lane);
    }
    gather_words<LANES>(src + grain * words, dst + grain * words, bytes - grain * words, lane);
}

// What a lane holds of its visit.
struct Visit {
    u64 id;
    // NOWHERE when there is none.
    u64 place;
};

enum : u64 { NOWHERE = ~0ull };

// The visit that another lane holds. All lanes of the warp come here together.
static __device__ __forceinline__ Visit visit_of(const Visit& own, u32 lane) {
    return {__shfl_sync(~0u, own.id, lane & 31), __shfl_sync(~0u, own.place, lane & 31)};
}

// Bytes from..from + bytes of the rows of `count` visits, which the lanes hold in order; LANES lanes a row. All lanes of the
// warp come here together.
template <u32 LANES>
static __device__ __forceinline__ void gather_some(const GatherField& field, const Visit& own, u32 count, u64 from, u64 bytes,
                                                   u32 lane) {
#pragma unroll 1
    for (u32 r = 0; r < count; r += 32 / LANES) {
        const u32 mine = r + lane / LANES;
        const Visit visit = visit_of(own, mine);
        if (mine < count && visit.place != NOWHERE) {
            const u64 row = visit.id;
            u8* to = field.to + visit.place * field.row_bytes + from;
            if (row < field.rows) {
                gather_row<LANES>(field.src + row * field.stride + from, to, bytes, lane % LANES);
            } else {
#pragma unroll 1
                for (u64 i = lane % LANES; i < bytes; i += LANES) to[i] = 0;
            }
        }
    }
}

// The same for whole rows of 16-byte words that all begin on one: the words of all rows are one run, so that eight loads are in
// flight on every lane whatever the width of a row. All rows of the batch have fewer than 2^32 words. All lanes of the warp come
// here together.
static __device__ __forceinline__ void gather_run(const GatherField& field, const Visit& own, u32 count, u32 lane) {
    const u32 words = (u32)(field.row_bytes / 16), all = words * count;
#pragma unroll 1
    for (u32 begin = 0; begin < all; begin += 256) {
        uint4 eight[8];
        u32 to[8];
#pragma unroll
        for (u32 j = 0; j < 8; ++j) {
            const u32 i = begin + 32 * j + lane, r = i / words, word = i - r * words;
            const Visit visit = visit_of(own, r);
            const bool goes = i < all && visit.place != NOWHERE;
            to[j] = goes ? (u32)visit.place * words + word : ~0u;
            eight[j] = make_uint4(0, 0, 0, 0);
            if (goes && visit.id < field.rows) eight[j] = ((const uint4*)(field.src + visit.id * field.stride))[word];
        }
#pragma unroll
        for (u32 j = 0; j < 8; ++j)
            if (to[j] != ~0u) ((uint4*)field.to)[to[j]] = eight[j];
    }
}

// The host may give no places: then visit v is of row v.
extern "C" __global__ void __launch_bounds__(512)
gather_fields(const u64* __restrict__ ids, const u32* __restrict__ places, u64 rows, u32 fields,
              const __grid_constant__ GatherFields all) {
    if (rows == 0) return;
    const u32 lane = threadIdx.x & 31;
    const u64 warps = (u64)gridDim.x * (blockDim.x / 32);
    const u64 warp = (u64)blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32;
    // Either some visits a warp, or some warps a visit.
    const u64 parts = rows < warps ? warps / rows : 1;
    const u64 unit = warp / parts, part = warp % parts, units = warps / parts;
    // Each unit's share in turns of up to 8 visits, alike: turn t of unit u begins at visit (t * units + u) * piece. A load takes as
    // many turns as the lanes have room for.
    const u64 share = (rows + units - 1) / units, turns = (share + 7) / 8;
    const u32 piece = (u32)((share + turns - 1) / turns), held = 32 / piece;
#pragma unroll 1
    for (u64 turn = 0; (turn * units + unit) * piece < rows; turn += held) {
        const u64 visit = ((turn + lane / piece) * units + unit) * piece + lane % piece;
        const bool mine = lane < held * piece && visit < rows;
        Visit own = {0, NOWHERE};
        if (mine) {
            own.id = ids[visit];
            own.place = places ? places[visit] : visit;
            if (own.place >= rows) own.place = NOWHERE;
        }
        // Those of the lower lanes come first: what is left out are lanes at the end.
        const u32 count = (u32)__popc(__ballot_sync(~0u, mine));
#pragma unroll 1
        for (u32 f = 0; f < fields; ++f) {
            const GatherField& field = all.at[f];
            const u64 grains = (u64)field.src | field.stride | (u64)field.to | field.row_bytes;
            const bool words = (grains & 15) == 0 && field.row_bytes > 0 && rows * field.row_bytes < 1ull << 36;
            if (parts == 1 && words && field.row_bytes <= 4096) {
                gather_run(field, own, count, lane);
            } else if (field.row_bytes > 256) {
                // A part is at least what one warp has in flight, and begins on a word.
                u64 bytes = (field.row_bytes / parts + 15) / 16 * 16 + 16;
                if (parts == 1) bytes = field.row_bytes;
                else if (bytes < 2048) bytes = 2048;
                const u64 from = part * bytes;
                if (from < field.row_bytes) {
                    const u64 left = field.row_bytes - from;
                    gather_some<32>(field, own, count, from, left < bytes ? left : bytes, lane);
                }
            } else if (part == 0 && field.row_bytes > 16) {
                gather_some<8>(field, own, count, 0, field.row_bytes, lane);
            } else if (part == 0) {
                gather_some<1>(field, own, count, 0, field.row_bytes, lane);
            }
        }
    }
}
