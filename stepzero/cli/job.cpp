#include "stepzero/cli/job.hpp"

#include <sched.h>
#include <unistd.h>
#include <algorithm>
#include <array>
#include <cstdlib>
#include <string_view>

#include <fmt/format.h>
#ifdef STEPZERO_MPI
#include <mpi.h>
#endif

#include "stepzero/cli/command.hpp"
#include "stepzero/core/parallel.hpp"

namespace stepzero::cli {

namespace {

bool joined() {
#ifdef STEPZERO_MPI
  int yes = 0;
  MPI_Initialized(&yes);
  return yes != 0;
#else
  return false;
#endif
}

// What the launcher says, of Open MPI or of one that speaks PMI; known before MPI itself is started.
int told(std::initializer_list<const char*> names, int otherwise) {
  for (const char* name : names) {
    if (const char* value = std::getenv(name)) return std::atoi(value);
  }
  return otherwise;
}

int rank_here() { return told({"OMPI_COMM_WORLD_RANK", "PMI_RANK"}, 0); }
int size_here() { return std::max(1, told({"OMPI_COMM_WORLD_SIZE", "PMI_SIZE"}, 1)); }
int neighbours() { return std::max(1, told({"OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS"}, size_here())); }

}  // namespace

bool speaks() { return rank_here() == 0; }

bool tells_of_error() {
  if (speaks()) return true;
  if (joined()) return false;
  constexpr unsigned patience = 10;  // seconds
  sleep(patience);
  return true;
}

Expected<bool> shares(const std::string& verb) {
  constexpr auto verbs = std::to_array<std::string_view>({"measure", "compare", "report", "init", "train", "sweep"});
  const bool can = size_here() > 1 && std::ranges::find(verbs, verb) != verbs.end();
#ifndef STEPZERO_MPI
  if (can) {
    return fail(fmt::format("{} processes were started, but this stepzero was built without MPI: each would do all the work", size_here()),
                "install libopenmpi-dev and build again, or start one process");
  }
#endif
  return can;
}

#ifdef STEPZERO_MPI

namespace {

// Lengths first, then all the bytes.
std::vector<std::string> exchange(const std::string& own) {
  const auto size = static_cast<std::size_t>(size_here());
  const int length = static_cast<int>(own.size());
  std::vector<int> lengths(size), starts(size, 0);
  MPI_Allgather(&length, 1, MPI_INT, lengths.data(), 1, MPI_INT, MPI_COMM_WORLD);
  for (std::size_t i = 1; i < size; ++i) starts[i] = starts[i - 1] + lengths[i - 1];
  std::string all(static_cast<std::size_t>(starts.back() + lengths.back()), '\0');
  MPI_Allgatherv(own.data(), length, MPI_CHAR, all.data(), lengths.data(), starts.data(), MPI_CHAR, MPI_COMM_WORLD);
  std::vector<std::string> parts;
  for (std::size_t i = 0; i < size; ++i)
    parts.push_back(all.substr(static_cast<std::size_t>(starts[i]), static_cast<std::size_t>(lengths[i])));
  return parts;
}

int cores_allowed() {
  cpu_set_t set;
  CPU_ZERO(&set);
  return sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
}

// Each process of this machine takes its share of the cores, as far as the launcher lets it.
void share_cores(int threads, bool quiet) {
  const int cores = static_cast<int>(sysconf(_SC_NPROCESSORS_ONLN)), allowed = cores_allowed();
  const int wanted = threads > 0 ? threads : std::max(1, cores / neighbours());
  set_threads(threads > 0 ? threads : std::min(wanted, allowed));
  if (wanted > 1 && allowed == 1 && speaks() && !quiet) {
    tell(
        fmt::format("stepzero: warning: the launcher pins each process to one core of {}, its {} threads would share it\n"
                    "  mpirun --bind-to none lets them use the others\n",
                    cores, wanted));
  }
}

}  // namespace

Team join_others(int threads, bool quiet) {
  if (size_here() == 1) return {};
  if (!joined()) {
    int level = 0;
    MPI_Init_thread(nullptr, nullptr, MPI_THREAD_FUNNELED, &level);
    share_cores(threads, quiet);
  }
  return {rank_here(), size_here(), exchange};
}

int finish(int code) {
  if (!joined()) return code;
  MPI_Barrier(MPI_COMM_WORLD);  // or the launcher ends the first before it has printed
  MPI_Finalize();
  return speaks() ? code : 0;
}

int give_up(int code) {
  if (joined()) MPI_Abort(MPI_COMM_WORLD, code);
  return code;
}

#else

Team join_others(int, bool) { return {}; }
int finish(int code) { return code; }
int give_up(int code) { return code; }

#endif

}  // namespace stepzero::cli
