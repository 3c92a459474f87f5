#include "stepzero/io/expression.hpp"

#include <algorithm>

#include <fmt/format.h>

#include "stepzero/core/text.hpp"
#include "stepzero/io/validation.hpp"

namespace stepzero {

namespace {

using Kind = Instruction::Kind;

constexpr int most_calls = 2000;  // inside each other

// The bytes that characters of the set begin with; beyond ASCII all are taken.
Instruction::Bytes bytes_of(const CodePointSet& set) {
  Instruction::Bytes bytes;
  for (unsigned b = 0; b < 256; ++b) bytes[b] = b >= 128 || set.contains(b);
  return bytes;
}

struct FirstBytes {
  const std::vector<Instruction>& program;
  const std::vector<CodePointSet>& sets;
  std::vector<bool> seen = std::vector<bool>(program.size(), false);
  Instruction::Bytes bytes = {};
  bool empty = false;

  void see(std::size_t at);
};

void FirstBytes::see(std::size_t at) {
  while (!seen[at]) {
    seen[at] = true;
    const Instruction& i = program[at];
    if (i.kind == Kind::done) {
      empty = true;
      return;
    }
    if (i.kind == Kind::fork) {
      for (const int branch : i.branches) see(at + static_cast<std::size_t>(branch));
      return;
    }
    if (i.kind == Kind::set) {
      bytes |= bytes_of(sets[static_cast<std::size_t>(i.set)]);
      if (i.least > 0) return;
    }
    at += static_cast<std::size_t>(i.kind == Kind::set ? 1 : i.next);
  }
}

// One text, one place to begin at.
class Matcher {
 public:
  Matcher(const std::vector<Instruction>& program, const std::vector<CodePointSet>& sets, std::string_view text, std::uint64_t& tries)
      : program_(program), sets_(sets), text_(text), tries_(tries) {}

  bool run(std::size_t pc, std::size_t at);
  [[nodiscard]] std::size_t end() const { return end_; }
  [[nodiscard]] bool gave_up() const { return gave_up_; }

 private:
  bool call(std::size_t pc, std::size_t at) {
    if (rejects("expression.calls", calls_ >= most_calls)) gave_up_ = true;
    if (rejects("expression.tries", tries_ == 0)) gave_up_ = true;
    if (gave_up_) return false;
    --tries_;
    ++calls_;
    const bool found = run(pc, at);
    --calls_;
    return found;
  }
  // The end of the longest run of members from `at` on, and how many they are.
  std::size_t longest(const Instruction& i, std::size_t at, std::uint32_t& count) {
    const CodePointSet& set = sets_[static_cast<std::size_t>(i.set)];
    for (count = 0; count < i.most && at < text_.size(); ++count) {
      const CodePoint c = decode(text_, at);
      if (!set.contains(c.value)) break;
      at += c.length;
    }
    tries_ -= std::min<std::uint64_t>(tries_, count);
    return at;
  }
  [[nodiscard]] bool may_begin(const Instruction::Bytes& bytes, std::size_t at) const {
    return at < text_.size() ? bytes[static_cast<unsigned char>(text_[at])] : bytes.all();
  }
  // All members, then ever fewer. False: the instruction failed; true with `at` moved: go on; found: the rest matched.
  bool repeated(std::size_t pc, std::size_t& at, bool& found);
  bool forked(std::size_t& pc, std::size_t at, bool& found);

