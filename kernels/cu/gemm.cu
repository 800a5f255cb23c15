// gemm: C = op(A) op(B) in f32, for a linear layer y = x W^T and its two gradients, on machines without
// cuBLAS.
//
//   gemm_nt  C[m, n] = sum_k A[m, k] B[n, k]   y  = x W^T    optional: + bias[n] and max(., 0)
//   gemm_nn  C[m, n] = sum_k A[m, k] B[k, n]   dx = dy W     optional: 0 where mask[m, n] <= 0
//   gemm_tn  C[m, n] = sum_k A[k, m] B[k, n]   dW = dy^T x   optional: dbias[m] = sum_k A[k, m]
//
// All matrices are dense and row-major, of any shape. A block computes a tile of TILE x TILE elements of
// C and walks k in steps of DEPTH with two buffers in shared memory: while one is multiplied, the next is
// loaded into registers. A thread holds ROWS x COLS elements of C in registers. Edges are padded with
// zeros in shared memory. One block sums a whole tile in the order of k, so the result does not depend on
// the order in which blocks run.
//
// Grid (ceil(n / TILE), ceil(m / TILE)). TILE 32 with 128 threads is for small products, 64 and 128 with
// 256 threads for larger ones: choose the largest tile that still gives every multiprocessor a block.

typedef unsigned int u32;
typedef unsigned long long u64;

// A TILE x DEPTH piece of an operand in registers, between device and shared memory. Element (row, k) of
// the operand is at row * k_count + k if K_FAST, else at k * row_count + row; consecutive threads read
// consecutive addresses.
template <int TILE, int DEPTH, int THREADS, bool K_FAST>
struct GemmPiece {
    static const int FAST = K_FAST ? DEPTH : TILE;
    static const int SKIP = THREADS / FAST;
    static const int COUNT = TILE * DEPTH / THREADS;
    float held[COUNT];

    __device__ __forceinline__ void read(const float* __restrict__ from, u64 row_count, u64 k_count, u64 row0,
                                         u64 k0) {
        const u64 pitch = K_FAST ? k_count : row_count;
        const u64 fast = (K_FAST ? k0 : row0) + threadIdx.x % FAST;
        const u64 slow = (K_FAST ? row0 : k0) + threadIdx.x / FAST;
        const float* at = from + slow * pitch + fast;
        const u64 left =
            (K_FAST ? row_count : k_count) > slow && fast < pitch ? (K_FAST ? row_count : k_count) - slow : 0;
#pragma unroll
        for (int i = 0; i < COUNT; ++i) held[i] = (u64)i * SKIP < left ? at[i * SKIP * pitch] : 0.0f;
    }

    __device__ __forceinline__ void store(float (*to)[TILE + 4]) const {
        const u32 fast = threadIdx.x % FAST, slow = threadIdx.x / FAST;
#pragma unroll
        for (int i = 0; i < COUNT; ++i) {
            if (K_FAST) to[fast][slow + i * SKIP] = held[i];
            else to[slow + i * SKIP][fast] = held[i];
        }
    }
};

// The position of element i of a thread's share along one side of the tile: runs of at most four
// neighbours, so that a warp's 16-byte reads of shared memory have no bank conflicts.
template <int TILE, int SHARE>
static __device__ __forceinline__ u32 gemm_place(u32 thread, int i) {
    const int RUN = SHARE < 4 ? SHARE : 4;
    return i / RUN * (TILE / (SHARE / RUN)) + thread * RUN + i % RUN;
}

