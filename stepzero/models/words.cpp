#include "stepzero/models/words.hpp"

#include <algorithm>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "stepzero/core/text.hpp"
#include "stepzero/graph/check.hpp"
#include "stepzero/graph/graph_json.hpp"

namespace stepzero {

namespace {

using lang::Call;
using lang::List;
using lang::Thing;
using lang::Value;
using Json = nlohmann::json;

Json json_of(const Value& value, int depth = 0) {
  if (const auto* b = value.get<bool>()) return *b;
  if (const auto* n = value.get<std::int64_t>()) return *n;
  if (const auto* x = value.get<double>()) return *x;
  if (const auto* text = value.get<std::string>()) return *text;
  Json out;
  if (const auto* list = value.get<List>(); list != nullptr && depth < 3) {
    out = Json::array();
    for (const Value& each : **list) out.push_back(json_of(each, depth + 1));
  }
  return out;
}

const Thing* thing(const Call& call, std::size_t i, Thing::Kind kind) {
  const Thing* t = i < call.values.size() ? call.values[i].get<Thing>() : nullptr;
  return t != nullptr && t->kind == kind ? t : nullptr;
}

std::unexpected<Error> no_wire() { return fail("a wire is expected here", "tokens(...) makes the first, words make others of it"); }
std::unexpected<Error> no_tensor() { return fail("a tensor is expected here", "scalar(...) and distance_table(...) make some"); }

const std::string* text(const Call& call, std::size_t i) { return i < call.values.size() ? call.values[i].get<std::string>() : nullptr; }

// A list of five whole numbers, as _use makes it.
Expected<ParamUse> use_of(const Value& value) {
  const auto* list = value.get<List>();
  if (list == nullptr || (*list)->size() != 5) return fail("a block of a tensor is expected here");
  std::vector<Index> n;
  for (const Value& each : **list) {
    if (!each.is_whole() || each.whole() < 0 || each.whole() > most_size) return fail("a block of a tensor has whole numbers");
    n.push_back(each.whole());
  }
  return ParamUse{static_cast<int>(std::min<Index>(n[0], 1 << 30)), n[1], n[2], n[3], n[4]};
}

}  // namespace

Words::Words(lang::Evaluator& evaluator, const SizeValues& settings, bool only_declared, ConfigKeys& keys)
    : evaluator_(evaluator), settings_(settings), only_declared_(only_declared), keys_(keys) {
  define_keys();
  define_tensors();
  define_wires();
  evaluator_.define("arch", [this](Call& call) { return arch(call); });
  evaluator_.define("_replace", [](Call& call) -> Expected<Value> {
    const auto *all = text(call, 0), *from = text(call, 1), *to = text(call, 2);
    if (all == nullptr || from == nullptr || to == nullptr || from->empty()) return fail("a text is expected here");
    std::string out = *all;
    for (std::size_t at = out.find(*from); at != std::string::npos; at = out.find(*from, at + to->size()))
      out.replace(at, from->size(), *to);
    return Value(out);
  });
}

// Sizes alone come from a configuration, so that arch(...) with numbers in it says the whole model.
void Words::define_keys() {
  using Door = Expected<Value> (ConfigKeys::*)(const Call&);
  const auto reads = [this](const char* name, Door door) {
    evaluator_.define(name, [this, door](Call& call) -> Expected<Value> {
      if (declared_) return fail("key(...) stands inside arch(...), and ignored(...) before it", "what they read is a size of the model");
      return (keys_.*door)(call);
    });
  };
  reads("key", &ConfigKeys::key);
  reads("_key_state", &ConfigKeys::state);
  reads("ignored", &ConfigKeys::ignored);
  reads("count_key", &ConfigKeys::count);
}

// arch("name", width=768, ...): each size is a name of the file, and a key of --set.
Expected<Value> Words::arch(Call& call) {
  if (declared_) return fail("arch is called once");
  const auto* name = text(call, 0);
  if (name == nullptr || call.values.size() != 1)
    return fail("arch begins with the model's name", "arch(\"my-model\", width=768, layers=12)");
  declared_ = true;
  built_.name = *name;
  for (auto& [size, value] : call.named) {
    if (!value.is_number() && value.get<std::string>() == nullptr && value.get<List>() == nullptr && !value.is_none()) {
      return fail(fmt::format("{} is {}", size, lang::type_name(value)), "sizes are numbers, texts, True, False, None or lists of them");
    }
    const auto set = std::ranges::find(settings_, size, [](const auto& s) { return s.first; });
    const Value chosen = set == settings_.end() ? value : set->second;
    evaluator_.set_in_file(size, chosen);
    built_.sizes.emplace_back(size, lang::detached(only_declared_ ? value : chosen));
  }
  if (only_declared_) return std::unexpected(Error{.message = "declared", .stopped = true});
  return Value();
}

// _tensor(name, shape, role, fan_in, fan_out, neutral, zero_row, in_out, law)
Expected<Value> Words::tensor(const Call& call) {
  const auto* name = text(call, 0);
  if (name == nullptr || call.values.size() != 9) return fail("a tensor has a name", "name=\"h.0.mlp.up\"");
  const auto& v = call.values;
  const Json object = {{"name", *name},           {"shape", json_of(v[1])},   {"role", json_of(v[2])},    {"layer", -1},
                       {"fan_in", json_of(v[3])}, {"fan_out", json_of(v[4])}, {"neutral", json_of(v[5])}, {"zero_row", json_of(v[6])},
                       {"in_out", json_of(v[7])}, {"law", json_of(v[8])},     {"parts", Json::array()}};
  auto param = read_param(object);
  if (!param) return std::unexpected(param.error());
  const int id = static_cast<int>(built_.graph.params.size());
  if (!tensors_.emplace(*name, id).second)
    return fail(fmt::format("two tensors are called \"{}\"", show(*name)), "every tensor has a name of its own");
  if (auto done = add_checked(built_.graph, std::move(*param)); !done) return std::unexpected(done.error());
  return Value(Thing{Thing::Kind::tensor, id, 1});
}

void Words::define_tensors() {
  using K = Thing::Kind;
  evaluator_.define("_tensor", [this](Call& call) { return tensor(call); });
  evaluator_.define("_has",
                    [this](Call& call) -> Expected<Value> { return Value(text(call, 0) != nullptr && tensors_.contains(*text(call, 0))); });
  evaluator_.define("_find", [this](Call& call) -> Expected<Value> {
    const auto* name = text(call, 0);
    const auto it = name != nullptr ? tensors_.find(*name) : tensors_.end();
    if (it != tensors_.end()) return Value(Thing{K::tensor, it->second, 1});
    return fail(fmt::format("no tensor is called \"{}\"", name != nullptr ? show(*name) : ""),
                "tied= names it whole: \"transformer.wte.weight\"");
  });
  const auto of_shape = [this](const char* name, Index (Param::*size)() const) {
    evaluator_.define(name, [this, size](Call& call) -> Expected<Value> {
      const Thing* t = thing(call, 0, K::tensor);
      if (t == nullptr) return no_tensor();
      return Value(static_cast<std::int64_t>((built_.graph.params[static_cast<std::size_t>(t->id)].*size)()));
    });
  };
  of_shape("_rows", &Param::rows);
  of_shape("_cols", &Param::cols);
  evaluator_.define("_layer", [this](Call& call) -> Expected<Value> {
    const Thing* t = thing(call, 0, K::tensor);
    if (t == nullptr || call.values.size() != 2 || !call.values[1].is_whole()) return no_tensor();
    built_.graph.params[static_cast<std::size_t>(t->id)].layer = static_cast<int>(call.values[1].whole());
    return Value();
  });
  evaluator_.define("_freeze", [this](Call& call) -> Expected<Value> {
    const Thing* t = thing(call, 0, K::tensor);
    if (t == nullptr) return no_tensor();
    built_.graph.params[static_cast<std::size_t>(t->id)].frozen = true;
    return Value();
  });
  evaluator_.define("_use", [](Call& call) -> Expected<Value> {
    const Thing* t = thing(call, 0, K::tensor);
    if (t == nullptr || call.values.size() != 5) return no_tensor();
    std::vector<Value> use = call.values;
    use[0] = std::int64_t{t->id};
    return lang::make_list(std::move(use));
  });
  evaluator_.define("_part", [this](Call& call) -> Expected<Value> {
    if (call.values.size() != 3) return no_tensor();
    const auto use = use_of(call.values[0]);
    if (!use) return std::unexpected(use.error());
    Param one = built_.graph.params[static_cast<std::size_t>(use->param)];
    const Json role = json_of(call.values[1]);
    const Json object = {{"name", one.name}, {"shape", one.shape},
                         {"role", role},     {"layer", -1},
                         {"fan_in", 1},      {"fan_out", json_of(call.values[2])},
                         {"neutral", 1.0},   {"zero_row", -1},
                         {"in_out", false},  {"parts", Json::array()},
                         {"law", nullptr}};
    const auto part = read_param(object);
    if (!part) return std::unexpected(part.error());
    built_.graph.params[static_cast<std::size_t>(use->param)].parts.push_back(
        {part->role, use->row0, use->col0, use->rows, use->cols, part->fan_out});
    return Value();
  });
}

// _node(kind, inputs, uses, fields)
Expected<Value> Words::node(const Call& call) {
  const auto* kind = text(call, 0);
  if (kind == nullptr || call.values.size() != 4) return fail("a node has a kind");
  std::vector<int> inputs;
  for (const Value& each : **call.values[1].get<List>()) {
    const auto* x = each.get<Thing>();
    if (x == nullptr || x->kind != Thing::Kind::wire) return no_wire();
    inputs.push_back(x->id);
  }
  std::vector<ParamUse> uses;
  for (const Value& each : **call.values[2].get<List>()) {
    const auto use = use_of(each);
    if (!use) return std::unexpected(use.error());
    uses.push_back(*use);
  }
  Json fields = Json::object();
  for (const Value& pair : **call.values[3].get<List>()) {
    const auto& two = **pair.get<List>();
    fields[*two[0].get<std::string>()] = json_of(two[1]);
  }
  auto op = make_op(*kind, fields);
  if (!op) return std::unexpected(op.error());
  if (auto done = add_checked(built_.graph, "", std::move(*op), std::move(inputs), std::move(uses)); !done)
    return std::unexpected(done.error());
  return Value(Thing{Thing::Kind::wire, static_cast<int>(built_.graph.nodes.size()) - 1, 1});
}

// A name that is taken gets a number.
Expected<Value> Words::rename(const Call& call) {
  const Thing* x = thing(call, 0, Thing::Kind::wire);
  const auto* name = text(call, 1);
  if (x == nullptr || name == nullptr) return no_wire();
  if (name->size() > 256 || !printable(*name)) return fail("a node's name is printable, and at most 256 bytes long");
  std::string& own = built_.graph.nodes[static_cast<std::size_t>(x->id)].name;
  std::string fresh = *name;
  while (names_.contains(fresh)) fresh = fmt::format("{}.{}", *name, ++numbers_.emplace(*name, 1).first->second);
  names_.erase(own);
  names_.insert(fresh);
  own = fresh;
  return Value();
}

Expected<Value> Words::channels(const Call& call) {
  const Thing* x = thing(call, 0, Thing::Kind::wire);
  if (x == nullptr) return no_wire();
  return Value(static_cast<std::int64_t>(channels_of(built_.graph.nodes[static_cast<std::size_t>(x->id)].op)));
}

void Words::define_wires() {
  using K = Thing::Kind;
  evaluator_.define("_node", [this](Call& call) { return node(call); });
  evaluator_.define("_rename", [this](Call& call) { return rename(call); });
  evaluator_.define("_channels", [this](Call& call) { return channels(call); });
  evaluator_.define("_count", [this](Call&) -> Expected<Value> { return Value(static_cast<std::int64_t>(built_.graph.nodes.size())); });
  const auto of_wire = [this](const char* name, Value (*f)(Thing)) {
    evaluator_.define(name, [f](Call& call) -> Expected<Value> {
      const Thing* x = thing(call, 0, K::wire);
      if (x == nullptr) return no_wire();
      return f(*x);
    });
  };
  of_wire("_number", [](Thing x) { return Value(std::int64_t{x.id}); });
  of_wire("_factor", [](Thing x) { return Value(x.factor); });
  of_wire("_plain", [](Thing x) { return Value(Thing{K::wire, x.id, 1}); });
  evaluator_.define("_scaled", [](Call& call) -> Expected<Value> {
    const Thing* x = thing(call, 0, K::wire);
    if (x == nullptr || call.values.size() != 2 || !call.values[1].is_number()) return no_wire();
    return Value(Thing{K::wire, x->id, x->factor * call.values[1].number()});
  });
  const auto asks = [this](const char* name, bool (*f)(const Value&)) {
    evaluator_.define(name, [f](Call& call) -> Expected<Value> { return Value(!call.values.empty() && f(call.values[0])); });
  };
  asks("_is_wire", [](const Value& v) { return v.get<Thing>() != nullptr && v.get<Thing>()->kind == K::wire; });
  asks("_is_tensor", [](const Value& v) { return v.get<Thing>() != nullptr && v.get<Thing>()->kind == K::tensor; });
  asks("_is_number", [](const Value& v) { return v.is_number(); });
}

}  // namespace stepzero
