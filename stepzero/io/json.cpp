#include "stepzero/io/json.hpp"

#include <charconv>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "stepzero/core/read_real.hpp"
#include "stepzero/core/text.hpp"
#include "stepzero/io/validation.hpp"

namespace stepzero {
namespace {

using nlohmann::json;

std::unexpected<Error> fail_at(const JsonSource& source, std::size_t offset, std::string_view what, std::string hint) {
  return fail(fmt::format("{}: byte {}: {}", show(source.file_name), source.first_byte + offset, what), std::move(hint));
}

// Done once for the whole text; what walks it later sees plain UTF-8 without zero bytes.
Expected<void> check_encoding(const JsonSource& source) {
  const std::string_view text = source.text;
  const char* const hint = "save the file as UTF-8 without a byte order mark";
  if (rejects("json.empty", text.empty()))
    return fail_at(source, 0, "no JSON: the text is empty", "the file may not have been written completely");
  if (rejects("json.bom", text.starts_with("\xEF\xBB\xBF"))) return fail_at(source, 0, "a byte order mark stands before the JSON", hint);
  const bool utf16 =
      text.starts_with("\xFF\xFE") || text.starts_with("\xFE\xFF") || (text.size() > 1 && (text[0] == '\0') != (text[1] == '\0'));
  if (rejects("json.utf16", utf16)) return fail_at(source, 0, "the JSON is UTF-16, must be UTF-8", hint);
  if (const std::size_t at = find_invalid_utf8(text); rejects("json.utf8", at != std::string_view::npos))
    return fail_at(source, at, fmt::format("not UTF-8: found {}", show(text.substr(at, 4))), hint);
  if (const std::size_t at = text.find('\0'); rejects("json.zero-byte", at != std::string_view::npos))
    return fail_at(source, at, "a zero byte in the JSON", "pad with spaces, and write \\u0000 inside a string");
  return {};
}

bool is_digit(char c) { return c >= '0' && c <= '9'; }

void append_utf8(std::string& out, std::uint32_t point) {
  const auto put = [&](std::uint32_t byte) { out.push_back(static_cast<char>(static_cast<unsigned char>(byte))); };
  if (point < 0x80) return put(point);
  if (point >= 0x10000) put(0xF0 | point >> 18), put(0x80 | (point >> 12 & 63));
  if (point >= 0x800 && point < 0x10000) put(0xE0 | point >> 12);
  if (point >= 0x800) put(0x80 | (point >> 6 & 63));
  if (point < 0x800) put(0xC0 | point >> 6);
  put(0x80 | (point & 63));
}

}  // namespace

// Reads the text once, from left to right, without recursion. nlohmann's parser would do, but its events carry no
// position, it ends at a zero byte, and a header of 100 MB takes it most of the two seconds allowed.
class JsonWalk {
 public:
  JsonWalk(const JsonSource& source, const JsonLimits& limits, JsonVisitor& visitor)
      : source_(source), text_(source.text), limits_(limits), visitor_(visitor) {
    visitor_.walk_ = this;
  }

  Expected<void> run() {
    bool fine = value();
    while (fine && !open_.empty()) fine = step();
    if (fine) skip_white();
    if (fine && at_ < text_.size()) fine = broken("the document is complete, found");
    if (fine) return {};
    return std::unexpected(std::move(error_));
  }

  [[nodiscard]] std::string_view token() const { return text_.substr(begin_, at_ - begin_); }
  [[nodiscard]] std::uint64_t byte() const { return source_.first_byte + begin_; }

 private:
  bool value();
  bool step();
  bool key();
  bool open(char kind);
  bool close();
  bool number();
  bool word(std::string_view name, json&& meaning);
  bool string();
  bool escape();
  bool hex4(std::uint32_t& unit);
  bool scalar(json&& meaning) { return count() && asked(visitor_.value(std::move(meaning))); }

  [[nodiscard]] char peek() const { return at_ < text_.size() ? text_[at_] : '\0'; }
  void skip_white() {
    while (peek() == ' ' || peek() == '\n' || peek() == '\r' || peek() == '\t') ++at_;
    begin_ = at_;
  }
  bool asked(bool go_on) {
    if (!go_on) stop(visitor_.refused_at_, visitor_.refusal_.message, std::move(visitor_.refusal_.hint));
    return go_on;
  }
  bool count() {
    if (!rejects("json.values", values_++ >= limits_.max_values)) return true;
    return stop(byte(), fmt::format("more than {} values", limits_.max_values), "is this the file that was meant?");
  }
  bool stop(std::uint64_t byte, std::string_view what, std::string hint) {
    error_ = Error{fmt::format("{}: byte {}: {}", show(source_.file_name), byte, what), std::move(hint)};
    return false;
  }
  bool broken(std::string_view what);

