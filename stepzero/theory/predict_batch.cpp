#include "stepzero/theory/predict_batch.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>
#include <unordered_map>

#include "stepzero/core/philox.hpp"

namespace stepzero {

namespace {

constexpr std::size_t stretches = 4;

// `length` tokens of a sequence, from `start` on.
struct Stretch {
  Index sequence = 0, start = 0;
};
using Few = std::array<Stretch, stretches>;

Batch take(const Batch& batch, std::span<const Stretch> list, Index length) {
  Batch out = batch;
  out.sequences = std::ssize(list);
  out.length = length;
  const auto copy = [&](const std::vector<std::int32_t>& from, std::vector<std::int32_t>& to) {
    to.clear();
    for (const Stretch& s : list) {
      if (from.empty()) continue;
      if (std::ssize(from) == batch.sequences && batch.length > 1) {  // one for each
        to.push_back(from[static_cast<std::size_t>(s.sequence)]);
        continue;
      }
      const auto start = from.begin() + s.sequence * batch.length + s.start;
      to.insert(to.end(), start, start + length);
    }
  };
  copy(batch.ids, out.ids);
  copy(batch.targets, out.targets);
  copy(batch.encoder_ids, out.encoder_ids);
  if (batch.pixels.empty()) return out;
  out.pixels.clear();
  const Index image = std::ssize(batch.pixels) / batch.sequences;
  for (const Stretch& s : list)
    out.pixels.insert(out.pixels.end(), batch.pixels.begin() + s.sequence * image, batch.pixels.begin() + (s.sequence + 1) * image);
  return out;
}

// Of all pairs of positions the share that has one target, one token and target, one token of an encoder.
struct Shared {
  double target = 0, both = 0, encoder = 0;

  Shared& add(const Shared& o, double by) {
    target += by * o.target, both += by * o.both, encoder += by * o.encoder;
    return *this;
  }
};

std::uint64_t key(std::int32_t id, std::int32_t target) {
  return std::uint64_t{static_cast<std::uint32_t>(id)} << 32U | static_cast<std::uint32_t>(target);
}

// Positions of one list against all of the same list: ordered pairs.
class Counts {
 public:
  void add(const Batch& b, Index first, Index count) {
    for (Index t = first; t < first + count; ++t) {
      const auto i = static_cast<std::size_t>(t);
      if (!b.encoder_ids.empty()) ++encoder_[b.encoder_ids[i]];
      if (b.pooled() && t % b.length != 0) continue;
      const std::int32_t target = b.targets[b.pooled() ? i / static_cast<std::size_t>(b.length) : i];
      if (target < 0) continue;  // not scored
      ++targets_[target];
      ++both_[key(b.ids[i], target)];
    }
  }
  [[nodiscard]] Shared pairs() const { return {squares(targets_), squares(both_), squares(encoder_)}; }

