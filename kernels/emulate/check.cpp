// Runs every kernel except spin on the host and compares it with plain loops in f64. Build and run:
// ci/kernels.sh.
//
// Every buffer is a heap block of exactly its size, so the address sanitizer sees an access one element out
// of bounds.
#include "cuda.h"

#include "../cu/adamw.cu"
#include "../cu/argmax.cu"
#include "../cu/augment/samples.cu"
#include "../cu/augment/scaled.cu"
#include "../cu/augment/colors.cu"
#include "../cu/augment/fours.cu"
#include "../cu/augment/kernels.cu"
#include "../cu/backward.cu"
#include "../cu/fill.cu"
#include "../../crates/device/src/cuda/driver/gather.cu"
#include "../cu/gemm.cu"
#include "../cu/pattern.cu"
#include "../cu/sgd.cu"
#include "../cu/softmax_xent.cu"
#include "../cu/classifier_fused.cu"
#include "../cu/cast.cu"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <memory>
#include <random>
#include <vector>

#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/asan_interface.h>
#endif

using emulate::launch;

static std::mt19937_64 source(7);
static int failures = 0;

static double uniform() { return std::uniform_real_distribution<double>(-1, 1)(source); }

// n elements on the heap, starting `shift` elements past 16-byte alignment.
template <typename T>
struct Block {
    std::unique_ptr<char[]> bytes;
    T* data;
    size_t n;
    // The sanitizer also finds reads of the first `shift` elements, in whole groups of 8 bytes.
    explicit Block(size_t n, size_t shift = 0)
        : bytes(new char[(n + shift) * sizeof(T)]()), data((T *)bytes.get() + shift), n(n) {
#ifdef __SANITIZE_ADDRESS__
        __asan_poison_memory_region(bytes.get(), shift * sizeof(T) / 8 * 8);
#endif
    }
    T& operator[](size_t i) { return data[i]; }
};

static Block<float> random_floats(size_t n) {
    Block<float> block(n);
    for (size_t i = 0; i < n; ++i) block[i] = (float)uniform();
    return block;
}

static void expect(bool holds, const char* what, double got, double want, size_t at) {
    if (holds) return;
    if (++failures < 20) printf("WRONG %s at %zu: got %.9g, want %.9g\n", what, at, got, want);
}

static void near(const char* what, float* got, const std::vector<double>& want, double tolerance) {
    for (size_t i = 0; i < want.size(); ++i) {
        const bool holds = std::isnan(want[i])
                               ? std::isnan(got[i])
                               : std::fabs(got[i] - want[i]) <= tolerance * (1 + std::fabs(want[i]));
        expect(holds, what, got[i], want[i], i);
    }
}

static void elementwise() {
    for (size_t n : {1, 3, 5, 1000, 4099, 70001}) {
        for (size_t shift : {0, 1, 3, 4}) {
            Block<u8> bytes(n, shift);
            Block<float> wide(n, shift);
            std::vector<double> want(n);
            for (size_t i = 0; i < n; ++i) want[i] = (bytes[i] = (u8)source()) / 255.0;
            launch({2, 1, 1}, {256, 1, 1}, [&] { cast_u8(bytes.data, wide.data, n, 1 / 255.0f); });
            near("cast_u8", wide.data, want, 1e-6);
        }
        Block<float> filled(n);
        launch({2, 1, 1}, {256, 1, 1}, [&] { fill_f32(filled.data, n, 2.5f); });
        near("fill_f32", filled.data, std::vector<double>(n, 2.5), 0);
    }
}

static void both_ways() {
    bool shifted = false;
    for (size_t rows : {1, 3, 127, 128, 129, 200}) {
        for (size_t cols : {1, 63, 64, 65, 130, 132}) {
            // Either output is aligned in some cases and unaligned in others.
            shifted = !shifted;
            Block<u8> bytes(rows * cols, shifted);
            Block<float> wide(rows * cols, shifted && rows % 2), transposed(rows * cols, shifted && cols % 2);
            std::vector<double> want(rows * cols), want_transposed(rows * cols);
            for (size_t i = 0; i < want.size(); ++i) {
                wide[i] = transposed[i] = NAN;
                want_transposed[i % cols * rows + i / cols] = want[i] = (bytes[i] = (u8)source()) / 255.0;
            }
            launch({3, 1, 1}, {256, 1, 1}, [&] {
                cast_u8_with_transpose(bytes.data, wide.data, transposed.data, rows, cols, 1 / 255.0f);
            });
            near("cast_u8_with_transpose", wide.data, want, 1e-6);
            near("cast_u8_with_transpose transposed", transposed.data, want_transposed, 1e-6);
        }
    }
}

