#include "stepzero/kernels/product/tile_product.hpp"

#include <cmath>

#include <immintrin.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "stepzero/kernels/product/libraries.hpp"
#include "stepzero/kernels/product/product_blocking.hpp"

namespace stepzero::kernels {

namespace {

constexpr Index wide = 16, deep = 32;                             // of a tile: rows of op(A) or columns of op(B), inner indices
constexpr Index tile_bytes = 1024, block_bytes = 3 * tile_bytes;  // a block: x1, x2 and x3 of wide x deep numbers
constexpr Index most_inner = 768;                                 // of a panel: 74 kB
constexpr Index pair = 2 * wide;                                  // rows and columns of C that are multiplied at a time
constexpr StripSizes strips = {pair, pair, 4 * pair};             // of the longer side of C, for one thread at a time: up to 590 kB
constexpr Index most_short = 1024;                                // of the shorter side at a time
constexpr Index huge_pages = Index{4} << 20;                      // memory of so many bytes lies in them

constexpr int well_in_range = 30, most_power = 50;  // of the powers of 2 in (3)

// Panel after panel: the blocks of the first `wide` rows or columns along the inner dimension, those of the next; what (3) took out of
// each.
struct Panels {
  std::byte* blocks;
  float* powers;
  Index size;  // bytes of a panel
  [[nodiscard]] std::byte* panel(Index w) const { return blocks + w / wide * size; }
  [[nodiscard]] float& power(Index w) const { return powers[w / wide]; }
  [[nodiscard]] Panels from(Index w) const { return {panel(w), &power(w), size}; }
};

// What follows runs where has_tiles(), up to the end of this target.
#ifdef __clang__
#pragma clang attribute push(__attribute__((target("avx512f,avx512dq,amx-tile,amx-bf16"))), apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx512f,avx512dq,amx-tile,amx-bf16")
#pragma GCC diagnostic ignored "-Wuninitialized"  // g++ 12 takes its own intrinsics for mistakes
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#pragma GCC diagnostic ignored "-Wpsabi"  // vectors travel between functions of this file only
#endif

inline __mmask16 first(Index n) { return n >= 16 ? 0xffff : static_cast<__mmask16>((1U << std::max<Index>(n, 0)) - 1); }

// Sixteen numbers of each of two vectors, cut into parts (1): part i of x in the lower half of a lane, that of y in the upper.
inline void cut(__m512 x, __m512 y, std::byte* to) {
  const __m512i half = _mm512_set1_epi32(0x8000), upper = _mm512_set1_epi32(static_cast<int>(0xffff0000));
  for (int i = 0; i < 3; ++i, to += tile_bytes) {
    const __m512i bits_x = _mm512_castps_si512(x), bits_y = _mm512_castps_si512(y);
    // the last part has no more than 8 bits
    const __m512i u = i == 2 ? bits_x : _mm512_and_si512(_mm512_add_epi32(bits_x, half), upper);
    const __m512i v = i == 2 ? bits_y : _mm512_and_si512(_mm512_add_epi32(bits_y, half), upper);
    _mm512_store_si512(to, _mm512_ternarylogic_epi32(_mm512_srli_epi32(u, 16), v, upper, 0xf8));  // (u >> 16) | (v & upper)
    x = _mm512_sub_ps(x, _mm512_castsi512_ps(u));
    y = _mm512_sub_ps(y, _mm512_castsi512_ps(v));
  }
}

inline void transpose(__m512* r) {
  __m512 t[16];
  for (int i = 0; i < 16; i += 2) {
    t[i] = _mm512_unpacklo_ps(r[i], r[i + 1]);
    t[i + 1] = _mm512_unpackhi_ps(r[i], r[i + 1]);
  }
  const auto pairs = [](__m512 x) { return _mm512_castps_pd(x); };
  for (int i = 0; i < 16; i += 4) {
    for (int j = 0; j < 2; ++j) {
      r[i + 2 * j] = _mm512_castpd_ps(_mm512_unpacklo_pd(pairs(t[i + j]), pairs(t[i + j + 2])));
      r[i + 2 * j + 1] = _mm512_castpd_ps(_mm512_unpackhi_pd(pairs(t[i + j]), pairs(t[i + j + 2])));
    }
  }
  for (int i = 0; i < 16; i += 8) {
    for (int j = i; j < i + 4; ++j) {
      t[j] = _mm512_shuffle_f32x4(r[j], r[j + 4], 0x88);
      t[j + 4] = _mm512_shuffle_f32x4(r[j], r[j + 4], 0xdd);
    }
  }
  for (int j = 0; j < 8; ++j) {
    r[j] = _mm512_shuffle_f32x4(t[j], t[j + 8], 0x88);
    r[j + 8] = _mm512_shuffle_f32x4(t[j], t[j + 8], 0xdd);
  }
}

// One block. The tiles of op(A) have a row for each of its rows, with inner indices k and k + 16 side by side, those of op(B) one for each
// k, k + 16: memory lies like that, or is transposed. Keeps the largest of the numbers' sizes in `most`.
template <bool along, bool transposed, bool scaled>
inline void pack_block(Source from, Index width, Index inner, __m512 factor, __m512& most, std::byte* to) {
  const Index step = along ? from.across : from.along, rows = along ? width : inner, columns = along ? inner : width;
  const __mmask16 low = first(columns), high = along ? first(columns - 16) : low;
  const auto row = [&](Index i, __mmask16 mask, const float* x) {
    const __m512 numbers = _mm512_maskz_loadu_ps(i < rows ? mask : 0, x + i * step);
    most = _mm512_range_ps(most, numbers, 0b1011);  // the larger size
    return scaled ? _mm512_mul_ps(numbers, factor) : numbers;
  };
  const auto lower = [&](Index i) { return row(i, low, from.data); };
  const auto upper = [&](Index i) { return along ? row(i, high, from.data + 16) : row(i + 16, high, from.data); };
  if constexpr (!transposed) {
    for (Index i = 0; i < 16; ++i) cut(lower(i), upper(i), to + i * 64);
  } else {
    __m512 lows[16], highs[16];
    for (Index i = 0; i < 16; ++i) lows[i] = lower(i);
    transpose(lows);
    for (Index i = 0; i < 16; ++i) highs[i] = upper(i);
    transpose(highs);
    for (Index i = 0; i < 16; ++i) cut(lows[i], highs[i], to + i * 64);
  }
}

// Up to two panels, times a power of 2 each; `sizes` of their largest numbers. Block by block in turns, for neighbours in memory.
template <bool along, bool transposed, bool scaled>
void pack_panels(Source from, Index width, Index inner, Panels to, const float* factors, float* sizes) {
  const __m512 factor[2] = {_mm512_set1_ps(factors[0]), _mm512_set1_ps(factors[1])};
  __m512 most[2] = {_mm512_setzero_ps(), _mm512_setzero_ps()};
  for (Index k = 0; k < inner; k += deep) {
    for (Index w = 0; w < width; w += wide) {
      pack_block<along, transposed, scaled>(from.at(w, k), width - w, inner - k, factor[w / wide], most[w / wide],
                                            to.panel(w) + k / deep * block_bytes);
    }
  }
  for (int i = 0; i < 2; ++i) sizes[i] = _mm512_reduce_max_ps(most[i]);
}

template <bool along, bool transposed>
void pack_pair(Source from, Index width, Index inner, Panels to) {
  float powers[2] = {1, 1}, factors[2] = {1, 1}, sizes[2];
  pack_panels<along, transposed, false>(from, width, inner, to, factors, sizes);
  for (int i = 0; i < 2; ++i) {
    const int exponent = sizes[i] > 0 ? std::clamp(std::ilogb(sizes[i]), -most_power, most_power) : 0;
    if (std::abs(exponent) > well_in_range) powers[i] = std::ldexp(1.0F, exponent);
    factors[i] = 1 / powers[i];
  }
  if (powers[0] != 1 || powers[1] != 1) pack_panels<along, transposed, true>(from, width, inner, to, factors, sizes);  // (3)
  for (Index w = 0; w < width; w += wide) to.power(w) = powers[w / wide];
}

void pack(bool by_rows, Source from, Index width, Index inner, Panels to) {
  const bool along = from.along == 1;
  (along ? (by_rows ? pack_pair<true, false> : pack_pair<true, true>) : (by_rows ? pack_pair<false, true> : pack_pair<false, false>))(
      from, width, inner, to);
}

struct alignas(64) TileConfig {
  std::uint8_t palette = 1, start_row = 0, reserved[14] = {};
  std::uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
  std::uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
};

// While it lives, this thread has its tiles.
class Tiles {
 public:
  Tiles() {
    static constexpr TileConfig config;
    _tile_loadconfig(&config);
    asm volatile("" ::: "memory");  // what was packed is in memory when tiles are loaded, which g++ does not know
  }
  ~Tiles() { _tile_release(); }
  Tiles(const Tiles&) = delete;
  Tiles& operator=(const Tiles&) = delete;
};

// Sums of up to 2 x 2 tiles that wait to be put into C: c = factor sums + beta c.
struct Square {
  alignas(64) float sums[4][256];
  float factors[2][2] = {}, beta = 0;
  View<float> c;

