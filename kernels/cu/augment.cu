// augment: applies a list of transforms to a batch of pictures after the copy, in one launch: crops,
// borders, flips, a resize, colours, erased parts, mixing, normalising, the element type and the order of
// channels. The batch is read once and written once.
//
// Each sample has a record of 36 numbers; the batch has a plan of 16 (both of feedline_images::device).
// DevicePart::run_on_host computes the same on the host: integers, or floats with one rounding per operation,
// so the bits are equal.
//
// A block works on one sample. augment_copy_IN_OUT moves pixels and scales their values. It handles rows of
// RGB bytes four pixels at a time: a thread reads them as words, and loads two groups before it uses the
// first. augment_work_IN_OUT also resizes, changes colours and mixes samples. A change of contrast needs the
// mean of the picture: then each sample has one block, which reads the picture twice.
//
// If a record does not fit its picture, the output has the border's colour: no read leaves the picture.

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;

struct AugmentHalf { u16 bits; };
struct AugmentBfloat { u16 bits; };

enum : u32 {
    AUGMENT_WORDS = 36, AUGMENT_PLAN_WORDS = 16, AUGMENT_FLIP_X = 1, AUGMENT_FLIP_Y = 2, AUGMENT_RESIZED = 4,
    AUGMENT_ERASED = 8, AUGMENT_BLEND = 16, AUGMENT_PASTE = 32,
};
enum : int { AUGMENT_FAR = 1 << 24, AUGMENT_MAX_SIDE = 1 << 14 };

static __device__ __forceinline__ float augment_to_float(AugmentHalf value) {
#ifdef __CUDA_ARCH__
    float wide;
    asm("cvt.f32.f16 %0, %1;" : "=f"(wide) : "h"(value.bits));
    return wide;
#else
    const u32 sign = (u32)(value.bits & 0x8000) << 16, rest = value.bits & 0x7FFF;
    if (rest >= 0x7C00) return __int_as_float(sign | 0x7F800000 | (rest & 0x3FF) << 13);
    // Multiplying by 2^112 corrects the exponent bias, also of subnormal numbers.
    return __int_as_float(sign | (u32)__float_as_int(__int_as_float(rest << 13) * 0x1p112f));
#endif
}
static __device__ __forceinline__ float augment_to_float(AugmentBfloat value) {
    return __int_as_float((u32)value.bits << 16);
}
static __device__ __forceinline__ float augment_to_float(u8 value) { return (float)value; }
static __device__ __forceinline__ float augment_to_float(u16 value) { return (float)value; }

static __device__ __forceinline__ void augment_narrow(float value, float& to) { to = value; }
static __device__ __forceinline__ void augment_narrow(float value, u8& to) { to = (u8)value; }
static __device__ __forceinline__ void augment_narrow(float value, AugmentBfloat& to) {
#ifdef __CUDA_ARCH__
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(to.bits) : "f"(value));
#else
    const u32 bits = (u32)__float_as_int(value);
    to.bits = (bits & 0x7FFFFFFF) > 0x7F800000 ? 0x7FFF : (u16)((bits + 0x7FFF + (bits >> 16 & 1)) >> 16);
#endif
}
static __device__ __forceinline__ void augment_narrow(float value, AugmentHalf& to) {
#ifdef __CUDA_ARCH__
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(to.bits) : "f"(value));
#else
    const u32 bits = (u32)__float_as_int(value), rest = bits & 0x7FFFFFFF;
    u32 narrow;
    if (rest > 0x7F800000) narrow = 0x7FFF;
    else if (rest >= 0x47800000) narrow = 0x7C00;
    // 0.5 has the unit in the last place of a subnormal half: the sum rounds to it.
    else if (rest < 0x38800000) narrow = (u32)__float_as_int(__int_as_float(rest) + 0.5f) - 0x3F000000;
    else narrow = (rest - 0x38000000 + 0xFFF + (rest >> 13 & 1)) >> 13;
    to.bits = (u16)(narrow | (bits >> 16 & 0x8000));
#endif
}

