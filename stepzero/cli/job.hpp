#pragma once
// A run that mpirun started as several processes. They share the work of measure, compare, report and init; the first of them
// alone prints and writes files of results. Started on its own, or built without MPI, a process is alone.
#include <string>

#include "stepzero/core/team.hpp"

namespace stepzero::cli {

// Whether this process prints: the first one, or the only one.
bool speaks();

// Whether to tell of an error. One that comes before the processes have joined is most likely everybody's: the first tells it, and
// its end is the end of all. Who is still there some seconds later has an error of its own.
bool tells_of_error();

// Whether the processes of this run have something to share under this verb. Fails where they have, and the program cannot.
Expected<bool> shares(const std::string& verb);

// Joins the others, at the first call, and takes this process's share of the cores where `threads` is 0. Errors from here on are
// for all (Team::share).
Team join_others(int threads, bool quiet);

// The exit code once all are done: the first process's counts.
int finish(int code);

// Ends all processes, where this one cannot go on with the others.
int give_up(int code);

}  // namespace stepzero::cli
