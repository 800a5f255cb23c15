// Runs the threads of a block as fibers of one host thread. Each runs until it reaches a barrier, a warp
// operation or an atomic; then another one continues. Blocks run one after the other.
//
// For the thread sanitizer, each fiber has its own clock, and only a barrier, an atomic, or the begin and end
// of a block orders two fibers. Unordered accesses are reported as races, although fibers never run at the
// same time. As in CUDA, a shuffle or a ballot does not order memory. Launches cycle through three thread
// orders (ascending, descending, mixed), the same in every run of the program.
//
// A barrier that some thread never reaches ends the program with a message; so do threads that reach one
// barrier from two different lines. Warp operations need all 32 lanes. A loop that waits for a plain store of
// another thread never ends.
#pragma once
#include <sys/mman.h>
#include <ucontext.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#if defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define __SANITIZE_THREAD__ 1
#endif
#if __has_feature(address_sanitizer)
#define __SANITIZE_ADDRESS__ 1
#endif
#endif
#ifdef __SANITIZE_THREAD__
#include <sanitizer/tsan_interface.h>
#endif
#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/common_interface_defs.h>
#endif

struct uint3 { unsigned x, y, z; };
inline uint3 threadIdx, blockIdx, blockDim, gridDim;

// For the code of the emulator itself: the sanitizers ignore its accesses.
#ifdef __clang__
#define EMULATE_BARE __attribute__((noinline, disable_sanitizer_instrumentation)) inline
#else
#define EMULATE_BARE __attribute__((noinline, no_sanitize("address", "thread"))) inline
#endif
// Default parameters that capture the caller's file and line.
#define EMULATE_LINE const char *file = __builtin_FILE(), int line = __builtin_LINE()