  JsonSource source_;
  std::string_view text_;
  JsonLimits limits_;
  JsonVisitor& visitor_;
  std::size_t at_ = 0;
  std::size_t begin_ = 0;   // of the token that ends at at_
  std::vector<char> open_;  // { or [, outermost first
  bool first_ = false;      // nothing yet in the innermost
  std::size_t values_ = 0;
  std::string string_;
  Error error_;
};

// An error of syntax, at at_.
bool JsonWalk::broken(std::string_view what) {
  const std::string context = visitor_.context();
  std::string_view rest = text_.substr(begin_);
  if (rest.starts_with('-')) rest.remove_prefix(1);
  for (const std::string_view literal : {"NaN", "Infinity", "nan", "inf"}) {
    if (!rest.starts_with(literal)) continue;
    return stop(byte(), fmt::format("{}{} is not JSON", context, literal),
                "Python's json module writes NaN and Infinity, the format has no such numbers; put a finite number or null");
  }
  const bool ended = at_ >= text_.size();
  const std::string found = ended ? "the end of the text" : fmt::format("`{}`", show(text_.substr(at_, 24)));
  return stop(source_.first_byte + at_, fmt::format("{}{} {}", context, what, found),
              ended ? "the file may have been cut short" : "JSON has no comments, no trailing commas and double quotes only");
}

bool JsonWalk::value() {
  skip_white();
  switch (const char c = peek()) {
    case '{':
    case '[':
      return open(c);
    case '"':
      return string() && scalar(std::exchange(string_, {}));
    case 't':
      return word("true", true);
    case 'f':
      return word("false", false);
    case 'n':
      return word("null", nullptr);
    default:
      return c == '-' || is_digit(c) ? number() : broken("a value must stand here, found");
  }
}

// Inside a container: its end; or a comma, not before the first, and what follows it.
bool JsonWalk::step() {
  skip_white();
  const bool object = open_.back() == '{';
  if (peek() == (object ? '}' : ']')) return close();
  if (!std::exchange(first_, false)) {
    if (peek() != ',') return broken(object ? "`,` or `}` must stand here, found" : "`,` or `]` must stand here, found");
    ++at_;
  }
  return (!object || key()) && value();
}

bool JsonWalk::key() {
  skip_white();
  if (peek() != '"') return broken("a key in double quotes must stand here, found");
  if (!string() || !asked(visitor_.key(string_))) return false;
  skip_white();
  if (peek() != ':') return broken("`:` must stand here, found");
  ++at_;
  return true;
}

bool JsonWalk::open(char kind) {
  ++at_;
  if (rejects("json.depth", open_.size() >= limits_.max_depth)) {
    return stop(byte(), fmt::format("{}nested deeper than {} levels", visitor_.context(), limits_.max_depth),
                "no file of this kind needs that; it may be made to harm");
  }
  open_.push_back(kind);
  first_ = true;
  return count() && asked(kind == '{' ? visitor_.begin_object() : visitor_.begin_array());
}

bool JsonWalk::close() {
  ++at_;
  const char kind = open_.back();
  open_.pop_back();
  first_ = false;
  return asked(kind == '{' ? visitor_.end_object() : visitor_.end_array());
}

bool JsonWalk::word(std::string_view name, json&& meaning) {
  if (!text_.substr(at_).starts_with(name)) return broken("a value must stand here, found");
  at_ += name.size();
  return scalar(std::move(meaning));
}

bool JsonWalk::number() {
  const auto digits = [&] {
    const std::size_t first = at_;
    while (is_digit(peek())) ++at_;
    return at_ > first;
  };
  const bool negative = peek() == '-';
  if (negative) ++at_;
  const bool zero = peek() == '0';
  if (!digits()) return broken("a digit must stand here, found");
  const std::size_t whole = at_;
  if (zero && whole - begin_ > (negative ? 2U : 1U)) return broken("a number begins with a needless 0, before");
  if (peek() == '.' && (++at_, !digits())) return broken("a digit must stand here, found");
  if (peek() == 'e' || peek() == 'E') {
    ++at_;
    if (peek() == '+' || peek() == '-') ++at_;
    if (!digits()) return broken("a digit must stand here, found");
  }
  const std::string_view digits_read = token();
  const char *const first = digits_read.data(), *const last = first + digits_read.size();
  std::uint64_t natural = 0;
  std::int64_t integer = 0;
  double real = 0;
  const bool plain = at_ == whole;
  if (plain && !negative && std::from_chars(first, last, natural).ec == std::errc()) return scalar(natural);
  if (plain && negative && std::from_chars(first, last, integer).ec == std::errc()) return scalar(integer);
  if (read_real(first, last, real).ec == std::errc()) return scalar(real);
  return stop(byte(), fmt::format("{}the number {} fits in no double", visitor_.context(), show(digits_read)),
              "no quantity in a model is that large or that small");
}

// From one quote to the next, escapes undone, into string_.
bool JsonWalk::string() {
  string_.clear();
  ++at_;
  for (;;) {
    const std::size_t run = at_;
    while (at_ < text_.size() && text_[at_] != '"' && text_[at_] != '\\' && static_cast<unsigned char>(text_[at_]) >= 0x20) ++at_;
    string_.append(text_, run, at_ - run);
    if (at_ >= text_.size()) return broken("a string must end, found");
    if (text_[at_] == '"') return ++at_ > 0;
    if (text_[at_] != '\\') return broken("a control character must be written as \\u00XX, found");
    if (!escape()) return false;
  }
}

bool JsonWalk::escape() {
  constexpr std::string_view letters = "\"\\/bfnrt", meanings = "\"\\/\b\f\n\r\t";
  ++at_;
  if (const std::size_t which = letters.find(peek()); at_ < text_.size() && which != letters.npos) {
    string_.push_back(meanings[which]);
    ++at_;
    return true;
  }
  if (peek() != 'u') return broken("an unknown escape in a string:");
  std::uint32_t unit = 0, low = 0;
  ++at_;
  if (!hex4(unit)) return false;
  if (unit >= 0xDC00 && unit <= 0xDFFF) return broken("half of a surrogate pair before");
  if (unit >= 0xD800 && unit <= 0xDBFF) {
    if (!text_.substr(at_).starts_with("\\u")) return broken("half of a surrogate pair before");
    at_ += 2;
    if (!hex4(low)) return false;
    if (low < 0xDC00 || low > 0xDFFF) return broken("half of a surrogate pair before");
    unit = 0x10000 + ((unit - 0xD800) << 10) + (low - 0xDC00);
  }
  append_utf8(string_, unit);
  return true;
}

bool JsonWalk::hex4(std::uint32_t& unit) {
  const std::string_view four = text_.substr(at_, 4);
  const auto [end, error] = std::from_chars(four.data(), four.data() + four.size(), unit, 16);
  if (error != std::errc() || end - four.data() != 4) return broken("four hexadecimal digits must stand here, found");
  at_ += 4;
  return true;
}

bool JsonVisitor::refuse(std::string what, std::string hint) { return refuse_at(byte(), std::move(what), std::move(hint)); }

bool JsonVisitor::refuse_at(std::uint64_t byte, std::string what, std::string hint) {
  refused_at_ = byte;
  refusal_ = Error{std::move(what), std::move(hint)};
  return false;
}

std::uint64_t JsonVisitor::byte() const { return walk_->byte(); }
std::string_view JsonVisitor::token() const { return walk_->token(); }

Expected<void> walk_json(const JsonSource& source, const JsonLimits& limits, JsonVisitor& visitor) {
  if (rejects("json.bytes", source.text.size() > limits.max_bytes)) {
    return fail(fmt::format("{}: {} bytes of JSON, at most {} are read", show(source.file_name), source.text.size(), limits.max_bytes),
                "is this the file that was meant?");
  }
  if (auto plain = check_encoding(source); !plain) return plain;
  return JsonWalk(source, limits, visitor).run();
}

namespace {

class TreeBuilder final : public JsonVisitor {
 public:
  json take() { return std::move(root_); }

