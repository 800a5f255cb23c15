// classifier_fused: the last layer of a classifier and its loss, forward and backward in one pass over x.
//
//   z = x w^T + b;  row_loss[r] = log(sum_k exp(z[r, k])) - z[r, label]
//   dz = (softmax(z) - onehot(label)) / rows
//   dw = dz^T x;  db[k] = sum_r dz[r, k];  dx = dz w where x > 0, else 0;  dx_sums[c] = sum_r dx[r, c]
//
// with x [rows, inputs], the output of a ReLU, w [classes, inputs] and b [classes]; at most 16 classes
// and 512 inputs. dx_sums is the bias gradient of the previous layer. Neither z nor dz is stored.
//
// classifier_fused_12, _16: at most 12 or 16 classes. A block of 512 threads takes `each` rows, up to
// 32 per iteration. Forward, a warp takes two rows and its lanes combine by shuffles. Backward, a thread
// takes a column and keeps its weights and its part of dw in registers, so sums over rows need no
// exchange. A block writes its partial sums to `partial` [blocks, (classes + 1) inputs + classes + 2]:
// the rows of dw, dx_sums, db, the sum of its losses and, as an integer, its hits.
// classifier_fused_sums: adds them in the order of the blocks, so the result does not depend on the
// order in which they run. Block (32, 16); each block of the one-dimensional grid takes 32 elements.
//
// An invalid label gives a NaN loss, never a read out of bounds.

typedef unsigned char u8;
typedef unsigned int u32;
typedef unsigned long long u64;

// The sum over the 16 lanes of half a warp, on every lane.
static __device__ __forceinline__ float fused_half_sum(float value) {
    for (int lanes = 8; lanes > 0; lanes /= 2) value += __shfl_xor_sync(0xffffffffu, value, lanes);
    return value;
}

// The largest value of half a warp and the first lane that has it, on every lane.
static __device__ __forceinline__ void fused_half_argmax(float& value, u32& at) {
    for (int lanes = 8; lanes > 0; lanes /= 2) {
        const float other = __shfl_xor_sync(0xffffffffu, value, lanes);
        const u32 there = __shfl_xor_sync(0xffffffffu, at, lanes);
        if (other > value || (other == value && there < at)) {
            value = other;
            at = there;
        }
    }
}

// Sums 32 values over the lanes of a warp; lane l gets the sum of value l in its first place. Each step
// exchanges half of the remaining values with another lane.
static __device__ __forceinline__ void fused_spread(float (&values)[32]) {
    const u32 lane = threadIdx.x & 31;
#pragma unroll
    for (u32 lanes = 16; lanes > 0; lanes /= 2) {
        const bool upper = (lane & lanes) != 0;
#pragma unroll
        for (u32 i = 0; i < 16; ++i) {
            if (i < lanes) {
                const float own = upper ? values[i + lanes] : values[i];
                const float other = upper ? values[i] : values[i + lanes];
                values[i] = own + __shfl_xor_sync(0xffffffffu, other, lanes);
            }
        }
    }
}

// Loads a lane's share of two rows at `from`, of which the first `count` exist: four columns of every 128.
// Zeros past the end of a row and for missing rows.
static __device__ __forceinline__ void fused_rows(float4 (&to)[2][4], const float* from, u32 count,
                                                    u32 cols, bool wide) {
    const u32 lane = threadIdx.x & 31;
#pragma unroll
    for (u32 r = 0; r < 2; ++r) {
#pragma unroll
        for (u32 j = 0; j < 4; ++j) {
            const u32 column = 128 * j + 4 * lane, left = r < count && column < cols ? cols - column : 0;
            const float* at = from + r * cols + column;
            to[r][j] = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
            if (wide) {
                if (left > 0) to[r][j] = *(const float4*)at;
            } else {
                if (left > 0) to[r][j].x = at[0];
                if (left > 1) to[r][j].y = at[1];
                if (left > 2) to[r][j].z = at[2];
                if (left > 3) to[r][j].w = at[3];
            }
        }
    }
}

