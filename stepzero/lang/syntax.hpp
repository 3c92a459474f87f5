#pragma once
// What a parser makes of tokens: expressions and statements as trees.
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "stepzero/lang/source.hpp"

namespace stepzero::lang {

struct Expr;
struct Statement;
using ExprPtr = std::unique_ptr<Expr>;
using Block = std::vector<Statement>;

// A def or a lambda.
struct Definition {
  std::string name;  // "lambda" of one
  std::vector<std::string> params;
  std::vector<ExprPtr> defaults;    // of the last params
  std::vector<std::string> locals;  // names that its body assigns, as Python decides them; params too
  Block body;
  ExprPtr result;  // of a lambda
  Place place;
};

struct Expr {
  enum class Kind : std::uint8_t {
    none,
    truth,  // True, False: whole
    whole,
    real,
    text,
    format,  // an f-string: parts are joined
    name,
    list,  // of parts; a tuple is one as well
    tuple,
    unary,       // text op, parts[0]
    binary,      // parts[0] text op parts[1]
    compare,     // parts[i] ops[i] parts[i+1]
    all_of,      // parts[0] and parts[1]
    any_of,      // parts[0] or parts[1]
    choice,      // parts[0] if parts[1] else parts[2]
    call,        // parts[0](parts[1], ..., words[i] = parts[...]), the named ones last
    index,       // parts[0][parts[1]]
    method,      // parts[0].text, called
    lambda,      // definition
    comprehend,  // [parts[0] for words in parts[1] if parts[2]]
  };
  Kind kind = Kind::none;
  Place place;
  std::string text;
  std::int64_t whole = 0;
  double real = 0;
  int length = 0;  // of a chain of signs, calls or indices
  std::vector<ExprPtr> parts;
  std::vector<std::string> words;  // of a comparison its signs, of a call its named arguments, of a comprehension its variables
  std::shared_ptr<const Definition> definition;
};

struct Statement {
  enum class Kind : std::uint8_t { expression, assign, change, loop, choice, define, give_back, stop, next, nothing };
  Kind kind = Kind::nothing;
  Place place;
  ExprPtr target;    // of an assignment: a name, names, or a place in a list; of a loop: its variables
  ExprPtr value;     // what is assigned, looped over, asked or given back
  std::string text;  // the sign of a change: "+" for +=
  Block body;
  Block otherwise;
  std::shared_ptr<const Definition> definition;
};

}  // namespace stepzero::lang