static void updates() {
    for (size_t n : {1, 6, 1031, 5000}) {
        auto w = random_floats(n), v = random_floats(n), g = random_floats(n), m = random_floats(n),
             s = random_floats(n);
        std::vector<double> want_w(n), want_v(n), want_m(n), want_s(n);
        for (size_t i = 0; i < n; ++i) {
            want_v[i] = 0.9 * v[i] + g[i];
            want_w[i] = w[i] - 0.05 * want_v[i];
        }
        launch({3, 1, 1}, {256, 1, 1}, [&] { sgd(w.data, v.data, g.data, n, 0.05f, 0.9f); });
        near("sgd w", w.data, want_w, 1e-6);
        near("sgd v", v.data, want_v, 1e-6);
        u32 counter = 6;
        for (size_t i = 0; i < n; ++i) {
            s[i] = std::fabs(s[i]);
            want_m[i] = 0.9 * m[i] + 0.1 * g[i];
            want_s[i] = 0.999 * s[i] + 0.001 * g[i] * g[i];
            const double mean = want_m[i] / (1 - std::pow(0.9, 7)),
                         square = want_s[i] / (1 - std::pow(0.999, 7));
            want_w[i] = w[i] - 0.01 * (mean / (std::sqrt(square) + 1e-8) + 0.1 * w[i]);
        }
        launch({3, 1, 1}, {256, 1, 1}, [&] {
            adamw(w.data, m.data, s.data, g.data, n, 0.01f, 0.9f, 0.1f, (float)std::log(0.9), 0.999f, 0.001f,
                (float)std::log(0.999), 1e-8f, 0.1f, 1, &counter);
        });
        near("adamw w", w.data, want_w, 1e-4);
        near("adamw m", m.data, want_m, 1e-6);
        near("adamw s", s.data, want_s, 1e-6);
        launch({1, 1, 1}, {32, 1, 1}, [&] { adamw_tick(&counter); });
        expect(counter == 7, "adamw_tick", counter, 7, 0);
    }
}

static void relu_and_bias() {
    for (auto [rows, cols] : {std::pair<size_t, size_t>{1, 1}, {7, 10}, {33, 65}, {300, 100}}) {
        for (unsigned chunks : {1, 4}) {
            for (int masked = 0; masked < 2; ++masked) {
                auto dy = random_floats(rows * cols), activation = random_floats(rows * cols);
                const unsigned strips = (unsigned)(cols + 63) / 64;
                Block<float> sums(cols), partial(chunks * cols);
                Block<u32> counters(strips);
                std::vector<double> want(rows * cols), want_sums(cols);
                for (size_t i = 0; i < want.size(); ++i)
                    want_sums[i % cols] += want[i] = masked && activation[i] <= 0 ? 0 : dy[i];
                launch({strips, chunks, 1}, {32, 16, 1}, [&] {
                    relu_bias_backward(dy.data, masked ? activation.data : nullptr, sums.data, partial.data,
                        counters.data, rows, cols);
                });
                near("relu_bias_backward dy", dy.data, want, 0);
                near("relu_bias_backward dbias", sums.data, want_sums, 1e-5);
                for (unsigned t = 0; t < strips; ++t) expect(counters[t] == 0, "counters", counters[t], 0, t);
            }
        }
    }
}

