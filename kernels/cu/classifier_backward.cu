// classifier_backward: from the gradient of a classifier's logits back through its last layer and the ReLU before it.
//
//   dw = dlogits^T x;  db[k] = sum_r dlogits[r, k];  dx = dlogits w where x > 0, else 0;  dx_sums[c] = sum_r dx[r, c]
//
// x [rows, inputs] is what came in, behind the ReLU; w [classes, inputs]; dlogits [rows, classes]. dx_sums is the bias gradient
// of the layer before. At most 16 or 32 classes, by the kernel's name.

typedef unsigned int u32;
typedef unsigned long long u64;

// The sum of `value` over the 8 threads of a column, on the first of them. Whole blocks enter.
static __device__ __forceinline__ float classifier_column_sum(float value) {
    __shared__ float sums[8][33];
    __syncthreads();
    sums[threadIdx.y][threadIdx.x] = value;
    __syncthreads();
    if (threadIdx.y == 0)
        for (int y = 1; y < 8; ++y) value += sums[y][threadIdx.x];
    return value;
}

// Grid (ceil(inputs / 32), chunks), block (32, 8): a block takes 32 columns of x over one chunk of rows. With more than one
// chunk the sums meet in `partial` [chunks, (classes + 1) inputs + classes], and the last block of a strip of columns adds
// them in the order of the chunks: the result does not depend on the order in which blocks run. `tickets`
// [ceil(inputs / 32)] is zero before and after a launch. Two launches that can overlap need two `partial` and `tickets`.
template <int MOST>
static __device__ __forceinline__ void classifier_back(const float* x, const float* w, const float* dlogits, float* dx, float* dw,
                                                       float* db, float* dx_sums, float* partial, u32* tickets, u64 rows,
                                                       u64 inputs, u32 classes) {
    __shared__ bool last;
    const u32 lane = threadIdx.x;
    const u64 column = (u64)blockIdx.x * 32 + lane;
    const bool inside = column < inputs;
    const u64 chunk = (rows + gridDim.y - 1) / gridDim.y;
    const u64 begin = chunk * blockIdx.y;
    const u64 end = begin + chunk < rows ? begin + chunk : rows;
    float weights[MOST], dweights[MOST];
#pragma unroll
    for (u32 k = 0; k < MOST; ++k) {
        weights[k] = inside && k < classes ? w[k * inputs + column] : 0.0f;
        dweights[k] = 0.0f;
    }
    float sum = 0.0f, bias = 0.0f;
    for (u64 r = begin + threadIdx.y; r < end; r += 8) {
        const float* gradient = dlogits + r * classes;
        const float value = inside ? x[r * inputs + column] : 0.0f;
        float d = 0.0f;
#pragma unroll
        for (u32 k = 0; k < MOST; ++k) {
            if (k < classes) {
                const float g = gradient[k];
                d += g * weights[k];
                dweights[k] += g * value;
            }
        }
        if (lane < classes) bias += gradient[lane];
        if (inside) {
            // Selected, not multiplied: a NaN gradient under a closed ReLU is a zero, as in the host code.
            d = value > 0.0f ? d : 0.0f;
            dx[r * inputs + column] = d;
            sum += d;
        }
    }
    const bool whole = gridDim.y == 1;
    const u64 width = (classes + 1) * inputs + classes;
    float* mine = partial + width * blockIdx.y;
#pragma unroll
    for (u32 k = 0; k < MOST; ++k) {
        if (k < classes) {
            const float total = classifier_column_sum(dweights[k]);
            if (threadIdx.y == 0 && inside) (whole ? dw : mine)[k * inputs + column] = total;
        }
    }
    const float columns = classifier_column_sum(sum);
    if (threadIdx.y == 0 && inside) (whole ? dx_sums : mine + classes * inputs)[column] = columns;
    const float biases = classifier_column_sum(bias);
    if (threadIdx.y == 0 && blockIdx.x == 0 && lane < classes) (whole ? db : mine + (classes + 1) * inputs)[lane] = biases;
    if (whole) return;
    __threadfence();
    __syncthreads();
    if (lane == 0 && threadIdx.y == 0) last = atomicAdd(&tickets[blockIdx.x], 1u) == gridDim.y - 1;
    __syncthreads();
    if (!last) return;
    __threadfence();
    for (u32 k = threadIdx.y; k < classes + 2; k += 8) {
        // The rows of dw, then dx_sums, then db.
        const bool is_bias = k == classes + 1;
        if (is_bias ? blockIdx.x != 0 || lane >= classes : !inside) continue;
        const u64 i = k * inputs + (is_bias ? lane : column);
        float* to = is_bias ? db + lane : (k == classes ? dx_sums : dw + k * inputs) + column;
        float total = 0.0f;
        for (u32 y = 0; y < gridDim.y; ++y) total += *(volatile float*)&partial[width * y + i];
        *to = total;
    }
    if (lane == 0 && threadIdx.y == 0) tickets[blockIdx.x] = 0;
}

extern "C" __global__ void __launch_bounds__(256)
classifier_backward_16(const float* x, const float* w, const float* dlogits, float* dx, float* dw, float* db, float* dx_sums,
                       float* partial, u32* tickets, u64 rows, u64 inputs, u32 classes) {
    classifier_back<16>(x, w, dlogits, dx, dw, db, dx_sums, partial, tickets, rows, inputs, classes);
}

extern "C" __global__ void __launch_bounds__(256)
classifier_backward_32(const float* x, const float* w, const float* dlogits, float* dx, float* dw, float* db, float* dx_sums,
                       float* partial, u32* tickets, u64 rows, u64 inputs, u32 classes) {
    classifier_back<32>(x, w, dlogits, dx, dw, db, dx_sums, partial, tickets, rows, inputs, classes);
}
