// widen: dst[i] = scale * src[i], u8 to f32.
//
// Four bytes a load and sixteen a store, both coalesced, four loads in flight a thread; a scalar loop takes the tail,
// and everything when src is not 4-byte or dst not 16-byte aligned. Any grid is right: the loops stride by it.

typedef unsigned char u8;
typedef unsigned int u32;
typedef unsigned long long u64;

extern "C" __global__ void __launch_bounds__(256)
widen_u8(const u8* __restrict__ src, float* __restrict__ dst, u64 n, float scale) {
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
                    to[q + j * stride] = make_float4(scale * (float)(four[j] & 255), scale * (float)(four[j] >> 8 & 255),
                                                     scale * (float)(four[j] >> 16 & 255), scale * (float)(four[j] >> 24));
                }
            }
        }
        done = quads * 4;
    }
    for (u64 i = done + first; i < n; i += stride) dst[i] = scale * (float)src[i];
}
