#include "stepzero/io/unicode.hpp"

#include <algorithm>
#include <charconv>
#include <map>
#include <unordered_map>

namespace stepzero {

namespace {

using Ranges = std::vector<std::pair<char32_t, char32_t>>;

// A number at the front of the text, and what follows it. The text without a number: `otherwise`.
std::uint32_t take_number(std::string_view& text, int base, std::uint32_t otherwise = 1) {
  std::uint32_t number = otherwise;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number, base);
  text.remove_prefix(static_cast<std::size_t>(end - text.data()));
  return number;
}

std::map<std::string_view, Ranges> read_categories() {
  std::map<std::string_view, Ranges> out;
  char32_t at = 0;
  for (std::string_view rest = unicode_data::categories; !rest.empty();) {
    const std::string_view name = rest.substr(0, 2);
    rest.remove_prefix(2);
    const char32_t count = take_number(rest, 10);
    out[name].emplace_back(at, at + count - 1);
    at += count;
  }
  return out;
}

// Calls see(code point, word) for every word of a text like "@41 61 62+300".
template <class See>
void read_words(std::string_view text, const See& see) {
  for (char32_t at = 0; !text.empty();) {
    const std::size_t space = std::min(text.find(' '), text.size());
    std::string_view word = text.substr(0, space);
    text.remove_prefix(std::min(space + 1, text.size()));
    if (word.starts_with('@')) {
      word.remove_prefix(1);
      at = take_number(word, 16);
    } else {
      at = see(at, word);
    }
  }
}

// "15*e6" from `at` on: what each of these code points is given.
std::unordered_map<char32_t, std::uint32_t> read_counted(std::string_view text) {
  std::unordered_map<char32_t, std::uint32_t> out;
  read_words(text, [&](char32_t at, std::string_view word) {
    const char32_t end = at + take_number(word, 16);
    word.remove_prefix(1);
    const std::uint32_t value = take_number(word, 16);
    for (; at < end; ++at) out[at] = value;
    return at;
  });
  return out;
}

using Points = std::vector<char32_t>;

struct NormalTables {
  std::unordered_map<char32_t, std::pair<char32_t, char32_t>> parts;  // the second is 0 where there is one
  std::map<std::pair<char32_t, char32_t>, char32_t> composed;
  std::unordered_map<char32_t, std::uint32_t> classes = read_counted(unicode_data::classes);

  NormalTables() {
    read_words(unicode_data::decompositions, [&](char32_t at, std::string_view word) {
      const char32_t first = take_number(word, 16);
      const bool composes = word.starts_with('+');
      if (!word.empty()) word.remove_prefix(1);
      const char32_t second = take_number(word, 16, 0);
      parts[at] = {first, second};
      if (composes) composed[{first, second}] = at;
      return at + 1;
    });
  }
  [[nodiscard]] std::uint32_t class_of(char32_t point) const {
    const auto found = point < 0x300 ? classes.end() : classes.find(point);
    return found == classes.end() ? 0 : found->second;
  }
};

const NormalTables& tables() {
  static const NormalTables made;
  return made;
}

// Hangul syllables are computed, not listed: a leading consonant, a vowel, and perhaps a trailing consonant.
constexpr char32_t syllables = 0xAC00, leading = 0x1100, vowels = 0x1161, trailing = 0x11A7;
constexpr char32_t leading_count = 19, vowel_count = 21, trailing_count = 28, syllable_count = leading_count * vowel_count * trailing_count;

bool within(char32_t point, char32_t first, char32_t count) { return point >= first && point < first + count; }

void decompose(char32_t point, Points& out) {
  if (within(point, syllables, syllable_count)) {
    const char32_t index = point - syllables, last = index % trailing_count;
    out.push_back(leading + index / (vowel_count * trailing_count));
    out.push_back(vowels + index / trailing_count % vowel_count);
    if (last > 0) out.push_back(trailing + last);
    return;
  }
  const auto found = point < 0xC0 ? tables().parts.end() : tables().parts.find(point);
  if (found == tables().parts.end()) return out.push_back(point);
  decompose(found->second.first, out);
  if (found->second.second != 0) decompose(found->second.second, out);
}

// Marks behind a letter stand in the order of their classes.
void put_in_order(Points& points) {
  for (auto it = points.begin(); it != points.end();) {
    const auto mark = [](char32_t p) { return tables().class_of(p) != 0; };
    const auto begin = std::find_if(it, points.end(), mark), end = std::find_if_not(begin, points.end(), mark);
    std::stable_sort(begin, end, [](char32_t a, char32_t b) { return tables().class_of(a) < tables().class_of(b); });
    it = end;
  }
}

char32_t composition(char32_t a, char32_t b) {
  if (within(a, leading, leading_count) && within(b, vowels, vowel_count))
    return syllables + ((a - leading) * vowel_count + (b - vowels)) * trailing_count;
  if (within(a, syllables, syllable_count) && (a - syllables) % trailing_count == 0 && within(b, trailing + 1, trailing_count - 1))
    return a + (b - trailing);
  const auto found = tables().composed.find({a, b});
  return found == tables().composed.end() ? 0 : found->second;
}

// A character joins the last one of class 0 unless something of its class or a higher one stands between.
void compose(Points& points) {
  std::size_t kept = 0, starter = points.size();
  std::uint32_t between = 0;
  for (std::size_t i = 0; i < points.size(); ++i) {
    const std::uint32_t its = tables().class_of(points[i]);
    const bool reaches = starter < kept && (starter + 1 == kept || (between < its && between != 0));
    if (const char32_t joined = reaches ? composition(points[starter], points[i]) : 0; joined != 0) {
      points[starter] = joined;
      continue;
    }
    if (its == 0) starter = kept;
    between = its;
    points[kept++] = points[i];
  }
  points.resize(kept);
}

}  // namespace

