// stepzero audit as a program: exit codes, JSON, files of every kind, and shards where one file was meant.
#include <cstdlib>
#include <filesystem>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "stepzero/core/random.hpp"
#include "stepzero/kernels/fill.hpp"
#include "tests/hostile/gguf_fixture.hpp"
#include "tests/hostile/program.hpp"
#include "tests/hostile/safetensors_fixture.hpp"

namespace stepzero {
namespace {

using namespace testing;
using ::testing::HasSubstr;
using ::testing::Not;

class AuditCli : public ::testing::Test {
 protected:
  int run(const std::vector<std::string>& args) {
    Program program(args, scratch_);
    const int code = program.wait();
    out_ = program.out();
    err_ = program.err();
    return code;
  }
  [[nodiscard]] std::string path(const std::string& name) const { return scratch_.path(name); }
  void init(const std::string& name, const std::string& scheme, const std::vector<std::string>& more = {}) {
    std::vector<std::string> args = {"init", "gpt2", "--scheme", scheme, "-o", path(name), "--quiet"};
    for (const char* set : {"layers=2", "width=64", "heads=4", "vocab=97", "positions=48"}) args.insert(args.end(), {"--set", set});
    args.insert(args.end(), more.begin(), more.end());
    ASSERT_EQ(run(args), 0) << err_;
  }
  Scratch scratch_;
  std::string out_, err_;
};

TEST_F(AuditCli, SaysWhatItFollows) {
  init("m", "gpt2");
  ASSERT_EQ(run({"audit", path("m")}), 0) << out_ << err_;
  EXPECT_THAT(out_, HasSubstr("scheme   hf"));
  EXPECT_THAT(out_, HasSubstr("or       gpt2: assigns the same law to every tensor of this model"));
  EXPECT_THAT(out_, HasSubstr("nothing stands out"));
  EXPECT_THAT(out_, HasSubstr("gradient norm"));
  ASSERT_EQ(run({"audit", path("m"), "--scheme", "bert"}), 1);
  EXPECT_THAT(out_, HasSubstr("held against bert, as asked"));
  ASSERT_EQ(run({"audit", path("m"), "--scheme", "bert", "--fail-on", "error"}), 0);
}

TEST_F(AuditCli, JsonIsTheContract) {
  init("m", "megatron", {"--dtype", "bf16"});
  ASSERT_EQ(run({"audit", path("m"), "--json"}), 0) << err_;
  const auto j = nlohmann::json::parse(out_);
  EXPECT_EQ(j["schema"], "stepzero.audit/1");
  EXPECT_EQ(j["training"], "at initialization");
  EXPECT_TRUE(j["findings"].empty());
  for (const auto& t : j["tensors"]) {
    for (const char* key :
         {"name", "shape", "dtype", "mean", "std", "skew", "kurtosis", "min", "max", "quantiles", "zeros", "nans", "infs", "subnormals"})
      EXPECT_TRUE(t.contains(key)) << key;
  }
  ASSERT_EQ(run({"audit", path("m"), "--json", "--scheme", "xavier-normal"}), 1);
  for (const auto& f : nlohmann::json::parse(out_)["findings"]) {
    for (const char* key : {"id", "severity", "where", "evidence", "remedy"})
      EXPECT_TRUE(f[key].is_string() && !f[key].get<std::string>().empty());
  }
  ASSERT_EQ(run({"audit", path("m"), "--json", "--moments"}), 0) << err_;
  EXPECT_FALSE(nlohmann::json::parse(out_)["tensors"][0].contains("quantiles"));
}

TEST_F(AuditCli, APageBesideTheText) {
  init("m", "gpt2");
  ASSERT_EQ(run({"audit", path("m"), "--scheme", "bert", "--html", path("a.html")}), 1) << err_;
  EXPECT_THAT(out_, HasSubstr("held against bert, as asked"));
  const std::string html = scratch_.get("a.html");
  EXPECT_THAT(html, HasSubstr("<!doctype html>"));
  EXPECT_THAT(html, HasSubstr("departs-from-scheme"));
  EXPECT_THAT(html, ::testing::Not(HasSubstr("<script")));
  ASSERT_EQ(run({"audit", path("m"), "--html", path("none/a.html")}), 2);
  EXPECT_THAT(err_, HasSubstr("none/a.html"));
}

TEST_F(AuditCli, ThreadsDoNotChangeTheResult) {
  init("m", "he");
  ASSERT_EQ(run({"audit", path("m"), "--json", "--threads", "1"}), 0) << err_;
  const std::string one = out_;
  ASSERT_EQ(run({"audit", path("m"), "--json", "--threads", "2"}), 0) << err_;
  EXPECT_EQ(one, out_);
}

TEST_F(AuditCli, AgainstABaseline) {
  init("a", "gpt2");
  init("b", "gpt2", {"--seed", "5"});
  ASSERT_EQ(run({"audit", path("a"), "--baseline", path("b")}), 0) << err_;
  EXPECT_THAT(out_, HasSubstr("other numbers of the same law"));
  ASSERT_EQ(run({"audit", path("a"), "--baseline", path("a"), "--json"}), 0);
  for (const auto& row : nlohmann::json::parse(out_)["baseline"]) EXPECT_EQ(row["difference"], "");
}

TEST_F(AuditCli, ShardsAreOneCheckpoint) {
  init("one", "gpt2");
  init("many", "gpt2", {"--max-shard-size", "40KB"});
  ASSERT_EQ(run({"audit", path("many"), "--json"}), 0) << err_;
  const auto many = nlohmann::json::parse(out_);
  ASSERT_EQ(run({"audit", path("one"), "--json"}), 0) << err_;
  EXPECT_EQ(nlohmann::json::parse(out_)["tensors"], many["tensors"]);
  std::filesystem::copy(path("one"), path("model"));
  for (const char* weights : {"one", "many"}) {
    ASSERT_EQ(run({"measure", path("model"), "--weights", path(weights), "--seq-len", "16", "--json"}), 0) << err_;
    (void)scratch_.put(std::string(weights) + ".json", out_);
  }
  EXPECT_EQ(scratch_.get("one.json"), scratch_.get("many.json"));
}

TEST_F(AuditCli, GgufOfEveryType) {
  std::string f32(4 * 256 * 64, '\0');
  std::vector<float> x(256 * 64);
  fill(Distribution::normal(0.02), make_stream(1, "t"), 0, std::span<float>(x));
  std::memcpy(f32.data(), x.data(), f32.size());
  const std::uint64_t q8 = 34 * 8 * 64;
  (void)scratch_.put(
      "m.gguf", gguf_bytes({.keys = {key_value("general.architecture", 8, text("llama"))},
                            .tensors = {tensor_info({.name = "token_embd.weight", .dims = {256, 64}}),
                                        tensor_info({.name = "blk.0.attn_q.weight", .dims = {256, 64}, .type = 8, .offset = f32.size()}),
                                        tensor_info({.name = "blk.0.attn_k.weight", .dims = {256}, .type = 10, .offset = f32.size() + q8})},
                            .data = f32 + std::string(q8, '\x11') + std::string(96, '\0')}));
  ASSERT_LE(run({"audit", path("m.gguf"), "--json"}), 1) << err_;
  const auto j = nlohmann::json::parse(out_);
  std::map<std::string, nlohmann::json> tensors;
  for (const auto& t : j["tensors"]) tensors[t["name"]] = t;
  EXPECT_EQ(tensors["token_embd.weight"]["shape"], nlohmann::json({64, 256}));
  EXPECT_NEAR(tensors["token_embd.weight"]["std"].get<double>(), 0.02, 0.001);
  EXPECT_EQ(tensors["blk.0.attn_q.weight"]["dtype"], "Q8_0");
  EXPECT_TRUE(tensors["blk.0.attn_q.weight"]["analysed"].get<bool>());
  EXPECT_FALSE(tensors["blk.0.attn_k.weight"]["analysed"].get<bool>());
  EXPECT_THAT(out_, HasSubstr("not-analysed"));
}

TEST_F(AuditCli, WrongFilesAndFlags) {
  const auto refused = [&](const std::vector<std::string>& args, const std::string& what) {
    EXPECT_EQ(run(args), 2) << out_;
    EXPECT_THAT(err_, HasSubstr(what));
    EXPECT_EQ(out_, "");
  };
  refused({"audit"}, "PATH is required");
  refused({"audit", path("nosuch")}, "No such file");
  refused({"audit", scratch_.put("a.pt", "\x80\x02}q\x01. and so on"), "--quiet"}, "a Python pickle");
  refused({"audit", scratch_.put("a.safetensors", "<html>"), "--quiet"}, "header too small");
  refused({"audit", scratch_.put("a.gguf", "GGUF\x09")}, "version");
  init("m", "gpt2");
  refused({"audit", path("m"), "--scheme", "gtp2"}, "did you mean gpt2");
  refused({"audit", path("m"), "--fail-on", "never"}, "--fail-on");
  refused({"audit", path("m"), "--config", path("nosuch")}, "unknown model");
  refused({"audit", path("m"), "--baseline", path("nosuch")}, "nosuch");
}

TEST_F(AuditCli, AConfigurationOfAnotherModel) {
  init("m", "gpt2");
  EXPECT_EQ(run({"audit", path("m"), "--config", path("m"), "--set", "layers=3"}), 1);
  EXPECT_THAT(out_, HasSubstr("missing-tensor"));
  EXPECT_EQ(run({"audit", path("m"), "--config", path("m"), "--set", "vocab=98"}), 1);
  EXPECT_THAT(out_, HasSubstr("wrong-shape"));
}

TEST_F(AuditCli, NamesThatAttackTheTerminal) {
  const std::string evil = "\\u001b]52;c;ZXZpbA==\\u0007\\u202ereversed\\u009b2J.weight";
  std::vector<float> x(64 * 64);
  fill(Distribution::normal(0.02), make_stream(1, "t"), 0, std::span<float>(x));
  x[3] = NAN;
  const std::string data(reinterpret_cast<const char*>(x.data()), x.size() * 4);
  (void)scratch_.put("m.safetensors", safetensors_bytes("{" + entry(evil, "F32", "64,64", "0,16384") + "}", data));
  EXPECT_EQ(run({"audit", path("m.safetensors"), "--full"}), 1);
  for (const std::string* text : {&out_, &err_}) {
    EXPECT_THAT(*text, Not(HasSubstr("\x1b")));
    EXPECT_THAT(*text, Not(HasSubstr("\x07")));
    EXPECT_THAT(*text, Not(HasSubstr("\xe2\x80\xae")));
    EXPECT_THAT(*text, Not(HasSubstr("\xc2\x9b")));
  }
  EXPECT_THAT(out_, HasSubstr("not-finite"));
}

}  // namespace
}  // namespace stepzero
