// The program from outside: whatever it is given, a clear message on stderr, the right exit code, and nothing
// half-done.
#include <chrono>
#include <cmath>
#include <csignal>
#include <functional>
#include <limits>
#include <string>
#include <thread>
#include <vector>

#include <fcntl.h>
#include <unistd.h>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "stepzero/core/parallel.hpp"
#include "stepzero/core/text.hpp"
#include "stepzero/io/safetensors.hpp"
#include "stepzero/io/tokens.hpp"
#include "stepzero/models/build.hpp"
#include "stepzero/models/model.hpp"
#include "stepzero/ops/all.hpp"
#include "stepzero/pass/measure.hpp"
#include "tests/hostile/program.hpp"

namespace stepzero {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using testing::Program;
using testing::Result;
using testing::Scratch;
using Args = std::vector<std::string>;
using Clock = std::chrono::steady_clock;

const Args kTiny = {"--set", "layers=2", "--set", "width=32", "--set", "heads=4", "--set", "vocab=97", "--set", "positions=16"};

Args tiny(const Args& more = {}) {
  Args args = {"measure", "gpt2"};
  args.insert(args.end(), kTiny.begin(), kTiny.end());
  args.insert(args.end(), more.begin(), more.end());
  return args;
}

bool safe_for_a_terminal(const std::string& text) {
  std::size_t begin = 0;
  while (begin < text.size()) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    if (!printable(std::string_view(text).substr(begin, end - begin))) return false;
    begin = end + 1;
  }
  return true;
}

class Cli : public ::testing::Test {
 protected:
  Result run(const Args& args, const std::string& out = {}) { return testing::run(args, scratch_, 30, {out}); }

  // Refused: exit 2, nothing on stdout, a message that holds all of `words` and is safe to look at.
  void expect_refused(const Args& args, const std::vector<std::string>& words) {
    const Result r = run(args);
    const std::string where = fmt::format("stepzero {}", show(fmt::format("{}", fmt::join(args, " "))));
    EXPECT_EQ(r.code, 2) << where << "\n" << show(r.err);
    EXPECT_EQ(r.out, "") << where;
    EXPECT_TRUE(r.err.starts_with("stepzero: ")) << where << "\n" << show(r.err);
    for (const std::string& word : words) EXPECT_THAT(r.err, HasSubstr(word)) << where;
    EXPECT_TRUE(safe_for_a_terminal(r.err)) << where << "\n" << show(r.err);
  }

  std::string config(const std::string& text) { return scratch_.put("config.json", text); }

  // A file with all the tensors of the tiny model; `change` may spoil them first.
  std::string weights(const std::function<void(std::vector<TensorData>&, std::vector<std::vector<float>>&)>& change = {}) {
    const Graph graph = build_graph(tiny_architecture());
    std::vector<std::vector<float>> numbers;
    std::vector<TensorData> tensors;
    unsigned state = 1;
    for (const Param& p : graph.params) {
      auto& to = numbers.emplace_back(static_cast<std::size_t>(p.size()));
      for (float& x : to) x = static_cast<float>((state = state * 1664525U + 1013904223U) >> 8) / static_cast<float>(1U << 25) - 0.25F;
      tensors.push_back({p.name, {p.shape.begin(), p.shape.end()}, {}});
    }
    for (std::size_t i = 0; i < tensors.size(); ++i) tensors[i].data = numbers[i];
    if (change) change(tensors, numbers);
    const std::string path = scratch_.path("model.safetensors");
    const auto done = write_safetensors(path, tensors, {{"format", "pt"}}, true);
    EXPECT_TRUE(done.has_value()) << done.error().message;
    return path;
  }

  static Architecture tiny_architecture() {
    Architecture a = *load_model("gpt2");
    for (std::size_t i = 1; i < kTiny.size(); i += 2) EXPECT_TRUE(set_field(a, kTiny[i]).has_value());
    EXPECT_TRUE(resolve(a).has_value());
    return a;
  }

  static std::size_t index_of(const std::vector<TensorData>& tensors, const std::string& name) {
    for (std::size_t i = 0; i < tensors.size(); ++i) {
      if (tensors[i].name == name) return i;
    }
    throw std::runtime_error("no tensor " + name);
  }

  Scratch scratch_;
};

// ---- flags

TEST_F(Cli, unknown_names_come_with_a_guess) {
  expect_refused({"measure", "gtp2"}, {"unknown model \"gtp2\"", "did you mean gpt2?", "llama-3-8b"});
  expect_refused({"measure", "qqqqqqqq"}, {"unknown model \"qqqqqqqq\"", "presets are gpt2"});
  expect_refused(tiny({"--sede", "3"}), {"unknown flag \"--sede\"", "did you mean --seed?", "stepzero measure --help"});
  expect_refused(tiny({"--sede=3"}), {"unknown flag \"--sede\"", "did you mean --seed?"});
  expect_refused(tiny({"extra"}), {"unknown argument \"extra\""});
  expect_refused({"--nosuch"}, {"--help"});
  expect_refused(tiny({"--scheme", "xavier-nromal"}), {"unknown scheme \"xavier-nromal\"", "did you mean xavier-normal?"});
  expect_refused(tiny({"--scheme", "nosuch"}), {"unknown scheme \"nosuch\"", "lecun"});
}

