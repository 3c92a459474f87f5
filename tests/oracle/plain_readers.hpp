#pragma once
// Second readers of the formats, deliberately plain: the whole file in memory, one rule a line, no speed, no messages. The
// real readers must accept and refuse the same files and see the same tensors.
#include <cstdint>
#include <cstring>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json.hpp>

#include "stepzero/core/text.hpp"

namespace stepzero::oracle {

struct Tensor {
  std::string type;
  std::vector<std::uint64_t> shape;
  std::uint64_t begin = 0, end = 0;  // bytes of the file
  bool operator==(const Tensor&) const = default;
};
using Tensors = std::map<std::string, Tensor>;

inline std::optional<std::uint64_t> product(const std::vector<std::uint64_t>& shape, std::uint64_t bits) {
  for (const std::uint64_t n : shape)
    if (n == 0) return 0;
  std::uint64_t p = bits;
  for (const std::uint64_t n : shape) {
    if (p > UINT64_MAX / n) return std::nullopt;
    p *= n;
  }
  return p;
}

// JSON as nlohmann reads it, with the keys of each object in order, doubled ones and all.
struct Document {
  nlohmann::json tree;
  bool doubled_at_top = false;
  bool doubled_field = false;     // dtype, shape or data_offsets of a tensor
  bool doubled_metadata = false;  // a key inside __metadata__
  bool doubled_anywhere = false;
  int depth = 0;
};

inline std::optional<Document> parse(std::string_view text) {
  if (text.empty() || text.find('\0') != text.npos || !valid_utf8(text) || text.starts_with("\xEF\xBB\xBF")) return std::nullopt;
  Document d;
  std::vector<std::set<std::string>> seen;
  std::vector<std::string> path;
  const auto callback = [&](int depth, nlohmann::json::parse_event_t event, nlohmann::json& value) {
    using E = nlohmann::json::parse_event_t;
    const auto level = static_cast<std::size_t>(depth);
    if (event == E::object_start || event == E::array_start) {
      d.depth = std::max(d.depth, depth + 1);
      seen.resize(level + 1);
      seen.emplace_back();
      path.resize(level + 1);
    }
    if (event == E::key) {
      const std::string key = value.get<std::string>();
      seen.resize(level + 1);
      path.resize(level + 1);
      const bool again = !seen[level].insert(key).second;
      path[level] = key;
      d.doubled_anywhere = d.doubled_anywhere || again;
      if (again && depth == 1) d.doubled_at_top = true;
      const bool field = key == "dtype" || key == "shape" || key == "data_offsets";
      if (again && depth == 2 && path[1] == "__metadata__") d.doubled_metadata = true;
      if (again && depth == 2 && path[1] != "__metadata__" && field) d.doubled_field = true;
    }
    return true;
  };
  d.tree = nlohmann::json::parse(text.begin(), text.end(), callback, false);
  if (d.tree.is_discarded()) return std::nullopt;
  return d;
}

inline std::optional<int> bits_of(const std::string& dtype) {
  static const std::map<std::string, int> sizes = {
      {"BOOL", 8},    {"F4", 4},          {"F6_E2M3", 6},     {"F6_E3M2", 6}, {"U8", 8},   {"I8", 8},   {"F8_E5M2", 8}, {"F8_E4M3", 8},
      {"F8_E8M0", 8}, {"F8_E4M3FNUZ", 8}, {"F8_E5M2FNUZ", 8}, {"I16", 16},    {"U16", 16}, {"F16", 16}, {"BF16", 16},   {"I32", 32},
      {"U32", 32},    {"F32", 32},        {"C64", 64},        {"F64", 64},    {"I64", 64}, {"U64", 64}};
  const auto it = sizes.find(dtype);
  return it == sizes.end() ? std::nullopt : std::optional(it->second);
}

inline std::optional<Tensors> safetensors(std::string_view file) {
  if (file.size() < 8) return std::nullopt;
  std::uint64_t length = 0;
  std::memcpy(&length, file.data(), 8);
  if (length == 0 || length > 100'000'000 || length > file.size() - 8) return std::nullopt;
  const std::string_view text = file.substr(8, length);
  if (std::string_view(" \t\r\n").find(text.front()) != std::string_view::npos) return std::nullopt;
  const auto document = parse(text);
  if (!document || !document->tree.is_object() || document->doubled_at_top || document->doubled_field || document->doubled_metadata ||
      document->depth > 8)
    return std::nullopt;
  const std::uint64_t data = 8 + length, room = file.size() - data;
  Tensors out;
  std::vector<std::pair<std::uint64_t, std::uint64_t>> ranges;
  for (const auto& [name, entry] : document->tree.items()) {
    if (!entry.is_object()) return std::nullopt;
    if (name == "__metadata__") {
      for (const auto& [key, value] : entry.items())
        if (!value.is_string()) return std::nullopt;
      continue;
    }
    if (name.size() > 1024) return std::nullopt;
    if (!entry.contains("dtype") || !entry.contains("shape") || !entry.contains("data_offsets")) return std::nullopt;
    const auto &dtype = entry["dtype"], &shape = entry["shape"], &offsets = entry["data_offsets"];
    if (!dtype.is_string() || !shape.is_array() || !offsets.is_array() || offsets.size() != 2 || shape.size() > 64) return std::nullopt;
    Tensor t;
    t.type = dtype.get<std::string>();
    const auto bits = bits_of(t.type);
    if (!bits) return std::nullopt;
    for (const auto& n : shape) {
      if (!n.is_number_unsigned() || n.get<std::uint64_t>() >= (std::uint64_t{1} << 48)) return std::nullopt;
      t.shape.push_back(n.get<std::uint64_t>());
    }
    for (const auto& n : offsets)
      if (!n.is_number_unsigned()) return std::nullopt;
    const auto begin = offsets[0].get<std::uint64_t>(), end = offsets[1].get<std::uint64_t>();
    const auto size = product(t.shape, static_cast<std::uint64_t>(*bits));
    if (begin > end || end > room || !size || *size % 8 != 0 || *size / 8 != end - begin) return std::nullopt;
    t.begin = data + begin;
    t.end = data + end;
    ranges.emplace_back(begin, end);
    out[name] = t;
  }
  std::sort(ranges.begin(), ranges.end());
  std::uint64_t filled = 0;
  for (const auto& [begin, end] : ranges) {
    if (begin != filled) return std::nullopt;
    filled = end;
  }
  if (filled != room) return std::nullopt;
  return out;
}

// Reads numbers from a string until it is at fault.
struct Words {
  std::string_view file;
  std::size_t at = 0;
  bool fine = true;

