// The moment doors of a scan: heads are drawn, what of them is linear is taken in the mean.
#include <cmath>

#include "stepzero/core/random.hpp"
#include "stepzero/ops/drawn_sums.hpp"
#include "stepzero/ops/scan.hpp"

namespace stepzero {

namespace {

// Rows with the covariance of a wire's channels around their mean; where rounding leaves no root, a ridge does.
class Field {
 public:
  explicit Field(const DownWire& x) : root_(x.K.tokens(), x.K.tokens()), mean_(x) { root(x.K, x); }
  explicit Field(const Kernel& G) : root_(G.tokens(), G.tokens()), mean_(none_) { root(G, none_); }

  [[nodiscard]] Tensor<double> draw(std::uint64_t place, const char* name, Index i, Index columns) const {
    const Index n = root_.rows();
    const Tensor<float> z = node_normals(place, name, i, n, columns);
    Tensor<double> out(n, columns);
    for (Index t = 0; t < n; ++t) {
      for (Index c = 0; c < columns; ++c) {
        double sum = mean_.mean_at(t);
        for (Index s = 0; s <= t; ++s) sum += root_(t, s) * static_cast<double>(z(s, c));
        out(t, c) = sum;
      }
    }
    return out;
  }

 private:
  // Cholesky, a column of nothing where the rest is nothing
  void root(const Kernel& K, const DownWire& mean) {
    const Index n = K.tokens();
    const double least = 1e-10 * std::max(K.trace() / static_cast<double>(n), 1e-300);
    std::fill_n(root_.data(), root_.size(), 0.0);
    for (Index j = 0; j < n; ++j) {
      for (Index i = j; i < n; ++i) {
        double x = K(i, j) - mean.mean_at(i) * mean.mean_at(j);
        for (Index k = 0; k < j; ++k) x -= root_(i, k) * root_(j, k);
        if (i == j) root_(j, j) = x > least ? std::sqrt(x) : 0;
        if (i > j) root_(i, j) = root_(j, j) > 0 ? x / root_(j, j) : 0;
      }
    }
  }

  static inline const DownWire none_ = {};
  Matrix root_;
  const DownWire& mean_;
};

// One head: its step sizes, what it takes in and reads out, and its parameters.
struct Head {
  Tensor<double> r, B, C, l, D, b;
};

class Heads {
 public:
  static constexpr Index together = 8;
  static constexpr double enough = 0.003;  // relative standard error

  Heads(const Scan& op, const Batch& batch, std::span<const DownWire* const> x, std::span<const Law> theta, const Draws& draws)
      : op_(op), batch_(batch), theta_(theta), draws_(draws), r_(*x[1]), B_(*x[2]), C_(*x[3]), one_(op) {
    one_.heads = one_.groups = channels;  // all with the same steps, each with an x and a dy of its own
    one_.head_dim = 1;
    // heads that are cheap are drawn many times: with few tokens one differs much from the next
    constexpr double enough_work = 2e9;
    const double affords = std::min(draws.effort, enough_work) / op.draw_cost(batch, 0);
    most_ = std::clamp<Index>(static_cast<Index>(affords / together), 8, 4096) * together;
  }
  static constexpr Index channels = 8;  // drawn with the steps of one head

  [[nodiscard]] Head draw(Index i) const {
    const std::uint64_t place = draws_.place;
    Head h{r_.draw(place, "step", i, 1),
           B_.draw(place, "in", i, op_.states),
           C_.draw(place, "out", i, op_.states),
           Tensor<double>(1, op_.each ? op_.states : 1),
           number(theta_[1], "D", i),
           number(theta_[2], "bias", i)};
    const Tensor<float> z = node_normals(place, "decay", i, 1, op_.states);
    for (Index n = 0; n < h.l.cols(); ++n) {
      const double drawn = theta_[0].mean + std::sqrt(theta_[0].variance) * static_cast<double>(z(0, n));
      const Index at = op_.each ? n : i % static_cast<Index>(std::max(theta_[0].ramp, 1.0));
      h.l(0, n) = theta_[0].ramp > 0 ? std::log(static_cast<double>(at + 1)) : drawn;
    }
    return h;
  }