TEST_F(Cli, an_unknown_verb_is_named) {
  expect_refused({"mesure", "gpt2"}, {"mesure", "did you mean measure?"});
  expect_refused({"qqqqqq"}, {"qqqqqq", "--help"});
}

TEST_F(Cli, a_missing_model_is_named) { expect_refused({"measure"}, {"MODEL is required", "stepzero measure --help"}); }

TEST_F(Cli, flags_out_of_range) {
  expect_refused(tiny({"--seq-len", "0"}), {"--seq-len", "0"});
  expect_refused(tiny({"--seq-len", "-1"}), {"--seq-len"});
  expect_refused(tiny({"--seq-len", "abc"}), {"--seq-len", "abc"});
  expect_refused(tiny({"--seeds", "0"}), {"--seeds", "0"});
  expect_refused(tiny({"--batch", "0"}), {"--batch", "0"});
  expect_refused(tiny({"--threads", "0"}), {"--threads", "0"});
  expect_refused(tiny({"--until-stderr", "0%"}), {"--until-stderr", "between 0 and 1"});
  expect_refused(tiny({"--until-stderr", "five"}), {"--until-stderr", "0.01"});
  expect_refused(tiny({"--targets", "previous"}), {"--targets", "previous", "next", "same"});
  expect_refused(tiny({"--seq-len", "17"}), {"17 tokens", "16 positions", "--seq-len 16"});
  expect_refused(tiny({"--tokens", "distinct", "--batch", "6"}), {"distinct", "102", "97"});
  expect_refused(tiny({"--weights"}), {"--weights"});
}

TEST_F(Cli, set_says_what_is_wrong) {
  expect_refused(tiny({"--set", "heads=7"}), {"heads = 7", "width = 32"});
  expect_refused(tiny({"--set", "heads=0"}), {"--set heads", "\"0\"", "from 1"});
  expect_refused(tiny({"--set", "kv_heads=3"}), {"kv_heads = 3", "heads = 4"});
  expect_refused(tiny({"--set", "rotary=3"}), {"rotary = 3", "even"});
  expect_refused(tiny({"--set", "rotary=10"}), {"rotary = 10", "head_dim = 8"});
  expect_refused(tiny({"--set", "nosuch=1"}), {"--set nosuch", "no such field", "norm_placement"});
  expect_refused(tiny({"--set", "layer=1"}), {"--set layer", "did you mean layers?"});
  expect_refused(tiny({"--set", "layers=abc"}), {"--set layers", "\"abc\"", "whole number"});
  expect_refused(tiny({"--set", "layers=-1"}), {"--set layers", "\"-1\"", "from 1"});
  expect_refused(tiny({"--set", "layers=1.5"}), {"--set layers", "\"1.5\""});
  expect_refused(tiny({"--set", "layers="}), {"--set layers"});
  expect_refused(tiny({"--set", "layers"}), {"key=value"});
  expect_refused(tiny({"--set", "layers=99999999999999999999"}), {"--set layers", "99999999999999999999"});
  expect_refused(tiny({"--set", "norm=batch"}), {"--set norm", "\"batch\"", "rmsnorm"});
  expect_refused(tiny({"--set", "tied=maybe"}), {"--set tied", "\"maybe\"", "true"});
  expect_refused(tiny({"--set", "norm_eps=nan"}), {"--set norm_eps", "nan"});
  expect_refused(tiny({"--set", "norm_eps=-1"}), {"--set norm_eps", "-1"});
  expect_refused(tiny({"--set", "dropout=1"}), {"--set dropout", "0.99"});
  expect_refused(tiny({"--set", "layers=1000000000"}), {"layers", "from 1 to 10000"});
}

// ---- tokens

