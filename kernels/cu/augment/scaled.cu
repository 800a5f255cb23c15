// A resize by the triangle filter: each output pixel is the weighted mean of the source pixels under the filter,
// exact in integers and rounded once.
//
// augment_scaled computes one pixel from nothing. A block that resizes whole pictures first writes the taps of
// every output row and column to shared memory (AugmentTables), if the window lies within the picture and the
// sums of a line fit 32 bits; augment_by_tables then has no divisions and no bounds to check.

// The source pixels under the triangle filter of one scaled pixel, along one axis, in integers.
struct AugmentTaps {
    int from, to, centre, half, first, behind;
    __device__ __forceinline__ AugmentTaps(int at, int from, int to) : from(from), to(to) {
        centre = (2 * at + 1) * from;
        half = 2 * (from > to ? from : to);
        first = floor_half(centre - half - to) + 1;
        behind = floor_half(centre + half - to - 1) + 1;
        if (first < 0) first = 0;
        if (behind > from) behind = from;
    }
    // floor(n / (2 * to)).
    __device__ __forceinline__ int floor_half(int n) const {
        const int by = 2 * to;
        return n >= 0 ? n / by : -((-n + by - 1) / by);
    }
    __device__ __forceinline__ u32 weight(int at) const {
        const int far = (2 * at + 1) * to - centre;
        const int weight = half - (far < 0 ? -far : far);
        return weight > 0 ? (u32)weight : 0;
    }
};

// The weighted mean of the values under a triangle: exact, rounded once.
template <typename In>
static __device__ __noinline__ void augment_scaled(const AugmentSample<In>& sample, const AugmentPlan& plan,
                                                   int y, int x, u32 (&pixel)[3]) {
    const AugmentWindow& window = sample.window;
    const AugmentTaps rows(y, window.bottom - window.top, sample.scaled_height);
    const AugmentTaps columns(x, window.right - window.left, sample.scaled_width);
    u64 sum[3] = {0, 0, 0}, rows_weigh = 0, columns_weigh = 0;
#pragma unroll 1
    for (int column = columns.first; column < columns.behind; ++column)
        columns_weigh += columns.weight(column);
#pragma unroll 1
    for (int row = rows.first; row < rows.behind; ++row) {
        u64 line[3] = {0, 0, 0};
#pragma unroll 1
        for (int column = columns.first; column < columns.behind; ++column) {
            const u64 weight = columns.weight(column);
#pragma unroll
            for (int c = 0; c < 3; ++c)
                line[c] += weight * augment_read(sample, plan, window.top + row, window.left + column, c);
        }
        const u64 weight = rows.weight(row);
#pragma unroll
        for (int c = 0; c < 3; ++c) sum[c] += weight * line[c];
        rows_weigh += weight;
    }
    const u64 all = rows_weigh * columns_weigh;
#pragma unroll
    for (int c = 0; c < 3; ++c) pixel[c] = (u32)((2 * sum[c] + all) / (2 * all));
}


// The taps of an output row or column, and the sum of their weights; 0 outside of the scaled window.
struct AugmentTap {
    u16 first, count;
    u32 weigh;
};

enum : int { AUGMENT_TAPS = 1024 };

// The taps of all rows, then of all columns. In shared memory.
struct AugmentTables {
    AugmentTap taps[AUGMENT_TAPS];
    bool are_used;
};

static __device__ __forceinline__ bool augment_has_tables(const AugmentSample<u8>& sample,
                                                          const AugmentPlan& plan) {
    const AugmentWindow &window = sample.window, &valid = sample.valid;
    const u64 from = (u64)(u32)(window.right - window.left), to = (u64)(u32)sample.scaled_width;
    const u64 half = 2 * (from > to ? from : to);
    return (sample.flags & AUGMENT_RESIZED) != 0 && !plan.planes_in && plan.channels == 3 &&
           plan.height + plan.width <= AUGMENT_TAPS && valid.top <= window.top && valid.left <= window.left &&
           valid.bottom >= window.bottom && valid.right >= window.right &&
           // At most half / to + 2 taps, of at most `half` each.
           255 * half * (half / to + 2) <= 0xFFFFFFFF;
}

