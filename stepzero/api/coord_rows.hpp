#pragma once
// The rows of a coordinate check, gathered from the signals of its draws, each with the slope that is demanded of it.
#include <map>
#include <string>
#include <vector>

#include "stepzero/api/coord.hpp"
#include "stepzero/signal/coord.hpp"

namespace stepzero {

class CoordRows {
 public:
  CoordRows(const CoordRequest& request, std::size_t points);

  // One draw of one point.
  void add(std::size_t point, const CoordPoint& at, const OptimizerOptions& settled, const Signal& signal);
  // Those that every draw of every point has.
  std::vector<CoordRow> take();

 private:
  // Root mean squares over what bears one name.
  struct Pool {
    double squares = 0;
    int count = 0;

    void add(double x) { squares += x * x, ++count; }
    [[nodiscard]] double root() const;
  };

  void starts(const CoordPoint& at, const Signal& s);
  void tables(const CoordPoint& at, const Signal& s);
  void settings(const CoordPoint& at, const OptimizerOptions& options, const Signal& s);
  void step(const CoordPoint& at, const StepSignal& s, int t);
  void effect(const CoordPoint& at, std::size_t i, double x, int t);
  void pool(const CoordRow& row, double x) { pools_[key_of(row)].add(x); }
  std::size_t key_of(const CoordRow& row);

  const CoordRequest& request_;
  std::size_t points_;
  bool width_ = true, carried_ = false;
  Parametrization parametrization_ = Parametrization::mup;
  double alpha_ = 0;
  std::map<std::string, std::size_t> keys_;
  std::map<std::size_t, CoordRow> rows_;
  std::map<std::size_t, Pool> pools_;
  std::vector<std::size_t> order_;
};

}  // namespace stepzero