void append_utf8(std::string& out, char32_t point) {
  const auto put = [&](char32_t byte) { out.push_back(static_cast<char>(static_cast<unsigned char>(byte))); };
  if (point < 0x80) return put(point);
  if (point >= 0x10000) put(0xF0 | point >> 18), put(0x80 | (point >> 12 & 63));
  if (point >= 0x800 && point < 0x10000) put(0xE0 | point >> 12);
  if (point >= 0x800) put(0x80 | (point >> 6 & 63));
  if (point < 0x800) put(0xC0 | point >> 6);
  put(0x80 | (point & 63));
}

std::optional<CodePointSet> CodePointSet::category(std::string_view name) {
  static const std::map<std::string_view, Ranges> all = read_categories();
  CodePointSet set;
  for (const auto& [category, ranges] : all) {
    if (category == name || category.substr(0, 1) == name) set.ranges_.insert(set.ranges_.end(), ranges.begin(), ranges.end());
  }
  if (set.ranges_.empty()) return std::nullopt;
  set.settle();
  return set;
}

CodePointSet CodePointSet::white_space() {
  CodePointSet set = *category("Z");
  set.add('\t', '\r');
  set.add(0x85, 0x85);
  return set;
}

CodePointSet CodePointSet::word() {
  CodePointSet set = *category("L");
  for (const char* more : {"M", "Nd", "Nl", "Pc"}) set.add(*category(more));
  set.add(0x24B6, 0x24E9);  // letters in circles and squares
  for (const char32_t first : {0x1F130U, 0x1F150U, 0x1F170U}) set.add(first, first + 25);
  return set;
}

void CodePointSet::add(char32_t first, char32_t last) {
  ranges_.emplace_back(first, last);
  settle();
}

void CodePointSet::add(const CodePointSet& other) {
  ranges_.insert(ranges_.end(), other.ranges_.begin(), other.ranges_.end());
  settle();
}

void CodePointSet::invert() {
  Ranges out;
  char32_t next = 0;
  for (const auto& [first, last] : ranges_) {
    if (first > next) out.emplace_back(next, first - 1);
    next = last + 1;
  }
  if (next <= last_code_point) out.emplace_back(next, last_code_point);
  ranges_ = std::move(out);
  settle();
}

// What neither of the two leaves out.
void CodePointSet::intersect(CodePointSet other) {
  other.invert();
  invert();
  add(other);
  invert();
}

void CodePointSet::settle() {
  std::ranges::sort(ranges_);
  Ranges out;
  for (const auto& [first, last] : ranges_) {
    if (!out.empty() && first <= out.back().second + 1) {
      out.back().second = std::max(out.back().second, last);
    } else {
      out.emplace_back(first, last);
    }
  }
  ranges_ = std::move(out);
  ascii_ = {0, 0};
  for (const auto& [first, last] : ranges_) {
    for (char32_t p = first; p <= last && p < 128; ++p) ascii_[p / 64] |= std::uint64_t{1} << (p % 64);
  }
}

bool CodePointSet::beyond_ascii(char32_t point) const {
  const auto it = std::ranges::upper_bound(ranges_, point, {}, &std::pair<char32_t, char32_t>::first);
  return it != ranges_.begin() && std::prev(it)->second >= point;
}

std::string normalized(std::string_view text, NormalForm form) {
  std::string out;
  out.reserve(text.size());
  Points run;
  // Up to the next ASCII character: no mark crosses it, and nothing joins it from the right but marks.
  const auto flush = [&] {
    Points points;
    for (const char32_t p : run) decompose(p, points);
    put_in_order(points);
    if (form == NormalForm::composed) compose(points);
    for (const char32_t p : points) append_utf8(out, p);
    run.clear();
  };
  for (std::size_t at = 0; at < text.size();) {
    const CodePoint next = decode(text, at);
    if (next.value < 0x80 && run.size() == 1 && run[0] < 0x80) {  // nothing to do for the one before
      out.push_back(static_cast<char>(run[0]));
      run[0] = next.value;
    } else {
      if (next.value < 0x80) flush();
      run.push_back(next.value);
    }
    at += next.length;
  }
  flush();
  return out;
}

std::string lower_case(std::string_view text) {
  static const std::unordered_map<char32_t, std::uint32_t> steps = read_counted(unicode_data::lower);
  std::string out;
  out.reserve(text.size());
  for (std::size_t at = 0; at < text.size();) {
    const CodePoint next = decode(text, at);
    at += next.length;
    if (next.value < 0x80) {
      out.push_back(static_cast<char>(next.value >= 'A' && next.value <= 'Z' ? next.value + 32 : next.value));
    } else if (next.value == 0x130) {  // I with a dot: the one that becomes two
      out += "i\u0307";
    } else {
      const auto found = steps.find(next.value);
      append_utf8(out, found == steps.end() ? next.value : (next.value + found->second) % (last_code_point + 1));
    }
  }
  return out;
}

}  // namespace stepzero
