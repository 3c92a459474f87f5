#include <algorithm>
#include <cstring>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "stepzero/core/text.hpp"
#include "stepzero/io/output.hpp"
#include "stepzero/io/safetensors_header.hpp"

namespace stepzero {
namespace {

using namespace safetensors;
using Metadata = std::map<std::string, std::string>;

// Only what our own reader accepts is written.
Expected<void> check_tensor(const std::string& path, const TensorData& tensor) {
  const auto refuse = [&](const std::string& what) {
    return fail(fmt::format("{}: tensor \"{}\": {}", show(path), show(tensor.name), what), "nothing was written");
  };
  if (!valid_utf8(tensor.name)) return refuse("the name is not UTF-8");
  if (tensor.name.size() > kMaxNameBytes) return refuse(fmt::format("the name is longer than {} bytes", kMaxNameBytes));
  if (tensor.name == kMetadataKey) return refuse("the format keeps this name for itself");
  if (tensor.shape.size() > kMaxRank) return refuse(fmt::format("more than {} dimensions", kMaxRank));
  const bool large = std::ranges::any_of(tensor.shape, [](std::uint64_t size) { return size > kMaxDimension; });
  if (large) return refuse(fmt::format("a dimension is larger than {}", kMaxDimension));
  const auto bits = bits_of(tensor.shape, DType::F32);
  if (!bits || *bits / 32 != tensor.data.size()) {
    return refuse(fmt::format("shape [{}] does not hold the {} numbers given", fmt::join(tensor.shape, ", "), tensor.data.size()));
  }
  return {};
}

Expected<void> check_metadata(const std::string& path, const Metadata& metadata) {
  for (const auto& [key, text] : metadata) {
    if (valid_utf8(key) && valid_utf8(text)) continue;
    return fail(fmt::format("{}: {}: \"{}\" is not UTF-8", show(path), kMetadataKey, show(key)), "nothing was written");
  }
  return {};
}

std::string quoted(const std::string& text) { return nlohmann::json(text).dump(); }

std::string header_text(const std::vector<const TensorData*>& order, const Metadata& metadata) {
  std::string text = "{";
  if (!metadata.empty()) text += fmt::format("\"{}\":{},", kMetadataKey, nlohmann::json(metadata).dump());
  std::uint64_t at = 0;
  for (const TensorData* tensor : order) {
    const std::uint64_t end = at + tensor->data.size_bytes();
    text += fmt::format(R"({}:{{"dtype":"F32","shape":[{}],"data_offsets":[{},{}]}},)", quoted(tensor->name), fmt::join(tensor->shape, ","),
                        at, end);
    at = end;
  }
  if (text.back() == ',') text.pop_back();
  text += '}';
  text.resize((text.size() + 7) / 8 * 8, ' ');  // the data then begins at a multiple of 8
  return text;
}

}  // namespace

Expected<void> write_safetensors(const std::string& path, const std::vector<TensorData>& tensors, const Metadata& metadata, bool replace) {
  std::vector<const TensorData*> order;
  std::uint64_t data_bytes = 0;
  for (const TensorData& tensor : tensors) {
    if (auto fine = check_tensor(path, tensor); !fine) return fine;
    order.push_back(&tensor);
    data_bytes += tensor.data.size_bytes();
  }
  if (auto fine = check_metadata(path, metadata); !fine) return fine;
  std::ranges::sort(order, {}, [](const TensorData* tensor) -> const std::string& { return tensor->name; });
  const auto twice = std::ranges::adjacent_find(order, {}, [](const TensorData* t) -> const std::string& { return t->name; });
  if (twice != order.end())
    return fail(fmt::format("{}: tensor \"{}\" is given twice", show(path), show((*twice)->name)), "nothing was written");

  const std::string text = header_text(order, metadata);
  if (text.size() > kMaxHeaderBytes)
    return fail(fmt::format("{}: a header of {} bytes, at most {} is allowed", show(path), text.size(), kMaxHeaderBytes),
                "write several files");
  auto file = OutputFile::create(path, kLengthBytes + text.size() + data_bytes, replace);
  if (!file) return std::unexpected(std::move(file.error()));
  const std::uint64_t length = text.size();
  if (auto done = file->write(std::as_bytes(std::span(&length, 1))); !done) return done;
  if (auto done = file->write(std::as_bytes(std::span(text))); !done) return done;
  for (const TensorData* tensor : order)
    if (auto done = file->write(std::as_bytes(tensor->data)); !done) return done;
  return file->commit();
}

}  // namespace stepzero