TEST_F(Cli, tokens_files) {
  const auto tokens = [&](const std::string& text) { return tiny({"--tokens", scratch_.put("tokens.txt", text)}); };
  expect_refused(tokens("1 2 3\n4 97 6\n"), {"tokens.txt: line 2", "token 97", "vocabulary", "96"});
  expect_refused(tokens("1 2 -3\n"), {"tokens.txt: line 1", "token -3", "vocabulary"});
  expect_refused(tokens("1 2 3\n4 five 6\n"), {"tokens.txt: line 2", "\"five\"", "not a token id"});
  expect_refused(tokens("1 2.5 3\n"), {"tokens.txt: line 1", "\"2.5\""});
  expect_refused(tokens("1,2,3\n"), {"tokens.txt: line 1", "\"1,2,3\""});
  expect_refused(tokens("1 99999999999999999999\n"), {"tokens.txt: line 1", "99999999999999999999"});
  expect_refused(tokens("1 2 3\n4 5\n"), {"tokens.txt: line 2", "2 tokens", "3"});
  expect_refused(tokens(""), {"tokens.txt", "at least two tokens"});
  expect_refused(tokens("5\n6\n"), {"tokens.txt", "at least two tokens"});
  expect_refused(tokens(std::string("1 2\0 3\n", 7)), {"tokens.txt: line 1"});
  expect_refused(tokens("\xEF\xBB\xBF"
                        "1 2 3\n"),
                 {"tokens.txt: line 1"});
  expect_refused(tokens("1 \x1B[31mred 3\n"), {"tokens.txt: line 1", "\\u{1B}"});
  std::string too_long;
  for (int i = 0; i < 18; ++i) too_long += "1 ";
  expect_refused(tokens(too_long + "\n"), {"17 tokens", "16 positions"});
  expect_refused(tiny({"--tokens", scratch_.path("absent.txt")}), {"absent.txt", "No such file", "zipf"});
  expect_refused(tiny({"--tokens", scratch_.path("")}), {"directory"});
  expect_refused(tiny({"--tokens", scratch_.put("tokens.txt", "1 2 3\n"), "--seq-len", "5"}), {"tokens.txt", "--seq-len asks for 5"});
  expect_refused(tiny({"--tokens", scratch_.put("tokens.txt", "1 2 3\n"), "--batch", "2"}), {"tokens.txt", "--batch asks for 2"});
}

TEST_F(Cli, tokens_files_that_are_fine) {
  for (const std::string text : {"1 2 3\n4 5 6\n", "1 2 3\r\n4 5 6\r\n", "\n1\t2  3 \n\n4 5 6", "0 96 0\n96 0 96\n"}) {
    const Result r = run(tiny({"--json", "--tokens", scratch_.put("tokens.txt", text)}));
    ASSERT_EQ(r.code, 0) << show(r.err);
    const auto json = nlohmann::json::parse(r.out);
    EXPECT_EQ(json["input"]["batch"], 2);
    EXPECT_EQ(json["input"]["seq_len"], 2);
  }
}

// ---- config.json

TEST_F(Cli, config_files) {
  expect_refused({"measure", config(R"({"model_type": "nosuch"})")},
                 {"config.json", "unknown model_type \"nosuch\"", "llama, gpt2, bert, t5"});
  expect_refused({"measure", config(R"({"n_layer": 2})")}, {"config.json", "model_type"});
  expect_refused({"measure", config(R"({"model_type": 7})")}, {"config.json", "model_type"});
  expect_refused({"measure", config(R"([1, 2])")}, {"config.json", "model_type"});
  expect_refused({"measure", config("")}, {"config.json", "empty"});
  expect_refused({"measure", config(R"({"model_type": "gpt2", "n_layer": 2, "n_layer": 3})")},
                 {"config.json: byte 37", "\"n_layer\"", "twice"});
  expect_refused({"measure", config(R"({"model_type": "gpt2", "n_layer": 2, "num_hidden_layers": 3})")},
                 {"config.json", "num_hidden_layers", "n_layer"});
  expect_refused({"measure", config(R"({"model_type": "llama", "num_hidden_layers": 1e9})")},
                 {"config.json", "\"num_hidden_layers\"", "whole number"});
  expect_refused({"measure", config(R"({"model_type": "llama", "num_hidden_layers": 1000000000})")},
                 {"num_hidden_layers", "from 1 to 10000"});
  for (const std::string bad : {"0", "-1", "1.5", "\"32\"", "true", "9223372036854775808", "[2]"}) {
    expect_refused({"measure", config(R"({"model_type": "llama", "num_hidden_layers": )" + bad + "}")},
                   {"config.json", "\"num_hidden_layers\"", "whole number"});
  }
  expect_refused({"measure", config(R"({"model_type": "gpt2", "n_head": 7})")}, {"heads = 7", "width = 768"});
  expect_refused({"measure", config(R"({"model_type": "llama", "num_key_value_heads": 5})")}, {"kv_heads = 5", "heads = 32"});
  expect_refused({"measure", config(R"({"model_type": "llama", "rope_theta": -1})")}, {"config.json", "\"rope_theta\"", "-1"});
  expect_refused({"measure", config(R"({"model_type": "llama", "rms_norm_eps": NaN})")}, {"config.json: byte", "NaN is not JSON"});
  expect_refused({"measure", config(R"({"model_type": "gpt2", "activation_function": "nosuch"})")},
                 {"config.json", "\"activation_function\"", "\"nosuch\"", "gelu_new"});
  expect_refused({"measure", config("\xEF\xBB\xBF{\"model_type\": \"gpt2\"}")}, {"config.json: byte 0", "byte order mark"});
  expect_refused({"measure", config(R"({"model_type": "gpt2")")}, {"config.json: byte"});
  std::string bomb;
  for (int i = 0; i < 100000; ++i) bomb += R"({"a":)";
  expect_refused({"measure", config(bomb)}, {"config.json: byte", "nested deeper than"});
  expect_refused({"measure", config(std::string(100000, '['))}, {"config.json: byte", "nested deeper than"});
}

