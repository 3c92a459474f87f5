#include "stepzero/train/feed.hpp"

#include <algorithm>
#include <cmath>
#include <span>

#include <fmt/format.h>

#include "stepzero/core/philox.hpp"
#include "stepzero/core/random.hpp"

namespace stepzero {

void Feed::fill_held_out(Batch& batch, int) const { batch = shape_; }

namespace {

class TextFeed : public Feed {
 public:
  TextFeed(std::vector<std::int32_t> ids, std::size_t split, const TextSettings& settings, Batch shape)
      : Feed(std::move(shape)), ids_(std::move(ids)), split_(split), settings_(settings) {
    const Index batches = (std::ssize(ids_) - static_cast<Index>(split_)) / (window() * settings.sequences);
    held_out_ = static_cast<int>(std::min<Index>(batches, settings.most_held_out));
  }

  void fill(Batch& batch, std::uint64_t seed, int update, int part) const override {
    const Stream stream = make_stream(seed, "text");
    const std::uint64_t places = split_ - static_cast<std::size_t>(window()) + 1;
    for (Index s = 0; s < settings_.sequences; ++s) {
      const auto at = philox4x32_10({static_cast<std::uint32_t>(update), static_cast<std::uint32_t>(part), static_cast<std::uint32_t>(s),
                                     static_cast<std::uint32_t>(stream.high)},
                                    stream.key);
      const std::uint64_t number = at[0] | std::uint64_t{at[1]} << 32;
      put(batch, s, number % places);
    }
    batch.seed = seed ^ (std::uint64_t{0x9E3779B97F4A7C15} * (static_cast<std::uint64_t>(update) * 65536 + static_cast<unsigned>(part)));
  }

  [[nodiscard]] int held_out() const override { return held_out_; }

  // Windows that do not overlap, spread over the held-out text.
  void fill_held_out(Batch& batch, int k) const override {
    const std::size_t room = ids_.size() - split_,
                      all = static_cast<std::size_t>(held_out_) * static_cast<std::size_t>(settings_.sequences);
    for (Index s = 0; s < settings_.sequences; ++s) {
      const std::size_t window_number =
          static_cast<std::size_t>(k) * static_cast<std::size_t>(settings_.sequences) + static_cast<std::size_t>(s);
      put(batch, s, split_ + window_number * (room / all));
    }
  }

 private:
  [[nodiscard]] Index window() const { return settings_.length * (settings_.encoder ? 2 : 1) + (settings_.next ? 1 : 0); }

  void put(Batch& batch, Index sequence, std::size_t at) const {
    const auto length = static_cast<std::size_t>(settings_.length), to = static_cast<std::size_t>(sequence) * length;
    const std::int32_t* from = ids_.data() + at;
    if (settings_.encoder) {
      std::copy_n(from, length, batch.encoder_ids.begin() + static_cast<std::ptrdiff_t>(to));
      from += length;
    }
    std::copy_n(from, length, batch.ids.begin() + static_cast<std::ptrdiff_t>(to));
    std::copy_n(from + (settings_.next ? 1 : 0), length, batch.targets.begin() + static_cast<std::ptrdiff_t>(to));
  }

  std::vector<std::int32_t> ids_;
  std::size_t split_;
  TextSettings settings_;
  int held_out_ = 0;
};

// Copies one of `sequences` equal parts of a list.
template <class T>
void copy_part(const std::vector<T>& from, Index part, Index parts, std::vector<T>& to, Index place) {
  const Index size = std::ssize(from) / parts;
  std::copy_n(from.begin() + part * size, size, to.begin() + place * size);
}

class OrderedFeed : public Feed {
 public:
  OrderedFeed(Batch all, Batch shape, int accumulate) : Feed(std::move(shape)), all_(std::move(all)), accumulate_(accumulate) {}

  void fill(Batch& batch, std::uint64_t seed, int update, int part) const override {
    const Index first = (static_cast<Index>(update) * accumulate_ + part) * shape_.sequences;
    for (Index s = 0; s < shape_.sequences; ++s) {
      const Index from = (first + s) % all_.sequences;
      copy_part(all_.ids, from, all_.sequences, batch.ids, s);
      copy_part(all_.targets, from, all_.sequences, batch.targets, s);
      copy_part(all_.encoder_ids, from, all_.sequences, batch.encoder_ids, s);
      copy_part(all_.pixels, from, all_.sequences, batch.pixels, s);
      copy_part(all_.features, from, all_.sequences, batch.features, s);
    }
    batch.seed = seed ^ (std::uint64_t{0x9E3779B97F4A7C15} * static_cast<std::uint64_t>(first));
  }

 private:
  Batch all_;
  int accumulate_;
};

}  // namespace

Expected<std::unique_ptr<Feed>> text_feed(std::vector<std::int32_t> ids, const TextSettings& settings) {
  const Index window = settings.length * (settings.encoder ? 2 : 1) + (settings.next ? 1 : 0);
  const Index held = static_cast<Index>(std::floor(settings.validation * static_cast<double>(ids.size())));
  const Index trained = std::ssize(ids) - held;
  if (trained < window) {
    return fail(fmt::format("the text has {} tokens to train on, a sequence needs {}", trained, window),
                "more text, or a shorter --seq-len");
  }
  if (settings.validation > 0 && held < window * settings.sequences) {
    return fail(fmt::format("the held-out text has {} tokens, a batch of {} sequences needs {}", held, settings.sequences,
                            window * settings.sequences),
                "more text, a smaller --batch or --seq-len, a larger --validation, or --validation 0");
  }
  Batch shape;
  shape.sequences = settings.sequences;
  shape.length = settings.length;
  shape.ids.assign(static_cast<std::size_t>(shape.tokens()), 0);
  shape.targets = shape.ids;
  if (settings.encoder) shape.encoder_ids = shape.ids;
  return std::make_unique<TextFeed>(std::move(ids), static_cast<std::size_t>(trained), settings, std::move(shape));
}

std::unique_ptr<Feed> ordered_feed(Batch all, Index sequences, int accumulate) {
  Batch shape = all;
  shape.sequences = sequences;
  const auto part = [&](auto& list) {
    list.resize(list.size() / static_cast<std::size_t>(all.sequences) * static_cast<std::size_t>(sequences));
  };
  part(shape.ids), part(shape.targets), part(shape.encoder_ids), part(shape.pixels), part(shape.features);
  return std::make_unique<OrderedFeed>(std::move(all), std::move(shape), accumulate);
}

}  // namespace stepzero
