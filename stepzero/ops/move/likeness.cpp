#include "stepzero/ops/move/likeness.hpp"

#include <algorithm>

namespace stepzero {

Dependence::Dependence(const Square& together, const Square& apart) {
  double own = 0, without = 0, both = 0, square = 0;
  for (Index t = 0; t < apart.tokens(); ++t) {
    own += together(t, t);
    without += apart(t, t);
    for (Index s = 0; s < t; ++s) both += together(t, s) * apart(t, s), square += apart(t, s) * apart(t, s);
  }
  if (without > 0) diagonal_ = own / without;
  beside_ = square > 0 ? std::clamp(both / square, 0.0, diagonal_) : diagonal_;
}

Square Dependence::times(const Square& x, double share) const {
  const double diagonal = 1 + share * (diagonal_ - 1);
  Square out = (1 + share * (beside_ - 1)) * x;
  for (Index t = 0; t < x.tokens(); ++t) out(t, t) = diagonal * x(t, t);
  return out;
}

void Likeness::see(std::size_t k, const MatrixMove* m, double decrease, double direct) {
  pulls.resize(std::max(pulls.size(), k + 1), 1.0);
  directs.resize(pulls.size(), 1.0);
  if (m == nullptr) return;
  if (m->direct.decrease > 0) pulls[k] = decrease / m->direct.decrease;
  const double normal = m->direct.size(m->use.G, m->use.n_out).trace() / static_cast<double>(m->use.K.tokens());
  if (normal > 0) directs[k] = direct / normal;
}

double Likeness::decrease(std::size_t k, const MatrixMove* m) const { return m != nullptr ? pulls[k] * m->direct.decrease : 0; }

double Likeness::direct(std::size_t k, const MatrixMove* m) const {
  return m != nullptr ? directs[k] * m->direct.size(m->use.G, m->use.n_out).trace() / static_cast<double>(m->use.K.tokens()) : 0;
}

}  // namespace stepzero
