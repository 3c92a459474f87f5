// The program's views from outside: files that appear whole or not at all, exit codes, help.
#include <algorithm>
#include <cctype>
#include <filesystem>
#include <fstream>
#include <iterator>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "stepzero/core/text.hpp"
#include "stepzero/report/html.hpp"
#include "tests/hostile/program.hpp"

namespace stepzero {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using testing::Result;
using testing::Scratch;
using Args = std::vector<std::string>;

class Views : public ::testing::Test {
 protected:
  Result run(const Args& args) { return testing::run(args, scratch_); }

  static Args tiny(const char* verb, const Args& more = {}) {
    Args args = {verb, "gpt2", "--set", "layers=2", "--set", "width=32", "--set", "heads=4", "--set", "vocab=97", "--seq-len", "12"};
    args.insert(args.end(), more.begin(), more.end());
    return args;
  }

  Scratch scratch_;
};

TEST_F(Views, ReportWritesOnePage) {
  const std::string page = scratch_.path("page.html");
  const Result r = run(tiny("report", {"-o", page, "--compare-schemes", "he,lecun", "--measure", "--seeds", "2"}));
  ASSERT_EQ(r.code, 0) << r.err;
  EXPECT_THAT(r.out, AllOf(HasSubstr("gpt2"), HasSubstr("wrote ")));
  const std::string html = scratch_.get("page.html");
  const auto holds = [&](const std::string& text) { return html.find(text) != std::string::npos; };
  EXPECT_TRUE(holds("Content-Security-Policy") && holds("default-src 'none'"));
  EXPECT_FALSE(holds("STEPZERO_DATA"));
  EXPECT_FALSE(holds("https://"));
  const std::string svg = "http://www.w3.org/2000/svg";  // a name, not an address
  for (std::size_t at = html.find("http://"); at != std::string::npos; at = html.find("http://", at + 1))
    EXPECT_EQ(html.substr(at, svg.size()), svg);
  const std::string begin = R"(id="data">)";
  const std::size_t at = html.find(begin) + begin.size();
  const auto data = nlohmann::json::parse(html.substr(at, html.find("</script>", at) - at));
  EXPECT_EQ(data["alternatives"].size(), 2U);
  EXPECT_EQ(data["seeds"], 2);
  EXPECT_THAT(data["command"].get<std::string>(), AllOf(HasSubstr("stepzero report gpt2"), HasSubstr("--compare-schemes he,lecun")));
  EXPECT_EQ(scratch_.files(), 3U) << "the page, stdout, stderr; no temporary";
}

TEST_F(Views, TheSameCommandMakesTheSamePage) {
  const std::string page = scratch_.path("page.html");
  EXPECT_EQ(run(tiny("report", {"-o", page})).code, 0);
  const std::string first = scratch_.get("page.html");
  EXPECT_EQ(run(tiny("report", {"-o", page})).code, 0);
  EXPECT_EQ(scratch_.get("page.html"), first);
}

TEST_F(Views, ReportRefuses) {
  const auto refused = [&](const Args& more, const char* word) {
    const Result r = run(tiny("report", more));
    EXPECT_EQ(r.code, 2) << word;
    EXPECT_THAT(r.err, HasSubstr(word));
    EXPECT_EQ(r.out, "");
  };
  refused({"-o", scratch_.path("nowhere/page.html")}, "nowhere/page.html");
  refused({"-o", scratch_.path("page.html"), "--compare-schemes", "he,xaver-normal"}, "did you mean xavier-normal?");
  refused({"-o", scratch_.path("page.html"), "--fail-on", "always"}, "--fail-on");
  refused({"-o", scratch_.path("page.html"), "--csv", scratch_.path("nowhere/x.csv")}, "nowhere/x.csv");
  refused({"-o", "/dev/full"}, "/dev/full");
}

TEST_F(Views, TablesBesideTheResult) {
  for (const char* verb : {"predict", "measure", "compare"}) {
    const Result r = run(tiny(verb, {"--csv", scratch_.path("t.csv"), "--markdown", scratch_.path("t.md"), "--json"}));
    ASSERT_LE(r.code, 1) << r.err;
    const auto json = nlohmann::json::parse(r.out);
    EXPECT_TRUE(json["findings"].is_array());
    const std::string csv = scratch_.get("t.csv");
    EXPECT_TRUE(csv.starts_with("table,name,quantity,predicted,spread,measured,stderr\nmodel,\"loss\",loss,")) << csv.substr(0, 100);
    // the same digits as the JSON
    const double loss =
        json["loss"].contains("measured") ? json["loss"]["measured"].get<double>() : json["loss"]["predicted"].get<double>();
    EXPECT_THAT(csv, HasSubstr(fmt::format("{}", loss)));
    EXPECT_THAT(scratch_.get("t.md"), AllOf(HasSubstr("## gpt2"), HasSubstr("| layer |")));
  }
}

TEST_F(Views, FailOn) {
  const Args healthy = tiny("predict"), sick = tiny("predict", {"--set", "norm=none"});
  const auto code = [&](Args args, const char* severity) {
    args.insert(args.end(), {"--fail-on", severity});
    return run(args).code;
  };
  EXPECT_EQ(run(sick).code, 0) << "findings alone are no failure";
  EXPECT_EQ(code(sick, "warning"), 1);
  EXPECT_EQ(code(sick, "error"), 0);
  EXPECT_EQ(code(healthy, "warning"), 0);
  Args broken = tiny("predict", {"--scheme", "llama-depth", "--set", "width=512"});
  EXPECT_EQ(code(broken, "error"), 1);
}

TEST_F(Views, HelpHasTwoExamples) {
  const Result top = run({"--help"});
  Args verbs;
  const std::size_t at = top.out.find("Subcommands:\n");
  for (std::size_t line = top.out.find('\n', at) + 1; top.out.compare(line, 2, "  ") == 0; line = top.out.find('\n', line) + 1)
    verbs.push_back(top.out.substr(line + 2, top.out.find(' ', line + 2) - line - 2));
  EXPECT_GE(verbs.size(), 9U) << top.out;
  for (const std::string& verb : verbs) {
    const Result r = run({verb, "--help"});
    const std::size_t examples = r.out.find("Examples:\n");
    ASSERT_NE(examples, std::string::npos) << verb;
    std::size_t n = 0;
    for (std::size_t line = r.out.find('\n', examples) + 1; line < r.out.size(); line = r.out.find('\n', line) + 1) {
      const std::string text = r.out.substr(line, r.out.find('\n', line) - line);
      if (!text.starts_with("  stepzero " + verb)) continue;
      ++n;
      // every flag it shows exists
      for (std::size_t flag = text.find(" --"); flag != std::string::npos; flag = text.find(" --", flag + 1)) {
        const std::string name = text.substr(flag + 1, text.find_first_of(" =", flag + 1) - flag - 1);
        EXPECT_THAT(r.out.substr(0, examples), HasSubstr(name)) << verb;
      }
    }
    EXPECT_GE(n, 2U) << verb;
  }
}

TEST_F(Views, CompletionsAndManual) {
  const Result bash = run({"completions", "bash"});
  EXPECT_THAT(bash.out,
              AllOf(HasSubstr("complete -o filenames -F _stepzero stepzero"), HasSubstr("llama-3-8b"), HasSubstr("--compare-schemes")));
  EXPECT_THAT(run({"completions", "zsh"}).out, HasSubstr("#compdef stepzero"));
  EXPECT_THAT(run({"completions", "fish"}).out, HasSubstr("complete -c stepzero"));
  EXPECT_EQ(run({"completions", "powershell"}).code, 2);
  const Result manual = run({"manual"});
  EXPECT_TRUE(manual.out.starts_with(".TH STEPZERO 1"));
  EXPECT_THAT(manual.out, AllOf(HasSubstr("\\fB\\-\\-scheme\\fR"), HasSubstr("rank\\-collapse"), HasSubstr(".SH EXIT STATUS")));
  EXPECT_EQ(manual.out.find("\n'"), std::string::npos) << "a line that roff would read as a request";
}

TEST_F(Views, OrdersOfAPrediction) {
  const auto predict = [&](const std::string& order) {
    Args args = tiny("predict", {"--json"});
    if (!order.empty()) args.insert(args.end(), {"--order", order});
    const Result r = run(args);
    EXPECT_EQ(r.code, 0) << r.err;
    return nlohmann::json::parse(r.out);
  };
  const auto limit = predict("limit"), fluctuations = predict("fluctuations"), draws = predict("draws");
  EXPECT_EQ(limit.dump().find("\"spread\""), std::string::npos) << "a limit does not vary";
  EXPECT_EQ(limit.value("kernel_draws", 0), 0);
  EXPECT_GT(fluctuations["gradient_norm"]["spread"], 0);
  EXPECT_EQ(fluctuations.value("kernel_draws", 0), 0);
  EXPECT_GT(draws.value("kernel_draws", 0), 0);
  const auto norm = [](const nlohmann::json& j) { return j["gradient_norm"]["predicted"].get<double>(); };
  EXPECT_NE(norm(limit), norm(fluctuations));
  EXPECT_NE(norm(fluctuations), norm(draws));
  EXPECT_EQ(predict(""), draws) << "the default";
  const Result wrong = run(tiny("predict", {"--order", "first"}));
  EXPECT_EQ(wrong.code, 2);
  EXPECT_THAT(wrong.err, AllOf(HasSubstr("limit"), HasSubstr("fluctuations"), HasSubstr("draws")));
  EXPECT_THAT(run({"completions", "bash"}).out, HasSubstr("\"limit fluctuations draws\""));
}

// Words without marks, line breaks and roff's backslashes.
std::string plain(std::string text) {
  std::erase_if(text, [](char c) { return c == '`' || c == '\\'; });
  std::ranges::replace(text, '\n', ' ');
  return text;
}

// One list behind all three.
TEST_F(Views, ExitCodesAreTheSameInHelpManualAndReadme) {
  const std::string help = run({"--help"}).out, manual = run({"manual"}).out;
  std::ifstream file(STEPZERO_SOURCE_DIR "/README.md");
  const std::string readme(std::istreambuf_iterator<char>(file), {});
  const std::size_t start = help.find("Exit codes: ");
  ASSERT_NE(start, std::string::npos);
  const std::string line = plain(help.substr(start, help.find("Examples:") - start));
  const std::string codes = line.substr(0, line.find_last_of('.') + 1);
  EXPECT_THAT(codes, AllOf(HasSubstr("1 findings (compare, diff, claims, audit, coord, --fail-on)"), HasSubstr(" 75 another process")));
  const std::string status = manual.substr(manual.find(".SH EXIT STATUS"));
  std::size_t n = 0;
  for (std::size_t at = codes.find(": ") + 2; at < codes.size(); ++n) {
    // "1 findings (a, b), " ends where the next number begins
    std::size_t end = at;
    do end = codes.find(", ", end + 1);
    while (end != std::string::npos && std::isdigit(static_cast<unsigned char>(codes[end + 2])) == 0);
    const std::string entry = codes.substr(at, std::min(end, codes.size() - 1) - at);
    const std::size_t space = entry.find(' ');
    EXPECT_THAT(plain(readme), HasSubstr("| " + entry.substr(0, space) + " | " + entry.substr(space + 1) + " |")) << entry;
    EXPECT_THAT(plain(status), HasSubstr(".TP .B " + entry.substr(0, space) + " " + entry.substr(space + 1) + " .")) << entry;
    at = end == std::string::npos ? codes.size() : end + 2;
  }
  EXPECT_EQ(n, 7U);
}

}  // namespace
}  // namespace stepzero
