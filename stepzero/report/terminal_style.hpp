#pragma once
// How text may look where it goes: how wide, in colour or not, with more than ASCII or not. Everything here takes text
// that show() has made safe.
#include <cstddef>
#include <string>
#include <string_view>

#include "stepzero/signal/finding.hpp"

namespace stepzero {

struct Look {
  std::size_t width = 80;
  bool color = false;
  bool unicode = false;

  enum class Ink { bold, dim, accent, good, warn, bad };

  [[nodiscard]] std::string paint(Ink ink, std::string_view text) const;
  // Untrusted text made safe, and plain where only ASCII is.
  [[nodiscard]] std::string name(std::string_view untrusted) const;
  // The same for a text of several words, however long.
  [[nodiscard]] std::string text(std::string_view untrusted) const;
  // `filled` of `cells`, 0 to 1.
  [[nodiscard]] std::string bar(double filled, std::size_t cells) const;
  [[nodiscard]] const char* plus_minus() const { return unicode ? "±" : "+-"; }
  [[nodiscard]] const char* arrow() const { return unicode ? "→" : "->"; }
  [[nodiscard]] const char* squared() const { return unicode ? "E[x²]" : "E[x^2]"; }
  [[nodiscard]] std::string mark(Severity severity) const;
};

// Code points, which is columns for all but the widest scripts.
std::size_t columns(std::string_view text);

std::string left(std::string_view text, std::size_t width);   // padded on the right
std::string right(std::string_view text, std::size_t width);  // padded on the left

// Cut at the front, where names repeat themselves.
std::string fit(const Look& look, std::string_view text, std::size_t width);

// Lines of at most `width` columns, each after `indent` spaces, those after the first after `hanging` more.
std::string wrap(std::string_view text, std::size_t width, std::size_t indent, std::size_t hanging = 0);

// A command on lines of at most `width` columns where words allow it, each but the last ended by a backslash.
std::string continued(std::string_view command, std::size_t width, std::size_t indent);

// Four significant digits, never wider than nine characters.
std::string number(double x);

// ", 12 s left": what is left of a piece of work, if it goes on like this; empty where nobody can know.
std::string time_left(double elapsed, double share);

}  // namespace stepzero
