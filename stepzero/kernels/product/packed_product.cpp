#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "stepzero/kernels/product/packed_product.cpp"
#include <hwy/foreach_target.h>  // includes this file once for each SIMD level; must come first

#include <algorithm>
#include <cstring>

#include <hwy/highway.h>

#include "stepzero/kernels/product/packed_product.hpp"
#include "stepzero/kernels/product/product_blocking.hpp"

HWY_BEFORE_NAMESPACE();
namespace stepzero::kernels::HWY_NAMESPACE {

namespace {

namespace hn = hwy::HWY_NAMESPACE;

using D = hn::ScalableTag<float>;
using V = hn::Vec<D>;

// As in BLIS: a tile of C in registers, a panel of B in the first cache (24 kB), a block of A in the second. Tiles of 4 x 3 vectors
// fill 16 registers and take 7 loads for 12 products, where the usual 6 x 2 take 8; tiles of 8 x 3 fill 32.
constexpr Index lanes = hn::MaxLanes(D()), vectors = 3, unroll = 4, cache_line = 16;
constexpr Index tile_rows = HWY_TARGET <= HWY_AVX3 ? 8 : 4, tile_cols = vectors * lanes;
constexpr Index most_inner = 256;                    // of a panel
constexpr Index most_rows = 256;                     // of a block of A
constexpr Index least_strip = 96, most_strip = 192;  // rows or columns of C that one thread makes at a time
constexpr Index most_short = 4096;                   // of the shorter side of C at a time
constexpr Index most_shared = Index{1} << 20;        // numbers that are packed for all threads at a time

// sum += x y. Left to itself, g++ makes y an operand from memory and orders the products anew, which costs 7 % of their speed.
HWY_INLINE void add_product(V x, V y, V& sum) {
#if HWY_TARGET <= HWY_AVX3
  asm("vfmadd231ps %2, %1, %0" : "+v"(sum.raw) : "v"(x.raw), "v"(y.raw));
#elif HWY_TARGET == HWY_AVX2
  asm("vfmadd231ps %2, %1, %0" : "+x"(sum.raw) : "x"(x.raw), "x"(y.raw));
#else
  sum = hn::MulAdd(x, y, sum);
#endif
}

struct Scales {
  float alpha, beta;
};

// c = alpha a b + beta c for one tile, from panels where the entries of one inner index lie together. With `packs`, b is not
// packed yet (its rows lie b_step apart) and comes into the panel on the way.
template <Index rows, bool packs = false>
HWY_NOINLINE void multiply_tile(Index inner, const float* HWY_RESTRICT a, const float* HWY_RESTRICT b, Scales scales, float* HWY_RESTRICT c,
                                Index stride, Index b_step = tile_cols, float* HWY_RESTRICT panel = nullptr) {
  const D d;
  V sums[rows][vectors];
  HWY_UNROLL(8)
  for (Index i = 0; i < rows; ++i) {
    HWY_UNROLL(3)
    for (Index j = 0; j < vectors; ++j) sums[i][j] = hn::Zero(d);
    for (Index j = 0; j < tile_cols; j += cache_line) __builtin_prefetch(c + i * stride + j, 1);
  }
  for (const float* const end = a + inner * tile_rows; a != end; a += unroll * tile_rows) {
    HWY_UNROLL(4)
    for (Index k = 0; k < unroll; ++k) {
      const float* const from = b + k * (packs ? b_step : tile_cols);
      V y[vectors];
      HWY_UNROLL(3)
      for (Index j = 0; j < vectors; ++j) y[j] = packs ? hn::LoadU(d, from + j * lanes) : hn::Load(d, from + j * lanes);
      HWY_UNROLL(8)
      for (Index i = 0; i < rows; ++i) {
        const V x = hn::Set(d, a[k * tile_rows + i]);
        HWY_UNROLL(3)
        for (Index j = 0; j < vectors; ++j) add_product(x, y[j], sums[i][j]);
      }
      HWY_UNROLL(3)
      for (Index j = 0; packs && j < vectors; ++j) hn::Store(y[j], d, panel + k * tile_cols + j * lanes);
    }
    b += unroll * (packs ? b_step : tile_cols);
    panel += packs ? unroll * tile_cols : 0;
  }
  const V alpha = hn::Set(d, scales.alpha), beta = hn::Set(d, scales.beta);
  HWY_UNROLL(8)
  for (Index i = 0; i < rows; ++i, c += stride) {
    HWY_UNROLL(3)
    for (Index j = 0; j < vectors; ++j) {
      const V product = hn::Mul(alpha, sums[i][j]);
      float* const to = c + j * lanes;
      hn::StoreU(scales.beta == 0 ? product : hn::MulAdd(beta, hn::LoadU(d, to), product), d, to);
    }
  }
}

template <Index rows>
HWY_INLINE void multiply_rows(Index inner, const float* a, const float* b, Scales scales, View<float> c) {
  if (c.cols == tile_cols) return multiply_tile<rows>(inner, a, b, scales, c.data, c.stride);
  // what is narrower than the vectors goes through a whole tile, so that its bits are those of any other
  float whole[rows * tile_cols] = {};
  for (Index i = 0; scales.beta != 0 && i < rows; ++i) std::copy_n(c.row(i), c.cols, whole + i * tile_cols);
  multiply_tile<rows>(inner, a, b, scales, whole, tile_cols);
  for (Index i = 0; i < rows; ++i) std::copy_n(whole + i * tile_cols, c.cols, c.row(i));
}

template <Index rows = tile_rows>
HWY_INLINE void multiply(Index inner, const float* a, const float* b, Scales scales, View<float> c) {
  if (c.rows == rows) return multiply_rows<rows>(inner, a, b, scales, c);
  if constexpr (rows > 1) multiply<rows - 1>(inner, a, b, scales, c);
}

// Brings what pack() will read into the second cache: the memory rows [first, last) of a panel.
HWY_INLINE void prefetch(Source from, Index width, Index inner, Index first, Index last) {
  const bool rows_across = from.across == 1;
  const Index length = rows_across ? width : inner, stride = rows_across ? from.along : from.across;
  for (Index i = first; i < std::min(last, rows_across ? inner : width); ++i) {
    for (Index x = 0; x < length; x += cache_line) __builtin_prefetch(from.data + i * stride + x, 0, 2);
  }
}

#if HWY_TARGET != HWY_SCALAR
// Four numbers of each of four rows; what was a column goes to `to`, the next to `to + step`.
HWY_INLINE void transpose(const float* r0, const float* r1, const float* r2, const float* r3, float* to, Index step) {
  const hn::FixedTag<float, 4> d;
  const hn::FixedTag<double, 2> pairs;
  const auto x0 = hn::LoadU(d, r0), x1 = hn::LoadU(d, r1), x2 = hn::LoadU(d, r2), x3 = hn::LoadU(d, r3);
  const auto low01 = hn::BitCast(pairs, hn::InterleaveLower(d, x0, x1)), high01 = hn::BitCast(pairs, hn::InterleaveUpper(d, x0, x1));
  const auto low23 = hn::BitCast(pairs, hn::InterleaveLower(d, x2, x3)), high23 = hn::BitCast(pairs, hn::InterleaveUpper(d, x2, x3));
  hn::StoreU(hn::BitCast(d, hn::InterleaveLower(pairs, low01, low23)), d, to);
  hn::StoreU(hn::BitCast(d, hn::InterleaveUpper(pairs, low01, low23)), d, to + step);
  hn::StoreU(hn::BitCast(d, hn::InterleaveLower(pairs, high01, high23)), d, to + 2 * step);
  hn::StoreU(hn::BitCast(d, hn::InterleaveUpper(pairs, high01, high23)), d, to + 3 * step);
}
#endif

// A panel: `wide` entries for each inner index; zero from `width` on, and after `inner` up to a whole step of the tile's loop.
template <Index wide>
HWY_INLINE void pack_panel(Source from, Index width, Index inner, float* HWY_RESTRICT to) {
  Index k = 0;
  if (width == wide && from.across == 1) {
    for (; k < inner; ++k) std::memcpy(to + k * wide, from.data + k * from.along, wide * sizeof(float));
  }
#if HWY_TARGET != HWY_SCALAR
  if (width == wide && from.along == 1) {
    for (Index w = 0; w < wide; w += 4) {
      const auto row = [&](Index i) { return from.data + (w + i) * from.across; };
      const float *r0 = row(0), *r1 = row(1), *r2 = row(2), *r3 = row(3);
      for (k = 0; k + 4 <= inner; k += 4) transpose(r0 + k, r1 + k, r2 + k, r3 + k, to + k * wide + w, wide);
    }
  }
#endif
  for (; k < round_up(inner, unroll); ++k) {
    for (Index w = 0; w < wide; ++w) to[k * wide + w] = w < width && k < inner ? *from.at(w, k).data : 0.0F;
  }
}

// Panel after panel. Rows of memory that run across them are taken a few at a time (they may all lie in the same lines of a cache),
// the next few on their way meanwhile.
template <Index wide>
HWY_NOINLINE void pack(Source from, Index width, Index inner, float* HWY_RESTRICT to) {
  const Index few = from.across == 1 && width > wide ? 2 * unroll : inner, padded = round_up(inner, unroll);
  for (Index k = 0; k < inner; k += few) {
    if (few < inner) prefetch(from.at(0, k + few), width, few, 0, few);
    for (Index w = 0; w < width; w += wide) {
      pack_panel<wide>(from.at(w, k), std::min(wide, width - w), std::min(few, inner - k), to + w * padded + k * wide);
    }
  }
}

// The part of the inner dimension from `begin` on that is packed at a time, in steps.
struct Depth {
  Index begin, size, step;

