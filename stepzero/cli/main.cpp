#include <unistd.h>
#include <algorithm>
#include <array>
#include <csignal>
#include <cstdlib>
#include <exception>
#include <new>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>

#include "stepzero/cli/exit_codes.hpp"
#include "stepzero/cli/job.hpp"
#include "stepzero/cli/run.hpp"
#include "stepzero/cli/say.hpp"
#include "stepzero/core/exceptions.hpp"
#include "stepzero/core/memory.hpp"

namespace {

using namespace stepzero;

// Nothing is half-written at any moment, so leaving at once is safe.
extern "C" void leave(int) { _exit(cli::Exit::interrupted); }

// The verbs that compute for long.
bool computes(const std::vector<std::string>& words) {
  constexpr auto verbs = std::to_array<std::string_view>(
      {"predict", "measure", "compare", "report", "train", "claims", "audit", "coord", "transfer", "step", "solve", "sweep"});
  return !words.empty() && std::ranges::find(verbs, words.front()) != verbs.end();
}

// Threads that spin at a barrier ruin everything on a busy machine (a pass was seen to take ten times as long). libgomp
// reads how long to spin before main runs, so the verbs that compute for long start once more with less.
void spin_less(const std::vector<std::string>& words, char** argv) {
  if (!computes(words) || std::getenv("GOMP_SPINCOUNT") != nullptr || std::getenv("OMP_WAIT_POLICY") != nullptr) return;
  if (setenv("GOMP_SPINCOUNT", "10000", 0) == 0) (void)execv("/proc/self/exe", argv);  // where that fails, go on as we are
}

}  // namespace

int main(int argc, char** argv) {
  std::signal(SIGINT, leave);
  std::signal(SIGPIPE, SIG_IGN);  // a closed pipe is a failed write, told as such
  const std::vector<std::string> words(argv + 1, argv + argc);
  spin_less(words, argv);
  if (computes(words)) keep_freed_memory();
  try {
    return cli::finish(cli::run(words));
  } catch (const NoRoom& error) {
    cli::say("stepzero: {}\n  {}\n", error.what(), no_room_hint);
    return cli::give_up(cli::Exit::usage);
  } catch (const std::bad_alloc&) {
    cli::say("stepzero: out of memory\n  shorten --seq-len or --batch, or make the model smaller\n");
    return cli::give_up(cli::Exit::usage);
  } catch (const std::exception& error) {
    cli::say("stepzero: {}\n", error.what());
    return cli::give_up(cli::Exit::bug);
  }
}