static void relu_and_bias_transposed() {
    int turn = 0;
    for (size_t rows : {1, 3, 127, 129, 200, 300}) {
        for (size_t cols : {1, 63, 64, 65, 130}) {
            const bool masked = ++turn % 4 != 0;
            const unsigned chunks = turn % 3 == 0 ? 1 : 2, strips = (unsigned)(cols + 63) / 64;
            auto dy = random_floats(rows * cols), activation = random_floats(rows * cols);
            Block<float> transposed(rows * cols), sums(cols), partial(chunks * cols);
            Block<u32> counters(strips);
            std::vector<double> want(rows * cols), want_dy(dy.data, dy.data + dy.n), want_sums(cols);
            for (size_t i = 0; i < want.size(); ++i) {
                transposed[i] = NAN;
                want_sums[i % cols] += want[i % cols * rows + i / cols] =
                    masked && activation[i] <= 0 ? 0 : dy[i];
            }
            launch({strips, chunks, 1}, {32, 16, 1}, [&] {
                relu_bias_backward_transposed(dy.data, masked ? activation.data : nullptr, transposed.data,
                    sums.data, partial.data, counters.data, rows, cols);
            });
            near("relu_bias_backward_transposed", transposed.data, want, 0);
            near("relu_bias_backward_transposed dy", dy.data, want_dy, 0);
            near("relu_bias_backward_transposed dbias", sums.data, want_sums, 1e-5);
            for (unsigned t = 0; t < strips; ++t)
                expect(counters[t] == 0, "transposed counters", counters[t], 0, t);
        }
    }
}

template <typename Label, typename Loss, typename Hits>
static void classify(
    Loss loss_kernel, Hits hits_kernel, size_t rows, size_t cols, bool in_place, bool bad_label) {
    auto z = random_floats(rows * cols);
    for (size_t i = 0; i < rows * cols; ++i) z[i] = std::floor(z[i] * 8) / 2;  // rounded, so that maxima tie
    Block<Label> labels(rows);
    Block<float> dz(rows * cols), row_loss(rows), loss(1);
    Block<u32> hits(1);
    Block<u64> scratch(1);
    std::vector<double> want_dz(rows * cols), want_loss(rows);
    double mean = 0;
    unsigned want_hits = 0;
    for (size_t r = 0; r < rows; ++r) {
        double sum = 0;
        size_t best = 0;
        for (size_t c = 0; c < cols; ++c) {
            sum += std::exp((double)z[r * cols + c]);
            if (z[r * cols + c] > z[r * cols + best]) best = c;
        }
        // Mostly right, so that several warps of a block have hits to add.
        labels[r] = (Label)(r % 4 == 3 ? source() % cols : best);
        if (bad_label && r == rows / 2) labels[r] = (Label)-1;
        const bool known = (u64)labels[r] < cols;
        want_loss[r] = known ? std::log(sum) - z[r * cols + labels[r]] : NAN;
        mean += want_loss[r] / rows;
        want_hits += known && best == (size_t)labels[r];
        for (size_t c = 0; c < cols; ++c)
            want_dz[r * cols + c] =
                known ? (std::exp((double)z[r * cols + c]) / sum - (c == (size_t)labels[r])) / rows : NAN;
    }
    u32 counted = 5;
    launch({2, 1, 1}, {256, 1, 1}, [&] { hits_kernel(z.data, labels.data, &counted, rows, cols); });
    expect(counted == 5 + want_hits, "argmax_hits", counted, 5 + want_hits, 0);
    float* to = in_place ? z.data : dz.data;
    launch({2, 1, 1}, {256, 1, 1}, [&] {
        loss_kernel(z.data, labels.data, to, row_loss.data, loss.data, hits.data, scratch.data, rows, cols);
    });
    near("softmax_xent row_loss", row_loss.data, want_loss, 1e-5);
    near("softmax_xent loss", loss.data, {mean}, 1e-5);
    near("softmax_xent dlogits", to, want_dz, 1e-6);
    expect(hits[0] == want_hits, "softmax_xent hits", hits[0], want_hits, 0);
    expect(scratch[0] == 0, "softmax_xent scratch", (double)scratch[0], 0, 0);
}

static void losses() {
    for (auto [rows, cols] : {std::pair<size_t, size_t>{1, 2}, {17, 10}, {40, 33}, {9, 1000}}) {
        for (bool bad : {false, true}) {
            classify<u8>(softmax_xent_u8, argmax_hits_u8, rows, std::min<size_t>(cols, 200), bad, bad);
            classify<long long>(softmax_xent_i64, argmax_hits_i64, rows, cols, !bad, bad);
        }
    }
}

