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
Expected<void> check_tensor(const std::string& path, const TensorSpec& tensor) {
  const auto refuse = [&](const std::string& what) {
    return fail(fmt::format("{}: tensor \"{}\": {}", show(path), show(tensor.name), what), "nothing was written");
  };
  if (!valid_utf8(tensor.name)) return refuse("the name is not UTF-8");
  if (tensor.name.size() > kMaxNameBytes) return refuse(fmt::format("the name is longer than {} bytes", kMaxNameBytes));
  if (tensor.name == kMetadataKey) return refuse("the format keeps this name for itself");
  if (tensor.shape.size() > kMaxRank) return refuse(fmt::format("more than {} dimensions", kMaxRank));
  const bool large = std::ranges::any_of(tensor.shape, [](std::uint64_t size) { return size > kMaxDimension; });
  if (large) return refuse(fmt::format("a dimension is larger than {}", kMaxDimension));
  if (!bits_of(tensor.shape, tensor.dtype))
    return refuse(fmt::format("shape [{}] does not hold what a file could", fmt::join(tensor.shape, ", ")));
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

}  // namespace

Expected<SafetensorsLayout> SafetensorsLayout::make(const std::string& path, const std::vector<TensorSpec>& tensors,
                                                    const Metadata& metadata) {
  std::vector<std::size_t> order;
  for (const TensorSpec& tensor : tensors) {
    if (auto fine = check_tensor(path, tensor); !fine) return std::unexpected(fine.error());
    order.push_back(order.size());
  }
  if (auto fine = check_metadata(path, metadata); !fine) return std::unexpected(fine.error());
  const auto name = [&](std::size_t i) -> const std::string& { return tensors[i].name; };
  std::ranges::sort(order, {}, name);
  if (const auto twice = std::ranges::adjacent_find(order, {}, name); twice != order.end())
    return fail(fmt::format("{}: tensor \"{}\" is given twice", show(path), show(name(*twice))), "nothing was written");

  std::string text = "{";
  if (!metadata.empty()) text += fmt::format("\"{}\":{},", kMetadataKey, nlohmann::json(metadata).dump());
  SafetensorsLayout layout;
  layout.offsets.resize(tensors.size());
  std::uint64_t at = 0;
  for (const std::size_t i : order) {
    const TensorSpec& tensor = tensors[i];
    layout.offsets[i] = at;
    const std::uint64_t end = at + *bits_of(tensor.shape, tensor.dtype) / 8;
    text += fmt::format(R"({}:{{"dtype":"{}","shape":[{}],"data_offsets":[{},{}]}},)", quoted(tensor.name), dtype_name(tensor.dtype),
                        fmt::join(tensor.shape, ","), at, end);
    at = end;
  }
  if (text.back() == ',') text.pop_back();
  text += '}';
  text.resize((text.size() + 7) / 8 * 8, ' ');  // the data then begins at a multiple of 8
  if (text.size() > kMaxHeaderBytes)
    return fail(fmt::format("{}: a header of {} bytes, at most {} is allowed", show(path), text.size(), kMaxHeaderBytes),
                "write several files");
  const std::uint64_t length = text.size();
  layout.head.resize(kLengthBytes);
  std::memcpy(layout.head.data(), &length, kLengthBytes);
  layout.head += text;
  for (std::uint64_t& offset : layout.offsets) offset += layout.head.size();
  layout.file_bytes = layout.head.size() + at;
  return layout;
}

Expected<void> write_safetensors(const std::string& path, const std::vector<TensorData>& tensors, const Metadata& metadata, bool replace) {
  std::vector<TensorSpec> specs;
  for (const TensorData& tensor : tensors) specs.push_back({tensor.name, DType::F32, tensor.shape});
  const auto layout = SafetensorsLayout::make(path, specs, metadata);
  if (!layout) return std::unexpected(layout.error());
  for (const TensorData& tensor : tensors) {
    if (*bits_of(tensor.shape, DType::F32) / 32 == tensor.data.size()) continue;
    return fail(fmt::format("{}: tensor \"{}\": shape [{}] does not hold the {} numbers given", show(path), show(tensor.name),
                            fmt::join(tensor.shape, ", "), tensor.data.size()),
                "nothing was written");
  }
  auto file = OutputFile::create(path, layout->file_bytes, replace);
  if (!file) return std::unexpected(std::move(file.error()));
  if (auto done = file->write_at(0, std::as_bytes(std::span(layout->head))); !done) return done;
  for (std::size_t i = 0; i < tensors.size(); ++i)
    if (auto done = file->write_at(layout->offsets[i], std::as_bytes(tensors[i].data)); !done) return done;
  return file->commit(layout->file_bytes);
}

}  // namespace stepzero