  void put() const {
    const __m512 g = _mm512_set1_ps(beta);
    for (Index i = 0; i < c.rows; ++i) {
      for (Index j = 0; j < c.cols; j += wide) {
        const __mmask16 columns = first(c.cols - j);
        float* const to = c.row(i) + j;
        const __m512 product =
            _mm512_mul_ps(_mm512_set1_ps(factors[i / wide][j / wide]), _mm512_load_ps(&sums[i / wide * 2 + j / wide][i % wide * 16]));
        const __m512 sum = beta == 0 ? product : _mm512_add_ps(product, _mm512_mul_ps(g, _mm512_maskz_loadu_ps(columns, to)));
        _mm512_mask_storeu_ps(to, columns, sum);
      }
    }
  }
};

// Adds up to two panels of op(A) times up to two of op(B), a block after the other: (2), the largest last.
template <bool two_rows, bool two_columns>
void multiply_panels(const std::byte* a, const std::byte* b, Index size, Square& square) {
  const auto load_a = [&](int i) {
    _tile_loadd(4, a + i * tile_bytes, 64);
    if constexpr (two_rows) _tile_loadd(5, a + size + i * tile_bytes, 64);
  };
  const auto load_b = [&](int i) {
    _tile_loadd(6, b + i * tile_bytes, 64);
    if constexpr (two_columns) _tile_loadd(7, b + size + i * tile_bytes, 64);
  };
  const auto add = [&] {
    _tile_dpbf16ps(0, 4, 6);
    if constexpr (two_columns) _tile_dpbf16ps(1, 4, 7);
    if constexpr (two_rows) _tile_dpbf16ps(2, 5, 6);
    if constexpr (two_rows && two_columns) _tile_dpbf16ps(3, 5, 7);
  };
  _tile_zero(0);
  _tile_zero(1);
  _tile_zero(2);
  _tile_zero(3);
  for (const std::byte *const begin = a, *const end = a + size; a != end; a += block_bytes, b += block_bytes) {
    load_a(2), load_b(0), add();
    load_a(1), add();
    load_b(1), add();
    load_a(0), add();
    load_b(2), add();
    load_b(0), add();
    if (a == begin) square.put();  // the last one, while the tiles are busy
  }
  auto& sums = square.sums;
  _tile_stored(0, sums[0], 64);
  _tile_stored(1, sums[1], 64);
  _tile_stored(2, sums[2], 64);
  _tile_stored(3, sums[3], 64);
}

struct Scales {
  float alpha, beta;
};

// Up to 2 x 2 tiles of C, which wait in `square`.
void multiply(const Panels& a, Index i, const Panels& b, Index j, Scales scales, View<float> c, Square& square) {
  const bool two_rows = c.rows > wide, two_columns = c.cols > wide;
  (two_rows ? (two_columns ? multiply_panels<true, true> : multiply_panels<true, false>)
            : (two_columns ? multiply_panels<false, true> : multiply_panels<false, false>))(a.panel(i), b.panel(j), a.size, square);
  square.c = c;
  square.beta = scales.beta;
  for (Index r = 0; r < c.rows; r += wide) {
    for (Index s = 0; s < c.cols; s += wide) square.factors[r / wide][s / wide] = scales.alpha * (a.power(i + r) * b.power(j + s));
  }
}

#ifdef __clang__
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif

// Memory for panels, kept by its thread.
struct Room {
  Tensor<std::byte> blocks;
  Tensor<float> powers;

