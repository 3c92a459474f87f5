#include "stepzero/ops/move/heads.hpp"

#include <algorithm>
#include <cmath>

#include "stepzero/ops/kernel_draw.hpp"
#include "stepzero/ops/move/head_items.hpp"

namespace stepzero {

std::optional<AnyOp> for_heads(const AnyOp& any, Index heads) {
  if (const auto* rotary = std::get_if<Rotary>(&any)) {
    Rotary some = *rotary;
    some.heads = heads;
    return some;
  }
  if (const auto* join = std::get_if<Join>(&any)) {
    Join some = *join;
    some.heads = heads;
    return some;
  }
  const auto norm = [&](const auto* op) -> std::optional<AnyOp> {
    if (op == nullptr || op->groups == 1 || op->gain_per_group) return {};
    auto some = *op;
    some.groups = heads;
    return some;
  };
  if (auto some = norm(std::get_if<LayerNorm>(&any))) return some;
  return norm(std::get_if<RmsNorm>(&any));
}

namespace {

// Of gains of heads: what all heads of a model pull at, and what the optimizer makes of it.
std::vector<std::vector<ParameterMove>> update_gains(HeadItems& s, std::span<const std::vector<Update>> updates, Index of_model) {
  std::vector<std::vector<ParameterMove>> told(updates.size());
  const std::size_t count = s.items.size(), together = static_cast<std::size_t>(of_model);
  for (HeadItem& item : s.items) {
    for (const auto& list : item.chain.theta()) {
      auto& to = item.updates.emplace_back();
      for (const auto& t : list) {
        Tensor<double>& zeros = to.emplace_back(t.rows(), t.cols());
        std::fill_n(zeros.data(), zeros.size(), 0.0);
      }
    }
  }
  for (std::size_t n = 0; n < updates.size(); ++n) {
    s.rates.emplace_back();
    for (std::size_t k = 0; k < updates[n].size(); ++k) {
      const Update& u = updates[n][k];
      s.rates.back().push_back(u.rate);
      ParameterMove& move = told[n].emplace_back();
      for (std::size_t first = 0; first < count; first += together) {
        Tensor<double>& to = s.items[first].updates[n][k];
        for (Index c = 0; c < to.size(); ++c) {
          double g = 0;
          for (std::size_t i = first; i < first + together; ++i) g += s.items[i].gradients[n][k].data()[c];
          const double x = u.rule == Update::Rule::sgd              ? u.times * g
                           : u.rule == Update::Rule::sign && g != 0 ? g / (std::abs(g) + u.eps)
                                                                    : 0;
          const double share = static_cast<double>(together) / static_cast<double>(count);
          move.norm2 += share * x * x;
          move.decrease += share * x * g;
          move.direct += share * x * x / static_cast<double>(to.size());
          for (std::size_t i = first; i < first + together; ++i) s.items[i].updates[n][k].data()[c] = x;
        }
      }
    }
  }
  return told;
}

// Of learned biases of scores and of sinks: what each head pulls at its own numbers with, beside other uses of the table.
std::vector<ParameterMove> update_tables(HeadItems& s, std::span<const Update> updates, std::span<const TableUse> tables,
                                         std::uint64_t place) {
  std::vector<ParameterMove> told(updates.size());
  const std::size_t last = s.items[0].chain.nodes().size() - 1;
  const double count = static_cast<double>(s.items.size());
  const double heads = static_cast<double>(s.op.kv_heads) / count;  // for which each item stands
  s.rates.resize(last + 1);
  for (std::size_t k = 0; k < updates.size(); ++k) {
    const Update& u = updates[k];
    s.rates[last].push_back(u.rate);
    const Tensor<double>& shape = s.items[0].gradients[last][k];
    std::vector<double> own(static_cast<std::size_t>(shape.rows()), 0.0);  // mean square of each row
    double squares = 0;
    for (const HeadItem& item : s.items) {
      const Tensor<double>& g = item.gradients[last][k];
      for (Index r = 0; r < g.rows(); ++r) {
        for (Index c = 0; c < g.cols(); ++c) {
          own[static_cast<std::size_t>(r)] += g(r, c) * g(r, c) / (count * static_cast<double>(g.cols()));
          squares += heads * g(r, c) * g(r, c);
        }
      }
    }
    const TableUse& use = tables[k];
    const double others = use.uses == 1 ? 0 : use.squares > squares && squares > 0 ? use.squares / squares - 1 : use.uses - 1;
    for (std::size_t i = 0; i < s.items.size(); ++i) {
      HeadItem& item = s.items[i];
      const Tensor<double>& g = item.gradients[last][k];
      const Tensor<double> z = normal_columns(place, "table", static_cast<Index>(i), g.rows(), g.cols(), false);
      Tensor<double>& to = item.updates[last][k];
      double direct = 0;
      for (Index r = 0; r < g.rows(); ++r) {
        for (Index c = 0; c < g.cols(); ++c) {
          const double all = g(r, c) + std::sqrt(others * own[static_cast<std::size_t>(r)]) * z(r, c);
          const double x = u.rule == Update::Rule::sgd                ? u.times * all
                           : u.rule == Update::Rule::sign && all != 0 ? all / (std::abs(all) + u.eps)
                                                                      : 0;
          to(r, c) = x;
          told[k].norm2 += heads * x * x / use.uses;
          told[k].decrease += heads * x * g(r, c);
          direct += x * x;
        }
      }
      if (!(direct > 0) || u.rate == 0) continue;
      Chain::Parameters theta = copy_of(item.chain.theta());
      const double step = u.rate;
      for (Index j = 0; j < to.size(); ++j) theta[last][k].data()[j] -= step * to.data()[j];
      std::vector<Tensor<double>> x;
      for (const Tensor<double>& one : item.before.x) x.push_back(copy_of(one));
      const Chain::Values after = item.chain.forward(std::move(x), theta);
      const Tensor<double>&was = item.before.y.back(), &is = after.y.back();
      for (Index j = 0; j < is.size(); ++j) {
        const double D = (is.data()[j] - was.data()[j]) / step;
        told[k].direct += D * D / (count * static_cast<double>(is.size()));
      }
    }
  }
  return told;
}

int source_of(const std::vector<ChainNode>& nodes, int from) {
  while (from >= 0) from = nodes[static_cast<std::size_t>(from)].inputs[0];
  return -1 - from;
}

// What an input of the attention comes from: which input of the chain, by how many columns for the heads that are drawn together.
void find_inputs(const std::vector<ChainNode>& nodes, int from, std::size_t side, Index columns, bool shared, HeadItems& s) {
  if (from < 0) {
    const auto k = static_cast<std::size_t>(-1 - from);
    s.side[k] = side, s.columns[k] = columns, s.shared[k] = shared;
    return;
  }
  const ChainNode& node = nodes[static_cast<std::size_t>(from)];
  const auto* join = std::get_if<Join>(&node.op);
  const Index tail = join != nullptr ? join->shared * (columns / (join->own + join->shared)) : 0;
  find_inputs(nodes, node.inputs[0], side, columns - tail, shared, s);
  if (join != nullptr) find_inputs(nodes, node.inputs[1], side, join->shared, true, s);
}

class Drawing {
 public:
  Drawing(HeadItems& s, const std::vector<ChainNode>& nodes, std::span<const DrawnFrom> inputs, bool gains, const Kernel& G,
          std::uint64_t place, double effort)
      : s_(s), nodes_(nodes), inputs_(inputs), place_(place), group_(s.op.heads / s.op.kv_heads) {
    const bool polar =
        std::ranges::any_of(inputs, [](const DrawnFrom& f) { return f.matrix != nullptr && f.matrix->weight.rule == Update::Rule::polar; });
    count_ = std::max<Index>(2, static_cast<Index>(std::ceil(effort * 16 / static_cast<double>(group_))));
    s.some = std::clamp<Index>(static_cast<Index>(std::ceil(effort * 4 / static_cast<double>(group_))), 1, count_);
    // what all heads of a model pull at together, and slopes of their own, need them all
    if (polar || gains || !s.op.alibi.empty()) count_ = (count_ + s.op.kv_heads - 1) / s.op.kv_heads * s.op.kv_heads;
    up_ = (1 / std::sqrt(static_cast<double>(s.op.channels()))) * root_of(Square::of(G));
    for (const DrawnFrom& from : inputs) {
      const DownWire& stem = stem_of(from);
      stems_.emplace_back(stem, stem.f.noise, s.batch->length, from.place);
    }
    for (Index i = 0; i < count_; ++i) s_.items.push_back(HeadItem{chain_of(i), {}, {}, {}, {}, {}, {}});
    roots_.resize(s_.items.size());
    parallel_for(count_, [&](Index i) { draw(i); });
    polar_.assign(inputs.size(), std::vector<Square>(static_cast<std::size_t>(polar ? count_ / s.op.kv_heads : 0)));
    for (std::size_t k = 0; k < inputs.size(); ++k) {
      if (s.shared[k]) pull_as_all_heads(k);
    }
    for (std::size_t k = 0; polar && k < inputs.size(); ++k) pull_together(k);
    parallel_for(count_, [&](Index i) { prepare_item(i); });
  }

