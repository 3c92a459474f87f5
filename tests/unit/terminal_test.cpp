// What a person sees: it fits, and it is plain where it must be.
#include "stepzero/report/terminal.hpp"

#include <algorithm>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "stepzero/report/compare.hpp"
#include "stepzero/report/terminal_style.hpp"
#include "tests/unit/healthy_signal.hpp"

namespace stepzero {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find('\n', at), text.size());
    lines.push_back(text.substr(at, end - at));
    at = end + 1;
  }
  return lines;
}

Signal both() {
  Signal s = testing::healthy_signal();
  for_each_value(s, [](Value& v, Average, const auto&, const char*) {
    v.measured = v.predicted;
    v.standard_error = v.predicted ? std::optional(0.01 * std::abs(*v.predicted)) : std::nullopt;
  });
  s.seeds = 3;
  return s;
}

// A signal with one step of every number there is.
Signal stepped() {
  Signal s = both();
  s.optimizer = {.name = "adamw", .rate = 1e-3, .settings = {}};
  StepSignal& step = s.steps.emplace_back();
  for (const NodeSignal& n : s.nodes) step.wires.push_back({.name = n.name, .kind = n.kind});
  step.logits = s.nodes.size() - 1;
  for (const AttentionSignal& a : s.attention) step.attention.push_back({.name = a.name});
  for (const ParameterSignal& p : s.parameters) step.parameters.push_back({.name = p.name});
  for (const double rate : {1e-3, 2e-3, 4e-3}) step.rates.push_back({.rate = rate});
  double x = 0.123456;
  for_each_step_value(step, [&](Value& v, Average, const auto&, const char*) { v.measured = x *= 1.01; });
  step.before.measured = 1e9;
  return s;
}

TEST(Terminal, ShowsSteps) {
  const std::string text = to_text(stepped(), Look{80, false, true}, false);
  for (const char* what : {"after step 1 of adamw at 0.001", "by weights", "good rates", "decrease"}) EXPECT_THAT(text, HasSubstr(what));
  EXPECT_THAT(to_text(both(), Look{80, false, true}, true), Not(HasSubstr("after step")));
}

TEST(Terminal, FitsTheWidth) {
  const Signal deep = testing::predicted_signal("gpt2", {"layers=24", "norm_placement=post"}, "xavier-normal", 12);
  for (const std::size_t width : {80U, 97U, 120U, 200U}) {
    for (const bool unicode : {false, true}) {
      const Look look{width, false, unicode};
      for (const std::string& text : {to_text(deep, look, false), to_text(testing::healthy_signal(), look, false),
                                      to_text(stepped(), look, false), compare_text(both(), look, false)}) {
        for (const std::string& line : lines_of(text)) EXPECT_LE(columns(line), width) << line;
      }
    }
  }
}

TEST(Terminal, IsOneScreen) {
  const Look look{80, false, true};
  EXPECT_LE(lines_of(to_text(testing::healthy_signal(), look, false)).size(), 26U);
  const Signal deep = testing::predicted_signal("gpt2", {"layers=96"}, "hf", 16);
  EXPECT_LE(lines_of(to_text(deep, look, false)).size(), 40U);
  EXPECT_GE(lines_of(to_text(deep, look, true)).size(), 96U * 10);
}

TEST(Terminal, WiderShowsMore) {
  const auto header = [](std::size_t width) { return to_text(testing::healthy_signal(), Look{width, false, true}, false); };
  EXPECT_THAT(header(80), Not(HasSubstr("score variance")));
  EXPECT_THAT(header(140), HasSubstr("score variance"));
}

TEST(Terminal, PlainWhereOnlyAsciiIs) {
  Signal s = testing::predicted_signal("gpt2", {"norm=none", "layers=6"}, "he", 12);
  s.architecture.name = "modèle";
  const std::string text = to_text(s, Look{80, false, false}, true);
  EXPECT_TRUE(std::ranges::all_of(text, [](char c) { return c == '\n' || (c >= 0x20 && c < 0x7F); }));
  EXPECT_THAT(text, HasSubstr("mod\\u{E8}le"));
  EXPECT_THAT(to_text(s, Look{80, false, true}, false), HasSubstr("modèle"));
}

TEST(Terminal, ColourOnlyWhereAsked) {
  const Signal s = testing::predicted_signal("gpt2", {"norm=none", "layers=6"}, "he", 12);
  EXPECT_THAT(to_text(s, Look{80, false, true}, true), Not(HasSubstr("\x1b")));
  const std::string painted = to_text(s, Look{80, true, true}, true);
  EXPECT_THAT(painted, HasSubstr("\x1b[31m"));
  // the same text once the paint is off
  std::string plain;
  for (std::size_t i = 0; i < painted.size(); ++i) {
    if (painted[i] == '\x1b')
      i = painted.find('m', i);
    else
      plain += painted[i];
  }
  EXPECT_EQ(plain, to_text(s, Look{80, false, true}, true));
}

TEST(Terminal, RowsAreChosenEvenly) {
  EXPECT_EQ(choose_rows(3, 14), (std::vector<std::size_t>{0, 1, 2}));
  for (const std::size_t n : {14U, 15U, 33U, 81U, 127U}) {
    const auto rows = choose_rows(n, 14);
    EXPECT_LE(rows.size(), 14U) << n;
    EXPECT_GE(rows.size(), 7U) << n;
    EXPECT_EQ(rows.front(), 0U);
    EXPECT_EQ(rows.back(), n - 1);
    EXPECT_TRUE(std::ranges::is_sorted(rows));
  }
}

TEST(Look, Bars) {
  const Look rich{80, false, true}, plain{80, false, false};
  EXPECT_EQ(rich.bar(1, 4), "████");
  EXPECT_EQ(rich.bar(0.5, 1), "▌");
  EXPECT_EQ(rich.bar(-3, 4), "");
  EXPECT_EQ(rich.bar(NAN, 4), "");
  EXPECT_EQ(plain.bar(0.5, 4), "##");
}

TEST(Look, WrapsAndFits) {
  EXPECT_EQ(wrap("one two three four five six seven", 26, 2, 2), "  one two three four\n    five six seven\n");
  EXPECT_EQ(fit(Look{80, false, true}, "transformer.h.0.weight", 10), "….0.weight");
  EXPECT_EQ(columns("±…"), 2U);
}

}  // namespace
}  // namespace stepzero