TEST_F(Cli, a_config_file_or_its_directory_is_a_model) {
  const std::string file = config(
      R"({"model_type": "gpt2", "n_layer": 1, "n_embd": 8, "n_head": 2, "vocab_size": 31, "n_positions": 8, "auto_map": {"x": "y"}})");
  for (const std::string& model : {file, scratch_.path("")}) {
    const Result r = run({"measure", model, "--json"});
    ASSERT_EQ(r.code, 0) << show(r.err);
    EXPECT_EQ(nlohmann::json::parse(r.out)["model"]["width"], 8);
  }
}

// Many layers of nothing: few parameters, and yet a graph that no machine holds. Said before it is built.
TEST_F(Cli, a_billion_tiny_layers_are_refused_at_once) {
  const auto start = Clock::now();
  Program program(
      {"measure", config(R"({"model_type": "gpt2", "n_embd": 1, "n_head": 1, "n_layer": 1000000000, "vocab_size": 9, "n_positions": 8})")},
      scratch_);
  EXPECT_EQ(program.wait(2), 2) << "still building after 2 s";
  EXPECT_THAT(program.err(), HasSubstr("layer"));
  EXPECT_LE(std::chrono::duration<double>(Clock::now() - start).count(), 2.5);
}

// A scheme that asks theory what the model does speaks of one stack of text.
TEST_F(Cli, schemes_that_learn_need_one_stack) {
  for (const char* verb : {"predict", "measure"}) expect_refused({verb, "t5-small", "--scheme", "admin"}, {"admin", "one stack", "t5"});
  expect_refused({"schemes", "deepscalelm", "vit-base"}, {"one stack", "vit"});
  expect_refused({"init", "t5-small", "--scheme", "admin", "-o", scratch_.path("x.safetensors")}, {"one stack"});
}

TEST_F(Cli, inputs_of_encoders_and_images) {
  const std::string ids = scratch_.put("ids.txt", "1 2 3 4\n");
  expect_refused({"measure", "gpt2", "--encoder-tokens", ids}, {"--encoder-tokens", "gpt2"});
  expect_refused({"measure", "gpt2", "--pixels", ids}, {"--pixels"});
  expect_refused({"measure", "t5-small", "--tokens", ids}, {"--encoder-tokens"});
  expect_refused({"measure", "t5-small", "--tokens", ids, "--encoder-tokens", ids}, {"1 lines of 4 ids", "1 lines of 3"});
  expect_refused({"measure", "vit-base", "--pixels", ids}, {"8 bytes", "float"});
  expect_refused({"measure", "vit-base", "--seq-len", "64"}, {"197 tokens"});
  expect_refused({"measure", "vit-base", "--labels", ids, "--batch", "5"}, {"4 labels for 5"});
}

TEST_F(Cli, experts_that_do_not_fit) {
  expect_refused({"predict", "mixtral-8x7b", "--set", "experts_per_token=9"}, {"experts_per_token = 9", "1 to 8"});
  expect_refused({"predict", "deepseek-v3", "--set", "router_groups=7"}, {"router_groups = 7", "256"});
  expect_refused({"predict", "gpt2", "--set", "experts=4"}, {"gpt2", "experts"});
  expect_refused({"predict", "mixtral-8x7b", "--set", "sub_norm=true"}, {"sub_norm", "experts"});
}

// ---- weights

TEST_F(Cli, weights_that_do_not_fit) {
  expect_refused(tiny({"--weights", scratch_.path("absent.safetensors")}), {"absent.safetensors", "No such file"});

  const std::string whole = weights();
  EXPECT_EQ(run(tiny({"--weights", whole})).code, 0);
  const std::string bytes = scratch_.get("model.safetensors");
  for (const std::size_t keep : {bytes.size() - 1, bytes.size() / 2, std::size_t{100}, std::size_t{7}, std::size_t{0}}) {
    expect_refused(tiny({"--weights", scratch_.put("cut.safetensors", bytes.substr(0, keep))}), {"cut.safetensors"});
  }
  expect_refused(tiny({"--weights", scratch_.put("cut.safetensors", bytes.substr(0, bytes.size() - 1))}), {"cut.safetensors: byte"});

  const std::string name = "transformer.h.1.mlp.c_fc.weight";
  expect_refused(tiny({"--weights", weights([&](auto& tensors, auto&) {
                         tensors.erase(tensors.begin() + static_cast<long>(index_of(tensors, name)));
                       })}),
                 {"model.safetensors", "\"" + name + "\" is missing"});
  expect_refused(tiny({"--weights", weights([&](auto& tensors, auto&) { tensors[index_of(tensors, name)].shape = {128, 32}; })}),
                 {"model.safetensors: byte", "\"" + name + "\"", "[128, 32]", "[32, 128]"});
  expect_refused(tiny({"--weights", weights([&](auto& tensors, auto&) { tensors[index_of(tensors, name)].shape = {4096}; })}),
                 {"\"" + name + "\"", "[4096]", "[32, 128]"});
}