  const std::vector<Instruction>& program_;
  const std::vector<CodePointSet>& sets_;
  std::string_view text_;
  std::uint64_t& tries_;
  std::size_t end_ = 0;
  int calls_ = 0;
  bool gave_up_ = false;
};

bool Matcher::repeated(std::size_t pc, std::size_t& at, bool& found) {
  const Instruction& i = program_[pc];
  std::uint32_t count = 0;
  std::size_t end = longest(i, at, count);
  if (count < i.least) return false;
  const bool only_one = i.possessive || count == i.least || program_[pc + 1].kind == Kind::done;
  if (only_one) {
    at = end;
    return true;
  }
  for (;; --count) {
    if (call(pc + 1, end)) return found = true;
    if (count == i.least || gave_up_) return false;
    do --end;
    while ((static_cast<unsigned char>(text_[end]) & 0xC0U) == 0x80);
  }
}

bool Matcher::forked(std::size_t& pc, std::size_t at, bool& found) {
  const Instruction& i = program_[pc];
  for (std::size_t b = 0; b + 1 < i.branches.size(); ++b) {
    if (may_begin(i.begins[b], at) && call(pc + static_cast<std::size_t>(i.branches[b]), at)) return found = true;
    if (gave_up_) return false;
  }
  pc += static_cast<std::size_t>(i.branches.back());
  return may_begin(i.begins.back(), at);
}

bool Matcher::run(std::size_t pc, std::size_t at) {
  for (;;) {
    const Instruction& i = program_[pc];
    bool found = false, fine = true;
    std::size_t next = pc + 1;
    switch (i.kind) {
      case Kind::done:
        end_ = at;
        return true;
      case Kind::set:
        fine = repeated(pc, at, found);
        break;
      case Kind::fork:
        fine = forked(next = pc, at, found);
        break;
      case Kind::jump:
        next = pc + static_cast<std::size_t>(i.next);
        break;
      case Kind::ahead:
      case Kind::not_ahead:
        fine = call(pc + 1, at) == (i.kind == Kind::ahead) && !gave_up_;
        next = pc + static_cast<std::size_t>(i.next);
        break;
      case Kind::line_begin:
        fine = at == 0 || text_[at - 1] == '\n';
        break;
      case Kind::line_end:
        fine = at == text_.size() || text_[at] == '\n';
        break;
    }
    if (found || !fine) return found;
    pc = next;
  }
}

}  // namespace

Instruction::Bytes first_bytes(const std::vector<Instruction>& program, const std::vector<CodePointSet>& sets, std::size_t at,
                               bool& empty) {
  FirstBytes first{program, sets};
  first.see(at);
  empty = first.empty;
  if (empty) first.bytes.set();
  return first.bytes;
}

void Expression::prepare() {
  program_.push_back({});
  bool empty = false;
  for (std::size_t at = 0; at < program_.size(); ++at) {
    for (const int branch : program_[at].branches)
      program_[at].begins.push_back(first_bytes(program_, sets_, at + static_cast<std::size_t>(branch), empty));
  }
  begins_ = first_bytes(program_, sets_, 0, empty);
}

Expected<Expression> Expression::compile(std::string_view source) {
  auto parts = parse_expression(source);
  if (!parts) return std::unexpected(parts.error());
  Expression out;
  out.program_ = std::move(parts->program);
  out.sets_ = std::move(parts->sets);
  out.prepare();
  if (bool empty = false; first_bytes(out.program_, out.sets_, 0, empty), rejects("expression.empty", empty)) {
    return fail(fmt::format("the regular expression \"{}\" can match nothing at all", show(source)),
                "a + instead of a * would make it match something");
  }
  return out;
}

Expression Expression::literal(std::string_view text) {
  Expression out;
  for (std::size_t at = 0; at < text.size();) {
    const CodePoint c = decode(text, at);
    out.program_.push_back({.kind = Kind::set, .set = static_cast<int>(out.sets_.size())});
    out.sets_.emplace_back(c.value, c.value);
    at += c.length;
  }
  out.prepare();
  return out;
}

Expected<std::optional<Expression::Match>> Expression::find(std::string_view text, std::size_t from, Budget& budget) const {
  for (std::size_t at = from; at < text.size(); at += decode(text, at).length) {
    if (!begins_[static_cast<unsigned char>(text[at])]) continue;
    Matcher matcher(program_, sets_, text, budget.tries);
    if (matcher.run(0, at)) return Match{at, matcher.end()};
    if (matcher.gave_up()) {
      return fail(fmt::format("a regular expression takes too long at byte {} of a piece of the text", at),
                  "it may be made to harm; is the file the one that was meant?");
    }
  }
  return std::nullopt;
}

}  // namespace stepzero
