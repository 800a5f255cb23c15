// cast: dst[i] = scale * src[i], a cast from u8 to f32; for a matrix, optionally with its transpose.
//
// Four bytes per load and sixteen per store, both coalesced, four loads in flight per thread. A scalar
// loop handles the tail, and everything if src is not 4-byte or dst not 16-byte aligned. Works with any
// grid: the loops stride by it.
//
// cast_u8_with_transpose: dst [rows, cols] as above, and the same numbers in transposed [cols, rows]. A block
// takes tiles of 64 x 64; a thread takes 4 x 4 of a tile and transposes it in registers. The tile is
// transposed in shared memory as bytes, a quarter of the size of the floats. Stores in both layouts are
// runs of 256 bytes. Edges and unaligned data go element by element.

typedef unsigned char u8;
typedef unsigned int u32;
typedef unsigned long long u64;

extern "C" __global__ void __launch_bounds__(256)
cast_u8(const u8* __restrict__ src, float* __restrict__ dst, u64 n, float scale) {
    const u64 stride = (u64)gridDim.x * blockDim.x;
    const u64 first = (u64)blockIdx.x * blockDim.x + threadIdx.x;
    u64 done = 0;
    if (((u64)src & 3) == 0 && ((u64)dst & 15) == 0) {
        const u64 quads = n / 4;
        const u32* from = (const u32*)src;
        float4* to = (float4*)dst;
        for (u64 q = first; q < quads; q += 4 * stride) {
            u32 four[4];
#pragma unroll
            for (int j = 0; j < 4; ++j) four[j] = q + j * stride < quads ? from[q + j * stride] : 0;
#pragma unroll
            for (int j = 0; j < 4; ++j) {
                if (q + j * stride < quads) {
                    to[q + j * stride] =
                        make_float4(scale * (float)(four[j] & 255), scale * (float)(four[j] >> 8 & 255),
                                    scale * (float)(four[j] >> 16 & 255), scale * (float)(four[j] >> 24));
                }
            }
        }
        done = quads * 4;
    }
    for (u64 i = done + first; i < n; i += stride) dst[i] = scale * (float)src[i];
}

// Bytes `at` to `at + 3` of a line of `count` bytes, the first one lowest; zeros past the end.
static __device__ __forceinline__ u32 cast_load(const u8* line, u64 at, u64 count, bool wide) {
    if (wide) return at < count ? *(const u32*)(line + at) : 0;
    u32 four = 0;
#pragma unroll
    for (u32 i = 0; i < 4; ++i)
        if (at + i < count) four |= (u32)line[at + i] << 8 * i;
    return four;
}

// Stores four such bytes as floats, up to the end of the line.
static __device__ __forceinline__ void cast_store(float* line, u64 at, u64 count, bool wide, u32 four,
                                                   float scale) {
    const float value[4] = {scale * (float)(four & 255), scale * (float)(four >> 8 & 255),
                            scale * (float)(four >> 16 & 255), scale * (float)(four >> 24)};
    if (wide) {
        // The compiler would split a plain store to merge it with those below: 5 us at batch 4096.
        if (at < count) __stcg((float4*)(line + at), make_float4(value[0], value[1], value[2], value[3]));
        return;
    }
#pragma unroll
    for (u32 i = 0; i < 4; ++i)
        if (at + i < count) line[at + i] = value[i];
}

extern "C" __global__ void __launch_bounds__(256)
cast_u8_with_transpose(const u8* __restrict__ src, float* __restrict__ dst, float* __restrict__ transposed,
              u64 rows, u64 cols, float scale) {
    // Four rows per word. Column 4c + i is at index 16 i + c. With 18 words per column a warp has no bank
    // conflict, neither when it writes two words of 16 columns nor when it reads 16 words of the columns
    // at p and p + 8.
    __shared__ u32 tile[64][18];
    const u32 across = threadIdx.x % 16, down = threadIdx.x / 16;
    const bool wide = cols % 4 == 0 && ((u64)src & 3) == 0 && ((u64)dst & 15) == 0;
    const bool wide_down = rows % 4 == 0 && ((u64)transposed & 15) == 0;
    const u64 strips = (cols + 63) / 64, tiles = strips * ((rows + 63) / 64);
    for (u64 t = blockIdx.x; t < tiles; t += gridDim.x) {
        const u64 row0 = t / strips * 64, col0 = t % strips * 64;
        const u64 row = row0 + 4 * down, col = col0 + 4 * across;
        u32 four[4];
#pragma unroll
        for (u32 j = 0; j < 4; ++j)
            four[j] = row + j < rows ? cast_load(src + (row + j) * cols, col, cols, wide) : 0;
#pragma unroll
        for (u32 j = 0; j < 4; ++j)
            if (row + j < rows) cast_store(dst + (row + j) * cols, col, cols, wide, four[j], scale);
        // First columns 0 and 1, and 2 and 3, of two rows each; then each column of four rows.
        const u32 left0 = __byte_perm(four[0], four[1], 0x5140),
                  left2 = __byte_perm(four[2], four[3], 0x5140);
        const u32 right0 = __byte_perm(four[0], four[1], 0x7362),
                  right2 = __byte_perm(four[2], four[3], 0x7362);
        // Other threads may still read the previous tile.
        __syncthreads();
        tile[across][down] = __byte_perm(left0, left2, 0x5410);
        tile[16 + across][down] = __byte_perm(left0, left2, 0x7632);
        tile[32 + across][down] = __byte_perm(right0, right2, 0x5410);
        tile[48 + across][down] = __byte_perm(right0, right2, 0x7632);
        __syncthreads();
        const u32 place = down % 2 * 8 + down / 2;
#pragma unroll
        for (u32 i = 0; i < 4; ++i) {
            const u64 column = col0 + 4 * place + i;
            if (column < cols)
                cast_store(transposed + column * rows, row0 + 4 * across, rows, wide_down,
                            tile[16 * i + place][across], scale);
        }
    }
}
