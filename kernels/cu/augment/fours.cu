// Four consecutive pixels of an output row, three bytes each.
struct AugmentFour {
    u32 words[3];
    __device__ __forceinline__ void fill(u32 color) {
        words[0] = __byte_perm(color, 0, 0x0210);
        words[1] = __byte_perm(color, 0, 0x1021);
        words[2] = __byte_perm(color, 0, 0x2102);
    }
    // Replaces pixel k, a compile-time constant.
    __device__ __forceinline__ void put(int k, u32 color) {
        if (k == 0) words[0] = __byte_perm(words[0], color, 0x3654);
        if (k == 1) {
            words[0] = __byte_perm(words[0], color, 0x4210);
            words[1] = __byte_perm(words[1], color, 0x3265);
        }
        if (k == 2) {
            words[1] = __byte_perm(words[1], color, 0x5410);
            words[2] = __byte_perm(words[2], color, 0x3216);
        }
        if (k == 3) words[2] = __byte_perm(words[2], color, 0x6540);
    }
    // Reverses the order of the pixels.
    __device__ __forceinline__ void mirror() {
        const u32 first = words[0], middle = words[1], last = words[2];
        words[0] = __byte_perm(last, middle, 0x6321);
        words[1] = __byte_perm(__byte_perm(middle, last, 0x0043), first, 0x3710);
        words[2] = __byte_perm(first, middle, 0x2105);
    }
    // A byte as a float: (2^23 + byte) - 2^23.
    __device__ __forceinline__ float level(int at) const {
        return __fadd_rn(__int_as_float((int)__byte_perm(words[at / 4], 0x4B000000, 0x7440 + at % 4)),
                         -8388608.0f);
    }
    // The four bytes of one channel.
    __device__ __forceinline__ u32 plane(int channel) const {
        if (channel == 0) return __byte_perm(__byte_perm(words[0], words[1], 0x0630), words[2], 0x5210);
        if (channel == 1) return __byte_perm(__byte_perm(words[0], words[1], 0x0741), words[2], 0x6210);
        return __byte_perm(__byte_perm(words[0], words[1], 0x0052), words[2], 0x7410);
    }
};

// Source positions for lists that only move pixels: output row y reads source row `row` + `down` * y; columns
// likewise. Output pixels outside `inside` have the border's colour.
struct AugmentMoves {
    const u8* source;
    u32 elements, width;
    int row, down, column, right;
    AugmentWindow inside;
    __device__ __forceinline__ AugmentMoves(const AugmentSample<u8>& sample, const AugmentPlan& plan)
        : source(sample.source), elements((u32)sample.elements), width((u32)sample.width),
          down(sample.flags & AUGMENT_FLIP_Y ? -1 : 1), right(sample.flags & AUGMENT_FLIP_X ? -1 : 1) {
        const AugmentWindow &window = sample.window, &valid = sample.valid;
        side(window.top, sample.view_top, sample.scaled_height, valid.top, valid.bottom, plan.height, down,
             row, inside.top, inside.bottom);
        side(window.left, sample.view_left, sample.scaled_width, valid.left, valid.right, plan.width, right,
             column, inside.left, inside.right);
    }
    static __device__ __forceinline__ void side(int window, int view, int scaled, int valid, int behind,
                                                int size, int step, int& origin, int& from, int& to) {
        const int first = window + view;
        const int low = valid > window ? valid : window;
        const int high = behind < window + scaled ? behind : window + scaled;
        origin = step < 0 ? first + size - 1 : first;
        from = step < 0 ? origin + 1 - high : low - first;
        to = step < 0 ? origin + 1 - low : high - first;
    }
    // The offset of the source pixel of an output pixel, in bytes.
    __device__ __forceinline__ u32 place(int y, int x) const {
        return ((u32)(row + down * y) * width + (u32)(column + right * x)) * 3;
    }
};

// Four pixels whose loads are in flight: only `finish` uses `words`, so several groups can load at once.
struct AugmentReading {
    u32 words[4], off;
    int y, x;
    bool is_whole;
    // Starts to load the words around the pixels, if they are consecutive in the source.
    __device__ __forceinline__ void start(const AugmentMoves& moves, int at_y, int at_x) {
        const AugmentWindow& inside = moves.inside;
        y = at_y;
        x = at_x;
        const u32 first = moves.place(y, moves.right < 0 ? x + 3 : x);
        off = ((u32)(u64)moves.source + first) & 3;
        is_whole = y >= inside.top && y < inside.bottom && x >= inside.left && x + 4 <= inside.right;
        // No word outside the picture is read.
        is_whole = is_whole && first >= off && first - off + (off == 0 ? 12 : 16) <= moves.elements;
        words[3] = 0;
        if (!is_whole) return;
        const u32* from = (const u32*)(moves.source + (first - off));
        words[0] = __ldg(from);
        words[1] = __ldg(from + 1);
        words[2] = __ldg(from + 2);
        if (off != 0) words[3] = __ldg(from + 3);
    }
    __device__ __forceinline__ AugmentFour finish(const AugmentSample<u8>& sample,
                                                  const AugmentMoves& moves) const {
        AugmentFour four;
        if (is_whole) {
#pragma unroll
            for (int i = 0; i < 3; ++i) four.words[i] = __funnelshift_r(words[i], words[i + 1], 8 * off);
            if (moves.right < 0) four.mirror();
        } else {
            four.fill(sample.fill);
#pragma unroll
            for (int k = 0; k < 4; ++k) {
                if (!moves.inside.has(y, x + k)) continue;
                const u8* from = moves.source + moves.place(y, x + k);
                four.put(k, __ldg(from) | (u32)__ldg(from + 1) << 8 | (u32)__ldg(from + 2) << 16);
            }
        }
        if (sample.flags & AUGMENT_ERASED) {
#pragma unroll
            for (int k = 0; k < 4; ++k)
                if (sample.erased.has(y, x + k)) four.put(k, sample.erased_color);
        }
        return four;
    }
};

