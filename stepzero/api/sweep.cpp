#include "stepzero/api/sweep.hpp"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <map>
#include <mutex>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>
#include <nlohmann/json.hpp>

#include "stepzero/api/guarded.hpp"
#include "stepzero/api/setup.hpp"
#include "stepzero/api/train.hpp"
#include "stepzero/core/parallel.hpp"
#include "stepzero/core/stop.hpp"
#include "stepzero/core/text.hpp"
#include "stepzero/models/rope.hpp"
#include "stepzero/report/solve.hpp"
#include "stepzero/solve/unknowns.hpp"
#include "stepzero/theory/predict.hpp"

namespace stepzero {

namespace {

using namespace solve;
using nlohmann::json;

// What a cell does not change by a factor on stds: the model, its input and its graph.
struct Context {
  ModelRequest model;
  std::optional<Unknowns> unknowns;  // none: nothing is scaled
  const Scheme* scheme = nullptr;
  Architecture architecture;
  std::shared_ptr<const Graph> graph;
  Batch batch;
  std::optional<double> rate;
};

// What a map is made by.
class Sweeper {
 public:
  Sweeper(const ModelRequest& model, const SweepRequest& request, const Watch& watch, const Team& team)
      : model_(model), request_(request), watch_(watch), team_(team) {}

  Expected<SweepSubject> run() {
    if (auto done = axes(); !done) return std::unexpected(done.error());
    const auto base = context_of({});
    if (!base) return std::unexpected(base.error());
    out_.architecture = base->architecture;
    out_.parameters = base->graph->parameter_count();
    out_.scheme = model_.scheme;
    if (auto done = read_store(); !done) return std::unexpected(done.error());
    fill();
    if (team_.size > 1) {
      if (auto done = exchange(); !done) return std::unexpected(done.error());
    }
    return std::move(out_);
  }

 private:
  Expected<void> axes() {
    if (request_.over.empty() || request_.over.size() > 2) return fail("a map has one or two axes", "--over key=a..b:n, once or twice");
    for (const std::string& text : request_.over) {
      auto axis = parse_axis(text);
      if (!axis) return std::unexpected(axis.error());
      if (axis->kind == Axis::Kind::rate && request_.train == 0)
        return fail(fmt::format("--over {}: rates change runs, and there are none", show(text)), "--train 1 trains every cell once");
      out_.axes.push_back(std::move(*axis));
    }
    if (out_.axes.size() == 2 && out_.axes[0].key == out_.axes[1].key) return fail("both axes are the same");
    const std::size_t columns = out_.axes.size() == 2 ? out_.axes[1].values.size() : 1;
    for (std::size_t c = 0; c < out_.axes[0].values.size() * columns; ++c) {
      out_.cells.push_back({.at = {c / columns}, .quantities = {}});
      if (out_.axes.size() == 2) out_.cells.back().at.push_back(c % columns);
    }
    return {};
  }

  // Indices of the axes that are no factors, of a cell; empty: the model as it is.
  Expected<Context> context_of(const std::vector<std::size_t>& at) const {
    Context c{.model = model_, .unknowns = {}, .architecture = {}, .graph = {}, .batch = {}, .rate = {}};
    InputOptions input = request_.input;
    std::vector<std::string> free;
    for (std::size_t k = 0; k < out_.axes.size(); ++k) {
      const Axis& a = out_.axes[k];
      if (a.kind == Axis::Kind::factor) free.push_back(a.key.substr(4));
      if (at.empty() || a.kind == Axis::Kind::factor) continue;
      const std::string& value = a.values[at[k]];
      if (a.kind == Axis::Kind::field) c.model.set.push_back(a.key + "=" + value);
      if (a.kind == Axis::Kind::scheme) c.model.scheme = value;
      if (a.kind == Axis::Kind::tokens) input.length = static_cast<Index>(a.numbers[at[k]]);
      if (a.kind == Axis::Kind::rate) c.rate = a.numbers[at[k]];
    }
    const auto scheme = find_scheme(c.model.scheme);
    if (!scheme) return std::unexpected(scheme.error());
    c.scheme = *scheme;
    auto described = describe_model(c.model.model, c.model.set, **scheme, c.model.like);
    if (!described) return std::unexpected(described.error());
    auto setup = prepare(std::move(*described), **scheme, input);
    if (!setup) return std::unexpected(setup.error());
    c.architecture = std::move(setup->architecture);
    c.batch = std::move(setup->batch);
    c.graph = std::make_shared<const Graph>(std::move(setup->graph));
    if (!free.empty()) {
      auto unknowns = Unknowns::make(c.architecture, **scheme, free, true, By::role);
      if (!unknowns) return std::unexpected(unknowns.error());
      c.unknowns = std::move(*unknowns);
    }
    return c;
  }

