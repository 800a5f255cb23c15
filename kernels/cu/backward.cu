// backward: the backward pass of a linear layer, except its products: ReLU masks and sums over the rows
// of a batch.
//
// relu_bias_backward, in place:  dy = dy where activation > 0, else 0;  dbias[c] = sum_r dy[r, c].  With
// a null `activation`, dy is only summed.  relu_bias_backward_transposed leaves dy unchanged and writes
// the result, [cols, rows], to `transposed`, for a product that needs the rows to be contiguous.
//
// classifier_backward: from the gradient of a classifier's logits [rows, classes] through its last layer
// and the ReLU before it. x [rows, inputs] is the output of the ReLU, w is [classes, inputs]:
//   dw = dlogits^T x;  db[k] = sum_r dlogits[r, k]
//   dx = dlogits w where x > 0, else 0;  dx_sums[c] = sum_r dx[r, c]
// dx_sums is the bias gradient of the previous layer. At most 16 or 32 classes, by the kernel's name.
//
// Grid (ceil(columns / 64), chunks), block (32, 16). A block takes a strip of 64 columns, two per thread,
// over one chunk of rows, one row per warp. With more than one chunk, the sums of each chunk go to
// `partial`, and the last block of a strip adds them in the order of the chunks, so the result does not
// depend on the order in which blocks run. `counters`, one per strip, are zero before and after a launch.
// Launches that can overlap need separate `partial` and `counters`.

typedef unsigned int u32;
typedef unsigned long long u64;

// The two columns of a thread in a row of `cols`; `wide` if both exist and are 8-byte aligned.
static __device__ __forceinline__ float2 strip_load(const float* row, u64 column, u64 cols, bool wide) {
    if (wide) return *(const float2*)(row + column);
    return make_float2(column < cols ? row[column] : 0.0f, column + 1 < cols ? row[column + 1] : 0.0f);
}

static __device__ __forceinline__ void strip_store(float* row, u64 column, u64 cols, bool wide,
                                                   float2 value) {
    if (wide) {
        *(float2*)(row + column) = value;
        return;
    }
    if (column < cols) row[column] = value.x;
    if (column + 1 < cols) row[column + 1] = value.y;
}

// Sums `count` pairs of each thread over the 16 warps; sum k of a column goes to to[k * cols + column].
// All threads of the block must call it.
template <u32 MAX>
static __device__ __forceinline__ void strip_sums(const float2 (&mine)[MAX], u32 count, float* to,
                                                  u64 cols) {
    const u32 FOUR = MAX < 4 ? MAX : 4;
    __shared__ float2 all[16][FOUR][32];
    const u32 thread = threadIdx.y * 32 + threadIdx.x, k = thread / 64, c = thread % 64;
    const u64 column = (u64)blockIdx.x * 64 + c;
#pragma unroll
    for (u32 four = 0; four < MAX; four += 4) {
        if (four < count) {
            __syncthreads();
#pragma unroll
            for (u32 j = 0; j < 4; ++j)
                if (four + j < MAX) all[threadIdx.y][j][threadIdx.x] = mine[four + j];
            __syncthreads();
            if (k < 4 && four + k < count && column < cols) {
                float sum = 0.0f;
#pragma unroll
                for (u32 y = 0; y < 16; ++y) sum += c % 2 == 0 ? all[y][k][c / 2].x : all[y][k][c / 2].y;
                to[(four + k) * cols + column] = sum;
            }
        }
    }
}

// Whether this block is the last of its strip; it can then read the partial sums of all others, bypassing
// the L1 cache. All threads of the block must call it.
static __device__ __forceinline__ bool strip_is_last(u32* counters) {
    __shared__ bool last;
    __threadfence();
    __syncthreads();
    if (threadIdx.x == 0 && threadIdx.y == 0) {
        last = atomicAdd(&counters[blockIdx.x], 1u) == gridDim.y - 1;
        if (last) counters[blockIdx.x] = 0;
    }
    __syncthreads();
    if (last) __threadfence();
    return last;
}

// The sum of element i over all parts, in order.
static __device__ __forceinline__ float strip_total(const float* partial, u64 part, u64 i) {
    float total = 0.0f;
#pragma unroll 8
    for (u32 y = 0; y < gridDim.y; ++y) total += __ldcg(&partial[part * y + i]);
    return total;
}

