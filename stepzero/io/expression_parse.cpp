#include <algorithm>
#include <charconv>

#include <fmt/format.h>

#include "stepzero/core/text.hpp"
#include "stepzero/io/expression.hpp"
#include "stepzero/io/validation.hpp"

namespace stepzero {

namespace {

using Kind = Instruction::Kind;
using Program = std::vector<Instruction>;

constexpr std::size_t most_source = 8192, most_instructions = 4000, most_sets = 1000;
constexpr std::uint32_t unlimited = ~std::uint32_t{0}, most_repeats = 1000;
constexpr int most_groups = 50;  // inside each other

void append(Program& to, Program&& more) {
  to.insert(to.end(), std::make_move_iterator(more.begin()), std::make_move_iterator(more.end()));
}

int size_of(const Program& program) { return static_cast<int>(program.size()); }

// To Oniguruma's \w outside of brackets, superscripts and fractions of Latin-1 are of words too.
CodePointSet lone_word() {
  CodePointSet set = CodePointSet::word();
  for (const char32_t point : {0xB2U, 0xB3U, 0xB9U, 0xBCU, 0xBDU, 0xBEU}) set.add(point, point);
  return set;
}

// Without regard to case, one character stands for two of these: the sharp s, and the ligatures of f and of st.
bool folds_to_one(char32_t left, char32_t right) {
  const auto small = [](char32_t c) { return c < 128 ? static_cast<char>(c | 0x20U) : '?'; };
  return small(left) == 's' ? small(right) == 's' || small(right) == 't'
                            : small(left) == 'f' && std::string_view("fil").find(small(right)) != std::string_view::npos;
}

// What stands in the middle of the text `source_`, which is UTF-8. Every part leaves at_ behind what it has read.
class Parser {
 public:
  explicit Parser(std::string_view source) : source_(source) {}

  Expected<ExpressionParts> run() {
    Program program;
    const bool fine = alternatives(program) && (ended() || refuse("a `)` that closes no group"));
    if (!fine) return std::unexpected(error_);
    return ExpressionParts{std::move(program), std::move(sets_)};
  }

 private:
  bool alternatives(Program& out);
  bool sequence(Program& out);
  bool atom(Program& out);
  bool group(Program& out);
  bool quantified(Program& out);
  bool counts(std::uint32_t& least, std::uint32_t& most);
  bool repeat(Program& out, std::uint32_t least, std::uint32_t most, bool possessive);
  bool escape(CodePointSet& out, std::optional<char32_t>& single);
  bool escaped_number(CodePointSet& out, std::optional<char32_t>& single, std::size_t digits);
  bool category(CodePointSet& out, bool inverted);
  bool brackets(CodePointSet& out);
  bool bracket_item(CodePointSet& out);
  bool bracket_character(CodePointSet& out, std::optional<char32_t>& single);
  bool set(Program& out, CodePointSet&& members);
  void fold(CodePointSet& set) const;

  [[nodiscard]] bool ended() const { return at_ >= source_.size(); }
  [[nodiscard]] bool sees(std::string_view word) const { return source_.substr(at_).starts_with(word); }
  [[nodiscard]] bool sees_quantifier() const { return sees("?") || sees("*") || sees("+") || sees("{"); }
  bool takes(std::string_view word) {
    if (sees(word)) return at_ += word.size(), true;
    return false;
  }
  char32_t character() {
    const CodePoint c = decode(source_, at_);
    at_ += c.length;
    return c.value;
  }
  bool refuse(std::string_view what) {
    error_ = {.message = fmt::format("the regular expression \"{}\" has {} at byte {}", show(source_), what, at_),
              .hint = "known are alternatives, classes, \\p{..} of general categories, ? * + {m,n}, lookahead, (?i:..), ^ and $"};
    return false;
  }