// By all threads of a block; a barrier must follow.
static __device__ void augment_fill_tables(const AugmentSample<u8>& sample, const AugmentPlan& plan,
                                           AugmentTables& tables) {
    const bool are_used = augment_has_tables(sample, plan);
    if (threadIdx.x == 0) tables.are_used = are_used;
    if (!are_used) return;
    const AugmentWindow& window = sample.window;
    for (int i = (int)threadIdx.x; i < plan.height + plan.width; i += (int)blockDim.x) {
        const bool is_row = i < plan.height;
        const int size = is_row ? plan.height : plan.width;
        const int from = is_row ? window.bottom - window.top : window.right - window.left;
        const int scaled = is_row ? sample.scaled_height : sample.scaled_width;
        int at = is_row ? i : i - plan.height;
        if (sample.flags & (is_row ? AUGMENT_FLIP_Y : AUGMENT_FLIP_X)) at = size - 1 - at;
        at += is_row ? sample.view_top : sample.view_left;
        AugmentTap tap = {0, 0, 0};
        if (at >= 0 && at < scaled) {
            const AugmentTaps taps(at, from, scaled);
            tap.first = (u16)taps.first;
            tap.count = (u16)(taps.behind - taps.first);
            for (int j = taps.first; j < taps.behind; ++j) tap.weigh += taps.weight(j);
        }
        tables.taps[i] = tap;
    }
}

// One axis of a resize: the distance of a tap from the centre of the filter, and the step to the next tap.
struct AugmentAxis {
    int half, by, from, flipped, view;
    __device__ __forceinline__ AugmentAxis(int from, int to, bool is_flipped, int size, int view)
        : half(2 * (from > to ? from : to)), by(2 * to), from(from), flipped(is_flipped ? size - 1 : -1),
          view(view) {}
    __device__ __forceinline__ int far(int at, int first) const {
        const int mapped = (flipped < 0 ? at : flipped - at) + view;
        return (2 * first + 1) * (by / 2) - (2 * mapped + 1) * from;
    }
    __device__ __forceinline__ u32 weight(int far) const { return (u32)(half - (far < 0 ? -far : far)); }
};

// What a thread needs of a sample that has tables.
struct AugmentScaling {
    const u8* source;
    u32 line;
    AugmentAxis rows, columns;
    __device__ __forceinline__ AugmentScaling(const AugmentSample<u8>& sample, const AugmentPlan& plan)
        : source(sample.source + ((u64)sample.window.top * (u32)sample.width + (u32)sample.window.left) * 3),
          line(3 * (u32)sample.width),
          rows(sample.window.bottom - sample.window.top, sample.scaled_height,
               (sample.flags & AUGMENT_FLIP_Y) != 0, plan.height, sample.view_top),
          columns(sample.window.right - sample.window.left, sample.scaled_width,
                  (sample.flags & AUGMENT_FLIP_X) != 0, plan.width, sample.view_left) {}
};

// round(sum / all), for a quotient of at most 255 and a sum below 2^62. The first guess is off by at most 1.
static __device__ __forceinline__ u32 augment_quotient(u64 sum, u64 all, float inverse) {
    const u64 twice = 2 * sum + all;
    u32 guess = (u32)((float)twice * inverse);
    const long long rest = (long long)(twice - guess * (2 * all));
    if (rest < 0) --guess;
    else if (rest >= (long long)(2 * all)) ++guess;
    return guess;
}

// The same as augment_find and augment_scaled; `columns` are the taps of the columns.
static __device__ __forceinline__ void augment_by_tables(const AugmentSample<u8>& sample,
                                                         const AugmentScaling& scaling, const AugmentTap* rows,
                                                         const AugmentTap* columns, int y, int x,
                                                         u32 (&pixel)[3]) {
    const AugmentTap row = rows[y], column = columns[x];
    if (row.count == 0 || column.count == 0) {
#pragma unroll
        for (int c = 0; c < 3; ++c) pixel[c] = augment_fill(sample, c);
        return;
    }
    u64 sums[3] = {0, 0, 0};
    const u8* line = scaling.source + (u64)row.first * scaling.line + 3 * (u32)column.first;
    int down = scaling.rows.far(y, row.first);
    const int across = scaling.columns.far(x, column.first);
#pragma unroll 1
    for (u32 i = row.count; i != 0; --i, line += scaling.line, down += scaling.rows.by) {
        u32 sum[3] = {0, 0, 0};
        const u8* from = line;
        int far = across;
#pragma unroll 2
        for (u32 j = column.count; j != 0; --j, from += 3, far += scaling.columns.by) {
            const u32 weight = scaling.columns.weight(far);
#pragma unroll
            for (int c = 0; c < 3; ++c) sum[c] += weight * __ldg(from + c);
        }
        const u64 weight = scaling.rows.weight(down);
#pragma unroll
        for (int c = 0; c < 3; ++c) sums[c] += weight * sum[c];
    }
    const u64 all = (u64)row.weigh * column.weigh;
    const float inverse = 0.5f / (float)all;
#pragma unroll
    for (int c = 0; c < 3; ++c) pixel[c] = augment_quotient(sums[c], all, inverse);
}