 private:
  template <class Map>
  static double squares(const Map& map) {
    double sum = 0;
    for (const auto& [k, n] : map) sum += static_cast<double>(n) * static_cast<double>(n);
    return sum;
  }
  std::unordered_map<std::int64_t, Index> targets_, encoder_;
  std::unordered_map<std::uint64_t, Index> both_;
};

// Within sequences, and between different ones.
struct Statistics {
  std::vector<Shared> within;
  Shared between;
};

Statistics count(const Batch& b) {
  Statistics out;
  Counts all;
  const double pairs = static_cast<double>(b.length) * static_cast<double>(b.length);
  for (Index s = 0; s < b.sequences; ++s) {
    Counts own;
    own.add(b, s * b.length, b.length);
    all.add(b, s * b.length, b.length);
    out.within.push_back(Shared().add(own.pairs(), 1 / pairs));
  }
  out.between = all.pairs();
  const double n = static_cast<double>(b.sequences);
  for (const Shared& w : out.within) out.between.add(w, -pairs);
  out.between = Shared().add(out.between, 1 / (n * (n - 1) * pairs));
  return out;
}

double apart(const Shared& a, const Shared& b, double pairs) {
  const double least = 1 / pairs;  // one pair more or less
  const auto differ = [&](double x, double y) { return std::abs(std::log((x + least) / (y + least))); };
  return differ(a.target, b.target) + differ(a.both, b.both) + differ(a.encoder, b.encoder);
}

// The sequence that repeats itself as the sequences of the batch do in the mean.
Stretch usual_sequence(const Batch& b, const Statistics& all) {
  Shared mean;
  const double n = static_cast<double>(b.sequences), pairs = static_cast<double>(b.length) * static_cast<double>(b.length);
  for (const Shared& w : all.within) mean.add(w, 1 / n);
  std::size_t best = 0;
  for (std::size_t s = 1; s < all.within.size(); ++s) {
    if (apart(all.within[s], mean, pairs) < apart(all.within[best], mean, pairs)) best = s;
  }
  return {static_cast<Index>(best), 0};
}

// Of many draws of stretches from different sequences, those that share what the sequences of the batch do.
Few usual_stretches(const Batch& b, const Shared& wanted, Index length) {
  constexpr std::uint32_t tries = 512;
  Few best{};
  double least = INFINITY;
  for (std::uint32_t i = 0; i < tries; ++i) {
    Few few{};
    std::vector<Index> order(static_cast<std::size_t>(b.sequences));
    for (std::size_t s = 0; s < order.size(); ++s) order[s] = static_cast<Index>(s);
    for (std::uint32_t s = 0; s < stretches; ++s) {
      const auto random = philox4x32_10({i, s, 0, 0}, {0x5eedU, 0});
      const auto left = static_cast<std::uint32_t>(order.size() - s);
      std::swap(order[s], order[s + random[0] % left]);
      few[s] = {order[s], static_cast<Index>(random[1]) % (b.length - length + 1)};
    }
    const Batch some = take(b, few, length);
    const double off = apart(count(some).between, wanted, 12.0 * static_cast<double>(length) * static_cast<double>(length));
    if (off < least) least = off, best = few;
  }
  return best;
}

double squared(const Value& v) { return v.predicted.value_or(0) * v.predicted.value_or(0); }

// What x of whole sequences is of that of short stretches. What is learned of scores falls with the length, by half as many octaves as
// w does (seen in BERT and LLaMA blocks at 32 and 128 tokens); of the pairs that meet in a table of positions there are fewer.
double by_length(const ParameterSignal& p, double of_w, double share, Index length) {
  if (p.role == Role::query || p.role == Role::key) return std::sqrt(of_w);
  const bool row_each = p.role == Role::position_embedding && !p.shape.empty() && p.shape.front() >= length;
  return row_each ? share : 1;
}

// Squared norms of parameters' gradients, and x of a sample of `n` sequences, whose own are `own` in the mean.
using Squares = std::vector<double>;

void add_squares(const Signal& s, double by, Squares& to) {
  to.resize(s.parameters.size());
  for (std::size_t i = 0; i < to.size(); ++i) to[i] += by * squared(s.parameters[i].gradient_norm);
}

double between(double together, double own, double n) { return (together - own / n) * n / (n - 1); }

void scale(Value& v, double by) {
  if (v.predicted) *v.predicted *= by;
  if (v.spread) *v.spread *= by;
}

// One sequence becomes the batch.
Signal of_batch(Signal out, const Squares& x, double n) {
  double before = 0, total = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    Value& norm = out.parameters[i].gradient_norm;
    const double w = squared(norm);
    if (w > 0) scale(norm, std::sqrt(std::max(w / n + (1 - 1 / n) * x[i], 0.0) / w));
    before += w;
    total += squared(norm);
  }
  if (before > 0) scale(out.gradient_norm, std::sqrt(total / before));
  for (NodeSignal& node : out.nodes) {  // a mean over n times as many tokens
    scale(node.backward.norm, 1 / std::sqrt(n));
    scale(node.backward.second_moment, 1 / (n * n));
  }
  out.batch = static_cast<Index>(n);
  return out;
}

constexpr double little = 0.25;  // share of the usual sampling

Expected<Signal> predict_text(const Batch& batch, const Predicts& predicts) {
  const Statistics all = count(batch);
  const Stretch usual = usual_sequence(batch, all);
  auto alone = predicts(take(batch, {&usual, 1}, batch.length), 1, false);
  if (!alone) return alone;
  const Index length = std::min<Index>(batch.length / 4, 64);
  const Few few = usual_stretches(batch, all.between, length);
  const Batch sample = take(batch, few, length);
  const auto together = predicts(sample, little, false);
  if (!together) return together;
  Squares own;
  for (const Stretch& s : few) {
    const auto one = predicts(take(batch, {&s, 1}, length), little / 4, false);
    if (!one) return one;
    add_squares(*one, 1.0 / stretches, own);
  }
  const double shared = count(sample).between.target;
  const double more = shared > 0 ? all.between.target / shared : 1;
  const double share = static_cast<double>(length) / static_cast<double>(batch.length);
  Squares x(own.size());
  for (std::size_t i = 0; i < x.size(); ++i) {
    const ParameterSignal& p = alone->parameters[i];
    x[i] = std::max(between(squared(together->parameters[i].gradient_norm), own[i], stretches), 0.0) * more *
           by_length(p, own[i] > 0 ? squared(p.gradient_norm) / own[i] : 1, share, batch.length);
  }
  Signal out = of_batch(*std::move(alone), x, static_cast<double>(batch.sequences));
  out.sequences_from = static_cast<Index>(stretches);
  return out;
}

// Of an image: of all its tokens, or of the first.
std::size_t place_of_label(const Batch& batch, Index image) {
  return static_cast<std::size_t>(batch.pooled() ? image : image * batch.length);
}

// Of all pairs of different images the share of one class.
double of_one_class(const Batch& batch) {
  std::unordered_map<std::int32_t, double> counts;
  for (Index i = 0; i < batch.sequences; ++i) ++counts[batch.targets[place_of_label(batch, i)]];
  double pairs = 0;
  for (const auto& [label, n] : counts) pairs += n * (n - 1);
  const double n = static_cast<double>(batch.sequences);
  return pairs / (n * (n - 1));
}

// Whether two images are alike in size: then they are of one law, as far as the theory goes.
bool like(const Batch& batch, Index a, Index b) {
  const Index image = std::ssize(batch.pixels) / batch.sequences;
  const auto square = [&](Index i) {
    double sum = 0;
    for (Index k = i * image; k < (i + 1) * image; ++k)
      sum +=
          static_cast<double>(batch.pixels[static_cast<std::size_t>(k)]) * static_cast<double>(batch.pixels[static_cast<std::size_t>(k)]);
    return sum;
  };
  return a == b || std::abs(square(a) / square(b) - 1) < 0.05;
}

// The middle of images, all of one class.
Batch cropped(Batch batch, const SmallerImages& smaller, std::int32_t label) {
  const Index side = smaller.side, planes = batch.sequences * smaller.colours, whole = smaller.whole, start = (whole - side) / 2;
  std::vector<float> pixels;
  for (Index row = 0; side < whole && row < planes * side; ++row) {
    const auto from = batch.pixels.begin() + (row / side * whole + start + row % side) * whole + start;
    pixels.insert(pixels.end(), from, from + side);
  }
  if (side < whole) batch.pixels = std::move(pixels);
  const std::size_t targets = batch.pooled() ? batch.targets.size() : static_cast<std::size_t>(batch.sequences * smaller.length);
  batch.length = smaller.length;
  batch.ids.assign(static_cast<std::size_t>(batch.tokens()), 0);
  batch.targets.assign(targets, -1);
  for (Index i = 0; i < batch.sequences; ++i) batch.targets[place_of_label(batch, i)] = label;
  return batch;
}

// What two images share, x / w of each parameter, by two of one class, smaller where the model can be made so: neither their number of
// pixels nor their class changes how alike what they send is. What goes with the class is one number at the logits, (1 - 1/classes) of two
// of one and one less of two others, which the way up multiplies everything by; that of the batch is `mean`.
Expected<Squares> shared_by_images(const Batch& batch, const Predicts& predicts, const Images& images, double mean) {
  const auto squares_of = [&](std::span<const Stretch> list) -> Expected<Squares> {
    const Batch few = cropped(take(batch, list, batch.length), images.cut, batch.targets[place_of_label(batch, 0)]);
    const auto signal = predicts(few, little, images.cut.side < images.cut.whole);
    if (!signal) return std::unexpected(signal.error());
    Squares out;
    add_squares(*signal, 1, out);
    return out;
  };
  constexpr std::array two = {Stretch{0, 0}, Stretch{1, 0}};
  const auto together = squares_of(two);  // the largest work first, for its memory is used again
  if (!together) return together;
  Squares own(together->size());
  for (std::size_t i = 0; i < two.size(); ++i) {
    const auto one = squares_of({&two[i], 1});
    if (!one) return one;
    const bool both = i == 0 && like(batch, 0, 1);
    for (std::size_t k = 0; k < own.size(); ++k) own[k] += both ? (*one)[k] : (*one)[k] / 2;
    if (both) break;
  }
  const double same = 1 - 1 / static_cast<double>(images.classes);
  Squares x(own.size());
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = own[i] > 0 ? between((*together)[i], own[i], 2) / own[i] * mean / same : 0;
  return x;
}

// One image stands for what goes down.
Expected<Signal> predict_images(const Batch& batch, const Predicts& predicts, const Images& images) {
  const double n = static_cast<double>(batch.sequences), mean = of_one_class(batch) - 1 / static_cast<double>(images.classes);
  constexpr double nothing = 0.02;  // of a squared norm
  Squares shared;
  if (std::abs(mean) * (n - 1) > nothing) {
    auto found = shared_by_images(batch, predicts, images, mean);
    if (!found) return std::unexpected(found.error());
    shared = *std::move(found);
  }
  auto first = predicts(take(batch, std::array{Stretch{}}, batch.length), 1, false);
  if (!first) return first;
  Squares x;
  add_squares(*first, 1, x);
  for (std::size_t i = 0; i < x.size(); ++i) x[i] *= shared.empty() ? 0 : shared[i];
  Signal out = of_batch(*std::move(first), x, n);
  out.sequences_from = shared.empty() ? 1 : 2;
  return out;
}

// Images that share the statistics of a batch norm. Images of one law mix in two ways only: what they have in common, and what one has
// beyond the others, B - 1 times. With c the covariance of two images' gradients at the logits over that of one with itself, everything
// squared goes like
//     (B - 1) (1 - c) D + (1 + (B - 1) c) M
// relative to one image alone. D is how two images of different classes go (c < 0), less what M has of it; M is how two of one class
// go (c = 1): it grows with their number where gradients meet what the images share, and settles like 1/B where the norm takes it off.
struct Modes {
  double apart = 1, common = 1;  // D and M of two images

