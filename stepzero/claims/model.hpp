#pragma once
// A small transformer for the claims about whole models: built, drawn, predicted and measured as any other.
#include <functional>
#include <string>
#include <vector>

#include "stepzero/claims/claim.hpp"
#include "stepzero/core/batch.hpp"
#include "stepzero/graph/graph.hpp"
#include "stepzero/schemes/scheme.hpp"
#include "stepzero/signal/signal.hpp"

namespace stepzero::claims {

struct Model {
  Architecture a;
  Graph graph;
  Batch batch;
  Assignment laws;

  // Another law for all tensors of a role.
  void set(Role role, const Distribution& law);
};

// A decoder with embeddings of unit size and a head of its own, changed by `set` ("layers=8") and drawn by a scheme.
struct Description {
  std::string scheme = "xavier-normal";
  std::vector<std::string> set = {};
  Index tokens = 32;
  std::string source = "distinct";
};
Model make_model(const Description& d);

Signal predicted(const Model& model);
std::vector<Signal> measured(const Model& model, const Settings& settings, int draws);

// Of a signal of one draw, or a predicted one.
double stream(const Signal& s, Index layer);  // E[x^2] of the residual stream that enters a layer
double stream_cosine(const Signal& s, Index layer);
double stream_gradient(const Signal& s, Index layer);  // norm of the gradient there
double value_of(const Value& v);

Running over(const std::vector<Signal>& signals, const std::function<double(const Signal&)>& f);

}  // namespace stepzero::claims