// Writes 128 rows from `first` on, up to `end`, to `to` [cols, rows]; d[j] is row threadIdx.y + 16 j. All
// threads of the block must call it.
static __device__ __forceinline__ void strip_transpose(const float2 (&d)[8], float* to, u64 first, u64 end,
                                                       u64 rows, u64 cols) {
    // Column 2l is at l, column 2l + 1 at 32 + l: no bank conflicts, neither along rows nor along columns.
    __shared__ float tile[64][129];
    const u32 lane = threadIdx.x, warp = threadIdx.y;
    // Other threads may still read the previous rows.
    __syncthreads();
#pragma unroll
    for (u32 j = 0; j < 8; ++j) {
        tile[lane][warp + 16 * j] = d[j].x;
        tile[32 + lane][warp + 16 * j] = d[j].y;
    }
    __syncthreads();
#pragma unroll
    for (u32 i = 0; i < 4; ++i) {
        const u32 place = warp + 16 * i;
        const u64 column = (u64)blockIdx.x * 64 + place % 32 * 2 + place / 32;
        if (column < cols) {
            float* line = to + column * rows + first;
#pragma unroll
            for (u32 r = lane; r < 128; r += 32)
                if (first + r < end) line[r] = tile[place][r];
        }
    }
}

// partial is [chunks, cols]. `to` is [cols, rows] if TRANSPOSED, else dy itself.
template <bool TRANSPOSED>
static __device__ __forceinline__ void relu_bias_back(const float* dy, const float* activation, float* to,
                                                      float* dbias, float* partial, u32* counters, u64 rows,
                                                      u64 cols) {
    const u64 column = (u64)blockIdx.x * 64 + 2 * threadIdx.x;
    const bool wide = cols % 2 == 0 && column < cols && (((u64)dy | (u64)activation) & 7) == 0;
    const u64 chunk = (rows + gridDim.y - 1) / gridDim.y;
    const u64 begin = chunk * blockIdx.y;
    const u64 end = begin + chunk < rows ? begin + chunk : rows;
    float2 sums[1] = {make_float2(0.0f, 0.0f)};
    // Eight rows in flight per warp.
    for (u64 first = begin; first < end; first += 128) {
        float2 d[8], a[8];
#pragma unroll
        for (u32 j = 0; j < 8; ++j) {
            const u64 r = first + threadIdx.y + 16 * j;
            d[j] = a[j] = make_float2(0.0f, 0.0f);
            if (r < end) {
                d[j] = strip_load(dy + r * cols, column, cols, wide);
                if (activation != 0) a[j] = strip_load(activation + r * cols, column, cols, wide);
            }
        }
#pragma unroll
        for (u32 j = 0; j < 8; ++j) {
            const u64 r = first + threadIdx.y + 16 * j;
            if (r < end) {
                if (activation != 0) {
                    // Select instead of multiply: a NaN gradient under a closed ReLU becomes 0, as on the
                    // host.
                    d[j] = make_float2(a[j].x > 0.0f ? d[j].x : 0.0f, a[j].y > 0.0f ? d[j].y : 0.0f);
                    if (!TRANSPOSED) strip_store(to + r * cols, column, cols, wide, d[j]);
                }
                sums[0].x += d[j].x;
                sums[0].y += d[j].y;
            }
        }
        if (TRANSPOSED) strip_transpose(d, to, first, end, rows, cols);
    }
    const bool whole = gridDim.y == 1;
    strip_sums(sums, 1, whole ? dbias : partial + cols * blockIdx.y, cols);
    if (whole || !strip_is_last(counters)) return;
    const u64 mine = (u64)blockIdx.x * 64 + threadIdx.y * 32 + threadIdx.x;
    if (threadIdx.y < 2 && mine < cols) dbias[mine] = strip_total(partial, cols, mine);
}

extern "C" __global__ void __launch_bounds__(512)
relu_bias_backward(float* __restrict__ dy, const float* __restrict__ activation, float* __restrict__ dbias,
               float* __restrict__ partial, u32* __restrict__ counters, u64 rows, u64 cols) {
    relu_bias_back<false>(dy, activation, dy, dbias, partial, counters, rows, cols);
}

// Two blocks per multiprocessor: one loads while the other stores.
extern "C" __global__ void __launch_bounds__(512, 2)
relu_bias_backward_transposed(const float* __restrict__ dy, const float* __restrict__ activation,
                              float* __restrict__ transposed, float* __restrict__ dbias,
                              float* __restrict__ partial, u32* __restrict__ counters, u64 rows,
                              u64 cols) {
    relu_bias_back<true>(dy, activation, transposed, dbias, partial, counters, rows, cols);
}

// The warp's rows among the 64 from `first` on; zeros past the end.
static __device__ __forceinline__ void strip_rows(float2 (&to)[4], const float* x, u64 first, u64 end,
                                                  u64 column, u64 cols, bool wide) {
#pragma unroll
    for (u32 j = 0; j < 4; ++j) {
        const u64 r = first + threadIdx.y + 16 * j;
        to[j] = r < end ? strip_load(x + r * cols, column, cols, wide) : make_float2(0.0f, 0.0f);
    }
}