  // body(first, n, n in whole steps of a tile's loop)
  template <class Body>
  void each(const Body& body) const {
    for (Index k = 0; k < size; k += step) {
      const Index n = std::min(step, size - k);
      body(k, n, round_up(n, unroll));
    }
  }
};

// The panels of one strip.
float* memory_of_thread() {
  thread_local Tensor<float> memory(1, round_up(most_strip, tile_cols) * most_inner);
  return memory.data();
}

// Panels of `wide`, step after step of the depth; what follows shares them.
template <Index wide>
const float* pack_for_all(Source from, Index n, Depth depth) {
  thread_local Tensor<float> memory;
  const Index panels = (n + wide - 1) / wide, size = panels * wide * round_up(depth.size, unroll);
  if (memory.size() < size) memory = Tensor<float>(1, size);
  float* const to = memory.data();
  parallel_ranges(panels, std::max<Index>(1, 64 / wide), [&](Index first, Index last) {
    depth.each([&](Index k, Index inner, Index padded) {
      const Index w = first * wide;
      pack<wide>(from.at(w, depth.begin + k), std::min(n, last * wide) - w, inner, to + k * panels * wide + w * padded);
    });
  });
  return to;
}

Scales at(Scales scales, Index k) { return {scales.alpha, k == 0 ? scales.beta : 1.0F}; }

// Few rows: A is packed for all, and every thread makes strips of columns.
void by_columns(Source a, Source b, Depth depth, Scales scales, View<float> c) {
  const float* const packed = pack_for_all<tile_rows>(a, c.rows, depth);
  const Index block = part_of(c.rows, most_rows, tile_rows);
  for_each_strip(c.cols, {tile_cols, least_strip, most_strip}, [&](Index j0, Index j1) {
    float* const panels = memory_of_thread();
    depth.each([&](Index k0, Index inner, Index padded) {
      const Index k = depth.begin + k0;
      const float* const left = packed + k0 * round_up(c.rows, tile_rows);
      for (Index i0 = 0; i0 < c.rows; i0 += block) {
        const Index i1 = std::min(c.rows, i0 + block);
        for (Index j = j0; j < j1; j += tile_cols) {
          const Index width = std::min(tile_cols, j1 - j);
          float* const panel = panels + (block < c.rows ? (j - j0) * padded : 0);
          const bool first = i0 == 0, on_the_way = first && b.across == 1 && width == tile_cols && inner == padded && i1 >= tile_rows;
          if (first && !on_the_way) pack<tile_cols>(b.at(j, k), width, inner, panel);
          // the next panel is brought nearer meanwhile, some of it with each tile
          const Source next = j + tile_cols < j1 ? b.at(j + tile_cols, k) : b.at(j0, k + depth.step);
          const Index share = (b.across == 1 ? inner : tile_cols) * tile_rows / (i1 - i0) + 1;
          for (Index i = i0, some = 0; i < i1; i += tile_rows, some += share) {
            if (first) prefetch(next, tile_cols, inner, some, some + share);
            if (on_the_way && i == i0) {
              multiply_tile<tile_rows, true>(padded, left, b.at(j, k).data, at(scales, k), c.row(i) + j, c.stride, b.along, panel);
            } else {
              multiply(padded, left + i * padded, panel, at(scales, k), c.block(i, std::min(tile_rows, i1 - i), j, width));
            }
          }
        }
      }
    });
  });
}

// Few columns: B is packed for all, and every thread makes strips of rows.
void by_rows(Source a, Source b, Depth depth, Scales scales, View<float> c) {
  const float* const packed = pack_for_all<tile_cols>(b, c.cols, depth);
  for_each_strip(c.rows, {tile_rows, least_strip, most_strip}, [&](Index i0, Index i1) {
    float* const block = memory_of_thread();
    depth.each([&](Index k0, Index inner, Index padded) {
      const Index k = depth.begin + k0;
      const float* const right = packed + k0 * round_up(c.cols, tile_cols);
      pack<tile_rows>(a.at(i0, k), i1 - i0, inner, block);
      for (Index j = 0; j < c.cols; j += tile_cols) {
        const float* next = right + (j + tile_cols) * padded;
        const Index share = round_up(tile_cols * padded * tile_rows / (i1 - i0), cache_line);
        for (Index i = i0; i < i1; i += tile_rows) {
          for (Index x = 0; x < share; x += cache_line) __builtin_prefetch(next + x, 0, 2);
          next += share;
          multiply(padded, block + (i - i0) * padded, right + j * padded, at(scales, k),
                   c.block(i, std::min(tile_rows, i1 - i), j, std::min(tile_cols, c.cols - j)));
        }
      }
    });
  });
}

}  // namespace

void packed_product(bool ta, bool tb, float alpha, View<const float> a, View<const float> b, float beta, View<float> c) {
  const Source left = ta ? Source{a.data, 1, a.stride} : Source{a.data, a.stride, 1};
  const Source right = tb ? Source{b.data, b.stride, 1} : Source{b.data, 1, b.stride};
  const Index inner = ta ? a.rows : a.cols, shorter = std::min(c.rows, c.cols);
  const Index step = part_of(inner, most_inner, unroll);
  const Index together = std::max<Index>(1, most_shared / (step * std::min(shorter, most_short))) * step;
  for (Index s = 0; s < shorter; s += most_short) {
    const Index n = std::min(most_short, shorter - s);
    for (Index k = 0; k < inner; k += together) {
      const Depth depth{k, std::min(together, inner - k), step};
      if (c.rows > c.cols) {
        by_rows(left, right.at(s, 0), depth, {alpha, beta}, c.columns(s, n));
      } else {
        by_columns(left.at(s, 0), right, depth, {alpha, beta}, c.slice(s, n));
      }
    }
  }
}

}  // namespace stepzero::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace stepzero::kernels {

HWY_EXPORT(packed_product);

void packed_product(Trans ta, Trans tb, float alpha, View<const float> a, View<const float> b, float beta, View<float> c) {
  HWY_DYNAMIC_DISPATCH(packed_product)(ta == Trans::yes, tb == Trans::yes, alpha, a, b, beta, c);
}

}  // namespace stepzero::kernels
#endif