  // What the update of a matrix takes from the loss, and the mean square of what it does.
  [[nodiscard]] double pull(std::size_t k) const {
    double sum = 0;
    for (const HeadItem& item : s_.items) sum += item.in[k].pull;
    return sum * (s_.shared[k] ? 1 : static_cast<double>(s_.op.kv_heads)) / static_cast<double>(count_);
  }
  [[nodiscard]] double direct(std::size_t k) const {
    double sum = 0;
    for (const HeadItem& item : s_.items) sum += mean_direct(item.in[k]) / static_cast<double>(count_);
    return sum;
  }
  [[nodiscard]] std::shared_ptr<const Tensor<double>> channels() const {
    const Index each = group_ * s_.op.value_dim, tokens = s_.batch->tokens();
    auto out = std::make_shared<Tensor<double>>(tokens, count_ * each);
    for (Index i = 0; i < count_; ++i) {
      const Tensor<double>& y = s_.items[static_cast<std::size_t>(i)].before.y.back();
      for (Index t = 0; t < tokens; ++t) std::copy_n(y.view().row(t), each, out->view().row(t) + i * each);
    }
    return out;
  }
  [[nodiscard]] Square mean_weights() const {
    Square out(s_.batch->tokens());
    for (const HeadItem& item : s_.items) {
      for (const Square& A : weights_of(item.chain, item.before, *s_.batch, item.chain.theta()))
        out += (1 / static_cast<double>(count_ * group_)) * A;
    }
    return out;
  }

