// softmax_xent: softmax cross-entropy of logits [rows, cols] against one label per row: losses, gradient
// and hits.
//
//   row_loss[r] = log(sum_c exp(z[r, c])) - z[r, label]      (shifted by the row's maximum)
//   loss        = mean of row_loss
//   dlogits     = (softmax(z) - onehot(label)) / rows         (optional; may be in place of the logits)
//   hits        = number of rows whose argmax (the first of equal logits) is the label
//
// One warp per row, 8 per block; any one-dimensional grid. The last block to finish adds row_loss in a
// fixed order, so the mean does not depend on the order in which blocks run. `scratch` is one u64, zero
// before and after a launch; launches that can overlap need one each. An invalid label gives a NaN loss,
// never a read out of bounds.

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

// All lanes of a warp must call it. Returns row_loss on every lane and counts a hit in `hits`.
template <typename Label>
static __device__ __forceinline__ float xent_row(const float* z, Label label, float* dz, u32 cols,
                                                 float inverse_rows, u32& hits) {
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
    // dz may be z: every lane must have read z[label] before any lane writes.
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

// The last block to finish computes the mean of row_loss and the number of hits; `mine` is the number of
// hits of the calling warp. The number of threads per block must be a power of two, at most 256.
static __device__ __forceinline__ void xent_finish(const float* row_loss, u32 mine, float* loss, u32* hits,
                                                   u64* scratch, u64 rows) {
    __shared__ float sums[256];
    __shared__ u32 warps[8];
    __shared__ u64 before;
    const u32 thread = threadIdx.x;
    if ((thread & 31) == 0) warps[thread / 32] = mine;
    __threadfence();
    __syncthreads();
    if (thread == 0) {
        for (u32 w = 1; w < blockDim.x / 32; ++w) mine += warps[w];
        // One atomic for both: finished blocks in the low half, their hits in the high half.
        before = atomicAdd(scratch, (u64)mine << 32 | 1) + ((u64)mine << 32);
    }
    __syncthreads();
    if ((u32)before != gridDim.x - 1) return;
    __threadfence();
    float sum = 0.0f;
    u64 done = 0;
    if (((u64)row_loss & 15) == 0) {
        done = rows / 4 * 4;
#pragma unroll 8
        for (u64 r = 4 * thread; r < done; r += 4 * blockDim.x) {
            const float4 four = __ldcg((const float4*)(row_loss + r));
            sum += (four.x + four.y) + (four.z + four.w);
        }
    }
    for (u64 r = done + thread; r < rows; r += blockDim.x) sum += __ldcg(&row_loss[r]);
    sums[thread] = sum;
    for (u32 half = blockDim.x / 2; half > 0; half /= 2) {
        __syncthreads();
        if (thread < half) sums[thread] += sums[thread + half];
    }
    if (thread == 0) {
        *loss = sums[0] / (float)rows;
        *hits = (u32)(before >> 32);
        *scratch = 0;
    }
}

template <typename Label>
static __device__ __forceinline__ void xent(const float* logits, const Label* labels, float* dlogits,
                                            float* row_loss, float* loss, u32* hits, u64* scratch, u64 rows,
                                            u32 cols) {
    const float inverse_rows = 1.0f / (float)rows;
    u32 mine = 0;
    for (u64 r = (u64)blockIdx.x * 8 + threadIdx.x / 32; r < rows; r += (u64)gridDim.x * 8) {
        const float value = xent_row(logits + r * cols, labels[r], dlogits == 0 ? 0 : dlogits + r * cols,
                                     cols, inverse_rows, mine);
        if ((threadIdx.x & 31) == 0) row_loss[r] = value;
    }
    xent_finish(row_loss, mine, loss, hits, scratch, rows);
}

extern "C" __global__ void __launch_bounds__(256)
softmax_xent_u8(const float* logits, const u8* labels, float* dlogits, float* row_loss, float* loss,
                u32* hits, u64* scratch, u64 rows, u32 cols) {
    xent(logits, labels, dlogits, row_loss, loss, hits, scratch, rows, cols);
}

extern "C" __global__ void __launch_bounds__(256)
softmax_xent_i64(const float* logits, const long long* labels, float* dlogits, float* row_loss,
                 float* loss, u32* hits, u64* scratch, u64 rows, u32 cols) {
    xent(logits, labels, dlogits, row_loss, loss, hits, scratch, rows, cols);
}

// The same after a linear layer, the last of a classifier: z = x w^T + b, with x [rows, inputs], w
// [classes, inputs] and b [classes]; z is not stored. At most 16 or 32 classes, by the kernel's name. A
// block of 4 warps takes one row at a time; with `_wide` 4 rows of 16 classes, or 2 of 32, which reads
// each weight once for all of them and needs fewer blocks. Each warp takes a part of the inputs for all
// classes; the partial sums are combined in shared memory.

// Sums N values over the lanes of a warp; N is a power of two, at least 16. Lane l gets the sums of the
// values from l * N / 32 on, in its first N / 32 places; for N = 16, two lanes get the same sum. Each
// step exchanges half of the remaining values with another lane: N - 1 exchanges instead of 5 N.
template <u32 N>
static __device__ __forceinline__ void classifier_spread(float (&values)[N]) {
    const u32 lane = threadIdx.x & 31;
#pragma unroll
    for (u32 lanes = 16, left = N; lanes > 0; lanes /= 2, left /= 2) {
        if (left == 1) {
            values[0] += __shfl_xor_sync(0xffffffffu, values[0], lanes);
            break;
        }
        const bool upper = (lane & lanes) != 0;
#pragma unroll
        for (u32 i = 0; i < N / 2; ++i) {
            if (i < left / 2) {
                const float own = upper ? values[i + left / 2] : values[i];
                const float other = upper ? values[i] : values[i + left / 2];
                values[i] = own + __shfl_xor_sync(0xffffffffu, other, lanes);
            }
        }
    }
}

// Adds to sums[r * MAX + k] this thread's part of row first + r . w[k].
template <u32 MAX, u32 ROWS>
static __device__ __forceinline__ void classifier_dots(const float* x, const float* w,
                                                       float (&sums)[MAX * ROWS], u64 first, u64 rows,
                                                       u64 inputs, u32 classes) {
    if ((((u64)x | (u64)w) & 15) == 0 && inputs % 4 == 0) {
        for (u64 i = 4 * threadIdx.x; i < inputs; i += 512) {
            float4 a[ROWS];
#pragma unroll
            for (u32 r = 0; r < ROWS; ++r)
                a[r] = first + r < rows ? *(const float4*)(x + (first + r) * inputs + i)
                                        : make_float4(0.0f, 0.0f, 0.0f, 0.0f);
            // Four weights in flight. Past the last class its weights are read again, for sums that are
            // not used.
#pragma unroll
            for (u32 k = 0; k < MAX; k += 4) {
                if (k < classes) {
                    float4 b[4];
#pragma unroll
                    for (u32 j = 0; j < 4; ++j)
                        b[j] = *(const float4*)(w + (k + j < classes ? k + j : classes - 1) * inputs + i);
#pragma unroll
                    for (u32 j = 0; j < 4; ++j) {
#pragma unroll
                        for (u32 r = 0; r < ROWS; ++r)
                            sums[r * MAX + k + j] +=
                                a[r].x * b[j].x + a[r].y * b[j].y + a[r].z * b[j].z + a[r].w * b[j].w;
                    }
                }
            }
        }
        return;
    }
    for (u64 i = threadIdx.x; i < inputs; i += 128) {
#pragma unroll
        for (u32 k = 0; k < MAX; ++k) {
#pragma unroll
            for (u32 r = 0; r < ROWS; ++r)
                if (k < classes && first + r < rows)
                    sums[r * MAX + k] += x[(first + r) * inputs + i] * w[k * inputs + i];
        }
    }
}

template <u32 MAX, u32 ROWS>
static __device__ __forceinline__ void classifier_forward(const float* x, const float* w, const float* b,
                                                          const u8* labels, float* dlogits, float* row_loss,
                                                          float* loss, u32* hits, u64* scratch, u64 rows,
                                                          u64 inputs, u32 classes) {
    constexpr u32 N = MAX * ROWS, EACH = N > 32 ? N / 32 : 1;
    __shared__ float parts[4][N];
    const u32 lane = threadIdx.x & 31, warp = threadIdx.x / 32;
    const float inverse_rows = 1.0f / (float)rows;
    const float nan = __int_as_float(0x7fffffff), infinity = __int_as_float(0x7f800000);
    u32 mine = 0;
    for (u64 first = (u64)blockIdx.x * ROWS; first < rows; first += (u64)gridDim.x * ROWS) {
        float sums[N];
#pragma unroll
        for (u32 i = 0; i < N; ++i) sums[i] = 0.0f;
        classifier_dots<MAX, ROWS>(x, w, sums, first, rows, inputs, classes);
        classifier_spread(sums);
        __syncthreads();
#pragma unroll
        for (u32 i = 0; i < EACH; ++i)
            if (lane % (32 * EACH / N) == 0) parts[warp][lane * N / 32 + i] = sums[i];
        __syncthreads();
        // From here on, each warp has a row and each lane a class.
        const u64 r = first + warp;
        if (warp < ROWS && r < rows) {
            float z = -infinity;
            if (lane < classes) {
                const u32 at = warp * MAX + lane;
                z = parts[0][at] + parts[1][at] + parts[2][at] + parts[3][at] + b[lane];
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
                dlogits[r * classes + lane] =
                    known ? (power / sum - (lane == label ? 1.0f : 0.0f)) * inverse_rows : nan;
            if (lane == 0) row_loss[r] = known ? logf(sum) - (own - largest) : nan;
        }
    }
    xent_finish(row_loss, mine, loss, hits, scratch, rows);
}

#define CLASSIFIER(NAME, MAX, ROWS)                                                                         \
    extern "C" __global__ void __launch_bounds__(128)                                                       \
    NAME(const float* x, const float* w, const float* b, const u8* labels, float* dlogits, float* row_loss, \
         float* loss, u32* hits, u64* scratch, u64 rows, u64 inputs, u32 classes) {                         \
        classifier_forward<MAX, ROWS>(x, w, b, labels, dlogits, row_loss, loss, hits, scratch, rows,        \
                                      inputs, classes);                                                     \
    }

CLASSIFIER(classifier_16, 16, 1)
CLASSIFIER(classifier_16_wide, 16, 4)
CLASSIFIER(classifier_32, 32, 1)
CLASSIFIER(classifier_32_wide, 32, 2)
