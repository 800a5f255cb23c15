// The subset of CUDA C++ that the kernels of ../cu need to run on the host under the sanitizers. Shared
// memory is a static variable, because blocks run one after the other. fibers.h runs the threads and
// describes what is detected.
#pragma once
#include "fibers.h"

#include <cmath>
#include <cstdint>
#include <cstring>

#define __global__
#define __device__
#define __shared__ static
#define __forceinline__ inline
#define __noinline__
#define __align__(n) __attribute__((aligned(n)))
#define __launch_bounds__(...)
#define __grid_constant__

struct alignas(8) float2 { float x, y; };
struct alignas(16) float4 { float x, y, z, w; };
struct alignas(8) uint2 { unsigned x, y; };
struct alignas(16) uint4 { unsigned x, y, z, w; };
inline float2 make_float2(float x, float y) { return {x, y}; }
inline float4 make_float4(float x, float y, float z, float w) { return {x, y, z, w}; }
inline uint2 make_uint2(unsigned x, unsigned y) { return {x, y}; }
inline uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w) { return {x, y, z, w}; }

inline void __syncthreads(EMULATE_LINE) { emulate::synchronise(emulate::block_barrier, file, line); }
inline void __syncwarp(EMULATE_LINE) {
    emulate::synchronise(emulate::warp_barrier[emulate::me / 32], file, line);
}
inline void __threadfence() { __atomic_thread_fence(__ATOMIC_SEQ_CST); }
inline unsigned long long __shfl_sync(unsigned, unsigned long long value, int lane, EMULATE_LINE) {
    return emulate::shuffle(value, (unsigned)lane, file, line);
}
inline float __shfl_xor_sync(unsigned, float value, int lanes, EMULATE_LINE) {
    return emulate::shuffle(value, emulate::me ^ (unsigned)lanes, file, line);
}
inline unsigned __shfl_xor_sync(unsigned, unsigned value, int lanes, EMULATE_LINE) {
    return emulate::shuffle(value, emulate::me ^ (unsigned)lanes, file, line);
}
inline unsigned __ballot_sync(unsigned, bool vote, EMULATE_LINE) { return emulate::ballot(vote, file, line); }
inline int __popc(unsigned bits) { return __builtin_popcount(bits); }
template <typename T>
T __ldcg(const T* at) { return *at; }
template <typename T>
T __ldcs(const T* at) { return *at; }
template <typename T>
T __ldg(const T* at) { return *at; }
template <typename T>
void __stcg(T* at, T value) { *at = value; }
inline float __int_as_float(int bits) { float value; memcpy(&value, &bits, 4); return value; }
inline int __float_as_int(float value) { int bits; memcpy(&bits, &value, 4); return bits; }
inline float __fadd_rn(float a, float b) { return a + b; }
inline float __fsub_rn(float a, float b) { return a - b; }
inline float __fmul_rn(float a, float b) { return a * b; }
inline double __dadd_rn(double a, double b) { return a + b; }
inline double __dsub_rn(double a, double b) { return a - b; }
inline double __dmul_rn(double a, double b) { return a * b; }
inline unsigned __byte_perm(unsigned low, unsigned high, unsigned selector) {
    const uint64_t bytes = (uint64_t)high << 32 | low;
    unsigned picked = 0;
    for (unsigned i = 0; i < 4; ++i)
        picked |= (unsigned)(bytes >> (selector >> 4 * i & 7) * 8 & 255) << 8 * i;
    return picked;
}
inline unsigned __funnelshift_r(unsigned low, unsigned high, unsigned shift) {
    return (unsigned)(((uint64_t)high << 32 | low) >> (shift & 31));
}
template <typename T>
T atomicAdd(T* at, T value) {
    emulate::yield();
    return __atomic_fetch_add(at, value, __ATOMIC_SEQ_CST);
}
inline unsigned long long atomicMin(unsigned long long* at, unsigned long long value) {
    emulate::yield();
    unsigned long long old = __atomic_load_n(at, __ATOMIC_SEQ_CST);
    while (value < old &&
           !__atomic_compare_exchange_n(at, &old, value, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST)) {}
    return old;
}
