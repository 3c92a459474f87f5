#include "stepzero/ops/window.hpp"

#include <algorithm>

namespace stepzero {

namespace {

// meet(row of one image, tap), for all images
template <class Meet>
Meetings meetings(Index taps, Index own, Index other, Index images, const Meet& meet) {
  Meetings m(taps, images * own);
  for (Index tap = 0; tap < taps; ++tap) {
    for (Index t = 0; t < own; ++t) {
      const Index met = meet(t, tap);
      for (Index i = 0; i < images; ++i) m(tap, i * own + t) = met < 0 ? -1 : i * other + met;
    }
  }
  return m;
}

}  // namespace

Meetings pixels_of_places(const Window& w, Index images) {
  return meetings(w.taps(), w.places(), w.pixels(), images, [&](Index place, Index tap) { return w.pixel(place, tap); });
}

Meetings places_of_pixels(const Window& w, Index images) {
  return meetings(w.taps(), w.pixels(), w.places(), images, [&](Index pixel, Index tap) { return w.place(pixel, tap); });
}

Kernel sum_over_taps(const Kernel& K, const Meetings& m) {
  return Kernel::from_rows(m.cols(), [&](Index t, double* row) {
    std::fill_n(row, t + 1, 0.0);
    for (Index tap = 0; tap < m.rows(); ++tap) {
      if (m(tap, t) < 0) continue;
      const Kernel::Row k = K.row(m(tap, t));
      const Index* met = m.view().row(tap);
      for (Index s = 0; s <= t; ++s) row[s] += met[s] < 0 ? 0 : k[met[s]];
    }
  });
}

Kernel sum_over_pairs(const Kernel& K, const Meetings& m) {
  Matrix half(m.cols(), K.tokens());  // sum over a of K(m_at, .)
  parallel_ranges(m.cols(), 16, [&](Index t0, Index t1) {
    for (Index t = t0; t < t1; ++t) {
      double* row = half.view().row(t);
      std::fill_n(row, half.cols(), 0.0);
      for (Index tap = 0; tap < m.rows(); ++tap) {
        if (m(tap, t) < 0) continue;
        const Kernel::Row k = K.row(m(tap, t));
        for (Index s = 0; s < half.cols(); ++s) row[s] += k[s];
      }
    }
  });
  return Kernel::from_rows(m.cols(), [&](Index t, double* row) {
    std::fill_n(row, t + 1, 0.0);
    for (Index tap = 0; tap < m.rows(); ++tap) {
      const Index* met = m.view().row(tap);
      for (Index s = 0; s <= t; ++s) row[s] += met[s] < 0 ? 0 : half(t, met[s]);
    }
  });
}

}  // namespace stepzero
