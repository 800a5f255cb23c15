// gather: dst[r] = src[ids[r]], rows of bytes, from device memory or from host memory mapped into the device.
//
// One warp a row, looping: 16 blocks of 512 threads are enough to fill a PCIe 5.0 x16 wire and leave the other
// multiprocessors to the compute stream. Rows that start on the same byte of a 16-byte word go by 16-byte loads, four in
// flight a lane; others by aligned 4-byte loads, shifted into place. No byte outside a row is read.
// An id that is no row (id >= src_rows) leaves zeros and adds one to *bad.

typedef unsigned char u8;
typedef unsigned int u32;
typedef unsigned long long u64;

// Words of type W by one warp, four loads in flight a lane. Both pointers are aligned to W.
template <typename W>
static __device__ __forceinline__ void gather_words(const W* src, W* dst, u64 words, u32 lane) {
    for (u64 i = lane; i < words; i += 128) {
        W four[4];
#pragma unroll
        for (int j = 0; j < 4; ++j)
            if (i + 32 * j < words) four[j] = src[i + 32 * j];
#pragma unroll
        for (int j = 0; j < 4; ++j)
            if (i + 32 * j < words) dst[i + 32 * j] = four[j];
    }
}

static __device__ __forceinline__ void gather_bytes(const u8* src, u8* dst, u64 bytes, u32 lane) {
    for (u64 i = lane; i < bytes; i += 32) dst[i] = src[i];
}

// dst is 4-byte aligned, src is not. Each word is cut from the two aligned words around it; the caller sees to it that both
// lie within the row.
static __device__ __forceinline__ void gather_shifted(const u8* src, u32* dst, u64 words, u32 lane) {
    const u32 shift = 8 * (u32)((u64)src & 3);
    const u32* from = (const u32*)((u64)src & ~3ull);
    for (u64 i = lane; i < words; i += 128) {
        u32 low[4], high[4];
#pragma unroll
        for (int j = 0; j < 4; ++j) {
            if (i + 32 * j < words) {
                low[j] = from[i + 32 * j];
                high[j] = from[i + 32 * j + 1];
            }
        }
#pragma unroll
        for (int j = 0; j < 4; ++j)
            if (i + 32 * j < words) dst[i + 32 * j] = __funnelshift_r(low[j], high[j], shift);
    }
}

static __device__ __forceinline__ void gather_row(const u8* src, u8* dst, u64 bytes, u32 lane) {
    const u64 grain = ((u64)src & 15) == ((u64)dst & 15) ? 16 : 4;
    u64 head = (grain - ((u64)dst & (grain - 1))) & (grain - 1);
    const bool shifted = (((u64)src + head) & 3) != 0;
    // The first shifted word begins in the aligned word before it, whose bytes must all be the row's own.
    if (shifted && head < (((u64)src + head) & 3)) head += 4;
    if (head > bytes) head = bytes;
    gather_bytes(src, dst, head, lane);
    src += head;
    dst += head;
    bytes -= head;
    u64 words = bytes / grain;
    if (grain == 16) {
        gather_words((const uint4*)src, (uint4*)dst, words, lane);
    } else if (!shifted) {
        gather_words((const u32*)src, (u32*)dst, words, lane);
    } else {
        // The last word reaches on to the aligned word after it: left to the byte loop when that passes the row's end.
        if (words > 0 && ((u64)src & ~3ull) + 4 * words + 4 > (u64)src + bytes) words -= 1;
        gather_shifted(src, (u32*)dst, words, lane);
    }
    gather_bytes(src + grain * words, dst + grain * words, bytes - grain * words, lane);
}

extern "C" __global__ void __launch_bounds__(512)
gather_rows(const u8* __restrict__ src, const u64* __restrict__ ids, u8* __restrict__ dst, u64 rows, u64 row_bytes, u64 src_rows,
            u32* bad) {
    const u32 lane = threadIdx.x & 31;
    const u64 warps = (u64)gridDim.x * (blockDim.x / 32);
    for (u64 r = (u64)blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32; r < rows; r += warps) {
        const u64 id = ids[r];
        u8* to = dst + r * row_bytes;
        if (id < src_rows) {
            gather_row(src + id * row_bytes, to, row_bytes, lane);
        } else {
            for (u64 i = lane; i < row_bytes; i += 32) to[i] = 0;
            if (lane == 0) atomicAdd(bad, 1u);
        }
    }
}