// Writes four consecutive elements.
static __device__ __forceinline__ void augment_write(float* to, float a, float b, float c, float d) {
    *(float4*)to = make_float4(a, b, c, d);
}
static __device__ __forceinline__ u32 augment_pair(float low, float high, AugmentBfloat) {
#ifdef __CUDA_ARCH__
    u32 pair;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
    return pair;
#else
    AugmentBfloat two[2];
    augment_narrow(low, two[0]);
    augment_narrow(high, two[1]);
    return two[0].bits | (u32)two[1].bits << 16;
#endif
}
static __device__ __forceinline__ u32 augment_pair(float low, float high, AugmentHalf) {
#ifdef __CUDA_ARCH__
    u32 pair;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
    return pair;
#else
    AugmentHalf two[2];
    augment_narrow(low, two[0]);
    augment_narrow(high, two[1]);
    return two[0].bits | (u32)two[1].bits << 16;
#endif
}
template <typename Half>
static __device__ __forceinline__ void augment_write(Half* to, float a, float b, float c, float d) {
    *(uint2*)to = make_uint2(augment_pair(a, b, Half()), augment_pair(c, d, Half()));
}

// Writes pixels `at` to `at + 3`.
template <bool PLANES>
static __device__ __forceinline__ void augment_write_four(const AugmentFour& four, const AugmentPlan&, u32 at,
                                                          u32 pixels, u8* picture) {
#pragma unroll
    for (int i = 0; i < 3; ++i) {
        if (PLANES) *(u32*)(picture + (u64)i * pixels + at) = four.plane(i);
        else *(u32*)(picture + 3 * (u64)at + 4 * i) = four.words[i];
    }
}
template <bool PLANES, typename Out>
static __device__ __forceinline__ void augment_write_four(const AugmentFour& four, const AugmentPlan& plan,
                                                          u32 at, u32 pixels, Out* picture) {
    float values[12];
#pragma unroll
    for (int i = 0; i < 12; ++i) values[i] = fmaf(four.level(i), plan.by[i % 3], plan.add[i % 3]);
#pragma unroll
    for (int i = 0; i < 3; ++i) {
        const int j = 4 * i;
        if (PLANES)
            augment_write(picture + (u64)i * pixels + at, values[i], values[i + 3], values[i + 6],
                          values[i + 9]);
        else
            augment_write(picture + 3 * (u64)at + j, values[j], values[j + 1], values[j + 2], values[j + 3]);
    }
}

// Each thread has two groups of four pixels in flight.
template <bool PLANES, typename Out>
static __device__ __forceinline__ void augment_fours(const AugmentSample<u8>& sample,
                                                     const AugmentPlan& shared_plan, u32 chunk, u32 chunks,
                                                     Out* picture) {
    const AugmentPlan plan = shared_plan;
    const AugmentMoves moves(sample, plan);
    const u32 per_row = (u32)plan.width / 4, pixels = (u32)plan.height * (u32)plan.width;
    const u32 step = chunks * blockDim.x, down = step / per_row, across = step % per_row;
    u32 i = chunk * blockDim.x + threadIdx.x, y = i / per_row, x = i % per_row;
#pragma unroll 1
    while (i < pixels / 4) {
        AugmentReading readings[2];
#pragma unroll
        for (int j = 0; j < 2; ++j) {
            if (i + j * step < pixels / 4) readings[j].start(moves, (int)y, 4 * (int)x);
            y += down;
            x += across;
            if (x >= per_row) {
                x -= per_row;
                y += 1;
            }
        }
#pragma unroll
        for (int j = 0; j < 2; ++j, i += step)
            if (i < pixels / 4)
                augment_write_four<PLANES>(readings[j].finish(sample, moves), plan, 4 * i, pixels, picture);
    }
}

// Handles RGB bytes whose rows can be read and written four pixels at a time. Returns false for other
// pictures.
template <typename Out>
static __device__ __forceinline__ bool augment_as_fours(const AugmentSample<u8>& sample,
                                                        const AugmentPlan& plan, u32 chunk, u32 chunks,
                                                        Out* picture, Out* all) {
    if (plan.channels != 3 || plan.planes_in || plan.width % 4 != 0) return false;
    if (((u64)all & (4 * sizeof(Out) - 1)) != 0 || sample.elements >> 31 != 0) return false;
    if (plan.planes_out) augment_fours<true>(sample, plan, chunk, chunks, picture);
    else augment_fours<false>(sample, plan, chunk, chunks, picture);
    return true;
}

// Values of other types are read one by one.
template <typename In, typename Out>
static __device__ __forceinline__ bool augment_as_fours(const AugmentSample<In>&, const AugmentPlan&, u32,
                                                        u32, Out*, Out*) {
    return false;
}
