#pragma once
// A square window that moves over square images, and what its moving makes of kernels: what convolutions and poolings share.
// A wire that carries images has a row for each pixel: row = (image * side + y) * side + x; the channels are its columns.
#include "stepzero/core/kernel.hpp"

namespace stepzero {

struct Window {
  Index side = 1;  // of the images it reads, in pixels
  Index size = 1;
  Index stride = 1;
  Index padding = 0;  // pixels that are not there, on every side

  [[nodiscard]] Index out() const { return (side + 2 * padding - size) / stride + 1; }  // side of the images it leaves
  [[nodiscard]] Index pixels() const { return side * side; }
  [[nodiscard]] Index places() const { return out() * out(); }
  [[nodiscard]] Index taps() const { return size * size; }

  // The pixel that a tap reads at a place, both of one image; -1: padding.
  [[nodiscard]] Index pixel(Index place, Index tap) const {
    const Index y = place / out() * stride - padding + tap / size;
    const Index x = place % out() * stride - padding + tap % size;
    return y < 0 || y >= side || x < 0 || x >= side ? -1 : y * side + x;
  }
  // The place whose tap reads a pixel; -1: none.
  [[nodiscard]] Index place(Index pixel, Index tap) const {
    const Index y = pixel / side + padding - tap / size;
    const Index x = pixel % side + padding - tap % size;
    if (y < 0 || x < 0 || y % stride != 0 || x % stride != 0) return -1;
    return y / stride >= out() || x / stride >= out() ? -1 : y / stride * out() + x / stride;
  }
};

// A row for each tap, a column for each row of a wire: the row of another wire that it meets, -1: none.
using Meetings = Tensor<Index>;
Meetings pixels_of_places(const Window& window, Index images);
Meetings places_of_pixels(const Window& window, Index images);

// sum over taps a of K(m_at, m_as): every tap by itself, as where each has a weight of its own
Kernel sum_over_taps(const Kernel& K, const Meetings& m);
// sum over pairs of taps a, b of K(m_at, m_bs): all taps alike
Kernel sum_over_pairs(const Kernel& K, const Meetings& m);

}  // namespace stepzero
