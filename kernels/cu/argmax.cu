// argmax: adds to *hits the number of rows of logits [rows, cols] whose argmax (the first of equal
// values) is the label.
//
// For evaluation: no loss, no gradient. One warp per row, 8 per block; any one-dimensional grid.

typedef unsigned char u8;
typedef unsigned int u32;
typedef unsigned long long u64;

template <typename Label>
static __device__ __forceinline__ void argmax_count(const float* __restrict__ logits,
                                                    const Label* __restrict__ labels, u32* hits, u64 rows,
                                                    u32 cols) {
    const u32 lane = threadIdx.x & 31;
    u32 mine = 0;
    for (u64 r = (u64)blockIdx.x * 8 + threadIdx.x / 32; r < rows; r += (u64)gridDim.x * 8) {
        const float* z = logits + r * cols;
        float largest = -__int_as_float(0x7f800000);
        u32 at = 0xffffffffu;
        for (u32 c = lane; c < cols; c += 32) {
            if (z[c] > largest) {
                largest = z[c];
                at = c;
            }
        }
        for (int lanes = 16; lanes > 0; lanes /= 2) {
            const float other = __shfl_xor_sync(0xffffffffu, largest, lanes);
            const u32 column = __shfl_xor_sync(0xffffffffu, at, lanes);
            if (other > largest || (other == largest && column < at)) {
                largest = other;
                at = column;
            }
        }
        mine += (u64)labels[r] == (u64)at;
    }
    if (lane == 0 && mine > 0) atomicAdd(hits, mine);
}

extern "C" __global__ void __launch_bounds__(256)
argmax_hits_u8(const float* logits, const u8* labels, u32* hits, u64 rows, u32 cols) {
    argmax_count(logits, labels, hits, rows, cols);
}

extern "C" __global__ void __launch_bounds__(256)
argmax_hits_i64(const float* logits, const long long* labels, u32* hits, u64 rows, u32 cols) {
    argmax_count(logits, labels, hits, rows, cols);
}
