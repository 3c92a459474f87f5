// init and diff given what they should refuse: a clear message, exit code 2, and nothing on the disk.
#include <sys/resource.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "stepzero/core/text.hpp"
#include "tests/hostile/program.hpp"

namespace stepzero {
namespace {

using ::testing::HasSubstr;
using testing::Program;
using testing::Scratch;
using Args = std::vector<std::string>;

const Args kSmall = {"gpt2", "--set", "layers=1", "--set", "width=32", "--set", "heads=4", "--set", "vocab=97", "--set", "positions=16"};

class Init : public ::testing::Test {
 protected:
  void SetUp() override { ASSERT_EQ(run({"--version"}), 0); }  // makes the files of stdout and stderr

  int run(Args args) {
    Program program(args, scratch_);
    const int code = program.wait();
    out_ = program.out();
    err_ = program.err();
    return code;
  }
  Args tiny(const std::string& path, const Args& more = {}) const {
    Args args = {"init"};
    args.insert(args.end(), kSmall.begin(), kSmall.end());
    args.insert(args.end(), {"-o", path});
    args.insert(args.end(), more.begin(), more.end());
    return args;
  }
  void expect_refused(const Args& args, const Args& words) {
    const std::size_t before = scratch_.files();
    EXPECT_EQ(run(args), 2) << show(err_);
    EXPECT_EQ(out_, "");
    EXPECT_TRUE(err_.starts_with("stepzero: ")) << show(err_);
    for (const std::string& word : words) EXPECT_THAT(err_, HasSubstr(word));
    EXPECT_EQ(scratch_.files(), before);
  }
  [[nodiscard]] std::string path(const std::string& name) const { return scratch_.path(name); }

  Scratch scratch_;
  std::string out_, err_;
};

TEST_F(Init, WrongFlags) {
  expect_refused({"init", "gpt2"}, {"--output is required"});
  expect_refused({"init", "-o", path("x")}, {"MODEL is required"});
  expect_refused(tiny(path("x"), {"--dtype", "f8"}), {"--dtype", "f8", "bf16"});
  expect_refused(tiny(path("x"), {"--seed", "-1"}), {"--seed"});
  expect_refused(tiny(path("x"), {"--seed", "99999999999999999999"}), {"--seed"});
  for (const char* bad : {"0/2", "3/2", "1", "1/", "/2", "a/b", "1/2x", "-1/2"})
    expect_refused(tiny(path("x"), {"--shard", bad}), {"--shard", bad});
  for (const char* bad : {"0", "5XB", "", "GB", "-5MB", "1.5GB", "99999999999999999999"})
    expect_refused(tiny(path("x"), {"--max-shard-size", bad}), {"--max-shard-size"});
  expect_refused(tiny(path("x.safetensors"), {"--shard", "1/2"}), {"--shard 1/2", "directory"});
  expect_refused(tiny(path("x.safetensors"), {"--only", "nosuch*"}), {"nosuch*", "no tensor"});
  expect_refused(tiny(path("x"), {"--scheme", "depnet"}), {"unknown scheme", "deepnet"});
  expect_refused(tiny(path("x"), {"--set", "parallel_block=true", "--scheme", "deepnet"}), {"scheme deepnet", "norm_placement"});
  expect_refused(tiny(path("x"), {"--froce"}), {"--froce", "did you mean --force?"});
  expect_refused(tiny(path("x"), {"--set", "skip_scales=1,2,3"}), {"skip_scales has 3 numbers", "need 2"});
  expect_refused(tiny(path("x"), {"--set", "skip_scales=1,a"}), {"skip_scales", "\"a\""});
}

TEST_F(Init, PlacesThatCannotBeWritten) {
  expect_refused(tiny(path("no/such/folder/x.safetensors")), {"no/such/folder/x.safetensors", "No such file"});
  const std::string file = scratch_.put("plain", "text");
  expect_refused(tiny(file), {"plain", "directory"});
  expect_refused(tiny(file + "/x.safetensors"), {"Not a directory"});
  expect_refused(tiny("/dev/full/x.safetensors"), {"/dev/full", "Not a directory"});
  expect_refused(tiny("/proc/x.safetensors"), {"/proc/x.safetensors"});
  std::filesystem::create_directory(path("dir.safetensors"));
  expect_refused(tiny(path("dir.safetensors")), {"dir.safetensors", "exists"});
  expect_refused(tiny(path("dir.safetensors"), {"--force"}), {"dir.safetensors", "not a regular file"});
}

TEST_F(Init, WhatIsThereIsNotTouched) {
  const std::string old = scratch_.put("x.safetensors", "precious");
  expect_refused(tiny(old), {"x.safetensors: the file exists", "--force"});
  EXPECT_EQ(scratch_.get("x.safetensors"), "precious");
  EXPECT_EQ(run(tiny(old, {"--force"})), 0) << err_;
  EXPECT_NE(scratch_.get("x.safetensors"), "precious");
  std::filesystem::create_directory(path("d"));
  (void)scratch_.put("d/config.json", "{}");
  expect_refused(tiny(path("d")), {"config.json", "says something else", "--force"});
  EXPECT_EQ(scratch_.get("d/config.json"), "{}");
  (void)scratch_.put("d/config.json", "");
  EXPECT_EQ(run(tiny(path("d"), {"--force"})), 0) << err_;
}

// A limit on the size of files stands for a full disk.
TEST_F(Init, AFullDiskLeavesNothing) {
  rlimit old{};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &old), 0);
  rlimit small = old;
  small.rlim_cur = 20'000;
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
  const int code = run(tiny(path("x.safetensors")));
  setrlimit(RLIMIT_FSIZE, &old);
  EXPECT_EQ(code, 2) << err_;
  EXPECT_THAT(err_, HasSubstr("x.safetensors"));
  EXPECT_EQ(scratch_.files(), 2U);
}