  Panels panels(Index width, Index inner) {
    const Index count = round_up(width, wide) / wide, size = round_up(inner, deep) / deep * block_bytes;
    if (blocks.size() < count * size) blocks = Tensor<std::byte>(1, std::max(count * size, huge_pages));
    if (powers.size() < count) powers = Tensor<float>(1, count);
    return {blocks.data(), powers.data(), size};
  }
};

}  // namespace

bool has_tiles() {
  constexpr int request_permission = 0x1023, tile_data = 18;  // arch_prctl: ARCH_REQ_XCOMP_PERM
  constexpr auto tiles = dnnl_cpu_isa_avx512_core_amx;
  static const bool there = (dnnl().effective_isa() & tiles) == tiles && syscall(SYS_arch_prctl, request_permission, tile_data) == 0;
  return there;
}

// The shorter side of C is packed for all threads; each makes strips of the longer, whose panels stay in the second cache.
void tile_product(Trans ta, Trans tb, float alpha, View<const float> a, View<const float> b, float beta, View<float> c) {
  const Source left = ta == Trans::yes ? Source{a.data, 1, a.stride} : Source{a.data, a.stride, 1};
  const Source right = tb == Trans::yes ? Source{b.data, b.stride, 1} : Source{b.data, 1, b.stride};
  const bool by_columns = c.rows <= c.cols;
  const Source few = by_columns ? left : right, many = by_columns ? right : left;
  const Index shorter = std::min(c.rows, c.cols), longer = std::max(c.rows, c.cols), inner = ta == Trans::yes ? a.rows : a.cols;
  const Index step = part_of(inner, most_inner, deep), part = part_of(shorter, most_short, pair);
  thread_local Room room;
  for (Index k = 0; k < inner; k += step) {
    const Index depth = std::min(step, inner - k);
    const Scales scales{alpha, k == 0 ? beta : 1.0F};
    for (Index s0 = 0; s0 < shorter; s0 += part) {
      const Index s_count = std::min(part, shorter - s0);
      const Panels shared = room.panels(s_count, depth);
      parallel_ranges(s_count, pair, [&](Index s, Index end) { pack(by_columns, few.at(s0 + s, k), end - s, depth, shared.from(s)); });
      for_each_strip(longer, strips, [&](Index o0, Index o1) {
        thread_local Room own_room;
        const Panels own = own_room.panels(o1 - o0, depth);
        const auto each_pair = [&](const auto& body) {
          for (Index o = o0; o < o1; o += pair) body(o, std::min(pair, o1 - o));
        };
        each_pair([&](Index o, Index m) { pack(!by_columns, many.at(o, k), m, depth, own.from(o - o0)); });
        const Tiles tiles;
        Square square;
        for (Index s = 0; s < s_count; s += pair) {
          const Index n = std::min(pair, s_count - s);
          each_pair([&](Index o, Index m) {
            if (by_columns) {
              multiply(shared, s, own, o - o0, scales, c.block(s0 + s, n, o, m), square);
            } else {
              multiply(own, o - o0, shared, s, scales, c.block(o, m, s0 + s, n), square);
            }
          });
        }
        square.put();
      });
    }
  }
}

}  // namespace stepzero::kernels