template <int TILE, int DEPTH, int ROWS, int COLS, bool A_K_FAST, bool B_K_FAST>
static __device__ __forceinline__ void gemm_tile(const float* __restrict__ a, const float* __restrict__ b,
                                                 float* __restrict__ c, u64 m, u64 n, u64 k,
                                                 const float* __restrict__ bias, int relu,
                                                 const float* __restrict__ mask, float* __restrict__ dbias) {
    const int ACROSS = TILE / COLS;
    const int THREADS = TILE / ROWS * ACROSS;
    __shared__ __align__(16) float as[2][DEPTH][TILE + 4];
    __shared__ __align__(16) float bs[2][DEPTH][TILE + 4];
    const u64 row0 = (u64)blockIdx.y * TILE, col0 = (u64)blockIdx.x * TILE;
    const u32 down = threadIdx.x / ACROSS, across = threadIdx.x % ACROSS;
    // The blocks of the first column also sum the rows of op(A).
    const bool sums = dbias != 0 && blockIdx.x == 0 && threadIdx.x < TILE;
    float sum = 0.0f;
    float total[ROWS][COLS] = {};

    GemmPiece<TILE, DEPTH, THREADS, A_K_FAST> next_a;
    GemmPiece<TILE, DEPTH, THREADS, B_K_FAST> next_b;
    next_a.read(a, m, k, row0, 0);
    next_b.read(b, n, k, col0, 0);
    next_a.store(as[0]);
    next_b.store(bs[0]);
    __syncthreads();
    u32 buffer = 0;
    for (u64 k0 = 0; k0 < k; k0 += DEPTH) {
        const bool more = k0 + DEPTH < k;
        if (more) {
            next_a.read(a, m, k, row0, k0 + DEPTH);
            next_b.read(b, n, k, col0, k0 + DEPTH);
        }
// Full unrolling gains nothing and triples the compile time.
#pragma unroll 4
        for (int kk = 0; kk < DEPTH; ++kk) {
            float left[ROWS], right[COLS];
#pragma unroll
            for (int i = 0; i < ROWS; ++i) left[i] = as[buffer][kk][gemm_place<TILE, ROWS>(down, i)];
#pragma unroll
            for (int j = 0; j < COLS; ++j) right[j] = bs[buffer][kk][gemm_place<TILE, COLS>(across, j)];
#pragma unroll
            for (int i = 0; i < ROWS; ++i)
#pragma unroll
                for (int j = 0; j < COLS; ++j) total[i][j] += left[i] * right[j];
        }
        if (sums) {
            for (int kk = 0; kk < DEPTH; ++kk) sum += as[buffer][kk][threadIdx.x];
        }
        // The other buffer was last read before the barrier that ended the previous round.
        buffer ^= 1;
        if (more) {
            next_a.store(as[buffer]);
            next_b.store(bs[buffer]);
        }
        __syncthreads();
    }

    if (sums && row0 + threadIdx.x < m) dbias[row0 + threadIdx.x] = sum;
    // Values below `floor` become 0; NaNs are kept. Without a ReLU it is -infinity.
    const float floor = relu ? 0.0f : -__int_as_float(0x7f800000);
    const u32 width = n - col0 < TILE ? (u32)(n - col0) : TILE;
    float shift[COLS];
#pragma unroll
    for (int j = 0; j < COLS; ++j) {
        const u32 col = gemm_place<TILE, COLS>(across, j);
        shift[j] = bias != 0 && col < width ? bias[col0 + col] : 0.0f;
    }
#pragma unroll
    for (int i = 0; i < ROWS; ++i) {
        const u64 row = row0 + gemm_place<TILE, ROWS>(down, i);
        if (row >= m) continue;
        float* to = c + row * n + col0;
        const float* kept = mask == 0 ? 0 : mask + row * n + col0;
#pragma unroll
        for (int j = 0; j < COLS; ++j) {
            const u32 col = gemm_place<TILE, COLS>(across, j);
            if (col >= width) continue;
            const float value = total[i][j] + shift[j];
            const bool open = mask == 0 ? true : kept[col] > 0.0f;
            to[col] = value < floor || !open ? 0.0f : value;
        }
    }
}

#define GEMM_KERNELS(TILE, DEPTH, ROWS, COLS)                                                          \
    extern "C" __global__ void __launch_bounds__(TILE / ROWS * (TILE / COLS))                          \
    gemm_nt_##TILE(const float* a, const float* b, float* c, u64 m, u64 n, u64 k, const float* bias,   \
                   int relu) {                                                                         \
        gemm_tile<TILE, DEPTH, ROWS, COLS, true, true>(a, b, c, m, n, k, bias, relu, 0, 0);            \
    }                                                                                                  \
    extern "C" __global__ void __launch_bounds__(TILE / ROWS * (TILE / COLS))                          \
    gemm_nn_##TILE(const float* a, const float* b, float* c, u64 m, u64 n, u64 k, const float* mask) { \
        gemm_tile<TILE, DEPTH, ROWS, COLS, true, false>(a, b, c, m, n, k, 0, 0, mask, 0);              \
    }                                                                                                  \
    extern "C" __global__ void __launch_bounds__(TILE / ROWS * (TILE / COLS))                          \
    gemm_tn_##TILE(const float* a, const float* b, float* c, u64 m, u64 n, u64 k, float* dbias) {      \
        gemm_tile<TILE, DEPTH, ROWS, COLS, false, false>(a, b, c, m, n, k, 0, 0, 0, dbias);            \
    }

GEMM_KERNELS(32, 32, 4, 2)
GEMM_KERNELS(64, 16, 4, 4)
GEMM_KERNELS(128, 8, 8, 8)