TEST_F(Init, AConfigurationWrittenIsTheModelAgain) {
  ASSERT_EQ(run(tiny(path("m"), {"--scheme", "admin", "--seed", "9", "--max-shard-size", "20KB"})), 0) << err_;
  EXPECT_THAT(out_, HasSubstr("skip_scales=1,"));
  EXPECT_EQ(run({"diff", path("m"), path("m/config.json")}), 0) << out_ << err_;  // scheme and seed from the file's own notes
  EXPECT_THAT(out_, HasSubstr("0 not"));
  EXPECT_EQ(run({"diff", path("m"), path("m/config.json"), "--seed", "8"}), 1) << out_ << err_;
  EXPECT_THAT(out_, HasSubstr("other numbers of the same law"));
  EXPECT_EQ(run({"predict", path("m")}), 0) << err_;
  const std::string config = scratch_.get("m/config.json");  // in the family's words where it has some
  for (const char* words : {"\"n_layer\": 1", "\"n_embd\": 32", "\"vocab_size\": 97", "\"scheme\": \"admin\"", "\"norm_placement=post\""})
    EXPECT_THAT(config, HasSubstr(words));
  EXPECT_THAT(config, ::testing::Not(HasSubstr("layers=1")));
  EXPECT_EQ(run({"measure", path("m/config.json"), "--scheme", "admin", "--seq-len", "8"}), 0) << err_;
}

TEST_F(Init, DiffSaysWhat) {
  ASSERT_EQ(run(tiny(path("a.safetensors"))), 0) << err_;
  ASSERT_EQ(run(tiny(path("b.safetensors"), {"--dtype", "bf16"})), 0) << err_;
  ASSERT_EQ(run(tiny(path("c.safetensors"), {"--set", "ffn=64", "--only", "*mlp*"})), 0) << err_;
  EXPECT_EQ(run({"diff", path("a.safetensors"), path("a.safetensors")}), 0);
  EXPECT_EQ(run({"diff", path("a.safetensors"), path("b.safetensors")}), 1);
  EXPECT_THAT(out_, HasSubstr("F32 and BF16; same bits"));
  EXPECT_EQ(run({"diff", path("a.safetensors"), path("c.safetensors")}), 1);
  EXPECT_THAT(out_, HasSubstr("shape [32, 128] and [32, 64]"));
  EXPECT_THAT(out_, HasSubstr("transformer.wte.weight  only on the left: F32 [97, 32]"));
  Args other = {"diff", path("a.safetensors")};
  other.insert(other.end(), kSmall.begin(), kSmall.end());
  other.insert(other.end(), {"--scheme", "he"});
  EXPECT_EQ(run(other), 1) << err_;
  EXPECT_THAT(out_, HasSubstr("another law"));
  expect_refused({"diff", path("nosuch.safetensors"), "gpt2"}, {"nosuch.safetensors", "No such file"});
  expect_refused({"diff", path("a.safetensors"), "gtp2"}, {"unknown model", "gpt2"});
  expect_refused({"diff", path("a.safetensors")}, {"B is required"});
}

TEST_F(Init, AnIndexOfLies) {
  ASSERT_EQ(run(tiny(path("m"), {"--max-shard-size", "20KB"})), 0) << err_;
  const std::string index = scratch_.get("m/model.safetensors.index.json");
  const auto with = [&](const std::string& from, const std::string& to) {
    std::string text = index;
    text.replace(text.find(from), from.size(), to);
    (void)scratch_.put("m/model.safetensors.index.json", text);
  };
  const std::string first = "model-00001-of-";
  for (const char* evil : {"../../etc/model-00001-of-", "/etc/model-00001-of-", "a/model-00001-of-", "..\\\\model-00001-of-"}) {
    with(first, evil);
    expect_refused({"diff", path("m"), "gpt2"}, {"index.json", "not the name of a shard"});
  }
  with("\"transformer.h.0.ln_1.bias\"", "\"transformer.h.0.ln_1.nosuch\"");
  expect_refused({"diff", path("m"), "gpt2"}, {"nosuch", "not in"});
  with("weight_map", "weight_mop");
  expect_refused({"diff", path("m"), "gpt2"}, {"weight_map"});
}

}  // namespace
}  // namespace stepzero
