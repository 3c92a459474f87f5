#pragma once
// Notes between attention, which samples heads, and the norms, rotations and joins of queries and keys in front of it.
#include <optional>

#include "stepzero/ops/op.hpp"

namespace stepzero {

struct Rotary;

// The last channels of every head where they have a kernel of their own (latent attention), before a rotation. noise and swing are
// those of the wire that the tail was made from, as in a Fluctuation.
struct HeadTail {
  Index channels = 0;
  Kernel K;
  double noise = 0;
  double swing = 0;
};

// Noted on the way down: what happened to the heads since the projection.
struct HeadNote {
  Kernel before;      // kernel before a norm of heads or a rotation
  bool unit = false;  // a norm put each head on a sphere
  const Rotary* rotary = nullptr;
  std::optional<HeadTail> tail = {};
};

// The note of a wire of heads; without one nothing has happened to them.
inline HeadNote head_note(const DownWire& x) {
  if (const auto* note = note_of<HeadNote>(x)) return *note;
  return {.before = x.K};
}

// Noted on the way up: the kernel of the gradient before the rotation, and its part that belongs to the tails.
struct TurnedBack {
  Kernel G;
  std::optional<Kernel> tail;
};

}  // namespace stepzero