// Forward and backward of a classifier's last layer; `shift` breaks the alignment for the wide loads.
static void classifier(size_t rows, size_t inputs, size_t classes, unsigned chunks, size_t shift) {
    Block<float> x(rows * inputs, shift), w(classes * inputs, shift), b(classes), dlogits(rows * classes),
        row_loss(rows), loss(1);
    for (size_t i = 0; i < x.n; ++i) x[i] = (float)std::max(0.0, uniform());
    for (size_t i = 0; i < w.n; ++i) w[i] = (float)uniform();
    for (size_t i = 0; i < b.n; ++i) b[i] = (float)uniform();
    Block<u8> labels(rows);
    Block<u32> hits(1);
    Block<u64> scratch(1);
    std::vector<double> z(classes), want_loss(rows), want_dz(rows * classes);
    double mean = 0;
    unsigned want_hits = 0;
    for (size_t r = 0; r < rows; ++r) {
        labels[r] = (u8)(source() % classes);
        double sum = 0;
        size_t best = 0;
        for (size_t k = 0; k < classes; ++k) {
            z[k] = b[k];
            for (size_t i = 0; i < inputs; ++i) z[k] += (double)x[r * inputs + i] * w[k * inputs + i];
            sum += std::exp(z[k]);
            if (z[k] > z[best]) best = k;
        }
        mean += (want_loss[r] = std::log(sum) - z[labels[r]]) / rows;
        want_hits += best == labels[r];
        for (size_t k = 0; k < classes; ++k)
            want_dz[r * classes + k] = (std::exp(z[k]) / sum - (k == labels[r])) / rows;
    }
    const auto narrow = classes <= 16 ? classifier_16 : classifier_32,
               wide = classes <= 16 ? classifier_16_wide : classifier_32_wide;
    launch({2, 1, 1}, {128, 1, 1}, [&] {
        (rows % 2 == 0 ? wide : narrow)(x.data, w.data, b.data, labels.data, dlogits.data, row_loss.data,
            loss.data, hits.data, scratch.data, rows, inputs, (u32)classes);
    });
    near("classifier row_loss", row_loss.data, want_loss, 1e-4);
    near("classifier loss", loss.data, {mean}, 1e-5);
    near("classifier dlogits", dlogits.data, want_dz, 1e-5);
    expect(hits[0] == want_hits, "classifier hits", hits[0], want_hits, 0);
    expect(scratch[0] == 0, "classifier scratch", (double)scratch[0], 0, 0);

    const unsigned strips = (unsigned)(inputs + 63) / 64;
    Block<float> dx(rows * inputs), dw(classes * inputs), db(classes), sums(inputs),
        partial(chunks * ((classes + 1) * inputs + classes));
    Block<u32> counters(strips);
    std::vector<double> want_dx(dx.n), want_dw(dw.n), want_db(classes), want_sums(inputs);
    for (size_t r = 0; r < rows; ++r) {
        for (size_t k = 0; k < classes; ++k) want_db[k] += dlogits[r * classes + k];
        for (size_t i = 0; i < inputs; ++i) {
            for (size_t k = 0; k < classes; ++k) {
                want_dw[k * inputs + i] += (double)dlogits[r * classes + k] * x[r * inputs + i];
                if (x[r * inputs + i] > 0)
                    want_dx[r * inputs + i] += (double)dlogits[r * classes + k] * w[k * inputs + i];
            }
            want_sums[i] += want_dx[r * inputs + i];
        }
    }
    launch({strips, chunks, 1}, {32, 16, 1}, [&] {
        (classes <= 16 ? classifier_backward_16 : classifier_backward_32)(x.data, w.data, dlogits.data,
            dx.data, dw.data, db.data, sums.data, partial.data, counters.data, rows, inputs, (u32)classes);
    });
    near("classifier dx", dx.data, want_dx, 1e-5);
    near("classifier dw", dw.data, want_dw, 1e-5);
    near("classifier db", db.data, want_db, 1e-5);
    near("classifier dx_sums", sums.data, want_sums, 1e-5);
    for (unsigned t = 0; t < strips; ++t) expect(counters[t] == 0, "classifier counters", counters[t], 0, t);

    // The same in one pass of `chunks` blocks.
    if (classes > 16 || inputs > 512) return;
    const size_t count = (classes + 1) * inputs + classes + 2;
    Block<float> fused_dx(rows * inputs, shift), parts(chunks * count);
    loss[0] = dw[0] = db[0] = sums[0] = -1;
    hits[0] = 0xEEEEEEEE;
    const auto fused = [&] {
        launch({chunks, 1, 1}, {512, 1, 1}, [&] {
            (classes <= 12 ? classifier_fused_12 : classifier_fused_16)(x.data, w.data, b.data,
                labels.data, fused_dx.data, parts.data, rows, (u32)(rows + chunks - 1) / chunks,
                (u32)inputs, (u32)classes);
        });
        launch({(unsigned)(count + 31) / 32, 1, 1}, {32, 16, 1}, [&] {
            classifier_fused_sums(parts.data, dw.data, sums.data, db.data, loss.data, hits.data, chunks,
                rows, (u32)inputs, (u32)classes);
        });
    };
    fused();
    near("fused dx", fused_dx.data, want_dx, 1e-5);
    near("fused dw", dw.data, want_dw, 1e-5);
    near("fused db", db.data, want_db, 1e-5);
    near("fused dx_sums", sums.data, want_sums, 1e-5);
    near("fused loss", loss.data, {mean}, 1e-5);
    expect(hits[0] == want_hits, "fused hits", hits[0], want_hits, 0);

    labels[rows - 1] = 255;
    fused();
    expect(std::isnan(loss[0]), "fused loss of an invalid label", loss[0], NAN, 0);
    expect(std::isnan(db[0]), "fused db of an invalid label", db[0], NAN, 0);
}

