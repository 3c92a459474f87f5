#pragma once
// Byte-pair encoding as a textbook has it: all pairs are looked at for every merge. Only for tokenizers that do nothing else.
#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

namespace stepzero::oracle {

using Characters = std::vector<std::string>;

inline Characters characters(const std::string& text) {
  Characters out;
  for (const char c : text) {
    if ((static_cast<unsigned char>(c) & 0xC0U) == 0x80 && !out.empty()) {
      out.back() += c;
    } else {
      out.emplace_back(1, c);
    }
  }
  return out;
}

// The tokens behind each other, at most about 300 bytes: a text that the vocabulary may spell.
inline std::string all_tokens(const nlohmann::json& root) {
  std::string out;
  if (!root.is_object() || !root.contains("model") || !root["model"].contains("vocab")) return out;
  for (const auto& [token, id] : root["model"]["vocab"].items()) {
    if (out.size() < 300 && token.size() < 300) out += token;
  }
  return out;
}

inline std::map<std::pair<std::string, std::string>, std::size_t> ranks(const nlohmann::json& merges) {
  std::map<std::pair<std::string, std::string>, std::size_t> out;
  for (std::size_t i = 0; i < merges.size(); ++i) {
    const nlohmann::json& m = merges[i];
    const std::string both = m.is_string() ? m.get<std::string>() : "";
    if (i == 0 && both.starts_with("#version")) continue;
    const std::size_t space = std::min(both.find(' '), both.size());
    const bool pair = m.is_array();
    out[{pair ? m[0].get<std::string>() : both.substr(0, space),
         pair ? m[1].get<std::string>() : both.substr(std::min(space + 1, both.size()))}] = i;
  }
  return out;
}

// Nothing where the tokenizer does more than merging, or cannot spell the text.
inline std::optional<std::vector<std::int32_t>> bpe(const nlohmann::json& root, const std::string& text) {
  const nlohmann::json& model = root["model"];
  const auto absent = [](const nlohmann::json& object, const char* key) {
    const auto it = object.find(key);
    return it == object.end() || it->is_null() || *it == "" || *it == false || *it == nlohmann::json::array();
  };
  for (const char* key : {"added_tokens", "normalizer", "pre_tokenizer"}) {
    if (!absent(root, key)) return std::nullopt;
  }
  for (const char* key : {"unk_token", "byte_fallback", "ignore_merges", "continuing_subword_prefix", "end_of_word_suffix"}) {
    if (!absent(model, key)) return std::nullopt;
  }
  Characters word = characters(text);
  const auto by_rank = ranks(model["merges"]);
  for (;;) {
    std::size_t best = by_rank.size() + 1, at = 0;
    for (std::size_t i = 0; i + 1 < word.size(); ++i) {
      const auto found = by_rank.find({word[i], word[i + 1]});
      if (found != by_rank.end() && found->second < best) best = found->second, at = i;
    }
    if (best > by_rank.size()) break;
    word[at] += word[at + 1];
    word.erase(word.begin() + static_cast<std::ptrdiff_t>(at) + 1);
  }
  std::vector<std::int32_t> ids;
  for (const std::string& token : word) {
    if (!model["vocab"].contains(token)) return std::nullopt;
    ids.push_back(model["vocab"][token].get<std::int32_t>());
  }
  return ids;
}

}  // namespace stepzero::oracle