  Modes(double one, double same, double different, double c) {
    if (!(one > 0)) return;
    common = same / one;
    apart = (2 * different / one - (1 + c) * common) / (1 - c);
  }
  // of n images, over that of n that share nothing
  [[nodiscard]] double of(double n, double c) const {
    const double grows = common > 1 ? n - 1 : 2 * (1 - 1 / n);
    const double many = 1 + grows * (common - 1);
    return std::max(((n - 1) * (1 - c) * apart + (1 + (n - 1) * c) * many) / n, 0.0);
  }
};

// One image stands for what goes down; how gradients change with the number of images comes from one and two smaller ones.
Expected<Signal> predict_normed_images(const Batch& batch, const Predicts& predicts, const Images& images) {
  const double classes = static_cast<double>(images.classes), n = static_cast<double>(batch.sequences);
  const auto of_pairs = [&](double same) { return images.classes > 1 ? (same - 1 / classes) / (1 - 1 / classes) : 0; };
  const auto small = [&](std::span<const Stretch> list, Index classes_on) {
    const std::int32_t label = batch.targets[place_of_label(batch, 0)];
    Batch few = cropped(take(batch, list, batch.length), images.cut, label);
    const auto other = static_cast<std::int32_t>((label + classes_on) % images.classes);
    if (few.sequences > 1) few.targets[place_of_label(few, 1)] = other;
    return predicts(few, little, images.cut.side < images.cut.whole);
  };
  constexpr std::array two = {Stretch{0, 0}, Stretch{1, 0}};
  const auto same = small(two, 0);
  if (!same) return same;
  const auto different = small(two, 1);
  if (!different) return different;
  const auto one = small({two.data(), 1}, 0);
  if (!one) return one;
  auto out = predicts(take(batch, std::array{Stretch{}}, batch.length), 1, false);
  if (!out) return out;
  const double c = of_pairs(of_one_class(batch)), c_of_two = of_pairs(0);
  // squares that are means over the batch: two images have half of each
  const auto modes = [&](auto&& square) { return Modes(square(*one), 2 * square(*same), 2 * square(*different), c_of_two).of(n, c); };
  double before = 0, total = 0;
  for (std::size_t i = 0; i < out->parameters.size(); ++i) {
    Value& norm = out->parameters[i].gradient_norm;
    before += squared(norm);
    scale(norm, std::sqrt(modes([&](const Signal& s) { return squared(s.parameters[i].gradient_norm); }) / n));
    total += squared(norm);
  }
  if (before > 0) scale(out->gradient_norm, std::sqrt(total / before));
  for (std::size_t i = 0; i < std::min(out->nodes.size(), one->nodes.size()); ++i) {
    const double grown = modes([&](const Signal& s) { return squared(s.nodes[i].backward.norm); });
    scale(out->nodes[i].backward.norm, std::sqrt(grown / n));
    scale(out->nodes[i].backward.second_moment, grown / (n * n));
  }
  out->batch = batch.sequences;
  out->sequences_from = 2;
  return out;
}

}  // namespace

bool stands_for_many(const Batch& batch) {
  const bool long_enough =
      !batch.pixels.empty() || (batch.tokens() > 256 && batch.length >= 16 && !batch.pooled() && batch.features.empty());
  return std::cmp_greater_equal(batch.sequences, stretches) && long_enough;
}

Expected<Signal> predict_batch(const Batch& batch, const Predicts& predicts, const Images& images) {
  if (batch.pixels.empty()) return predict_text(batch, predicts);
  return images.normed ? predict_normed_images(batch, predicts, images) : predict_images(batch, predicts, images);
}

}  // namespace stepzero