static void classifiers() {
    for (unsigned chunks : {1, 3}) {
        classifier(1, 1, 2, chunks, 0);
        classifier(17, 64, 10, chunks, 0);
        classifier(18, 600, 10, chunks, 0);
        classifier(37, 512, 10, chunks, 0);
        classifier(5, 131, 3, chunks, 0);
        classifier(33, 70, 16, chunks, 1);
        classifier(34, 71, 16, chunks, 1);
        classifier(20, 36, 32, chunks, 1);
        classifier(21, 516, 32, chunks, 0);
        classifier(140, 66, 20, chunks, 0);
    }
}

struct Tile {
    unsigned side, threads;
    decltype(&gemm_nt_32) nt;
    decltype(&gemm_nn_32) nn;
    decltype(&gemm_tn_32) tn;
};

static void products() {
    const Tile tiles[] = {{32, 128, gemm_nt_32, gemm_nn_32, gemm_tn_32},
                          {64, 256, gemm_nt_64, gemm_nn_64, gemm_tn_64},
                          {128, 256, gemm_nt_128, gemm_nn_128, gemm_tn_128}};
    for (auto [m, n, k] : {std::tuple<size_t, size_t, size_t>{1, 1, 1}, {5, 10, 3}, {33, 70, 41},
             {64, 64, 64}, {130, 129, 50}}) {
        for (const Tile& tile : tiles) {
            const uint3 grid = {
                (unsigned)((n + tile.side - 1) / tile.side), (unsigned)((m + tile.side - 1) / tile.side), 1};
            for (int layout = 0; layout < 3; ++layout) {
                auto a = random_floats(m * k), b = random_floats(k * n), bias = random_floats(n),
                     mask = random_floats(m * n);
                Block<float> c(m * n), sums(m);
                std::vector<double> want(m * n), want_sums(m);
                const bool extra = (m + k) % 2 == 0;
                for (size_t i = 0; i < m; ++i) {
                    for (size_t p = 0; p < k; ++p) want_sums[i] += layout == 2 ? a[p * m + i] : a[i * k + p];
                    for (size_t j = 0; j < n; ++j) {
                        double& x = want[i * n + j];
                        for (size_t p = 0; p < k; ++p)
                            x += (double)(layout == 2 ? a[p * m + i] : a[i * k + p]) *
                                 (layout == 0 ? b[j * k + p] : b[p * n + j]);
                        if (layout == 0 && extra) x = std::max(0.0, x + bias[j]);
                        if (layout == 1 && extra && mask[i * n + j] <= 0) x = 0;
                    }
                }
                launch(grid, {tile.threads, 1, 1}, [&] {
                    if (layout == 0)
                        tile.nt(a.data, b.data, c.data, m, n, k, extra ? bias.data : nullptr, extra);
                    if (layout == 1)
                        tile.nn(a.data, b.data, c.data, m, n, k, extra ? mask.data : nullptr);
                    if (layout == 2)
                        tile.tn(a.data, b.data, c.data, m, n, k, extra ? sums.data : nullptr);
                });
                near(layout == 0 ? "gemm_nt" : layout == 1 ? "gemm_nn" : "gemm_tn", c.data, want, 1e-4);
                if (layout == 2 && extra) near("gemm_tn dbias", sums.data, want_sums, 1e-4);
            }
        }
    }
}