 private:
  static const DownWire& stem_of(const DrawnFrom& from) { return from.stem != nullptr ? *from.stem : *from.wire; }

  [[nodiscard]] Chain chain_of(Index i) const {
    std::vector<ChainNode> own = nodes_;
    for (std::size_t n = 0; n + 1 < own.size(); ++n)
      own[n].op = *for_heads(own[n].op, s_.side[static_cast<std::size_t>(s_.source[n])] == 0 ? group_ : 1);
    Attention some = s_.op;
    some.heads = group_;
    some.kv_heads = 1;
    if (!s_.op.alibi.empty()) {
      const Index first = i % s_.op.kv_heads * group_;
      some.alibi.assign(s_.op.alibi.begin() + first, s_.op.alibi.begin() + first + group_);
    }
    own.back().op = some;
    const std::vector<double> spread = own.back().spread;
    Chain chain(*s_.batch, std::move(own));
    for (std::size_t k = 0; k < spread.size(); ++k) {  // tables
      Tensor<double>& t = chain.theta().back()[k];
      const Tensor<double> z = normal_columns(place_ + k, "tables", i, t.rows(), t.cols(), false);
      for (Index j = 0; j < t.size(); ++j) t.data()[j] += spread[k] * z.data()[j];
    }
    return chain;
  }

