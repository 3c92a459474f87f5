#include "stepzero/audit/repeated_rows.hpp"

#include <algorithm>
#include <bit>

namespace stepzero {

namespace {

constexpr std::size_t kMostSuspects = 256;  // columns that are looked at

// Places whose key is 0 or may occur twice, in the order of their keys. Most keys are alone in their slot: nothing is left
// to sort.
template <class Key>
std::vector<std::size_t> candidates(const std::vector<Key>& keys) {
  const int bits = static_cast<int>(std::bit_width(keys.size())) + 3;
  const auto slot = [&](Key key) { return std::uint64_t{key} * 0x9E3779B97F4A7C15U >> (64 - bits); };
  std::vector<std::uint8_t> used(std::size_t{1} << bits);  // 2: more than once
  for (const Key key : keys) used[slot(key)] = used[slot(key)] == 0 ? 1 : 2;
  std::vector<std::size_t> places;
  for (std::size_t i = 0; i < keys.size(); ++i) {
    if (keys[i] == 0 || used[slot(keys[i])] > 1) places.push_back(i);
  }
  std::ranges::sort(places, [&](std::size_t x, std::size_t y) { return std::pair(keys[x], x) < std::pair(keys[y], y); });
  return places;
}

void note_repeated(Lines& lines, std::size_t original, std::size_t repeated) {
  const auto again = static_cast<Index>(repeated);
  ++lines.repeated;
  if (lines.first_repeated >= 0 && lines.first_repeated < again) return;
  lines.first_repeated = again;
  lines.first_original = static_cast<Index>(original);
}

void note_dead(Lines& lines, std::size_t line) {
  ++lines.dead;
  const auto at = static_cast<Index>(line);
  lines.first_dead = lines.first_dead < 0 ? at : std::min(lines.first_dead, at);
}

bool all_zero(const std::vector<float>& row) {
  return std::ranges::all_of(row, [](float x) { return x == 0; });
}

}  // namespace

Expected<Lines> find_rows(const CheckpointFiles& files, const CheckpointTensor& tensor, const std::vector<std::uint64_t>& keys,
                          Index cols) {
  Lines lines;
  std::vector<float> original(static_cast<std::size_t>(cols)), other(static_cast<std::size_t>(cols));
  const auto read = [&](std::size_t row, std::vector<float>& out) { return files.read_f32(tensor, row * out.size(), out); };
  const auto order = candidates(keys);
  for (std::size_t i = 0; i < order.size();) {
    std::size_t end = i + 1;
    while (end < order.size() && keys[order[end]] == keys[order[i]]) ++end;
    if (end == i + 1 && keys[order[i]] != 0) {  // alone, and not the key of zeros
      i = end;
      continue;
    }
    if (auto done = read(order[i], original); !done) return std::unexpected(done.error());
    const bool dead = all_zero(original);
    if (dead) note_dead(lines, order[i]);
    for (std::size_t j = i + 1; j < end; ++j) {
      if (auto done = read(order[j], other); !done) return std::unexpected(done.error());
      if (!std::ranges::equal(original, other)) continue;
      dead ? note_dead(lines, order[j]) : note_repeated(lines, order[i], order[j]);
    }
    i = end;
  }
  return lines;
}

namespace {

// Columns that may be equal to one before them (original, itself), or that may be zero (itself twice).
std::vector<std::pair<std::size_t, std::size_t>> suspects(const std::vector<float>& z) {
  std::vector<std::uint32_t> keys;
  for (const float x : z) keys.push_back(std::bit_cast<std::uint32_t>(x + 0.0F));  // -0 is 0
  const auto order = candidates(keys);
  std::vector<std::pair<std::size_t, std::size_t>> list;
  for (std::size_t i = 0; i < order.size() && list.size() < kMostSuspects; ++i) {
    if (z[order[i]] == 0) {
      list.emplace_back(order[i], order[i]);
      continue;
    }
    std::size_t original = i;
    while (original > 0 && keys[order[original - 1]] == keys[order[i]]) --original;
    if (original < i) list.emplace_back(order[original], order[i]);
  }
  return list;
}

}  // namespace

Expected<Lines> find_columns(const CheckpointFiles& files, const CheckpointTensor& tensor, const std::vector<float>& z, Index rows) {
  Lines lines;
  auto pairs = suspects(z);
  const std::size_t cols = z.size();
  const auto step = static_cast<Index>(std::max<std::size_t>(1, 65536 / cols));
  std::vector<float> some(static_cast<std::size_t>(step) * cols);
  for (Index r = 0; r < rows && !pairs.empty(); r += step) {
    const auto here = std::span(some).first(static_cast<std::size_t>(std::min(step, rows - r)) * cols);
    if (auto done = files.read_f32(tensor, static_cast<std::uint64_t>(r) * cols, here); !done) return std::unexpected(done.error());
    std::erase_if(pairs, [&](const auto& pair) {
      for (std::size_t row = 0; row < here.size(); row += cols) {
        const float a = here[row + pair.first], b = here[row + pair.second];
        if (pair.first == pair.second ? a != 0 : a != b) return true;
      }
      return false;
    });
  }
  for (const auto& [original, column] : pairs) original == column ? note_dead(lines, column) : note_repeated(lines, original, column);
  return lines;
}

}  // namespace stepzero
