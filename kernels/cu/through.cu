// through: a classifier's last layer and its loss, there and back, in one pass over what came in.
//
//   z = x w^T + b;  row_loss[r] = log(sum_k exp(z[r, k])) - z[r, label];  dz = (softmax(z) - onehot(label)) / rows
//   dw = dz^T x;  db[k] = sum_r dz[r, k];  dx = dz w where x > 0, else 0;  dx_sums[c] = sum_r dx[r, c]
//
// with x [rows, inputs] behind a ReLU, w [classes, inputs] and b [classes]; at most 16 classes and 512 inputs. dx_sums is the bias
// gradient of the layer before. Neither z nor dz is kept.
//
// classifier_through: a block of 256 threads takes 4 rows at a time, two columns a thread, and keeps its weights and its part
// of dw in registers: x is read once, and the 4 rows meet in shared memory twice. Any grid of x. What a block has goes to
// `partial` [blocks, (classes + 1) inputs + classes + 2]: the rows of dw, dx_sums, db, its losses and, as a whole number, its hits.
// classifier_through_sums: adds them in the order of the blocks, so that the result does not depend on the order in which they
// run; block (32, 16), a grid of x for 32 elements each.
//
// A label that is no class gives a NaN loss, never a read out of bounds.

typedef unsigned char u8;
typedef unsigned int u32;
typedef unsigned long long u64;

static __device__ __forceinline__ float through_warp_sum(float value) {
    for (int lanes = 16; lanes > 0; lanes /= 2) value += __shfl_xor_sync(0xffffffffu, value, lanes);
    return value;
}

// The largest value of the lanes and the first lane that has it, the same on every lane.
static __device__ __forceinline__ void through_warp_argmax(float& value, u32& at) {
    for (int lanes = 16; lanes > 0; lanes /= 2) {
        const float other = __shfl_xor_sync(0xffffffffu, value, lanes);
        const u32 there = __shfl_xor_sync(0xffffffffu, at, lanes);
        if (other > value || (other == value && there < at)) {
            value = other;
            at = there;
        }
    }
}

// Adds 64 values over the lanes of a warp: lane l gets the sums of 2l and 2l + 1 in the first two places. Each step hands half
// of what is left to the lane across and takes the other half from it.
static __device__ __forceinline__ void through_spread(float (&values)[64]) {
    const u32 lane = threadIdx.x & 31;
#pragma unroll
    for (u32 lanes = 16, left = 64; lanes > 0; lanes /= 2, left /= 2) {
        const bool upper = (lane & lanes) != 0;
#pragma unroll
        for (u32 i = 0; i < 32; ++i) {
            if (i < left / 2) {
                const float own = upper ? values[i + left / 2] : values[i];
                const float other = upper ? values[i] : values[i + left / 2];
                values[i] = own + __shfl_xor_sync(0xffffffffu, other, lanes);
            }
        }
    }
}

static __device__ __forceinline__ float2 through_load(const float* row, u32 column, u32 cols, bool wide) {
    if (wide) return *(const float2*)(row + column);
    return make_float2(column < cols ? row[column] : 0.0f, column + 1 < cols ? row[column + 1] : 0.0f);
}

// Four rows from `first` on; zeros behind the end.
static __device__ __forceinline__ void through_rows(float2 (&to)[4], const float* x, u64 first, u64 rows, u32 column, u32 cols,
                                                    bool wide) {
#pragma unroll
    for (u32 r = 0; r < 4; ++r)
        to[r] = first + r < rows ? through_load(x + (first + r) * cols, column, cols, wide) : make_float2(0.0f, 0.0f);
}