// partial is [chunks, (classes + 1) inputs + classes]: the rows of dw, then dx_sums, then db.
template <u32 MAX>
static __device__ __forceinline__ void classifier_back(const float* x, const float* w, const float* dlogits,
                                                       float* dx, float* dw, float* db, float* dx_sums,
                                                       float* partial, u32* counters, u64 rows, u64 inputs,
                                                       u32 classes) {
    // The gradients of 64 rows, padded with zeros to MAX classes.
    __shared__ __align__(16) float gradients[64][MAX];
    __shared__ float biases[16][32];
    const u32 lane = threadIdx.x, warp = threadIdx.y, thread = warp * 32 + lane;
    const u64 column = (u64)blockIdx.x * 64 + 2 * lane;
    const bool wide = inputs % 2 == 0 && column < inputs && (((u64)x | (u64)dx) & 7) == 0;
    const u64 chunk = (rows + gridDim.y - 1) / gridDim.y;
    const u64 begin = chunk * blockIdx.y;
    const u64 end = begin + chunk < rows ? begin + chunk : rows;
    float2 weights[MAX], dweights[MAX], sums[1] = {make_float2(0.0f, 0.0f)};
#pragma unroll
    for (u32 k = 0; k < MAX; ++k) {
        weights[k] = dweights[k] = make_float2(0.0f, 0.0f);
        if (k < classes) weights[k] = strip_load(w + k * inputs, column, inputs, false);
    }
    float bias = 0.0f;
    float2 value[4], next[4];
    strip_rows(next, x, begin, end, column, inputs, wide);
    for (u64 first = begin; first < end; first += 64) {
        const u32 count = (u32)(end - first < 64 ? end - first : 64);
        // Load the next rows while these are processed.
#pragma unroll
        for (u32 j = 0; j < 4; ++j) value[j] = next[j];
        strip_rows(next, x, first + 64, end, column, inputs, wide);
        __syncthreads();
        for (u32 i = thread; i < count * MAX; i += 512) {
            const u32 k = i % MAX;
            gradients[i / MAX][k] = k < classes ? dlogits[(first + i / MAX) * classes + k] : 0.0f;
        }
        __syncthreads();
#pragma unroll
        for (u32 j = 0; j < 4; ++j) {
            const u32 r = warp + 16 * j;
            if (r < count) {
                float2 d = make_float2(0.0f, 0.0f);
#pragma unroll
                for (u32 k = 0; k < MAX; k += 4) {
                    if (k < classes) {
                        const float4 four = *(const float4*)&gradients[r][k];
                        const float g[4] = {four.x, four.y, four.z, four.w};
#pragma unroll
                        for (u32 i = 0; i < 4; ++i) {
                            d.x += g[i] * weights[k + i].x;
                            d.y += g[i] * weights[k + i].y;
                            dweights[k + i].x += g[i] * value[j].x;
                            dweights[k + i].y += g[i] * value[j].y;
                        }
                    }
                }
                if (lane < classes) bias += gradients[r][lane];
                // Select instead of multiply: a NaN gradient under a closed ReLU becomes 0, as on the host.
                d = make_float2(value[j].x > 0.0f ? d.x : 0.0f, value[j].y > 0.0f ? d.y : 0.0f);
                strip_store(dx + (first + r) * inputs, column, inputs, wide, d);
                sums[0].x += d.x;
                sums[0].y += d.y;
            }
        }
    }
    const bool whole = gridDim.y == 1;
    const u64 part = (classes + 1) * inputs + classes;
    float* mine = partial + part * blockIdx.y;
    strip_sums(dweights, classes, whole ? dw : mine, inputs);
    strip_sums(sums, 1, whole ? dx_sums : mine + classes * inputs, inputs);
    if (blockIdx.x == 0) {
        biases[warp][lane] = bias;
        __syncthreads();
        if (warp == 0 && lane < classes) {
            for (u32 y = 1; y < 16; ++y) bias += biases[y][lane];
            (whole ? db : mine + (classes + 1) * inputs)[lane] = bias;
        }
    }
    if (whole || !strip_is_last(counters)) return;
    for (u32 i = thread; i < (classes + 1) * 64; i += 512) {
        const u32 k = i / 64;
        const u64 c = (u64)blockIdx.x * 64 + i % 64;
        if (c < inputs)
            (k < classes ? dw + k * inputs : dx_sums)[c] = strip_total(partial, part, k * inputs + c);
    }
    if (blockIdx.x == 0 && thread < classes)
        db[thread] = strip_total(partial, part, (classes + 1) * inputs + thread);
}

extern "C" __global__ void __launch_bounds__(512)
classifier_backward_16(const float* x, const float* w, const float* dlogits, float* dx, float* dw,
                       float* db, float* dx_sums, float* partial, u32* counters, u64 rows, u64 inputs,
                       u32 classes) {
    classifier_back<16>(x, w, dlogits, dx, dw, db, dx_sums, partial, counters, rows, inputs, classes);
}

extern "C" __global__ void __launch_bounds__(512)
classifier_backward_32(const float* x, const float* w, const float* dlogits, float* dx, float* dw,
                       float* db, float* dx_sums, float* partial, u32* counters, u64 rows, u64 inputs,
                       u32 classes) {
    classifier_back<32>(x, w, dlogits, dx, dw, db, dx_sums, partial, counters, rows, inputs, classes);
}