  void draw(Index i) {
    HeadItem& item = s_.items[static_cast<std::size_t>(i)];
    const Index tokens = s_.batch->tokens();
    std::vector<Tensor<double>> x;
    for (std::size_t k = 0; k < inputs_.size(); ++k) {
      auto& list = roots_[static_cast<std::size_t>(i)];
      const bool again = k > 0 && inputs_[k].stem != nullptr && inputs_[k].stem == inputs_[k - 1].stem;
      list.push_back(again ? list.back() : square_root(stems_[k].root(i)));
      const double whole = stem_of(inputs_[k]).K.trace(), by = whole > 0 ? std::sqrt(inputs_[k].wire->K.trace() / whole) : 0;
      static constexpr const char* names[] = {"q", "k", "v", "tail"};
      x.push_back(times(by * list.back(), normal_columns(place_, names[s_.shared[k] ? 3 : s_.side[k]], i, tokens, s_.columns[k], false)));
    }
    item.before = item.chain.forward(std::move(x));
    const Index n = item.before.y.back().cols();
    std::vector<Tensor<double>> d =
        item.chain.backward(item.before, times(up_, normal_columns(place_, "dy", i, tokens, n, false)), &item.gradients);
    item.probe = normal_columns(place_, "probe", i, tokens, n, false);
    item.probed = item.chain.backward(item.before, item.probe);
    for (std::size_t k = 0; k < inputs_.size(); ++k) {
      DrawnInput& in = item.in.emplace_back();
      const Tensor<double>& own = item.before.x[k];
      in.x = Tensor<double>(own.rows(), own.cols());
      std::copy_n(own.data(), own.size(), in.x.data());
      in.d = std::move(d[k]);
    }
  }

  // What all heads pull at together: of the heads that are not drawn others that are.
  void pull_as_all_heads(std::size_t k) {
    const double heads = static_cast<double>(s_.op.kv_heads), drawn = static_cast<double>(count_);
    const double by = std::sqrt((heads - 1) / (drawn - 1));
    const Tensor<double>& shape = s_.items[0].in[k].d;
    std::vector<Tensor<double>> own;
    Tensor<double> all(shape.rows(), shape.cols());
    std::fill_n(all.data(), all.size(), 0.0);
    for (HeadItem& item : s_.items) {
      own.push_back(std::move(item.in[k].d));
      for (Index j = 0; j < all.size(); ++j) all.data()[j] += own.back().data()[j];
    }
    for (std::size_t i = 0; i < s_.items.size(); ++i) {
      Tensor<double>& d = s_.items[i].in[k].d = Tensor<double>(shape.rows(), shape.cols());
      for (Index j = 0; j < d.size(); ++j) d.data()[j] = own[i].data()[j] + by * (all.data()[j] - own[i].data()[j]);
    }
  }

  // Muon: the gradient of all heads of a model, of all parts of a tensor.
  void pull_together(std::size_t k) {
    const MatrixMove* m = inputs_[k].matrix;
    if (m == nullptr || m->weight.rule != Update::Rule::polar) return;
    const Index each = s_.op.kv_heads;
    for (Index j = 0; j < count_ / each; ++j) {
      Square whole(s_.batch->tokens());
      for (std::size_t other = 0; other < inputs_.size(); ++other) {
        const MatrixMove* o = inputs_[other].matrix;
        if (s_.shared[other] && (other != k || each > 1)) {  // each of the items holds what all heads pull
          if (other == k) whole += static_cast<double>(s_.columns[k]) * covariance_of(j * each, k);
          continue;
        }
        if (other != k && (o == nullptr || o->tensor != m->tensor)) continue;
        for (Index i = j * each; i < (j + 1) * each; ++i) {
          const Tensor<double>& d = s_.items[static_cast<std::size_t>(i)].in[other].d;
          whole += static_cast<double>(d.cols()) * covariance(d.view(), d.view());
        }
      }
      polar_[k][static_cast<std::size_t>(j)] = polar_response(m->weight, m->use.K, whole, m->use.n_in, m->use.whole_out);
    }
  }

