// A coordinate check: correct set-ups pass, and each of the mistakes that were made in public is found and named.
#include <algorithm>
#include <cmath>
#include <functional>
#include <string>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "stepzero/api/coord.hpp"
#include "stepzero/api/setup.hpp"
#include "stepzero/core/parallel.hpp"
#include "stepzero/optim/optimizer.hpp"
#include "stepzero/schemes/scheme_file.hpp"

namespace stepzero {
namespace {

std::vector<std::string> ids(const Coord& c) {
  std::vector<std::string> out;
  for (const CoordMistake& m : c.mistakes) out.push_back(m.id);
  return out;
}

std::string failing(const Coord& c) {
  std::string out;
  for (const CoordRow& r : c.rows) {
    if (!r.pass)
      out += "  " + std::string(to_string(r.quantity)) + " " + r.what + " step " + std::to_string(r.step) + " slope " +
             std::to_string(r.slope) + "\n";
  }
  return out;
}

// A check of a model.
struct CoordCase : CoordRequest {
  ModelRequest model;
};

// Untied, of two layers; 16 tokens.
CoordCase untied(const std::string& optimizer = "adamw") {
  CoordCase r;
  r.model = {.model = "gpt2", .set = {"layers=2", "width=32", "heads=2", "vocab=97", "positions=16", "tied=false"}};
  r.widths = {32, 64, 128, 256};
  r.optimizer.name = optimizer;
  r.input.length = 16;
  r.seeds = 2;
  return r;
}
CoordCase tied() {
  CoordCase r = untied();
  r.model.set.back() = "tied=true";
  return r;
}
// One key head, whatever the number of queries.
CoordCase grouped(const std::string& optimizer) {
  CoordCase r = untied(optimizer);
  r.model = {.model = "llama-2-7b", .set = {"layers=2", "width=32", "heads=2", "kv_heads=1", "ffn=96", "vocab=97", "positions=16"}};
  r.keep_keys = true;
  r.seeds = 4;  // updates by SGD scatter: of two draws the errors are too large to see it
  return r;
}

double growth(const CoordPoint& p, const CoordCase& r) { return p.value / static_cast<double>(r.widths.front()); }

// Changes what one point is drawn by.
void change_laws(CoordPoint& p, const std::function<void(const Param&, LawRow&)>& change) {
  SchemeFile file = *p.scheme->file;
  for (LawRow& row : file.laws) {
    const auto it = std::ranges::find(p.graph.params, row.tensor, &Param::name);
    ASSERT_NE(it, p.graph.params.end());
    change(*it, row);
  }
  p.scheme = keep_scheme(std::move(file));
}
void change_rates(CoordPoint& p, const std::function<void(const Param&, RateRow&)>& change) {
  for (RateRow& row : p.rates.rows) {
    const auto it = std::ranges::find(p.graph.params, row.tensor, &Param::name);
    ASSERT_NE(it, p.graph.params.end());
    change(*it, row);
  }
}
bool is_hidden(const Param& p) { return kind_of_tensor(p) == TensorKind::hidden; }

class Coordinates : public ::testing::Test {
 protected:
  Coordinates() { set_threads(1); }
  ~Coordinates() override { set_threads(before_); }

  using Spoil = std::function<void(CoordPoint&, double m)>;
  static Coord run(const CoordCase& r, const Spoil& spoil = {}) {
    auto points = coord_points(r.model, r);
    EXPECT_TRUE(points.has_value()) << points.error().message;
    for (CoordPoint& p : *points) {
      if (spoil) spoil(p, growth(p, r));
    }
    auto coord = check_coordinates(r, *points);
    EXPECT_TRUE(coord.has_value()) << coord.error().message;
    return std::move(*coord);
  }
  static void expect_found(const char* id, const CoordCase& r, const Spoil& spoil) {
    const Coord c = run(r, spoil);
    EXPECT_FALSE(c.pass()) << id;
    const auto found = ids(c);
    EXPECT_EQ(found, std::vector<std::string>{id}) << failing(c);
    const Coord right = run(r);
    EXPECT_TRUE(right.pass()) << id << " without it:\n" << failing(right);
  }