// A second implementation of the bytes documented in pattern.cu.
static u8 pattern_byte(u64 key, u64 id, u64 k) {
    auto mix = [](u64 x) {
        x += 0x9E3779B97F4A7C15ull;
        x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9ull;
        x = (x ^ x >> 27) * 0x94D049BB133111EBull;
        return x ^ x >> 31;
    };
    return (u8)(mix(mix(key ^ id) + k / 8 * 0x9E3779B97F4A7C15ull) >> k % 8 * 8);
}

// Fields of all widths at once, with any gap and alignment; more and fewer rows than warps; gathered in batch
// order and in another order, with one invalid place. Cuts rows into parts of about `max_bytes` bytes, as
// pieces.rs of the CUDA backend does.
static GatherCut cut(size_t rows, size_t row_bytes, size_t max_bytes, u32 threads, u32& blocks) {
    const size_t wanted = (row_bytes + max_bytes - 1) / max_bytes;
    const size_t bytes = ((row_bytes + wanted - 1) / wanted + 15) / 16 * 16;
    const size_t parts = (row_bytes + bytes - 1) / bytes;
    const u32 lanes = row_bytes <= 16 ? 0 : row_bytes <= 256 ? 3 : 5;
    GatherCut cut = {blocks, (u32)parts, (u32)bytes, lanes};
    blocks += (u32)((rows * parts + (threads >> lanes) - 1) / (threads >> lanes));
    return cut;
}

