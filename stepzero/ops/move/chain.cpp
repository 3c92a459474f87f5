#include "stepzero/ops/move/chain.hpp"

#include <algorithm>

namespace stepzero {

Chain::Chain(const Batch& batch, std::vector<ChainNode> nodes) : batch_(batch), nodes_(std::move(nodes)) {
  for (const ChainNode& node : nodes_) {
    auto& list = theta_.emplace_back();
    const std::vector<ParamShape> shapes = std::visit([](const auto& op) { return op.params(); }, node.op);
    for (std::size_t k = 0; k < shapes.size(); ++k) {
      Tensor<double>& t = list.emplace_back(shapes[k].rows, shapes[k].cols);
      std::fill_n(t.data(), t.size(), node.theta.at(std::min(k, node.theta.size() - 1)));
    }
  }
}

View<const double> Chain::input_of(const Values& values, std::size_t node, std::size_t k) const {
  const int from = nodes_[node].inputs[k];
  return from >= 0 ? values.y[static_cast<std::size_t>(from)].view() : values.x[static_cast<std::size_t>(-1 - from)].view();
}

std::vector<View<const double>> Chain::inputs_of(const Values& values, const ChainNode& node) const {
  std::vector<View<const double>> list;
  for (const int from : node.inputs) {
    list.push_back(from >= 0 ? values.y[static_cast<std::size_t>(from)].view() : values.x[static_cast<std::size_t>(-1 - from)].view());
  }
  return list;
}

namespace {

std::vector<View<const double>> views(const std::vector<Tensor<double>>& list) {
  std::vector<View<const double>> out;
  for (const Tensor<double>& t : list) out.push_back(t.view());
  return out;
}

}  // namespace

Chain::Values Chain::forward(std::vector<Tensor<double>> x, const Parameters& parameters) const {
  Values v;
  v.x = std::move(x);
  for (std::size_t i = 0; i < nodes_.size(); ++i) {
    const ChainNode& node = nodes_[i];
    const auto in = inputs_of(v, node);
    const auto theta = views(parameters[i]);
    std::visit(
        [&](const auto& op) {
          v.y.emplace_back(in[0].rows, op.channels());
          v.keep.emplace_back(in[0].rows, op.keep());
          op.forward(Down<double>{batch_, in, theta, v.y.back().view(), v.keep.back().view()});
        },
        node.op);
  }
  return v;
}

std::vector<Tensor<double>> Chain::backward(const Values& v, const Tensor<double>& dy, Parameters* dtheta) const {
  if (dtheta != nullptr) dtheta->resize(nodes_.size());
  std::vector<Tensor<double>> dx(v.x.size()), d(v.y.size());
  d.back() = Tensor<double>(dy.rows(), dy.cols());
  std::copy_n(dy.data(), dy.size(), d.back().data());
  for (std::size_t i = nodes_.size(); i-- > 0;) {
    const ChainNode& node = nodes_[i];
    if (d[i].size() == 0) continue;
    const auto in = inputs_of(v, node);
    const auto theta = views(theta_[i]);
    std::vector<Into<double>> into;
    for (std::size_t k = 0; k < node.inputs.size(); ++k) {
      const int from = node.inputs[k];
      Tensor<double>& to = from >= 0 ? d[static_cast<std::size_t>(from)] : dx[static_cast<std::size_t>(-1 - from)];
      const bool add = to.size() > 0;
      if (!add) to = Tensor<double>(in[k].rows, in[k].cols);
      into.push_back({to.view(), add});
    }
    std::vector<Into<double>> into_theta(theta.size());
    for (std::size_t k = 0; dtheta != nullptr && k < theta.size(); ++k) {
      into_theta[k].d = (*dtheta)[i].emplace_back(theta[k].rows, theta[k].cols).view();
    }
    std::visit(
        [&](const auto& op) { op.backward(Up<double>{batch_, in, theta, v.y[i].view(), v.keep[i].view(), d[i].view(), into, into_theta}); },
        node.op);
  }
  return dx;
}

Tensor<double> copy_of(const Tensor<double>& x) {
  Tensor<double> out(x.rows(), x.cols());
  std::copy_n(x.data(), x.size(), out.data());
  return out;
}

Chain::Parameters copy_of(const Chain::Parameters& theta) {
  Chain::Parameters out;
  for (const auto& list : theta) {
    out.emplace_back();
    for (const Tensor<double>& t : list) out.back().push_back(copy_of(t));
  }
  return out;
}

}  // namespace stepzero
