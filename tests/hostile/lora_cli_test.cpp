// Adapters from the command line: files written and read again, and files that are wrong.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tests/hostile/program.hpp"

namespace stepzero::testing {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;
using Words = std::vector<std::string>;

class LoraCli : public ::testing::Test {
 protected:
  [[nodiscard]] Words tiny(const std::string& verb, const Words& more) const {
    Words out = {verb, "gpt2", "--set", "layers=2", "--set", "width=32", "--set", "heads=2", "--set", "vocab=50"};
    out.insert(out.end(), more.begin(), more.end());
    return out;
  }
  [[nodiscard]] Result run(const std::string& verb, const Words& more) const { return testing::run(tiny(verb, more), scratch_, 120); }
  [[nodiscard]] json measured(Words more) const {
    more.insert(more.end(), {"--seq-len", "8", "--json"});
    const Result r = run("measure", more);
    EXPECT_EQ(r.code, 0) << r.err;
    return json::parse(r.out, nullptr, false);
  }
  // An adapter directory, its configuration changed.
  [[nodiscard]] std::string adapter_with(const json& change) const {
    EXPECT_EQ(run("init", {"--lora", "rank=4,alpha=8", "-o", scratch_.path("adapter"), "--force"}).code, 0);
    json config = json::parse(scratch_.get("adapter/adapter_config.json"));
    config.update(change);
    (void)scratch_.put("adapter/adapter_config.json", config.dump());
    return scratch_.path("adapter");
  }
  Scratch scratch_;
};

TEST_F(LoraCli, WhatInitWritesIsWhatMeasureDraws) {
  const std::string words = "rank=4,alpha=6,roles=query,value,ffn_in,b_std=0.1";
  const Result made = run("init", {"--lora", words, "--seed", "5", "-o", scratch_.path("adapter")});
  ASSERT_EQ(made.code, 0) << made.err;
  ASSERT_EQ(run("init", {"--seed", "5", "-o", scratch_.path("base.safetensors")}).code, 0);
  const json config = json::parse(scratch_.get("adapter/adapter_config.json"));
  EXPECT_EQ(config["peft_type"], "LORA");
  EXPECT_EQ(config["r"], 4);
  EXPECT_EQ(config["lora_alpha"], 6);
  EXPECT_EQ(config["target_modules"], (json{"c_attn", "c_fc"}));
  EXPECT_EQ(config["fan_in_fan_out"], true);
  const json drawn = measured({"--lora", words, "--seed", "5"});
  const Words base = {"--weights", scratch_.path("base.safetensors")};
  for (const Words& more : {Words{"--seed", "5", "--adapter", scratch_.path("adapter")},
                            Words{base[0], base[1], "--seed", "5", "--adapter", scratch_.path("adapter/adapter_model.safetensors")},
                            Words{base[0], base[1], "--seed", "5", "--adapter", scratch_.path("adapter"), "--lora", words},
                            Words{base[0], base[1], "--seed", "5", "--lora", words}}) {
    const json read = measured(more);
    EXPECT_EQ(read["loss"], drawn["loss"]);
    EXPECT_TRUE(read["parameters"] == drawn["parameters"]);
  }
}

// peft compares names by how they end: short ones where they name nothing else.
TEST_F(LoraCli, TargetModulesNameNothingElse) {
  ASSERT_EQ(run("init", {"--lora", "roles=ffn_out", "-o", scratch_.path("adapter")}).code, 0);
  const json config = json::parse(scratch_.get("adapter/adapter_config.json"));
  EXPECT_EQ(config["target_modules"], (json{"transformer.h.0.mlp.c_proj", "transformer.h.1.mlp.c_proj"}));
  const json read = measured({"--adapter", scratch_.path("adapter")});
  EXPECT_TRUE(read["parameters"] == measured({"--lora", "roles=ffn_out"})["parameters"]);
}

TEST_F(LoraCli, ExpectsWhatItWasNotGiven) {
  for (const auto& [change, message] :
       {std::pair(json{{"use_dora", true}}, "\"use_dora\" is not supported"),
        std::pair(json{{"rank_pattern", {{"c_attn", 2}}}}, "\"rank_pattern\""),
        std::pair(json{{"peft_type", "IA3"}}, "peft_type is \"IA3\""), std::pair(json{{"bias", "all"}}, "\"bias\" is \"all\""),
        std::pair(json{{"r", 3}}, "has shape [4, 32], gpt2 needs [3, 32]"), std::pair(json{{"r", -1}}, "\"r\" is -1"),
        std::pair(json{{"r", 1.5}}, "not a whole number"), std::pair(json{{"lora_alpha", "8"}}, "\"lora_alpha\" is \"8\""),
        std::pair(json{{"target_modules", ".*"}}, "not a list of names"),
        std::pair(json{{"target_modules", json::array()}}, "not a list of names"),
        std::pair(json{{"target_modules", {1}}}, "not a list of names"),
        std::pair(json{{"target_modules", {"q_proj"}}}, "module q_proj: there is none"),
        std::pair(json{{"target_modules", {"c_fc"}}}, "c_fc.lora_A.weight\" is missing")}) {
    const Result r = run("measure", {"--seq-len", "8", "--adapter", adapter_with(change)});
    EXPECT_EQ(r.code, 2) << change;
    EXPECT_THAT(r.err, HasSubstr(message)) << change;
  }
  const Result nowhere = run("measure", {"--adapter", scratch_.path("none")});
  EXPECT_EQ(nowhere.code, 2);
  EXPECT_THAT(nowhere.err, HasSubstr("say what they are with --lora"));
  (void)adapter_with(json::object());
  (void)scratch_.put("adapter/adapter_config.json", "[1]");
  EXPECT_EQ(run("measure", {"--adapter", scratch_.path("adapter")}).code, 2);
}

TEST_F(LoraCli, EveryVerbThatTakesAModelTakesIt) {
  for (const char* verb : {"measure", "compare"}) {
    const Result r = run(verb, {"--lora", "rank=2,roles=attention_out", "--seq-len", "8", "--seeds", "2"});
    EXPECT_NE(r.code, 2) << verb << r.err;
    EXPECT_THAT(r.out, HasSubstr("adapters of rank 2 beside 2 matrices")) << verb;
  }
  const Result predicted = run("predict", {"--lora", "rank=2,roles=attention_out", "--seq-len", "8"});
  EXPECT_EQ(predicted.code, 0) << predicted.err;
  EXPECT_THAT(predicted.out, HasSubstr("gradients of A are 0 until B moves"));
  const Result page =
      run("report", {"--lora", "rank=2", "--seq-len", "8", "--compare-schemes", "xavier-normal", "-o", scratch_.path("r.html")});
  EXPECT_EQ(page.code, 0) << page.err;
  EXPECT_THAT(scratch_.get("r.html"), HasSubstr("c_attn.lora_B.weight"));
}

}  // namespace
}  // namespace stepzero::testing
