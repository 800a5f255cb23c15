// sgd: momentum SGD over one flat buffer of parameters: v = momentum v + g; w = w - lr v. Works with any
// grid.

typedef unsigned long long u64;

static __device__ __forceinline__ void sgd_one(float& w, float& v, float g, float lr, float momentum) {
    v = momentum * v + g;
    w = w - lr * v;
}

extern "C" __global__ void __launch_bounds__(256)
sgd(float* __restrict__ w, float* __restrict__ v, const float* __restrict__ g, u64 n, float lr,
    float momentum) {
    const u64 stride = (u64)gridDim.x * blockDim.x;
    const u64 first = (u64)blockIdx.x * blockDim.x + threadIdx.x;
    u64 done = 0;
    if ((((u64)w | (u64)v | (u64)g) & 15) == 0) {
        const u64 quads = n / 4;
        for (u64 q = first; q < quads; q += stride) {
            float4 wq = ((float4*)w)[q], vq = ((float4*)v)[q];
            const float4 gq = ((const float4*)g)[q];
            sgd_one(wq.x, vq.x, gq.x, lr, momentum);
            sgd_one(wq.y, vq.y, gq.y, lr, momentum);
            sgd_one(wq.z, vq.z, gq.z, lr, momentum);
            sgd_one(wq.w, vq.w, gq.w, lr, momentum);
            ((float4*)v)[q] = vq;
            ((float4*)w)[q] = wq;
        }
        done = quads * 4;
    }
    for (u64 i = done + first; i < n; i += stride) sgd_one(w[i], v[i], g[i], lr, momentum);
}
