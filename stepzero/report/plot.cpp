#include "stepzero/report/plot.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include <fmt/format.h>

#include "stepzero/core/text.hpp"

namespace stepzero {

namespace {

struct Range {
  double low = std::numeric_limits<double>::infinity();
  double high = -std::numeric_limits<double>::infinity();
  bool log = false;

  void include(double v) {
    if (!std::isfinite(v) || (log && v <= 0)) return;
    low = std::min(low, log ? std::log10(v) : v);
    high = std::max(high, log ? std::log10(v) : v);
  }
  [[nodiscard]] double share(double v) const { return high > low ? ((log ? std::log10(v) : v) - low) / (high - low) : 0.5; }
  [[nodiscard]] double at(double share) const {
    const double v = low + share * (high - low);
    return log ? std::pow(10, v) : v;
  }
  [[nodiscard]] bool has(double v) const { return std::isfinite(v) && !(log && v <= 0); }
};

struct Frame {
  Range x, y;
};

Frame frame_of(const Plot& plot) {
  Frame f{{.log = plot.log_x}, {.log = plot.log_y}};
  for (const Curve& c : plot.curves) {
    for (std::size_t i = 0; i < c.x.size(); ++i) {
      if (!f.x.has(c.x[i]) || !f.y.has(c.y[i])) continue;
      f.x.include(c.x[i]);
      f.y.include(c.y[i]);
    }
  }
  for (Range* r : {&f.x, &f.y}) {
    if (!(r->low <= r->high)) r->low = 0, r->high = 1;
    if (r->low == r->high) r->low -= 0.5, r->high += 0.5;
  }
  return f;
}

std::string tick(double v) {
  const double size = std::abs(v);
  if (size < 1e-12) return "0";
  return size < 1e-3 || size >= 1e5 ? fmt::format("{:.0e}", v) : fmt::format("{:.3g}", v);
}

constexpr std::string_view marks = "*o+x#@%&";

constexpr double margin = 62, top = 30, width = 420, height = 240;

std::string svg_axes(const Plot& plot, const Frame& f) {
  std::string out =
      fmt::format("<rect x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\" fill=\"none\" stroke=\"#888\"/>\n", margin, top, width, height);
  for (int i = 0; i <= 4; ++i) {
    const double share = i / 4.0;
    out += fmt::format("<text x=\"{:.1f}\" y=\"{}\" text-anchor=\"middle\">{}</text>\n", margin + share * width, top + height + 16,
                       tick(f.x.at(share)));
    out += fmt::format("<text x=\"{}\" y=\"{:.1f}\" text-anchor=\"end\">{}</text>\n", margin - 6, top + (1 - share) * height + 4,
                       tick(f.y.at(share)));
    if (i > 0 && i < 4) out += fmt::format("<path d=\"M{} {:.1f}h{}\" stroke=\"#ddd\"/>\n", margin, top + (1 - share) * height, width);
  }
  out += fmt::format("<text x=\"{}\" y=\"{}\" text-anchor=\"middle\">{}</text>\n", margin + width / 2, top + height + 34,
                     escaped(plot.x_label));
  out += fmt::format("<text x=\"{}\" y=\"{}\">{}</text>\n", margin, top - 10, escaped(plot.title + " (" + plot.y_label + ")"));
  return out;
}

std::string svg_curve(const Curve& c, const Frame& f, const char* colour) {
  std::string path, dots;
  for (std::size_t i = 0; i < c.x.size(); ++i) {
    if (!f.x.has(c.x[i]) || !f.y.has(c.y[i])) continue;
    const double x = margin + f.x.share(c.x[i]) * width, y = top + (1 - f.y.share(c.y[i])) * height;
    path += fmt::format("{}{:.1f} {:.1f}", path.empty() ? "M" : "L", x, y);
    dots += fmt::format("<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"3.5\" fill=\"{}\"/>\n", x, y, colour);
  }
  return c.line ? fmt::format("<path d=\"{}\" fill=\"none\" stroke=\"{}\" stroke-width=\"1.8\"/>\n", path, colour) : dots;
}

}  // namespace

std::string plot_text(const Plot& plot, int columns, int rows) {
  if (plot.curves.empty()) return "";
  const Frame f = frame_of(plot);
  std::vector<std::string> canvas(static_cast<std::size_t>(rows), std::string(static_cast<std::size_t>(columns), ' '));
  for (std::size_t k = 0; k < plot.curves.size(); ++k) {
    const Curve& c = plot.curves[k];
    for (std::size_t i = 0; i < c.x.size(); ++i) {
      if (!f.x.has(c.x[i]) || !f.y.has(c.y[i])) continue;
      const auto column = static_cast<std::size_t>(std::lround(f.x.share(c.x[i]) * (columns - 1)));
      const auto row = static_cast<std::size_t>(std::lround((1 - f.y.share(c.y[i])) * (rows - 1)));
      canvas[row][column] = marks[k % marks.size()];
    }
  }
  std::string out = fmt::format("{} ({})\n", plot.title, plot.y_label);
  for (int r = 0; r < rows; ++r) {
    const bool labelled = r == 0 || r == rows - 1 || r == rows / 2;
    const double share = 1 - static_cast<double>(r) / (rows - 1);
    out += fmt::format("{:>9} |{}\n", labelled ? tick(f.y.at(share)) : "", canvas[static_cast<std::size_t>(r)]);
  }
  const std::string low = tick(f.x.low == f.x.high ? f.x.low : f.x.at(0)), high = tick(f.x.at(1));
  out += fmt::format("{:>9} +{}\n", "", std::string(static_cast<std::size_t>(columns), '-'));
  out += fmt::format("{:>9}  {}{:^{}}{}\n", "", low, plot.x_label, columns - static_cast<int>(low.size() + high.size()), high);
  for (std::size_t k = 0; k < plot.curves.size(); ++k) out += fmt::format("{:>11} {}\n", marks[k % marks.size()], plot.curves[k].name);
  return out;
}

std::string plot_svg(const Plot& plot) {
  constexpr std::array colours = {"#1f6fb4", "#d1495b", "#2e8b57", "#8e5ea2", "#e08e0b", "#444444", "#17a2b8", "#a0522d"};
  const Frame f = frame_of(plot);
  const double legend = static_cast<double>(plot.curves.size()) * 16;
  std::string out = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {} {}\" width=\"{}\" font-family=\"sans-serif\" font-size=\"11\">\n",
      margin + width + 20, top + height + 50 + legend, margin + width + 20);
  out += "<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n" + svg_axes(plot, f);
  for (std::size_t k = 0; k < plot.curves.size(); ++k) {
    const char* colour = colours[k % colours.size()];
    out += svg_curve(plot.curves[k], f, colour);
    const double y = top + height + 54 + static_cast<double>(k) * 16;
    out += fmt::format("<rect x=\"{}\" y=\"{}\" width=\"14\" height=\"4\" fill=\"{}\"/>\n<text x=\"{}\" y=\"{}\">{}</text>\n", margin,
                       y - 5, colour, margin + 20, y, escaped(plot.curves[k].name));
  }
  return out + "</svg>\n";
}

}  // namespace stepzero
