#include "stepzero/io/tokens.hpp"

#include <algorithm>
#include <charconv>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "stepzero/core/random.hpp"
#include "stepzero/core/text.hpp"
#include "stepzero/io/file.hpp"
#include "stepzero/kernels/fill.hpp"

namespace stepzero {

namespace {

using Line = std::vector<std::int32_t>;
constexpr Index default_length = 128;
constexpr Index longest_zipf = Index{1} << 22;  // of a larger vocabulary only the first four million ids are drawn
constexpr Index most_tokens = Index{1} << 26;

// p(rank r) proportional to 1/r, the shape of natural text; the id is the rank.
std::vector<Line> zipf(Index sequences, Index ids, Index vocab, std::uint64_t seed) {
  std::vector<double> cumulative(static_cast<std::size_t>(std::min(vocab, longest_zipf)));
  double total = 0;
  for (double& c : cumulative) c = total += 1 / static_cast<double>(&c - cumulative.data() + 1);
  std::vector<double> u(static_cast<std::size_t>(sequences * ids));
  fill(Distribution::uniform(0.5, 0.5), make_stream(seed, "tokens"), 0, std::span<double>(u));
  std::vector<Line> lines(static_cast<std::size_t>(sequences));
  for (std::size_t i = 0; i < u.size(); ++i) {
    const auto it = std::ranges::lower_bound(cumulative, u[i] * total);
    const auto rank = std::min<std::ptrdiff_t>(it - cumulative.begin(), std::ssize(cumulative) - 1);
    lines[i / static_cast<std::size_t>(ids)].push_back(static_cast<std::int32_t>(rank));
  }
  return lines;
}

Expected<std::vector<Line>> distinct(Index sequences, Index ids, Index vocab) {
  if (sequences * ids > vocab) {
    return fail(fmt::format("--tokens distinct needs {} different tokens, the vocabulary has {}", sequences * ids, vocab),
                "shorten --seq-len or --batch");
  }
  std::vector<Line> lines(static_cast<std::size_t>(sequences));
  for (Index i = 0; i < sequences * ids; ++i) lines[static_cast<std::size_t>(i / ids)].push_back(static_cast<std::int32_t>(i));
  return lines;
}

// One id over and over: what attention makes of a sequence that says nothing.
std::vector<Line> equal(Index sequences, Index ids) {
  return std::vector<Line>(static_cast<std::size_t>(sequences), Line(static_cast<std::size_t>(ids), 0));
}

// Ids from `padding` on move up by one.
std::vector<Line> without(std::vector<Line> lines, bool pads, Index padding) {
  for (Line& line : lines) {
    for (std::int32_t& id : line) id += pads && id >= padding ? 1 : 0;
  }
  return lines;
}

Expected<Line> parse_line(std::string_view text, const std::string& where, Index vocab) {
  Line line;
  for (const char *p = text.data(), *end = p + text.size(); p != end;) {
    if (*p == ' ' || *p == '\t' || *p == '\r') {
      ++p;
      continue;
    }
    std::int64_t id = 0;
    const auto [next, error] = std::from_chars(p, end, id);
    const bool separated = next == end || *next == ' ' || *next == '\t' || *next == '\r';
    if (error != std::errc() || !separated) {
      const char* word_end = std::find_if(p, end, [](char c) { return c == ' ' || c == '\t'; });
      return fail(fmt::format("{}: \"{}\" is not a token id", where, show(std::string_view(p, word_end))),
                  "a tokens file holds whole numbers, one sequence a line");
    }
    if (id < 0 || id >= vocab) {
      return fail(fmt::format("{}: token {} is outside the vocabulary (0 to {})", where, id, vocab - 1));
    }
    line.push_back(static_cast<std::int32_t>(id));
    p = next;
  }
  return line;
}

Expected<std::vector<Line>> read_lines(const std::string& path, Index vocab, std::size_t least = 2) {
  constexpr std::uint64_t limit = std::uint64_t{1} << 30;
  auto text = read_text(path, limit);
  if (!text) {
    text.error().hint = "--tokens takes zipf, distinct, equal, or a file of token ids";
    return std::unexpected(text.error());
  }
  std::vector<Line> lines;
  std::size_t number = 0;
  for (std::size_t begin = 0; begin < text->size();) {
    const std::size_t end = std::min(text->find('\n', begin), text->size());
    ++number;
    auto line = parse_line(std::string_view(*text).substr(begin, end - begin), fmt::format("{}: line {}", show(path), number), vocab);
    if (!line) return std::unexpected(line.error());
    if (!line->empty()) lines.push_back(std::move(*line));
    if (!lines.empty() && lines.back().size() != lines.front().size()) {
      return fail(fmt::format("{}: line {} has {} tokens, the first sequence has {}", show(path), number, lines.back().size(),
                              lines.front().size()),
                  "all sequences of a batch have one length");
    }
    begin = end + 1;
  }
  if (lines.empty() || lines.front().size() < least) {
    return fail(fmt::format("{}: no sequence of at least {} {}", show(path), least == 1 ? "one" : "two", least == 1 ? "number" : "tokens"));
  }
  return lines;
}

Expected<std::vector<Line>> lines_from(const TokenOptions& o) {
  const Index length = o.length > 0 ? o.length : std::min(default_length, o.positions);
  const Index sequences = std::max<Index>(o.sequences, 1);
  if (sequences > most_tokens / (length + 1)) {
    return fail(fmt::format("{} sequences of {} tokens are more than {} tokens", sequences, length, most_tokens),
                "shorten --seq-len or --batch");
  }
  const bool pads = o.padding >= 0 && o.padding < o.vocab && o.vocab > 1;
  if (o.source == "zipf") return without(zipf(sequences, length + 1, o.vocab - (pads ? 1 : 0), o.seed), pads, o.padding);
  if (o.source == "distinct") {
    auto lines = distinct(sequences, length + 1, o.vocab - (pads ? 1 : 0));
    if (!lines) return lines;
    return without(std::move(*lines), pads, o.padding);
  }
  if (o.source == "equal") return without(equal(sequences, length + 1), pads, o.padding);
  auto lines = read_lines(o.source, o.vocab, o.alone ? 1 : 2);
  if (!lines) return lines;
  for (Line& line : *lines) {
    if (o.alone) line.push_back(0);  // where others have the last target
  }
  const Index have = static_cast<Index>(lines->front().size()) - 1;
  if (o.length > have) {
    return fail(fmt::format("{}: its lines hold {} inputs and a target, --seq-len asks for {}", show(o.source), have, o.length));
  }
  if (o.sequences > static_cast<Index>(lines->size())) {
    return fail(fmt::format("{}: it holds {} sequences, --batch asks for {}", show(o.source), lines->size(), o.sequences));
  }
  if (o.sequences > 0) lines->resize(static_cast<std::size_t>(o.sequences));
  for (Line& line : *lines) line.resize(static_cast<std::size_t>(o.length > 0 ? o.length : have) + 1);
  return lines;
}

}  // namespace

bool is_drawn(std::string_view source) { return source == "zipf" || source == "distinct" || source == "equal"; }

Expected<Batch> make_batch(const TokenOptions& o) {
  const auto too_long = [&](Index length) {
    return fail(fmt::format("a sequence of {} tokens is longer than the model's {} positions", length, o.positions),
                fmt::format("use --seq-len {} or less, or --set positions={}", o.positions, length));
  };
  if (o.length > o.positions) return too_long(o.length);
  auto lines = lines_from(o);
  if (!lines) return std::unexpected(lines.error());
  Batch batch;
  batch.sequences = static_cast<Index>(lines->size());
  batch.length = static_cast<Index>(lines->front().size()) - 1;
  batch.seed = o.seed;
  if (batch.length > o.positions) return too_long(batch.length);
  const int shift = o.targets == Targets::next ? 1 : 0;
  for (const Line& line : *lines) {
    batch.ids.insert(batch.ids.end(), line.begin(), line.end() - 1);
    batch.targets.insert(batch.targets.end(), line.begin() + shift, line.end() - 1 + shift);
  }
  return batch;
}

Expected<std::vector<std::int32_t>> make_inputs(const TokenOptions& o) {
  const bool drawn = is_drawn(o.source);
  auto lines = drawn ? lines_from(o) : read_lines(o.source, o.vocab, 1);
  if (!lines) return std::unexpected(lines.error());
  if (!drawn && (std::cmp_not_equal(lines->front().size(), o.length) || std::cmp_not_equal(lines->size(), o.sequences))) {
    return fail(fmt::format("{}: {} lines of {} ids, the decoder reads {} lines of {}", show(o.source), lines->size(),
                            lines->front().size(), o.sequences, o.length));
  }
  std::vector<std::int32_t> ids;
  for (const Line& line : *lines) ids.insert(ids.end(), line.begin(), line.begin() + o.length);
  return ids;
}

Expected<std::vector<std::int32_t>> read_labels(const TokenOptions& o) {
  std::vector<std::int32_t> labels(static_cast<std::size_t>(o.sequences));
  if (o.source.empty()) {
    std::vector<double> u(labels.size());
    fill(Distribution::uniform(0.5, 0.5), make_stream(o.seed, "labels"), 0, std::span<double>(u));
    for (std::size_t i = 0; i < u.size(); ++i) {
      labels[i] = static_cast<std::int32_t>(std::clamp<Index>(static_cast<Index>(u[i] * static_cast<double>(o.vocab)), 0, o.vocab - 1));
    }
    return labels;
  }
  auto lines = read_lines(o.source, o.vocab, 1);
  if (!lines) return std::unexpected(lines.error());
  Line all;
  for (const Line& line : *lines) all.insert(all.end(), line.begin(), line.end());
  if (std::cmp_less(all.size(), o.sequences)) {
    return fail(fmt::format("{}: it holds {} labels for {} sequences", show(o.source), all.size(), o.sequences));
  }
  std::copy_n(all.begin(), labels.size(), labels.begin());
  return labels;
}

}  // namespace stepzero
