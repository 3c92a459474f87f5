#include "stepzero/report/sweep.hpp"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "stepzero/core/text.hpp"
#include "stepzero/report/json_parts.hpp"
#include "stepzero/report/plot.hpp"

namespace stepzero {

namespace {

using Ink = Look::Ink;

std::size_t index_of(const std::string& name) {
  const auto all = solve::quantities();
  const auto it = std::ranges::find(all, name, [](const solve::Quantity& q) { return std::string(q.name); });
  return static_cast<std::size_t>(it - all.begin());
}

double mean(const std::vector<double>& list) {
  double sum = 0;
  for (const double x : list) sum += x / static_cast<double>(list.size());
  return list.empty() ? NAN : sum;
}

double value_of(const SweepCell& cell, std::size_t quantity) {
  if (quantity < cell.quantities.size()) return cell.quantities[quantity];
  return cell.trained ? mean(cell.trained->last) : NAN;
}

std::size_t columns_of(const SweepSubject& s) { return s.axes.size() == 2 ? s.axes[1].values.size() : 1; }

const SweepCell& cell(const SweepSubject& s, std::size_t i, std::size_t j) { return s.cells[i * columns_of(s) + j]; }

// Cells that a level line passes: the critical value lies between this one and its neighbour to the right or below.
bool on_line(const SweepSubject& s, std::size_t quantity, const std::vector<double>& critical, std::size_t i, std::size_t j) {
  const double here = value_of(cell(s, i, j), quantity);
  const auto between = [&](std::size_t k, std::size_t l) {
    const double there = value_of(cell(s, k, l), quantity);
    return std::ranges::any_of(critical, [&](double c) { return (here - c) * (there - c) < 0; });
  };
  return (i + 1 < s.axes[0].values.size() && between(i + 1, j)) || (j + 1 < columns_of(s) && between(i, j + 1));
}

struct Shades {
  double low = INFINITY, high = -INFINITY;
  bool logarithmic = false;