static void gathered_fields() {
    const size_t widths[] = {1, 3, 8, 13, 16, 17, 31, 100, 256, 257, 784, 3073, 9001};
    const size_t fields = sizeof widths / sizeof *widths, count = 19;
    for (size_t shift : {0, 1, 4, 14}) {
        for (size_t gap : {0, 1, 16}) {
            for (size_t shift_to : {0, 2}) {
                for (size_t rows : {1, 2, 3, 4, 7, 43, 150}) {
                    const bool ordered = (shift + gap + rows) % 2 == 0;
                    Block<u64> ids(rows);
                    for (size_t r = 0; r < rows; ++r) ids[r] = source() % count;
                    if (rows > 5) ids[5] = count;
                    if (rows > 2) ids[2] = ~0ull;
                    // places: the row that visit v writes. visit: its inverse.
                    Block<u32> places(rows);
                    for (size_t v = 0; v < rows; ++v) places[v] = (u32)v;
                    if (ordered) std::shuffle(places.data, places.data + rows, source);
                    std::vector<size_t> visit(rows, rows);
                    if (ordered) places[rows / 2] = rows % 4 ? (u32)rows : ~0u;
                    for (size_t v = 0; v < rows; ++v)
                        if (places[v] < rows) visit[places[v]] = v;
                    std::vector<Block<u8>> from, to;
                    GatherFields all = {};
                    GatherCuts cuts = {};
                    GatherFew few = {};
                    for (size_t r = 0; r < rows; ++r) few.ids[r] = (u32)std::min<u64>(ids[r], ~0u);
                    u32 blocks = 0;
                    for (size_t f = 0; f < fields; ++f) {
                        const size_t stride = widths[f] + gap;
                        // No padding after the last row.
                        from.emplace_back((count - 1) * stride + widths[f], shift);
                        to.emplace_back(rows * widths[f], shift_to);
                        for (size_t i = 0; i < from[f].n; ++i) from[f][i] = (u8)source();
                        all.at[f] = {from[f].data, stride, count, to[f].data, widths[f]};
                        cuts.at[f] = cut(rows, widths[f], rows % 2 ? 700 : 2048, 64, blocks);
                    }
                    const u32* at = ordered ? places.data : nullptr;
                    const std::function<void()> kernels[] = {
                        [&] { gather_fields(ids.data, at, rows, (u32)fields, all); },
                        [&] { gather_resident(ids.data, at, rows, (u32)fields, all, cuts); },
                        [&] { gather_resident_few(rows, (u32)fields, all, cuts, few); },
                    };
                    const char* names[] = {"gather_fields", "gather_resident", "gather_resident_few"};
                    for (int k = 0; k < (ordered ? 2 : 3); ++k) {
                        for (size_t f = 0; f < fields; ++f) std::fill_n(to[f].data, to[f].n, 0xEE);
                        launch({k == 0 ? 2 : blocks, 1, 1}, {64, 1, 1}, kernels[k]);
                        for (size_t f = 0; f < fields; ++f) {
                            for (size_t i = 0; i < to[f].n; ++i) {
                                const size_t v = visit[i / widths[f]];
                                const u64 id = v < rows ? ids[v] : 0;
                                const u8 there =
                                    id < count ? from[f][id * (widths[f] + gap) + i % widths[f]] : 0;
                                const u8 want = v < rows ? there : 0xEE;
                                expect(to[f][i] == want, names[k], to[f][i], want, i);
                            }
                        }
                    }
                }
            }
        }
    }
}

static void rows_of_bytes() {
    for (size_t row_bytes : {1, 3, 8, 13, 31, 784, 3073}) {
        for (size_t shift : {0, 1, 6}) {
            for (size_t shift_to : {0, 2}) {
                const size_t rows = 23;
                Block<u8> to(rows * row_bytes, shift_to);
                Block<u64> ids(rows);
                for (size_t r = 0; r < rows; ++r) ids[r] = source() % 20;
                u64 report[3] = {0, ~0ull, 0};
                launch({2, 1, 1}, {64, 1, 1},
                    [&] { pattern_fill(to.data, rows, row_bytes, 99, shift ? ids.data : nullptr, 3); });
                for (size_t i = 0; i < to.n; ++i) {
                    const u8 want =
                        pattern_byte(99, shift ? ids[i / row_bytes] : 3 + i / row_bytes, i % row_bytes);
                    expect(to[i] == want, "pattern_fill", to[i], want, i);
                }
                to[7 % to.n] ^= 1;
                to[to.n - 1] ^= 128;
                launch({2, 1, 1}, {64, 1, 1}, [&] {
                    pattern_check(to.data, rows, row_bytes, 99, shift ? ids.data : nullptr, 3, report);
                });
                expect(report[0] == 2 && report[1] == 7 % to.n && report[2] == to.n, "pattern_check",
                    (double)report[0], 2, report[1]);
            }
        }
    }
}

// Pictures and the host's results, from a file that `cargo test -p feedline-pictures --test augment` writes
// to $FEEDLINE_AUGMENT_CASES. The bits must be equal.
template <typename T>
static Block<T> take(FILE* file, size_t n) {
    Block<T> block(n);
    if (n > 0 && fread(block.data, sizeof(T), n, file) != n)
        expect(false, "augment: the file is cut short", 0, n, 0);
    return block;
}