  // Factors of a cell, as a point of its unknowns: encoder and decoder have one each, of the same axis.
  std::vector<double> point_of(const Context& c, const SweepCell& cell) const {
    std::vector<double> z(c.unknowns->size(), 0);
    for (std::size_t k = 0; k < out_.axes.size(); ++k) {
      if (out_.axes[k].kind != Axis::Kind::factor) continue;
      for (std::size_t u = 0; u < z.size(); ++u) {
        const std::string& name = c.unknowns->list()[u].name;
        const std::string role = out_.axes[k].key.substr(4);
        if (name == role || name.ends_with("." + role)) z[u] = std::log(std::max(out_.axes[k].numbers[cell.at[k]], 1e-30));
      }
    }
    return z;
  }

  void look(const Context& c, SweepCell& cell) const {
    Assignment laws;
    if (c.unknowns) {
      auto point = c.unknowns->at(point_of(c, cell));
      if (!point) {
        cell.error = point.error().message;
        return;
      }
      laws = std::move(point->laws);
    } else {
      laws = Assignment(*c.graph, c.architecture, *c.scheme);
    }
    const Signal signal = predict(*c.graph, c.architecture, c.batch, laws, {}, {.order = request_.order, .effort = request_.effort});
    const Readout readout(*c.graph, signal, &Value::predicted);
    for (const Quantity& q : quantities()) cell.quantities.push_back(q.of(readout));
  }

  // Cells that share a context stand together; contexts are made side by side, or cells where there is one.
  void fill() {
    std::map<std::vector<std::size_t>, std::vector<std::size_t>> groups;
    for (std::size_t i = 0; i < out_.cells.size(); ++i) {
      if (static_cast<int>(i % static_cast<std::size_t>(team_.size)) != team_.rank) continue;
      std::vector<std::size_t> key = out_.cells[i].at;
      for (std::size_t k = 0; k < key.size(); ++k) {
        if (out_.axes[k].kind == Axis::Kind::factor) key[k] = 0;
      }
      groups[key].push_back(i);
    }
    std::vector<std::pair<std::vector<std::size_t>, std::vector<std::size_t>>> list(groups.begin(), groups.end());
    const auto one_group = [&](const auto& group) {
      const auto c = context_of(group.first);
      const auto one = [&](Index n) {
        SweepCell& cell = out_.cells[group.second[static_cast<std::size_t>(n)]];
        end_if_stopped();
        if (!c) {
          cell.error = c.error().message;
        } else {
          look(*c, cell);
          if (request_.train > 0 && !cell.trained && cell.error.empty()) train(*c, cell);
        }
        tell();
      };
      parallel_for(static_cast<Index>(group.second.size()), one);
    };
    if (list.size() == 1) return one_group(list[0]);
    parallel_for(static_cast<Index>(list.size()), [&](Index g) { one_group(list[static_cast<std::size_t>(g)]); });
  }

  void tell() {
    const double done = static_cast<double>(++done_), all = static_cast<double>(out_.cells.size()) / team_.size;
    teller_(std::min(1.0, done / all));
  }

  void train(const Context& c, SweepCell& cell) {
    ModelRequest model = c.model;
    std::string file;
    if (c.unknowns) {
      auto scheme = c.unknowns->file(point_of(c, cell), "cell");
      if (!scheme) {
        cell.error = scheme.error().message;
        return;
      }
      file =
          (std::filesystem::temp_directory_path() / fmt::format("stepzero-cell-{}-{}.json", ::getpid(), fmt::join(cell.at, "-"))).string();
      std::ofstream(file) << scheme_text(*scheme);
      model.scheme = file;
    }
    TrainRequest request = request_.training;
    request.seeds = request_.train;
    if (c.rate) request.optimizer.rate = c.rate;
    const auto done = run_training(model, request, {});
    if (!file.empty()) std::filesystem::remove(file);
    const std::scoped_lock lock(mutex_);
    if (!done) {
      cell.error = done.error().message;
      return;
    }
    SweepCell::Trained& t = cell.trained.emplace();
    for (const RunRecord& r : done->runs) {
      t.first.push_back(r.steps.front().loss);
      t.last.push_back(r.outcome == Outcome::diverged && !r.where.empty() ? INFINITY : last_loss(r.steps));
      t.diverged += r.outcome == Outcome::diverged ? 1 : 0;
      t.stalled += r.outcome == Outcome::stalled ? 1 : 0;
    }
    store(cell);
  }