TEST_F(Cli, weights_that_are_not_used_are_warned_about) {
  const std::vector<float> one = {1};
  const std::string path = weights([&](auto& tensors, auto&) { tensors.push_back({"evil\x1B[31m", {1}, one}); });
  const Result r = run(tiny({"--weights", path, "--json"}));
  EXPECT_EQ(r.code, 0);
  EXPECT_THAT(r.err, AllOf(HasSubstr("warning"), HasSubstr("evil\\u{1B}[31m"), HasSubstr("not used")));
  EXPECT_TRUE(safe_for_a_terminal(r.err)) << show(r.err);
  EXPECT_EQ(run(tiny({"--weights", path, "--json", "--quiet"})).err, "");
}

TEST_F(Cli, weights_without_their_prefix_are_the_same) {
  const Result full = run(tiny({"--weights", weights(), "--json", "--threads", "1"}));
  const std::string bare = weights([](auto& tensors, auto&) {
    for (TensorData& t : tensors) t.name = t.name.substr(std::string("transformer.").size());
  });
  const Result r = run(tiny({"--weights", bare, "--json", "--threads", "1"}));
  ASSERT_EQ(r.code, 0) << show(r.err);
  EXPECT_EQ(r.out, full.out);
}

TEST_F(Cli, numbers_that_are_not_finite_end_with_3) {
  for (const float bad : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
    const std::string path =
        weights([&](auto& tensors, auto& numbers) { numbers[index_of(tensors, "transformer.h.0.attn.c_proj.weight")][5] = bad; });
    const Result r = run(tiny({"--weights", path, "--json"}));
    EXPECT_EQ(r.code, 3) << show(r.err);
    EXPECT_THAT(r.err, AllOf(HasSubstr("not finite"), HasSubstr(" at ")));
    EXPECT_TRUE(nlohmann::json::parse(r.out)["loss"]["measured"].is_null());
  }
  const Result overflow = run(tiny({"--scheme", "hf", "--set", "init_std=1e25"}));
  EXPECT_EQ(overflow.code, 3) << show(overflow.err);
  EXPECT_THAT(overflow.err, HasSubstr("not finite"));
}

// Going up, a NaN reaches everything: what helps is the first node of the pass that has it.
TEST_F(Cli, the_first_node_that_breaks_is_named) {
  const std::string path = weights([&](auto& tensors, auto& numbers) {
    numbers[index_of(tensors, "transformer.h.1.mlp.c_proj.weight")][5] = std::numeric_limits<float>::quiet_NaN();
  });
  const Result r = run(tiny({"--weights", path}));
  EXPECT_EQ(r.code, 3);
  EXPECT_THAT(r.err, HasSubstr("at blocks.1.ffn.out"));
}

// ---- what comes out

TEST_F(Cli, help_is_fine) {
  for (const Args& args :
       {Args{"--help"}, {"-h"}, {}, {"measure", "--help"}, {"models", "--help"}, {"schemes", "--help"}, {"explain", "--help"}}) {
    const Result r = run(args);
    EXPECT_EQ(r.code, 0) << fmt::format("{}", fmt::join(args, " "));
    EXPECT_THAT(r.out, HasSubstr("Usage: stepzero"));
    EXPECT_EQ(r.err, "");
  }
  EXPECT_THAT(run({"--version"}).out, HasSubstr("stepzero "));
  EXPECT_THAT(run({"models"}).out, AllOf(HasSubstr("124,439,808"), HasSubstr("8,030,261,248")));
  EXPECT_THAT(run({"schemes"}).out, HasSubstr("xavier-uniform"));
}

// Every op of the list, by its kind, from the head of its own file.
TEST_F(Cli, every_op_is_explained) {
  const Result list = run({"explain"});
  EXPECT_EQ(list.code, 0);
  const auto explained = [&]<class T>(const T*) {
    const std::string kind = T::kind;
    EXPECT_THAT(list.out, HasSubstr("\n" + kind + " "));
    const Result r = run({"explain", kind});
    EXPECT_EQ(r.code, 0) << kind << "\n" << show(r.err);
    EXPECT_TRUE(r.out.starts_with("What ")) << kind << "\n" << r.out;
    EXPECT_THAT(r.out, AllOf(HasSubstr("\nForward "), HasSubstr("\nBackward "), HasSubstr("\nPush "), HasSubstr("\nPull "),
                             HasSubstr("\nAssumes ")));
    EXPECT_THAT(r.out,
                AllOf(HasSubstr("Derived in docs/derivations/"), HasSubstr(std::string("\nGrade      ") + to_string(T::grade) + ": ")));
    EXPECT_THAT(r.out.substr(r.out.rfind("\nKinds ")), HasSubstr(" " + kind)) << "explained by another file";
    EXPECT_TRUE(safe_for_a_terminal(r.out)) << kind;
  };
  [&]<class... Ops>(const std::variant<Ops...>*) {
    (explained(static_cast<const Ops*>(nullptr)), ...);
  }(static_cast<const AnyOp*>(nullptr));
  EXPECT_EQ(run({"explain", "norm"}).out, run({"explain", "rms_norm"}).out);
}

