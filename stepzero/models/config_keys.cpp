#include "stepzero/models/config_keys.hpp"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "stepzero/core/text.hpp"
#include "stepzero/models/config_reader.hpp"

namespace stepzero {

namespace {

using lang::Value;
using nlohmann::json;

constexpr int most_deep = 4;
constexpr std::int64_t most_count = std::int64_t{1} << 31;

// A value of the language; none: it has no such thing (an object).
std::optional<Value> value_of(const json& told, int depth = 0) {
  if (told.is_null()) return Value();
  if (told.is_boolean()) return Value(told.get<bool>());
  if (told.is_number_unsigned() && told > most_count) return {};
  if (told.is_number_integer()) return Value(told.get<std::int64_t>());
  if (told.is_number()) return Value(told.get<double>());
  if (told.is_string()) return Value(told.get<std::string>());
  if (!told.is_array() || depth == most_deep) return {};
  std::vector<Value> list;
  for (const json& each : told) {
    auto one = value_of(each, depth + 1);
    if (!one) return {};
    list.push_back(std::move(*one));
  }
  return lang::make_list(std::move(list));
}

// What is expected where the default is of this kind; empty: the value fits.
std::string_view wanted(const Value& like, const Value& value) {
  if (like.get<bool>() != nullptr) return value.get<bool>() != nullptr ? "" : "true or false";
  if (like.get<std::int64_t>() != nullptr) {
    const auto* n = value.get<std::int64_t>();
    return n != nullptr && std::abs(*n) <= most_count ? "" : "a whole number of at most 2^31";
  }
  if (like.get<double>() != nullptr) {
    return value.is_number() && value.get<bool>() == nullptr && std::abs(value.number()) <= 1e30 ? "" : "a number of at most 1e30";
  }
  if (like.get<std::string>() != nullptr) return value.get<std::string>() != nullptr ? "" : "a string";
  if (like.get<lang::List>() != nullptr) return value.get<lang::List>() != nullptr ? "" : "a list";
  return "";
}

const Value* named(const lang::Call& call, std::string_view name) {
  const auto it = std::ranges::find(call.named, name, [](const auto& n) { return std::string_view(n.first); });
  return it == call.named.end() ? nullptr : &it->second;
}

}  // namespace

const json* ConfigKeys::find(const std::string& path) {
  asked_.insert(path.substr(0, path.find('.')));
  const json* at = config_;
  for (std::size_t start = 0; at != nullptr && start <= path.size();) {
    const std::size_t dot = std::min(path.find('.', start), path.size());
    const auto it = at->is_object() ? at->find(path.substr(start, dot - start)) : at->end();
    at = at->is_object() && it != at->end() ? &*it : nullptr;
    start = dot + 1;
  }
  return at;
}

Expected<Value> ConfigKeys::state(const lang::Call& call) {
  const auto* name = call.values.size() == 1 ? call.values[0].get<std::string>() : nullptr;
  if (name == nullptr) return fail("the name of a key is expected here");
  const json* told = find(*name);
  return Value(std::string(told == nullptr ? "missing" : told->is_null() ? "null" : "given"));
}

Expected<Value> ConfigKeys::count(const lang::Call& call) {
  const auto* name = call.values.size() == 2 ? call.values[0].get<std::string>() : nullptr;
  if (name == nullptr) return fail("count_key takes a name and a default", "count_key(\"id2label\", 2)");
  const json* told = find(*name);
  return told != nullptr && told->is_structured() ? Value(static_cast<std::int64_t>(told->size())) : call.values[1];
}

Expected<Value> ConfigKeys::ignored(const lang::Call& call) {
  for (const Value& name : call.values) {
    if (name.get<std::string>() == nullptr) return fail("names of keys are expected here");
    asked_.insert(*name.get<std::string>());
  }
  return Value();
}

Expected<Value> ConfigKeys::key(const lang::Call& call) {
  const auto* name = call.values.size() == 2 ? call.values[0].get<std::string>() : nullptr;
  if (name == nullptr) return fail("key takes a name and a default", "key(\"hidden_size\", 4096)");
  const Value& otherwise = call.values[1];
  std::vector<std::string> names = {*name};
  if (const Value* also = named(call, "also"); also != nullptr && also->get<lang::List>() != nullptr) {
    for (const Value& other : **also->get<lang::List>()) {
      if (other.get<std::string>() != nullptr) names.push_back(*other.get<std::string>());
    }
  }
  const json* found = nullptr;
  bool is_null = false;
  std::string from;
  for (const std::string& each : names) {
    const json* told = find(each);
    is_null = is_null || (told != nullptr && told->is_null());
    if (told == nullptr || told->is_null()) continue;
    if (found != nullptr && *found != *told)
      return fail(fmt::format("\"{}\" says {}, but its other name \"{}\" says {}", each, show(told->dump()), from, show(found->dump())));
    if (found == nullptr) found = told, from = each;
  }
  if (found == nullptr) {
    const Value* of_null = named(call, "null");
    if (is_null && of_null != nullptr) return *of_null;
    if (is_size_key(*name) && otherwise.get<std::int64_t>() != nullptr) assumed_.emplace_back(*name, *otherwise.get<std::int64_t>());
    return otherwise;
  }
  const auto value = value_of(*found);
  const std::string_view expected = value ? wanted(otherwise, *value) : "a number, a text or a list";
  if (!expected.empty()) return fail(fmt::format("\"{}\": expected {}, found {}", from, expected, show(found->dump())));
  return otherwise.get<double>() != nullptr ? Value(value->number()) : *value;
}

}  // namespace stepzero
