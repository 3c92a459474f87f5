#include "stepzero/solve/least_squares.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "stepzero/core/parallel.hpp"
#include "stepzero/core/stop.hpp"
#include "stepzero/kernels/eigen.hpp"

namespace stepzero::solve {

namespace {

double square_of(const std::vector<double>& r) { return std::inner_product(r.begin(), r.end(), r.begin(), 0.0); }

bool usable(const std::vector<double>& r) {
  return !r.empty() && std::ranges::all_of(r, [](double x) { return std::isfinite(x); });
}

class Search {
 public:
  Search(const Residuals& residuals, const LeastSquaresOptions& options) : residuals_(residuals), options_(options) {}

  std::optional<LeastSquaresResult> run(std::vector<double> z) {
    out_.z = std::move(z);
    r_ = ask(out_.z);
    if (!usable(r_)) return {};
    out_.before = out_.after = square_of(r_) + pulled(out_.z);
    double lambda = 1e-3;
    derive();
    for (; out_.steps < options_.most_steps && out_.after > options_.nothing; ++out_.steps) {
      end_if_stopped();
      const double was = out_.after;
      while (!try_step(lambda)) {
        lambda = std::max(lambda, 1e-6) * 8;
        if (lambda > 1e6) return finish();
      }
      lambda /= 10;
      derive();
      if (was - out_.after < options_.enough * was) break;
    }
    return finish();
  }

 private:
  std::vector<double> ask(const std::vector<double>& z) {
    ++out_.evaluations;
    return residuals_(z);
  }

  [[nodiscard]] double pulled(const std::vector<double>& z) const { return options_.pull * options_.pull * square_of(z); }

  void derive() {
    const std::size_t n = out_.z.size();
    jacobian_.assign(n, {});
    parallel_for(static_cast<Index>(n), [&](Index i) {
      std::vector<double> z = out_.z;
      const auto u = static_cast<std::size_t>(i);
      z[u] += options_.difference;
      std::vector<double> r = residuals_(z);
      if (!usable(r) || r.size() != r_.size()) r = r_;
      for (std::size_t k = 0; k < r.size(); ++k) r[k] = (r[k] - r_[k]) / options_.difference;
      jacobian_[u] = std::move(r);
    });
    out_.evaluations += static_cast<int>(n);
    Matrix squares(static_cast<Index>(n), static_cast<Index>(n));
    slope_.assign(n, 0);
    for (std::size_t i = 0; i < n; ++i) {
      slope_[i] = std::inner_product(r_.begin(), r_.end(), jacobian_[i].begin(), 0.0);
      for (std::size_t j = 0; j < n; ++j)
        squares(static_cast<Index>(i), static_cast<Index>(j)) =
            std::inner_product(jacobian_[i].begin(), jacobian_[i].end(), jacobian_[j].begin(), 0.0);
    }
    eigen_ = kernels::eigen(std::move(squares));
  }

  [[nodiscard]] double largest() const { return std::max(eigen_.values.back(), 0.0); }
  [[nodiscard]] bool is_free(std::size_t i) const { return !(eigen_.values[i] > options_.least * options_.least * largest()); }
  [[nodiscard]] double entry(std::size_t i, std::size_t u) const { return eigen_.vectors(static_cast<Index>(i), static_cast<Index>(u)); }

  bool try_step(double lambda) {
    const std::size_t n = out_.z.size();
    const double pull = options_.pull * options_.pull;
    std::vector<double> step(n, 0.0);
    for (std::size_t i = 0; i < n; ++i) {
      double along = 0;
      for (std::size_t u = 0; u < n; ++u) along += entry(i, u) * (slope_[u] + pull * out_.z[u]);
      const double stiff = std::max(eigen_.values[i], 0.0) + pull + lambda * largest();
      for (std::size_t u = 0; u < n; ++u) step[u] -= entry(i, u) * along / stiff;  // (2)
    }
    double longest = 0;
    for (const double x : step) longest = std::max(longest, std::abs(x));
    const double by = longest > options_.longest ? options_.longest / longest : 1;
    std::vector<double> z = out_.z;
    for (std::size_t u = 0; u < n; ++u) z[u] += by * step[u];
    std::vector<double> r = ask(z);
    if (!usable(r) || r.size() != r_.size()) return false;
    const double cost = square_of(r) + pulled(z);  // (1)
    if (!(cost < out_.after)) return false;
    out_.z = std::move(z);
    r_ = std::move(r);
    out_.after = cost;
    return true;
  }

  LeastSquaresResult finish() {
    for (std::size_t i = 0; i < out_.z.size(); ++i) {
      if (!is_free(i)) continue;
      FreeDirection& f = out_.free.emplace_back(FreeDirection{{}, std::sqrt(std::max(eigen_.values[i], 0.0))});
      for (std::size_t u = 0; u < out_.z.size(); ++u) f.of.push_back(entry(i, u));
    }
    return out_;
  }

  const Residuals& residuals_;
  const LeastSquaresOptions& options_;
  LeastSquaresResult out_;
  std::vector<double> r_, slope_;
  std::vector<std::vector<double>> jacobian_;  // by unknown
  kernels::Eigen eigen_;
};

}  // namespace

std::optional<LeastSquaresResult> least_squares(const Residuals& residuals, std::vector<double> start, const LeastSquaresOptions& options) {
  return Search(residuals, options).run(std::move(start));
}

}  // namespace stepzero::solve
