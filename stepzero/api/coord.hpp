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

// The points of a request, to be run or spoiled.
Expected<std::vector<CoordPoint>> coord_points(const ModelRequest& model, const CoordRequest& request);
// Runs them.
Expected<Coord> check_coordinates(const CoordRequest& request, const std::vector<CoordPoint>& points, const Watch& watch = {});

}  // namespace stepzero
