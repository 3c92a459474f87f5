// Command lines of the program, one after the other in one process: what thousands of predictions need that are shorter than a start.
//
// A model that was predicted before is not predicted again (remembered.hpp): the linker puts *_again in the place of the two functions, and
// brief_json in that of to_json.
// Of a signal as JSON only the head and the findings are printed: the thousands of nodes cost as much as the prediction.
// In: a JSON list of words a line. Out: a line "code bytes bytes", then what went to standard output and to standard error.
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>
#include <cstdio>
#include <exception>
#include <iostream>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "bench/remembered.hpp"
#include "stepzero/cli/run.hpp"
#include "stepzero/core/memory.hpp"

namespace stepzero {

Expected<Signal> predict_anew(const Graph&, const Architecture&, const Batch&, const Scheme&,
                              const PredictOptions&) __asm__("__real_" STEPZERO_PREDICT_ANY);
Expected<Signal> predict_again(const Graph&, const Architecture&, const Batch&, const Scheme&,
                               const PredictOptions&) __asm__("__wrap_" STEPZERO_PREDICT_ANY);
Expected<Profile> profile_anew(const Architecture&, const Scheme&) __asm__("__real_" STEPZERO_PROFILE);
Expected<Profile> profile_again(const Architecture&, const Scheme&) __asm__("__wrap_" STEPZERO_PROFILE);
std::string whole_json(const Signal&) __asm__("__real_" STEPZERO_TO_JSON);
std::string brief_json(const Signal&) __asm__("__wrap_" STEPZERO_TO_JSON);

Expected<Signal> predict_again(const Graph& graph, const Architecture& a, const Batch& batch, const Scheme& scheme,
                               const PredictOptions& options) {
  return bench::remembered(graph, a, batch, scheme, options, [&] { return predict_anew(graph, a, batch, scheme, options); });
}

Expected<Profile> profile_again(const Architecture& a, const Scheme& scheme) {
  return bench::remembered(a, scheme, [&] { return profile_anew(a, scheme); });
}

std::string brief_json(const Signal& signal) {
  Signal brief;
  brief.architecture.name = signal.architecture.name;
  brief.scheme = signal.scheme;
  brief.loss = signal.loss;
  brief.gradient_norm = signal.gradient_norm;
  brief.findings = signal.findings;
  return whole_json(brief);
}

}  // namespace stepzero

namespace {

// A stream of the process, into memory for the length of a command.
class Caught {
 public:
  explicit Caught(int stream) : stream_(stream), before_(dup(stream)), memory_(memfd_create("caught", 0)) { (void)dup2(memory_, stream); }
  Caught(const Caught&) = delete;
  Caught& operator=(const Caught&) = delete;
  ~Caught() {
    (void)dup2(before_, stream_);
    close(before_);
    close(memory_);
  }
  [[nodiscard]] std::string text() const {
    std::string out(static_cast<std::size_t>(lseek(memory_, 0, SEEK_END)), '\0');
    if (pread(memory_, out.data(), out.size(), 0) != static_cast<ssize_t>(out.size())) out.clear();
    return out;
  }

 private:
  int stream_, before_, memory_;
};

struct Result {
  int code = 0;
  std::string out, err;
};

Result run(const std::vector<std::string>& words) {
  const Caught out(STDOUT_FILENO), err(STDERR_FILENO);
  Result r;
  try {
    r.code = stepzero::cli::run(words);
  } catch (const std::exception& error) {
    fmt::print(stderr, "{}\n", error.what());
    r.code = -1;
  }
  (void)std::fflush(stdout);
  (void)std::fflush(stderr);
  r.out = out.text(), r.err = err.text();
  return r;
}

}  // namespace

int main() {
  stepzero::keep_freed_memory();
  for (std::string line; std::getline(std::cin, line);) {
    const Result r = run(nlohmann::json::parse(line).get<std::vector<std::string>>());
    fmt::print("{} {} {}\n{}{}", r.code, r.out.size(), r.err.size(), r.out, r.err);
    (void)std::fflush(stdout);
  }
}
