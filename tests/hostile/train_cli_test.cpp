// train from outside: the same bits whoever computes them and however often it is killed; and what cannot be trained is said.
#include <cstdlib>
#include <filesystem>
#include <regex>
#include <tuple>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <nlohmann/json.hpp>

#include "tests/hostile/program.hpp"

namespace stepzero::testing {
namespace {

using Words = std::vector<std::string>;

// A small model on the text of the program itself, and what its updates need.
Words train_words(Words more = {}) {
  Words words = {"train",   "gpt2",      "--set", "layers=2", "--set", "width=32", "--set",
                 "heads=4", "--seq-len", "12",    "--batch",  "4",     "--json"};
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

// How fast it was is no result.
std::string without_speed(const std::string& text) { return std::regex_replace(text, std::regex("\"tokens_per_second\": [^\n]*"), ""); }

nlohmann::json train_result(const Result& r) {
  EXPECT_EQ(r.code, 0) << r.err;
  return nlohmann::json::parse(r.out, nullptr, false);
}

TEST(TrainCli, SaysWhatTheContractAsks) {
  Scratch scratch;
  const auto document = train_result(run(train_words({"--steps", "20", "--seeds", "2", "--warmup", "4", "--schedule", "cosine"}), scratch));
  EXPECT_EQ(document["schema"], "stepzero.train/1");
  EXPECT_EQ(document["model"]["vocab"], 256);
  EXPECT_EQ(document["optimizer"]["name"], "adamw");
  ASSERT_EQ(document["runs"].size(), 2U);
  for (const auto& r : document["runs"]) {
    ASSERT_EQ(r["steps"].size(), 21U);  // one more than updates
    EXPECT_NEAR(r["steps"][0]["loss"].get<double>(), std::log(256.0), 0.2);
    EXPECT_LT(r["steps"][20]["loss"], r["steps"][0]["loss"]);
    EXPECT_EQ(r["steps"][0]["rate"], 0.00025);
    EXPECT_TRUE(r["steps"][20]["gradient_norm"].is_null());
    EXPECT_EQ(r["validation"].front()["step"], 0);
    EXPECT_EQ(r["validation"].back()["step"], 20);
    EXPECT_EQ(r["outcome"], "fine");
    EXPECT_TRUE(r["where"].is_null());
  }
  EXPECT_NE(document["runs"][0]["steps"][5]["loss"], document["runs"][1]["steps"][5]["loss"]);
}

TEST(TrainCli, HasTheSameBitsForAnyNumberOfThreads) {
  Scratch scratch;
  for (const char* optimizer : {"adamw", "muon"}) {
    Words words = train_words({"--steps", "8", "--seeds", "2", "--clip", "1", "--optimizer", optimizer, "--threads", "1"});
    const Result one = run(words, scratch);
    ASSERT_EQ(one.code, 0) << one.err;
    for (const char* threads : {"2", "3", "7"}) {
      words.back() = threads;
      EXPECT_EQ(without_speed(run(words, scratch).out), without_speed(one.out)) << optimizer << " " << threads;
    }
  }
}

TEST(TrainCli, GoesOnToTheBitHoweverOftenItIsKilled) {
  Scratch scratch;
  Words words = train_words({"--steps", "60", "--save-every", "3", "--validate-every", "20", "--threads", "1"});
  Words whole = words, broken = words;
  whole.insert(whole.end(), {"--save", scratch.path("whole")});
  broken.insert(broken.end(), {"--save", scratch.path("broken")});
  const Result undisturbed = run(whole, scratch);
  ASSERT_EQ(undisturbed.code, 0) << undisturbed.err;
  int kills = 0;
  for (int delay = 15; kills < 6; delay = 10 + (delay * 37) % 90, ++kills) {
    Program program(broken, scratch);
    std::this_thread::sleep_for(std::chrono::milliseconds(delay));
    program.signal(SIGKILL);
    program.wait();
    if (std::filesystem::is_directory(scratch.path("broken"))) broken[broken.size() - 2] = "--resume";
  }
  const Result last = run(broken, scratch);
  ASSERT_EQ(last.code, 0) << last.err;
  EXPECT_EQ(without_speed(last.out), without_speed(undisturbed.out));
  for (const char* file : {"model.safetensors", "config.json"}) {
    EXPECT_EQ(scratch.get(std::string("broken/") + file), scratch.get(std::string("whole/") + file)) << file;
  }
  for (const auto& entry : std::filesystem::directory_iterator(scratch.path("broken"))) {
    EXPECT_FALSE(entry.path().filename().string().starts_with(".")) << "left behind: " << entry.path();
  }
}

TEST(TrainCli, IsTrainedFurtherThanItWasMeantToBe) {
  Scratch scratch;
  const Words base = train_words({"--validate-every", "10"});
  const auto with = [&](Words more) {
    Words words = base;
    words.insert(words.end(), more.begin(), more.end());
    return run(words, scratch);
  };
  const Result whole = with({"--steps", "20"});
  ASSERT_EQ(with({"--steps", "10", "--save", scratch.path("run")}).code, 0);
  const Result further = with({"--steps", "20", "--resume", scratch.path("run")});
  EXPECT_EQ(without_speed(further.out), without_speed(whole.out)) << further.err;
}

TEST(TrainCli, WeightsThatItSavedLoadAnywhere) {
  Scratch scratch;
  const auto trained = train_result(run(train_words({"--steps", "12", "--save", scratch.path("run"), "--validation", "0"}), scratch));
  std::ignore = scratch.put("ids.txt", "1 2 3 4 5 6 7\n");
  const Result measured = run(
      {"measure", scratch.path("run"), "--weights", scratch.path("run/model.safetensors"), "--tokens", scratch.path("ids.txt"), "--json"},
      scratch);
  ASSERT_EQ(measured.code, 0) << measured.err;
  EXPECT_EQ(train_result(measured)["model"]["layers"], 2);
  // from the trained weights the loss begins where it ended, but for another batch
  const auto again = train_result(run({"train", scratch.path("run"), "--weights", scratch.path("run/model.safetensors"), "--steps", "0",
                                       "--seq-len", "12", "--batch", "4", "--validation", "0", "--json"},
                                      scratch));
  EXPECT_LT(again["runs"][0]["steps"][0]["loss"].get<double>(), trained["runs"][0]["steps"][2]["loss"].get<double>());
}

TEST(TrainCli, AdaptersAloneAreTrainedAndSaved) {
  Scratch scratch;
  const Words model = {"gpt2", "--set", "layers=2", "--set", "width=32", "--set", "heads=4", "--set", "vocab=20"};
  std::ignore = scratch.put("ids.txt", "1 2 3 4 5 6\n7 8 9 10 11 12\n");
  const auto call = [&](Words words, const Words& more) {
    words.insert(words.end(), model.begin(), model.end());
    words.insert(words.end(), more.begin(), more.end());
    return run(words, scratch);
  };
  ASSERT_EQ(call({"init"}, {"-o", scratch.path("base")}).code, 0);
  const std::string weights = scratch.path("base/model.safetensors"), lora = "rank=4,alpha=8,roles=query,value,ffn_out";
  const Words how = {"--weights", weights, "--tokens", scratch.path("ids.txt"), "--json"};
  Words training = how;
  training.insert(training.end(), {"--lora", lora, "--steps", "30", "--rate", "0.02", "--save", scratch.path("adapter")});
  const auto trained = train_result(call({"train"}, training));
  const auto& steps = trained["runs"][0]["steps"];
  EXPECT_LT(steps[30]["loss"].get<double>(), steps[0]["loss"].get<double>() - 0.1);
  EXPECT_TRUE(std::filesystem::exists(scratch.path("adapter/adapter_config.json")));
  EXPECT_FALSE(std::filesystem::exists(scratch.path("adapter/model.safetensors")));
  EXPECT_LT(std::filesystem::file_size(scratch.path("adapter/adapter_model.safetensors")), std::filesystem::file_size(weights) / 4);
  Words again = how;
  again.insert(again.end(), {"--adapter", scratch.path("adapter")});
  const auto measured = train_result(call({"measure"}, again));
  EXPECT_NEAR(measured["loss"]["measured"].get<double>(), steps[30]["loss"].get<double>(), 1e-6);
}

TEST(TrainCli, IdsComeInTheirOrder) {
  Scratch scratch;
  std::ignore = scratch.put("ids.txt", "1 2 3 4 5\n6 7 8 9 10\n11 12 13 14 15\n");
  const Words base = {"train",
                      "gpt2",
                      "--set",
                      "layers=1",
                      "--set",
                      "width=16",
                      "--set",
                      "heads=2",
                      "--set",
                      "vocab=20",
                      "--json",
                      "--tokens",
                      scratch.path("ids.txt"),
                      "--rate",
                      "0",
                      "--steps"};
  const auto losses = [&](Words more) {
    Words words = base;
    words.insert(words.end(), more.begin(), more.end());
    std::vector<double> out;
    const auto document = train_result(run(words, scratch));
    for (const auto& s : document["runs"][0]["steps"]) out.push_back(s["loss"]);
    return out;
  };
  const auto one = losses({"5", "--batch", "1"});  // with a rate of 0 the loss tells which line it was
  EXPECT_EQ(one[0], one[3]);
  EXPECT_EQ(one[1], one[4]);
  EXPECT_NE(one[0], one[1]);
  const auto all = losses({"2"});
  EXPECT_EQ(all[0], all[1]);
  EXPECT_NEAR(all[0], (one[0] + one[1] + one[2]) / 3, 1e-5);
}

TEST(TrainCli, ARunThatDivergesEndsAndSaysWhere) {
  Scratch scratch;
  const Result r = run(train_words({"--steps", "200", "--optimizer", "sgd", "--rate", "1e9"}), scratch);
  EXPECT_EQ(r.code, 3);
  const auto document = nlohmann::json::parse(r.out, nullptr, false);
  const auto& only = document["runs"][0];
  EXPECT_EQ(only["outcome"], "diverged");
  EXPECT_LT(only["steps"].size(), 50U);
  EXPECT_TRUE(only["where"].is_string());
}

TEST(TrainCli, SaysWhatCannotBeTrained) {
  Scratch scratch;
  std::ignore = scratch.put("empty.txt", "");
  std::ignore = scratch.put("short.txt", "too short");
  std::ignore = scratch.put("broken.txt", "caf\xe9 caf\xe9");
  std::ignore = scratch.put("rates.json", R"({"schema": "stepzero.rates/1", "rates": [{"tensor": "nowhere", "rate": 1}]})");
  std::filesystem::create_directory(scratch.path("nothing"));
  ASSERT_EQ(run(train_words({"--steps", "2", "--save", scratch.path("run")}), scratch).code, 0);
  struct Case {
    Words words;
    const char* says;
  };
  const std::string text = scratch.path("short.txt");
  for (const Case& c : std::initializer_list<Case>{
           {train_words({"--text", scratch.path("missing.txt")}), "missing.txt"},
           {train_words({"--text", scratch.path("empty.txt")}), "no text in it"},
           {train_words({"--text", scratch.path("nothing")}), "no text in it"},
           {train_words({"--text", text}), "a sequence needs 13"},
           {train_words({"--text", scratch.path("broken.txt"), "--level", "char"}), "not UTF-8"},
           {train_words({"--level", "word"}), "byte, char, or bpe:tokenizer.json"},
           {train_words({"--set", "vocab=100"}), "a vocabulary of 256"},
           {train_words({"--rate", "nan"}), "--rate"},
           {train_words({"--rate", "-1"}), "--rate"},
           {train_words({"--optimizer", "adam"}), "adamw"},
           {train_words({"--betas", "0.9"}), "two numbers"},
           {train_words({"--betas", "0.9,1"}), "--betas"},
           {train_words({"--validation", "2"}), "share"},
           {train_words({"--rates", scratch.path("rates.json")}), "fits no tensor"},
           {{"train", "gpt2", "--seq-len", "5000"}, "positions"},
           {train_words({"--resume", scratch.path("nowhere")}), "no such directory"},
           {train_words({"--save", scratch.path("run")}), "--resume"},
           {train_words({"--steps", "2", "--resume", scratch.path("run"), "--rate", "0.5"}), "its optimizer is"},
           {train_words({"--steps", "2", "--resume", scratch.path("run"), "--set", "width=64"}), "another run"},
           {train_words({"--weights", scratch.path("run/model.safetensors"), "--set", "width=64", "--set", "vocab=256"}), "shape"},
           {{"train", "vit-base"}, "images"}}) {
    const Result r = run(c.words, scratch);
    EXPECT_EQ(r.code, 2) << c.says << r.err;
    EXPECT_EQ(r.out, "") << c.says;
    EXPECT_THAT(r.err, ::testing::HasSubstr(c.says));
    EXPECT_GE(std::ranges::count(r.err, '\n'), 1) << c.says;
  }
}

}  // namespace
}  // namespace stepzero::testing
