// Annotations of the standard library for ThreadSanitizer.
//
// The standard library of a toolchain is not instrumented. Its inlined parts are instrumented with our
// crates, its slow paths are not: a thread that acquired a contended lock or returned from a wait looks as if
// it had never synchronised with the thread that woke it. These wrappers annotate that synchronisation.
// `ci/tsan.sh` passes the real symbols to the linker; each function here wraps the one it is named after
// (library/std/src/sys/sync/*/futex.rs).
#include <stdbool.h>
#include <stdint.h>

void __tsan_acquire(void *addr);
void __tsan_release(void *addr);

// A contended lock. The preceding unlock was seen as a release of the mutex.
void real_lock_contended(void *mutex);
void wrap_lock_contended(void *mutex) {
    real_lock_contended(mutex);
    __tsan_acquire(mutex);
}

void real_read_contended(void *lock);
void wrap_read_contended(void *lock) {
    real_read_contended(lock);
    __tsan_acquire(lock);
}

void real_write_contended(void *lock);
void wrap_write_contended(void *lock) {
    real_write_contended(lock);
    __tsan_acquire(lock);
}

// A wait releases the mutex and acquires it again.
void real_condvar_wait(void *condvar, void *mutex);
void wrap_condvar_wait(void *condvar, void *mutex) {
    __tsan_release(mutex);
    real_condvar_wait(condvar, mutex);
    __tsan_acquire(mutex);
}

bool real_condvar_wait_timeout(void *condvar, void *mutex, uint64_t seconds, uint32_t nanos);
bool wrap_condvar_wait_timeout(void *condvar, void *mutex, uint64_t seconds, uint32_t nanos) {
    __tsan_release(mutex);
    bool in_time = real_condvar_wait_timeout(condvar, mutex, seconds, nanos);
    __tsan_acquire(mutex);
    return in_time;
}

// The first call runs the initialiser and releases; later calls have waited for it and acquire.
void real_once_call(void *once, bool ignore_poisoning, void *data, void *vtable, void *caller);
void wrap_once_call(void *once, bool ignore_poisoning, void *data, void *vtable, void *caller) {
    real_once_call(once, ignore_poisoning, data, vtable, caller);
    __tsan_acquire(once);
    __tsan_release(once);
}

// The end of a scoped thread. The end of the scope waits for it by reading one of these words.
void real_scope_end(void *scope, bool panicked);
void wrap_scope_end(void *scope, bool panicked) {
    for (int word = 0; word < 3; word++) {
        __tsan_release((uint64_t *)scope + word);
    }
    real_scope_end(scope, panicked);
}

// The last owner of an Arc decrements the counter with fetch_sub and then synchronises with the others by a
// fence. ThreadSanitizer does not support fences, so the fence acquires the counter that the thread changed
// last.
static _Thread_local uint64_t *last_counter;

uint64_t real_fetch_sub(uint64_t *counter, uint64_t amount, int order);
uint64_t wrap_fetch_sub(uint64_t *counter, uint64_t amount, int order) {
    last_counter = counter;
    return real_fetch_sub(counter, amount, order);
}

void real_fence(int order);
void wrap_fence(int order) {
    real_fence(order);
    if (last_counter) {
        __tsan_acquire(last_counter);
    }
}
