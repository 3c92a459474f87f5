#include <fcntl.h>
#include <unistd.h>
#include <algorithm>
#include <array>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <new>
#include <string>
#include <string_view>
#include <vector>

#include "stepzero/cli/exit_codes.hpp"
#include "stepzero/cli/job.hpp"
#include "stepzero/cli/run.hpp"
#include "stepzero/core/exceptions.hpp"
#include "stepzero/core/memory.hpp"
#include "stepzero/io/output.hpp"

namespace {

using namespace stepzero;

// Nothing is half-written at any moment, so leaving at once is safe.
extern "C" void leave(int signal) {
  remove_unfinished();
  _exit(128 + signal);  // SIGINT: Exit::interrupted
}

// abort(), which glibc calls too where it gets no memory, has had its word.
extern "C" void end_by_abort(int) {
  remove_unfinished();
  _exit(cli::Exit::bug);
}

int out_of_memory() {
  (void)std::fputs("stepzero: out of memory\n  shorten --seq-len or --batch, or make the model smaller\n", stderr);
  return cli::Exit::usage;
}

// Destructors of JSON values take memory: where there is none, the language has no way back.
[[noreturn]] void end_at_once() {
  remove_unfinished();
  try {
    if (const auto error = std::current_exception()) std::rethrow_exception(error);
  } catch (const std::bad_alloc&) {
    _exit(out_of_memory());
  } catch (...) {  // NOLINT(bugprone-empty-catch): below
  }
  (void)std::fputs("stepzero: ended by an error that nobody has taken\n", stderr);
  _exit(cli::Exit::bug);
}

// libgomp ends the process with code 1 where it gets no thread or no memory. That is no finding, and its message is out.
bool returned = false;
extern "C" void ended_by_a_library() {
  if (returned) return;
  remove_unfinished();
  _exit(cli::Exit::usage);
}

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

// No file may get the number of a standard stream that was closed: messages would go into it. What is written there still fails.
void take_closed_streams() {
  int file = 0;
  while (file >= 0 && file <= STDERR_FILENO) file = ::open("/dev/null", O_RDONLY);
  if (file >= 0) ::close(file);
}

// Prints by what throws nothing: standard error may be full or closed.
int guarded(int argc, char** argv) {
  try {
    const std::vector<std::string> words(argv + 1, argv + argc);
    spin_less(words, argv);
    if (computes(words)) keep_freed_memory();
    return cli::finish(cli::run(words));
  } catch (const NoRoom& error) {
    (void)std::fprintf(stderr, "stepzero: %s\n  %s\n", error.what(), no_room_hint);
    return cli::give_up(cli::Exit::usage);
  } catch (const std::bad_alloc&) {
    return cli::give_up(out_of_memory());
  } catch (const std::exception& error) {
    (void)std::fprintf(stderr, "stepzero: %s\n", error.what());
    return cli::give_up(cli::Exit::bug);
  }
}

}  // namespace

int main(int argc, char** argv) {
  take_closed_streams();
  std::set_terminate(end_at_once);
  std::signal(SIGABRT, end_by_abort);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) {
    if (std::signal(signal, leave) == SIG_IGN) std::signal(signal, SIG_IGN);  // nohup
  }
  std::signal(SIGPIPE, SIG_IGN);  // a closed pipe is a failed write, told as such
  (void)std::atexit(ended_by_a_library);
  const int code = guarded(argc, argv);
  returned = true;
  return code;
}