// For up to MAX classes, a multiple of four; missing classes count as zeros.
template <u32 MAX>
static __device__ __forceinline__ void classifier_fused(
    const float* __restrict__ x, const float* __restrict__ w, const float* __restrict__ b,
    const u8* __restrict__ labels, float* __restrict__ dx, float* __restrict__ partial, u64 rows, u32 each,
    u32 inputs, u32 classes) {
    __shared__ __align__(16) float weights[MAX][512];
    __shared__ __align__(16) float gradients[32][16];
    __shared__ float losses[32];
    __shared__ u32 rights[32];
    const u32 column = threadIdx.x, pair = threadIdx.x / 32 * 2, half = threadIdx.x / 16,
              k_own = threadIdx.x % 16;
    const u64 begin = (u64)each * blockIdx.x, end = begin + each < rows ? begin + each : rows;
    const bool wide = inputs % 4 == 0 && ((u64)x & 15) == 0;
    const float inverse_rows = 1.0f / (float)rows;
    const float nan = __int_as_float(0x7fffffff), infinity = __int_as_float(0x7f800000);
    float own[MAX], down[MAX], dx_sum = 0.0f, loss = 0.0f, dbias = 0.0f;
    u32 hits = 0;
#pragma unroll
    for (u32 k = 0; k < MAX; ++k) {
        own[k] = k < classes && column < inputs ? w[k * inputs + column] : 0.0f;
        down[k] = 0.0f;
    }
    const float bias = k_own < classes ? b[k_own] : 0.0f;
    for (u64 first = begin; first < end; first += 32) {
        const u32 count = end - first < 32 ? (u32)(end - first) : 32;
        const float* from = x + first * inputs;
        float4 value[2][4];
        if (pair < count) fused_rows(value, from + pair * inputs, count - pair, inputs, wide);
        // Stored here so that both loads are in flight together.
        if (first == begin) {
#pragma unroll
            for (u32 k = 0; k < MAX; ++k) weights[k][column] = own[k];
        }
        // Also waits for threads that still read the gradients of the previous rows.
        __syncthreads();
        float gradient = 0.0f;
        if (pair < count) {
            const u32 label = half < count ? labels[first + half] : 0;
            float sums[32];
#pragma unroll
            for (u32 i = 0; i < 32; ++i) sums[i] = 0.0f;
#pragma unroll
            for (u32 j = 0; j < 4; ++j) {
                if (128 * j < inputs) {
#pragma unroll
                    for (u32 k = 0; k < MAX; ++k) {
                        const float4 four = *(const float4*)&weights[k][128 * j + 4 * (threadIdx.x & 31)];
#pragma unroll
                        for (u32 r = 0; r < 2; ++r) {
                            // Adding in pairs rounds less.
                            const float4 v = value[r][j];
                            sums[16 * r + k] += (v.x * four.x + v.y * four.y) + (v.z * four.z + v.w * four.w);
                        }
                    }
                }
            }
            // Now each lane has one class of one of the two rows.
            fused_spread(sums);
            const float z = k_own < classes ? sums[0] + bias : -infinity;
            float largest = z > -infinity ? z : -infinity;
            u32 at = z > -infinity ? k_own : 0xffffffffu;
            fused_half_argmax(largest, at);
            const float power = k_own < classes ? expf(z - largest) : 0.0f;
            const float sum = fused_half_sum(power);
            const bool known = label < classes;
            const float right = fused_half_sum(k_own == label && known ? z : 0.0f);
            if (half < count) {
                if (k_own < classes)
                    gradient = known ? (power / sum - (k_own == label ? 1.0f : 0.0f)) * inverse_rows : nan;
                loss += known ? logf(sum) - (right - largest) : nan;
                hits += known && at == label;
            }
            dbias += gradient;
        }
        gradients[half][k_own] = gradient;
        __syncthreads();
        float* to = dx + first * inputs;
        // Read again instead of kept: the part above needs the registers.
#pragma unroll
        for (u32 k = 0; k < MAX; ++k) own[k] = weights[k][column];
        for (u32 r = 0; r < count; r += 8) {
            float eight[8];
#pragma unroll
            for (u32 i = 0; i < 8; ++i)
                eight[i] = r + i < count && column < inputs ? from[(r + i) * inputs + column] : 0.0f;
#pragma unroll
            for (u32 i = 0; i < 8; ++i) {
                float d = 0.0f;
#pragma unroll
                for (u32 k = 0; k < MAX; k += 4) {
                    const float4 four = *(const float4*)&gradients[r + i][k];
                    const float g[4] = {four.x, four.y, four.z, four.w};
#pragma unroll
                    for (u32 q = 0; q < 4; ++q) {
                        d += g[q] * own[k + q];
                        down[k + q] += g[q] * eight[i];
                    }
                }
                // Select instead of multiply: a NaN gradient under a closed ReLU becomes 0, as on the host.
                d = eight[i] > 0.0f ? d : 0.0f;
                if (r + i < count && column < inputs) to[(r + i) * inputs + column] = d;
                dx_sum += d;
            }
        }
    }
    // Other threads may still read the gradients.
    __syncthreads();
    float* mine = partial + ((u64)(classes + 1) * inputs + classes + 2) * blockIdx.x;
    if (column < inputs) {
#pragma unroll
        for (u32 k = 0; k < MAX; ++k)
            if (k < classes) mine[k * inputs + column] = down[k];
        mine[classes * inputs + column] = dx_sum;
    }
    gradients[half][k_own] = dbias;
    if (k_own == 0) {
        losses[half] = loss;
        rights[half] = hits;
    }
    __syncthreads();
    mine += (u64)(classes + 1) * inputs;
    if (threadIdx.x < classes) {
        float sum = 0.0f;
        for (u32 h = 0; h < 32; ++h) sum += gradients[h][threadIdx.x];
        mine[threadIdx.x] = sum;
    }
    if (threadIdx.x == 32) {
        float sum = 0.0f;
        u32 whole = 0;
        for (u32 h = 0; h < 32; ++h) {
            sum += losses[h];
            whole += rights[h];
        }
        mine[classes] = sum;
        ((u32*)mine)[classes + 1] = whole;
    }
}

