// pattern: self-describing bytes, written and checked on the device.
//
// A row is the output of SplitMix64 (Steele, Lea, Flood 2014) seeded with its row key, as little-endian
// bytes:
//   row key = splitmix64(key ^ id),  id = ids[r], or first_row + r when ids is null
//   bytes 8j .. 8j+7 = splitmix64(row key + j * 0x9E3779B97F4A7C15)
// feedline_kernels::host::pattern is the same on the host and derives `key` from seed, epoch and batch.
// Works with any grid.
//
// pattern_check adds the number of wrong bytes to report[0], lowers report[1] to the first wrong index
// (row * row_bytes + byte) and adds the number of bytes checked to report[2]. The caller initialises
// report to 0, 2^64 - 1, 0.

typedef unsigned char u8;
typedef unsigned long long u64;

static __device__ __forceinline__ u64 pattern_mix(u64 x) {
    u64 z = x + 0x9E3779B97F4A7C15ull;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ull;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBull;
    return z ^ (z >> 31);
}

static __device__ __forceinline__ u64 pattern_word(u64 key, u64 id, u64 j) {
    return pattern_mix(pattern_mix(key ^ id) + j * 0x9E3779B97F4A7C15ull);
}

extern "C" __global__ void __launch_bounds__(256)
pattern_fill(u8* __restrict__ data, u64 rows, u64 row_bytes, u64 key, const u64* __restrict__ ids,
             u64 first_row) {
    const u64 words = (row_bytes + 7) / 8;
    const u64 stride = (u64)gridDim.x * blockDim.x;
    for (u64 i = (u64)blockIdx.x * blockDim.x + threadIdx.x; i < rows * words; i += stride) {
        const u64 r = i / words, j = i % words;
        const u64 word = pattern_word(key, ids == 0 ? first_row + r : ids[r], j);
        u8* at = data + r * row_bytes + 8 * j;
        const u64 left = row_bytes - 8 * j;
        if (left >= 8 && ((u64)at & 7) == 0) {
            *(u64*)at = word;
        } else {
            for (u64 k = 0; k < (left < 8 ? left : 8); ++k) at[k] = (u8)(word >> 8 * k);
        }
    }
}

extern "C" __global__ void __launch_bounds__(256)
pattern_check(const u8* __restrict__ data, u64 rows, u64 row_bytes, u64 key, const u64* __restrict__ ids,
              u64 first_row, u64* report) {
    const u64 words = (row_bytes + 7) / 8;
    const u64 stride = (u64)gridDim.x * blockDim.x;
    u64 wrong = 0, seen = 0;
    for (u64 i = (u64)blockIdx.x * blockDim.x + threadIdx.x; i < rows * words; i += stride) {
        const u64 r = i / words, j = i % words;
        const u64 word = pattern_word(key, ids == 0 ? first_row + r : ids[r], j);
        const u64 begin = r * row_bytes + 8 * j;
        const u8* at = data + begin;
        const u64 bytes = row_bytes - 8 * j < 8 ? row_bytes - 8 * j : 8;
        seen += bytes;
        if (bytes == 8 && ((u64)at & 7) == 0 && *(const u64*)at == word) continue;
        u64 first = ~0ull;
        for (u64 k = bytes; k-- > 0;) {
            if (at[k] != (u8)(word >> 8 * k)) {
                wrong += 1;
                first = begin + k;
            }
        }
        if (first != ~0ull) atomicMin(&report[1], first);
    }
    if (wrong > 0) atomicAdd(&report[0], wrong);
    if (seen > 0) atomicAdd(&report[2], seen);
}
