// gather: copies the rows of all fields of a batch, selected by id: to[places[v]] = src[ids[v]], in rows of
// bytes. One launch per batch.
//
// An id outside the source (id >= rows of the field) writes zeros and reads nothing. A place outside the
// batch (place >= rows of the batch) writes nothing. No byte outside a row is read.
//
// The ids are in host memory, where a read takes more than a microsecond.
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
//
// gather_resident reads rows of device memory. The host cuts each field into pieces of some ten kilobytes: a
// part of a long row, or several short rows. One block copies one piece. Several blocks share a
// multiprocessor, so that some copy while others wait for their ids, and no block waits for a slower one.
// gather_resident_few has the ids among its parameters.
//
// Word size. Rows of whole 16-byte words, all 16-byte aligned, are copied as one run with several loads in
// flight per lane. Rows with the same offset within a 16-byte word as their target use 16-byte loads,
// four in flight per lane. All others use aligned 4-byte loads, shifted into place.

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

template <u32 LANES>
static __device__ __forceinline__ void gather_row(const u8* src, u8* dst, u64 bytes, u32 lane) {
    const u64 grain = ((u64)src & 15) == ((u64)dst & 15) ? 16 : 4;
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

enum : u64 { NOWHERE = ~0ull };

// The visit that another lane holds. All lanes of the warp must call this together.
static __device__ __forceinline__ Visit visit_of(const Visit& own, u32 lane) {
    return {__shfl_sync(~0u, own.id, lane & 31), __shfl_sync(~0u, own.place, lane & 31)};
}

// Copies bytes from..from + bytes of the rows of `count` visits, which the lanes hold in order, with
// LANES lanes per row. All lanes of the warp must call this together.
template <u32 LANES>
static __device__ __forceinline__ void gather_some(const GatherField& field, const Visit& own, u32 count,
                                                   u64 from, u64 bytes, u32 lane) {
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
    // Each unit processes its share in equal pieces of up to 8 visits: piece t of unit u begins at visit
    // (t * units + u) * piece. One load fetches as many pieces as fit the lanes.
    const u64 share = (rows + units - 1) / units, rounds = (share + 7) / 8;
    const u32 piece = (u32)((share + rounds - 1) / rounds), pieces = 32 / piece;
#pragma unroll 1
    for (u64 round = 0; (round * units + unit) * piece < rows; round += pieces) {
        const u64 visit = ((round + lane / piece) * units + unit) * piece + lane % piece;
        const bool mine = lane < pieces * piece && visit < rows;
        Visit own = {0, NOWHERE};
        if (mine) {
            own.id = ids[visit];
            own.place = places ? places[visit] : visit;
            if (own.place >= rows) own.place = NOWHERE;
        }
        // The visits fill the lanes from 0 on, so the idle lanes are the last ones.
        const u32 count = (u32)__popc(__ballot_sync(~0u, mine));
#pragma unroll 1
        for (u32 f = 0; f < fields; ++f) {
            const GatherField& field = all.at[f];
            const u64 grains = (u64)field.src | field.stride | (u64)field.to | field.row_bytes;
            const bool words = (grains & 15) == 0 && field.row_bytes > 0 &&
                               rows * field.row_bytes < 1ull << 36;
            if (parts == 1 && words && field.row_bytes <= 4096) {
                gather_run(field, own, count, lane);
            } else if (field.row_bytes > 256) {
                // A part is at least as long as one warp has in flight, and starts on a 16-byte word.
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

// How a field is cut: the number of its first block, and either several rows per block, up to one for each
// thread, or several parts per row, of so many bytes (whole 16-byte words).
struct GatherCut {
    u32 first;
    u32 rows;
    u32 parts;
    u32 bytes;
};

struct GatherCuts {
    GatherCut at[16];
};

// The ids of a small batch.
struct GatherFew {
    u64 ids[384];
};

// Where a row of a piece comes from, null outside the source, and where it goes, null outside the batch.
struct GatherCopy {
    const u8* from;
    u8* to;
};

// Copies rows of whole aligned words, as one run with four loads in flight per thread. The source is not
// read again soon: it leaves the cache to the batch. One row needs no division to find its words.
template <bool ONE_ROW>
static __device__ __forceinline__ void gather_aligned(const GatherCopy* copies, u32 count, u32 words) {
    const u32 all = words * count;
#pragma unroll 1
    for (u32 begin = threadIdx.x; begin < all; begin += 4 * blockDim.x) {
        uint4 four[4];
        uint4* to[4];
#pragma unroll
        for (u32 j = 0; j < 4; ++j) {
            const u32 i = begin + j * blockDim.x, r = ONE_ROW ? 0 : i / words, word = i - r * words;
            to[j] = 0;
            four[j] = make_uint4(0, 0, 0, 0);
            if (i < all && copies[r].to != 0) {
                to[j] = (uint4*)copies[r].to + word;
                if (copies[r].from != 0) four[j] = __ldcs((const uint4*)copies[r].from + word);
            }
        }
#pragma unroll
        for (u32 j = 0; j < 4; ++j)
            if (to[j] != 0) *to[j] = four[j];
    }
}

// Copies `bytes` bytes of a row with LANES lanes, whatever their alignment.
template <u32 LANES>
static __device__ __forceinline__ void gather_any(const GatherCopy& copy, u64 from, u64 bytes, u32 lane) {
    if (copy.to == 0) return;
    if (copy.from != 0) return gather_row<LANES>(copy.from + from, copy.to + from, bytes, lane);
#pragma unroll 1
    for (u64 i = lane; i < bytes; i += LANES) copy.to[from + i] = 0;
}

static __device__ __forceinline__ void gather_piece(const u64* ids, const u32* places, u64 rows, u32 fields,
                                                    const GatherFields& all, const GatherCuts& cuts) {
    __shared__ GatherCopy copies[512];
    u32 f = 0;
    while (f + 1 < fields && blockIdx.x >= cuts.at[f + 1].first) ++f;
    const GatherField& field = all.at[f];
    const GatherCut& cut = cuts.at[f];
    const u32 piece = blockIdx.x - cut.first, group = piece / cut.parts;
    const u64 first = (u64)group * cut.rows, from = (u64)(piece - group * cut.parts) * cut.bytes;
    if (first >= rows || from >= field.row_bytes) return;
    const u32 count = rows - first < cut.rows ? (u32)(rows - first) : cut.rows;
    const u64 left = field.row_bytes - from, bytes = cut.parts > 1 && left > cut.bytes ? cut.bytes : left;
    if (threadIdx.x < count) {
        const u64 visit = first + threadIdx.x, id = ids[visit], place = places ? places[visit] : visit;
        GatherCopy copy = {0, 0};
        if (id < field.rows) copy.from = field.src + id * field.stride + from;
        if (place < rows) copy.to = field.to + place * field.row_bytes + from;
        copies[threadIdx.x] = copy;
    }
    __syncthreads();
    const u64 grains = (u64)field.src | field.stride | (u64)field.to | field.row_bytes;
    if ((grains & 15) == 0) {
        if (count == 1) return gather_aligned<true>(copies, 1, (u32)(bytes / 16));
        return gather_aligned<false>(copies, count, (u32)(bytes / 16));
    }
    const u32 warps = blockDim.x / 32, warp = threadIdx.x / 32;
    if (bytes > 256 && count < warps) {
        // Several warps per row, each for some whole words.
        const u32 shares = warps / count, r = warp / shares, share = warp - r * shares;
        const u64 most = bytes / shares / 16 * 16 + 16, begin = share * most;
        if (r < count && begin < bytes)
            gather_any<32>(copies[r], begin, bytes - begin < most ? bytes - begin : most, threadIdx.x & 31);
    } else if (bytes > 256) {
#pragma unroll 1
        for (u32 r = warp; r < count; r += warps) gather_any<32>(copies[r], 0, bytes, threadIdx.x & 31);
    } else if (bytes > 16) {
#pragma unroll 1
        for (u32 r = threadIdx.x / 8; r < count; r += blockDim.x / 8)
            gather_any<8>(copies[r], 0, bytes, threadIdx.x & 7);
    } else if (threadIdx.x < count) {
        gather_any<1>(copies[threadIdx.x], 0, bytes, 0);
    }
}

extern "C" __global__ void __launch_bounds__(512)
gather_resident(const u64* __restrict__ ids, const u32* __restrict__ places, u64 rows, u32 fields,
                const __grid_constant__ GatherFields all, const __grid_constant__ GatherCuts cuts) {
    gather_piece(ids, places, rows, fields, all, cuts);
}

// Visit v fills row v.
extern "C" __global__ void __launch_bounds__(512)
gather_resident_few(u64 rows, u32 fields, const __grid_constant__ GatherFields all,
                    const __grid_constant__ GatherCuts cuts, const __grid_constant__ GatherFew few) {
    gather_piece(few.ids, 0, rows, fields, all, cuts);
}