TEST_F(Cli, an_unknown_op_is_refused) {
  expect_refused({"explain", "atention"}, {"unknown op or finding \"atention\"", "did you mean attention?", "stepzero explain"});
  expect_refused({"explain", "rmsnorm"}, {"did you mean rms_norm?"});
  expect_refused({"explain", "nothing_of_the_kind"}, {"unknown op"});
  expect_refused({"explain", ""}, {"unknown op"});
  expect_refused({"explain", "attention", "more"}, {"unknown argument \"more\""});
  expect_refused({"explain", "a\x1B[31m"}, {"unknown op or finding", "\\u{1B}"});
}

TEST_F(Cli, a_full_disk_is_an_error) {
  for (const Args& args : {tiny(), tiny({"--json"}), {"models"}, {"schemes"}, {"explain"}, {"explain", "linear"}}) {
    const Result r = run(args, "/dev/full");
    EXPECT_EQ(r.code, 2) << args[0];
    EXPECT_THAT(r.err, HasSubstr("could not write")) << args[0];
  }
}

TEST_F(Cli, help_on_a_full_disk_is_an_error) {
  EXPECT_EQ(run({"--help"}, "/dev/full").code, 2);
  EXPECT_EQ(run({"measure", "--help"}, "/dev/full").code, 2);
}

TEST_F(Cli, a_closed_pipe_ends_quietly) {
  int ends[2];
  ASSERT_EQ(::pipe2(ends, O_CLOEXEC), 0);
  ::close(ends[0]);
  Program program(tiny(), scratch_, {"", ends[1]});
  ::close(ends[1]);
  EXPECT_EQ(program.wait(30), 0) << "the verdict; 1013 is SIGPIPE";
  EXPECT_EQ(program.err(), "");
}

// The numbers on stdout are the numbers of the library, to the last bit.
TEST_F(Cli, json_is_the_signal) {
  const Result r = run(tiny({"--json", "--seeds", "3", "--seed", "5", "--batch", "2", "--seq-len", "7", "--threads", "1"}));
  ASSERT_EQ(r.code, 0) << show(r.err);
  const auto json = nlohmann::json::parse(r.out);
  EXPECT_EQ(nlohmann::json::parse(json.dump()), json);
  EXPECT_EQ(json["schema"], "stepzero.signal/1");
  EXPECT_EQ(json["seeds"], 3);
  EXPECT_EQ(json["input"], (nlohmann::json{{"batch", 2}, {"seq_len", 7}, {"tokens", "zipf"}}));

  set_threads(1);
  const Architecture a = tiny_architecture();
  const Graph graph = build_graph(a);
  const auto batch = make_batch({.source = "zipf", .length = 7, .sequences = 2, .seed = 5, .vocab = 97, .positions = 16});
  ASSERT_TRUE(batch.has_value());
  MeasureOptions options;
  options.scheme = *find_scheme("hf");
  options.seed = 5;
  options.seeds = 3;
  const auto signal = measure(graph, a, *batch, options);
  set_threads(0);
  ASSERT_TRUE(signal.has_value());
  const auto same = [](const nlohmann::json& value, const Value& want, const std::string& where) {
    EXPECT_EQ(value.at("measured").get<double>(), *want.measured) << where;
    EXPECT_EQ(value.at("stderr").get<double>(), *want.standard_error) << where;
  };
  same(json["loss"], signal->loss, "loss");
  same(json["gradient_norm"], signal->gradient_norm, "gradient_norm");
  EXPECT_NEAR(json["loss"]["measured"].get<double>(), std::log(97.0), 0.1);
  ASSERT_EQ(json["nodes"].size(), signal->nodes.size());
  for (std::size_t i = 0; i < signal->nodes.size(); ++i) {
    const auto& node = json["nodes"][i];
    EXPECT_EQ(node["name"], signal->nodes[i].name);
    same(node["forward"]["second_moment"], signal->nodes[i].forward.second_moment, signal->nodes[i].name);
    same(node["forward"]["variance"], signal->nodes[i].forward.variance, signal->nodes[i].name);
    same(node["forward"]["mean"], signal->nodes[i].forward.mean, signal->nodes[i].name);
    same(node["forward"]["token_cosine"], signal->nodes[i].forward.token_cosine, signal->nodes[i].name);
    same(node["backward"]["norm"], signal->nodes[i].backward.norm, signal->nodes[i].name);
  }
  ASSERT_EQ(json["attention"].size(), 2U);
  EXPECT_EQ(json["attention"][1]["name"], "blocks.1.attn");
  same(json["attention"][1]["entropy"], signal->attention[1].entropy, "entropy");
  ASSERT_EQ(json["parameters"].size(), signal->parameters.size());
  for (std::size_t i = 0; i < signal->parameters.size(); ++i) {
    EXPECT_EQ(json["parameters"][i]["name"], signal->parameters[i].name);
    same(json["parameters"][i]["gradient_norm"], signal->parameters[i].gradient_norm, signal->parameters[i].name);
  }
}

