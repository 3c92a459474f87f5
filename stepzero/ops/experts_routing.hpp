#pragma once
// Which experts a token goes to and with what weights: a router's logits to the gates of its chosen experts, and back.
#include <algorithm>
#include <functional>
#include <limits>
#include <vector>

#include "stepzero/kernels/vector_math.hpp"

namespace stepzero {

struct Routing {
  Index experts = 1;
  Index chosen = 1;        // experts a token goes to
  bool sigmoid = false;    // scores are sigmoids of the logits, else their softmax
  bool normalise = true;   // the gates of a token sum to `factor`
  double factor = 1;       // on the gates
  Index groups = 1;        // neighbouring experts that are chosen or left out together first
  Index kept_groups = 1;   // groups that stay
  Index group_best = 1;    // a group is as good as the sum of so many of its best scores
  bool corrected = false;  // a number for each expert is added to its score when it is chosen, and only then

  // Of one token: which[j], weight[j] for j < chosen. `correction` is null where there is none.
  template <class S>
  void choose(const S* logits, const S* correction, S* which, S* weight) const {
    std::vector<S> score(static_cast<std::size_t>(experts));
    scores(logits, score.data());
    std::vector<double> rank(score.size());
    for (std::size_t e = 0; e < rank.size(); ++e) rank[e] = value_of(score[e]) + (correction != nullptr ? value_of(correction[e]) : 0);
    if (kept_groups < groups) leave_groups_out(rank);
    S total = S(0);
    for (Index j = 0; j < chosen; ++j) {
      const Index e = take_best(rank);
      which[j] = S(static_cast<double>(e));
      weight[j] = score[static_cast<std::size_t>(e)];
      total += weight[j];
    }
    const S scale = normalise ? S(factor) / total : S(factor);
    for (Index j = 0; j < chosen; ++j) weight[j] *= scale;
  }

  // The gradient of the logits, given that of the weights.
  template <class S>
  void backward(const S* logits, const S* which, const S* dweight, S* dlogits) const {
    std::vector<S> score(static_cast<std::size_t>(experts));
    scores(logits, score.data());
    S total = S(0), along = S(0);
    for (Index j = 0; j < chosen; ++j) {
      const S s = score[expert(which[j])];
      total += s;
      along += s * dweight[j];
    }
    std::fill_n(dlogits, experts, S(0));
    S inner = S(0);  // <score, dscore>
    for (Index j = 0; j < chosen; ++j) {
      const std::size_t e = expert(which[j]);
      const S d = normalise ? S(factor) * (dweight[j] - along / total) / total : S(factor) * dweight[j];
      dlogits[e] = sigmoid ? score[e] * (S(1) - score[e]) * d : score[e] * d;
      inner += score[e] * d;
    }
    // Gates that are shared out anew do not know the softmax's total: <score, dscore> is 0, and what rounding would leave of it is no
    // gradient of an expert that was not chosen.
    for (Index e = 0; !sigmoid && !normalise && e < experts; ++e) dlogits[e] -= score[static_cast<std::size_t>(e)] * inner;
  }

  template <class S>
  static std::size_t expert(S which) {
    return static_cast<std::size_t>(value_of(which));
  }

 private:
  template <class S>
  void scores(const S* logits, S* score) const {
    if (sigmoid) return apply_row<Sigmoid>(logits, score, experts);
    const S total = exp_row(logits, max_row(logits, experts), score, experts);
    for (Index e = 0; e < experts; ++e) score[e] = score[e] / total;
  }

  // As the classes do it: an expert left out ranks as 0.
  void leave_groups_out(std::vector<double>& rank) const {
    const Index members = experts / groups;
    std::vector<double> worth;
    for (Index g = 0; g < groups; ++g) {
      std::vector<double> own(rank.begin() + g * members, rank.begin() + (g + 1) * members);
      std::ranges::partial_sort(own, own.begin() + group_best, std::greater<>());
      double sum = 0;
      for (Index i = 0; i < group_best; ++i) sum += own[static_cast<std::size_t>(i)];
      worth.push_back(sum);
    }
    std::vector<bool> stays(worth.size(), false);
    for (Index i = 0; i < kept_groups; ++i) stays[static_cast<std::size_t>(take_best(worth))] = true;
    for (Index e = 0; e < experts; ++e) {
      if (!stays[static_cast<std::size_t>(e / members)]) rank[static_cast<std::size_t>(e)] = 0;
    }
  }

  // The place of the largest, the first of equals; it is then out of the way. Among NaN any place will do.
  static Index take_best(std::vector<double>& rank) {
    constexpr double taken = -std::numeric_limits<double>::infinity();
    std::size_t best = 0;
    while (rank[best] == taken && best + 1 < rank.size()) ++best;
    for (std::size_t i = best + 1; i < rank.size(); ++i) {
      if (rank[i] > rank[best]) best = i;
    }
    rank[best] = taken;
    return static_cast<Index>(best);
  }
};

}  // namespace stepzero
