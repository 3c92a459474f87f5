#pragma once
// What a name can stand for.
#include <cstdint>
#include <memory>
#include <string>
#include <variant>
#include <vector>

namespace stepzero::lang {

struct Value;
struct Function;
using List = std::shared_ptr<std::vector<Value>>;

struct None {};

// Something of the host's: a wire or a tensor, by its number. A wire may wait to be multiplied by `factor`.
struct Thing {
  enum class Kind : std::uint8_t { wire, tensor };
  Kind kind = Kind::wire;
  int id = 0;
  double factor = 1;
};

// What a value can hold: no conversion of something else.
template <class T>
concept Held = std::is_same_v<T, None> || std::is_same_v<T, bool> || std::is_same_v<T, std::int64_t> || std::is_same_v<T, double> ||
               std::is_same_v<T, std::string> || std::is_same_v<T, List> || std::is_same_v<T, std::shared_ptr<const Function>> ||
               std::is_same_v<T, Thing>;

struct Value {
  std::variant<None, bool, std::int64_t, double, std::string, List, std::shared_ptr<const Function>, Thing> v;

  Value() = default;
  template <Held T>
  Value(T x) : v(std::move(x)) {}

  // By a copy of what it holds: where the copy of a whole variant throws, g++ 12 destroys what was never made.
  Value(const Value& other) {
    std::visit([this](auto held) { v = std::move(held); }, other.v);
  }
  Value& operator=(const Value& other) {
    Value copy(other);
    v = std::move(copy.v);
    return *this;
  }
  Value(Value&&) noexcept = default;
  Value& operator=(Value&&) noexcept = default;
  ~Value() = default;

  template <class T>
  [[nodiscard]] const T* get() const {
    return std::get_if<T>(&v);
  }
  [[nodiscard]] bool is_none() const { return get<None>() != nullptr; }
  [[nodiscard]] bool is_number() const { return get<std::int64_t>() != nullptr || get<double>() != nullptr || get<bool>() != nullptr; }
  [[nodiscard]] bool is_whole() const { return get<std::int64_t>() != nullptr || get<bool>() != nullptr; }
  [[nodiscard]] std::int64_t whole() const { return get<bool>() != nullptr ? (*get<bool>() ? 1 : 0) : *get<std::int64_t>(); }
  [[nodiscard]] double number() const { return get<double>() != nullptr ? *get<double>() : static_cast<double>(whole()); }
};

inline Value make_list(std::vector<Value> values) { return List(std::make_shared<std::vector<Value>>(std::move(values))); }

// The same value with lists of its own: those of an evaluator are emptied when it ends.
Value detached(const Value& value, int depth = 0);

const char* type_name(const Value& value);   // "a whole number"
std::string to_text(const Value& value);     // as str() writes it
std::string to_literal(const Value& value);  // as it would be written in a file
// Counts what it looks at; false as well when the count has reached 0.
bool equal(const Value& a, const Value& b, std::int64_t& looks, int depth = 0);

}  // namespace stepzero::lang
