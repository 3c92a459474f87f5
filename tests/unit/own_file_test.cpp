// Models that are files of their own: the words, the canonical graph, what the verbs make of them, and what they refuse.
#include <cmath>
#include <filesystem>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "stepzero/api/describe.hpp"
#include "stepzero/api/setup.hpp"
#include "stepzero/graph/graph_json.hpp"
#include "stepzero/graph/sources.hpp"
#include "stepzero/io/file.hpp"
#include "stepzero/models/build.hpp"
#include "stepzero/models/model.hpp"
#include "stepzero/models/own_file.hpp"
#include "stepzero/stepzero.hpp"
#include "tests/hostile/scratch.hpp"

namespace stepzero {
namespace {

using ::testing::HasSubstr;
using testing::Scratch;
using Json = nlohmann::json;

const std::string examples = STEPZERO_SOURCE_DIR "/examples/architectures/";

// A block of which LINES can be changed.
std::string small(const std::string& lines, const std::string& end = "loss(head(rms_norm(x, name=\"n\"), vocab, name=\"head\"))\n") {
  return "arch(\"small\", width=32, layers=2, heads=4, vocab=97, positions=16)\n"
         "x = tokens(vocab, width, name=\"embed\")\nstream(x)\n" +
         lines + end;
}

Expected<Graph> graph_of(const std::string& text) {
  auto built = build_text(text, "model.py");
  if (!built) return std::unexpected(built.error());
  return std::move(built->graph);
}

std::string error_of(const std::string& text) {
  const auto graph = graph_of(text);
  return graph ? "no error" : graph.error().message;
}

Model load(const std::string& model, const std::vector<std::string>& set = {}, const std::string& scheme = "hf") {
  auto m = Model::load({.model = model, .set = set, .scheme = scheme});
  if (!m) throw std::runtime_error(m.error().message);
  return std::move(*m);
}

// Without what the model is called.
std::string told(const Expected<Signal>& signal) {
  if (!signal) return signal.error().message;
  Json json = Json::parse(to_json(*signal));
  json["model"].erase("name");
  json["model"].erase("family");
  return json.dump();
}

const std::vector<std::string> tiny = {"layers=2", "width=48", "heads=4", "vocab=97", "positions=16"};

TEST(OwnFile, Gpt2ByHandIsGpt2) {
  const Model hand = load(examples + "gpt2.py", tiny), preset = load("gpt2", tiny);
  EXPECT_EQ(told(hand.predict()), told(preset.predict()));
  EXPECT_EQ(told(hand.measure({.seeds = 2})), told(preset.measure({.seeds = 2})));
  const Model other = load(examples + "gpt2.py", tiny, "xavier-normal");
  EXPECT_EQ(told(other.measure()), told(load("gpt2", tiny, "xavier-normal").measure()));
  EXPECT_NE(told(other.measure()), told(hand.measure()));
}

TEST(OwnFile, TheSameBitsAreWritten) {
  const Scratch scratch;
  ASSERT_TRUE(load(examples + "gpt2.py", tiny).init({.path = scratch.path("hand"), .seed = 3}));
  ASSERT_TRUE(load("gpt2", tiny).init({.path = scratch.path("preset"), .seed = 3}));
  const auto numbers = [&](const std::string& folder) {  // behind the header, which tells whose they are
    const std::string file = read_text(scratch.path(folder + "/model.safetensors"), std::uint64_t{1} << 26).value();
    std::uint64_t length = 0;
    std::memcpy(&length, file.data(), 8);
    return file.substr(8 + length);
  };
  EXPECT_EQ(numbers("hand"), numbers("preset"));
  EXPECT_GT(numbers("hand").size(), 100'000U);
  // and what init leaves is a model again
  EXPECT_EQ(told(load(scratch.path("hand")).measure()), told(load("gpt2", tiny).measure()));
  EXPECT_EQ(audit({.path = scratch.path("hand")})->findings().size(), 0U);
}

TEST(OwnFile, EveryExampleRuns) {
  std::size_t seen = 0;
  for (const auto& entry : std::filesystem::directory_iterator(examples)) {
    std::vector<std::string> sizes = {"layers=2", "width=64", "vocab=97"};
    if (entry.path().filename() != "tanh.py") sizes.emplace_back("heads=4");
    const Model model = load(entry.path().string(), sizes);
    const auto measured = model.measure({.input = {.length = 8}});
    ASSERT_TRUE(measured) << entry.path() << measured.error().message;
    EXPECT_GT(*measured->loss.measured, 3) << entry.path();
    const auto theory = model.predict({.input = {.length = 8}});
    EXPECT_TRUE(theory) << entry.path() << theory.error().message;
    ++seen;
  }
  EXPECT_GE(seen, 5U);
}

// Two maps over one wire of values share most of what they make: as if they did not, the sum would be 2.7 times too large. What is left
// of it is small and varies from draw to draw, so that the gradient behind the norm of the heads is up to a fifth too small.
TEST(OwnFile, MapsOverTheSameValuesAreAsMeasured) {
  const Model model = load(examples + "differential.py", {"layers=2", "width=128", "heads=4", "vocab=97", "init_std=0.09", "share=0.6"});
  const auto signal = model.compare({.input = {.length = 12}, .seeds = 48});
  ASSERT_TRUE(signal) << signal.error().message;
  std::size_t seen = 0;
  for (const NodeSignal& n : signal->nodes) {
    const auto near = [&](const Value& v, double allowed) {
      const double off = *v.predicted / *v.measured - 1;
      EXPECT_TRUE(std::abs(off) <= allowed + 5 * v.standard_error.value_or(0) / *v.measured) << n.name << " " << off;
    };
    near(n.forward.second_moment, 0.03);
    if (n.name.ends_with("attn.v")) near(n.backward.norm, 0.05), ++seen;
    if (n.name.ends_with("attn.sum")) near(n.backward.norm, 0.2), ++seen;
  }
  EXPECT_EQ(seen, 4U);
}

TEST(OwnFile, MapsThatShareTheirKeysAreRefused) {
  const auto graph =
      graph_of(small("v = linear(x, width, name=\"v\", role=\"value\")\nk = linear(x, width, name=\"k\", role=\"key\")\n"
                     "a, b = [attention(linear(x, width, name=f\"q{i}\", role=\"query\"), k, v, heads) for i in range(2)]\n"
                     "x = x + linear(a - 0.5 * b, width, name=\"o\", role=\"attention_out\")\nstream(x)\n"));
  ASSERT_TRUE(graph) << graph.error().message;
  EXPECT_THAT(check_sources(*graph).error().message, HasSubstr("which both hold what blocks.0.attn.v makes"));
}

// Weights that are used again, ops without a rule: refused by name, and measured.
TEST(OwnFile, WhatHasNoRuleIsRefusedByName) {
  const Scratch scratch;
  const std::vector<std::pair<std::string, const char*>> cases = {
      {R"({"model_type": "albert", "embedding_size": 16, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 48, "vocab_size": 97})",
       "uses the weights of blocks.0.attn.q again"},
      {R"({"model_type": "llama4_text", "hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "num_key_value_heads": 2, "head_dim": 16, "intermediate_size": 48, "num_local_experts": 4, "vocab_size": 97, "max_position_embeddings": 64})",
       "experts whose inputs are scaled by their gates"},
      {R"({"model_type": "whisper", "d_model": 32, "encoder_layers": 1, "decoder_layers": 1, "encoder_attention_heads": 2, "decoder_attention_heads": 2, "encoder_ffn_dim": 48, "decoder_ffn_dim": 48, "vocab_size": 97, "num_mel_bins": 8, "max_source_positions": 6, "max_target_positions": 16, "pad_token_id": 0})",
       "attention to a sequence of another length"}};
  for (const auto& [config, want] : cases) {
    const Model model = load(scratch.put("config.json", config));
    const auto theory = model.predict({.input = {.length = 8}});
    ASSERT_FALSE(theory) << want;
    EXPECT_THAT(theory.error().message, HasSubstr(want));
    const auto measured = model.measure({.input = {.length = 8}});
    ASSERT_TRUE(measured) << measured.error().message;
    EXPECT_NEAR(*measured->loss.measured, std::log(97.0), 0.5) << want;
  }
}

// ---- sums that know what they share

TEST(OwnFile, WhatSharesASourceIsRefusedBehindAnythingThatIsNotLinear) {
  const std::vector<std::pair<std::string, const char*>> cases = {
      {"x = x + silu(x)\n", "which both hold what stream.0 makes"},
      {"x = x * x\n", "stream.1 multiplies stream.0 and itself"},
      {"x = x + rotary(x, heads)\n", "which both hold what stream.0 makes"},
      {"x = x + multiply(x, sigmoid(linear(x, width, name=\"g\")))\n", "which both hold what stream.0 makes"},
      {"k = linear(x, width, name=\"k\", role=\"key\")\nx = x + attention(k, linear(x, width, name=\"q\"), x, heads)\n",
       "which both hold what stream.0 makes"},
      {"k = linear(x, width, name=\"k\", role=\"key\")\nx = x + linear(attention(k, k, x, heads), width, name=\"o\", "
       "role=\"attention_out\")\n",
       "attends with blocks.0.attn.k and itself"}};
  for (const auto& [lines, want] : cases) {
    const auto graph = graph_of(small(lines + "stream(x)\n"));
    ASSERT_TRUE(graph) << graph.error().message;
    const auto covered = check_sources(*graph);
    ASSERT_FALSE(covered) << lines;
    EXPECT_THAT(covered.error().message, HasSubstr(want)) << lines;
  }
}

TEST(OwnFile, SumsAreCoveredWhereNothingBendsWhatTheyShare) {
  for (const char* lines : {"x = x + x\nstream(x)\n", "x = x + rms_norm(x, name=\"m\")\nstream(x)\n",
                            "y = x + linear(silu(x), width, name=\"a\")\nx = y + scalar(1.0, name=\"s\") * x\nstream(x)\n"}) {
    const auto covered = check_sources(graph_of(small(lines)).value());
    ASSERT_TRUE(covered) << lines << covered.error().message;
    EXPECT_TRUE(*covered) << lines;
  }
}

TEST(OwnFile, SumsOfFreshMatricesAreCovered) {
  for (const char* lines : {"x = x + linear(silu(x), width, name=\"a\")\nstream(x)\n",
                            "v = linear(x, width, name=\"v\")\nw = linear(x, width, name=\"w\")\nx = x + linear(0.5 * v + 0.5 * w, width, "
                            "name=\"o\")\nstream(x)\n",
                            "x = x + multiply(silu(linear(x, width, name=\"g\")), linear(x, width, name=\"u\"))\nstream(x)\n"}) {
    const auto graph = graph_of(small(lines));
    ASSERT_TRUE(graph) << graph.error().message;
    const auto covered = check_sources(*graph);
    ASSERT_TRUE(covered) << lines;
    EXPECT_FALSE(*covered) << lines;
  }
}

// ---- names and sizes

TEST(OwnFile, NodesGetTheNamesOfTheReport) {
  const auto graph =
      graph_of(small("h = rms_norm(x, name=\"a\")\nq, k, v = fused(h, [32, 16, 16], [\"query\", \"key\", \"value\"], name=\"qkv\")\n"
                     "m = attention(rotary(q, heads), rotary(k, 2), v, heads, kv_heads=2)\n"
                     "x = x + 0.5 * linear(m, width, name=\"o\", role=\"attention_out\")\n"
                     "x = x + swiglu(rms_norm(x, name=\"b\"), 48, gate=\"g\", up=\"u\", down=\"d\")\nstream(x)\n"));
  ASSERT_TRUE(graph) << graph.error().message;
  std::vector<std::string> names;
  for (const Node& node : graph->nodes) names.push_back(node.name);
  EXPECT_THAT(names, ::testing::ElementsAre("stream.0", "blocks.0.attn.norm", "blocks.0.attn.q", "blocks.0.attn.k", "blocks.0.attn.v",
                                            "blocks.0.attn.q_rot", "blocks.0.attn.k_rot", "blocks.0.attn.mix", "blocks.0.attn.out",
                                            "blocks.0.mid", "blocks.0.ffn.norm", "blocks.0.ffn.gate", "blocks.0.ffn.act", "blocks.0.ffn.up",
                                            "blocks.0.ffn.product", "blocks.0.ffn.out", "stream.1", "final.norm", "logits", "loss"));
  EXPECT_EQ(std::get<Residual>(graph->nodes[9].op).branch_scale, 0.5);
  EXPECT_EQ(graph->params[1].layer, 0);
  EXPECT_EQ(graph->params.back().layer, -1);
  Architecture a;
  describe_graph(a, *graph);
  EXPECT_EQ(a.layers, 1);
  EXPECT_EQ(a.width, 32);
  EXPECT_EQ(a.heads, 4);
  EXPECT_EQ(a.kv_heads, 2);
  EXPECT_EQ(a.ffn, 48);
  EXPECT_EQ(a.vocab, 97);
  EXPECT_EQ(a.residual_scales, (std::vector<double>{0.5, 1}));
  EXPECT_TRUE(a.causal && a.gated && !a.tied && a.norm == NormKind::rmsnorm && a.activation == Activation::silu);
}

TEST(OwnFile, SizesAreTheKeysOfSet) {
  const Scratch scratch;
  const std::string file = scratch.put(
      "m.py", "arch(\"m\", width=32, tied=True, rate=0.5, act=\"silu\", list=[1, 2])\nfail(f\"{width} {tied} {rate} {act} {list}\")\n");
  const auto message = [&](const std::vector<std::string>& set) { return find_architecture(file, set).error().message; };
  EXPECT_THAT(message({}), HasSubstr("32 True 0.5 silu [1, 2]"));
  EXPECT_THAT(message({"width=64", "tied=false", "rate=2", "act=relu", "list=3,4,5"}), HasSubstr("64 False 2.0 relu [3, 4, 5]"));
  EXPECT_THAT(message({"widht=64"}), HasSubstr("declares no such size; did you mean width?"));
  EXPECT_THAT(message({"width=many"}), HasSubstr("--set width: \"many\" is no whole number"));
  EXPECT_THAT(message({"tied=2"}), HasSubstr("neither true nor false"));
  EXPECT_THAT(message({"rate=nan"}), HasSubstr("is no number"));
}

TEST(OwnFile, WhatAFileSaysOfATensorIsItsLaw) {
  const auto signal = load(examples + "speedrun.py", {"layers=2", "width=64", "heads=4", "vocab=97"}).measure({.input = {.length = 8}});
  ASSERT_TRUE(signal);
  for (const ParameterSignal& p : signal->parameters) {
    if (p.name.ends_with("proj.weight")) {
      EXPECT_EQ(*p.std.measured, 0) << p.name;
    }
    if (p.name == "embed.weight") {
      EXPECT_NEAR(*p.std.measured, 1, 0.05);
    }
  }
}

TEST(OwnFile, SaysWhatIsWrong) {
  const std::vector<std::pair<std::string, const char*>> cases = {
      {small("x = linear(x, widht, name=\"a\")\nstream(x)\n"), "model.py:4:15: no name widht; did you mean width?"},
      {small("x = x + linear(x, 16, name=\"a\")\nstream(x)\n"), "model.py:4:7: these wires have 32 and 16 channels"},
      {small("x = attention(x, x, x, heads=3)\nstream(x)\n"), "model.py:4:5: heads=3 and kv_heads=3 do not divide"},
      {small("y = silu(x)\n"), "nothing reads the wire"},
      {small("", ""), "the last node is no loss"},
      {small("x = linear(x, 32, name=\"embed\")\nstream(x)\n"), "model.py:4:5: two tensors are called \"embed.weight\""},
      {small("x = linear(x, 10 ** 12, name=\"a\")\nstream(x)\n"), "no whole number from -1 to 2^31"},
      {small("x = x + 3\nstream(x)\n"), "+ does not go between these two"},
      {small("x = function(x, \"sofplus\")\nstream(x)\n"), "\"sofplus\" is no op"},
      {small("x = _node(\"silu\", [x], [], [])\nstream(x)\n"), "no name _node"},
      {small("arch(\"again\")\n"), "arch is called once"},
      {"x = 1\n", "no arch(...) says what the model is called"},
      {small("x = linear(x, 32, name=\"a\", init=normal(-1.0))\nstream(x)\n"), "a law wants numbers up to 1e30, and a scale"},
      {small("x = linear(x, 32, name=\"a\", role=\"querry\")\nstream(x)\n"), "\"querry\" is no role"},
      {small("for l in range(300000):\n    x = silu(x)\nstream(x)\n"), "stopped after"},
      {small("if x:\n    pass\n"), "a wire is neither true nor false"}};
  for (const auto& [text, want] : cases) EXPECT_THAT(error_of(text), HasSubstr(want)) << text;
}

// ---- the canonical graph

TEST(CanonicalGraph, IsReadAsItIsWritten) {
  const Json variants = Json::parse(read_text(STEPZERO_SOURCE_DIR "/tests/models/variants.json", std::uint64_t{1} << 26).value());
  std::size_t seen = 0;
  for (const auto& [name, variant] : variants.items()) {
    auto a = import_config(variant["config"].dump(), name);
    ASSERT_TRUE(a && resolve(*a)) << name;
    const std::string written = graph_json(build_graph(*a)).dump();
    if (a->family == "cnn") continue;
    const auto read = read_graph(Json::parse(written), name);
    ASSERT_TRUE(read) << name << ": " << read.error().message;
    EXPECT_EQ(graph_json(*read).dump(), written) << name;
    ++seen;
  }
  EXPECT_GE(seen, 70U);
}

TEST(CanonicalGraph, IsAModel) {
  const Scratch scratch;
  const std::vector<std::string> llama = {"layers=2", "width=48", "heads=4",      "kv_heads=2",   "head_dim=12",
                                          "vocab=97", "ffn=64",   "positions=32", "init_std=0.03"};
  for (const auto& [name, set] :
       {std::pair{"llama-2-7b", llama}, {"gpt2", tiny}, {"t5-small", {"layers=2", "decoder_layers=1", "vocab=97", "ffn=64"}}}) {
    const Model preset = load(name, set);
    const Model graph = load(scratch.put("graph.json", describe_as_graph(preset.architecture()).dump()));
    const MeasureRequest request{.input = {.length = 16}, .seeds = 1};
    const bool same = told(graph.measure(request)) == told(preset.measure(request));
    EXPECT_TRUE(same) << name;
  }
}

// One thing spoiled at a time.
TEST(CanonicalGraph, FromStrangersIsChecked) {
  const auto good = [] { return Json(graph_json(graph_of(small("x = x + linear(silu(x), width, name=\"a\")\nstream(x)\n")).value())); };
  ASSERT_TRUE(read_graph(good(), "g"));
  const auto spoil = [&](const char* where, const Json& value, const char* want) {
    Json g = good();
    g[Json::json_pointer(where)] = value;
    const auto read = read_graph(g, "g");
    ASSERT_FALSE(read) << where;
    EXPECT_THAT(read.error().message, HasSubstr(want)) << where;
  };
  spoil("/nodes/1/op", "conv2", "\"conv2\" is no op");
  spoil("/nodes/1/inputs/0", 7, "no wire 7");
  spoil("/nodes/1/inputs/0", -1, "numbers of nodes");
  spoil("/nodes/2/n_in", 31, "linear reads a wire of 31 channels here");
  spoil("/nodes/2/n_out", 0, "n_out = 0");
  spoil("/nodes/2/pieces", 3, "3 pieces do not divide 32 channels");
  spoil("/nodes/2/params/0/0", 9, "no tensor 9");
  spoil("/nodes/2/params/0/1", 1, "linear wants 32 x 32 of \"a.weight\"");
  spoil("/nodes/2/extra", 1, "linear has 5 fields, 6 are given");
  spoil("/nodes/2/bias", 1, "\"bias\" is neither true nor false");
  spoil("/nodes/3/skip_scale", "x", "no number up to 1e30");
  spoil("/nodes/3/name", "stream.0", "two nodes are called stream.0");
  spoil("/nodes/0/vocab", 98, "wants 98 x 32");
  spoil("/nodes/6/vocab", 96, "cross_entropy reads a wire of 96 channels here");
  spoil("/tensors/1/shape", Json::array({32, -1}), "no size that can be held");
  spoil("/tensors/1/shape", Json::array({Index{1} << 40, Index{1} << 40}), "no size that can be held");
  spoil("/tensors/1/name", "embed.weight", "two tensors are called");
  spoil("/tensors/1/role", "queen", "is no role");
  spoil("/tensors/1/zero_row", 32, "has no row 32");
  spoil("/tensors/1/law", Json::array({"cauchy", 0, 1, 0}), "is no law");
  spoil("/tensors/1/parts", Json::array({Json::array({"query", 0, 0, 64, 32, 64})}), "a part of \"a.weight\" does not fit it");
  spoil("/nodes", Json::array(), "the last node is no loss");
}

TEST(Describe, PrintsWhatBuildsTheSame) {
  const auto a = find_architecture("llama-3-8b", {});
  const auto text = describe_as_file(*a);
  ASSERT_TRUE(text);
  EXPECT_LE(std::ranges::count(*text, '\n'), 45);
  const auto other = find_architecture("llama-3-8b", {"norm_placement=post"});
  const auto refused = describe_as_file(*other);
  ASSERT_FALSE(refused);
  EXPECT_THAT(refused.error().message, HasSubstr("the file of family llama does not say all that is asked"));
}

}  // namespace
}  // namespace stepzero
