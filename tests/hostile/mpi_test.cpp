// Several processes under mpirun give what one gives, to the bit; and whatever happens to one of them, no half of a result is left.
#include <cstdlib>
#include <filesystem>
#include <string>

#include <gtest/gtest.h>
#include <sys/wait.h>

#include "tests/hostile/program.hpp"

namespace stepzero::testing {
namespace {

#ifdef STEPZERO_MPIRUN
constexpr const char* mpirun = STEPZERO_MPIRUN;
#else
constexpr const char* mpirun = "";
#endif

const std::string tiny = " gpt2 --set layers=2 --set width=32 --set heads=4 --set vocab=97 ";
const std::string tiny_pass = tiny + "--seq-len 12 --json ";

// A shell command in the scratch folder, which may run mpirun as root and with more processes than cores.
Result shell(const std::string& command, const Scratch& scratch) {
  const std::string line = "cd " + scratch.path("") +
                           " && OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1 timeout 60 " +
                           command + " >.out 2>.err </dev/null";
  const int status = std::system(line.c_str());
  return {WIFEXITED(status) ? WEXITSTATUS(status) : -1, scratch.get(".out"), scratch.get(".err")};
}

std::string ranks(int n, const std::string& arguments, const std::string& how = "--bind-to none") {
  return std::string(mpirun) + " " + how + " -np " + std::to_string(n) + " " STEPZERO_PROGRAM " " + arguments;
}

std::size_t occurrences(const std::string& text, const std::string& what) {
  std::size_t count = 0;
  for (std::size_t at = text.find(what); at != std::string::npos; at = text.find(what, at + 1)) ++count;
  return count;
}

class Mpi : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!std::filesystem::exists(mpirun)) GTEST_SKIP() << "no mpirun, or a build without MPI (libopenmpi-dev, openmpi-bin)";
  }
  Scratch scratch_;
};

TEST_F(Mpi, RunsOfATrainingAreSpreadOverProcesses) {
  const std::string arguments =
      "train gpt2 --set layers=1 --set width=16 --set heads=2 --seq-len 8 --batch 2 --steps 5 --seeds 3 --compare-schemes xavier-normal "
      "--csv -";
  const Result one = shell(STEPZERO_PROGRAM " " + arguments, scratch_);
  ASSERT_EQ(one.code, 0) << one.err;
  EXPECT_EQ(occurrences(one.out, "\n"), 1U + 2 * 3 * 6);
  for (const int n : {2, 4}) {
    const Result all = shell(ranks(n, arguments), scratch_);
    EXPECT_EQ(all.code, 0) << all.err;
    EXPECT_EQ(all.out, one.out) << n << " processes";
  }
}

TEST_F(Mpi, SameResultFromAnyNumberOfProcesses) {
  for (const std::string more : {"--seeds 5", "--seeds 2 --weightless", "--until-stderr 20% --stream"}) {
    const std::string arguments = "measure" + tiny_pass + more;
    const Result one = shell(STEPZERO_PROGRAM " " + arguments, scratch_);
    ASSERT_EQ(one.code, 0) << one.err;
    for (const int n : {1, 2, 3}) {
      const Result all = shell(ranks(n, arguments + " --csv all.csv"), scratch_);
      EXPECT_EQ(all.code, 0) << all.err;
      EXPECT_EQ(all.out, one.out) << n << " processes, " << more;
      EXPECT_FALSE(scratch_.get("all.csv").empty());
    }
  }
}

TEST_F(Mpi, InitSpreadsShards) {
  const std::string arguments = "init" + tiny + "--max-shard-size 20KB -o weights";
  const Result one = shell(STEPZERO_PROGRAM " " + arguments, scratch_);
  ASSERT_EQ(one.code, 0) << one.err;
  for (const int n : {2, 3}) {
    std::filesystem::rename(scratch_.path("weights"), scratch_.path("by-one"));
    const Result all = shell(ranks(n, arguments), scratch_);
    EXPECT_EQ(all.code, 0) << all.err;
    EXPECT_EQ(all.out, one.out);
    EXPECT_EQ(shell("diff -r by-one weights", scratch_).code, 0) << scratch_.get(".out");
    std::filesystem::remove_all(scratch_.path("by-one"));
  }
  const Result file = shell(ranks(2, "init" + tiny + "-o one.safetensors"), scratch_);
  EXPECT_EQ(file.code, 0) << file.err;
  EXPECT_EQ(occurrences(file.out, "wrote"), 1U);
}

