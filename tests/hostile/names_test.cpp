// Hostile names through every view: what comes out is text, whatever went in.
#include <algorithm>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "stepzero/core/text.hpp"
#include "stepzero/report/compare.hpp"
#include "stepzero/report/export.hpp"
#include "stepzero/report/html.hpp"
#include "stepzero/report/json.hpp"
#include "stepzero/report/terminal.hpp"
#include "tests/hostile/names.hpp"
#include "tests/unit/healthy_signal.hpp"

namespace stepzero {
namespace {

// A small signal in which every text that could come from outside is `name`.
Signal signal_named(const std::string& name) {
  static const Signal small = testing::predicted_signal("gpt2", {"layers=1", "width=32", "heads=2", "vocab=64"}, "hf", 8);
  Signal s = small;
  s.architecture.name = name;
  s.architecture.family = name;
  s.scheme = name;
  s.tokens = name;
  for (const char* kept : {"embed.tokens", "blocks.0.attn.q", "logits"}) testing::node(s, kept).name = name;
  s.nodes.front().kind = name;
  for (ParameterSignal& p : s.parameters) p.name = name;
  s.attention.front().name = name;
  s.findings = {{name, Severity::error, name, name + " " + name, name}, {name, Severity::note, name, name, name}};
  return s;
}

bool printable_lines(const std::string& text) {
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find('\n', at), text.size());
    if (!printable(std::string_view(text).substr(at, end - at))) return false;
    at = end + 1;
  }
  return true;
}

std::string without_paint(std::string text) {
  for (const char* code : {"\x1b[0m", "\x1b[1m", "\x1b[2m", "\x1b[31m", "\x1b[32m", "\x1b[33m", "\x1b[36m"}) {
    for (std::size_t at = text.find(code); at != std::string::npos; at = text.find(code, at)) text.erase(at, std::string_view(code).size());
  }
  return text;
}

std::size_t lines(const std::string& text) { return static_cast<std::size_t>(std::ranges::count(text, '\n')); }

TEST(HostileNames, AreManyAndDifferent) {
  auto names = testing::hostile_names();
  std::ranges::sort(names);
  EXPECT_EQ(std::ranges::unique(names).size(), 0U);
  EXPECT_GE(names.size(), 200U);
}

TEST(HostileNames, Terminal) {
  for (const std::string& name : testing::hostile_names()) {
    const Signal s = signal_named(name);
    for (const bool unicode : {false, true}) {
      for (const bool full : {false, true}) {
        EXPECT_TRUE(printable_lines(to_text(s, {80, false, unicode}, full))) << show(name);
        EXPECT_TRUE(printable_lines(compare_text(s, {80, false, unicode}, full))) << show(name);
        EXPECT_TRUE(printable_lines(without_paint(to_text(s, {80, true, unicode}, full)))) << show(name);
      }
    }
    const std::string plain = to_text(s, {80, false, false}, true);
    EXPECT_TRUE(std::ranges::all_of(plain, [](char c) { return c == '\n' || (c >= 0x20 && c < 0x7f); })) << show(name);
  }
}

// Everything untrusted is in the one block of data, and nothing there can end it or begin a tag: the tree of the page is
// that of any other page.
TEST(HostileNames, Html) {
  const std::string begin = R"(<script type="application/json" id="data">)", end = "</script>";
  const std::string_view page = page_template();
  const std::size_t at = page.find(begin) + begin.size();
  for (const std::string& name : testing::hostile_names()) {
    const Signal s = signal_named(name);
    const std::string html = to_html({s, {s}, "stepzero report " + name, name});
    ASSERT_TRUE(html.starts_with(page.substr(0, at))) << show(name);
    const std::size_t stop = html.find(end, at);
    const std::string data = html.substr(at, stop - at);
    EXPECT_EQ(html.substr(stop), page.substr(page.find(end, at))) << show(name);
    EXPECT_TRUE(std::ranges::all_of(data, [](char c) { return c >= 0x20 && c < 0x7f && c != '<' && c != '>' && c != '&' && c != '\''; }))
        << show(name);
    const auto json = nlohmann::json::parse(data);
    if (valid_utf8(name)) {
      EXPECT_EQ(json["model"]["name"], name);
      EXPECT_EQ(json["parameters"]["name"][0], name);
    }
  }
}

// Seven cells a row whatever the names hold, and none that a spreadsheet would run.
TEST(HostileNames, Csv) {
  for (const std::string& name : testing::hostile_names()) {
    const std::string csv = to_csv(signal_named(name));
    EXPECT_TRUE(printable_lines(csv)) << show(name);
    EXPECT_EQ(lines(csv), lines(to_csv(signal_named("x")))) << show(name);
    std::size_t cells = 1;
    bool inside = false;
    for (std::size_t i = 0; i < csv.size(); ++i) {
      if (csv[i] == '"') inside = !inside;
      const bool starts = i == 0 || (!inside && (csv[i - 1] == ',' || csv[i - 1] == '\n')) || (csv[i - 1] == '"' && inside);
      if (starts && inside && i > 1 && (csv[i - 2] == ',' || csv[i - 2] == '\n')) {
        EXPECT_EQ(std::string_view("=+@\t\r|").find(csv[i]), std::string_view::npos) << show(name);
      }
      if (!inside && csv[i] == ',') ++cells;
      if (!inside && csv[i] == '\n') {
        EXPECT_EQ(cells, 7U) << show(name);
        cells = 1;
      }
    }
    EXPECT_FALSE(inside) << show(name);
  }
  EXPECT_EQ(csv_cell("=1+1"), "\"'=1+1\"");
  EXPECT_EQ(csv_cell("-1"), "\"'-1\"");
  EXPECT_EQ(csv_cell("a\"b"), "\"a\"\"b\"");
  EXPECT_EQ(csv_cell(" =1"), "\"' =1\"");
}

TEST(HostileNames, Markdown) {
  const std::string plain = to_markdown(signal_named("x"));
  const auto bars = [](const std::string& text) {  // that are not escaped
    std::size_t n = 0;
    for (std::size_t i = 0; i < text.size(); ++i) {
      if (text[i] == '\\')
        ++i;
      else
        n += text[i] == '|' ? 1 : 0;
    }
    return n;
  };
  for (const std::string& name : testing::hostile_names()) {
    const std::string text = to_markdown(signal_named(name));
    EXPECT_TRUE(printable_lines(text)) << show(name);
    EXPECT_EQ(lines(text), lines(plain)) << show(name);
    EXPECT_EQ(bars(text), bars(plain)) << show(name);
    EXPECT_EQ(text.find('<'), std::string::npos) << show(name);
    EXPECT_EQ(text.find('>'), std::string::npos) << show(name);
  }
  EXPECT_EQ(markdown_text("[x](javascript:1)"), "\\[x\\]\\(javascript\\:1\\)");
  EXPECT_EQ(markdown_text("`a` & <b>"), "\\`a\\` &amp; &lt;b&gt;");
}

TEST(HostileNames, Json) {
  for (const std::string& name : testing::hostile_names()) {
    const std::string text = to_json(signal_named(name));
    EXPECT_TRUE(std::ranges::all_of(text, [](char c) { return c == '\n' || (c >= 0x20 && c < 0x7f); })) << show(name);
    const auto json = nlohmann::json::parse(text);
    if (valid_utf8(name)) {
      EXPECT_EQ(json["model"]["name"], name);
      EXPECT_EQ(json["findings"][0]["evidence"], name + " " + name);
    }
  }
}

}  // namespace
}  // namespace stepzero