  // M: what the head makes of x, which it takes in linearly.
  [[nodiscard]] Matrix matrix(const Head& h) const {
    const Index n = h.r.rows(), length = n / batch_.sequences;
    Matrix M(n, n);
    std::fill_n(M.data(), M.size(), 0.0);
    std::vector<double> state(static_cast<std::size_t>(op_.states));
    const Matrix w = decays(h);
    for (Index s = 0; s < n; ++s) {
      const double in = step_at(h, s);
      for (Index k = 0; k < op_.states; ++k) state[static_cast<std::size_t>(k)] = in * h.B(s, k);
      for (Index t = s; t < (s / length + 1) * length; ++t) {
        double read = 0;
        for (Index k = 0; k < op_.states; ++k) {
          double& x = state[static_cast<std::size_t>(k)];
          if (t > s) x *= w(t, op_.each ? k : 0);
          read += x * h.C(t, k);
        }
        M(t, s) = read;
      }
      M(s, s) += h.D(0, 0);
    }
    return M;
  }

  [[nodiscard]] const Scan& one() const { return one_; }
  [[nodiscard]] Index most() const { return most_; }
  [[nodiscard]] std::uint64_t place() const { return draws_.place; }

 private:
  // What is left of a state at each token; one for all states where they share it.
  [[nodiscard]] Matrix decays(const Head& h) const {
    Matrix w(h.r.rows(), h.l.cols());
    for (Index k = 0; k < w.cols(); ++k) {
      const double rate = std::exp(h.l(0, k));
      for (Index t = 0; t < w.rows(); ++t) w(t, k) = std::exp(-step_at(h, t) * rate);
    }
    return w;
  }
  [[nodiscard]] double step_at(const Head& h, Index t) const { return op_.step(h.r(t, 0) + h.b(0, 0)).value; }
  [[nodiscard]] Tensor<double> number(const Law& law, const char* name, Index i) const {
    Tensor<double> x(1, 1);
    const double z = static_cast<double>(node_normals(draws_.place, name, i, 1, 1)(0, 0));
    x(0, 0) = law.most > 0 ? time_step(std::erfc(-z / std::sqrt(2.0)) / 2, law.least, law.most, 0) : law.mean + std::sqrt(law.variance) * z;
    return x;
  }

