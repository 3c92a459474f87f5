// A stop word, and how what is thrown in a loop arrives at who runs it.
#include <atomic>
#include <thread>

#include <gtest/gtest.h>

#include "stepzero/core/parallel.hpp"
#include "stepzero/core/stop.hpp"

namespace stepzero {
namespace {

// A loop in a loop that takes much longer than the tests wait.
Expected<int> long_loop() {
  std::atomic<int> n = 0;
  parallel_for(Index{1} << 18, [&](Index) { parallel_for(1000, [&](Index) { ++n; }); });
  return n;
}

TEST(Stop, EndsALoopInALoop) {
  std::atomic<int> asked = 0;
  const auto result = unless_stopped([&] { return ++asked == 5; }, long_loop);
  ASSERT_FALSE(result);
  EXPECT_TRUE(result.error().stopped);
  EXPECT_EQ(asked, 5);
  EXPECT_EQ(stop_word(), nullptr);
  EXPECT_FALSE(in_parallel());
}

TEST(Stop, AYesAtOnceRunsNothing) {
  bool ran = false;
  const auto result = unless_stopped([] { return true; },
                                     [&]() -> Expected<int> {
                                       ran = true;
                                       return 1;
                                     });
  EXPECT_FALSE(result);
  EXPECT_FALSE(ran);
}

TEST(Stop, WithoutAWordItRuns) {
  EXPECT_EQ(unless_stopped({}, []() -> Expected<int> { return 3; }).value(), 3);
}

TEST(Stop, IsOneComputationsOwn) {
  std::atomic<bool> stop = false;
  Expected<int> other = 0;
  std::thread thread([&] { other = unless_stopped([&] { return stop.load(); }, long_loop); });
  std::atomic<int> n = 0;
  parallel_for(100, [&](Index) { ++n; });
  EXPECT_EQ(n, 100);
  stop = true;
  thread.join();
  EXPECT_FALSE(other);
  parallel_for(100, [&](Index) { ++n; });
  EXPECT_EQ(n, 200);
}

TEST(Stop, WhatALoopThrowsArrives) {
  EXPECT_THROW(parallel_for(50,
                            [](Index i) {
                              if (i == 7) throw std::runtime_error("seven");
                            }),
               std::runtime_error);
  EXPECT_FALSE(in_parallel());
}

}  // namespace
}  // namespace stepzero