// The element of a border or an erased part.
static __device__ __forceinline__ void augment_of_level(u32 level, u8& to) { to = (u8)level; }
static __device__ __forceinline__ void augment_of_level(u32 level, u16& to) { to = (u16)(level * 257); }
static __device__ __forceinline__ void augment_of_level(u32 level, AugmentHalf& to) {
    augment_narrow((float)level / 255.0f, to);
}
static __device__ __forceinline__ void augment_of_level(u32 level, AugmentBfloat& to) {
    augment_narrow((float)level / 255.0f, to);
}

struct AugmentWindow {
    int top, left, bottom, right;
    __device__ __forceinline__ bool has(int y, int x) const {
        return y >= top && y < bottom && x >= left && x < right;
    }
};

// Parameters of all samples.
struct AugmentPlan {
    int channels;
    bool planes_in, planes_out;
    int height, width;
    float by[4], add[4];
};

// A record, with every value clamped to its valid range, and the location of its picture.
template <typename In>
struct AugmentSample {
    const In* source;
    u64 elements;
    int height, width;
    AugmentWindow window, valid, erased, part;
    int scaled_height, scaled_width, view_top, view_left;
    u32 flags, fill, erased_color, colors, partner, mean;
    float factors[8], lambda;
};

static __device__ __forceinline__ int augment_place(u32 word) {
    const int place = (int)word;
    return place < -AUGMENT_FAR ? -AUGMENT_FAR : place > AUGMENT_FAR ? AUGMENT_FAR : place;
}

static __device__ __forceinline__ AugmentWindow augment_window(const u32* words) {
    return {augment_place(words[0]), augment_place(words[1]), augment_place(words[2]),
            augment_place(words[3])};
}

static __device__ __forceinline__ bool augment_is_side(int side) {
    return side >= 1 && side <= AUGMENT_MAX_SIDE;
}

// Locations of the pictures: `elements` each, or from one offset to the next.
template <typename In>
struct AugmentSource {
    const In* all;
    u64 elements;
    const u32* offsets;
    const u32* records;
};

template <typename In>
static __device__ __noinline__ void augment_sample(const AugmentSource<In>& from, u64 channels, u64 row,
                                                   const u32* words, AugmentSample<In>& to) {
    u64 first = row * from.elements, elements = from.elements;
    if (from.offsets != 0) {
        // Here `elements` is the size of the whole batch.
        first = from.offsets[row];
        const u64 behind = from.offsets[row + 1];
        elements = behind < first || behind > from.elements ? 0 : behind - first;
    }
    to.source = from.all + first;
    to.elements = elements;
    to.flags = words[14];
    to.window = augment_window(words + 2);
    to.scaled_height = augment_place(words[10]);
    to.scaled_width = augment_place(words[11]);
    to.view_top = augment_place(words[12]);
    to.view_left = augment_place(words[13]);
    const u64 height = words[0], width = words[1];
    const bool is_scaled =
        (to.flags & AUGMENT_RESIZED) == 0 ||
        (augment_is_side(to.window.bottom - to.window.top) && augment_is_side(to.scaled_height) &&
         augment_is_side(to.window.right - to.window.left) && augment_is_side(to.scaled_width));
    const bool fits = height <= (u64)AUGMENT_FAR && width <= (u64)AUGMENT_FAR &&
                      height * width * channels <= elements && is_scaled;
    if (!is_scaled) to.flags &= ~(u32)AUGMENT_RESIZED;
    to.height = fits ? (int)height : 0;
    to.width = fits ? (int)width : 0;
    to.valid = augment_window(words + 6);
    to.valid.top = to.valid.top < 0 ? 0 : to.valid.top;
    to.valid.left = to.valid.left < 0 ? 0 : to.valid.left;
    to.valid.bottom = to.valid.bottom > to.height ? to.height : to.valid.bottom;
    to.valid.right = to.valid.right > to.width ? to.width : to.valid.right;
    to.fill = words[15];
    to.colors = words[16];
    for (int i = 0; i < 8; ++i) to.factors[i] = __int_as_float((int)words[17 + i]);
    to.erased = augment_window(words + 25);
    to.erased_color = words[29];
    to.partner = words[30];
    to.lambda = __int_as_float((int)words[31]);
    to.part = augment_window(words + 32);
    to.mean = 0;
}

