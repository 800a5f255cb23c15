static __device__ __forceinline__ u32 augment_blend(u32 from, u32 to, float factor) {
    const float start = (float)from;
    const float value = __fadd_rn(start, __fmul_rn(factor, (float)to - start));
    // NaN gives 0.
    return value >= 255.0f ? 255 : value > 0.0f ? (u32)value : 0;
}

static __device__ __forceinline__ u32 augment_gray(const u32 (&pixel)[3]) {
    return (pixel[0] * 19595 + pixel[1] * 38470 + pixel[2] * 7471 + 0x8000) >> 16;
}

static __device__ __forceinline__ u32 augment_level(double value) {
    return value >= 255.0 ? 255 : value > 0.0 ? (u32)value : 0;
}

static __device__ __forceinline__ double augment_share(u32 high, u32 level, float range) {
    return (double)((float)(high - level) / range);
}

// Rotates the hue by `turn` circles, with Pillow's arithmetic: single and double precision where Pillow has
// them.
static __device__ void augment_hue(u32 (&pixel)[3], float turn) {
    const u32 r = pixel[0], g = pixel[1], b = pixel[2];
    const u32 high = r > g ? (r > b ? r : b) : (g > b ? g : b);
    const u32 low = r < g ? (r < b ? r : b) : (g < b ? g : b);
    u32 h = 0, s = 0;
    if (high != low) {
        const float range = (float)(high - low);
        double hue;
        if (r == high)
            hue = __dsub_rn(augment_share(high, b, range), augment_share(high, g, range));
        else if (g == high)
            hue = __dsub_rn(__dadd_rn(2.0, augment_share(high, r, range)), augment_share(high, b, range));
        else
            hue = __dsub_rn(__dadd_rn(4.0, augment_share(high, g, range)), augment_share(high, r, range));
        const double wide = __dadd_rn((double)(float)hue / 6.0, 1.0);
        const float part = (float)__dsub_rn(wide, trunc(wide));
        h = augment_level(__dmul_rn((double)part, 255.0));
        s = augment_level(__dmul_rn((double)(range / (float)high), 255.0));
    }
    const float by = __fmul_rn(turn, 255.0f);
    h = (h + (u32)(int)by) & 255;
    if (s == 0) {
        pixel[0] = pixel[1] = pixel[2] = high;
        return;
    }
    const double hue = __dmul_rn((double)h, 6.0) / 255.0, share = (double)((float)s / 255.0f),
                 value = (double)high;
    const double sector = floor(hue), part = (double)(float)__dsub_rn(hue, sector);
    const u32 v = high;
    const u32 p = augment_level(round(__dmul_rn(value, __dsub_rn(1.0, share))));
    const u32 q = augment_level(round(__dmul_rn(value, __dsub_rn(1.0, __dmul_rn(share, part)))));
    const u32 t =
        augment_level(round(__dmul_rn(value, __dsub_rn(1.0, __dmul_rn(share, __dsub_rn(1.0, part))))));
    const u32 at = (u32)sector % 6;
    pixel[0] = at == 0 || at == 5 ? v : at == 1 ? q : at == 4 ? t : p;
    pixel[1] = at == 0 ? t : at == 1 || at == 2 ? v : at == 3 ? q : p;
    pixel[2] = at == 2 ? t : at == 3 || at == 4 ? v : at == 5 ? q : p;
}

// Applies the colour changes in order; with `until_contrast`, only those before the contrast.
template <typename In>
static __device__ __noinline__ void augment_colors(const AugmentSample<In>& sample, u32 (&pixel)[3],
                                                   bool until_contrast) {
#pragma unroll 1
    for (int i = 0; i < 8; ++i) {
        const u32 change = sample.colors >> 4 * i & 15;
        const float factor = sample.factors[i];
        if (change == 0 || change > 5 || (change == 2 && until_contrast)) return;
        if (change == 4) {
            augment_hue(pixel, factor);
            continue;
        }
        const u32 gray = augment_gray(pixel);
        const u32 from = change == 1 ? 0 : change == 2 ? sample.mean : gray;
#pragma unroll
        for (int c = 0; c < 3; ++c) pixel[c] = change == 5 ? gray : augment_blend(from, pixel[c], factor);
    }
}

// An output pixel before its colour changes.
static __device__ __noinline__ void augment_found(const AugmentSample<u8>& sample, const AugmentPlan& plan,
                                                  const AugmentTables& tables, int y, int x,
                                                  u32 (&pixel)[3]) {
    if (tables.are_used) {
        const AugmentTap* taps = tables.taps;
        const AugmentScaling scaling(sample, plan);
        return augment_by_tables(sample, scaling, taps, taps + plan.height, y, x, pixel);
    }
    if (augment_find(sample, plan, y, x)) {
        if (sample.flags & AUGMENT_RESIZED) return augment_scaled(sample, plan, y, x, pixel);
        y += sample.window.top;
        x += sample.window.left;
#pragma unroll
        for (int c = 0; c < 3; ++c) pixel[c] = augment_read(sample, plan, y, x, c);
    } else {
#pragma unroll
        for (int c = 0; c < 3; ++c) pixel[c] = augment_fill(sample, c);
    }
}

// The values of a pixel before mixing.
template <bool LEVELS>
static __device__ __noinline__ void augment_finished(const AugmentSample<u8>& sample, const AugmentPlan& plan,
                                                     const AugmentTables& tables, int y, int x,
                                                     float (&values)[3]) {
    u32 pixel[3];
    if ((sample.flags & AUGMENT_ERASED) && sample.erased.has(y, x)) {
#pragma unroll
        for (int c = 0; c < 3; ++c) pixel[c] = augment_channel(sample.erased_color, c);
    } else {
        augment_found(sample, plan, tables, y, x, pixel);
        augment_colors(sample, pixel, false);
    }
#pragma unroll
    for (int c = 0; c < 3; ++c)
        values[c] = LEVELS ? (float)pixel[c] : fmaf((float)pixel[c], plan.by[c], plan.add[c]);
}

static __device__ void augment_plan(const u32* words, AugmentPlan& plan) {
    plan.channels = (int)words[0];
    plan.planes_in = words[1] != 0;
    plan.height = (int)words[2];
    plan.width = (int)words[3];
    plan.planes_out = words[4] != 0;
    for (int c = 0; c < 4; ++c) {
        plan.by[c] = __int_as_float((int)words[5 + c]);
        plan.add[c] = __int_as_float((int)words[9 + c]);
    }
}

// Writes the labels as rows of probabilities.
struct AugmentLabels {
    const void* of;
    u32 bytes;
    float* to;
    u32 classes;
    __device__ __forceinline__ u64 label(u64 row) const {
        return bytes == 1 ? ((const u8*)of)[row] : ((const u64*)of)[row];
    }
};

static __device__ void augment_labels(const AugmentLabels& labels, u64 own, u64 other, float lambda) {
    if (labels.to == 0) return;
    const u64 mine = labels.label(own), theirs = labels.label(other);
    for (u32 i = threadIdx.x; i < labels.classes; i += blockDim.x)
        labels.to[own * labels.classes + i] =
            __fadd_rn(__fmul_rn(i == mine ? 1.0f : 0.0f, lambda),
                      __fmul_rn(i == theirs ? 1.0f : 0.0f, __fsub_rn(1.0f, lambda)));
}
