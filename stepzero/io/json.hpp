#pragma once
// JSON from strangers, read strictly. Refused, with the byte where it stands: a key given twice (readers disagree on
// which one counts), NaN and Infinity, any encoding but plain UTF-8, and whatever is deeper, longer or larger than its
// limit.
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>

#include <nlohmann/json.hpp>

#include "stepzero/core/error.hpp"

namespace stepzero {

struct JsonLimits {
  std::size_t max_bytes = std::size_t{16} << 20;
  std::size_t max_depth = 32;
  std::size_t max_values = 1'000'000;  // objects, arrays, members and elements together

  static constexpr std::size_t kNone = std::numeric_limits<std::size_t>::max();
};

Expected<nlohmann::json> parse_json(std::string_view text, std::string_view file_name, JsonLimits limits = {});

// A text with the name of the file it comes from, and where in that file it begins: messages count from the file's
// start.
struct JsonSource {
  std::string_view text;
  std::string_view file_name;
  std::uint64_t first_byte = 0;
};

// The parts of a document in their order, for a reader that keeps no tree of it. Each visit says whether to go on.
class JsonVisitor {
 public:
  virtual ~JsonVisitor() = default;

  virtual bool begin_object() = 0;
  virtual bool end_object() = 0;
  virtual bool begin_array() = 0;
  virtual bool end_array() = 0;
  virtual bool key(std::string& name) = 0;            // may be moved from; not checked for repetition
  virtual bool value(nlohmann::json&& scalar) = 0;    // string, number, boolean or null
  virtual std::string context() const { return {}; }  // put before a syntax error: what was being read

 protected:
  // Stops the walk with this error, at the token just visited or at a byte noted before. Always false.
  bool refuse(std::string what, std::string hint);
  bool refuse_at(std::uint64_t byte, std::string what, std::string hint);

  [[nodiscard]] std::uint64_t byte() const;      // of the file, where the token just visited begins
  [[nodiscard]] std::string_view token() const;  // as it stands in the text

 private:
  friend class JsonWalk;
  const class JsonWalk* walk_ = nullptr;
  std::uint64_t refused_at_ = 0;
  Error refusal_;
};

// Duplicate keys are the visitor's business; every other promise above holds.
Expected<void> walk_json(const JsonSource& source, const JsonLimits& limits, JsonVisitor& visitor);

}  // namespace stepzero
