// What new users typed, and what they expected.
#include <filesystem>

#include <unistd.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "stepzero/report/terminal_style.hpp"
#include "tests/hostile/program.hpp"

namespace stepzero::testing {
namespace {

using nlohmann::json;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using Words = std::vector<std::string>;

class Users : public ::testing::Test {
 protected:
  [[nodiscard]] Result run(const Words& words, const Output& output = {}) const { return testing::run(words, scratch_, 120, output); }
  [[nodiscard]] Result shell(const std::string& line) const {
    const std::string command = "cd " + std::filesystem::path(scratch_.path(".")).string() +
                                " && PATH=" + std::filesystem::path(STEPZERO_PROGRAM).parent_path().string() + ":$PATH && { " + line +
                                "; } > .out 2> .err";
    const int status = std::system(command.c_str());
    return {WEXITSTATUS(status), scratch_.get(".out"), scratch_.get(".err")};
  }
  Scratch scratch_;
  const Words tiny_ = {"predict", "gpt2",     "--seq-len", "8",       "--set", "layers=2",
                       "--set",   "width=32", "--set",     "heads=2", "--set", "vocab=50"};
  [[nodiscard]] Words tiny(const Words& more) const {
    Words out = tiny_;
    out.insert(out.end(), more.begin(), more.end());
    return out;
  }
  [[nodiscard]] Result config(const char* text, const Words& more = {}) const {
    Words words = {"predict", scratch_.put("config.json", text), "--seq-len", "8"};
    words.insert(words.end(), more.begin(), more.end());
    return run(words);
  }
};

constexpr const char* small_llama =
    R"("model_type": "llama", "hidden_size": 32, "num_attention_heads": 2, "vocab_size": 50, "intermediate_size": 64)";

// ---- reading what was meant

TEST_F(Users, a_key_that_is_not_read_is_said) {
  const std::string start = std::string("{") + small_llama + ", ";
  EXPECT_THAT(config((start + R"("num_hidden_layer": 2, "num_hidden_layers": 2})").c_str()).err,
              HasSubstr("not read: \"num_hidden_layer\""));
  const Result typo = config((start + R"("num_hidden_layer": 2})").c_str());
  EXPECT_THAT(typo.err, HasSubstr("did you mean \"num_hidden_layers\"?"));
  EXPECT_THAT(typo.err, HasSubstr("not given, so the family's own: \"num_hidden_layers\" = 32"));
  for (const char* key : {"qk_norm", "residual_multiplier", "num_local_experts", "auto_map", "quantization_config"})
    EXPECT_THAT(config((start + "\"num_hidden_layers\": 2, \"" + key + "\": {}}").c_str()).err, HasSubstr(std::string("\"") + key + "\""))
        << key;
  const Result fine = config(
      (start + R"("num_hidden_layers": 2, "torch_dtype": "bfloat16", "architectures": ["LlamaForCausalLM"], "bos_token_id": 1})").c_str());
  EXPECT_EQ(fine.err, "") << "what says nothing about step zero";
  EXPECT_EQ(config((start + R"("num_hidden_layers": 2, "qk_norm": true})").c_str(), {"--quiet"}).err, "");
}

TEST_F(Users, sizes_in_another_familys_words_are_said) {
  const Result r = config(R"({"model_type": "llama", "n_embd": 32, "n_layer": 2, "n_head": 2, "vocab_size": 50})");
  EXPECT_THAT(r.err, AllOf(HasSubstr("\"n_embd\""), HasSubstr("\"hidden_size\" = 4096"), HasSubstr("\"num_hidden_layers\" = 32")));
}

TEST_F(Users, a_model_is_not_read_as_anothers_default) {
  const Result r = run({"predict", "gpt2", "--like", "llama"});
  EXPECT_EQ(r.code, 2);
  EXPECT_THAT(r.err, AllOf(HasSubstr("read as llama"), HasSubstr("hidden_size")));
  EXPECT_EQ(run({"predict", "llama-3.2-1b", "--like", "mistral", "--seq-len", "8", "--set", "layers=2"}).code, 0);
}

TEST_F(Users, a_directory_without_a_configuration_says_so) {
  const Result r = run({"predict", std::filesystem::path(scratch_.path(".")).string()});
  EXPECT_EQ(r.code, 2);
  EXPECT_THAT(r.err, AllOf(HasSubstr("a directory without a config.json"), Not(HasSubstr("llama-3-8b"))));
}

TEST_F(Users, a_field_given_as_a_flag) {
  EXPECT_THAT(run({"predict", "gpt2", "--layers", "48"}).err, HasSubstr("did you mean --set layers=48?"));
  EXPECT_THAT(run({"predict", "gpt2", "--head-dim=32"}).err, HasSubstr("did you mean --set head_dim=32?"));
}

TEST_F(Users, predict_refuses_what_belongs_to_draws) {
  for (const char* flag : {"--seeds", "--until-stderr"}) {
    const Result r = run(tiny({flag, "3"}));
    EXPECT_EQ(r.code, 2);
    EXPECT_THAT(r.err, HasSubstr("is a flag of measure, compare, report"));
  }
}

TEST_F(Users, a_model_from_standard_input) {
  (void)scratch_.put("model.json", std::string("{") + small_llama + R"(, "num_hidden_layers": 2})");
  for (const char* model : {"-", "/dev/stdin"}) {
    const Result r = shell(std::string("stepzero predict ") + model + " --seq-len 8 --json < model.json");
    ASSERT_EQ(r.code, 0) << r.err;
    EXPECT_EQ(json::parse(r.out)["model"]["layers"], 2);
  }
}

TEST_F(Users, schemes_almost_named) {
  EXPECT_THAT(run({"schemes", "xavier"}).err, HasSubstr("did you mean xavier-normal?"));
  EXPECT_THAT(run({"predict", "gpt2", "--scheme", "kaiming"}).err, HasSubstr("did you mean he?"));
  EXPECT_THAT(run({"predict", "gpt2", "--scheme", "deep_net"}).err, HasSubstr("did you mean deepnet?"));
}

// ---- pipes and CI

TEST_F(Users, predict_ends_with_3_on_a_number_that_is_not_finite) {
  const Result r = run(tiny({"--set", "norm=none", "--set", "init_std=1e30"}));
  EXPECT_EQ(r.code, 3) << r.out;
  EXPECT_THAT(r.err, HasSubstr("is not finite at "));
}

TEST_F(Users, standard_output_is_a_dash) {
  const Result markdown = run(tiny({"--markdown", "-"}));
  EXPECT_EQ(markdown.code, 0);
  EXPECT_TRUE(markdown.out.starts_with("## gpt2\n")) << markdown.out;
  EXPECT_THAT(markdown.out,
              AllOf(HasSubstr("`stepzero predict gpt2 --seq-len 8 --set layers=2"), HasSubstr(", stepzero "), Not(HasSubstr("✓"))));
  EXPECT_TRUE(run(tiny({"--csv", "-"})).out.starts_with("table,name,"));
  Words report = tiny({"-o", "-"});
  report[0] = "report";
  EXPECT_TRUE(run(report).out.starts_with("<!")) << run(report).out.substr(0, 80);
  EXPECT_FALSE(std::filesystem::exists("-"));
  EXPECT_EQ(run({"init", "gpt2", "-o", "-"}).code, 2);
}

TEST_F(Users, a_closed_pipe_leaves_the_verdict) {
  // layers enough that the text is longer than a pipe holds
  for (const auto& [flags, code] : {std::pair("", 0), std::pair(" --scheme xavier-normal --fail-on note", 1)}) {
    const Result r = shell("bash -c 'stepzero predict gpt2 --set layers=200 --effort 0.01 --seq-len 8 --full --no-remedies" +
                           std::string(flags) + " | head -1 > /dev/null; exit ${PIPESTATUS[0]}'");
    EXPECT_EQ(r.err, "");
    EXPECT_EQ(r.code, code) << flags;
  }
  // nor does it matter that what goes to standard error is not read
  const Result r = shell(
      "bash -c '(stepzero predict gpt2 --set layers=200 --set norm=none --set init_std=1e6 --effort 0.01 --seq-len 4 --full --no-remedies "
      "2>&1; "
      "echo $? >&3) 3>&2 | head -1 > /dev/null'");
  EXPECT_EQ(r.err, "3\n");
}

TEST_F(Users, long_tables_are_folded_in_markdown) {
  const Result r = run(tiny({"--set", "layers=20", "--markdown", "-"}));
  EXPECT_THAT(r.out, AllOf(HasSubstr("<details><summary>20 layers</summary>\n\n| layer |"), HasSubstr("</details>")));
}

TEST_F(Users, compare_gives_z_and_flags_in_json) {
  Words words = tiny({"--json", "--seeds", "3"});
  words[0] = "compare";
  const json rows = json::parse(run(words).out)["comparison"];
  ASSERT_GT(rows.size(), 20U);
  for (const char* key : {"where", "what", "predicted", "measured", "stderr", "error", "z", "off"})
    EXPECT_TRUE(rows[0].contains(key)) << key;
}

TEST_F(Users, two_draws_do_not_condemn_the_theory) {
  const Result r = run({"compare", "pythia-70m", "--seq-len", "16", "--seeds", "2"});
  EXPECT_EQ(r.code, 0) << r.out;
}

TEST_F(Users, words_that_other_programs_know) {
  EXPECT_EQ(run({"help"}).out, run({"--help"}).out);
  EXPECT_EQ(run({"help", "predict"}).out, run({"predict", "--help"}).out);
  EXPECT_EQ(run({"predict", "--version"}).out, run({"--version"}).out);
  EXPECT_EQ(run(tiny({"--threads", "1000"})).code, 0);
  Words exponent = tiny({"--json"});
  exponent[3] = "1e1";
  EXPECT_EQ(json::parse(run(exponent).out)["input"]["seq_len"], 10);
  exponent[3] = "1.5e0";
  EXPECT_EQ(run(exponent).code, 2);
}

TEST_F(Users, forty_columns_do_not_wrap) {
  ::setenv("COLUMNS", "40", 1);
  ::setenv("LC_ALL", "C.UTF-8", 1);
  for (const char* verb : {"predict", "measure", "compare"}) {
    Words words = {verb,       "gpt2",  "--seq-len", "8",     "--set",     "layers=4", "--set",
                   "width=64", "--set", "heads=4",   "--set", "vocab=500", "--scheme", "xavier-normal"};
    const std::string out = run(words).out;
    for (std::size_t at = 0, end = 0; at < out.size(); at = end + 1) {
      end = std::min(out.find('\n', at), out.size());
      EXPECT_LE(columns(out.substr(at, end - at)), 40U) << verb << ": " << out.substr(at, end - at);
    }
  }
  ::unsetenv("COLUMNS");
  ::unsetenv("LC_ALL");
}

// Lists stay lists, and the scheme of the page is not laid over itself.
TEST_F(Users, what_a_page_tells_to_paste) {
  Words words = {"report", "gpt2", "--seq-len", "8", "--scheme", "xavier-normal"};
  for (const char* set : {"layers=24", "width=64", "heads=4", "vocab=512"}) words.insert(words.end(), {"--set", set});
  words.insert(words.end(), {"--compare-schemes", "xavier-normal,hf,lecun", "--json", "-o", scratch_.path("page.html")});
  const Result r = run(words);
  ASSERT_EQ(r.code, 0) << r.err;
  std::size_t remedies = 0;
  const json signal = json::parse(r.out);
  for (const json& f : signal["findings"]) {
    for (const json& remedy : f.value("remedies", json::array())) {
      ++remedies;
      EXPECT_THAT(remedy["command"].get<std::string>(), HasSubstr(" --compare-schemes xavier-normal,hf,lecun "));
    }
  }
  EXPECT_GT(remedies, 0U);
  const std::string page = scratch_.get("page.html");
  EXPECT_THAT(page, HasSubstr("\"scheme\":\"lecun\",\"changes\""));
  EXPECT_THAT(page, Not(HasSubstr("\"scheme\":\"xavier-normal\",\"changes\"")));
}

// ---- words

TEST(TimeLeft, GrowsFromWhatWasDone) {
  EXPECT_EQ(time_left(0.5, 0.5), "") << "too early to say";
  EXPECT_EQ(time_left(10, 0), "");
  EXPECT_EQ(time_left(10, 0.5), ", 10 s left");
  EXPECT_EQ(time_left(600, 0.25), ", 30 min left");
  EXPECT_EQ(time_left(7200, 0.5), ", 2.0 h left");
  EXPECT_EQ(time_left(10, 1), "");
}

TEST_F(Users, explain_knows_findings) {
  const Result r = run({"explain", "rank-collapse"});
  EXPECT_EQ(r.code, 0);
  EXPECT_THAT(r.out, AllOf(HasSubstr("all tokens point the same way"), HasSubstr("above 0.95")));
  EXPECT_THAT(run({"explain"}).out, AllOf(HasSubstr("rms_norm"), HasSubstr("signal-explodes")));
}

TEST_F(Users, a_failing_claim_shows_the_statements_numbers) {
  const json claims = json::parse(run({"claims", "pe-norm", "--json"}).out)["claims"];
  EXPECT_THAT(run({"claims", "pe-norm"}).out, AllOf(HasSubstr("the document on initialization"), HasSubstr("003_96ebd8648173a638.txt")));
  ASSERT_EQ(claims[0]["verdict"], "fails");
  // sqrt(d_model) of 64 channels is said, and is not so; the correction's numbers agree
  EXPECT_NEAR(claims[0]["predicted"].get<double>(), 8, 1e-9);
  EXPECT_NEAR(claims[0]["measured"].get<double>(), std::sqrt(32), 1e-6);
  EXPECT_THAT(claims[0]["document"].get<std::string>(), HasSubstr("the document on initialization"));
}

TEST_F(Users, the_audits_verdict_comes_first_in_predicts_signs) {
  ASSERT_EQ(
      run({"init", "gpt2", "--set", "layers=2", "--set", "width=32", "--set", "heads=2", "--set", "vocab=50", "-o", scratch_.path("m")})
          .code,
      0);
  const std::string out = run({"audit", scratch_.path("m")}).out;
  EXPECT_LT(out.find("nothing stands out"), out.find("tensor      ")) << out;
}

// Branches that begin as nothing send no gradient to a table of distances.
TEST_F(Users, branches_of_zero_are_predicted_with_biases_by_distance) {
  for (const char* scheme : {"rezero", "fixup", "skipinit"}) {
    const Result r = run({"predict", "t5-small", "--scheme", scheme, "--set", "layers=1", "--set", "decoder_layers=1", "--seq-len", "8",
                          "--effort", "0.01", "--no-remedies"});
    EXPECT_EQ(r.code, 0) << scheme << r.err;
  }
}

// Zero everywhere is a model, if a poor one.
TEST_F(Users, an_initializer_range_of_zero_is_predicted) {
  const Result r = config((std::string("{") + small_llama + R"(, "num_hidden_layers": 2, "initializer_range": 0})").c_str(), {"--json"});
  EXPECT_EQ(r.code, 0) << r.err;
  EXPECT_NEAR(json::parse(r.out)["loss"]["predicted"].get<double>(), std::log(50), 1e-9);
}

// ---- files that would take for ever: the system ends a process that takes more than a second of the processor

TEST_F(Users, whatever_a_file_asks_for_it_ends_within_a_second) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  const std::string limit = "ulimit -t 30; ";
#else
  const std::string limit = "ulimit -t 1; ";
#endif
  const std::string begin = "arch(\"m\", width=8, vocab=50)\nx = tokens(vocab, width, name=\"e\")\nstream(x)\n";
  const std::vector<std::tuple<std::string, std::string, std::string>> cases = {
      {"l = [1]\nfor y in l:\n    l.append(y)\n", "m.py:5:1:", "stopped after 5000000 steps"},
      {"def f(y):\n    return f(y)\nf(1)\n", "m.py:5:", "lie too deep in each other"},
      {"for i in range(10 ** 9):\n    x = relu(x)\n", "m.py:4:", "this range is too long"},
      {"for i in range(1000):\n    for k in range(10 ** 6):\n        x = relu(x)\n", "m.py:", "stopped after 5000000 steps"},
      {"def more(y):\n    for k in range(1000):\n        y = relu(y)\n    return y\nfor i in range(10 ** 6):\n    x = more(x)\n",
       "m.py:6:", "stopped after 5000000 steps"},
      {"x = linear(x, 10 ** 15, name=\"w\")\n", "m.py:4:", "no whole number from -1 to 2^31"},
      {"x = linear(x, widht, name=\"w\")\n", "m.py:4:", "no name widht; did you mean width?"},
      {"x = linear(x, width, nmae=\"w\")\n", "m.py:4:", "nmae"},
      {"x = attention(x, x, x, heads=3)\n", "m.py:4:", "do not divide"},
      {"x = rms_norm(7, name=\"n\")\n", "m.py:4:", "a wire is expected here"},
  };
  for (const auto& [lines, place, reason] : cases) {
    (void)scratch_.put("m.py", begin + lines + "loss(head(x, vocab, name=\"h\"))\n");
    const Result r = shell(limit + "stepzero predict m.py");
    EXPECT_EQ(r.code, 2) << lines << r.err;
    EXPECT_THAT(r.err, AllOf(HasSubstr(place), HasSubstr(reason))) << lines;
  }
}

}  // namespace
}  // namespace stepzero::testing