#define CLASSIFIER_FUSED(NAME, MAX)                                                                    \
    extern "C" __global__ void __launch_bounds__(512)                                                  \
    NAME(const float* __restrict__ x, const float* __restrict__ w, const float* __restrict__ b,        \
         const u8* __restrict__ labels, float* __restrict__ dx, float* __restrict__ partial, u64 rows, \
         u32 each, u32 inputs, u32 classes) {                                                          \
        classifier_fused<MAX>(x, w, b, labels, dx, partial, rows, each, inputs, classes);              \
    }

CLASSIFIER_FUSED(classifier_fused_12, 12)
CLASSIFIER_FUSED(classifier_fused_16, 16)

extern "C" __global__ void __launch_bounds__(512)
classifier_fused_sums(const float* __restrict__ partial, float* __restrict__ dw,
                        float* __restrict__ dx_sums, float* __restrict__ db, float* __restrict__ loss,
                        u32* __restrict__ hits, u32 parts, u64 rows, u32 inputs, u32 classes) {
    __shared__ float all[16][32];
    const u32 lane = threadIdx.x, slice = threadIdx.y;
    const u64 weights = (u64)classes * inputs, biases = weights + inputs, count = biases + classes + 2;
    const u64 at = 32 * (u64)blockIdx.x + lane;
    // Each slice sums its share of the parts in order; then the slices are added.
    const u32 share = (parts + 15) / 16, begin = share * slice,
              end = begin + share < parts ? begin + share : parts;
    const bool counts = at == count - 1;
    float sum = 0.0f;
    u32 whole = 0;
    if (at < count) {
#pragma unroll 8
        for (u32 p = begin; p < end; ++p) {
            const float part = partial[count * p + at];
            if (counts) whole += (u32)__float_as_int(part);
            else sum += part;
        }
    }
    all[slice][lane] = counts ? __int_as_float((int)whole) : sum;
    __syncthreads();
    if (slice > 0 || at >= count) return;
    if (counts) {
        for (u32 s = 1; s < 16; ++s) whole += (u32)__float_as_int(all[s][lane]);
        *hits = whole;
        return;
    }
    for (u32 s = 1; s < 16; ++s) sum += all[s][lane];
    if (at < weights) dw[at] = sum;
    else if (at < biases) dx_sums[at - weights] = sum;
    else if (at < biases + classes) db[at - biases] = sum;
    else *loss = sum / (float)rows;
}