static __device__ __forceinline__ u32 augment_channel(u32 color, int channel) {
    return color >> 8 * (channel < 2 ? channel : 2) & 255;
}

template <typename In>
static __device__ __forceinline__ In augment_fill(const AugmentSample<In>& sample, int channel) {
    In value;
    augment_of_level(augment_channel(sample.fill, channel), value);
    return value;
}

// A value of the source picture or its border.
template <typename In>
static __device__ __forceinline__ In augment_read(const AugmentSample<In>& sample, const AugmentPlan& plan,
                                                  int y, int x, int channel) {
    if (!sample.valid.has(y, x)) return augment_fill(sample, channel);
    const u64 place = plan.planes_in ? ((u64)channel * sample.height + y) * sample.width + x
                                     : ((u64)y * sample.width + x) * plan.channels + channel;
    return sample.source[place];
}

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

// Maps an output pixel to the scaled window; returns whether it lies inside.
template <typename In>
static __device__ __forceinline__ bool augment_find(const AugmentSample<In>& sample, const AugmentPlan& plan,
                                                    int& y, int& x) {
    if (sample.flags & AUGMENT_FLIP_Y) y = plan.height - 1 - y;
    if (sample.flags & AUGMENT_FLIP_X) x = plan.width - 1 - x;
    y += sample.view_top;
    x += sample.view_left;
    return y >= 0 && y < sample.scaled_height && x >= 0 && x < sample.scaled_width;
}