  std::string_view source_;
  std::size_t at_ = 0;
  std::vector<CodePointSet> sets_;
  bool fold_ = false;  // inside (?i:
  bool bracketed_ = false;
  int depth_ = 0;
  Error error_;
};

// Each but the last ends in a jump behind all.
bool Parser::alternatives(Program& out) {
  std::vector<Program> branches(1);
  if (!sequence(branches.back())) return false;
  while (takes("|")) {
    if (!sequence(branches.emplace_back())) return false;
  }
  if (branches.size() == 1) return append(out, std::move(branches[0])), true;
  Instruction fork{.kind = Kind::fork};
  int place = 1;
  for (const Program& branch : branches) {
    fork.branches.push_back(place);
    place += size_of(branch) + 1;
  }
  const int end = place - 1;  // the last branch needs no jump
  out.push_back(fork);
  for (std::size_t i = 0; i < branches.size(); ++i) {
    const int jump = fork.branches[i] + size_of(branches[i]);
    append(out, std::move(branches[i]));
    if (i + 1 < branches.size()) out.push_back({.kind = Kind::jump, .next = end - jump});
  }
  return true;
}

bool Parser::sequence(Program& out) {
  while (!ended() && !sees("|") && !sees(")")) {
    if (!quantified(out)) return false;
    if (rejects("expression.size", out.size() > most_instructions)) return refuse("more parts than are taken");
  }
  return true;
}

bool Parser::quantified(Program& out) {
  Program one;
  if (!atom(one)) return false;
  for (bool braces = true; sees_quantifier();) {  // what {..} has repeated may be repeated again
    if (!braces) return refuse("a quantifier of a quantifier");
    braces = sees("{");
    std::uint32_t least = 1, most = 1;
    if (braces) {
      if (!counts(least, most)) return false;
    } else if (takes("?")) {
      least = 0;
    } else {
      least = takes("+") || !takes("*") ? 1 : 0;
      most = unlimited;
    }
    if (sees("?")) return refuse("a quantifier that takes as little as it can");
    if (!repeat(one, least, most, !braces && takes("+"))) return false;
  }
  return append(out, std::move(one)), true;
}

// {3}, {1,3}, {2,}
bool Parser::counts(std::uint32_t& least, std::uint32_t& most) {
  takes("{");
  const auto number = [&](std::uint32_t& to) {
    const auto [end, error] = std::from_chars(source_.data() + at_, source_.data() + source_.size(), to);
    at_ = static_cast<std::size_t>(end - source_.data());
    return error == std::errc() && to <= most_repeats;
  };
  if (!number(least)) return refuse("a number of repeats that is none");
  most = least;
  if (takes(",")) {
    most = unlimited;
    if (!sees("}") && !number(most)) return refuse("a number of repeats that is none");
  }
  if (most < least || most == 0 || !takes("}")) return refuse("numbers of repeats that are none");
  return true;
}

bool Parser::repeat(Program& out, std::uint32_t least, std::uint32_t most, bool possessive) {
  if (out.size() == 1 && out[0].kind == Kind::set && out[0].least == 1 && out[0].most == 1) {
    out[0].least = least, out[0].most = most, out[0].possessive = possessive;
    return true;
  }
  if (possessive) return refuse("a group that gives nothing back");
  out.push_back({});
  bool empty = false;
  first_bytes(out, sets_, 0, empty);
  out.pop_back();
  if (rejects("expression.empty-group", empty)) return refuse("a repeated group that can be empty");
  const Program body = std::move(out);
  const std::size_t copies = most == unlimited ? std::size_t{least} + 1 : most;
  if (rejects("expression.repeats", copies * (body.size() + 2) > most_instructions)) return refuse("more repeats than are taken");
  out.clear();
  for (std::uint32_t i = 0; i < least; ++i) append(out, Program(body));
  if (most == unlimited) {
    out.push_back({.kind = Kind::fork, .branches = {1, size_of(body) + 2}});
    append(out, Program(body));
    out.push_back({.kind = Kind::jump, .next = -size_of(body) - 1});
    return true;
  }
  for (std::uint32_t i = least; i < most; ++i) {  // each may be left out, with all behind it
    const int rest = static_cast<int>(most - i) * (size_of(body) + 1);
    out.push_back({.kind = Kind::fork, .branches = {1, rest}});
    append(out, Program(body));
  }
  return true;
}

bool Parser::atom(Program& out) {
  if (ended()) return refuse("an end where something must stand");
  if (takes("(")) return group(out);
  if (takes("^")) return out.push_back({.kind = Kind::line_begin}), true;
  if (takes("$")) return out.push_back({.kind = Kind::line_end}), true;
  if (sees_quantifier()) return refuse("a quantifier of nothing");
  CodePointSet members;
  std::optional<char32_t> single;
  bracketed_ = sees("[");
  if (takes("[")) return brackets(members) && set(out, std::move(members));
  if (takes("\\")) return escape(members, single) && set(out, std::move(members));
  if (takes(".")) {
    members.add('\n', '\n');
    members.invert();
  } else {
    const char32_t c = character();
    if (rejects("expression.fold", fold_ && !ended() && folds_to_one(c, decode(source_, at_).value)))
      return refuse("a pair of letters that one character stands for, without regard to case");
    members.add(c, c);
  }
  return set(out, std::move(members));
}

bool Parser::group(Program& out) {
  if (rejects("expression.depth", ++depth_ > most_groups)) return refuse("too many groups inside each other");
  const bool outside = fold_;
  Kind look = Kind::done;
  if (takes("?")) {
    if (takes("!")) {
      look = Kind::not_ahead;
    } else if (takes("=")) {
      look = Kind::ahead;
    } else if (takes("i:")) {
      fold_ = true;
    } else if (!takes(":")) {
      return refuse("a kind of group that is not known");
    }
  }
  Program inner;
  if (!alternatives(inner)) return false;
  if (!takes(")")) return refuse("a group that is not closed");
  fold_ = outside;
  --depth_;
  if (look != Kind::done) {
    out.push_back({.kind = look, .next = size_of(inner) + 2});
    inner.push_back({});
  }
  return append(out, std::move(inner)), true;
}

// Behind a backslash. `single`: the character, where it is one.
bool Parser::escape(CodePointSet& out, std::optional<char32_t>& single) {
  if (ended()) return refuse("a backslash at its end");
  const char32_t c = character();
  const auto all_but = [&](CodePointSet set, bool inverted) {
    if (inverted) set.invert();
    out.add(set);
    return true;
  };
  switch (c) {
    case 's':
    case 'S':
      return all_but(CodePointSet::white_space(), c == 'S');
    case 'd':
    case 'D':
      return all_but(*CodePointSet::category("Nd"), c == 'D');
    case 'w':
    case 'W':
      return all_but(bracketed_ ? CodePointSet::word() : lone_word(), c == 'W');
    case 'p':
    case 'P':
      return category(out, c == 'P');
    case 'u':
      return escaped_number(out, single, 4);
    case 'x':
      return escaped_number(out, single, 2);
    default:
      break;
  }
  constexpr std::string_view letters = "nrtfv", meanings = "\n\r\t\f\v";
  const std::size_t which = c < 128 ? letters.find(static_cast<char>(c)) : std::string_view::npos;
  single = which == std::string_view::npos ? c : static_cast<char32_t>(meanings[which]);
  const bool known = which != std::string_view::npos || c >= 128 || !(CodePointSet::word().contains(c));
  if (!known) return --at_, refuse(fmt::format("the escape \\{}", static_cast<char>(c)));
  out.add(*single, *single);
  return true;
}

bool Parser::escaped_number(CodePointSet& out, std::optional<char32_t>& single, std::size_t digits) {
  const bool braces = takes("{");
  const std::size_t end = braces ? source_.find('}', at_) : at_ + digits;
  std::uint32_t number = 0;
  const std::string_view text = end <= source_.size() ? source_.substr(at_, end - at_) : std::string_view();
  const auto [last, error] = std::from_chars(text.data(), text.data() + text.size(), number, 16);
  const bool whole = error == std::errc() && last == text.data() + text.size();
  if (!whole || number > last_code_point || (number >= 0xD800 && number < 0xE000)) return refuse("a number that is no character");
  at_ = end + (braces ? 1 : 0);
  single = number;
  out.add(number, number);
  return true;
}

bool Parser::category(CodePointSet& out, bool inverted) {
  const std::size_t end = source_.find('}', at_);
  if (!takes("{") || end == std::string_view::npos) return refuse("a \\p without {..}");
  if (takes("^")) inverted = !inverted;
  const std::string_view name = source_.substr(at_, end - at_);
  auto found = name.empty() ? std::nullopt : CodePointSet::category(name);
  if (!found) return refuse("a \\p{..} that is no general category");
  at_ = end + 1;
  if (inverted) found->invert();
  out.add(*found);
  return true;
}

// Behind `[`.
bool Parser::brackets(CodePointSet& out) {
  if (rejects("expression.brackets", ++depth_ > most_groups)) return refuse("too many brackets inside each other");
  const bool inverted = takes("^");
  if (sees("]")) return refuse("empty brackets");
  std::optional<CodePointSet> before;  // what stands left of &&
  CodePointSet members;
  while (!takes("]")) {
    if (ended()) return refuse("brackets that are not closed");
    if (takes("&&")) {
      if (before) members.intersect(std::move(*before));
      before = std::exchange(members, {});
    } else if (!bracket_item(members)) {
      return false;
    }
  }
  if (before) members.intersect(std::move(*before));
  if (fold_) fold(members);
  if (inverted) members.invert();
  --depth_;
  out.add(members);
  return true;
}

bool Parser::bracket_item(CodePointSet& out) {
  if (sees("[:")) return refuse("a [:name:]");
  if (takes("[")) return brackets(out);
  CodePointSet one;
  std::optional<char32_t> first, last;
  if (!bracket_character(one, first)) return false;
  const bool range = first && sees("-") && !sees("-]");
  if (range) {
    takes("-");
    if (ended() || sees("[") || !bracket_character(one, last) || !last || *last < *first) return refuse("a range that is none");
    one = CodePointSet(*first, *last);
  }
  out.add(one);
  return true;
}

bool Parser::bracket_character(CodePointSet& out, std::optional<char32_t>& single) {
  if (takes("\\")) return escape(out, single);
  single = character();
  out.add(*single, *single);
  return true;
}

bool Parser::set(Program& out, CodePointSet&& members) {
  if (fold_) fold(members);
  if (rejects("expression.sets", sets_.size() >= most_sets)) return refuse("more classes than are taken");
  out.push_back({.kind = Kind::set, .set = static_cast<int>(sets_.size())});
  sets_.push_back(std::move(members));
  return true;
}

// The other case of each ASCII letter, and the two letters beyond ASCII whose other case is one: the long s and the sign of Kelvin.
void Parser::fold(CodePointSet& set) const {
  const CodePointSet before = set;
  const auto both = [&](char32_t a, char32_t b) {
    if (before.contains(a) || before.contains(b)) set.add(a, a), set.add(b, b);
  };
  for (char32_t c = 'a'; c <= 'z'; ++c) both(c, c - 32);
  if (before.contains('s') || before.contains('S')) set.add(0x17F, 0x17F);
  if (before.contains('k') || before.contains('K')) set.add(0x212A, 0x212A);
}

}  // namespace

Expected<ExpressionParts> parse_expression(std::string_view source) {
  if (rejects("expression.length", source.size() > most_source)) {
    return fail(fmt::format("a regular expression of {} bytes, at most {} are read", source.size(), most_source), "split it into several");
  }
  return Parser(source).run();
}

}  // namespace stepzero