  int before_ = threads();
};

TEST_F(Coordinates, NoOutputMultiplier) {
  expect_found("no-output-multiplier", untied(), [](CoordPoint& p, double) { p.architecture.logit_scale = 1; });
}

TEST_F(Coordinates, NoOutputMultiplierOfAZeroHead) {
  CoordCase r = untied();
  r.zero_output = true;
  expect_found("no-output-multiplier", r, [](CoordPoint& p, double) { p.architecture.logit_scale = 1; });
}

TEST_F(Coordinates, ScoresByTheRootOfTheHead) {
  CoordCase r = untied();
  r.grow_heads = true;
  expect_found("scores-by-root-of-head", r, [](CoordPoint& p, double m) { p.architecture.attention_scale = 0.25 / std::sqrt(m); });
}

TEST_F(Coordinates, HiddenRateNotScaled) {
  expect_found("hidden-rate-not-scaled", untied(),
               [](CoordPoint& p, double m) { change_rates(p, [&](const Param& x, RateRow& row) { *row.rate *= is_hidden(x) ? m : 1; }); });
}

// microsoft/mup issue 55
TEST_F(Coordinates, TiedHeadRescaled) {
  expect_found("tied-head-rescaled", tied(), [](CoordPoint& p, double m) {
    change_laws(p, [&](const Param& x, LawRow& row) { row.law.scale /= x.role == Role::token_embedding ? std::sqrt(m) : 1; });
  });
}

// gpt-neox issue 1087
TEST_F(Coordinates, StdByTheWidth) {
  expect_found("std-by-width-not-root", untied(), [](CoordPoint& p, double m) {
    change_laws(p, [&](const Param& x, LawRow& row) { row.law.scale /= is_hidden(x) ? std::sqrt(m) : 1; });
  });
}

// Megatron-LM pull request 3715
TEST_F(Coordinates, MuonScaledTwice) {
  expect_found("muon-scaled-twice", untied("muon"), [](CoordPoint& p, double m) {
    change_rates(p, [&](const Param& x, RateRow& row) { *row.rate /= is_hidden_matrix(x) ? m : 1; });
  });
}

TEST_F(Coordinates, FansSwapped) {
  expect_found("fans-swapped", untied(), [](CoordPoint& p, double m) {
    change_laws(p, [&](const Param& x, LawRow& row) { row.law.scale /= kind_of_tensor(x) == TensorKind::input ? std::sqrt(m) : 1; });
    change_rates(p, [&](const Param& x, RateRow& row) { *row.rate /= kind_of_tensor(x) == TensorKind::input ? m : 1; });
  });
}

TEST_F(Coordinates, EpsNotScaled) {
  CoordCase r = untied();
  r.optimizer.eps = 1e-5;
  expect_found("eps-not-scaled", r, [](CoordPoint& p, double) { change_rates(p, [](const Param&, RateRow& row) { row.eps = 1e-5; }); });
}

TEST_F(Coordinates, DecayInItsCoupledForm) {
  CoordCase r = untied();
  r.optimizer.decay = 0.1;
  expect_found("decay-coupled", r, [](CoordPoint& p, double) { change_rates(p, [](const Param&, RateRow& row) { row.decay = 0.1; }); });
}

TEST_F(Coordinates, ZeroOutputForgotten) {
  CoordCase r = untied();
  r.zero_output = true;
  expect_found("zero-output-forgotten", r, [](CoordPoint& p, double) {
    change_laws(p, [](const Param& x, LawRow& row) {
      if (x.role == Role::head) row.law = Distribution::normal(0.02);
    });
  });
}

TEST_F(Coordinates, ZeroQueryForgotten) {
  CoordCase r = untied();
  r.zero_query = true;
  expect_found("zero-query-forgotten", r, [](CoordPoint& p, double m) {
    change_laws(p, [&](const Param&, LawRow& row) {
      if (row.part == Role::query) row.law = Distribution::normal(0.02 / std::sqrt(m));
    });
  });
}

TEST_F(Coordinates, GroupedKeysAsQueries) {
  expect_found("grouped-keys-as-queries", grouped("sgd"), [](CoordPoint& p, double m) {
    change_rates(p, [&](const Param& x, RateRow& row) { *row.rate *= x.role == Role::key || x.role == Role::value ? m : 1; });
  });
}

// timm issue 2791: the fan of a kernel's last two sides
TEST_F(Coordinates, ConvolutionByTheWrongFan) {
  CoordCase r;
  r.model = {.model = "lenet", .set = {"image=16"}, .scheme = "he"};
  r.widths = {16, 32, 64};
  r.parametrization = "aligned";
  r.input.sequences = 4;
  r.seeds = 2;
  expect_found("convolution-by-wrong-fan", r, [](CoordPoint& p, double m) {
    change_rates(p, [&](const Param& x, RateRow& row) { *row.rate *= x.conv && x.fan_in > 100 ? m : 1; });
  });
}

// Set-ups without a mistake raise no alarm.
TEST_F(Coordinates, CorrectSetUpsPass) {
  std::vector<CoordCase> all;
  for (const char* optimizer : {"adamw", "lion", "muon", "sgd"}) all.push_back(untied(optimizer));
  for (const char* parametrization : {"depth-mup", "completep", "spectral"}) {
    all.push_back(tied());
    all.back().parametrization = parametrization;
  }
  all.push_back(grouped("adamw"));
  all.push_back(untied());
  all.back().optimizer.decay = 0.1;
  all.push_back(untied());
  all.back().zero_output = all.back().zero_query = true;
  for (CoordCase& r : all) {
    r.widths = {32, 64, 128};
    r.seed = 7;
    const Coord c = run(r);
    EXPECT_TRUE(c.pass()) << r.optimizer.name << " " << r.parametrization << "\n" << failing(c);
    EXPECT_TRUE(c.mistakes.empty());
  }
}

TEST_F(Coordinates, DepthByCompleteP) {
  CoordCase r = tied();
  r.widths.clear();
  r.depths = {2, 4, 8, 16};
  r.parametrization = "completep";
  const Coord right = run(r);
  EXPECT_TRUE(right.pass()) << failing(right);
  r.parametrization = "mup";  // which knows nothing of the depth: branches add up in one direction
  const Coord wrong = run(r);
  EXPECT_FALSE(wrong.pass());
}

TEST_F(Coordinates, StandardParametrizationFails) {
  CoordCase r = untied();
  r.parametrization = "none";
  r.model.scheme = "lecun";
  const Coord c = run(r);
  EXPECT_FALSE(c.pass());
}

// Theory's slopes are those of draws. (The logits of a narrow model whose head is tied know their own token, which theory does not.)
TEST_F(Coordinates, PredictedSlopesAreThoseMeasured) {
  CoordCase r = untied();
  r.widths = {32, 64, 128, 256};
  r.steps = 1;
  r.seeds = 4;
  const Coord measured = run(r);
  r.predicted = true;
  const Coord predicted = run(r);
  ASSERT_EQ(predicted.rows.size(), measured.rows.size());
  for (std::size_t i = 0; i < measured.rows.size(); ++i) {
    const CoordRow &a = predicted.rows[i], &b = measured.rows[i];
    ASSERT_EQ(a.what, b.what);
    EXPECT_NEAR(a.slope, b.slope, 0.05 + 4 * b.error) << to_string(b.quantity) << " " << b.what;
  }
}

// A slope over what was drawn to have one.
TEST_F(Coordinates, SlopesAndErrors) {
  Coord c{.facts = {}, .values = {1, 2, 4, 8}, .rows = {}, .mistakes = {}};
  CoordRow row{.what = "x"};
  for (const double v : c.values) row.draws.push_back({3 * std::pow(v, 0.5), 5 * std::pow(v, 0.7)});
  c.rows.push_back(row);
  judge(c);
  EXPECT_NEAR(c.rows[0].slope, 0.6, 1e-12);
  EXPECT_NEAR(c.rows[0].error, 0.1, 1e-12);
  EXPECT_FALSE(!c.rows[0].pass && c.rows[0].error == 0);
  c.rows[0].draws[2][1] = std::nan("");
  judge(c);
  EXPECT_FALSE(c.rows[0].pass);
}

TEST_F(Coordinates, Refusals) {
  CoordCase r = untied();
  r.widths = {32, 40};
  EXPECT_FALSE(coord_points(r.model, r));  // half a head
  r.widths = {32};
  EXPECT_FALSE(coord_points(r.model, r));
  r.widths = {64, 32};
  EXPECT_FALSE(coord_points(r.model, r));
  r.widths = {32, 64};
  r.depths = {1, 2};
  EXPECT_FALSE(coord_points(r.model, r));
}

}  // namespace
}  // namespace stepzero
