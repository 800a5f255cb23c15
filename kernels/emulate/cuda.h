// Just enough of CUDA C++ to run the kernels of ../cu on the host, one thread a CUDA thread, under the sanitizers.
//
// Blocks run one after the other, so shared memory is a static variable. __syncthreads is a barrier of all threads of the
// block: a barrier that some thread never reaches hangs here, as it may on a device. Warp operations need all 32 lanes.
#pragma once
#include <pthread.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <thread>
#include <vector>

#define __global__
#define __device__
#define __shared__ static
#define __forceinline__ inline
#define __align__(n) __attribute__((aligned(n)))
#define __launch_bounds__(...)
#define __grid_constant__

struct uint3 { unsigned x, y, z; };
struct alignas(8) float2 { float x, y; };
struct alignas(16) float4 { float x, y, z, w; };
struct alignas(16) uint4 { unsigned x, y, z, w; };
inline float2 make_float2(float x, float y) { return {x, y}; }
inline float4 make_float4(float x, float y, float z, float w) { return {x, y, z, w}; }
inline uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w) { return {x, y, z, w}; }

inline thread_local uint3 threadIdx, blockIdx;
inline uint3 blockDim, gridDim;

namespace emulate {
inline pthread_barrier_t block_barrier, end_barrier, warp_barrier[32];
inline uint64_t exchange[32][32];

template <typename T>
T shuffle_from(T value, unsigned from) {
    const unsigned thread = threadIdx.x + blockDim.x * threadIdx.y, warp = thread / 32, lane = thread % 32;
    memcpy(&exchange[warp][lane], &value, sizeof value);
    pthread_barrier_wait(&warp_barrier[warp]);
    memcpy(&value, &exchange[warp][from % 32], sizeof value);
    pthread_barrier_wait(&warp_barrier[warp]);
    return value;
}

inline unsigned ballot(bool vote) {
    unsigned votes = 0;
    for (unsigned lane = 0; lane < 32; ++lane) votes |= (unsigned)shuffle_from<uint64_t>(vote, lane) << lane;
    return votes;
}

template <typename T>
T shuffle_xor(T value, int lanes) {
    return shuffle_from(value, ((threadIdx.x + blockDim.x * threadIdx.y) % 32) ^ (unsigned)lanes);
}

template <typename Kernel>
void launch(uint3 grid, uint3 block, Kernel kernel) {
    const unsigned threads = block.x * block.y;
    gridDim = grid;
    blockDim = block;
    pthread_barrier_init(&block_barrier, nullptr, threads);
    pthread_barrier_init(&end_barrier, nullptr, threads);
    for (unsigned w = 0; w < threads / 32; ++w) pthread_barrier_init(&warp_barrier[w], nullptr, 32);
    std::vector<std::thread> running;
    for (unsigned t = 0; t < threads; ++t) {
        running.emplace_back([=] {
            threadIdx = {t % block.x, t / block.x, 0};
            for (unsigned y = 0; y < grid.y; ++y) {
                for (unsigned x = 0; x < grid.x; ++x) {
                    blockIdx = {x, y, 0};
                    kernel();
                    pthread_barrier_wait(&end_barrier);
                }
            }
        });
    }
    for (auto& thread : running) thread.join();
}
}  // namespace emulate

inline void __syncthreads() { pthread_barrier_wait(&emulate::block_barrier); }
inline void __syncwarp() { pthread_barrier_wait(&emulate::warp_barrier[(threadIdx.x + blockDim.x * threadIdx.y) / 32]); }
inline void __threadfence() { __atomic_thread_fence(__ATOMIC_SEQ_CST); }
inline unsigned long long __shfl_sync(unsigned, unsigned long long value, int lane) { return emulate::shuffle_from(value, (unsigned)lane); }
inline unsigned __ballot_sync(unsigned, bool vote) { return emulate::ballot(vote); }
inline int __popc(unsigned bits) { return __builtin_popcount(bits); }
inline float __shfl_xor_sync(unsigned, float value, int lanes) { return emulate::shuffle_xor(value, lanes); }
inline unsigned __shfl_xor_sync(unsigned, unsigned value, int lanes) { return emulate::shuffle_xor(value, lanes); }
template <typename T>
T __ldcg(const T* at) { return *at; }
template <typename T>
void __stcg(T* at, T value) { *at = value; }
inline float __int_as_float(int bits) { float value; memcpy(&value, &bits, 4); return value; }
inline int __float_as_int(float value) { int bits; memcpy(&bits, &value, 4); return bits; }
inline unsigned __byte_perm(unsigned low, unsigned high, unsigned selector) {
    const uint64_t bytes = (uint64_t)high << 32 | low;
    unsigned picked = 0;
    for (unsigned i = 0; i < 4; ++i) picked |= (unsigned)(bytes >> (selector >> 4 * i & 7) * 8 & 255) << 8 * i;
    return picked;
}
inline unsigned __funnelshift_r(unsigned low, unsigned high, unsigned shift) {
    return (unsigned)(((uint64_t)high << 32 | low) >> (shift & 31));
}
template <typename T>
T atomicAdd(T* at, T value) { return __atomic_fetch_add(at, value, __ATOMIC_SEQ_CST); }
inline unsigned long long atomicMin(unsigned long long* at, unsigned long long value) {
    unsigned long long old = __atomic_load_n(at, __ATOMIC_SEQ_CST);
    while (value < old && !__atomic_compare_exchange_n(at, &old, value, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST)) {}
    return old;
}
