#pragma once
// What each update of a run is trained on: pieces of a text from drawn places, or the sequences of a file in their order. A feed is a
// function of (seed, update, part): a run that is taken up again needs no memory of it.
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "stepzero/core/batch.hpp"
#include "stepzero/core/error.hpp"

namespace stepzero {

class Feed {
 public:
  virtual ~Feed() = default;
  // Writes to a batch of the feed's shape.
  virtual void fill(Batch& batch, std::uint64_t seed, int update, int part) const = 0;
  // The batches of the held-out text, always the same; 0: there is none.
  [[nodiscard]] virtual int held_out() const { return 0; }
  virtual void fill_held_out(Batch& batch, int k) const;

  [[nodiscard]] const Batch& shape() const { return shape_; }

 protected:
  explicit Feed(Batch shape) : shape_(std::move(shape)) {}
  Batch shape_;
};

struct TextSettings {
  double validation = 0.1;  // the last part of the text, which no update sees
  Index length = 128;
  Index sequences = 8;
  bool next = true;      // targets: the next token, or (same) the token itself
  bool encoder = false;  // an encoder reads the `length` tokens before those of the decoder
  int most_held_out = 200;
};

Expected<std::unique_ptr<Feed>> text_feed(std::vector<std::int32_t> ids, const TextSettings& settings);

// The sequences of `all`, `sequences` of them at a time, from the start again at the end.
std::unique_ptr<Feed> ordered_feed(Batch all, Index sequences, int accumulate);

}  // namespace stepzero
