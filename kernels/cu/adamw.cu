// adamw: Adam with decoupled weight decay over one flat buffer of parameters (Loshchilov and Hutter 2019,
// Algorithm 2):
//   m = beta1 m + (1 - beta1) g;  s = beta2 s + (1 - beta2) g^2
//   w = w - lr ( (m / (1 - beta1^t)) / (sqrt(s / (1 - beta2^t)) + eps) + decay w )
//
// t = step + *counter, counted from 1. `counter` may be null. It serves steps replayed from a graph,
// whose arguments are frozen: pass step = 1 and let adamw_tick count the finished steps. The caller
// computes rest = 1 - beta and ln(beta) in f64: 1 - 0.999f in f32 is off by 1e-5. Works with any grid.

typedef unsigned int u32;
typedef unsigned long long u64;

extern "C" __global__ void __launch_bounds__(256)
adamw(float* __restrict__ w, float* __restrict__ m, float* __restrict__ s, const float* __restrict__ g,
      u64 n, float lr, float beta1, float rest1, float ln_beta1, float beta2, float rest2, float ln_beta2,
      float eps, float decay, u32 step, const u32* __restrict__ counter) {
    const float t = (float)(step + (counter == 0 ? 0 : *counter));
    // 1 - beta^t = -expm1(t ln beta), without the cancellation of 1 - powf for beta near 1.
    const float scale1 = 1.0f / -expm1f(t * ln_beta1);
    const float scale2 = 1.0f / -expm1f(t * ln_beta2);
    const u64 stride = (u64)gridDim.x * blockDim.x;
    for (u64 i = (u64)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += stride) {
        const float mi = beta1 * m[i] + rest1 * g[i];
        const float si = beta2 * s[i] + rest2 * g[i] * g[i];
        m[i] = mi;
        s[i] = si;
        w[i] -= lr * (mi * scale1 / (sqrtf(si * scale2) + eps) + decay * w[i]);
    }
}

// Counts one finished step; uses one thread.
extern "C" __global__ void __launch_bounds__(32)
adamw_tick(u32* counter) {
    if (blockIdx.x == 0 && threadIdx.x == 0) *counter += 1;
}
