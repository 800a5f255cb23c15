// fill: dst[i] = value. Works with any grid.

typedef unsigned long long u64;

extern "C" __global__ void __launch_bounds__(256)
fill_f32(float* __restrict__ dst, u64 n, float value) {
    const u64 stride = (u64)gridDim.x * blockDim.x;
    for (u64 i = (u64)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += stride) dst[i] = value;
}
