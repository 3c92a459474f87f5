#pragma once
// GGUF files made byte by byte.
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

namespace stepzero::testing {

template <class T>
std::string raw(T value) {
  std::string bytes(sizeof value, '\0');
  std::memcpy(bytes.data(), &value, sizeof value);
  return bytes;
}
inline std::string u32(std::uint32_t x) { return raw(x); }
inline std::string u64(std::uint64_t x) { return raw(x); }
inline std::string text(std::string_view s) { return u64(s.size()) + std::string(s); }

// Types of values as the format numbers them.
inline std::string key_value(std::string_view key, std::uint32_t type, const std::string& value) { return text(key) + u32(type) + value; }
inline std::string key_u32(std::string_view key, std::uint32_t value) { return key_value(key, 4, u32(value)); }

struct GgufTensorSpec {
  std::string name = "t";
  std::vector<std::uint64_t> dims = {8};  // as the file holds them: the fastest first
  std::uint32_t type = 0;
  std::uint64_t offset = 0;
};
inline std::string tensor_info(const GgufTensorSpec& t) {
  std::string out = text(t.name) + u32(static_cast<std::uint32_t>(t.dims.size()));
  for (const std::uint64_t d : t.dims) out += u64(d);
  return out + u32(t.type) + u64(t.offset);
}

struct GgufSpec {
  std::string magic = "GGUF";
  std::uint32_t version = 3;
  std::vector<std::string> keys = {};
  std::vector<std::string> tensors = {};
  std::uint64_t tensor_count = UINT64_MAX, key_count = UINT64_MAX;  // what the file says; else what it has
  std::size_t alignment = 32;
  bool padded = true;
  std::string data = {};
};
inline std::string gguf_bytes(const GgufSpec& g) {
  std::string out = g.magic + u32(g.version) + u64(g.tensor_count == UINT64_MAX ? g.tensors.size() : g.tensor_count) +
                    u64(g.key_count == UINT64_MAX ? g.keys.size() : g.key_count);
  for (const std::string& k : g.keys) out += k;
  for (const std::string& t : g.tensors) out += t;
  if (g.padded) out.resize((out.size() + g.alignment - 1) / g.alignment * g.alignment);
  return out + g.data;
}

}  // namespace stepzero::testing
