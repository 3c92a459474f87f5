#pragma once
// The program, started from a test.
#include <chrono>
#include <csignal>
#include <string>
#include <thread>
#include <vector>

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/hostile/scratch.hpp"

extern char** environ;

namespace stepzero::testing {

// Where stdout goes: to a file that out() reads, or to the path or descriptor given.
struct Output {
  std::string path = {};
  int descriptor = -1;
};

// Ends with the object.
class Program {
 public:
  Program(const std::vector<std::string>& args, const Scratch& scratch, const Output& output = {}) : scratch_(scratch) {
    std::vector<char*> argv = {const_cast<char*>(STEPZERO_PROGRAM)};
    for (const std::string& arg : args) argv.push_back(const_cast<char*>(arg.c_str()));
    argv.push_back(nullptr);
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
    const std::string path = output.path.empty() ? scratch.path(".out") : output.path;
    if (output.descriptor >= 0)
      posix_spawn_file_actions_adddup2(&actions, output.descriptor, 1);
    else
      posix_spawn_file_actions_addopen(&actions, 1, path.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
    posix_spawn_file_actions_addopen(&actions, 2, scratch.path(".err").c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
    if (posix_spawn(&pid_, STEPZERO_PROGRAM, &actions, nullptr, argv.data(), environ) != 0) pid_ = -1;
    posix_spawn_file_actions_destroy(&actions);
  }
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;
  ~Program() {
    if (pid_ > 0) {
      ::kill(pid_, SIGKILL);
      ::waitpid(pid_, nullptr, 0);
    }
  }

  [[nodiscard]] pid_t pid() const { return pid_; }
  void signal(int number) const { ::kill(pid_, number); }

  // Its exit code, 1000 + signal, or -1 when it took longer.
  int wait(double seconds = 60) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
    while (pid_ > 0 && std::chrono::steady_clock::now() < end) {
      int status = 0;
      if (::waitpid(pid_, &status, WNOHANG) == pid_) {
        pid_ = -1;
        return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    return -1;
  }

  [[nodiscard]] std::string out() const { return scratch_.get(".out"); }
  [[nodiscard]] std::string err() const { return scratch_.get(".err"); }

 private:
  const Scratch& scratch_;
  pid_t pid_ = -1;
};

struct Result {
  int code = -1;    // exit code, or 1000 + signal, or -1 when it had to be ended
  std::string out;  // stdout, unless it went elsewhere
  std::string err;  // stderr
};

inline Result run(const std::vector<std::string>& args, const Scratch& scratch, double seconds = 60, const Output& output = {}) {
  Program program(args, scratch, output);
  const int code = program.wait(seconds);
  return {code, output.path.empty() ? program.out() : "", program.err()};
}

}  // namespace stepzero::testing
