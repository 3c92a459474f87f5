#include <cmath>
#include <limits>

#include "stepzero/claims/lab.hpp"
#include "stepzero/claims/list.hpp"
#include "stepzero/claims/model.hpp"
#include "stepzero/kernels/statistics.hpp"
#include "stepzero/pass/fill_pass.hpp"

namespace stepzero::claims {

namespace {

// |dL/db_K| over |dL/db_Q|, in double, for a small model with biases.
Running share(const Settings& s, const std::vector<std::string>& more, const char* which) {
  Description d{.set = {"layers=2", "width=32", "heads=2", "vocab=29", "bias=true", "position=sinusoidal"}, .tokens = 12};
  d.set.insert(d.set.end(), more.begin(), more.end());
  Model m = make_model(d);
  m.set(Role::bias, Distribution::normal(0.1));
  return average(s.draws(), [&](int draw) {
    Pass<double> pass(m.graph, m.batch);
    draw_weights(pass, m.graph, m.laws, s.seed(draw));
    double keys = 0, queries = 0;
    pass.forward();
    pass.backward({.parameter = [&](int param, View<const double> g) {
      const std::string& name = m.graph.params[static_cast<std::size_t>(param)].name;
      if (name.ends_with(which)) keys += sum_squares(g);
      if (name.ends_with("q_proj.bias")) queries += sum_squares(g);
    }});
    return std::vector{std::sqrt(keys / queries)};
  })[0];
}

Evidence key_bias_evidence(const Settings& s) {
  Evidence e;
  const char* which = s("of_values") > 0 ? "v_proj.bias" : "k_proj.bias";
  constexpr double rounding = 1e-13;
  e.exact(Kind::statement, "norm of dL/db_K over norm of dL/db_Q, causal attention", 0, share(s, {}, which).mean, rounding);
  e.exact(Kind::statement, "the same, attention that sees everything", 0, share(s, {"causal=false"}, which).mean, rounding);
  e.near(Kind::contrast, "the same, keys rotated after the bias is added", 0, share(s, {"rotary=-1", "position=none"}, "k_proj.bias"),
         rounding);
  return e;
}

}  // namespace

Claim key_bias() {
  return {
      .id = "key-bias",
      .source = kBackprop,
      .statement =
          "dL/db_K = 0: the bias of the keys has no gradient (from the paper on backpropagation in transformers that the document cites).",
      .tested =
          "In double precision, the norm of the gradient of the key biases of a two-layer transformer is 0 to rounding, in units of that "
          "of the query biases.",
      .recorded = Verdict::holds,
      .condition = "",
      .correction = "",
      .why =
          "A bias b of the keys adds q.b to all scores of a query alike, and a softmax does not see what is added to all its inputs. So "
          "the parameter is not used at all. This needs that nothing stands "
          "between the bias and the score: rotated keys (RoPE), as in Qwen 2, turn the bias by an angle that depends on the position, and "
          "then it has a gradient.",
      .settings = {draws(24), {"of_values", 0, "1: look at the bias of the values instead", 0, 1}},
      .run = key_bias_evidence};
}

}  // namespace stepzero::claims