extern "C" __global__ void __launch_bounds__(256)
classifier_through(const float* __restrict__ x, const float* __restrict__ w, const float* __restrict__ b,
                   const u8* __restrict__ labels, float* __restrict__ dx, float* __restrict__ partial, u64 rows, u32 inputs,
                   u32 classes) {
    __shared__ float parts[8][64];
    __shared__ __align__(16) float gradients[4][16];
    __shared__ float biases[4][16], losses[4];
    __shared__ u32 rights[4];
    const u32 thread = threadIdx.x, lane = thread & 31, warp = thread / 32, column = 2 * thread;
    const bool wide = inputs % 2 == 0 && column < inputs && (((u64)x | (u64)w | (u64)dx) & 7) == 0;
    const float inverse_rows = 1.0f / (float)rows;
    const float nan = __int_as_float(0x7fffffff), infinity = __int_as_float(0x7f800000);
    float2 weights[16], dweights[16], dx_sums = make_float2(0.0f, 0.0f), value[4], next[4];
    const u64 stride = 4 * (u64)gridDim.x;
    through_rows(next, x, 4 * (u64)blockIdx.x, rows, column, inputs, wide);
#pragma unroll
    for (u32 k = 0; k < 16; ++k) {
        weights[k] = dweights[k] = make_float2(0.0f, 0.0f);
        if (k < classes) weights[k] = through_load(w + k * inputs, column, inputs, wide);
    }
    const float bias = lane < classes ? b[lane] : 0.0f;
    float loss = 0.0f, dbias = 0.0f;
    u32 hits = 0;
    for (u64 first = 4 * (u64)blockIdx.x; first < rows; first += stride) {
        // The next rows are on their way while these are worked on.
#pragma unroll
        for (u32 r = 0; r < 4; ++r) value[r] = next[r];
        through_rows(next, x, first + stride, rows, column, inputs, wide);
        const u64 row = first + warp;
        const u32 label = warp < 4 && row < rows ? labels[row] : 0;
        float sums[64];
#pragma unroll
        for (u32 k = 0; k < 16; ++k) {
#pragma unroll
            for (u32 r = 0; r < 4; ++r) sums[16 * r + k] = value[r].x * weights[k].x + value[r].y * weights[k].y;
        }
        through_spread(sums);
        parts[warp][2 * lane] = sums[0];
        parts[warp][2 * lane + 1] = sums[1];
        __syncthreads();
        // Here a warp is a row, and a lane a class.
        if (warp < 4) {
            float z = -infinity;
            if (lane < classes) {
                z = bias;
#pragma unroll
                for (u32 y = 0; y < 8; ++y) z += parts[y][16 * warp + lane];
            }
            float largest = z > -infinity ? z : -infinity;
            u32 at = z > -infinity ? lane : 0xffffffffu;
            through_warp_argmax(largest, at);
            const float power = lane < classes ? expf(z - largest) : 0.0f;
            const float sum = through_warp_sum(power);
            const bool known = label < classes;
            const float own = through_warp_sum(lane == label && known ? z : 0.0f);
            float gradient = 0.0f;
            if (row < rows) {
                if (lane < classes) gradient = known ? (power / sum - (lane == label ? 1.0f : 0.0f)) * inverse_rows : nan;
                loss += known ? logf(sum) - (own - largest) : nan;
                hits += known && at == label;
            }
            if (lane < 16) gradients[warp][lane] = gradient;
            dbias += gradient;
        }
        __syncthreads();
#pragma unroll
        for (u32 r = 0; r < 4; ++r) {
            float2 d = make_float2(0.0f, 0.0f);
#pragma unroll
            for (u32 k = 0; k < 16; k += 4) {
                if (k < classes) {
                    const float4 four = *(const float4*)&gradients[r][k];
                    const float g[4] = {four.x, four.y, four.z, four.w};
#pragma unroll
                    for (u32 i = 0; i < 4; ++i) {
                        d.x += g[i] * weights[k + i].x;
                        d.y += g[i] * weights[k + i].y;
                        dweights[k + i].x += g[i] * value[r].x;
                        dweights[k + i].y += g[i] * value[r].y;
                    }
                }
            }
            // Selected, not multiplied: a NaN gradient under a closed ReLU is a zero, as in the host code.
            d = make_float2(value[r].x > 0.0f ? d.x : 0.0f, value[r].y > 0.0f ? d.y : 0.0f);
            if (first + r < rows) {
                float* to = dx + (first + r) * inputs;
                // A plain store would be split up, to be one with those below.
                if (wide) {
                    __stcg((float2*)(to + column), d);
                } else {
                    if (column < inputs) to[column] = d.x;
                    if (column + 1 < inputs) to[column + 1] = d.y;
                }
            }
            dx_sums.x += d.x;
            dx_sums.y += d.y;
        }
    }
    float* mine = partial + ((u64)(classes + 1) * inputs + classes + 2) * blockIdx.x;
#pragma unroll
    for (u32 k = 0; k <= 16; ++k) {
        const float2 sum = k < 16 && k < classes ? dweights[k < 16 ? k : 0] : dx_sums;
        if (k <= classes) {
            if (column < inputs) mine[k * inputs + column] = sum.x;
            if (column + 1 < inputs) mine[k * inputs + column + 1] = sum.y;
        }
    }
    if (warp < 4) {
        if (lane < 16) biases[warp][lane] = dbias;
        if (lane == 0) {
            losses[warp] = loss;
            rights[warp] = hits;
        }
    }
    __syncthreads();
    mine += (u64)(classes + 1) * inputs;
    if (thread < classes) mine[thread] = biases[0][thread] + biases[1][thread] + biases[2][thread] + biases[3][thread];
    if (thread == 0) {
        mine[classes] = losses[0] + losses[1] + losses[2] + losses[3];
        ((u32*)mine)[classes + 1] = rights[0] + rights[1] + rights[2] + rights[3];
    }
}

extern "C" __global__ void __launch_bounds__(512)
classifier_through_sums(const float* __restrict__ partial, float* __restrict__ dw, float* __restrict__ dx_sums,
                        float* __restrict__ db, float* __restrict__ loss, u32* __restrict__ hits, u32 parts, u64 rows, u32 inputs,
                        u32 classes) {
    __shared__ float all[16][32];
    const u32 lane = threadIdx.x, slice = threadIdx.y;
    const u64 weights = (u64)classes * inputs, biases = weights + inputs, count = biases + classes + 2;
    const u64 at = 32 * (u64)blockIdx.x + lane;
    // Each slice its share of the parts, one after the other; then the slices.
    const u32 share = (parts + 15) / 16, begin = share * slice, end = begin + share < parts ? begin + share : parts;
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
