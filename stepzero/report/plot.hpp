#pragma once
// Curves over one axis: as text for a terminal, as SVG for a page.
#include <string>
#include <vector>

namespace stepzero {

struct Curve {
  std::string name;
  std::vector<double> x;
  std::vector<double> y;
  bool line = true;  // false: marks, as for what was measured
};

struct Plot {
  std::string title;
  std::string x_label;
  std::string y_label;
  bool log_x = false;
  bool log_y = false;
  std::vector<Curve> curves = {};
};

std::string plot_text(const Plot& plot, int columns = 64, int rows = 14);
std::string plot_svg(const Plot& plot);

}  // namespace stepzero
