#include "stepzero/models/own_file.hpp"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <list>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "stepzero/core/lock.hpp"
#include "stepzero/core/read_real.hpp"
#include "stepzero/core/text.hpp"
#include "stepzero/graph/check.hpp"
#include "stepzero/graph/graph_json.hpp"
#include "stepzero/io/json.hpp"
#include "stepzero/models/config_keys.hpp"
#include "stepzero/models/config_reader.hpp"
#include "stepzero/models/graph_changes.hpp"
#include "stepzero/models/words.hpp"

namespace stepzero {

namespace {

using lang::List;
using lang::Value;

Expected<Built> run(const std::string& text, const std::string& file, const SizeValues& settings, bool only_declared, ConfigKeys& keys) {
  lang::Evaluator evaluator;
  Words words(evaluator, settings, only_declared, keys);
  static const auto program = lang::compile({"the words", std::string(words_text())}, 0, true);
  if (!program) return std::unexpected(program.error());
  if (auto done = evaluator.run(*program); !done) return std::unexpected(done.error());
  auto done = evaluator.run({file, text});
  if (!words.declared() && (done || only_declared)) {
    if (!done) return std::unexpected(done.error());
    return fail(fmt::format("{}: no arch(...) says what the model is called", show(file)),
                "arch(\"my-model\", width=768, layers=12) comes first");
  }
  if (only_declared) return words.declared() ? Expected<Built>(words.take()) : std::unexpected(done.error());
  if (!done) return std::unexpected(done.error());
  Built built = words.take();
  if (auto whole = check_whole(built.graph); !whole)
    return fail(fmt::format("{}: {}", show(file), whole.error().message), whole.error().hint);
  return built;
}

// As the default of the size is: a number stays one, a list is written with commas.
Expected<Value> read_value(std::string_view text, const Value& like) {
  const char* last = text.data() + text.size();
  if (like.get<bool>() != nullptr) {
    if (text == "true" || text == "True" || text == "1") return Value(true);
    if (text == "false" || text == "False" || text == "0") return Value(false);
    return fail(fmt::format("\"{}\" is neither true nor false", show(text)));
  }
  std::int64_t whole = 0;
  const bool is_whole = std::from_chars(text.data(), last, whole).ptr == last && !text.empty();
  double real = 0;
  const auto read = read_real(text.data(), last, real);
  const bool is_real = read.ec == std::errc() && read.ptr == last && !text.empty() && std::isfinite(real);
  if (like.get<std::int64_t>() != nullptr)
    return is_whole ? Expected<Value>(Value(whole)) : fail(fmt::format("\"{}\" is no whole number", show(text)));
  if (like.get<double>() != nullptr) return is_real ? Expected<Value>(Value(real)) : fail(fmt::format("\"{}\" is no number", show(text)));
  if (like.get<std::string>() != nullptr) return Value(std::string(text));
  if (const auto* list = like.get<List>()) {
    std::vector<Value> values;
    while (!text.empty()) {
      const std::size_t comma = std::min(text.find(','), text.size());
      auto one = read_value(text.substr(0, comma), (*list)->empty() ? Value() : (*list)->front());
      if (!one) return one;
      values.push_back(std::move(*one));
      text.remove_prefix(std::min(comma + 1, text.size()));
    }
    return lang::make_list(std::move(values));
  }
  if (text == "None" || text == "none") return Value();
  return is_whole ? Value(whole) : is_real ? Value(real) : Value(std::string(text));
}

double number_or(const SizeValues& sizes, std::string_view name, double otherwise) {
  const auto it = std::ranges::find(sizes, name, [](const auto& s) { return std::string_view(s.first); });
  return it != sizes.end() && it->second.is_number() ? it->second.number() : otherwise;
}

// A limit on sequences where no table of positions gives one.
Index most_positions(const SizeValues& sizes) {
  const double n = number_or(sizes, "positions", 0);
  return n >= 1 && n <= 1e9 ? static_cast<Index>(n) : Index{1} << 24;
}

}  // namespace

Expected<Built> build_text(const std::string& text, const std::string& file, const SizeValues& settings) {
  ConfigKeys keys(nullptr);
  return run(text, file, settings, false, keys);
}

Expected<Built> build_text(const OwnFile& own) {
  ConfigKeys keys(own.config.get());
  return run(own.text, own.file, own.settings, false, keys);
}

Expected<Architecture> load_text(std::string text, const std::string& file) {
  ConfigKeys keys(nullptr);
  auto declared = run(text, file, {}, true, keys);
  if (!declared) return std::unexpected(declared.error());
  Architecture a;
  a.name = declared->name;
  a.family = "file";
  a.own = std::make_shared<OwnFile>(OwnFile{.file = file, .text = std::move(text), .sizes = std::move(declared->sizes)});
  return a;
}

Expected<Architecture> load_family(std::string_view model_type, std::string_view text, const nlohmann::json& config,
                                   const std::string& file) {
  OwnFile own{
      .file = fmt::format("{}.py", model_type), .text = std::string(text), .config = std::make_shared<const nlohmann::json>(config)};
  ConfigKeys keys(own.config.get());
  auto declared = run(own.text, own.file, {}, true, keys);
  if (!declared) return fail(fmt::format("{}: {}", show(file), declared.error().message), declared.error().hint);
  if (auto done = refuse_unread(config, file, keys.asked()); !done) return std::unexpected(done.error());
  Architecture a;
  a.name = a.family = model_type;
  a.notices = notices_of(config, file, keys.asked(), keys.assumed());
  for (const auto& [key, value] : keys.assumed()) a.sizes_not_given.push_back(key);
  own.keys.assign(keys.asked().begin(), keys.asked().end());
  own.sizes = std::move(declared->sizes);
  a.own = std::make_shared<OwnFile>(std::move(own));
  return a;
}

Expected<Architecture> load_graph(std::string text, const std::string& file) {
  constexpr JsonLimits limits{.max_bytes = std::size_t{256} << 20, .max_values = 50'000'000};
  const auto document = parse_json(text, file, limits);
  if (!document) return std::unexpected(document.error());
  auto graph = read_graph(*document, file);
  if (!graph) return std::unexpected(graph.error());
  Architecture a;
  a.family = "file";
  const auto text_of = [&](const char* key) {
    return document->contains(key) && (*document)[key].is_string() ? (*document)[key].get<std::string>() : "";
  };
  a.name = text_of("name").empty() ? "graph" : text_of("name");
  SizeValues sizes;
  for (const char* key : {"positions", "init_std"}) {
    if (document->contains(key) && (*document)[key].is_number()) sizes.emplace_back(key, (*document)[key].get<double>());
  }
  a.graph = std::make_shared<const Graph>(std::move(*graph));
  a.own = std::make_shared<OwnFile>(
      OwnFile{.file = file, .text = std::move(text), .is_graph = true, .built = a.graph, .sizes = std::move(sizes)});
  return a;
}

Expected<void> set_own_size(Architecture& a, std::string_view assignment) {
  const std::size_t equals = assignment.find('=');
  if (equals == std::string_view::npos)
    return fail(fmt::format("--set {}: expected key=value", show(assignment)), "for example --set layers=24");
  const std::string key(assignment.substr(0, equals));
  std::vector<std::string> known;
  for (const auto& [name, value] : a.own->sizes) known.push_back(name);
  const auto it = a.own->is_graph ? known.end() : std::ranges::find(known, key);
  if (it == known.end() && is_graph_change(key)) {
    Architecture trial = a;
    trial.own.reset();
    if (auto done = set_field(trial, assignment); !done) return done;  // says what is wrong with the value
    change_own(a, std::string(assignment));
    return {};
  }
  if (a.own->is_graph)
    return fail(fmt::format("--set {}: a canonical graph has no sizes to set", show(key)), "the file it was made from has");
  if (it == known.end()) {
    const std::string near = closest(key, known);
    return fail(fmt::format("--set {}: {} declares no such size{}", show(key), show(a.own->file),
                            near.empty() ? "" : fmt::format("; did you mean {}?", near)),
                fmt::format("arch(...) declares {}", fmt::join(known, ", ")));
  }
  const Value& like = a.own->sizes[static_cast<std::size_t>(it - known.begin())].second;
  auto value = read_value(assignment.substr(equals + 1), like);
  if (!value) return fail(fmt::format("--set {}: {}", show(key), value.error().message));
  OwnFile own = *a.own;
  std::erase_if(own.settings, [&](const auto& s) { return s.first == key; });
  own.settings.emplace_back(key, std::move(*value));
  own.set.emplace_back(assignment);
  a.own = std::make_shared<OwnFile>(std::move(own));
  return {};
}

void change_own(Architecture& a, const std::string& assignment) {
  OwnFile own = *a.own;
  own.changes.push_back(assignment);
  own.set.push_back(assignment);
  a.own = std::make_shared<OwnFile>(std::move(own));
}

std::string own_size(const OwnFile& own, std::string_view name) {
  for (const SizeValues* list : {&own.settings, &own.sizes}) {
    const auto it = std::ranges::find(*list, name, [](const auto& s) { return std::string_view(s.first); });
    if (it != list->end()) return lang::to_literal(it->second);
  }
  return {};
}

namespace {

// What a text has built, to be shared.
struct Shared {
  SizeValues sizes;
  std::shared_ptr<const Graph> graph;
};

// The same text with the same sizes and configuration builds the same graph: of the latest few, the one that was built before. A command
// describes its model more than once, and every remedy describes it again.
Expected<Shared> build_once(const OwnFile& own) {
  struct Kept {
    std::string key;
    Shared built;
  };
  constexpr std::size_t most = 4;
  static Lock lock;
  static std::list<Kept> latest;
  std::string key = own.file + '\0' + own.text + '\0' + (own.config ? own.config->dump() : "");
  for (const auto& [name, value] : own.settings) key += '\0' + name + '=' + lang::to_literal(value);
  {
    const Hold hold(lock);
    if (const auto it = std::ranges::find(latest, key, &Kept::key); it != latest.end()) {
      latest.splice(latest.begin(), latest, it);
      return it->built;
    }
  }
  auto built = build_text(own);
  if (!built) return std::unexpected(built.error());
  Shared shared{std::move(built->sizes), std::make_shared<const Graph>(std::move(built->graph))};
  const Hold hold(lock);
  latest.push_front({std::move(key), shared});
  if (latest.size() > most) latest.pop_back();
  return shared;
}

}  // namespace

Expected<void> resolve_own(Architecture& a) {
  SizeValues sizes = a.own->sizes;
  if (!a.own->is_graph) {
    auto built = build_once(*a.own);
    if (!built) return std::unexpected(built.error());
    sizes = std::move(built->sizes);
    a.graph = std::move(built->graph);
  }
  a.positions = most_positions(sizes);
  a.init_std = number_or(sizes, "init_std", 0.02);
  if (!(a.init_std >= 0 && a.init_std <= 1e30)) return fail(fmt::format("init_std = {} is no standard deviation", a.init_std));
  if (a.own->is_graph && a.own->built) a.graph = a.own->built;
  describe_graph(a, *a.graph);
  if (a.own->changes.empty()) return {};
  Architecture after = a;
  after.own.reset();
  for (const std::string& change : a.own->changes) {
    if (auto done = set_field(after, change); !done) return done;
  }
  auto changed = change_graph(*a.graph, a, after);
  if (!changed) return fail(fmt::format("{}: {}", show(a.own->file), changed.error().message), changed.error().hint);
  after.own = std::exchange(a.own, nullptr);
  a = std::move(after);
  a.graph = std::make_shared<const Graph>(std::move(*changed));
  return {};
}

}  // namespace stepzero
