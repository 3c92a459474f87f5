#include "stepzero/weights/weights.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <mutex>
#include <set>
#include <type_traits>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "stepzero/core/half.hpp"
#include "stepzero/core/parallel.hpp"
#include "stepzero/core/text.hpp"
#include "stepzero/kernels/to_half.hpp"
#include "stepzero/models/family.hpp"
#include "stepzero/models/lora.hpp"
#include "stepzero/weights/tensor_draw.hpp"

namespace stepzero {

namespace {

// A tensor's name, and what else files call it: without the prefix that a bare base model leaves out; inside a
// multimodal model; gamma and beta, as early BERT files say; the second name of a masked-language-model head's bias.
std::vector<std::string> spellings(const std::string& name, std::string_view optional_prefix) {
  std::vector<std::string> list = {name, "language_model." + name};
  if (!optional_prefix.empty() && name.starts_with(optional_prefix)) {
    list.push_back(name.substr(optional_prefix.size()));
    if (optional_prefix == "model.") list.push_back("model.language_model." + name.substr(optional_prefix.size()));
  }
  const std::size_t own = list.size();
  for (std::size_t i = 0; i < own && name.find("LayerNorm") != std::string::npos; ++i) {
    if (name.ends_with(".weight")) list.push_back(list[i].substr(0, list[i].size() - 6) + "gamma");
    if (name.ends_with(".bias")) list.push_back(list[i].substr(0, list[i].size() - 4) + "beta");
  }
  if (name == "cls.predictions.bias" || name == "lm_head.bias") list.push_back(name.substr(0, name.size() - 4) + "decoder.bias");
  return list;
}

std::string missing_hint(const CheckpointFiles& file, const std::string& name) {
  std::vector<std::string> names;
  for (const auto& [there, tensor] : file.tensors()) names.push_back(there);
  const std::string near = closest(name, names);
  if (!near.empty()) return fmt::format("the nearest name in the file is \"{}\"", show(near));
  return fmt::format("the file holds {} tensors{}", names.size(),
                     names.empty() ? "" : fmt::format(", the first is \"{}\"", show(names.front())));
}

}  // namespace

const CheckpointTensor* find_tensor(const CheckpointFiles& file, const std::string& name, std::string_view optional_prefix) {
  for (const std::string& spelling : spellings(name, optional_prefix)) {
    if (const CheckpointTensor* found = file.find(spelling)) return found;
  }
  return nullptr;
}

const CheckpointTensor* find_adapter(const CheckpointFiles& file, const std::string& name, std::string_view optional_prefix) {
  const std::string_view wrapped = adapter_prefix, end = ".weight";
  STEPZERO_CHECK(name.starts_with(wrapped) && name.ends_with(end));
  for (const std::string& spelling : spellings(name.substr(wrapped.size()), optional_prefix)) {
    const std::string whole = std::string(wrapped) + spelling;
    for (const char* named : {"", ".default"}) {
      if (const CheckpointTensor* found = file.find(whole.substr(0, whole.size() - end.size()) + named + std::string(end))) return found;
    }
  }
  return nullptr;
}

// Buffers and copies that real files carry besides the parameters: causal masks, rotary tables, a tied head.
bool expected_extra(const std::string& name, bool tied) {
  for (const char* end : {".attn.bias", ".attn.masked_bias", ".attention.bias", ".attention.masked_bias", "inv_freq", "position_ids",
                          "predictions.decoder.bias", "lm_head.decoder.bias"}) {
    if (name.ends_with(end)) return true;
  }
  return tied && (name.ends_with("lm_head.weight") || name.ends_with("decoder.weight") || name == "embed_out.weight");
}

Assignment distributions_of(const Graph& graph, const Architecture& a, const Scheme& scheme) { return {graph, a, scheme}; }

namespace {

using Tensors = std::vector<const CheckpointTensor*>;

// The tensor of each parameter of the model, or of each of its adapters'; null for the others.
Expected<Tensors> match_tensors(const Graph& graph, const Architecture& a, const CheckpointFiles& file, bool adapters) {
  const std::string_view prefix = tensor_names(a).optional_prefix;
  Tensors tensors;
  for (const Param& p : graph.params) {
    if (p.is_adapter() != adapters) {
      tensors.push_back(nullptr);
      continue;
    }
    const CheckpointTensor* tensor = adapters ? find_adapter(file, p.name, prefix) : find_tensor(file, p.name, prefix);
    if (tensor == nullptr) {
      return fail(fmt::format("{}: tensor \"{}\" is missing", show(file.path()), show(p.name)), missing_hint(file, p.name));
    }
    const bool one = p.shape.empty() && std::ranges::all_of(tensor->shape, [](std::uint64_t n) { return n == 1; });  // some write [1]
    if (!one && !std::ranges::equal(tensor->shape, p.shape, [](std::uint64_t x, Index y) { return x == static_cast<std::uint64_t>(y); })) {
      return fail(fmt::format("{}: byte {}: tensor \"{}\" has shape [{}], {} needs [{}]", show(file.path_of(*tensor)), tensor->header_byte,
                              show(tensor->name), fmt::join(tensor->shape, ", "), show(a.name), fmt::join(p.shape, ", ")),
                  "do the weights belong to this config.json?");
    }
    tensors.push_back(tensor);
  }
  return tensors;
}

std::vector<std::string> warn_of_unused(const Tensors& used, const Architecture& a, const CheckpointFiles& file) {
  const std::set<const CheckpointTensor*> known(used.begin(), used.end());
  std::vector<std::string> warnings = file.warnings();
  for (const auto& [name, tensor] : file.tensors()) {
    if (known.contains(&tensor) || expected_extra(name, a.tied)) continue;
    warnings.push_back(fmt::format("{}: tensor \"{}\" is not part of {} and was not used", show(file.path()), show(name), show(a.name)));
  }
  return warnings;
}

// All of a tensor, by all threads.
template <class S>
Expected<void> read_tensor(const CheckpointFiles& file, const CheckpointTensor& tensor, std::span<S> out) {
  constexpr Index piece = 1 << 20;  // whole blocks of any quantisation
  std::mutex mutex;
  Expected<void> all;
  parallel_ranges(std::ssize(out), piece, [&](Index begin, Index end) {
    const auto part = out.subspan(static_cast<std::size_t>(begin), static_cast<std::size_t>(end - begin));
    Expected<void> done;
    if constexpr (std::is_same_v<S, float>)
      done = file.read_f32(tensor, static_cast<std::uint64_t>(begin), part);
    else
      done = file.read_f64(tensor, static_cast<std::uint64_t>(begin), part);
    const std::scoped_lock lock(mutex);
    if (!done && all) all = done;
  });
  return all;
}

template <class S>
std::span<S> numbers_of(View<S> w) {
  return {w.data, static_cast<std::size_t>(w.size())};
}

// To the nearest number of the type, as `init` writes it. False: one does not fit.
bool round_to(DType dtype, std::span<float> numbers) {
  constexpr Index piece = 1 << 14;
  std::atomic<bool> fits = true;
  parallel_ranges(std::ssize(numbers), piece, [&](Index begin, Index end) {
    std::array<std::uint16_t, piece> narrow;
    const auto part = numbers.subspan(static_cast<std::size_t>(begin), static_cast<std::size_t>(end - begin));
    const bool brain = dtype == DType::BF16;
    if (!(brain ? kernels::narrow_to_bfloat16(part, narrow.data()) : kernels::narrow_to_half(part, narrow.data()))) fits = false;
    for (std::size_t i = 0; i < part.size(); ++i) part[i] = brain ? bfloat16_to_float(narrow[i]) : half_to_float(narrow[i]);
  });
  return fits;
}

}  // namespace

WeightMaker drawn_weights(const Graph& graph, const Assignment& laws, std::uint64_t seed, DType dtype) {
  return [&graph, &laws, seed, dtype](std::size_t param, View<float> w) -> Expected<void> {
    draw_elements(graph, laws, param, seed, 0, numbers_of(w));
    if (dtype == DType::F32 || round_to(dtype, numbers_of(w))) return {};
    return fail(fmt::format("tensor \"{}\": a number is too large for {}", show(graph.params[param].name), dtype_name(dtype)),
                "--dtype f32 holds it");
  };
}

namespace {

template <class S>
Expected<WeightMakerOf<S>> read_weights(const Graph& graph, const Architecture& a, const CheckpointFiles& file, bool adapters,
                                        std::vector<std::string>& warnings) {
  auto tensors = match_tensors(graph, a, file, adapters);
  if (!tensors) return std::unexpected(tensors.error());
  warnings = warn_of_unused(*tensors, a, file);
  return [&file, tensors = std::move(*tensors)](std::size_t param, View<S> w) {
    STEPZERO_CHECK(tensors[param] != nullptr);
    return read_tensor(file, *tensors[param], numbers_of(w));
  };
}

}  // namespace

template <class S>
Expected<WeightMakerOf<S>> stored_weights(const Graph& graph, const Architecture& a, const CheckpointFiles& file,
                                          std::vector<std::string>& warnings) {
  return read_weights<S>(graph, a, file, false, warnings);
}

template <class S>
Expected<WeightMakerOf<S>> adapter_weights(const Graph& graph, const Architecture& a, const CheckpointFiles& file,
                                           std::vector<std::string>& warnings) {
  return read_weights<S>(graph, a, file, true, warnings);
}

template Expected<WeightMakerOf<float>> stored_weights(const Graph&, const Architecture&, const CheckpointFiles&,
                                                       std::vector<std::string>&);
template Expected<WeightMakerOf<double>> stored_weights(const Graph&, const Architecture&, const CheckpointFiles&,
                                                        std::vector<std::string>&);
template Expected<WeightMakerOf<float>> adapter_weights(const Graph&, const Architecture&, const CheckpointFiles&,
                                                        std::vector<std::string>&);
template Expected<WeightMakerOf<double>> adapter_weights(const Graph&, const Architecture&, const CheckpointFiles&,
                                                         std::vector<std::string>&);

}  // namespace stepzero