// Heads and sequences are cut into pieces that do not depend on the threads, so that stdout is the same to the byte.
TEST_F(Cli, threads_do_not_change_the_result) {
  const std::vector<Args> runs = {
      tiny({"--json"}), tiny({"--json", "--batch", "3", "--seeds", "2", "--set", "dropout=0.1"}),
      tiny({"--json", "--set", "positions=200", "--seq-len", "150", "--set", "kv_heads=2", "--set", "rotary=-1"})};
  for (Args args : runs) {
    args.insert(args.end(), {"--threads", "1"});
    const Result one = run(args);
    ASSERT_EQ(one.code, 0) << show(one.err);
    for (const char* n : {"2", "3"}) {
      args.back() = n;
      EXPECT_EQ(run(args).out, one.out) << n << " threads";
    }
  }
}

TEST_F(Cli, weightless) {
  expect_refused(tiny({"--weightless", "--weights", "x"}), {"--weights", "--weightless"});
  expect_refused({"measure", "gpt2", "--batch", "4000", "--seq-len", "1024"}, {"a streamed pass needs", "--weightless"});
  const Result one = run(tiny({"--weightless", "--json", "--seq-len", "16", "--threads", "1"}));
  EXPECT_EQ(one.code, 0) << one.err;
  EXPECT_EQ(one.out, run(tiny({"--weightless", "--json", "--seq-len", "16", "--threads", "2"})).out);
  const auto json = nlohmann::json::parse(one.out);
  EXPECT_EQ(json["weightless"], true);
  for (const auto& p : json["parameters"]) {
    if (p["name"] == "transformer.h.0.attn.c_attn.weight") {
      EXPECT_EQ(p["std"]["measured"], 0.02);
    }
  }
  const Result broken = run(tiny({"--weightless", "--scheme", "he", "--set", "norm=none", "--set", "init_std=1e30"}));
  EXPECT_EQ(broken.code, 3) << broken.err;
}

TEST_F(Cli, steps) {
  expect_refused(tiny({"--rate", "1e-3"}), {"--rate", "--steps"});
  expect_refused(tiny({"--steps", "0"}), {"--steps"});
  expect_refused(tiny({"--steps", "1", "--stream"}), {"--steps", "--stream"});
  expect_refused(tiny({"--steps", "2", "--weightless"}), {"2 steps", "--weightless"});
  expect_refused(tiny({"--steps", "1", "--rate", "nan"}), {"--rate"});
  expect_refused(tiny({"--steps", "1", "--optimizer", "adam"}), {"adam", "adamw"});
  expect_refused({"measure", "llama-2-70b", "--steps", "1"}, {"a pass with steps needs", "--weightless"});
  for (const char* how : {"", "--weightless"}) {
    Args args = tiny({"--steps", "1", "--json", "--seq-len", "16"});
    if (*how != 0) args.emplace_back(how);
    const Result one = run(args);
    EXPECT_EQ(one.code, 0) << one.err;
    const auto json = nlohmann::json::parse(one.out);
    EXPECT_EQ(json["steps"].size(), 1U);
    EXPECT_EQ(json["optimizer"]["name"], "adamw");
    EXPECT_EQ(json["steps"][0].contains("rates"), *how == 0);
    EXPECT_LT(json["steps"][0]["loss"]["first_order"]["measured"], 0);
  }
}

TEST_F(Cli, seeds_change_the_result) {
  const Result zero = run(tiny({"--json", "--seed", "0"}));
  EXPECT_EQ(run(tiny({"--json", "--seed", "0"})).out, zero.out);
  const auto a = nlohmann::json::parse(zero.out), b = nlohmann::json::parse(run(tiny({"--json", "--seed", "1"})).out);
  EXPECT_NE(a["loss"], b["loss"]);
}

// ---- the terminal

const std::string kEvil =
    "a\x1B[31m\x07\x9B\xE2\x80\xAE"
    "b";  // colour, bell, a bare C1 byte, right-to-left override

