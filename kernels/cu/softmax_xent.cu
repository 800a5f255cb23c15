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

// The mean of row_loss and the number of hits, by the last block to come; `mine` are the hits of the calling warp's rows.
static __device__ __forceinline__ void xent_finish(float* row_loss, u32 mine, float* loss, u32* hits, u32* scratch, u64 rows) {
    __shared__ float sums[256];
    __shared__ bool last;
    const u32 thread = threadIdx.x;
    if ((thread & 31) == 0 && mine > 0) atomicAdd(&scratch[1], mine);
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

template <typename Label>
static __device__ __forceinline__ void xent(const float* logits, const Label* labels, float* dlogits, float* row_loss,
                                            float* loss, u32* hits, u32* scratch, u64 rows, u32 cols) {
    const float inverse_rows = 1.0f / (float)rows;
    u32 mine = 0;
    for (u64 r = (u64)blockIdx.x * 8 + threadIdx.x / 32; r < rows; r += (u64)gridDim.x * 8) {
        const float value =
            xent_row(logits + r * cols, labels[r], dlogits == 0 ? 0 : dlogits + r * cols, cols, inverse_rows, mine);
        if ((threadIdx.x & 31) == 0) row_loss[r] = value;
    }
    xent_finish(row_loss, mine, loss, hits, scratch, rows);
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

// The same behind a linear layer, the last of a classifier: z = x w^T + b, with x [rows, inputs], w [classes, inputs] and
// b [classes]; z itself is not kept. At most 16 or 32 classes, by the kernel's name. One warp a row, 8 a block.

// Adds to sums[k] this lane's part of row . w[k].
template <int MOST>
static __device__ __forceinline__ void classifier_dots(const float* row, const float* w, float (&sums)[MOST], u64 inputs, u32 classes) {
    const u32 lane = threadIdx.x & 31;
    if ((((u64)row | (u64)w) & 15) == 0 && inputs % 4 == 0) {
        for (u64 i = 4 * lane; i < inputs; i += 128) {
            const float4 x = *(const float4*)(row + i);
#pragma unroll
            for (u32 k = 0; k < MOST; ++k) {
                if (k < classes) {
                    const float4 y = *(const float4*)(w + k * inputs + i);
                    sums[k] += x.x * y.x + x.y * y.y + x.z * y.z + x.w * y.w;
                }
            }
        }
        return;
    }
    for (u64 i = lane; i < inputs; i += 32) {
#pragma unroll
        for (u32 k = 0; k < MOST; ++k)
            if (k < classes) sums[k] += row[i] * w[k * inputs + i];
    }
}

template <int MOST>
static __device__ __forceinline__ void classifier_forward(const float* x, const float* w, const float* b, const u8* labels,
                                                          float* dlogits, float* row_loss, float* loss, u32* hits, u32* scratch,
                                                          u64 rows, u64 inputs, u32 classes) {
    const u32 lane = threadIdx.x & 31;
    const float inverse_rows = 1.0f / (float)rows;
    const float nan = __int_as_float(0x7fffffff), infinity = __int_as_float(0x7f800000);
    u32 mine = 0;
    for (u64 r = (u64)blockIdx.x * 8 + threadIdx.x / 32; r < rows; r += (u64)gridDim.x * 8) {
        float sums[MOST];
#pragma unroll
        for (u32 k = 0; k < MOST; ++k) sums[k] = 0.0f;
        classifier_dots(x + r * inputs, w, sums, inputs, classes);
        // From here on a lane is a class.
        float z = -infinity;
#pragma unroll
        for (u32 k = 0; k < MOST; ++k) {
            if (k < classes) {
                const float sum = xent_warp_sum(sums[k]);
                if (k == lane) z = sum + b[k];
            }
        }
        float largest = z > -infinity ? z : -infinity;
        u32 at = z > -infinity ? lane : 0xffffffffu;
        xent_warp_argmax(largest, at);
        const float power = lane < classes ? expf(z - largest) : 0.0f;
        const float sum = xent_warp_sum(power);
        const u32 label = labels[r];
        const bool known = label < classes;
        const float own = xent_warp_sum(lane == label && known ? z : 0.0f);
        mine += known && at == label;
        if (lane < classes)
            dlogits[r * classes + lane] = known ? (power / sum - (lane == label ? 1.0f : 0.0f)) * inverse_rows : nan;
        if (lane == 0) row_loss[r] = known ? logf(sum) - (own - largest) : nan;
    }
    xent_finish(row_loss, mine, loss, hits, scratch, rows);
}

extern "C" __global__ void __launch_bounds__(256)
classifier_16(const float* x, const float* w, const float* b, const u8* labels, float* dlogits, float* row_loss, float* loss,
              u32* hits, u32* scratch, u64 rows, u64 inputs, u32 classes) {
    classifier_forward<16>(x, w, b, labels, dlogits, row_loss, loss, hits, scratch, rows, inputs, classes);
}

extern "C" __global__ void __launch_bounds__(256)
classifier_32(const float* x, const float* w, const float* b, const u8* labels, float* dlogits, float* row_loss, float* loss,
              u32* hits, u32* scratch, u64 rows, u64 inputs, u32 classes) {
    classifier_forward<32>(x, w, b, labels, dlogits, row_loss, loss, hits, scratch, rows, inputs, classes);
}