  // A line for each trained cell: what a run that is taken up again does not repeat.
  [[nodiscard]] std::string key() const {
    json about = {{"model", model_.model},
                  {"set", model_.set},
                  {"scheme", model_.scheme},
                  {"over", request_.over},
                  {"train", request_.train},
                  {"steps", request_.training.steps},
                  {"seed", request_.training.seed},
                  {"text", request_.training.text},
                  {"level", request_.training.level},
                  {"batch", request_.training.input.sequences},
                  {"seq_len", request_.training.input.length},
                  {"optimizer", request_.training.optimizer.name},
                  {"rate", request_.training.optimizer.rate.value_or(0)}};
    return about.dump();
  }
  static json json_of(const SweepCell& cell) {
    const auto list = [](const std::vector<double>& numbers) {
      json out = json::array();
      for (const double x : numbers) out.push_back(std::isfinite(x) ? json(x) : json(nullptr));
      return out;
    };
    return {{"at", cell.at},
            {"first", list(cell.trained->first)},
            {"last", list(cell.trained->last)},
            {"diverged", cell.trained->diverged},
            {"stalled", cell.trained->stalled}};
  }
  void store(const SweepCell& cell) const {
    if (request_.store.empty()) return;
    std::ofstream(request_.store, std::ios::app) << json_of(cell).dump() + "\n";
  }
  Expected<void> read_store() {
    if (request_.store.empty() || request_.train == 0) return {};
    std::ifstream in(request_.store);
    std::string line;
    if (!in || !std::getline(in, line)) {
      if (team_.rank == 0) std::ofstream(request_.store) << json{{"sweep", key()}}.dump() + "\n";
      return {};
    }
    const json head = json::parse(line, nullptr, false);
    if (!head.is_object() || head.value("sweep", "") != key())
      return fail(fmt::format("{}: it holds another map", show(request_.store)), "name another file, or give the flags that made it");
    std::string whole = head.dump() + "\n";
    while (std::getline(in, line)) {
      const json row = json::parse(line, nullptr, false);
      if (!row.is_object() || in.eof()) break;  // a line that a kill cut short: its cell is trained again
      take(row);
      whole += line + "\n";
    }
    in.close();
    if (team_.rank == 0) std::ofstream(request_.store) << whole;
    return {};
  }
  void take(const json& row) {
    const auto at = row.value("at", std::vector<std::size_t>());
    const auto it = std::ranges::find(out_.cells, at, &SweepCell::at);
    if (it == out_.cells.end() || !row.contains("last")) return;
    const auto numbers = [](const json& list) {
      std::vector<double> out;
      for (const json& x : list) out.push_back(x.is_number() ? x.get<double>() : INFINITY);
      return out;
    };
    it->trained = SweepCell::Trained{numbers(row["first"]), numbers(row["last"]), row.value("diverged", 0), row.value("stalled", 0)};
  }

  // Each process hands its cells to the others.
  Expected<void> exchange() {
    json own = json::array();
    for (std::size_t i = static_cast<std::size_t>(team_.rank); i < out_.cells.size(); i += static_cast<std::size_t>(team_.size)) {
      const SweepCell& c = out_.cells[i];
      json row = c.trained ? json_of(c) : json{{"at", c.at}};
      row["error"] = c.error;
      row["quantities"] = json::array();
      for (const double x : c.quantities) row["quantities"].push_back(std::isfinite(x) ? json(x) : json(nullptr));
      own.push_back(std::move(row));
    }
    const auto all = team_.share(own.dump());
    if (!all) return std::unexpected(all.error());
    for (const std::string& text : *all) {
      for (const json& row : json::parse(text)) {
        if (row.contains("last")) take(row);
        SweepCell& c = *std::ranges::find(out_.cells, row["at"].get<std::vector<std::size_t>>(), &SweepCell::at);
        c.error = row["error"];
        c.quantities.clear();
        for (const json& x : row["quantities"]) c.quantities.push_back(x.is_number() ? x.get<double>() : NAN);
      }
    }
    return {};
  }

  const ModelRequest& model_;
  const SweepRequest& request_;
  const Watch& watch_;
  const Team& team_;
  SweepSubject out_;
  Teller teller_{watch_, "sweeping"};
  std::atomic<std::size_t> done_ = 0;
  std::mutex mutex_;
};

}  // namespace

Expected<SweepSubject> run_sweep(const ModelRequest& model, const SweepRequest& request, const Watch& watch, const Team& team) {
  return Sweeper(model, request, watch, team).run();
}

Expected<SweepResult> Model::sweep(const SweepRequest& request, const Watch& watch) const {
  return guarded(watch, [&]() -> Expected<SweepResult> {
    auto done = run_sweep(request_, request, watch);
    if (!done) return std::unexpected(done.error());
    return SweepResult(std::make_shared<const SweepSubject>(std::move(*done)));
  });
}

std::string SweepResult::json() const { return sweep_json(*swept_); }
std::string SweepResult::csv() const { return sweep_csv(*swept_); }
std::string SweepResult::text(const std::string& shown) const {
  return sweep_text(*swept_, shown, Look{.width = 100, .color = false, .unicode = true});
}

}  // namespace stepzero
