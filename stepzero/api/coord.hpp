#pragma once
// From a request to a coordinate check: the model at every point of the axis, carried there from a base, and steps of it.
#include <string>
#include <vector>

#include "stepzero/api/transfer.hpp"
#include "stepzero/report/coord.hpp"

namespace stepzero {

// The model at one width or depth, as it is run.
struct CoordPoint {
  double value = 0;
  Architecture architecture;
  Graph graph;
  const Scheme* scheme = nullptr;  // how it is drawn
  RateTable rates;
};

struct CoordRequest {
  ModelRequest model;
  std::vector<Index> widths = {}, depths = {};         // one of them
  Index base = 0;                                      // the point that settings are carried from; 0: the first
  bool grow_heads = false;                             // heads of a fixed number that grow, rather than more of a fixed size
  bool keep_keys = false;                              // key heads of a fixed number
  std::string parametrization = "mup";                 // none: every point as the scheme and the optimizer have it
  std::vector<std::pair<Index, std::string>> at = {};  // a file (scheme and rates) in place of what would be carried to this point
  OptimizerOptions options = {};
  bool zero_output = false, zero_query = false;
  InputOptions input = {};
  bool predicted = false;  // by theory: one step, and no draws
  int steps = 2;
  std::uint64_t seed = 0;
  int seeds = 4;
};

// The points of a request, to be run or spoiled.
Expected<std::vector<CoordPoint>> coord_points(const CoordRequest& request);
// Runs them.
Expected<Coord> check_coordinates(const CoordRequest& request, const std::vector<CoordPoint>& points, const Watch& watch = {});

Expected<CoordSubject> run_coord(const CoordRequest& request, const Watch& watch = {});

}  // namespace stepzero