static void pictures(const char* path) {
    FILE* file = fopen(path, "rb");
    if (!file) return expect(false, "augment: no file of cases", 0, 1, 0);
    char name[33] = {0};
    size_t cases = 0;
    for (; fread(name, 1, 32, file) == 32 && failures < 20; ++cases) {
        Block<u64> numbers = take<u64>(file, 7);
        const u64 rows = numbers[0], elements = numbers[1], classes = numbers[5];
        Block<u32> plan = take<u32>(file, 16), records = take<u32>(file, rows * 36),
                   offsets = take<u32>(file, numbers[2]);
        Block<char> pixels = take<char>(file, numbers[3]);
        Block<u64> labels = take<u64>(file, rows);
        Block<char> wanted = take<char>(file, numbers[4]);
        Block<float> wanted_shares = take<float>(file, rows * classes);
        Block<char> found(wanted.n);
        Block<float> shares(wanted_shares.n);
        const u32* at = offsets.n > 0 ? offsets.data : nullptr;
        const unsigned threads = cases % 2 ? 64 : 33, chunks = numbers[6] ? 1 : 2;
        bool known = false;
#define CASE(NAME, IN, OUT)                                                                                  \
    if (!strcmp(name, #NAME)) {                                                                              \
        known = true;                                                                                        \
        launch({(unsigned)rows * chunks, 1, 1}, {threads, 1, 1}, [&] {                                       \
            NAME((const IN *)pixels.data, elements, at, records.data, plan.data, rows, chunks,               \
                (OUT *)found.data, labels.data, 8, shares.data, (u32)classes);                               \
        });                                                                                                  \
    }
        CASE(augment_copy_u8_u8, u8, u8)
        CASE(augment_copy_u8_f32, u8, float)
        CASE(augment_copy_u8_f16, u8, AugmentHalf)
        CASE(augment_copy_u8_bf16, u8, AugmentBfloat)
        CASE(augment_copy_u16_f32, u16, float)
        CASE(augment_copy_u16_f16, u16, AugmentHalf)
        CASE(augment_copy_u16_bf16, u16, AugmentBfloat)
        CASE(augment_copy_f16_f32, AugmentHalf, float)
        CASE(augment_copy_f16_f16, AugmentHalf, AugmentHalf)
        CASE(augment_copy_f16_bf16, AugmentHalf, AugmentBfloat)
        CASE(augment_copy_bf16_f32, AugmentBfloat, float)
        CASE(augment_copy_bf16_f16, AugmentBfloat, AugmentHalf)
        CASE(augment_copy_bf16_bf16, AugmentBfloat, AugmentBfloat)
        CASE(augment_work_u8_u8, u8, u8)
        CASE(augment_work_u8_f32, u8, float)
        CASE(augment_work_u8_f16, u8, AugmentHalf)
        CASE(augment_work_u8_bf16, u8, AugmentBfloat)
        expect(known, name, 0, 1, cases);
        for (size_t i = 0; i < found.n; ++i) expect(found[i] == wanted[i], name, found[i], wanted[i], i);
        for (size_t i = 0; i < shares.n; ++i)
            expect(shares[i] == wanted_shares[i], "augment: labels", shares[i], wanted_shares[i], i);
    }
    fclose(file);
    expect(cases > 100, "augment: cases", (double)cases, 100, 0);
    printf("batches of pictures: %zu\n", cases);
}

// Sums on both sides of each half, where a quotient guessed in floats may be off by one.
static void rounded_quotients() {
    for (int bits = 0; bits < 54; ++bits) {
        const u64 power = (u64)1 << bits;
        for (const u64 all : {power, power + 1, 3 * power - 1, 7 * power / 4 + 3}) {
            for (u64 level = 0; level <= 255; ++level) {
                const u64 half = (2 * level + 1) * all / 2;
                for (u64 sum = half < 2 ? 0 : half - 2; sum <= half + 2 && sum <= 255 * all; ++sum) {
                    const u32 found = augment_quotient(sum, all, 0.5f / (float)all);
                    const u64 wanted = (2 * sum + all) / (2 * all);
                    expect(found == wanted, "augment_quotient", found, (double)wanted, (size_t)sum);
                }
            }
        }
    }
}

int main(int arguments, char** argument) {
    if (arguments > 1) pictures(argument[1]);
    rounded_quotients();
    elementwise();
    both_ways();
    updates();
    relu_and_bias();
    relu_and_bias_transposed();
    losses();
    classifiers();
    products();
    gathered_fields();
    rows_of_bytes();
    printf("kernels on the host: %s (%d wrong values)\n", failures == 0 ? "ok" : "FAILED", failures);
    return failures == 0 ? 0 : 1;
}
