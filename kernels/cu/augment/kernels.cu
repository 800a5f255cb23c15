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

// Pictures that are resized, flipped and normalised, and nothing else: pixels `from` to `to`.
template <typename Out, bool LEVELS>
static __device__ __forceinline__ void augment_resize(const AugmentSample<u8>& sample,
                                                      const AugmentPlan& shared_plan,
                                                      const AugmentTables& tables, u32 from, u32 to,
                                                      Out* picture) {
    const AugmentPlan plan = shared_plan;
    const AugmentScaling scaling(sample, plan);
    const u32 width = (u32)plan.width, pixels = (u32)plan.height * width;
    const u32 down = blockDim.x / width, across = blockDim.x % width;
    u32 i = from + threadIdx.x, y = i / width, x = i % width;
#pragma unroll 1
    for (; i < to; i += blockDim.x) {
        u32 pixel[3];
        augment_by_tables(sample, scaling, tables.taps, tables.taps + plan.height, (int)y, (int)x, pixel);
#pragma unroll
        for (int c = 0; c < 3; ++c) {
            const float value = (float)pixel[c];
            augment_narrow(LEVELS ? value : fmaf(value, plan.by[c], plan.add[c]),
                           picture[plan.planes_out ? (u64)c * pixels + i : (u64)i * 3 + c]);
        }
        y += down;
        x += across;
        if (x >= width) {
            x -= width;
            ++y;
        }
    }
}

template <typename Out, bool LEVELS>
static __device__ __forceinline__ void augment_work(const AugmentSource<u8> from, const u32* plan_words,
                                                    u64 rows, u32 chunks, Out* to,
                                                    const AugmentLabels labels) {
    __shared__ AugmentPlan plan;
    __shared__ AugmentSample<u8> own, other;
    __shared__ AugmentTables own_tables, other_tables;
    __shared__ u64 sums[2];
    __shared__ u32 record[AUGMENT_WORDS], words[AUGMENT_PLAN_WORDS];
    const u64 row = blockIdx.x / chunks;
    const u32 chunk = blockIdx.x % chunks;
    if (row >= rows) return;
    for (u32 i = threadIdx.x; i < AUGMENT_WORDS + AUGMENT_PLAN_WORDS; i += blockDim.x) {
        if (i < AUGMENT_WORDS) record[i] = from.records[row * AUGMENT_WORDS + i];
        else words[i - AUGMENT_WORDS] = plan_words[i - AUGMENT_WORDS];
    }
    __syncthreads();
    const u32 kind = record[14] & (AUGMENT_BLEND | AUGMENT_PASTE);
    const bool blends = kind == AUGMENT_BLEND, pastes = kind == AUGMENT_PASTE, mixes = blends || pastes;
    const u64 partner = mixes ? (u64)record[30] * rows >> 32 : row;
    if (threadIdx.x == 0) {
        augment_sample(from, words[0], row, record, own);
        sums[0] = sums[1] = 0;
    }
    // By another warp.
    if (threadIdx.x == blockDim.x - 1) {
        augment_plan(words, plan);
        if (mixes)
            augment_sample(from, words[0], partner, from.records + partner * AUGMENT_WORDS, other);
    }
    __syncthreads();
    augment_fill_tables(own, plan, own_tables);
    if (mixes) augment_fill_tables(other, plan, other_tables);
    __syncthreads();
    if (chunk == 0) augment_labels(labels, row, partner, mixes ? own.lambda : 1.0f);
    const u32 pixels = (u32)plan.height * (u32)plan.width;
    // With a change of contrast there is one block per sample. It finds the mean first.
    if (chunks == 1) {
        for (u32 which = 0; which < (mixes ? 2u : 1u); ++which) {
            const AugmentSample<u8>& sample = which == 0 ? own : other;
            const AugmentTables& tables = which == 0 ? own_tables : other_tables;
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
                const int y = (int)(i / (u32)plan.width), x = (int)(i % (u32)plan.width);
                augment_found(sample, plan, tables, y, x, pixel);
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
    // Neighbouring rows, whose source rows overlap.
    const u32 part = (pixels + chunks - 1) / chunks, first = chunk * part;
    const u32 behind = first + part < pixels ? first + part : pixels;
    if (!mixes && own_tables.are_used && (own.colors & 15) == 0 && (own.flags & AUGMENT_ERASED) == 0)
        return augment_resize<Out, LEVELS>(own, plan, own_tables, first, behind, picture);
    const float lambda = own.lambda;
    for (u32 i = first + threadIdx.x; i < behind; i += blockDim.x) {
        const int y = (int)(i / (u32)plan.width), x = (int)(i % (u32)plan.width);
        float values[3];
        if (pastes && own.part.has(y, x)) augment_finished<LEVELS>(other, plan, other_tables, y, x, values);
        else augment_finished<LEVELS>(own, plan, own_tables, y, x, values);
        if (blends) {
            float theirs[3];
            augment_finished<LEVELS>(other, plan, other_tables, y, x, theirs);
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
    extern "C" __global__ void __launch_bounds__(512, 2) NAME(AUGMENT_PARAMETERS(u8, OUT)) {                    \
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
