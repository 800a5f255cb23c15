// spin: keeps its stream busy for at least `nanoseconds` with one thread, for tests of ordering and overlap.
//
// If `times` is not null, times[0] and times[1] receive begin and end on the device's global timer, in
// nanoseconds: two kernels overlapped if their intervals do. Launch one block of one thread (more threads
// do nothing).

typedef unsigned long long u64;

static __device__ __forceinline__ u64 spin_now() {
    u64 now;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now)::"memory");
    return now;
}

extern "C" __global__ void __launch_bounds__(32)
spin(u64 nanoseconds, u64* times) {
    if (blockIdx.x != 0 || threadIdx.x != 0) return;
    const u64 begin = spin_now();
    u64 end = begin;
    while (end - begin < nanoseconds) end = spin_now();
    if (times != 0) {
        times[0] = begin;
        times[1] = end;
    }
}
