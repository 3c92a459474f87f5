#pragma once
// What norms, rotations and joins of queries and keys tell the attention that reads them, which samples heads of its own; and what it
// tells them of the gradient.
#include <optional>

#include "stepzero/ops/op.hpp"

namespace stepzero {

struct Rotary;

// The last channels of every head where they have a kernel of their own (latent attention), before a rotation; noise and swing as in
// a Fluctuation: those of what the tail was made from.
struct HeadTail {
  Index channels = 0;
  Kernel K;
  double noise = 0;
  double swing = 0;
};

// Left on the way down: what happened to the heads since the projection.
struct HeadNote {
  Kernel before;      // kernel before a norm of heads or a rotation
  bool unit = false;  // each head was put on a sphere
  const Rotary* rotary = nullptr;
  std::optional<HeadTail> tail = {};
};

// The note of a wire of heads; of one that has none, that nothing has happened.
inline HeadNote head_note(const DownWire& x) {
  if (const auto* note = note_of<HeadNote>(x)) return *note;
  return {.before = x.K};
}

// Left on the way up: the gradient's kernel before the heads turned, and what of it belongs to their tails.
struct TurnedBack {
  Kernel G;
  std::optional<Kernel> tail;
};

}  // namespace stepzero