  template <class T>
  T take() {
    T value = {};
    if (!fine || file.size() - at < sizeof value) {
      fine = false;
      return value;
    }
    std::memcpy(&value, file.data() + at, sizeof value);
    at += sizeof value;
    return value;
  }
  std::string text(std::uint64_t most) {
    const auto n = take<std::uint64_t>();
    if (!fine || n > most || n > file.size() - at) {
      fine = false;
      return {};
    }
    at += n;
    return std::string(file.substr(at - n, n));
  }
};

inline void gguf_value(Words& in, std::uint32_t type, int depth) {
  static const int sizes[] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};
  if (type > 12) {
    in.fine = false;
  } else if (type == 8) {
    in.text(UINT64_MAX);
  } else if (type == 7) {
    const auto b = in.take<std::uint8_t>();
    in.fine = in.fine && b <= 1;
  } else if (type == 9) {
    const auto of = in.take<std::uint32_t>();
    const auto n = in.take<std::uint64_t>();
    if (!in.fine || of > 12 || (of == 9 && depth >= 4)) {
      in.fine = false;
      return;
    }
    for (std::uint64_t i = 0; i < n && in.fine; ++i) gguf_value(in, of, depth + 1);
  } else {
    for (int i = 0; i < sizes[type]; ++i) in.take<std::uint8_t>();
  }
}

struct GgmlSize {
  const char* name;
  std::uint64_t elements, bytes;
};

inline const GgmlSize* ggml_size(std::uint32_t type) {
  static const std::map<std::uint32_t, GgmlSize> sizes = {
      {0, {"F32", 1, 4}},        {1, {"F16", 1, 2}},         {2, {"Q4_0", 32, 18}},    {3, {"Q4_1", 32, 20}},    {6, {"Q5_0", 32, 22}},
      {7, {"Q5_1", 32, 24}},     {8, {"Q8_0", 32, 34}},      {9, {"Q8_1", 32, 36}},    {10, {"Q2_K", 256, 84}},  {11, {"Q3_K", 256, 110}},
      {12, {"Q4_K", 256, 144}},  {13, {"Q5_K", 256, 176}},   {14, {"Q6_K", 256, 210}}, {15, {"Q8_K", 256, 292}}, {16, {"IQ2_XXS", 256, 66}},
      {17, {"IQ2_XS", 256, 74}}, {18, {"IQ3_XXS", 256, 98}}, {19, {"IQ1_S", 256, 50}}, {20, {"IQ4_NL", 32, 18}}, {21, {"IQ3_S", 256, 110}},
      {22, {"IQ2_S", 256, 82}},  {23, {"IQ4_XS", 256, 136}}, {24, {"I8", 1, 1}},       {25, {"I16", 1, 2}},      {26, {"I32", 1, 4}},
      {27, {"I64", 1, 8}},       {28, {"F64", 1, 8}},        {29, {"IQ1_M", 256, 56}}, {30, {"BF16", 1, 2}},     {34, {"TQ1_0", 256, 54}},
      {35, {"TQ2_0", 256, 66}},  {39, {"MXFP4", 32, 17}}};
  const auto it = sizes.find(type);
  return it == sizes.end() ? nullptr : &it->second;
}