  const Scan& op_;
  const Batch& batch_;
  std::span<const Law> theta_;
  Draws draws_;
  Field r_, B_, C_;
  Scan one_;
  Index most_;
};

Matrix as_matrix(const Kernel& K) {
  Matrix m(K.tokens(), K.tokens());
  for (Index t = 0; t < K.tokens(); ++t) {
    for (Index s = 0; s < K.tokens(); ++s) m(t, s) = K(t, s);
  }
  return m;
}

// A K A', or A' K A
Matrix around(Trans turned, const Matrix& A, const Matrix& K) {
  Matrix half(K.rows(), K.rows()), out(K.rows(), K.rows());
  const Trans back = turned == Trans::no ? Trans::yes : Trans::no;
  gemm(turned, Trans::no, 1.0, A.view(), K.view(), 0.0, half.view());
  gemm(Trans::no, back, 1.0, View<const double>(half), A.view(), 0.0, out.view());
  return out;
}

void add_to(Matrix& sum, const Matrix& x) {
  for (Index i = 0; i < sum.size(); ++i) sum.data()[i] += x.data()[i];
}
void add_gram(Matrix& sum, const Tensor<double>& x) { gemm(Trans::no, Trans::yes, 1.0, x.view(), x.view(), 1.0, sum.view()); }

double squares(const Tensor<double>& x) {
  double sum = 0;
  for (Index i = 0; i < x.size(); ++i) sum += x.data()[i] * x.data()[i];
  return sum;
}

// The same numbers for each of the channels, side by side or one below the other.
Tensor<double> beside(const Tensor<double>& x) {
  Tensor<double> out(x.rows(), x.cols() * Heads::channels);
  for (Index t = 0; t < out.rows(); ++t) {
    for (Index c = 0; c < out.cols(); ++c) out(t, c) = x(t, c % x.cols());
  }
  return out;
}
Tensor<double> below(const Tensor<double>& x) {
  Tensor<double> out(x.rows() * Heads::channels, x.cols());
  for (Index t = 0; t < out.rows(); ++t) std::copy_n(x.view().row(t % x.rows()), x.cols(), out.view().row(t));
  return out;
}

// What one drawn head sends up.
struct Sent {
  Matrix x;
  Tensor<double> r, B, C;
  std::array<double, 3> params;
};

}  // namespace

DownWire Scan::push(const PushDoor& p) const {
  const Heads heads_drawn(*this, p.batch, p.x, p.theta, p.draws);
  const Matrix K = as_matrix(p.x[0]->K);
  const Index n = K.rows();
  Matrix sum = zeros(n), mean = zeros(n);
  Running size;
  struct Slot {
    Matrix L, M;
  };
  std::vector<Slot> slots(Heads::together);
  Index made = 0;
  draw_until_sure(
      heads_drawn.most(), Heads::together,
      [&](Index i, Index slot) {
        Slot& to = slots[static_cast<std::size_t>(slot)];
        to.M = heads_drawn.matrix(heads_drawn.draw(i));
        to.L = around(Trans::no, to.M, K);  // (8)
      },
      [&](Index count) {
        for (const Slot& s : slots) {
          add_to(sum, s.L);
          add_to(mean, s.M);
          double trace = 0;
          for (Index t = 0; t < n; ++t) trace += s.L(t, t);
          size.add(trace);
        }
        made = count;
        return size.error() <= Heads::enough * size.mean;
      });
  DownWire y;
  y.K = mean_of(sum, 1 / static_cast<double>(made));
  for (Index t = 0; t < n && !p.x[0]->mean.empty(); ++t) {
    double at = 0;
    for (Index s = 0; s < n; ++s) at += mean(t, s) * p.x[0]->mean_at(s) / static_cast<double>(made);
    y.mean.push_back(at);
  }
  y.f = p.x[0]->f;
  y.f.drift += size.mean > 0 ? size.variance() / (size.mean * size.mean * static_cast<double>(heads)) : 0;
  return y;
}

Pulled Scan::pull(const PullDoor& p) const {
  const Heads heads_drawn(*this, p.batch, p.x, p.theta, p.draws);
  const Index n = p.dy.G.tokens();
  const Matrix G = as_matrix(p.dy.G);
  const Field in(*p.x[0]), up(p.dy.G);
  std::array<Matrix, 4> sums = {zeros(n), zeros(n), zeros(n), zeros(n)};
  std::array<double, 3> of_params{};
  std::vector<Sent> slots(Heads::together);
  Running size, steps;
  Index made = 0;
  const auto one = [&](Index i, Sent& to) {
    const Head h = heads_drawn.draw(i);
    to.x = around(Trans::yes, heads_drawn.matrix(h), G);  // (9)
    const Tensor<double> x = in.draw(heads_drawn.place(), "x", i, Heads::channels);
    const Tensor<double> dy = up.draw(heads_drawn.place(), "dy", i, Heads::channels), y(n, Heads::channels);  // each stands for all
    const Tensor<double> r = beside(h.r), B = beside(h.B), C = beside(h.C), D = beside(h.D), b = beside(h.b);
    const Tensor<double> l = each ? below(h.l) : beside(h.l);
    Tensor<double> dl(l.rows(), l.cols()), dd(1, Heads::channels), db(1, Heads::channels);
    to.r = Tensor<double>(n, r.cols()), to.B = Tensor<double>(n, B.cols()), to.C = Tensor<double>(n, C.cols());
    const View<const double> wires[] = {x.view(), r.view(), B.view(), C.view()}, theta[] = {l.view(), D.view(), b.view()};
    const Into<double> dx[] = {{}, {to.r.view()}, {to.B.view()}, {to.C.view()}}, dtheta[] = {{dl.view()}, {dd.view()}, {db.view()}};
    heads_drawn.one().backward(Up<double>{p.batch, wires, theta, y.view(), {}, dy.view(), dx, dtheta});
    to.params = {squares(dl), squares(dd), squares(db)};
  };
  draw_until_sure(
      heads_drawn.most(), Heads::together, [&](Index i, Index slot) { one(i, slots[static_cast<std::size_t>(slot)]); },
      [&](Index count) {
        for (const Sent& s : slots) {
          add_to(sums[0], s.x);
          add_gram(sums[1], s.r), add_gram(sums[2], s.B), add_gram(sums[3], s.C);
          for (std::size_t k = 0; k < 3; ++k) of_params[k] += s.params[k];
          size.add(squares(s.B) + squares(s.C));
          steps.add(squares(s.r));
        }
        made = count;
        return size.error() <= 2 * Heads::enough * size.mean && steps.error() <= 4 * Heads::enough * steps.mean;
      });
  const double share = 1 / static_cast<double>(made), of_one = share / static_cast<double>(Heads::channels);
  Pulled out;
  for (std::size_t k = 0; k < 4; ++k) out.dx.emplace_back(mean_of(sums[k], k == 0 ? share : of_one));
  out.dtheta = {of_params[0] * of_one, frobenius(p.x[0]->K, p.dy.G), of_params[2] * of_one};
  return out;
}

}  // namespace stepzero
