// The census against plain sums, every encoding against its formula.
#include <cmath>
#include <random>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "stepzero/audit/census.hpp"
#include "stepzero/audit/distribution_fit.hpp"
#include "stepzero/audit/tensor_copies.hpp"
#include "stepzero/core/half.hpp"
#include "stepzero/core/parallel.hpp"
#include "stepzero/kernels/census.hpp"
#include "stepzero/kernels/fill.hpp"
#include "tests/hostile/gguf_fixture.hpp"
#include "tests/hostile/safetensors_fixture.hpp"

namespace stepzero {
namespace {

using testing::raw;

template <class T>
std::string bytes_of(const std::vector<T>& list) {
  return {reinterpret_cast<const char*>(list.data()), list.size() * sizeof(T)};
}

std::vector<float> normals(std::size_t n, double std, double mean = 0, std::uint64_t seed = 1) {
  std::vector<float> out(n);
  fill(Distribution::normal(std, mean), make_stream(seed, "t"), 0, std::span<float>(out));
  return out;
}

struct Plain {
  double mean = 0, std = 0, skew = 0, kurtosis = 0, min = INFINITY, max = -INFINITY;
};
Plain plain_moments(const std::vector<float>& x) {
  Plain p;
  double n = 0, m2 = 0, m3 = 0, m4 = 0;
  for (const float v : x) {
    if (!std::isfinite(v)) continue;
    p.mean += v;
    ++n;
    p.min = std::min(p.min, static_cast<double>(v));
    p.max = std::max(p.max, static_cast<double>(v));
  }
  p.mean /= n;
  for (const float v : x) {
    if (!std::isfinite(v)) continue;
    const double d = v - p.mean;
    m2 += d * d;
    m3 += d * d * d;
    m4 += d * d * d * d;
  }
  p.std = std::sqrt(m2 / n);
  p.skew = m3 / n / std::pow(p.std, 3);
  p.kurtosis = m4 / n / std::pow(p.std, 4);
  return p;
}

class Census : public ::testing::Test {
 protected:
  // One tensor "a" of these bytes.
  TensorCensus take(const std::string& dtype, const std::string& shape, const std::string& data, bool moments_only = false) {
    const std::string header = "{" + testing::entry("a", dtype, shape, fmt::format("0,{}", data.size())) + "}";
    files_ =
        CheckpointFiles::open(scratch_.put("m.safetensors", testing::safetensors_bytes(header + std::string(odd_, ' '), data))).value();
    const CheckpointTensor& t = files_->tensors().at("a");
    return take_census(*files_, {&t}, {TensorLayout::whole(t, Role::projection)}, {.moments_only = moments_only}).value().at(0);
  }
  std::size_t odd_ = 0;  // bytes by which the data are moved
  testing::Scratch scratch_;
  std::optional<CheckpointFiles> files_;
};

void expect_moments(const Summary& s, const std::vector<float>& x, double tolerance) {
  const Plain p = plain_moments(x);
  EXPECT_NEAR(s.mean, p.mean, tolerance * (p.std + std::abs(p.mean)));
  EXPECT_NEAR(s.std, p.std, tolerance * (p.std + 1e-3 * std::abs(p.mean)));
  EXPECT_NEAR(s.skew, p.skew, 1e4 * tolerance);
  EXPECT_NEAR(s.kurtosis, p.kurtosis, 1e4 * tolerance * p.kurtosis);
  EXPECT_EQ(s.min, p.min);
  EXPECT_EQ(s.max, p.max);
}

TEST_F(Census, MomentsOfEveryType) {
  for (odd_ = 0; odd_ < 4; ++odd_) {  // data that are not aligned
    for (const double mean : {0.0, 1.0}) {
      auto x = normals(100 * 131, 0.02, mean);
      x[5] = 0;
      const auto all = take("F32", "100,131", bytes_of(x));
      expect_moments(all.whole, x, 1e-12);
      expect_moments(take("F32", "100,131", bytes_of(x), true).whole, x, 1e-12);
      EXPECT_EQ(all.whole.zeros, 1U);
      std::vector<std::uint16_t> brain, half;
      std::vector<float> of_brain, of_half;
      for (const float v : x) {
        brain.push_back(float_to_bfloat16(v));
        half.push_back(float_to_half(v));
        of_brain.push_back(bfloat16_to_float(brain.back()));
        of_half.push_back(half_to_float(half.back()));
      }
      expect_moments(take("BF16", "100,131", bytes_of(brain)).whole, of_brain, 1e-13);
      expect_moments(take("BF16", "100,131", bytes_of(brain), true).whole, of_brain, 1e-7);
      expect_moments(take("F16", "100,131", bytes_of(half)).whole, of_half, 1e-13);
      expect_moments(take("F16", "100,131", bytes_of(half), true).whole, of_half, 1e-7);
      expect_moments(take("F64", "100,131", bytes_of(std::vector<double>(x.begin(), x.end()))).whole, x, 1e-12);
    }
  }
}

TEST_F(Census, S36_NumbersThatAreNone) {
  std::vector<float> x = normals(10000, 1);
  x[1] = NAN;
  x[2] = -NAN;
  x[3] = INFINITY;
  x[9999] = -INFINITY;
  x[5] = -0.0F;
  x[6] = 1e-40F;
  for (const bool only : {false, true}) {
    const auto c = take("F32", "100,100", bytes_of(x), only);
    EXPECT_EQ(c.whole.nans, 2U);
    EXPECT_EQ(c.whole.infs, 2U);
    EXPECT_EQ(c.whole.zeros, 1U);
    EXPECT_EQ(c.whole.subnormals, 1U);
    EXPECT_EQ(c.whole.count, 9996U);
    expect_moments(c.whole, x, 1e-12);
  }
  std::vector<std::uint16_t> half = {0x7C00, 0xFC00, 0x7E00, 0x0001, 0x8000, 0x3C00, 0x3C00, 0xBC00};
  const auto c = take("F16", "8", bytes_of(half));
  EXPECT_EQ(c.whole.infs, 2U);
  EXPECT_EQ(c.whole.nans, 1U);
  EXPECT_EQ(c.whole.subnormals, 1U);
  EXPECT_EQ(c.whole.zeros, 1U);
  EXPECT_EQ(c.whole.count, 5U);
}

TEST_F(Census, Quantiles) {
  std::vector<std::uint16_t> x;
  for (int i = 0; i < 1001; ++i) x.push_back(float_to_bfloat16(static_cast<float>(i % 101)));
  const auto c = take("BF16", "1001", bytes_of(x));
  EXPECT_EQ(c.whole.quantiles[3], 50);
  EXPECT_EQ(c.whole.quantiles[2], 25);
  EXPECT_EQ(c.whole.quantiles[5], 99);
}

TEST_F(Census, LargestSingularValueAndRank) {
  for (const auto& [rows, cols] : {std::pair(256, 256), std::pair(512, 128), std::pair(96, 400)}) {
    const auto x = normals(static_cast<std::size_t>(rows * cols), 0.02);
    const auto c = take("F32", fmt::format("{},{}", rows, cols), bytes_of(x));
    ASSERT_TRUE(c.pieces[0].spectrum);
    const double edge = 0.02 * (std::sqrt(rows) + std::sqrt(cols));
    EXPECT_NEAR(c.pieces[0].spectrum->top, edge, 0.06 * edge) << rows << " x " << cols;
    const double rank = static_cast<double>(rows) * cols / (rows + cols);
    EXPECT_NEAR(c.pieces[0].spectrum->effective_rank, rank, 0.25 * rank);
    EXPECT_FALSE(c.pieces[0].spectrum->orthogonal);
  }
  // a direction that outweighs the rest
  auto x = normals(256 * 256, 0.02);
  const auto u = normals(256, 1, 0, 2), v = normals(256, 1, 0, 3);
  for (int r = 0; r < 256; ++r) {
    for (int k = 0; k < 256; ++k)
      x[static_cast<std::size_t>(r * 256 + k)] += 0.05F * u[static_cast<std::size_t>(r)] * v[static_cast<std::size_t>(k)];
  }
  EXPECT_NEAR(take("F32", "256,256", bytes_of(x)).pieces[0].spectrum->top, 12.8, 1.3);
}

TEST_F(Census, DeadAndRepeatedLines) {
  auto x = normals(64 * 48, 0.02);
  const auto row = [&](int r) { return x.begin() + r * 48; };
  std::fill_n(row(7), 48, 0.0F);
  std::copy_n(row(3), 48, row(40));
  std::copy_n(row(3), 48, row(41));
  for (int r = 0; r < 64; ++r) {
    x[static_cast<std::size_t>(r * 48 + 5)] = 0;
    x[static_cast<std::size_t>(r * 48 + 47)] = x[static_cast<std::size_t>(r * 48 + 11)];
  }
  const auto c = take("F32", "64,48", bytes_of(x));
  EXPECT_EQ(c.rows.dead, 1);
  EXPECT_EQ(c.rows.first_dead, 7);
  EXPECT_EQ(c.rows.repeated, 2);
  EXPECT_EQ(c.rows.first_repeated, 40);
  EXPECT_EQ(c.rows.first_original, 3);
  EXPECT_EQ(c.columns.dead, 1);
  EXPECT_EQ(c.columns.first_dead, 5);
  EXPECT_EQ(c.columns.repeated, 1);
  EXPECT_EQ(c.columns.first_repeated, 47);
  const auto clean = take("F32", "64,48", bytes_of(normals(64 * 48, 0.02)));
  EXPECT_EQ(clean.rows.dead + clean.rows.repeated + clean.columns.dead + clean.columns.repeated, 0);
}

TEST_F(Census, LargeTensorsAreTheSameInSlabs) {
  const auto x = normals(3000 * 1024, 0.02);  // more than one slab
  expect_moments(take("F32", "3000,1024", bytes_of(x)).whole, x, 1e-11);
  const auto c = take("F32", "3072000", bytes_of(x));
  expect_moments(c.whole, x, 1e-11);
}

TEST_F(Census, SameBitsForAnyNumberOfThreads) {
  const auto x = normals(5000 * 1024, 0.02);  // slabs of one tensor
  std::vector<std::uint16_t> brain;
  for (const float v : x) brain.push_back(float_to_bfloat16(v));
  const int before = threads();
  std::vector<TensorCensus> seen;
  for (const int n : {1, 2, 3}) {
    set_threads(n);
    for (const bool only : {false, true}) seen.push_back(take("BF16", "5000,1024", bytes_of(brain), only));
  }
  set_threads(before);
  for (std::size_t i = 2; i < seen.size(); ++i) {
    const Summary &a = seen[i % 2].whole, &b = seen[i].whole;
    EXPECT_EQ(a.mean, b.mean);
    EXPECT_EQ(a.std, b.std);
    EXPECT_EQ(a.kurtosis, b.kurtosis);
    EXPECT_EQ(a.quantiles, b.quantiles);
    if (i % 2 != 0) continue;
    EXPECT_EQ(seen[0].pieces[0].spectrum->top, seen[i].pieces[0].spectrum->top);
    EXPECT_EQ(seen[0].pieces[0].spectrum->effective_rank, seen[i].pieces[0].spectrum->effective_rank);
  }
}

TEST_F(Census, Laws) {
  const auto law = [&](const Distribution& d) {
    std::vector<float> x(200 * 200);
    fill(d, make_stream(3, "t"), 0, std::span<float>(x));
    const auto c = take("F32", "200,200", bytes_of(x));
    return find_law(c.pieces[0], c.tensor->encoding);
  };
  EXPECT_EQ(law(Distribution::normal(0.02)).kind, FoundLaw::Kind::normal);
  EXPECT_EQ(law(Distribution::constant(1)).kind, FoundLaw::Kind::constant);
  const auto uniform = law(Distribution::uniform(0.05));
  EXPECT_EQ(uniform.kind, FoundLaw::Kind::uniform);
  EXPECT_NEAR(uniform.scale, 0.05, 1e-4);
  for (const double cut : {2.0, 3.0}) {
    const auto truncated = law(Distribution::truncated(0.02, cut));
    EXPECT_EQ(truncated.kind, FoundLaw::Kind::truncated) << cut;
    EXPECT_NEAR(truncated.cut, cut, 0.05 * cut);
    EXPECT_NEAR(truncated.scale, 0.02, 0.001);
  }
  std::vector<float> heavy = normals(200 * 200, 1);
  for (std::size_t i = 0; i < heavy.size(); i += 3) heavy[i] *= 4;
  const auto c = take("F32", "200,200", bytes_of(heavy));
  EXPECT_EQ(find_law(c.pieces[0], c.tensor->encoding).kind, FoundLaw::Kind::unknown);
}

// Each quantised block against its formula, one number at a time.
TEST(Encoding, QuantisedBlocks) {
  std::mt19937 random(5);
  const auto block = [&](std::uint32_t type) {
    std::string bytes(ggml_encoding(type)->block_bytes(), '\0');
    for (char& c : bytes) c = static_cast<char>(random());
    return bytes;
  };
  const auto at = [](const std::string& b, std::size_t i) { return static_cast<unsigned>(static_cast<unsigned char>(b[i])); };
  const auto half = [&](std::string& b, std::size_t i, float x) {
    const std::uint16_t h = float_to_half(x);
    std::memcpy(b.data() + i, &h, 2);
  };
  const auto decoded = [](std::uint32_t type, const std::string& b) {
    std::vector<float> out(ggml_encoding(type)->elements);
    decode(*ggml_encoding(type), reinterpret_cast<const std::byte*>(b.data()), out);
    return out;
  };
  std::string q8 = block(8);
  half(q8, 0, 0.5F);
  for (std::size_t i = 0; i < 32; ++i) EXPECT_EQ(decoded(8, q8)[i], 0.5F * static_cast<float>(static_cast<signed char>(q8[2 + i])));
  std::string q4 = block(2);
  half(q4, 0, 0.25F);
  for (std::size_t i = 0; i < 32; ++i) {
    const int nibble = static_cast<int>(i < 16 ? at(q4, 2 + i) % 16 : at(q4, 2 + i - 16) / 16);
    EXPECT_EQ(decoded(2, q4)[i], 0.25F * static_cast<float>(nibble - 8));
  }
  std::string k4 = block(12);
  half(k4, 0, 0.5F);
  half(k4, 2, 0.125F);
  for (std::size_t i = 0; i < 256; ++i) {
    const std::size_t g = i / 32;
    // six bits: of groups 4 to 7 the lower four stand in the last four bytes, the upper two above those of groups 0 to 3
    const unsigned scale = g < 4 ? at(k4, 4 + g) % 64 : at(k4, 8 + g) % 16 + 16 * (at(k4, g) / 64);
    const unsigned minimum = g < 4 ? at(k4, 8 + g) % 64 : at(k4, 8 + g) / 16 + 16 * (at(k4, 4 + g) / 64);
    const unsigned byte = at(k4, 16 + 32 * (g / 2) + i % 32);
    const float want =
        0.5F * static_cast<float>(scale) * static_cast<float>(g % 2 == 0 ? byte % 16 : byte / 16) - 0.125F * static_cast<float>(minimum);
    EXPECT_EQ(decoded(12, k4)[i], want) << i;
  }
  std::string k6 = block(14);
  half(k6, 208, 0.5F);
  for (std::size_t i = 0; i < 256; ++i) {
    const std::size_t h = i / 128, quarter = i % 128 / 32, l = i % 32;
    const unsigned low = at(k6, 64 * h + l + 32 * (quarter % 2)), high = at(k6, 128 + 32 * h + l) >> (2 * quarter) & 3;
    const int level = static_cast<int>((quarter < 2 ? low % 16 : low / 16) + 16 * high) - 32;
    const auto scale = static_cast<float>(static_cast<signed char>(k6[192 + 8 * h + 2 * quarter + l / 16]));
    EXPECT_EQ(decoded(14, k6)[i], 0.5F * scale * static_cast<float>(level)) << i;
  }
}

}  // namespace
}  // namespace stepzero
