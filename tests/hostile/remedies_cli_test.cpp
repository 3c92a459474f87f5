// Every remedy that is shown is pasted: its finding goes, and nothing as bad comes. A few models here; all of them, under all
// schemes: ./dev remedies.
#include <map>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "stepzero/models/architecture.hpp"
#include "stepzero/models/model.hpp"
#include "tests/hostile/program.hpp"

namespace stepzero::testing {
namespace {

using nlohmann::json;

int rank(const json& finding) {
  const std::string severity = finding["severity"];
  return severity == "error" ? 2 : severity == "warning" ? 1 : 0;
}

std::map<std::string, int> worst_of(const json& findings) {
  std::map<std::string, int> out;
  for (const json& f : findings) out[f["id"]] = std::max(out[f["id"]], rank(f));
  return out;
}

struct Counts {
  std::size_t cells = 0, findings = 0, remedies = 0;
  std::vector<std::string> wrong, refused;
  std::map<std::string, std::size_t> seen, without;
};

using Words = std::vector<std::string>;

Words words_of(const std::string& command) {
  Words out;
  std::string word;
  for (const char c : command + " ") {
    if (c != ' ') {
      word += c;
    } else {
      if (!word.empty()) out.push_back(word);
      word.clear();
    }
  }
  return out;
}

// Predicts, and predicts anew with every remedy.
class Cell {
 public:
  Cell(const Scratch& scratch, Counts& counts) : scratch_(scratch), counts_(counts) {}

  void run(const Words& model, const Words& extra) {
    Words words = model;
    words.insert(words.end(), extra.begin(), extra.end());
    const Result base = testing::run(words, scratch_, 600);
    const std::string command = fmt::format("{}", fmt::join(model, " "));
    ++counts_.cells;
    if (base.code != 0) {
      counts_.refused.push_back(command + ": " + base.err.substr(0, base.err.find('\n')));
      return;
    }
    const json before = json::parse(base.out)["findings"];
    for (const json& f : before) judge(f, before, command);
  }

 private:
  void judge(const json& f, const json& before, const std::string& command) {
    if (rank(f) == 0 && !f.contains("remedies")) return;
    ++counts_.findings;
    ++counts_.seen[f["id"]];
    if (!f.contains("remedies")) {
      ++counts_.without[f["id"]];
      return;
    }
    for (const json& r : f["remedies"]) {
      ++counts_.remedies;
      Words words = words_of(r["command"]);
      words.erase(words.begin());  // stepzero
      words.insert(words.end(), {"--json", "--no-remedies"});
      const Result after = testing::run(words, scratch_, 600);
      if (after.code != 0) {
        counts_.wrong.push_back(fmt::format("{}: {} ends with {}: {}", command, r["command"].get<std::string>(), after.code, after.err));
        continue;
      }
      const auto was = worst_of(before), is = worst_of(json::parse(after.out)["findings"]);
      if (is.contains(f["id"]))
        counts_.wrong.push_back(
            fmt::format("{}: {} is still there after {}", command, f["id"].get<std::string>(), r["flags"].get<std::string>()));
      for (const auto& [id, severity] : is) {
        const auto it = was.find(id);
        if (severity >= rank(f) && (it == was.end() || it->second < severity))
          counts_.wrong.push_back(fmt::format("{}: {} brings {}", command, r["flags"].get<std::string>(), id));
      }
    }
  }

  const Scratch& scratch_;
  Counts& counts_;
};

void report(const Counts& c, std::FILE* to) {
  fmt::print(to, "{} models, {} findings, {} remedies, {} of them wrong; {} models refused\n", c.cells, c.findings, c.remedies,
             c.wrong.size(), c.refused.size());
  for (const auto& [id, n] : c.seen) {
    const auto it = c.without.find(id);
    fmt::print(to, "  {:<24} {:>6}   without a remedy {:>6}\n", id, n, it == c.without.end() ? 0 : it->second);
  }
}

// The models that exist under each variant; families and presets differ in what --set they take.
std::vector<Words> variants_of(const Architecture& a) {
  const std::string depth = fmt::format("layers={}", 4 * a.layers);
  if (!a.stages.empty()) return {{}};
  return {{}, {"--set", depth}, {"--set", "norm_placement=post"}};
}

void run_grid(const std::vector<std::string>& models, const std::vector<std::string>& schemes, const Words& extra, Counts& counts) {
  std::vector<Words> cells;
  for (const std::string& model : models) {
    const Architecture a = load_model(model).value();
    for (const Words& variant : variants_of(a)) {
      for (const std::string& scheme : schemes) {
        cells.push_back({"predict", model, "--scheme", scheme});
        cells.back().insert(cells.back().end(), variant.begin(), variant.end());
        if (a.image == 0) cells.back().insert(cells.back().end(), {"--seq-len", "8"});  // the fewest that attention is judged on
      }
    }
  }
  const Scratch scratch;
  for (const Words& words : cells) Cell(scratch, counts).run(words, extra);
}

// A new user's questions: the answers once made each of these models worse.
const std::vector<Words> asked_by_users = {
    {"predict", "t5-base", "--seq-len", "32", "--full"},
    {"predict", "gpt2", "--set", "layers=48", "--scheme", "layerscale", "--full"},
    {"predict", "gpt2", "--set", "layers=48", "--set", "init_std=0.2"},
    {"predict", "gpt2", "--set", "layers=48", "--scheme", "timm-vit", "--full"},
    {"predict", "gpt2", "--set", "layers=48", "--set", "norm_placement=post", "--scheme", "xavier-normal"},
};

TEST(Remedies, AskedByUsers) {
  Counts counts;
  const Scratch scratch;
  for (const Words& words : asked_by_users) Cell(scratch, counts).run(words, {"--json", "--effort", "0.05"});
  for (const std::string& text : counts.wrong) ADD_FAILURE() << text;
  EXPECT_TRUE(counts.refused.empty());
  EXPECT_GT(counts.remedies, 15U);
}

TEST(Remedies, OfAFewModels) {
  Counts counts;
  run_grid({"gpt2", "bert-base", "t5-small", "lenet"}, {"hf", "xavier-normal", "timm-vit", "layerscale"}, {"--effort", "0.01", "--json"},
           counts);
  for (const std::string& text : counts.wrong) ADD_FAILURE() << text;
  EXPECT_GT(counts.remedies, 10U);
  report(counts, stdout);
}

}  // namespace
}  // namespace stepzero::testing
