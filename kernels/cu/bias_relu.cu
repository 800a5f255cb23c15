// bias_relu: the epilogue of a linear layer, for matrix products that have none of their own.
//
// Matrices are [rows, cols], row-major. Forward, in place: z = z + bias, then max(z, 0) in bias_relu. Any grid is right.
// Backward, in place: dy = dy where activation > 0, else 0; dbias[c] = sum over rows of dy[r, c].

typedef unsigned int u32;
typedef unsigned long long u64;

template <bool RELU>
static __device__ __forceinline__ void bias_forward(float* __restrict__ z, const float* __restrict__ bias, u64 rows, u64 cols) {
    const u64 n = rows * cols;
    const u64 stride = (u64)gridDim.x * blockDim.x;
    u64 i = (u64)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    // The column is carried along: one division at the start instead of one an element.
    u64 column = i % cols;
    const u64 step = stride % cols;
    for (; i < n; i += stride) {
        const float value = z[i] + bias[column];
        // A NaN stays one; fmaxf would hide it.
        z[i] = RELU && value < 0.0f ? 0.0f : value;
        column += step;
        if (column >= cols) column -= cols;
    }
}

extern "C" __global__ void __launch_bounds__(256)
bias_add(float* z, const float* bias, u64 rows, u64 cols) {
    bias_forward<false>(z, bias, rows, cols);
}

extern "C" __global__ void __launch_bounds__(256)
bias_relu(float* z, const float* bias, u64 rows, u64 cols) {
    bias_forward<true>(z, bias, rows, cols);
}

// Grid (ceil(cols / 32), chunks), block (32, 8): a block sums 32 columns over one chunk of rows. With more than one chunk
// the sums meet in `partial` [chunks, cols], and the last block of a column strip adds them in the order of the chunks: the
// result does not depend on the order in which blocks run. `tickets` [ceil(cols / 32)] is zero before and after a launch.
// `activation` may be null: then dy is only summed. Two launches that can overlap need two `partial` and `tickets`.
extern "C" __global__ void __launch_bounds__(256)
relu_bias_backward(float* __restrict__ dy, const float* __restrict__ activation, float* __restrict__ dbias,
                   float* __restrict__ partial, u32* __restrict__ tickets, u64 rows, u64 cols) {
    __shared__ float sums[8][33];
    __shared__ bool last;
    const u64 column = (u64)blockIdx.x * 32 + threadIdx.x;
    const u64 chunk = (rows + gridDim.y - 1) / gridDim.y;
    const u64 begin = chunk * blockIdx.y;
    const u64 end = begin + chunk < rows ? begin + chunk : rows;
    float sum = 0.0f;
    if (column < cols) {
        for (u64 r = begin + threadIdx.y; r < end; r += 8) {
            const u64 i = r * cols + column;
            float value = dy[i];
            // Selected, not multiplied: a NaN gradient under a closed ReLU is a zero, as in the host code.
            if (activation != 0 && !(activation[i] > 0.0f)) {
                value = 0.0f;
                dy[i] = 0.0f;
            }
            sum += value;
        }
    }
    sums[threadIdx.y][threadIdx.x] = sum;
    __syncthreads();
    if (threadIdx.y == 0) {
        for (int y = 1; y < 8; ++y) sum += sums[y][threadIdx.x];
        if (column < cols) (gridDim.y == 1 ? dbias : partial + cols * blockIdx.y)[column] = sum;
        __threadfence();
    }
    if (gridDim.y == 1) return;
    __syncthreads();
    if (threadIdx.x == 0 && threadIdx.y == 0) last = atomicAdd(&tickets[blockIdx.x], 1u) == gridDim.y - 1;
    __syncthreads();
    if (!last) return;
    __threadfence();
    if (threadIdx.y == 0) {
        float total = 0.0f;
        if (column < cols) {
            for (u32 y = 0; y < gridDim.y; ++y) total += *(volatile float*)&partial[cols * y + column];
            dbias[column] = total;
        }
        if (threadIdx.x == 0) tickets[blockIdx.x] = 0;
    }
}
