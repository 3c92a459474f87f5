// The language of architecture files: what it computes, what it refuses and how it says so.
#include <chrono>

#include <gtest/gtest.h>

#include "stepzero/lang/evaluator.hpp"

namespace stepzero::lang {
namespace {

// The value of `x` once the text has run, as a literal; or the error.
std::string run(const std::string& text) {
  Evaluator evaluator;
  std::string out = "nothing";
  evaluator.define("out", [&](Call& call) -> Expected<Value> {
    out = to_literal(call.values.at(0));
    return Value();
  });
  const auto done = evaluator.run({"model.py", text});
  return done ? out : done.error().message + (done.error().hint.empty() ? "" : "\n  " + done.error().hint);
}

// Made by CPython 3.11: python3 -c "print(repr(EXPRESSION))"; texts in double quotes.
TEST(Language, ComputesWhatPythonComputes) {
  const std::vector<std::pair<const char*, const char*>> cases = {
      {"7 // 2, -7 // 2, 7 // -2, -7 // -2, 7 % 3, -7 % 3, 7 % -3", "[3, -4, -4, 3, 1, 2, -2]"},
      {"7.5 // 2, -7.5 // 2, -7.5 % 2, 7.5 % -2", "[3.0, -4.0, 0.5, -0.5]"},
      {"1 / 4, 6 / 3, 2 ** 10, 2 ** -1, 2.0 ** 3, -2 ** 2", "[0.25, 2.0, 1024, 0.5, 8.0, -4]"},
      {"1 + 2 * 3 - 4 / 2, (1 + 2) * 3, 10 - 3 - 2, 2 ** 3 ** 2", "[5.0, 9, 5, 512]"},
      {"not 1 == 2, 1 < 2 < 3, 1 < 2 > 5, 1 == 1.0, True + True", "[True, True, False, True, 2]"},
      {"0 or 'a', 1 and 2, [] or 3, None or False", "[\"a\", 2, 3, False]"},
      {"1 if 2 > 1 else 3, [x * x for x in range(5) if x % 2 == 1]", "[1, [1, 9]]"},
      {"[a + b for a, b in zip([1, 2], [10, 20])]", "[11, 22]"},
      {"\"h.%d.%s%%\" % (3, 'ln'), f\"{1 + 1}-{[1, 'a']}{{}}\"", "[\"h.3.ln%\", \"2-[1, 'a']{}\"]"},
      {"1e-05, 1e16, 123456.0, 0.1 + 0.2, 1e100, -0.0", "[1e-05, 1e+16, 123456.0, 0.30000000000000004, 1e+100, -0.0]"},
      {"3 in [1, 2, 3], 'b' in 'abc', 4 not in [1], None is None, 1 is not None", "[True, True, True, True, True]"},
      {"'ab' * 2, [0] * 3, [1] + [2], 'a' 'b', 'xyz'[1], [1, 2, 3][-1]", "[\"abab\", [0, 0, 0], [1, 2], \"ab\", \"y\", 3]"},
      {"max(1, 2.5, 2), min([3, 1, 2]), int(2.9), int(-2.9), float(3), len('abc'), floor(-0.5), ceil(0.5)",
       "[2.5, 1, 2, -2, 3.0, 3, -1, 1]"},
      {"range(5, 0, -2), range(3, 3), list([1])", "[[5, 3, 1], [], [1]]"},
      {"sqrt(2.0), exp(1.0), log(10.0), cos(pi)", "[1.4142135623730951, 2.718281828459045, 2.302585092994046, -1.0]"},
      {"[1, 2] == [1, 2.0], 'a' < 'b', [1] == 1", "[True, True, False]"},
      {"(lambda a, b=2: a * b)(3), (1, 2), ()", "[6, [1, 2], []]"},
      {"1_000 + 0, +3, --3, 9223372036854775807", "[1000, 3, 3, 9223372036854775807]"}};
  for (const auto& [expression, want] : cases) {
    std::string literal = want;
    // a text inside an f-string's list stands in single quotes in Python, in double quotes here
    if (const auto at = literal.find("'a'"); at != std::string::npos) literal.replace(at, 3, "\\\"a\\\"");
    EXPECT_EQ(run(std::string("out((") + expression + "))"), literal) << expression;
  }
}

TEST(Language, RunsStatements) {
  EXPECT_EQ(run("a, b = 1, [2, 3]\nb[0] += a\nb.append(4)\nc = b.pop(1)\nout([a, b, c])"), "[1, [3, 4], 3]");
  EXPECT_EQ(run("t = 0\nfor i in range(10):\n    if i == 2: continue\n    elif i > 4:\n        break\n    t += i\nout(t)"), "8");
  EXPECT_EQ(run("def f(n):\n    if n < 2:\n        return 1\n    return n * f(n - 1)\nout(f(10))"), "3628800");
  EXPECT_EQ(run("def outer(k):\n    def inner(x):\n        return x + k\n    return inner\nout(outer(2)(3))"), "5");
  EXPECT_EQ(run("fs = [lambda: i for i in range(2)]\nout([f() for f in fs])"), "[1, 1]");
  EXPECT_EQ(run("x = 1\ndef f():\n    x = 2\n    return x\nf()\nout(x)"), "1");
  EXPECT_EQ(run("\"\"\"words\"\"\"\nfrom stepzero.arch import *  # as under Python\n\nx = (1 +\n  2)\nout(x)"), "3");
  EXPECT_EQ(run("def f():\n    pass\nout(f())"), "None");
}

// What is wrong, where, the line with a caret, and what to do.
TEST(Language, SaysWhatIsWrongAndWhere) {
  EXPECT_EQ(run("width = 3\nout(widht + 1)"), "model.py:2:5: no name widht; did you mean width?\n  2 | out(widht + 1)\n    |     ^");
  EXPECT_EQ(run("def f(a, b=1):\n    return a\nf(1, c=2)"), "model.py:3:1: f has no argument c\n  3 | f(1, c=2)\n    | ^\n  f(a, b)");
  EXPECT_EQ(run("while True:\n    pass"),
            "model.py:1:1: while is not part of the language\n  1 | while True:\n    | ^\n  loop over a range: for l in range(layers):");
  const std::vector<std::pair<const char*, const char*>> cases = {
      {"import os", "1:1: import is not part of the language"},
      {"x = {1: 2}", "1:5: dictionaries and sets are not part of the language"},
      {"f(*x)", "1:3: arguments are written one by one"},
      {"x = 1 +", "1:8: expected a value, found the end of the line"},
      {"if True:\nx = 1", "2:1: an indented block is expected here"},
      {"x = 'a", "1:5: this text is never closed"},
      {"x = (1", "1:5: this bracket is never closed"},
      {"x = 1)", "1:6: ) closes nothing"},
      {"x = 3a", "1:5: \"3\" is no number that can be held"},
      {"x = 99999999999999999999", "1:5: \"99999999999999999999\" is no number that can be held"},
      {"x = 9223372036854775807 + 1", "1:25: 9223372036854775807 + 1 is too large a whole number"},
      {"x = -9223372036854775807 - 1\ny = x // -1", "2:7: -9223372036854775808 // -1 is too large a whole number"},
      {"x = 1 / 0", "1:7: division by zero"},
      {"x = 0 ** -1", "1:7: 0 ** -1 is no number"},
      {"x = 'a' + 1", "1:9: a text + a whole number has no meaning"},
      {"x = [1][1]", "1:8: no place 1 in a list of 1"},
      {"a, b = [1]", "1:1: 2 names for 1 values"},
      {"x = 'ab'.upper()", "1:9: a text has no method upper"},
      {"def f():\n    y = y + 1\nf()", "2:9: y is used before it is assigned in f"},
      {"x = \"%d\" % 'a'", "1:10: %d wants a whole number, and gets a text"},
      {"return 1", "1:1: return outside a function"},
      {"break", "1:1: break outside a loop"},
      {"x = f'{1'", "1:5: a lonely { in an f-string"},
      {"x = f'{1:d}'", "1:5: \":\" is not expected here"},
      {"\tx = 1", "1:1: a tab in the indentation"},
      {"x = 1 @ 2", "1:7: \"@\" has no meaning here"},
      {"x = [][0:1]", "1:9: slices are not part of the language"},
      {"range(3.0)", "1:1: range counts in whole numbers, this is a number"},
      {"fail('no', 'yes')", "1:1: no\n"},
      {"x = a = 1", "1:7: one assignment a line"},
      {"1()", "1:1: a whole number cannot be called"},
      {"sqrt(-1)", "1:1: sqrt(-1) is no number"}};
  for (const auto& [text, want] : cases) EXPECT_EQ(run(text).find(std::string("model.py:") + want), 0U) << text << "\n" << run(text);
}

// Each ends with a reason; the sums of steps, depth and size that they may take are limited.
TEST(Language, EndsWhateverIsWritten) {
  const std::vector<std::pair<std::string, const char*>> cases = {
      {"for i in range(10 ** 12):\n    x = i", "this range is too long"},
      {"l = [1]\nfor x in l:\n    l.append(x)", "stopped after 5000000 steps"},
      {"def f(x):\n    return f(x)\nf(1)", "lie too deep in each other"},
      {"f = lambda x: f(x)\nf(1)", "lie too deep in each other"},
      {"x = 'a' * 10 ** 9", "is too long"},
      {"x = [0] * 10 ** 9", "is too long"},
      {"x = [[0] * 1000] * 1000\nfor a in range(1000):\n    x = x + x", "too long"},
      {"s = 'a'\nfor i in range(100):\n    s = s + s", "this text has become too long"},
      {"x = []\nfor i in range(10 ** 6):\n    x = [x]", "stopped after"},
      {"x = " + std::string(5000, '(') + "1" + std::string(5000, ')'), "lie too deep"},
      {"x = " + std::string(5000, '-') + "1", "lie too deep"},
      {"x = 1" +
           [] {
             std::string s;
             for (int i = 0; i < 5000; ++i) s += " + 1";
             return s;
           }(),
       "this expression is too long"},
      {"x = y" +
           [] {
             std::string s;
             for (int i = 0; i < 5000; ++i) s += "[0]";
             return s;
           }(),
       "this expression is too long"},
      {[] {
         std::string s;
         for (int i = 0; i < 200; ++i) s += std::string(static_cast<std::size_t>(i), ' ') + "if 1:\n";
         return s;
       }(),
       "too deep"},
      {"x = [1, 1]\nfor i in range(60):\n    x = [x, x]\ny = [1, 1]\nfor i in range(60):\n    y = [y, y]\nz = x == y",
       "too large to compare"}};
  for (const auto& [text, want] : cases)
    EXPECT_NE(run(text).find(want), std::string::npos) << text.substr(0, 80) << "\n" << run(text).substr(0, 200);
}

// Lists and functions that hold themselves are let go of: the leak sanitizer sees it.
TEST(Language, HoldsNothingBack) {
  EXPECT_EQ(run("l = []\nl.append(l)\nl.append([l])\ndef f():\n    def g():\n        return g\n    return g\nh = f()\nout(len(l))"), "2");
  EXPECT_EQ(run("f = lambda: 0\nfor i in range(100000):\n    f = (lambda g: lambda: g)(f)\nout(1)"), "1");
}

}  // namespace
}  // namespace stepzero::lang
