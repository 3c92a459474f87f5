#pragma once
// The part of regular expressions that tokenizers split text by: alternatives, groups, classes of characters ([..], \p{L}, \s, \w, \d,
// with [..] inside and &&), the quantifiers ? * + {m,n} (greedy, or possessive on a class), lookahead, ^ and $ (of lines), (?i:..) for
// ASCII letters. What else there is, is refused by name, and so is an expression that matches nothing at all. Alternatives are tried from
// the left and the first that fits counts, as in Oniguruma.
#include <bitset>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "stepzero/core/error.hpp"
#include "stepzero/io/unicode.hpp"

namespace stepzero {

// One instruction; places are relative to its own.
struct Instruction {
  enum class Kind { set, fork, jump, ahead, not_ahead, line_begin, line_end, done };
  using Bytes = std::bitset<256>;  // that a match can begin with

  Kind kind = Kind::done;
  std::uint32_t least = 1, most = 1;  // set: repeated
  bool possessive = false;            // set: gives nothing back
  int set = 0;                        // which one
  int next = 1;                       // jump: to; ahead: what follows the group
  std::vector<int> branches = {};     // fork: to, the preferred first
  std::vector<Bytes> begins = {};     // of each branch
};

class Expression {
 public:
  static Expected<Expression> compile(std::string_view source);
  static Expression literal(std::string_view text);

  struct Match {
    std::size_t begin = 0, end = 0;
  };

  // What is left for one text: what is made to harm ends as an error, not as a hang.
  struct Budget {
    std::uint64_t tries = 0;
    std::size_t longest = 0;  // that the text, or a piece of it, may become
    explicit Budget(std::size_t bytes) : tries(10'000'000 + 1000 * static_cast<std::uint64_t>(bytes)), longest(4096 + 16 * bytes) {}
  };

  // The first match that begins at `from` or later. The text is UTF-8, `from` begins a character.
  [[nodiscard]] Expected<std::optional<Match>> find(std::string_view text, std::size_t from, Budget& budget) const;

 private:
  void prepare();
  std::vector<Instruction> program_;
  std::vector<CodePointSet> sets_;
  Instruction::Bytes begins_;
};

// What the compiler gives: the program without its end, and the sets it names.
struct ExpressionParts {
  std::vector<Instruction> program;
  std::vector<CodePointSet> sets;
};
Expected<ExpressionParts> parse_expression(std::string_view source);

// The bytes that a match of the program can begin with, from the instruction `at` on; all of them where it can be empty.
Instruction::Bytes first_bytes(const std::vector<Instruction>& program, const std::vector<CodePointSet>& sets, std::size_t at, bool& empty);

}  // namespace stepzero
