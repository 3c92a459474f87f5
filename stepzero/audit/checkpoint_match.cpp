#include "stepzero/audit/checkpoint_match.hpp"

#include <algorithm>
#include <map>
#include <set>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "stepzero/models/build.hpp"
#include "stepzero/models/family.hpp"
#include "stepzero/models/infer.hpp"
#include "stepzero/weights/weights.hpp"

namespace stepzero {

namespace {

std::string text_of(const auto& shape) { return fmt::format("[{}]", fmt::join(shape, ", ")); }

bool same_shape(const CheckpointTensor& t, const std::vector<Index>& shape) {
  return std::ranges::equal(t.whole_shape(), shape, [](std::uint64_t a, Index b) { return a == static_cast<std::uint64_t>(b); });
}

void match(Subject& s, const CheckpointFiles& files) {
  const std::string_view prefix = s.known ? tensor_names(s.architecture).optional_prefix : "";
  std::map<std::string, std::string> renamed;
  if (s.known && files.gguf()) {
    for (auto& [ours, theirs] : gguf_names(s.architecture)) renamed.try_emplace(std::move(ours), std::move(theirs));
  }
  std::set<const CheckpointTensor*> used;
  for (const Param& p : s.graph.params) {
    const CheckpointTensor* t = find_tensor(files, p.name, prefix);
    const auto theirs = renamed.find(p.name);
    if (t == nullptr && theirs != renamed.end()) t = files.find(theirs->second);
    s.transposed.push_back(0);
    s.tensor_of.push_back(t);
    if (t == nullptr) {
      s.missing.push_back(p.name);
      continue;
    }
    used.insert(t);
    if (same_shape(*t, p.shape)) continue;
    std::vector<Index> turned(p.shape.rbegin(), p.shape.rend());
    if (files.gguf() && same_shape(*t, turned)) {
      s.transposed.back() = 1;
      continue;
    }
    s.misfits.push_back({t->name, text_of(t->whole_shape()), text_of(p.shape)});
    s.tensor_of.back() = nullptr;
    used.erase(t);
  }
  for (const auto& [name, tensor] : files.tensors()) {
    if (!used.contains(&tensor)) s.others.push_back(&tensor);
  }
}

}  // namespace

std::vector<const CheckpointTensor*> Subject::tensors() const {
  std::vector<const CheckpointTensor*> list;
  for (const CheckpointTensor* t : tensor_of) {
    if (t != nullptr) list.push_back(t);
  }
  list.insert(list.end(), others.begin(), others.end());
  return list;
}

std::vector<TensorLayout> Subject::layouts() const {
  std::vector<TensorLayout> list;
  for (std::size_t i = 0; i < tensor_of.size(); ++i) {
    if (tensor_of[i] == nullptr) continue;
    const TensorLayout whole = TensorLayout::of(graph.params[i], transposed[i] != 0);
    list.push_back(tensor_of[i]->whole.empty() ? whole : whole.within(*tensor_of[i]));
  }
  for (const CheckpointTensor* t : others) list.push_back(TensorLayout::whole(*t, t->shape.size() < 2 ? Role::gain : Role::projection));
  return list;
}

Subject make_subject(const CheckpointFiles& files, const std::optional<Architecture>& model) {
  Subject s;
  s.known = model.has_value();
  if (model) {
    s.architecture = *model;
    s.graph = build_graph(*model);
  } else {
    std::vector<NamedShape> shapes;
    for (const auto& [name, tensor] : files.tensors()) shapes.push_back({.name = name, .shape = tensor.whole_shape()});
    Inferred inferred = infer_model(shapes);
    s.architecture = std::move(inferred.architecture);
    s.graph = std::move(inferred.graph);
  }
  match(s, files);
  return s;
}

}  // namespace stepzero