  bool begin_object() override { return open(json::object()); }
  bool begin_array() override { return open(json::array()); }
  bool end_object() override { return close(); }
  bool end_array() override { return close(); }
  bool value(json&& scalar) override {
    place(std::move(scalar));
    return true;
  }
  bool key(std::string& name) override {
    // The object is a std::map: keys chosen to collide cannot slow it down.
    auto& members = open_.back()->get_ref<json::object_t&>();
    const auto [member, fresh] = members.try_emplace(std::move(name));
    slot_ = &member->second;
    if (!rejects("json.key-twice", !fresh)) return true;
    return refuse(fmt::format("the key \"{}\" is given twice", show(member->first)), "keep one of the two");
  }

 private:
  bool open(json&& container) {
    open_.push_back(place(std::move(container)));
    return true;
  }
  bool close() {
    open_.pop_back();
    return true;
  }
  json* place(json&& value) {
    if (open_.empty()) return &(root_ = std::move(value));
    if (open_.back()->is_object()) return &(*slot_ = std::move(value));
    open_.back()->push_back(std::move(value));
    return &open_.back()->back();
  }

  json root_;
  std::vector<json*> open_;
  json* slot_ = nullptr;  // of the member whose key was read last
};

}  // namespace

Expected<json> parse_json(std::string_view text, std::string_view file_name, JsonLimits limits) {
  TreeBuilder builder;
  if (auto walked = walk_json({text, file_name}, limits, builder); !walked) return std::unexpected(std::move(walked.error()));
  return builder.take();
}

}  // namespace stepzero