  [[nodiscard]] double scaled(double x) const { return logarithmic ? std::log(std::max(x, 1e-300)) : x; }
  void see(double x) {
    if (!std::isfinite(scaled(x))) return;
    low = std::min(low, scaled(x));
    high = std::max(high, scaled(x));
  }
  [[nodiscard]] double share(double x) const { return high > low ? std::clamp((scaled(x) - low) / (high - low), 0.0, 1.0) : 0; }
};

// The first axis goes up, the second to the right. Rows and columns are chosen evenly where they are more than fit.
std::string heat_map(const SweepSubject& s, std::size_t quantity, const Shades& shades, const std::vector<double>& critical,
                     const Look& look) {
  static constexpr const char* plain[] = {" ", ".", ":", "-", "=", "+", "*", "#", "%", "@"};
  static constexpr const char* blocks[] = {" ", "·", "░", "░", "▒", "▒", "▓", "▓", "█", "█"};
  std::size_t margin = 0;
  for (const std::string& v : s.axes[0].values) margin = std::max(margin, columns(v));
  const std::size_t rows = s.axes[0].values.size(), width = columns_of(s);
  const std::size_t room = look.width > margin + 12 ? look.width - margin - 4 : 8;
  const std::size_t wide = std::max<std::size_t>(1, std::min<std::size_t>(3, room / width)), step = (width + room - 1) / room,
                    rise = (rows + 31) / 32;
  std::string out;
  for (std::size_t r = 0; r < rows; r += rise) {
    const std::size_t i = rows - 1 - r;
    out += right(s.axes[0].values[i], margin) + " |";
    for (std::size_t j = 0; j < width; j += step) {
      const double x = value_of(cell(s, i, j), quantity);
      bool line = false;
      for (std::size_t a = i + 1 >= rise ? i + 1 - rise : 0; a <= i; ++a) {
        for (std::size_t b = j; b < std::min(j + step, width); ++b) line = line || on_line(s, quantity, critical, a, b);
      }
      const auto shade = static_cast<std::size_t>(std::lround(shades.share(x) * 9));
      const std::string mark = !std::isfinite(shades.scaled(x)) ? "x" : line ? "o" : look.unicode ? blocks[shade] : plain[shade];
      for (std::size_t k = 0; k < wide; ++k) out += line ? look.paint(Ink::accent, mark) : mark;
    }
    out += "\n";
  }
  const std::size_t shown = (width + step - 1) / step * wide;
  out += std::string(margin, ' ') + " +" + std::string(shown, '-') + "\n";
  const std::string first = s.axes.size() == 2 ? s.axes[1].values.front() : "", last = s.axes.size() == 2 ? s.axes[1].values.back() : "";
  out += std::string(margin + 2, ' ') + left(first, shown > columns(last) ? shown - columns(last) : columns(first) + 1) + last + "\n";
  return out;
}

std::string curve(const SweepSubject& s, std::size_t quantity, const std::string& title, const std::vector<double>& critical) {
  std::string out;
  std::vector<double> x, y;
  for (std::size_t i = 0; i < s.cells.size(); ++i) {
    const double v = value_of(s.cells[i], quantity);
    const bool line = i + 1 < s.cells.size() && on_line(s, quantity, critical, i, 0);
    out += fmt::format("{}  {}{}\n", left(s.axes[0].values[i], 14),
                       std::isfinite(v)           ? number(v)
                       : s.cells[i].error.empty() ? "-"
                                                  : "-  " + s.cells[i].error,
                       line ? "  o" : "");
    if (s.axes[0].numbers.empty() || !std::isfinite(v)) continue;
    x.push_back(s.axes[0].numbers[i]);
    y.push_back(v);
  }
  if (x.size() > 2)
    out += "\n" +
           plot_text({.title = title, .x_label = s.axes[0].key, .y_label = "", .log_x = s.axes[0].geometric, .curves = {{title, x, y}}});
  return out;
}

}  // namespace

std::string sweep_text(const SweepSubject& s, const std::string& shown, const Look& look) {
  const std::size_t quantity = index_of(shown);
  const auto all = solve::quantities();
  const bool known = quantity < all.size();
  const std::string words = known ? all[quantity].words : "loss after training";
  const std::vector<double> critical = known ? all[quantity].critical : std::vector<double>();
  Shades shades{.logarithmic = known && all[quantity].logarithmic};
  std::size_t failed = 0;
  for (const SweepCell& c : s.cells) {
    shades.see(value_of(c, quantity));
    failed += c.error.empty() ? 0 : 1;
  }
  std::string out = look.paint(Ink::bold, fmt::format("{}: {} ({})", look.name(s.architecture.name), shown, words)) + "\n";
  const auto shown_as = [&](double x) { return number(shades.logarithmic ? std::exp(x) : x); };
  if (s.axes.size() == 1) {
    out += fmt::format("scheme {}, {} cells over {}\n\n", s.scheme, s.cells.size(), s.axes[0].key);
    out += curve(s, quantity, shown, critical);
  } else {
    out += fmt::format("scheme {}, {} x {} cells: {} upwards, {} to the right\n\n", s.scheme, s.axes[0].values.size(),
                       s.axes[1].values.size(), s.axes[0].key, s.axes[1].key);
    out += heat_map(s, quantity, shades, critical, look);
    if (shades.high >= shades.low)
      out += fmt::format("from {} (empty) to {} (full){}\n", shown_as(shades.low), shown_as(shades.high),
                         shades.logarithmic ? ", by logarithm" : "");
  }
  if (!critical.empty()) out += fmt::format("o: passes {}\n", fmt::join(critical, ", "));
  if (failed > 0) {
    const auto it = std::ranges::find_if(s.cells, [](const SweepCell& c) { return !c.error.empty(); });
    out += wrap(fmt::format("{} cells cannot be made, the first: {}", failed, show(it->error)), look.width, 0);
  }
  return out;
}

std::string sweep_json(const SweepSubject& s) {
  Json out = {{"schema", "stepzero.sweep/1"},
              {"model", json(s.architecture, s.parameters)},
              {"scheme", s.scheme},
              {"axes", Json::array()},
              {"cells", Json::array()}};
  for (const solve::Axis& a : s.axes) {
    Json axis = {{"key", a.key}, {"geometric", a.geometric}};
    axis["values"] = a.numbers.empty() ? Json(a.values) : Json(a.numbers);
    out["axes"].push_back(std::move(axis));
  }
  for (const SweepCell& c : s.cells) {
    Json row = {{"at", Json::array()}, {"quantities", Json::object()}};
    for (std::size_t k = 0; k < c.at.size(); ++k) {
      const solve::Axis& a = s.axes[k];
      row["at"].push_back(a.numbers.empty() ? Json(a.values[c.at[k]]) : Json(a.numbers[c.at[k]]));
    }
    for (std::size_t q = 0; q < c.quantities.size(); ++q) {
      if (std::isfinite(c.quantities[q])) row["quantities"][solve::quantities()[q].name] = c.quantities[q];
    }
    if (!c.error.empty()) row["error"] = c.error;
    if (c.trained) {
      Json first = Json::array(), last = Json::array();
      for (const double x : c.trained->first) first.push_back(json_number(x));
      for (const double x : c.trained->last) last.push_back(json_number(x));
      row["trained"] = {{"first", first}, {"last", last}, {"diverged", c.trained->diverged}, {"stalled", c.trained->stalled}};
    }
    out["cells"].push_back(std::move(row));
  }
  return dump(out) + "\n";
}

std::string sweep_csv(const SweepSubject& s) {
  std::string out;
  for (const solve::Axis& a : s.axes) out += a.key + ",";
  for (const solve::Quantity& q : solve::quantities()) out += std::string(q.name) + ",";
  out += "runs,first,last,diverged,stalled\n";
  for (const SweepCell& c : s.cells) {
    for (std::size_t k = 0; k < c.at.size(); ++k) out += s.axes[k].values[c.at[k]] + ",";
    for (std::size_t q = 0; q < solve::quantities().size(); ++q) {
      const double x = q < c.quantities.size() ? c.quantities[q] : NAN;
      out += (std::isfinite(x) ? fmt::format("{}", x) : "") + ",";
    }
    if (c.trained) {
      out += fmt::format("{},{},{},{},{}\n", c.trained->last.size(), mean(c.trained->first), mean(c.trained->last), c.trained->diverged,
                         c.trained->stalled);
    } else {
      out += "0,,,,\n";
    }
  }
  return out;
}

std::vector<double> crossings(const SweepSubject& s, const std::string& quantity, double critical) {
  const std::size_t q = index_of(quantity);
  const solve::Axis& a = s.axes[0];
  const auto place = [&](std::size_t i) { return a.geometric ? std::log(a.numbers[i]) : a.numbers[i]; };
  std::vector<double> out;
  for (std::size_t j = 0; j < columns_of(s); ++j) {
    double found = NAN;
    for (std::size_t i = 0; i + 1 < a.numbers.size() && std::isnan(found); ++i) {
      const double y0 = value_of(cell(s, i, j), q) - critical, y1 = value_of(cell(s, i + 1, j), q) - critical;
      if (!(y0 * y1 <= 0) || y0 == y1) continue;
      const double x = place(i) + (place(i + 1) - place(i)) * y0 / (y0 - y1);
      found = a.geometric ? std::exp(x) : x;
    }
    out.push_back(found);
  }
  return out;
}

}  // namespace stepzero