template <typename In>
static __device__ __forceinline__ In augment_copied(const AugmentSample<In>& sample, const AugmentPlan& plan,
                                                    int y, int x, int channel) {
    if (!augment_find(sample, plan, y, x)) return augment_fill(sample, channel);
    return augment_read(sample, plan, y + sample.window.top, x + sample.window.left, channel);
}

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
                                                  int y, int x, u32 (&pixel)[3]) {
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
                                                     int y, int x, float (&values)[3]) {
    u32 pixel[3];
    if ((sample.flags & AUGMENT_ERASED) && sample.erased.has(y, x)) {
#pragma unroll
        for (int c = 0; c < 3; ++c) pixel[c] = augment_channel(sample.erased_color, c);
    } else {
        augment_found(sample, plan, y, x, pixel);
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

// One pixel, value by value.
template <typename In, typename Out, bool LEVELS>
static __device__ __forceinline__ void augment_one(const AugmentSample<In>& sample, const AugmentPlan& plan,
                                                   u32 i, Out* picture) {
    const int y = (int)(i / (u32)plan.width), x = (int)(i % (u32)plan.width);
    const bool erased = (sample.flags & AUGMENT_ERASED) && sample.erased.has(y, x);
#pragma unroll 1
    for (int c = 0; c < plan.channels; ++c) {
        In element;
        if (erased) augment_of_level(augment_channel(sample.erased_color, c), element);
        else element = augment_copied(sample, plan, y, x, c);
        const float value = augment_to_float(element);
        const u32 pixels = (u32)plan.height * (u32)plan.width;
        augment_narrow(LEVELS ? value : fmaf(value, plan.by[c], plan.add[c]),
                       picture[plan.planes_out ? (u64)c * pixels + i : (u64)i * (u32)plan.channels + c]);
    }
}

template <typename In, typename Out, bool LEVELS>
static __device__ __forceinline__ void augment_copy(const AugmentSource<In> from, const u32* plan_words,
                                                    u64 rows, u32 chunks, Out* to,
                                                    const AugmentLabels labels) {
    __shared__ AugmentPlan shared_plan;
    __shared__ AugmentSample<In> shared_sample;
    __shared__ u32 record[AUGMENT_WORDS], words[AUGMENT_PLAN_WORDS];
    const u64 row = blockIdx.x / chunks;
    const u32 chunk = blockIdx.x % chunks;
    if (row >= rows) return;
    // Loaded by all threads at once, and decoded by two warps: nothing else runs before.
    for (u32 i = threadIdx.x; i < AUGMENT_WORDS + AUGMENT_PLAN_WORDS; i += blockDim.x) {
        if (i < AUGMENT_WORDS) record[i] = from.records[row * AUGMENT_WORDS + i];
        else words[i - AUGMENT_WORDS] = plan_words[i - AUGMENT_WORDS];
    }
    __syncthreads();
    if (threadIdx.x == 0) augment_sample(from, words[0], row, record, shared_sample);
    if (threadIdx.x == blockDim.x - 1) augment_plan(words, shared_plan);
    __syncthreads();
    const AugmentPlan& plan = shared_plan;
    const AugmentSample<In>& sample = shared_sample;
    if (chunk == 0) augment_labels(labels, row, row, 1.0f);
    const u32 pixels = (u32)plan.height * (u32)plan.width;
    Out* picture = to + row * pixels * (u32)plan.channels;
    if (augment_as_fours(sample, plan, chunk, chunks, picture, to)) return;
    for (u32 i = chunk * blockDim.x + threadIdx.x; i < pixels; i += chunks * blockDim.x)
        augment_one<In, Out, LEVELS>(sample, plan, i, picture);
}

template <typename Out, bool LEVELS>
static __device__ __forceinline__ void augment_work(const AugmentSource<u8> from, const u32* plan_words,
                                                    u64 rows, u32 chunks, Out* to,
                                                    const AugmentLabels labels) {
    __shared__ AugmentPlan plan;
    __shared__ AugmentSample<u8> own, other;
    __shared__ u64 sums[2], partner;
    const u64 row = blockIdx.x / chunks;
    const u32 chunk = blockIdx.x % chunks;
    if (row >= rows) return;
    if (threadIdx.x == 0) {
        augment_plan(plan_words, plan);
        augment_sample(from, plan_words[0], row, from.records + row * AUGMENT_WORDS, own);
        const u32 kind = own.flags & (AUGMENT_BLEND | AUGMENT_PASTE);
        partner = kind == AUGMENT_BLEND || kind == AUGMENT_PASTE ? (u64)own.partner * rows >> 32 : row;
        augment_sample(from, plan_words[0], partner, from.records + partner * AUGMENT_WORDS, other);
        sums[0] = sums[1] = 0;
    }
    __syncthreads();
    const u32 kind = own.flags & (AUGMENT_BLEND | AUGMENT_PASTE);
    const bool blends = kind == AUGMENT_BLEND, pastes = kind == AUGMENT_PASTE;
    if (chunk == 0) augment_labels(labels, row, partner, blends || pastes ? own.lambda : 1.0f);
    const u32 pixels = (u32)plan.height * (u32)plan.width;
    // With a change of contrast there is one block per sample. It finds the mean first.
    if (chunks == 1) {
        for (u32 which = 0; which < (blends || pastes ? 2u : 1u); ++which) {
            const AugmentSample<u8>& sample = which == 0 ? own : other;
            bool has_contrast = false;
            for (int i = 0; i < 8; ++i) {
                const u32 change = sample.colors >> 4 * i & 15;
                if (change == 0 || change > 5) break;
                has_contrast = has_contrast || change == 2;
            }
            if (!has_contrast) continue;
            u64 sum = 0;
            for (u32 i = threadIdx.x; i < pixels; i += blockDim.x) {
                u32 pixel[3];
                augment_found(sample, plan, (int)(i / (u32)plan.width), (int)(i % (u32)plan.width), pixel);
                augment_colors(sample, pixel, true);
                sum += augment_gray(pixel);
            }
            atomicAdd(&sums[which], sum);
        }
        __syncthreads();
        if (threadIdx.x == 0) {
            own.mean = augment_level(__dadd_rn((double)sums[0] / (double)pixels, 0.5));
            other.mean = augment_level(__dadd_rn((double)sums[1] / (double)pixels, 0.5));
            if (partner == row) other.mean = own.mean;
        }
        __syncthreads();
    }
    Out* picture = to + row * pixels * 3;
    const float lambda = own.lambda;
    for (u32 i = chunk * blockDim.x + threadIdx.x; i < pixels; i += chunks * blockDim.x) {
        const int y = (int)(i / (u32)plan.width), x = (int)(i % (u32)plan.width);
        float values[3];
        augment_finished<LEVELS>(pastes && own.part.has(y, x) ? other : own, plan, y, x, values);
        if (blends) {
            float theirs[3];
            augment_finished<LEVELS>(other, plan, y, x, theirs);
#pragma unroll
            for (int c = 0; c < 3; ++c)
                values[c] =
                    __fadd_rn(__fmul_rn(values[c], lambda), __fmul_rn(theirs[c], __fsub_rn(1.0f, lambda)));
        }
#pragma unroll
        for (int c = 0; c < 3; ++c)
            augment_narrow(values[c], picture[plan.planes_out ? (u64)c * pixels + i : (u64)i * 3 + c]);
    }
}

#define AUGMENT_PARAMETERS(IN, OUT)                                                                          \
    const IN *__restrict__ all, u64 elements, const u32 *__restrict__ offsets,                               \
        const u32 *__restrict__ records, const u32 *__restrict__ plan, u64 rows, u32 chunks,                 \
        OUT *__restrict__ to, const void *labels, u32 label_bytes, float *probabilities, u32 classes
// BLOCKS per multiprocessor: the fewer bytes a pixel has, the more threads it takes to keep the memory busy.
#define AUGMENT_COPY(NAME, IN, OUT, LEVELS, BLOCKS)                                                          \
    extern "C" __global__ void __launch_bounds__(256, BLOCKS) NAME(AUGMENT_PARAMETERS(IN, OUT)) {            \
        augment_copy<IN, OUT, LEVELS>({all, elements, offsets, records}, plan, rows, chunks, to,             \
                                      {labels, label_bytes, probabilities, classes});                        \
    }
#define AUGMENT_WORK(NAME, OUT, LEVELS)                                                                      \
    extern "C" __global__ void __launch_bounds__(512) NAME(AUGMENT_PARAMETERS(u8, OUT)) {                    \
        augment_work<OUT, LEVELS>({all, elements, offsets, records}, plan, rows, chunks, to,                 \
                                  {labels, label_bytes, probabilities, classes});                            \
    }

AUGMENT_COPY(augment_copy_u8_u8, u8, u8, true, 8)
AUGMENT_COPY(augment_copy_u8_f32, u8, float, false, 4)
AUGMENT_COPY(augment_copy_u8_f16, u8, AugmentHalf, false, 6)
AUGMENT_COPY(augment_copy_u8_bf16, u8, AugmentBfloat, false, 6)
AUGMENT_COPY(augment_copy_u16_f32, u16, float, false, 4)
AUGMENT_COPY(augment_copy_u16_f16, u16, AugmentHalf, false, 4)
AUGMENT_COPY(augment_copy_u16_bf16, u16, AugmentBfloat, false, 4)
AUGMENT_COPY(augment_copy_f16_f32, AugmentHalf, float, false, 4)
AUGMENT_COPY(augment_copy_f16_f16, AugmentHalf, AugmentHalf, false, 4)
AUGMENT_COPY(augment_copy_f16_bf16, AugmentHalf, AugmentBfloat, false, 4)
AUGMENT_COPY(augment_copy_bf16_f32, AugmentBfloat, float, false, 4)
AUGMENT_COPY(augment_copy_bf16_f16, AugmentBfloat, AugmentHalf, false, 4)
AUGMENT_COPY(augment_copy_bf16_bf16, AugmentBfloat, AugmentBfloat, false, 4)
AUGMENT_WORK(augment_work_u8_u8, u8, true)
AUGMENT_WORK(augment_work_u8_f32, float, false)
AUGMENT_WORK(augment_work_u8_f16, AugmentHalf, false)
AUGMENT_WORK(augment_work_u8_bf16, AugmentBfloat, false)