TEST_F(Mpi, ErrorsAreToldOnce) {
  for (const std::string arguments :
       {"measure nonesuch", "measure gpt2 --seds 3", "measure gpt2 --weights nowhere", "init gpt2 -o /proc/none"}) {
    const Result result = shell(ranks(3, arguments), scratch_);
    EXPECT_EQ(result.code, 2) << arguments << result.err;
    EXPECT_EQ(result.out, "");
    EXPECT_EQ(occurrences(result.err, "stepzero: "), 1U) << result.err;
  }
}

TEST_F(Mpi, OtherVerbsAreTheFirstProcesss) {
  const Result one = shell(STEPZERO_PROGRAM " predict" + tiny_pass, scratch_);
  const Result all = shell(ranks(3, "predict" + tiny_pass), scratch_);
  EXPECT_EQ(all.code, 0) << all.err;
  EXPECT_EQ(all.out, one.out);
}

TEST_F(Mpi, DeadProcessEndsTheJob) {
  const std::string endless = "measure" + tiny_pass + "--seeds 1000000 --csv all.csv";
  const Result measured =
      shell(ranks(1, endless) + " : -np 1 sh -c '" STEPZERO_PROGRAM " " + endless + " & sleep 1; kill -9 $!; wait $!'", scratch_);
  EXPECT_NE(measured.code, 0);
  EXPECT_NE(measured.code, 124) << "it went on until the time was over";
  EXPECT_EQ(measured.out, "");
  EXPECT_FALSE(std::filesystem::exists(scratch_.path("all.csv")));
}

// The index is what makes shards a checkpoint: without all of them there is none, and the next run, by any number, makes it whole.
TEST_F(Mpi, DeadProcessLeavesNoCheckpoint) {
  const std::string large = "init gpt2 --set layers=8 --set width=512 --set heads=8 --set vocab=97 --max-shard-size 2MB -o ";
  const std::string arguments = large + "weights";
  const Result broken =
      shell(ranks(1, arguments) + " : -np 1 sh -c '" STEPZERO_PROGRAM " " + arguments + " & sleep 0.2; kill -9 $!; wait $!'", scratch_);
  EXPECT_NE(broken.code, 0);
  EXPECT_NE(broken.code, 124) << "it went on until the time was over";
  EXPECT_FALSE(std::filesystem::exists(scratch_.path("weights/model.safetensors.index.json")));
  const Result again = shell(ranks(3, arguments), scratch_);
  EXPECT_EQ(again.code, 0) << again.err;
  ASSERT_EQ(shell(STEPZERO_PROGRAM " " + large + "by-one", scratch_).code, 0);
  EXPECT_EQ(shell("diff -r by-one weights", scratch_).code, 0) << scratch_.get(".out");
}

TEST_F(Mpi, WarnsOfProcessesPinnedToOneCore) {
  if (std::thread::hardware_concurrency() < 2) GTEST_SKIP() << "one core";
  const std::string arguments = "measure" + tiny_pass + "--seeds 2 --threads 2";
  const Result pinned = shell(ranks(2, arguments, "--bind-to hwthread"), scratch_);
  ASSERT_EQ(pinned.code, 0) << pinned.err;
  EXPECT_EQ(occurrences(pinned.err, "pins each process to one core"), 1U) << pinned.err;
  EXPECT_EQ(occurrences(shell(ranks(2, arguments), scratch_).err, "pins"), 0U);
}

}  // namespace
}  // namespace stepzero::testing
