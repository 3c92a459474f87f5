// The moment doors of max pooling: channels drawn from their kernel, pooled, and counted.
#include "stepzero/core/running.hpp"
#include "stepzero/ops/drawn_channels.hpp"
#include "stepzero/ops/function_kernel.hpp"
#include "stepzero/ops/kernel_draw.hpp"
#include "stepzero/ops/max_pool.hpp"

namespace stepzero {

namespace {

using Square = Tensor<float>;

// Means over draws: E y y'; for every two slots (place, tap), how often both are the largest of their windows (wins), and the same
// weighted by the slopes of the function in front.
struct Counts {
  Kernel K;
  Kernel wins, slopes;  // slopes: empty where there is no function in front
  std::vector<double> mean;
  double sampling = 0;
};

class Sampler {
 public:
  Sampler(const Window& window, const DownWire& x, Index images, std::uint64_t place)
      : before_(note_of<BeforeFunction>(x)), channels_(before_ ? before_->K : x.K, place), pixels_(x.K.tokens()) {
    slots_ = pixels_of_places(window, images);
    const Index places = slots_.cols();
    sums_ = Matrix(places, places);
    wins_ = Matrix(slots_.size(), slots_.size());
    if (before_) slopes_ = Matrix(slots_.size(), slots_.size());
    for (Matrix* m : {&sums_, &wins_, &slopes_}) std::fill_n(m->data(), m->size(), 0.0);
    mean_.assign(static_cast<std::size_t>(places), 0.0);
  }

  // Until the mean square is known to a quarter of a per cent, or the effort is spent.
  Counts run(double effort) {
    Running squares;
    double spent = 0;
    while (squares.count < 4 || (squares.error() > 0.0025 * squares.mean && spent < effort)) {
      const Square x = channels_.block(static_cast<Index>(squares.count));
      squares.add((pool(x, 1) + pool(x, -1)) / 2);  // the negatives have the same law
      spent += 12 * static_cast<double>(x.rows() * pixels_ * pixels_);
    }
    const double scale = 1 / static_cast<double>(drawn_);
    Counts counts;
    const auto kernel = [&](Matrix& m) { return m.size() == 0 ? Kernel() : Kernel(std::move(m)).scaled(scale); };
    const double square = squares.mean, fourth = fourths_ * scale / static_cast<double>(sums_.rows());
    counts.K = kernel(sums_);
    counts.wins = kernel(wins_);
    counts.slopes = kernel(slopes_);
    counts.mean = mean_;
    for (double& x : counts.mean) x *= scale;
    counts.sampling = square > 0 ? fourth / (square * square) - 1 : 0;
    return counts;
  }

 private:
  // The mean square of the maxima.
  double pool(const Square& x, float sign) {
    const Index n = x.rows(), places = slots_.cols(), taps = slots_.rows();
    Tensor<float> y(n, places), wins(n, taps * places), slopes(before_ ? n : 0, taps * places);
    parallel_ranges(n, 16, [&](Index i0, Index i1) {
      for (Index i = i0; i < i1; ++i) {
        std::fill_n(wins.view().row(i), wins.cols(), 0.0F);
        if (before_) std::fill_n(slopes.view().row(i), slopes.cols(), 0.0F);
        for (Index r = 0; r < places; ++r) {
          Index best = -1;
          double most = 0, at = 0;
          for (Index tap = 0; tap < taps; ++tap) {
            if (slots_(tap, r) < 0) continue;
            const double u = static_cast<double>(sign * x(i, slots_(tap, r)));
            const double value = before_ ? before_->value(u) : u;
            if (best >= 0 && !(value > most)) continue;
            best = tap;
            most = value;
            at = u;
          }
          y(i, r) = static_cast<float>(most);
          wins(i, best * places + r) = 1;
          if (before_) slopes(i, best * places + r) = static_cast<float>(before_->slope(at));
        }
      }
    });
    add(y, sums_);
    add(wins, wins_);
    if (before_) add(slopes, slopes_);
    drawn_ += n;
    return summarise(y);
  }

  static void add(const Tensor<float>& drawn, Matrix& to) {
    const Square gram = product(Trans::yes, Trans::no, drawn, drawn);
    for (Index i = 0; i < to.size(); ++i) to.data()[i] += static_cast<double>(gram.data()[i]);
  }

  double summarise(const Tensor<float>& y) {
    double squares = 0;
    for (Index i = 0; i < y.rows(); ++i) {
      for (Index r = 0; r < y.cols(); ++r) {
        const double v = static_cast<double>(y(i, r));
        mean_[static_cast<std::size_t>(r)] += v;
        squares += v * v;
        fourths_ += v * v * v * v;
      }
    }
    return squares / static_cast<double>(y.size());
  }

  const BeforeFunction* before_;  // null: none
  Channels channels_;
  Index pixels_;
  Meetings slots_;
  Matrix sums_, wins_, slopes_;
  std::vector<double> mean_;
  double fourths_ = 0;
  Index drawn_ = 0;
};

// (5), (6): `together` is by slots, tap by tap
Kernel to_pixels(const Kernel& together, const Kernel& G, const Meetings& m) {
  const Index places = G.tokens();
  return Kernel::from_rows(m.cols(), [&](Index p, double* row) {
    std::fill_n(row, p + 1, 0.0);
    for (Index a = 0; a < m.rows(); ++a) {
      const Index r = m(a, p);
      if (r < 0) continue;
      const Kernel::Row win = together.row(a * places + r), g = G.row(r);
      for (Index b = 0; b < m.rows(); ++b) {
        const Index* met = m.view().row(b);
        for (Index q = 0; q <= p; ++q) row[q] += met[q] < 0 ? 0 : win[b * places + met[q]] * g[met[q]];
      }
    }
  });
}

}  // namespace

DownWire MaxPool::push(const PushDoor& p) const {
  const DownWire& x = *p.x[0];
  const auto counts = std::make_shared<const Counts>(Sampler(window, x, p.batch.sequences, p.draws.place).run(p.draws.effort));
  DownWire y;
  y.K = counts->K;  // (4)
  y.mean = counts->mean;
  y.f.noise = x.f.noise;
  y.f.drift = x.f.drift;
  y.f.sampling = counts->sampling;
  y.note = counts;
  return y;
}

Pulled MaxPool::pull(const PullDoor& p) const {
  const auto* kept = note_of<std::shared_ptr<const Counts>>(p.y);
  std::shared_ptr<const Counts> counts = kept != nullptr ? *kept : nullptr;
  if (counts == nullptr)
    counts = std::make_shared<const Counts>(Sampler(window, *p.x[0], p.batch.sequences, p.draws.place).run(p.draws.effort));
  const Meetings m = places_of_pixels(window, p.batch.sequences);
  Pulled up{{UpWire(to_pixels(counts->wins, p.dy.G, m))}, {}};                                       // (5)
  if (!counts->slopes.empty()) up.dx[0].note = BeforeMaximum{to_pixels(counts->slopes, p.dy.G, m)};  // (6)
  return up;
}

}  // namespace stepzero
