// Changes of schemes as transformations of a graph: the same graphs as the builders of the families make.
#include "stepzero/models/graph_changes.hpp"

#include <map>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "stepzero/graph/graph_json.hpp"
#include "stepzero/io/file.hpp"
#include "stepzero/models/build.hpp"
#include "stepzero/models/family.hpp"
#include "stepzero/models/model.hpp"
#include "stepzero/schemes/scheme.hpp"
#include "stepzero/stepzero.hpp"
#include "tests/hostile/scratch.hpp"

namespace stepzero {
namespace {

using Json = nlohmann::json;

// Nodes and tensors by their names, whatever their order.
std::map<std::string, Json> parts_by_name(const Graph& graph) {
  std::map<std::string, Json> out;
  const Json json = graph_json(graph);
  const auto name = [](const Json& list, const Json& number) { return list[number.get<std::size_t>()]["name"]; };
  for (Json node : json["nodes"]) {
    for (Json& input : node["inputs"]) input = name(json["nodes"], input);
    for (Json& use : node["params"]) use[0] = name(json["tensors"], use[0]);
    out["node " + node["name"].get<std::string>()] = node;
  }
  for (const Json& tensor : json["tensors"]) out["tensor " + tensor["name"].get<std::string>()] = tensor;
  return out;
}

std::string difference(const Graph& one, const Graph& two) {
  const auto a = parts_by_name(one), b = parts_by_name(two);
  for (const auto& [name, value] : a) {
    if (!b.contains(name)) return fmt::format("only built: {}", name);
    if (b.at(name) != value) return fmt::format("built {} changed {}", value.dump(), b.at(name).dump());
  }
  for (const auto& [name, value] : b) {
    if (!a.contains(name)) return fmt::format("only changed: {}", name);
  }
  return {};
}

std::map<std::string, Architecture> built_families() {
  const auto file = Json::parse(read_text(STEPZERO_SOURCE_DIR "/tests/models/transformers_4.57.json", std::uint64_t{1} << 26).value());
  std::map<std::string, Architecture> out;
  for (const auto& [family, model] : file.items()) {
    if (find_family(model["config"]["model_type"].get<std::string>()) == nullptr) continue;
    auto a = import_config(model["config"].dump(), family);
    if (a && resolve(*a)) out.emplace(family, std::move(*a));
  }
  return out;
}

TEST(GraphChanges, MakeWhatTheBuildersMake) {
  std::size_t made = 0, refused = 0;
  for (const auto& [family, before] : built_families()) {
    for (const Scheme& scheme : schemes()) {
      if (scheme.adapt == nullptr || scheme.learn != nullptr) continue;
      Architecture after = before;
      scheme.adapt(after);
      if (!resolve(after)) continue;
      const auto changed = change_graph(build_graph(before), before, after);
      if (!changed) {
        ++refused;
        continue;
      }
      ++made;
      EXPECT_EQ(difference(build_graph(after), *changed), "") << family << " " << scheme.name;
    }
  }
  EXPECT_GT(made, 250U) << refused << " refused";
}

const std::vector<std::string> tiny_sizes = {"layers=2", "width=48", "heads=4", "vocab=97", "positions=16"};

std::string told_of(const std::string& model, const std::string& scheme, std::vector<std::string> set = tiny_sizes) {
  const auto m = Model::load({.model = model, .set = std::move(set), .scheme = scheme});
  if (!m) return m.error().message;
  const auto signal = m->measure();
  Json json = Json::parse(to_json(*signal));
  json["model"].erase("name");
  json["model"].erase("family");
  json["model"].erase("changes");  // a scheme finds them done in what init wrote
  for (Json& finding : json["findings"]) {
    finding.erase("remedy");  // commands name the model
    finding.erase("remedies");
  }
  return json.dump();
}

// By hand, by its file, by its family.
TEST(GraphChanges, ASchemeDoesTheSameToAFile) {
  const std::string hand = STEPZERO_SOURCE_DIR "/examples/architectures/gpt2.py";
  for (const char* scheme : {"deepnet", "t-fixup", "sub-ln", "layerscale", "rezero", "mup", "u-mup", "lns", "admin", "mimetic", "t5"})
    EXPECT_EQ(told_of(hand, scheme), told_of("gpt2", scheme)) << scheme;
}

TEST(GraphChanges, CanBeSetOnAnyFile) {
  const std::string hand = STEPZERO_SOURCE_DIR "/examples/architectures/gpt2.py";
  for (const char* change : {"residual_scale=0.5", "norm_placement=post", "norm=none", "branch_gain=channel", "embedding_scale=3",
                             "logit_scale=0.5", "attention_scale=0.1", "sub_norm=true"}) {
    std::vector<std::string> set = tiny_sizes;
    set.emplace_back(change);
    EXPECT_EQ(told_of(hand, "hf", set), told_of("gpt2", "hf", set)) << change;
  }
}

TEST(GraphChanges, SayWhyTheyDoNotFit) {
  const testing::Scratch scratch;
  const std::string three =
      "arch(\"three\", width=32, layers=2, vocab=97, positions=16)\nx = tokens(vocab, width, name=\"embed\")\nstream(x)\n"
      "for l in range(layers):\n    for k in range(3):\n        x = x + linear(rms_norm(x, name=f\"n{l}.{k}\"), width, "
      "name=f\"m{l}.{k}\")\n    stream(x)\n"
      "loss(head(rms_norm(x, name=\"n\"), vocab, name=\"head\"))\n";
  EXPECT_THAT(told_of(scratch.put("three.py", three), "deepnet", {}), ::testing::HasSubstr("sums of a branch and the stream"));
  EXPECT_THAT(told_of("olmo2-7b", "deepnet", {"layers=2"}), ::testing::Not(::testing::HasSubstr("not moved"))) << "its builder can";
  const std::string config =
      R"({"model_type": "exaone4", "hidden_size": 32, "num_attention_heads": 2, "num_key_value_heads": 2, "num_hidden_layers": 2,
    "intermediate_size": 64, "vocab_size": 97, "max_position_embeddings": 16})";
  EXPECT_THAT(told_of(scratch.put("config.json", config), "deepnet", {}), ::testing::HasSubstr("are not moved to post"));
}

// What init leaves of a changed model is that model.
TEST(GraphChanges, AreWrittenAndReadAgain) {
  const testing::Scratch scratch;
  const std::string config =
      R"({"model_type": "smollm3", "hidden_size": 32, "num_attention_heads": 2, "num_key_value_heads": 2, "num_hidden_layers": 4,
    "intermediate_size": 64, "vocab_size": 97, "max_position_embeddings": 16, "pad_token_id": null})";
  const std::string file = scratch.put("config.json", config);
  const auto model = Model::load({.model = file, .set = {"layers=2"}, .scheme = "deepnet"});
  ASSERT_TRUE(model) << model.error().message;
  ASSERT_TRUE(model->init({.path = scratch.path("out"), .seed = 0}));
  EXPECT_EQ(told_of(scratch.path("out"), "deepnet", {}), told_of(file, "deepnet", {"layers=2"}));
  const auto again = Model::load({.model = scratch.path("out")});
  ASSERT_TRUE(again) << again.error().message;
  const auto given = again->measure({.weights = scratch.path("out")}), drawn = model->measure();
  ASSERT_TRUE(given && drawn);
  EXPECT_NEAR(*given->loss.measured, *drawn->loss.measured, 1e-6);
}

}  // namespace
}  // namespace stepzero