namespace emulate {
const unsigned MAX_THREADS = 1024, MAIN = MAX_THREADS;
const size_t STACK = 256 << 10, GUARD = 64 << 10;

// A barrier of the threads from `first` on: the block, or a warp. Two clocks alternate, because the first
// thread to leave a barrier may reach the next one before the last has left this one, and what it did in
// between must stay unordered for that last thread. The values of a shuffle alternate for the same reason.
struct Barrier {
    const char* name;
    unsigned first, members, arrived, round;
    uint64_t clock[2], given[2][32];
};

struct Fiber {
    ucontext_t fresh;  // context before the first run
    void* place[5];    // saved registers while another fiber runs
    bool started;
    const void* stack;
    size_t stack_bytes;
    void *fake_stack, *clock;  // for the sanitizers
    const Barrier* waits;      // null if runnable
    const char* file;
    int line;
};

inline Fiber fibers[MAX_THREADS + 1];  // the last is the program itself
inline Barrier block_barrier, warp_barrier[MAX_THREADS / 32], end;
inline uint64_t begin_clock;
inline unsigned threads, me = MAIN, before_me, launches, chance;
inline void (*body)(void*);
inline void* kernel;

#ifdef __SANITIZE_THREAD__
EMULATE_BARE void acquire(uint64_t* clock) { __tsan_acquire(clock); }
EMULATE_BARE void release(uint64_t* clock) { __tsan_release(clock); }
#else
inline void acquire(uint64_t*) {}
inline void release(uint64_t*) {}
#endif

// Prints where every thread of the block is, one line per range of threads, and ends the program.
[[noreturn]] EMULATE_BARE void give_up(const char* why) {
    fflush(stdout);
    fprintf(stderr, "kernels on the host: launch %u, block (%u, %u) of %u threads: %s\n", launches,
        blockIdx.x, blockIdx.y, threads, why);
    for (unsigned t = 0, next = 0, lines = 0; t < threads && lines < 40; t = next, ++lines) {
        const Fiber& fiber = fibers[t];
        while (next < threads && fibers[next].waits == fiber.waits && fibers[next].line == fiber.line) ++next;
        fprintf(stderr, "    threads %u to %u: ", t, next - 1);
        if (fiber.waits == nullptr) fprintf(stderr, "running\n");
        else if (fiber.waits == &end) fprintf(stderr, "at the end\n");
        else fprintf(stderr, "wait at %s, %s:%d\n", fiber.waits->name, fiber.file, fiber.line);
    }
    _exit(1);
}

// Runs first whenever a fiber continues.
EMULATE_BARE void land() {
#ifdef __SANITIZE_ADDRESS__
    __sanitizer_finish_switch_fiber(
        fibers[me].fake_stack, &fibers[before_me].stack, &fibers[before_me].stack_bytes);
#endif
    if (me != MAIN) threadIdx = {me % blockDim.x, me / blockDim.x, 0};
}

// Not swapcontext: it makes a system call each time, and the address sanitizer loses its state of the stack.
// The builtins must be in two different functions.
[[noreturn]] EMULATE_BARE void jump(Fiber& to) {
    if (to.started) __builtin_longjmp(to.place, 1);
    setcontext(&to.fresh);
    abort();
}

EMULATE_BARE void go_on_with(unsigned next) {
    if (next == me) return;
    Fiber &from = fibers[me], &to = fibers[next];
    before_me = me;
    me = next;
    from.started = true;
#ifdef __SANITIZE_ADDRESS__
    __sanitizer_start_switch_fiber(&from.fake_stack, to.stack, to.stack_bytes);
#endif
#ifdef __SANITIZE_THREAD__
    __tsan_switch_to_fiber(to.clock, __tsan_switch_to_fiber_no_sync);
#endif
    if (__builtin_setjmp(from.place) == 0) jump(to);
    land();
}

EMULATE_BARE bool downwards() { return launches % 3 == 1; }

// The next runnable thread after `thread`.
EMULATE_BARE unsigned pick(unsigned thread) {
    if (end.arrived == threads) return MAIN;
    if (launches % 3 == 2) thread = ((chance = chance * 1664525 + 1013904223) >> 8) % threads;
    for (unsigned tried = 0; tried < threads; ++tried) {
        if (downwards()) thread = (thread == 0 ? threads : thread) - 1;
        else thread = thread + 1 == threads ? 0 : thread + 1;
        if (fibers[thread].waits == nullptr) return thread;
    }
    give_up("a barrier that some threads never reach");
}

// Called before an atomic, whose order among the threads is unspecified.
EMULATE_BARE void yield() { go_on_with(pick(me)); }

// Continues when all members have arrived. Does not order memory.
EMULATE_BARE void meet(Barrier& barrier, const char* file, int line) {
    fibers[me].waits = &barrier;
    fibers[me].file = file;
    fibers[me].line = line;
    if (++barrier.arrived == barrier.members && &barrier != &end) {
        Fiber* member = fibers + barrier.first;
        for (unsigned i = 0; i < barrier.members; ++i)
            if (member[i].line != line) give_up("the threads of a barrier are at different lines");
        for (unsigned i = 0; i < barrier.members; ++i) member[i].waits = nullptr;
        barrier.arrived = 0;
        ++barrier.round;
    }
    go_on_with(pick(me));
}

EMULATE_BARE void synchronise(Barrier& barrier, const char* file, int line) {
    uint64_t* clock = &barrier.clock[barrier.round % 2];
    release(clock);
    meet(barrier, file, line);
    acquire(clock);
}

// The main loop of a fiber: one block after the other, of all launches.
EMULATE_BARE void live() {
    land();
    for (;;) {
        acquire(&begin_clock);
        body(kernel);
        release(&end.clock[0]);
        meet(end, "", 0);
    }
}

// Creates a fiber: a stack above a guard page and, for the thread sanitizer, a thread.
EMULATE_BARE void make(unsigned thread) {
    Fiber& fiber = fibers[thread];
    char *at = (char *)mmap(
        nullptr, GUARD + STACK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (at == MAP_FAILED || mprotect(at, GUARD, PROT_NONE) != 0 || getcontext(&fiber.fresh) != 0) abort();
    fiber.stack = fiber.fresh.uc_stack.ss_sp = at + GUARD;
    fiber.stack_bytes = fiber.fresh.uc_stack.ss_size = STACK;
    makecontext(&fiber.fresh, live, 0);
#ifdef __SANITIZE_THREAD__
    char name[32];
    snprintf(name, sizeof name, "thread %u of the block", thread);
    fiber.clock = __tsan_create_fiber(0);
    __tsan_set_fiber_name(fiber.clock, name);
    fibers[MAIN].clock = __tsan_get_current_fiber();
#endif
}

EMULATE_BARE void run_blocks(uint3 grid, uint3 block) {
    gridDim = grid;
    blockDim = block;
    threads = block.x * block.y;
    if (threads == 0 || threads > MAX_THREADS) abort();
    chance = ++launches;
    block_barrier.name = "__syncthreads";
    block_barrier.members = threads;
    for (unsigned w = 0; w < MAX_THREADS / 32; ++w) {
        warp_barrier[w].name = "an operation of the warp";
        warp_barrier[w].first = 32 * w;
        warp_barrier[w].members = 32;
    }
    for (unsigned t = 0; t < threads; ++t)
        if (fibers[t].stack == nullptr) make(t);
    const unsigned blocks = grid.x * grid.y;
    for (unsigned i = 0; i < blocks; ++i) {
        const unsigned at = downwards() ? blocks - 1 - i : i;
        blockIdx = {at % grid.x, at / grid.x, 0};
        for (unsigned t = 0; t < threads; ++t) fibers[t].waits = nullptr;
        end.arrived = 0;
        release(&begin_clock);
        go_on_with(pick(downwards() ? 0 : threads - 1));
        acquire(&end.clock[0]);
    }
}

template <typename Kernel>
void launch(uint3 grid, uint3 block, Kernel run) {
    body = [](void* at) { (*(Kernel*)at)(); };
    kernel = &run;
    run_blocks(grid, block);
}

// The values that the 32 lanes of the warp pass.
EMULATE_BARE const uint64_t* exchange(uint64_t value, const char* file, int line) {
    Barrier& warp = warp_barrier[me / 32];
    uint64_t* given = warp.given[warp.round % 2];
    given[me % 32] = value;
    meet(warp, file, line);
    return given;
}

template <typename T>
EMULATE_BARE T shuffle(T value, unsigned from, const char* file, int line) {
    uint64_t bits = 0;
    memcpy(&bits, &value, sizeof value);
    memcpy(&value, &exchange(bits, file, line)[from % 32], sizeof value);
    return value;
}

EMULATE_BARE unsigned ballot(bool vote, const char* file, int line) {
    const uint64_t* given = exchange(vote, file, line);
    unsigned votes = 0;
    for (unsigned lane = 0; lane < 32; ++lane) votes |= (unsigned)given[lane] << lane;
    return votes;
}
}  // namespace emulate