TEST_F(Cli, draws_until_the_standard_errors_are_small) {
  const auto signal = [&](const Args& more) {
    const Result result = run(tiny(more));
    EXPECT_EQ(result.code, 0) << result.err;
    return nlohmann::json::parse(result.out);
  };
  const auto sure = signal({"--seq-len", "8", "--json", "--until-stderr", "10%"});
  const int seeds = sure["seeds"];
  EXPECT_TRUE(seeds >= 8 && seeds < 2000) << seeds;
  for (const auto& node : sure["nodes"]) {
    const auto& square = node["backward"]["second_moment"];
    EXPECT_LE(square["stderr"].get<double>(), 0.1 * square["measured"].get<double>()) << node["name"];
  }
  // the same draws as without the rule, and no more than allowed
  EXPECT_EQ(sure["nodes"], signal({"--seq-len", "8", "--json", "--seeds", std::to_string(seeds)})["nodes"]);
  EXPECT_EQ(signal({"--seq-len", "8", "--json", "--until-stderr", "0.0001", "--seeds", "9"})["seeds"], 9);
}

TEST_F(Cli, control_characters_are_never_printed_raw) {
  expect_refused({"measure", kEvil}, {"unknown model", "\\u{1B}"});
  expect_refused({kEvil}, {});
  expect_refused(tiny({"--" + kEvil}), {"unknown flag", "\\u{1B}"});
  expect_refused(tiny({kEvil}), {"unknown argument", "\\u{1B}"});
  expect_refused(tiny({"--scheme", kEvil}), {"unknown scheme", "\\u{1B}"});
  expect_refused(tiny({"--tokens", "/nosuch/" + kEvil}), {"\\u{1B}", "No such file"});
  expect_refused(tiny({"--weights", "/nosuch/" + kEvil}), {"\\u{1B}", "No such file"});
  expect_refused(tiny({"--set", kEvil}), {"\\u{1B}", "key=value"});
  expect_refused(tiny({"--set", kEvil + "=1"}), {"\\u{1B}", "no such field"});
  expect_refused(tiny({"--set", "norm=" + kEvil}), {"\\u{1B}", "rmsnorm"});
  expect_refused(tiny({"--set", "layers=" + kEvil}), {"\\u{1B}", "whole number"});
  expect_refused({"measure", config(R"({"model_type": "\u001b[31m"})")}, {"unknown model_type", "\\u{1B}"});
  expect_refused({"measure", config(R"({"model_type": "gpt2", "activation_function": "\u001b[31m"})")}, {"\\u{1B}"});
  expect_refused({"measure", config(R"({"model_type": "gpt2", "n_layer": "\u001b[31m"})")}, {"n_layer"});
  expect_refused({"measure", config(R"({"model_type": "gpt2", "\u001b[31m": 1, "\u001b[31m": 2})")}, {"twice", "\\u{1B}"});
}

TEST_F(Cli, control_characters_in_flag_values_are_never_printed_raw) {
  for (const char* flag : {"--seed", "--seeds", "--seq-len", "--batch", "--threads", "--targets"})
    expect_refused(tiny({flag, kEvil}), {flag});
  expect_refused(tiny({"--json=" + kEvil}), {"--json"});
}

TEST_F(Cli, control_characters_in_a_rope_type_are_never_printed_raw) {
  expect_refused({"measure", config(R"({"model_type": "llama", "rope_scaling": {"rope_type": "\u001b[31m"}})")}, {"rope_scaling"});
}

TEST_F(Cli, the_name_of_a_folder_is_shown_safely) {
  const std::string folder = scratch_.path("a\x1B[31m");
  std::filesystem::create_directory(folder);
  std::ofstream(folder + "/config.json")
      << R"({"model_type": "gpt2", "n_layer": 1, "n_embd": 8, "n_head": 2, "vocab_size": 31, "n_positions": 8})";
  const Result text = run({"measure", folder});
  EXPECT_EQ(text.code, 0) << show(text.err);
  EXPECT_TRUE(safe_for_a_terminal(text.out)) << show(text.out);
  EXPECT_THAT(text.out, HasSubstr("a\\u{1B}[31m"));
  const Result json = run({"measure", folder, "--json"});
  EXPECT_TRUE(safe_for_a_terminal(json.out)) << show(json.out);
  EXPECT_EQ(nlohmann::json::parse(json.out)["model"]["name"], "a\x1B[31m");
}

// ---- interrupts

bool catches(pid_t pid, int signal) {
  std::ifstream status(fmt::format("/proc/{}/status", pid));
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with("SigCgt:")) return (std::stoull(line.substr(7), nullptr, 16) >> (signal - 1) & 1) != 0;
  }
  return false;
}

TEST_F(Cli, interrupted_means_130_at_once) {
  Program program(tiny({"--seeds", "1000000"}), scratch_);
  const auto deadline = Clock::now() + std::chrono::seconds(10);
  while (!catches(program.pid(), SIGINT) && Clock::now() < deadline) std::this_thread::sleep_for(std::chrono::milliseconds(2));
  std::this_thread::sleep_for(std::chrono::milliseconds(100));  // well into the pass
  program.signal(SIGINT);
  EXPECT_EQ(program.wait(2), 130);
  EXPECT_EQ(program.out(), "");
}

}  // namespace
}  // namespace stepzero
