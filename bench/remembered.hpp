#pragma once
// Predictions that a process has made already: of the same graph, laws, input and options. The same function of the same arguments, so
// the same numbers; a model of one preset is asked for again and again, as it is and as another's remedy.
#include <bit>
#include <cstdint>
#include <list>
#include <map>
#include <type_traits>

#include "stepzero/graph/op_fields.hpp"
#include "stepzero/models/build.hpp"
#include "stepzero/theory/predict_long.hpp"
#include "stepzero/theory/scheme_profile.hpp"

namespace stepzero::bench {

// 128 bits of everything that is added.
class Key {
 public:
  auto operator<=>(const Key&) const = default;

  template <class T>
  Key& add(const T& value) {
    if constexpr (std::is_enum_v<T> || std::is_integral_v<T>)
      mix(static_cast<std::uint64_t>(value));
    else if constexpr (std::is_floating_point_v<T>)
      mix(std::bit_cast<std::uint64_t>(static_cast<double>(value)));
    else if constexpr (std::is_same_v<T, AnyActivation>)
      std::visit([&](const auto& f) { add(std::string_view(f.kind)); }, value);
    else  // a list or a text
      add_list(value);
    return *this;
  }

 private:
  template <class List>
  void add_list(const List& list) {
    mix(list.size());
    for (const auto& each : list) add(each);
  }
  void mix(std::uint64_t x) {
    a_ = std::rotl((a_ ^ x) * 0x9E3779B97F4A7C15U, 29);
    b_ = std::rotl((b_ + x) * 0xC2B2AE3D27D4EB4FU, 31) ^ (b_ >> 33U);
  }
  std::uint64_t a_ = 0x243F6A8885A308D3U, b_ = 0x13198A2E03707344U;
};

inline void add(Key& key, const Distribution& d) { key.add(d.kind).add(d.mean).add(d.scale).add(d.cut).add(d.structure).add(d.diagonal); }

inline void add(Key& key, const Graph& graph, const Assignment& laws) {
  for (std::size_t i = 0; i < graph.params.size(); ++i) {
    const Param& p = graph.params[i];
    key.add(p.name).add(p.shape).add(p.role).add(p.layer).add(p.neutral).add(p.zero_row).add(p.in_out).add(p.conv).add(p.frozen);
    for (const Assignment::Block& block : laws.blocks(i)) {
      key.add(block.row0).add(block.col0).add(block.rows).add(block.cols);
      add(key, block.distribution);
    }
  }
  for (const Node& node : graph.nodes) {
    key.add(node.name).add(std::string_view(kind_of(node.op))).add(node.inputs);
    for (const ParamUse& use : node.params) key.add(use.param).add(use.row0).add(use.col0).add(use.rows).add(use.cols);
    std::visit([&](const auto& op) { visit_fields(op, [&](const char*, const auto& value) { key.add(value); }); }, node.op);
  }
}

inline void add(Key& key, const Batch& batch) {
  key.add(batch.sequences)
      .add(batch.length)
      .add(batch.seed)
      .add(batch.ids)
      .add(batch.targets)
      .add(batch.encoder_ids)
      .add(batch.pixels)
      .add(batch.features);
}

// Of what was made, the latest: as much as `most` of what `size` counts.
template <class Value>
class Latest {
 public:
  explicit Latest(std::size_t most) : most_(most) {}

  // nullptr: not there
  const Value* find(const Key& key) {
    const auto it = places_.find(key);
    if (it == places_.end()) return nullptr;
    kept_.splice(kept_.begin(), kept_, it->second);
    return &kept_.front().value;
  }
  void keep(const Key& key, const Value& value, std::size_t size) {
    kept_.push_front({key, value, size});
    places_[key] = kept_.begin();
    for (total_ += size; total_ > most_ && kept_.size() > 1; kept_.pop_back()) {
      total_ -= kept_.back().size;
      places_.erase(kept_.back().key);
    }
  }

 private:
  struct Kept {
    Key key;
    Value value;
    std::size_t size;
  };
  std::size_t most_, total_ = 0;
  std::list<Kept> kept_;
  std::map<Key, typename std::list<Kept>::iterator> places_;
};

template <class Predict>
Expected<Signal> remembered(const Graph& graph, const Architecture& a, const Batch& batch, const Scheme& scheme,
                            const PredictOptions& options, const Predict& anew) {
  static Latest<Signal> latest(2'000'000);  // nodes
  Key key;
  key.add(options.order).add(options.effort).add(options.every_sequence).add(options.jacobians).add(options.longest);
  add(key, batch);
  add(key, graph, Assignment(graph, a, scheme));
  if (const Signal* const known = latest.find(key)) {
    Signal signal = *known;
    signal.architecture = a;  // fields that this scheme does not read may differ
    signal.scheme = scheme.name;
    return signal;
  }
  auto signal = anew();
  if (signal) latest.keep(key, *signal, signal->nodes.size());
  return signal;
}

// What schemes that learn are told of a model.
template <class Make>
Expected<Profile> remembered(const Architecture& a, const Scheme& scheme, const Make& anew) {
  static Latest<Profile> latest(10'000);
  if (a.decoder_layers > 0 || a.image > 0) return anew();
  Key key;
  const Graph graph = build_graph(a);
  key.add(a.positions).add(a.vocab);
  add(key, graph, Assignment(graph, a, scheme));
  if (const Profile* const known = latest.find(key)) return *known;
  auto profile = anew();
  if (profile) latest.keep(key, *profile, 1);
  return profile;
}

}  // namespace stepzero::bench
