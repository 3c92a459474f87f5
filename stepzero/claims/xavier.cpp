#include "stepzero/claims/xavier.hpp"

#include <algorithm>
#include <cmath>

#include "stepzero/claims/lab.hpp"
#include "stepzero/claims/model.hpp"
#include "stepzero/weights/tensor_draw.hpp"

namespace stepzero::claims {

Drawn drawn(const Settings& s, const char* scheme, double numerator) {
  const Model m = make_model({.scheme = scheme, .set = {"layers=1", "width=48"}});
  std::size_t param = 0;
  while (m.graph.params[param].role != Role::ffn_in) ++param;
  const Param& p = m.graph.params[param];
  const double fans = static_cast<double>(p.fan_in + p.fan_out);
  const auto r = average(s.draws(), [&](int draw) {
    const std::vector<float> w = draw_tensor(m.graph, m.laws, param, s.seed(draw));
    double second = 0, fourth = 0, largest = 0;
    for (const double x : w) {
      second += x * x / static_cast<double>(w.size());
      fourth += x * x * x * x / static_cast<double>(w.size());
      largest = std::max(largest, std::abs(x));
    }
    return std::vector{second * fans / numerator, fourth / (second * second), largest / std::sqrt(6 / fans)};
  });
  return {r[0], r[1], r[2]};
}

}  // namespace stepzero::claims
