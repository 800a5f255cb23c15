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
