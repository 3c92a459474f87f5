#pragma once
// The parts of the diagnosis, one file each: report/check_*.cpp. A check adds what it finds.
#include <vector>

#include "stepzero/report/depth.hpp"

namespace stepzero {

struct Findings : std::vector<Finding> {
  bool everything = false;  // also what is within its limits, for its number
  [[nodiscard]] bool want(bool wrong) const { return wrong || everything; }
};

// check_depth.cpp: along one residual stream
void check_signal_growth(const Signal& s, const Stack& stack, Findings& out);
void check_gradient_growth(const Stack& stack, Findings& out);
void check_rank(const Stack& stack, Findings& out);
void check_branches(const Signal& s, const Stack& stack, Findings& out);

// check_attention.cpp
void check_entropy(const Signal& s, const Stack& stack, Findings& out);
void check_scores(const Signal& s, const Stack& stack, Findings& out);
void check_query_gradients(const Signal& s, const Stack& stack, Findings& out);

// check_head.cpp
void check_loss(const Signal& s, Findings& out);
void check_embedding_and_head(const Signal& s, Findings& out);
void check_one_tensor(const Signal& s, Findings& out);

// check_range.cpp
void check_finite(const Signal& s, Findings& out);
void check_half_precision(const Signal& s, Findings& out);
void check_quarter_precision(const Signal& s, Findings& out);
void check_rounding(const Signal& s, const Stack& stack, Findings& out);

// check_design.cpp
void check_depth_scaling(const Signal& s, Findings& out);
void check_gated_scaling(const Signal& s, Findings& out);
void check_scheme(const Signal& s, Findings& out);

// check_adapters.cpp
void check_adapters(const Signal& s, Findings& out);

}  // namespace stepzero
