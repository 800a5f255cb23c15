// softmax_xent: softmax cross-entropy of logits [rows, cols] against one label a row: losses, gradient and hits.
//
//   row_loss[r] = log(sum_c exp(z[r, c])) - z[r, label]      (shifted by the row's maximum)
//   loss        = mean of row_loss
//   dlogits     = (softmax(z) - onehot(label)) / rows         (null: not wanted; may be the logits themselves)
//   hits        = rows whose largest logit, the first of equals, is the label's
//
// One warp a row, 8 a block, any grid of x. The last block to finish adds row_loss in a fixed order, so the mean does not
// depend on the order in which blocks run. `scratch` is two u32, zero before and after a launch; launches that can overlap
// need one each. A label that is no class gives a NaN loss, never a read out of bounds.

typedef unsigned char u8;
typedef unsigned int u32;
typedef unsigned long long u64;

static __device__ __forceinline__ float xent_warp_sum(float value) {
    for (int lanes = 16; lanes > 0; lanes /= 2) value += __shfl_xor_sync(0xffffffffu, value, lanes);
    return value;
}

// The row's largest value and its first column, the same on every lane.
static __device__ __forceinline__ void xent_warp_argmax(float& value, u32& column) {
    for (int lanes = 16; lanes > 0; lanes /= 2) {
        const float other = __shfl_xor_sync(0xffffffffu, value, lanes);
        const u32 at = __shfl_xor_sync(0xffffffffu, column, lanes);
        if (other > value || (other == value && at < column)) {
            value = other;
            column = at;
        }
    }
}

// Whole warps enter; returns row_loss on every lane and counts a hit in `hits`.
template <typename Label>
static __device__ __forceinline__ float xent_row(const float* z, Label label, float* dz, u32 cols, float inverse_rows, u32& hits) {
    const u32 lane = threadIdx.x & 31;
    float largest = -__int_as_float(0x7f800000);
    u32 at = 0xffffffffu;
    for (u32 c = lane; c < cols; c += 32) {
        if (z[c] > largest) {
            largest = z[c];
            at = c;
        }
    }
    xent_warp_argmax(largest, at);
    float sum = 0.0f;
    for (u32 c = lane; c < cols; c += 32) sum += expf(z[c] - largest);
    sum = xent_warp_sum(sum);
    const bool known = (u64)label < cols;
    const float nan = __int_as_float(0x7fffffff);
    const float loss = known ? logf(sum) - (z[(u64)label] - largest) : nan;
    hits += known && at == (u32)label;
    // dz may be z: every lane has read z[label] before any lane writes.
    __syncwarp();
    if (dz != 0) {
        const float inverse = 1.0f / sum;
        for (u32 c = lane; c < cols; c += 32) {
            const float p = expf(z[c] - largest) * inverse;
            dz[c] = known ? (p - (c == (u32)label ? 1.0f : 0.0f)) * inverse_rows : nan;
        }
    }
    return loss;
}

template <typename Label>
static __device__ __forceinline__ void xent(const float* logits, const Label* labels, float* dlogits, float* row_loss,
                                            float* loss, u32* hits, u32* scratch, u64 rows, u32 cols) {
    __shared__ float sums[256];
    __shared__ bool last;
    const u32 thread = threadIdx.x;
    const u32 lane = thread & 31;
    const float inverse_rows = 1.0f / (float)rows;
    u32 mine = 0;
    for (u64 r = (u64)blockIdx.x * 8 + thread / 32; r < rows; r += (u64)gridDim.x * 8) {
        const float value =
            xent_row(logits + r * cols, labels[r], dlogits == 0 ? 0 : dlogits + r * cols, cols, inverse_rows, mine);
        if (lane == 0) row_loss[r] = value;
    }
    if (lane == 0 && mine > 0) atomicAdd(&scratch[1], mine);
    __threadfence();
    __syncthreads();
    if (thread == 0) last = atomicAdd(&scratch[0], 1u) == gridDim.x - 1;
    __syncthreads();
    if (!last) return;
    __threadfence();
    float sum = 0.0f;
    for (u64 r = thread; r < rows; r += 256) sum += ((volatile float*)row_loss)[r];
    sums[thread] = sum;
    for (u32 half = 128; half > 0; half /= 2) {
        __syncthreads();
        if (thread < half) sums[thread] += sums[thread + half];
    }
    if (thread == 0) {
        *loss = sums[0] / (float)rows;
        *hits = ((volatile u32*)scratch)[1];
        scratch[0] = 0;
        scratch[1] = 0;
    }
}

extern "C" __global__ void __launch_bounds__(256)
softmax_xent_u8(const float* logits, const u8* labels, float* dlogits, float* row_loss, float* loss, u32* hits, u32* scratch,
                u64 rows, u32 cols) {
    xent(logits, labels, dlogits, row_loss, loss, hits, scratch, rows, cols);
}

extern "C" __global__ void __launch_bounds__(256)
softmax_xent_i64(const float* logits, const long long* labels, float* dlogits, float* row_loss, float* loss, u32* hits,
                 u32* scratch, u64 rows, u32 cols) {
    xent(logits, labels, dlogits, row_loss, loss, hits, scratch, rows, cols);
}