  [[nodiscard]] Square covariance_of(Index i, std::size_t k) const {
    const Tensor<double>& d = s_.items[static_cast<std::size_t>(i)].in[k].d;
    return covariance(d.view(), d.view());
  }

  void prepare_item(Index i) {
    HeadItem& item = s_.items[static_cast<std::size_t>(i)];
    for (std::size_t k = 0; k < inputs_.size(); ++k) {
      const MatrixMove* m = inputs_[k].matrix;
      const bool drawn = inputs_[k].stem != nullptr;
      const auto model = static_cast<std::size_t>(i / s_.op.kv_heads);
      prepare(item.in[k], m, drawn ? &roots_[static_cast<std::size_t>(i)][k] : nullptr, polar_[k].empty() ? Square() : polar_[k][model], {},
              drawn || m == nullptr ? 0 : m->use.noise, place_ + (static_cast<std::uint64_t>(s_.side[k] + 1) << 40U), i);
    }
  }

  HeadItems& s_;
  const std::vector<ChainNode>& nodes_;
  std::span<const DrawnFrom> inputs_;
  std::uint64_t place_;
  Index group_, count_ = 0;
  std::vector<KernelDraw> stems_;
  std::vector<std::vector<Square>> roots_;  // of every input's stem, by item
  std::vector<std::vector<Square>> polar_;  // of every input, by model
  Square up_;
};

}  // namespace

ChainMover move_heads(const Batch& batch, std::vector<ChainNode> nodes, std::span<const DrawnFrom> inputs,
                      std::span<const std::vector<Update>> updates, std::span<const TableUse> tables, const Kernel& G, const Kernel& output,
                      std::uint64_t place, double effort, Likeness& alike) {
  const Attention op = std::get<Attention>(nodes.back().op);
  auto s = std::make_shared<HeadItems>();
  s->op = op;
  s->batch = &batch;
  s->alike = &alike;
  s->side.resize(inputs.size());
  s->columns.resize(inputs.size());
  s->shared.resize(inputs.size());
  const Index group = op.heads / op.kv_heads;
  const Index columns[] = {group * op.key_dim, op.key_dim, op.value_dim};
  for (std::size_t k = 0; k < 3; ++k) find_inputs(nodes, nodes.back().inputs[k], k, columns[k], false, *s);
  for (std::size_t k = 0; k < inputs.size(); ++k) {
    if (s->side[k] == 2) s->value = k;
    s->K.push_back(Square::of(inputs[k].wire->K));
  }
  for (std::size_t n = 0; n + 1 < nodes.size(); ++n) s->source.push_back(source_of(nodes, nodes[n].inputs[0]));
  s->inverse = inverse_of(Square::of(output));
  ChainMover out;
  if (alike.fresh()) {
    const auto in_front = updates.first(updates.empty() ? 0 : updates.size() - 1);
    const bool gains = std::ranges::any_of(in_front, [](const auto& list) { return !list.empty(); });
    const Drawing drawing(*s, nodes, inputs, gains, G, place, effort);
    alike.drawn = drawing.channels();
    alike.weights = drawing.mean_weights();
    for (std::size_t k = 0; k < inputs.size(); ++k) alike.see(k, inputs[k].matrix, drawing.pull(k), drawing.direct(k));
    alike.gains = update_gains(*s, in_front, gains ? op.kv_heads : 1);
    if (!updates.empty()) alike.gains.push_back(update_tables(*s, updates.back(), tables, place));
  }
  if (alike.at.empty()) alike.at.resize(1);
  for (std::size_t k = 0; k < inputs.size(); ++k) {
    s->lean.push_back(alike.pulls[k]);
    out.decreases.push_back(alike.decrease(k, inputs[k].matrix));
    out.directs.push_back(alike.direct(k, inputs[k].matrix));
  }
  out.params = alike.gains;
  out.params.resize(nodes.size());
  out.drawn = alike.drawn;
  out.run = [s](std::span<const WireChange* const> dx, const Factor& factor) { return run_heads(*s, dx, factor); };
  return out;
}

}  // namespace stepzero
