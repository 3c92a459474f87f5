// Known mistakes of parametrizations, each by the pattern of slopes that it alone leaves. A pattern is asked of kinds of tensors, not
// of their names.
#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "stepzero/signal/coord.hpp"

namespace stepzero {

namespace {

using Q = CoordQuantity;

constexpr double clear = 0.3;  // a slope that is off by this much is part of a pattern

bool is_table(Role r) { return r == Role::token_embedding || r == Role::position_embedding; }
bool is_key(Role r) { return r == Role::key || r == Role::value; }
bool is_matrix(Role r) { return !is_table(r) && r != Role::head && r != Role::gain && r != Role::bias && r != Role::branch_gain; }

// What the rows of one kind say: by how much their slopes are off what is demanded, on the mean.
struct Off {
  int count = 0, failing = 0;
  double mean = 0;
  bool nonzero_where_zero = false;

  [[nodiscard]] bool rises() const { return failing > 0 && mean > clear; }
  [[nodiscard]] bool falls() const { return failing > 0 && mean < -clear; }
  [[nodiscard]] bool fine() const { return std::abs(mean) <= clear; }
};

class Patterns {
 public:
  explicit Patterns(const Coord& c) : c_(c) {}

  template <class F>
  [[nodiscard]] Off off(Q quantity, const F& which, int first = 0, int last = 1) const {
    Off o;
    for (const CoordRow& r : c_.rows) {
      if (r.quantity != quantity || r.step < first || r.step > last || !which(r)) continue;
      const double by = r.slope < r.low ? r.slope - r.low : r.slope > r.high ? r.slope - r.high : 0;
      ++o.count;
      o.failing += r.pass ? 0 : 1;
      o.mean += (by - o.mean) / o.count;
      o.nonzero_where_zero |= r.zero && !r.pass;
    }
    return o;
  }
  [[nodiscard]] Off tensors(Q quantity, bool (*which)(Role)) const {
    return off(quantity, [&](const CoordRow& r) { return r.role && !r.conv && which(*r.role); });
  }
  [[nodiscard]] Off named(Q quantity, std::string_view what, int last = 1) const {
    return off(quantity, [&](const CoordRow& r) { return !r.role && r.what.starts_with(what); }, 0, last);
  }

