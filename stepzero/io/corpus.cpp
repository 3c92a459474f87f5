#include "stepzero/io/corpus.hpp"

#include <algorithm>
#include <filesystem>
#include <system_error>
#include <utility>

#include <fmt/format.h>

#include "stepzero/core/text.hpp"
#include "stepzero/io/file.hpp"

namespace stepzero {

namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t most_bytes = std::uint64_t{1} << 31;
constexpr std::size_t most_files = 100'000;

bool hidden(const fs::path& path) { return path.filename().string().starts_with('.'); }
bool is_text(std::string_view bytes) { return bytes.find('\0') == std::string_view::npos && valid_utf8(bytes); }

Expected<std::vector<std::string>> files_in(const std::string& directory) {
  std::vector<std::string> files;
  std::error_code error;
  fs::recursive_directory_iterator it(directory, error), end;
  for (; !error && it != end; it.increment(error)) {
    if (hidden(it->path())) {
      it.disable_recursion_pending();
    } else if (it->is_regular_file(error)) {
      files.push_back(it->path().string());
      if (files.size() > most_files)
        return fail(fmt::format("{}: more than {} files", show(directory), most_files), "name fewer directories");
    }
  }
  if (error) return fail(fmt::format("{}: cannot be read: {}", show(directory), error.message()));
  std::ranges::sort(files);
  return files;
}

// Adds a file; of a directory's those alone that are text.
Expected<void> add(std::string& text, const std::string& path, bool named) {
  auto bytes = read_text(path, most_bytes);
  if (!bytes) {
    if (!named) return {};
    return std::unexpected(bytes.error());
  }
  if (!named && !is_text(*bytes)) return {};
  if (text.size() + bytes->size() > most_bytes) return fail(fmt::format("more than {} bytes of text", most_bytes), "name less of it");
  text += *bytes;
  return {};
}

// The code point that begins at text[at], and how many bytes it has. The text is UTF-8.
std::pair<char32_t, std::size_t> code_point(std::string_view text, std::size_t at) {
  const auto byte = [&](std::size_t k) { return static_cast<unsigned char>(text[at + k]); };
  const unsigned first = byte(0);
  const std::size_t length = first < 0x80 ? 1 : first < 0xE0 ? 2 : first < 0xF0 ? 3 : 4;
  char32_t point = length == 1 ? first : first & (0xFFU >> (length + 1));
  for (std::size_t k = 1; k < length; ++k) point = (point << 6) | (byte(k) & 0x3FU);
  return {point, length};
}

Corpus bytes_of(std::string_view text) {
  Corpus corpus{"bytes", 256, {}};
  for (const char c : text) corpus.ids.push_back(static_cast<unsigned char>(c));
  return corpus;
}

Expected<Corpus> characters_of(std::string_view text) {
  const std::size_t bad = find_invalid_utf8(text);
  if (bad != std::string_view::npos) {
    return fail(fmt::format("byte {} of the text is not UTF-8: it has no characters", bad), "--level byte takes any bytes");
  }
  std::vector<std::int32_t> points;
  for (std::size_t at = 0; at < text.size();) {
    const auto [point, length] = code_point(text, at);
    points.push_back(static_cast<std::int32_t>(point));
    at += length;
  }
  std::vector<std::int32_t> known = points;
  std::ranges::sort(known);
  known.erase(std::ranges::unique(known).begin(), known.end());
  for (std::int32_t& p : points) p = static_cast<std::int32_t>(std::ranges::lower_bound(known, p) - known.begin());
  return Corpus{fmt::format("{} characters", known.size()), std::ssize(known), std::move(points)};
}

}  // namespace

Expected<std::string> read_corpus_text(const std::vector<std::string>& paths) {
  std::string text;
  for (const std::string& path : paths) {
    std::error_code ignored;
    const bool directory = fs::is_directory(path, ignored);
    const auto files = directory ? files_in(path) : Expected<std::vector<std::string>>({path});
    if (!files) return std::unexpected(files.error());
    const std::size_t before = text.size();
    for (const std::string& file : *files) {
      if (auto done = add(text, file, !directory); !done) return std::unexpected(done.error());
    }
    if (text.size() == before)
      return fail(fmt::format("{}: no text in it", show(path)), "--text takes files, or directories that hold some");
  }
  return text;
}

Expected<Corpus> tokenize(std::string_view text, const std::string& level) {
  if (level == "byte") return bytes_of(text);
  if (level == "char") return characters_of(text);
  return fail(fmt::format("--level \"{}\" is none", show(level)), "byte or char");
}

}  // namespace stepzero
