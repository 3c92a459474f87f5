#pragma once
// What a fuzzer's bytes must do to the readers: nothing bad, and the same as in the plain reader. Each returns what went
// wrong; empty: nothing.
#include <string>
#include <string_view>

#include <fmt/format.h>

#include "stepzero/io/gguf.hpp"
#include "stepzero/io/json.hpp"
#include "stepzero/io/safetensors_header.hpp"
#include "stepzero/io/shard_index.hpp"
#include "stepzero/io/tokenizer.hpp"
#include "stepzero/models/model.hpp"
#include "tests/oracle/plain_bpe.hpp"
#include "tests/oracle/plain_readers.hpp"

namespace stepzero::fuzz {

// JSON numbers that no double holds are refused here and taken as 0 or refused there.
inline bool by_number(const Error& e) { return e.message.find("fits in no double") != std::string::npos; }

inline std::string verdict(bool ours, bool theirs, const std::string& why) {
  if (ours == theirs) return "";
  return fmt::format("we {} it, the plain reader does not: {}", ours ? "accept" : "refuse", why);
}

inline std::string safetensors(std::string_view file) {
  const auto theirs = oracle::safetensors(file);
  std::uint64_t length = 0;
  if (file.size() >= 8) std::memcpy(&length, file.data(), 8);
  if (file.size() < 8 || length == 0 || length > safetensors::kMaxHeaderBytes || length > file.size() - 8)
    return theirs ? "the length" : "";
  const auto ours = safetensors::parse_header(file.substr(8, length), "f", file.size() - 8 - length, false);
  if (!ours && by_number(ours.error())) return "";
  if (ours.has_value() != theirs.has_value()) return verdict(ours.has_value(), theirs.has_value(), ours ? "" : ours.error().message);
  if (!ours) return "";
  oracle::Tensors mine;
  for (const TensorInfo& t : ours->tensors)
    mine[t.name] = {std::string(dtype_name(t.dtype)), t.shape, 8 + length + t.begin, 8 + length + t.end};
  return mine == *theirs ? "" : "other tensors";
}

inline std::string gguf(std::string_view file) {
  const auto theirs = oracle::gguf(file);
  bool outside = false;
  const ByteSource source{file.size(), [&](std::uint64_t at, std::span<std::byte> out) -> Expected<void> {
                            outside = at > file.size() || out.size() > file.size() - at;
                            if (outside) return fail("read outside the file");
                            std::memcpy(out.data(), file.data() + at, out.size());
                            return {};
                          }};
  const auto ours = parse_gguf(source, "f");
  if (ours.has_value() != theirs.has_value()) return verdict(ours.has_value(), theirs.has_value(), ours ? "" : ours.error().message);
  if (outside) return "a read outside the file";
  if (!ours) return "";
  oracle::Tensors mine;
  for (const GgufTensor& t : ours->tensors) mine[t.name] = {std::string(t.encoding.name), t.shape, t.offset, t.offset + t.bytes};
  return mine == *theirs ? "" : "other tensors";
}

inline std::string index(std::string_view text) {
  const auto theirs = oracle::index(text);
  const auto ours = parse_shard_index(text, "f");
  if (!ours && by_number(ours.error())) return "";
  if (ours.has_value() != theirs.has_value()) return verdict(ours.has_value(), theirs.has_value(), ours ? "" : ours.error().message);
  return !ours || ours->shard_of == *theirs ? "" : "other shards";
}

// The tree must be nlohmann's, and a description that is read must resolve or say why not.
inline std::string config(std::string_view text) {
  const auto tree = parse_json(text, "f");
  const auto theirs = oracle::parse(text);
  if (tree && (!theirs || theirs->tree != *tree)) return "another tree";
  if (!tree && theirs && !theirs->doubled_anywhere && theirs->depth <= 32 && !by_number(tree.error()))
    return "refused: " + tree.error().message;
  auto a = import_config(text, "f");
  if (a && !tree) return "a model from what is no JSON";
  if (a && !resolve(*a)) return "";
  if (a && (a->layers < 1 || a->width < 1 || a->heads < 1 || a->head_dim < 1 || a->vocab < 1)) return "a model without size";
  return "";
}

// Ids are of the vocabulary, and merging is the textbook's where nothing but merges is at work.
inline std::string tokenizer(std::string_view text) {
  const auto ours = Tokenizer::parse(text, "f");
  if (!ours) return "";
  const auto theirs = oracle::parse(text);
  if (!theirs || theirs->doubled_anywhere) return "a tokenizer from what is no JSON";
  const std::string word = oracle::all_tokens(theirs->tree);
  const auto ids = ours->encode(word);
  if (ids && std::ranges::any_of(*ids, [&](TokenId id) { return id < 0 || id >= ours->vocab(); })) return "an id beyond the vocabulary";
  const auto plain = oracle::bpe(theirs->tree, word);
  if (plain && (!ids || *ids != *plain)) return "other ids";
  return "";
}

}  // namespace stepzero::fuzz
