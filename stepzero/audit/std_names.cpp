#include "stepzero/audit/std_names.hpp"

#include <cmath>
#include <vector>

#include <fmt/format.h>

namespace stepzero {

namespace {

struct Formula {
  std::string text;
  double value;
};

double real(Index n) { return static_cast<double>(n); }

std::vector<Formula> bases(const Architecture& a, const Param& p) {
  const Index d = a.width, in = p.fan_in, out = p.fan_out, packed = (a.heads + 2 * a.kv_heads) * a.head_dim;
  std::vector<Formula> list = {
      {fmt::format("{:g}", a.init_std), a.init_std}, {"1", 1}, {fmt::format("1/sqrt({})", d), 1 / std::sqrt(real(d))}};
  if (p.shape.size() < 2) return list;
  list.push_back({fmt::format("1/sqrt({})", in), 1 / std::sqrt(real(in))});
  list.push_back({fmt::format("sqrt(2/({} + {}))", in, out), std::sqrt(2 / real(in + out))});
  list.push_back({fmt::format("sqrt(2/{})", in), std::sqrt(2 / real(in))});
  list.push_back({fmt::format("sqrt(2/(5*{}))", d), std::sqrt(2 / (5 * real(d)))});
  list.push_back({fmt::format("2/({}*sqrt({}))", a.layers, d), 2 / (real(a.layers) * std::sqrt(real(d)))});
  list.push_back({fmt::format("sqrt(2/({} + {}))", in, packed), std::sqrt(2 / real(in + packed))});
  list.push_back({fmt::format("1/sqrt({}*{})", d, a.head_dim), 1 / std::sqrt(real(d * a.head_dim))});
  list.push_back({fmt::format("1/sqrt({})", out), 1 / std::sqrt(real(out))});
  return list;
}

std::vector<Formula> factors(const Architecture& a, const Param& p) {
  std::vector<Formula> list = {{"", 1}};
  if (p.layer >= 0) {
    list.push_back({fmt::format("/sqrt(2*{})", a.layers), 1 / std::sqrt(2 * real(a.layers))});
    list.push_back({fmt::format("/sqrt(2*{})", p.layer + 1), 1 / std::sqrt(2 * real(p.layer + 1))});
    list.push_back({fmt::format("/(2*{})", a.layers), 1 / (2 * real(a.layers))});
    list.push_back({fmt::format("*(8*{})^(-1/4)", a.layers), std::pow(8 * real(a.layers), -0.25)});
  }
  list.push_back({"/sqrt(3)", 1 / std::sqrt(3.0)});
  list.push_back({"*sqrt(3)", std::sqrt(3.0)});
  list.push_back({" cut at 2 std", 0.87963});
  list.push_back({" cut at 3 std", 0.98658});
  return list;
}

}  // namespace

std::string name_std(double std, double tolerance, const Architecture& a, const Param& p) {
  if (!(std > 0)) return {};
  const auto of = bases(a, p);
  for (const Formula& factor : factors(a, p)) {
    for (const Formula& base : of) {
      const double value = base.value * factor.value;
      if (std::abs(value / std - 1) <= tolerance) return base.text + factor.text;
    }
  }
  return {};
}

}  // namespace stepzero
