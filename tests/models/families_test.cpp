// Every family against what the real classes of transformers 4.57.6 have and do: tensors and their initialization
// (transformers_4.57.json), and loss, gradients and residual stream of tiny models and variants of them (variants.json).
#include <cmath>
#include <map>
#include <set>

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "stepzero/io/file.hpp"
#include "stepzero/kernels/statistics.hpp"
#include "stepzero/models/build.hpp"
#include "stepzero/models/config_export.hpp"
#include "stepzero/models/family.hpp"
#include "stepzero/models/model.hpp"
#include "stepzero/models/rope.hpp"
#include "stepzero/pass/fill_pass.hpp"
#include "stepzero/pass/measure.hpp"
#include "stepzero/signal/describe.hpp"
#include "tests/hostile/scratch.hpp"

namespace stepzero {
namespace {

nlohmann::json golden(const char* name) {
  return nlohmann::json::parse(read_text(std::string(STEPZERO_SOURCE_DIR "/tests/models/") + name, std::uint64_t{1} << 26).value());
}

Expected<Architecture> import(const nlohmann::json& config, std::string_view like = {}) {
  const testing::Scratch scratch;
  return load_model(scratch.put("config.json", config.dump()), like);
}

Architecture resolved(const nlohmann::json& config) {
  auto a = import(config);
  if (!a) throw std::runtime_error(a.error().message);
  if (const auto done = resolve(*a); !done) throw std::runtime_error(done.error().message);
  return *a;
}

// ---- tensors

TEST(Families, HaveTheTensorsOfTheRealClasses) {
  const auto file = golden("transformers_4.57.json");
  std::size_t seen = 0;
  for (const auto& [family, model] : file.items()) {
    ++seen;
    std::map<std::string, std::vector<Index>> want, have;
    for (const auto& [name, facts] : model["tensors"].items()) want[name] = facts[0].get<std::vector<Index>>();
    for (const Param& p : build_graph(resolved(model["config"])).params) EXPECT_TRUE(have.emplace(p.name, p.shape).second) << p.name;
    EXPECT_EQ(have, want) << family;
  }
  EXPECT_GE(seen, 60U);
}

// Two samples of one distribution: the standard deviations differ by less than 6 standard errors.
TEST(Families, AreDrawnAsTheRealClassesDraw) {
  const auto file = golden("transformers_4.57.json");
  const Scheme* hf = find_scheme("hf").value();
  for (const auto& [family, model] : file.items()) {
    const Architecture a = resolved(model["config"]);
    const Graph graph = build_graph(a);
    const Batch batch;
    Pass<float> pass(graph, batch);  // only its weights are used
    draw_weights(pass, graph, a, *hf, 1);
    for (std::size_t i = 0; i < graph.params.size(); ++i) {
      const Param& p = graph.params[i];
      const double theirs = model["tensors"][p.name][1];
      const Moments m = moments(View<const float>(pass.weight(static_cast<int>(i))));
      if (theirs == 0) {
        EXPECT_EQ(m.std(), 0) << family << " " << p.name;
        EXPECT_EQ(m.mean, model["tensors"][p.name][2].get<double>()) << family << " " << p.name;
        continue;
      }
      const double n = static_cast<double>(p.size());
      const double z = (m.std() - theirs) / (theirs * std::sqrt(1 / n) + 5e-6);
      EXPECT_TRUE(std::abs(z) <= 6) << fmt::format("{} {}: std {}, theirs {}, z {:.1f}", family, p.name, m.std(), theirs, z);
      if (p.zero_row >= 0) {
        const View<float> w = pass.weight(static_cast<int>(i));
        for (Index c = 0; c < w.cols; ++c) EXPECT_EQ(w(p.zero_row, c), 0) << family << " " << p.name;
        EXPECT_NE(w((p.zero_row + 1) % w.rows, 0), 0) << family << " " << p.name;
      }
    }
  }
}

// ---- variants

// splitmix64 of (FNV-1a of the name, index), from -1 to 1: weights that need no file.
double weight(const std::string& name, std::uint64_t index) {
  std::uint64_t h = 0xcbf29ce484222325ULL;
  for (const char c : name) h = (h ^ static_cast<unsigned char>(c)) * 0x100000001b3ULL;
  std::uint64_t z = h + (index + 1) * 0x9e3779b97f4a7c15ULL;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
  z = z ^ (z >> 31);
  return static_cast<double>(z >> 40) / 8388608 - 1;
}

void fill_weights(Pass<double>& pass, const Graph& graph) {
  for (std::size_t i = 0; i < graph.params.size(); ++i) {
    const Param& p = graph.params[i];
    const View<double> w = pass.weight(static_cast<int>(i));
    const double spread = p.role == Role::gain || p.role == Role::bias ? 0.3 : 0.5;
    const double centre = p.role == Role::gain ? p.neutral : 0;
    for (Index k = 0; k < w.size(); ++k) w.data[k] = centre + spread * weight(p.name, static_cast<std::uint64_t>(k));
  }
}

Batch batch_of(const nlohmann::json& tokens, bool same) {
  Batch batch;
  batch.sequences = static_cast<Index>(tokens.size());
  batch.length = static_cast<Index>(tokens[0].size()) - 1;
  for (const auto& line : tokens) {
    for (std::size_t t = 0; t + 1 < line.size(); ++t) {
      batch.ids.push_back(line[t]);
      batch.targets.push_back(line[same ? t : t + 1]);
    }
  }
  return batch;
}

// An image's class token is scored, and it alone.
Batch images_of(const nlohmann::json& labels, const Architecture& a) {
  Batch batch;
  batch.sequences = static_cast<Index>(labels.size());
  batch.length = a.positions;
  batch.ids.assign(static_cast<std::size_t>(batch.tokens()), 0);
  batch.targets.assign(static_cast<std::size_t>(batch.tokens()), -1);
  for (std::size_t i = 0; i < labels.size(); ++i) batch.targets[i * static_cast<std::size_t>(a.positions)] = labels[i];
  const Index pixels = batch.sequences * a.colours * a.image * a.image;
  for (Index i = 0; i < pixels; ++i) batch.pixels.push_back(static_cast<float>(weight("pixels", static_cast<std::uint64_t>(i))));
  return batch;
}

Signal measure_case(const nlohmann::json& c) {
  Architecture a = resolved(c["config"]);
  Batch batch = a.image > 0 ? images_of(c["labels"], a) : batch_of(c["tokens"], !a.causal);
  for (const auto& line : c.value("encoder_tokens", nlohmann::json::array())) {
    for (const auto& id : line) batch.encoder_ids.push_back(id);
  }
  choose_rope(a, batch.length);
  const Graph graph = build_graph(a);
  Pass<double> pass(graph, batch);
  fill_weights(pass, graph);
  Signal signal = describe(graph, a, batch);
  measure_pass(pass, graph, batch, signal);
  return signal;
}

void compare_stream(const std::string& name, const std::string& prefix, const Signal& signal, const nlohmann::json& stream) {
  for (std::size_t l = 0; l < stream["m2"].size(); ++l) {
    const auto node = std::ranges::find(signal.nodes, fmt::format("{}stream.{}", prefix, l), &NodeSignal::name);
    ASSERT_NE(node, signal.nodes.end());
    const double norm = *node->backward.norm.measured;
    EXPECT_NEAR(*node->forward.second_moment.measured / stream["m2"][l].get<double>(), 1, 1e-5) << name << " stream " << l;
    EXPECT_NEAR(norm * norm / stream["g2"][l].get<double>(), 1, 1e-5) << name << " stream " << l;
    EXPECT_NEAR(*node->forward.token_cosine.measured, stream["cos"][l].get<double>(), 1e-5) << name << " stream " << l;
  }
}

TEST(Families, VariantsRunAsTheRealClassesDo) {
  const auto cases = golden("variants.json");
  for (const auto& [name, c] : cases.items()) {
    const Signal signal = measure_case(c);
    EXPECT_NEAR(*signal.loss.measured, c["loss"].get<double>(), 1e-5) << name;
    double largest = 0;
    for (const auto& [tensor, norm] : c["gradients"].items()) largest = std::max(largest, norm.get<double>());
    EXPECT_EQ(signal.parameters.size(), c["gradients"].size()) << name;
    for (const ParameterSignal& p : signal.parameters) {
      ASSERT_TRUE(c["gradients"].contains(p.name)) << name << " " << p.name;
      const double theirs = c["gradients"][p.name];
      // a key bias has no gradient but rounding, unless it is turned
      EXPECT_NEAR(*p.gradient_norm.measured, theirs, 1e-5 * theirs + 1e-6 * largest) << name << " " << p.name;
    }
    for (const std::string prefix : {"", "encoder", "decoder"}) {
      const std::string key = prefix.empty() ? "stream" : prefix + "_stream";
      if (c.contains(key)) compare_stream(name, prefix.empty() ? "" : prefix + ".", signal, c[key]);
    }
  }
  EXPECT_GE(cases.size(), 72U);
}

// ---- what the readers say

std::string refusal(const nlohmann::json& config) {
  const auto a = import(config);
  return a ? "accepted" : a.error().message + "\n" + a.error().hint;
}

TEST(Families, AnUnknownFamilyIsToldTheNearest) {
  const std::string text = refusal({{"model_type", "gpt_neoxt"}});
  for (const char* part : {"\"gpt_neoxt\"", "did you mean gpt_neox?", "--like"}) EXPECT_NE(text.find(part), std::string::npos) << text;
  EXPECT_FALSE(import({{"model_type", "mamba"}, {"hidden_size", 64}}, "llama")) << "llama's default sizes are not this model's";
  const auto a = import({{"model_type", "mamba"},
                         {"hidden_size", 64},
                         {"num_hidden_layers", 2},
                         {"num_attention_heads", 4},
                         {"intermediate_size", 96},
                         {"vocab_size", 100}},
                        "llama");
  ASSERT_TRUE(a);
  EXPECT_EQ(a->family, "llama");
  EXPECT_EQ(a->width, 64);
}

TEST(Families, RefuseWhatTheyCannotRun) {
  const nlohmann::json configs = {
      {{"model_type", "bert"}, {"position_embedding_type", "relative_key"}},
      {{"model_type", "bert"}, {"add_cross_attention", true}},
      {{"model_type", "llama"}, {"hidden_act", "xielu"}},
      {{"model_type", "llama"}, {"rope_scaling", {{"rope_type", "mrope"}}}},
      {{"model_type", "llama"}, {"rope_scaling", {{"rope_type", "linear"}}}},
      {{"model_type", "llama"}, {"rope_scaling", {{"rope_type", "longrope"}, {"short_factor", "1"}}}},
      {{"model_type", "llama"}, {"partial_rotary_factor", 0.5}},
      {{"model_type", "llama"}, {"pad_token_id", 32000}},
      {{"model_type", "qwen2"}, {"layer_types", {"chunked_attention"}}, {"num_hidden_layers", 1}},
      {{"model_type", "qwen2"}, {"layer_types", {"full_attention"}}, {"num_hidden_layers", 2}},
      {{"model_type", "gptj"}, {"rotary_dim", nullptr}},
      {{"model_type", "falcon"}, {"num_ln_in_parallel_attn", 2}},
      {{"model_type", "falcon"}, {"new_decoder_architecture", true}, {"parallel_attn", false}},
      {{"model_type", "gemma3_text"}, {"use_bidirectional_attention", true}},
      {{"model_type", "roberta"}, {"pad_token_id", nullptr}},
      {{"model_type", "granite"}, {"logits_scaling", 0}},
      {{"model_type", "gemma3"}, {"hidden_size", 64}, {"text_config", {{"hidden_size", 128}}}},
      {{"model_type", "olmo3"}, {"hidden_size", "64"}},
      {{"model_type", "olmo3"}, {"num_hidden_layers", 2.5}},
      {{"model_type", "olmo3"}, {"layer_types", "full_attention"}},
      {{"model_type", "smollm3"}, {"rope_scaling", {{"rope_type", "linear"}}}},
      {{"model_type", "distilbert"}, {"dim", 64}, {"hidden_size", 128}},
      {{"model_type", "llama"}, {"moe_intermediate_size", 64}},
      {{"model_type", "arcee"}, {"no_rope_layers", {1, 0}}},
      {{"model_type", "clip"}, {"text_config", {{"hidden_size", 64}}}, {"vision_config", {{"hidden_size", 64}}}},
      {{"model_type", "siglip"}, {"architectures", {"SiglipModel"}}, {"vision_config", {{"hidden_size", 64}}}},
      {{"model_type", "apertus"}, {"attn_logit_softcapping", 50.0}},
      {{"model_type", "gpt_oss"}, {"residual_multiplier", 0.5}},
  };
  for (const auto& config : configs) EXPECT_NE(refusal(config), "accepted") << config.dump();
}

// What --set says is written as the family's own key, where there is one.
TEST(Families, SizesOfAFileAreWrittenAsItsKeys) {
  nlohmann::ordered_json config = {{"model_type", "smollm3"}, {"hidden_size", 64}, {"num_attention_heads", 4}, {"vocab_size", 100}};
  EXPECT_EQ(express(config, {"layers=2", "ffn=96", "kv_heads=2", "rope_theta=500.0"}), std::vector<std::string>());
  EXPECT_EQ(config["num_hidden_layers"], 2);
  EXPECT_EQ(config["intermediate_size"], 96);
  EXPECT_EQ(config["num_key_value_heads"], 2);
  EXPECT_EQ(config["rope_theta"], 500.0);
}

TEST(Families, OtherNamesAreReadWithDefaultsOfTheirOwn) {
  const Architecture xlm = resolved({{"model_type", "xlm-roberta"}}), mt5 = resolved({{"model_type", "mt5"}});
  EXPECT_EQ(xlm.family, "roberta");
  EXPECT_EQ(xlm.vocab, 30522);
  EXPECT_EQ(mt5.family, "t5");
  EXPECT_TRUE(mt5.gated && !mt5.tied && mt5.layers == 8);
  const Architecture tower = resolved({{"model_type", "qwen2_vl"},
                                       {"text_config",
                                        {{"model_type", "qwen2_vl_text"},
                                         {"hidden_size", 64},
                                         {"num_attention_heads", 4},
                                         {"num_key_value_heads", 2},
                                         {"rope_scaling", {{"type", "mrope"}, {"mrope_section", {2, 3, 3}}}}}}});
  EXPECT_EQ(tower.family, "qwen2");
  EXPECT_EQ(tower.width, 64);
}

TEST(Families, ReadBothSpellingsOfRotarySettings) {
  const Architecture v4 = resolved(
      {{"model_type", "llama"},
       {"rope_theta", 5e5},
       {"rope_scaling",
        {{"type", "llama3"}, {"factor", 8}, {"low_freq_factor", 1}, {"high_freq_factor", 4}, {"original_max_position_embeddings", 8192}}}});
  const Architecture v5 = resolved({{"model_type", "llama"},
                                    {"rope_parameters",
                                     {{"rope_type", "llama3"},
                                      {"rope_theta", 5e5},
                                      {"factor", 8},
                                      {"low_freq_factor", 1},
                                      {"high_freq_factor", 4},
                                      {"original_max_position_embeddings", 8192}}}});
  EXPECT_EQ(v4.rope_scaling, RopeScaling::llama3);
  EXPECT_EQ(rope_table(v4, 0).frequencies, rope_table(v5, 0).frequencies);
  const Architecture neox =
      resolved({{"model_type", "gpt_neox"}, {"rope_parameters", {{"rope_theta", 500}, {"partial_rotary_factor", 0.5}}}});
  EXPECT_EQ(neox.rotary, neox.head_dim / 2);
  EXPECT_EQ(neox.rope_theta, 500);
  const Architecture gemma = resolved({{"model_type", "gemma3_text"},
                                       {"rope_parameters",
                                        {{"full_attention", {{"rope_type", "linear"}, {"factor", 8}, {"rope_theta", 2e6}}},
                                         {"sliding_attention", {{"rope_theta", 3e4}}}}}});
  EXPECT_EQ(gemma.rope_theta, 2e6);
  EXPECT_EQ(gemma.rope_theta_window, 3e4);
  EXPECT_EQ(rope_table(gemma, 0).base, 3e4);
  EXPECT_TRUE(rope_table(gemma, 0).frequencies.empty());
  EXPECT_EQ(rope_table(gemma, 5).frequencies[0], 0.125);
}

TEST(Families, ReadTheTextModelOfAMultimodalFile) {
  const Architecture a = resolved({{"model_type", "gemma3"},
                                   {"tie_word_embeddings", false},
                                   {"text_config", {{"model_type", "gemma3_text"}, {"hidden_size", 128}, {"num_hidden_layers", 7}}}});
  EXPECT_EQ(a.width, 128);
  EXPECT_FALSE(a.tied);
  EXPECT_TRUE(has_window(a, 0));
  EXPECT_FALSE(has_window(a, 5));
  EXPECT_EQ(a.embedding_scale, std::sqrt(128.0));
}

// A table's row of padding gets no gradient from the lookup; RoBERTa's positions do not count such tokens.
TEST(Families, PaddingHasNoGradient) {
  Batch batch;
  batch.length = 4;
  batch.ids = {5, 1, 5, 2};
  const Tensor<double> dy = [] {
    Tensor<double> t(4, 1);
    for (Index i = 0; i < 4; ++i) t(i, 0) = static_cast<double>(1 << i);
    return t;
  }();
  Tensor<double> table(9, 1), dx(4, 1);
  const Into<double> dtheta[] = {{table.view()}};
  TokenEmbedding{.vocab = 9, .width = 1, .padding = 1}.backward(Up<double>{batch, {}, {}, {}, {}, dy.view(), {}, dtheta});
  EXPECT_EQ(table(1, 0), 0);
  EXPECT_EQ(table(5, 0), 5);
  EXPECT_EQ(table(2, 0), 8);
  const Into<double> into_x[] = {{dx.view()}};
  LearnedPosition{.positions = 7, .width = 1, .offset = 2, .padding = 1}.backward(
      Up<double>{batch, {}, {}, {}, {}, dy.view(), into_x, dtheta});
  EXPECT_EQ(table(1, 0), 0);
  for (const auto& [row, sum] : std::map<Index, double>{{2, 1}, {3, 4}, {4, 8}, {5, 0}}) EXPECT_EQ(table(row, 0), sum) << row;
}

}  // namespace
}  // namespace stepzero