inline std::optional<Tensors> gguf(std::string_view file) {
  Words in{file};
  if (!file.starts_with("GGUF")) return std::nullopt;
  in.at = 4;
  const auto version = in.take<std::uint32_t>();
  if (version != 2 && version != 3) return std::nullopt;
  const auto tensors = in.take<std::uint64_t>(), keys = in.take<std::uint64_t>();
  if (!in.fine || tensors > (file.size() - in.at) / 24 || keys > (file.size() - in.at) / 13) return std::nullopt;
  std::set<std::string> known;
  std::uint64_t alignment = 32;
  for (std::uint64_t i = 0; i < keys; ++i) {
    const std::string key = in.text(65535);
    if (!in.fine || key.empty() || !known.insert(key).second) return std::nullopt;
    for (const char c : key)
      if (c < 0x20 || c > 0x7E) return std::nullopt;
    const auto type = in.take<std::uint32_t>();
    const std::size_t at = in.at;
    gguf_value(in, type, 1);
    if (!in.fine) return std::nullopt;
    if (key != "general.alignment") continue;
    if (type != 4) return std::nullopt;
    std::uint32_t given = 0;
    std::memcpy(&given, file.data() + at, 4);
    if (given < 8 || given > 65536 || (given & (given - 1)) != 0) return std::nullopt;
    alignment = given;
  }
  Tensors out;
  std::vector<std::pair<std::string, std::uint64_t>> order;
  for (std::uint64_t i = 0; i < tensors; ++i) {
    const std::string name = in.text(64);
    const auto dims = in.take<std::uint32_t>();
    if (!in.fine || dims > 4 || name.find('\0') != name.npos || out.contains(name)) return std::nullopt;
    Tensor t;
    for (std::uint32_t d = 0; d < dims; ++d) t.shape.insert(t.shape.begin(), in.take<std::uint64_t>());
    const GgmlSize* const size = ggml_size(in.take<std::uint32_t>());
    const auto offset = in.take<std::uint64_t>();
    if (!in.fine || size == nullptr) return std::nullopt;
    for (const std::uint64_t n : t.shape)
      if (n > (std::uint64_t{1} << 48)) return std::nullopt;
    const std::uint64_t row = t.shape.empty() ? 1 : t.shape.back();
    if (row % size->elements != 0) return std::nullopt;
    const auto count = product(t.shape, 1);
    if (!count || *count / size->elements > file.size()) return std::nullopt;
    t.type = size->name;
    t.end = *count / size->elements * size->bytes;
    if (t.end > file.size()) return std::nullopt;
    order.emplace_back(name, offset);
    out[name] = t;
  }
  const std::uint64_t start = (in.at + alignment - 1) / alignment * alignment;
  std::uint64_t filled = 0;
  for (const auto& [name, offset] : order) {
    Tensor& t = out[name];
    if (offset != filled || offset % alignment != 0) return std::nullopt;
    const std::uint64_t room = start > file.size() ? 0 : file.size() - start;
    if (t.end > 0 && start > file.size()) return std::nullopt;
    if (offset > room || t.end > room - offset) return std::nullopt;
    filled = (offset + t.end + alignment - 1) / alignment * alignment;
    t.begin = start + offset;
    t.end += t.begin;
  }
  return out;
}

inline std::optional<std::map<std::string, std::string>> index(std::string_view text) {
  const auto d = parse(text);
  if (!d || d->doubled_anywhere || d->depth > 32 || !d->tree.is_object() || !d->tree.contains("weight_map")) return std::nullopt;
  const auto& map = d->tree["weight_map"];
  if (!map.is_object() || map.empty()) return std::nullopt;
  std::map<std::string, std::string> out;
  for (const auto& [tensor, shard] : map.items()) {
    if (!shard.is_string()) return std::nullopt;
    const std::string name = shard.get<std::string>();
    const std::string allowed = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-";
    if (name.size() > 255 || name.front() == '.' || !name.ends_with(".safetensors") || name.find_first_not_of(allowed) != name.npos)
      return std::nullopt;
    out[tensor] = name;
  }
  return out;
}

}  // namespace stepzero::oracle