 private:
  const Coord& c_;
};

std::string slope_of(const char* what, const Off& o) {
  return fmt::format("{} {} with exponent {:+.2f}", what, o.mean > 0 ? "rise" : "fall", o.mean);
}

}  // namespace

std::vector<CoordMistake> name_mistakes(const Coord& c) {
  const Patterns p(c);
  std::vector<CoordMistake> out;
  const auto found = [&](const char* id, std::string evidence, const char* remedy) { out.push_back({id, std::move(evidence), remedy}); };
  const bool adam = c.facts.optimizer == "adamw", muon = c.facts.optimizer == "muon";

  const Off conv = p.off(Q::effect, [](const CoordRow& r) { return r.conv; });
  const Off hidden = p.tensors(Q::effect, is_matrix), tables = p.tensors(Q::effect, is_table);
  const Off keys = p.tensors(Q::effect, is_key);
  const Off queries = p.tensors(Q::effect, [](Role r) { return is_matrix(r) && !is_key(r); });
  const Off head = p.tensors(Q::effect, [](Role r) { return r == Role::head; });
  const Off decay = p.off(Q::setting, [](const CoordRow& r) { return r.what.ends_with(", decay"); });
  const Off eps = p.off(Q::setting, [](const CoordRow& r) { return r.what.ends_with(", eps"); });
  const Off logits = p.named(Q::start, "logits"), scores = p.named(Q::start, "scores"), scores_change = p.named(Q::change, "scores");
  const Off embeddings = p.tensors(Q::start, is_table), inside = p.named(Q::start, "blocks");

  if (logits.nonzero_where_zero)
    found("zero-output-forgotten", "the logits are not 0 before the first update", "set the head to 0: it is what the check was asked for");
  if (scores.nonzero_where_zero)
    found("zero-query-forgotten", "the scores are not 0 before the first update",
          "set the queries' matrices to 0: it is what the check was asked for");
  if (conv.count > 0 && !conv.fine() && hidden.fine())
    found("convolution-by-wrong-fan", slope_of("effects of convolutions' updates", conv) + ", those of matrices hold",
          "a kernel (out, in, height, width) is a matrix of out x (in height width): its fans are out and in height width");
  if (embeddings.failing > 0 && c.facts.tied)
    found("tied-head-rescaled", slope_of("sizes of the tables' rows", embeddings),
          "a head tied to the embeddings is drawn and updated as the table it is; only its logits are divided");
  else if (embeddings.falls() || (tables.falls() && hidden.fine() == false && !eps.failing) || (tables.falls() && head.rises()))
    found(
        "fans-swapped",
        slope_of(embeddings.falls() ? "sizes of the tables' rows" : "effects of tables' updates", embeddings.falls() ? embeddings : tables),
        "a table (rows, width) is looked up a row at a time: its fan-in does not grow, its fan-out does; matrices of nn.Linear are (out, "
        "in)");
  if (eps.failing > 0)
    found("eps-not-scaled", slope_of("Adam's eps, over the gradients that it stands beside,", eps),
          "gradients fall as 1/width, and in branches as 1/layers^alpha: eps has to fall with them, or be 0");
  if (decay.failing > 0)
    found("decay-coupled", slope_of("rate times decay", decay),
          "where an update takes rate * decay of a weight, the decay of a hidden matrix grows as its rate falls");
  if (inside.rises())
    found("std-not-scaled", slope_of("sizes inside the blocks", inside), "the std of a hidden matrix falls as 1 / sqrt(fan_in)");
  if (inside.falls())
    found("std-by-width-not-root", slope_of("sizes inside the blocks", inside),
          "a hidden matrix has variance 1/width: its std is divided by sqrt(m), not by m");
  if ((scores.rises() || scores_change.rises()) && c.facts.head_dim && queries.fine())
    found("scores-by-root-of-head", slope_of("attention scores", scores.rises() ? scores : scores_change),
          "scores are divided by head_dim, not by its root, where heads grow");
  if (logits.rises() || (head.rises() && hidden.fine() && !tables.falls()))
    found("no-output-multiplier",
          logits.rises() ? slope_of("logits before the first update", logits) : slope_of("effects of the head's updates", head),
          "logits are divided by m = width / base width");
  if (c.facts.kept_keys && !keys.fine() && queries.fine())
    found("grouped-keys-as-queries", slope_of("effects of the keys' and values' updates", keys) + ", those of other matrices hold",
          "keys and values have fewer heads than queries: their fan-out is kv_heads * head_dim, and stays where kv_heads stays");
  else if (hidden.rises() && !muon)
    found("hidden-rate-not-scaled", slope_of("effects of hidden matrices' updates", hidden),
          "the rate of a hidden matrix falls as 1/fan_in under Adam, and as the spectral condition says elsewhere");
  else if (hidden.falls() && muon)
    found("muon-scaled-twice", slope_of("effects of Muon's updates", hidden),
          "Muon's update has a size of its own: the rate of its matrices is not divided by the width once more");
  else if (hidden.rises() && muon)
    found("muon-not-scaled", slope_of("effects of Muon's updates", hidden),
          "a scale such as sqrt(max(in, out)) grows with the width: the rate has to fall with its root");
  else if (hidden.falls() && adam && eps.failing == 0 && tables.fine() && !inside.falls())
    found("hidden-rate-scaled-twice", slope_of("effects of hidden matrices' updates", hidden),
          "the rate of a hidden matrix falls as 1/fan_in, once");
  return out;
}

}  // namespace stepzero
