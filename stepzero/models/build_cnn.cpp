#include "stepzero/models/build_cnn.hpp"

#include <utility>

#include <fmt/format.h>

#include "stepzero/models/elementwise.hpp"

namespace stepzero {

namespace {

// A node, and the images it leaves.
struct Images {
  int node = -1;
  Index side = 1;
  Index channels = 1;
};

Index padding_of(const Architecture& a) { return a.conv_padding == Architecture::same_padding ? a.conv_size / 2 : a.conv_padding; }

class CnnBuilder {
 public:
  explicit CnnBuilder(const Architecture& a) : a_(a) {}

  Graph build() {
    head(a_.stage_blocks == 0 ? plain() : residual());
    return std::move(graph_);
  }

 private:
  std::string at() const { return fmt::format("blocks.{}.", layer_); }
  Images named(const std::string& node, Images x) {
    graph_.nodes.back().name = node;
    return x;
  }
  Images next_stream(Images x) { return named(fmt::format("stream.{}", ++layer_), x); }
  Images pixels(const std::string& node) { return {graph_.add_node(node, Pixels{a_.image, a_.colours}, {}), a_.image, a_.colours}; }

  Images plain() {
    Images x = pixels("stream.0");
    for (std::size_t s = 0; s < a_.stages.size(); ++s) {
      const Conv op{.window = {x.side, a_.conv_size, a_.conv_stride, padding_of(a_)},
                    .in = x.channels,
                    .out = a_.stages[s],
                    .bias = a_.mlp_bias,
                    .groups = s == 0 ? 1 : a_.conv_groups};
      x = conv(at() + "conv", fmt::format("conv{}", s + 1), x, op, Role::ffn_in, layer_);
      x = act(at() + "act", norm(at() + "norm", fmt::format("bn{}", s + 1), x, layer_));
      x = next_stream(pool(x));
    }
    return {graph_.add_node("flatten", Flatten{x.side, x.channels}, {x.node}), 1, x.channels * x.side * x.side};
  }

  Images pool(Images x) {
    if (a_.pooling == Pooling::none) return x;
    const Window window{x.side, a_.pool_size, a_.pool_size};
    const AnyOp op = a_.pooling == Pooling::max ? AnyOp(MaxPool{window, x.channels}) : AnyOp(AveragePool{window, x.channels});
    return {graph_.add_node("", op, {x.node}), window.out(), x.channels};
  }

  Images residual() {
    Images x = pixels("pixels");
    const Conv first{.window = {x.side, a_.conv_size, 1, padding_of(a_)}, .in = x.channels, .out = a_.stages[0], .bias = a_.mlp_bias};
    x = conv("stream.0", "conv1", x, first, Role::projection, -1);
    for (std::size_t s = 0; s < a_.stages.size(); ++s) {
      for (Index b = 0; b < a_.stage_blocks; ++b) x = block(fmt::format("layer{}.{}.", s + 1, b), x, a_.stages[s], s > 0 && b == 0 ? 2 : 1);
    }
    x = act("final.act", norm("final.norm", "bn", x, -1));
    return {graph_.add_node("final.pool", AveragePool{{x.side, x.side}, x.channels}, {x.node}), 1, x.channels};
  }

  // Norm and activation before each convolution: the stream is a sum of what convolutions made. Where the block changes the
  // images' shape, a convolution of single pixels leads past it.
  Images block(const std::string& stem, Images x, Index out, Index stride) {
    const Images in = act(at() + "act1", norm(at() + "norm1", stem + "bn1", x, layer_));
    Conv op{.window = {in.side, a_.conv_size, stride, padding_of(a_)},
            .in = in.channels,
            .out = out,
            .bias = a_.mlp_bias,
            .groups = a_.conv_groups};
    Images f = conv(at() + "conv1", stem + "conv1", in, op, Role::ffn_in, layer_);
    f = act(at() + "act2", norm(at() + "norm2", stem + "bn2", f, layer_));
    op.window = {f.side, a_.conv_size, 1, padding_of(a_)};
    op.in = out;
    f = conv(at() + "conv2", stem + "conv2", f, op, Role::ffn_out, layer_);
    if (stride != 1 || out != x.channels) {
      x = conv(at() + "shortcut", stem + "shortcut", in,
               {.window = {in.side, 1, stride}, .in = in.channels, .out = out, .bias = a_.mlp_bias}, Role::projection, layer_);
    }
    const Residual sum{out, a_.skip_scale, a_.residual_scale};
    return next_stream({graph_.add_node("", sum, {x.node, f.node}), f.side, out});
  }

  void head(Images x) {
    for (std::size_t k = 0; k < a_.dense.size(); ++k) {
      x = next_stream(act("", linear(at() + "fc", fmt::format("fc{}", k + 1), x, a_.dense[k], Role::ffn_in, layer_)));
    }
    const std::string stem = a_.dense.empty() ? "fc" : fmt::format("fc{}", a_.dense.size() + 1);
    x = linear("logits", stem, x, a_.vocab, Role::head, -1);
    graph_.add_node("loss", CrossEntropy{a_.vocab}, {x.node});
  }

  Images conv(const std::string& node, const std::string& stem, Images x, const Conv& op, Role role, int layer) {
    const Index size = op.window.size;
    Param weight{stem + ".weight", {op.out, op.in / op.groups, size, size}, role, layer, op.fan_in(), op.out * op.window.taps()};
    weight.conv = true;
    std::vector<ParamUse> uses = {graph_.whole(graph_.add_param(std::move(weight)))};
    if (op.bias) uses.push_back(bias(stem, op.fan_in(), op.out, layer));
    return {graph_.add_node(node, op, {x.node}, uses), op.window.out(), op.out};
  }

  Images linear(const std::string& node, const std::string& stem, Images x, Index out, Role role, int layer) {
    std::vector<ParamUse> uses = {graph_.whole(graph_.add_param({stem + ".weight", {out, x.channels}, role, layer, x.channels, out}))};
    uses.push_back(bias(stem, x.channels, out, layer));
    return {graph_.add_node(node, Linear{x.channels, out, true}, {x.node}, uses), 1, out};
  }

  ParamUse bias(const std::string& stem, Index fan_in, Index n, int layer) {
    return graph_.whole(graph_.add_param({stem + ".bias", {n}, Role::bias, layer, fan_in, n}));
  }

  Images norm(const std::string& node, const std::string& stem, Images x, int layer) {
    if (a_.norm == NormKind::none) return x;
    const int gain = graph_.add_param({stem + ".weight", {x.channels}, Role::gain, layer, 1, x.channels});
    const std::vector<ParamUse> uses = {graph_.whole(gain), bias(stem, 1, x.channels, layer)};
    return {graph_.add_node(node, BatchNorm{x.channels, a_.norm_eps}, {x.node}, uses), x.side, x.channels};
  }

  Images act(const std::string& node, Images x) {
    return {graph_.add_node(node, elementwise(a_.activation, x.channels), {x.node}), x.side, x.channels};
  }

  const Architecture& a_;
  Graph graph_;
  int layer_ = 0;
};

// The side of what a window leaves of images, as torch counts.
Expected<Index> side_after(const std::string& where, const Window& window) {
  if (window.size <= window.side + 2 * window.padding) return window.out();
  return fail(fmt::format("{}: a window of {} pixels does not fit images of {}{}", where, window.size, window.side,
                          window.padding > 0 ? fmt::format(" with {} around", window.padding) : ""),
              "a larger --set image, a larger conv_padding, a smaller conv_size or pool_size, or fewer stages");
}

Expected<Index> stage_side(const Architecture& a, std::size_t s, Index side) {
  const std::string where = fmt::format("stage {}", s + 1);
  if (a.stage_blocks > 0) return side_after(where, {side, a.conv_size, s > 0 ? 2 : 1, padding_of(a)});
  auto out = side_after(where, {side, a.conv_size, a.conv_stride, padding_of(a)});
  if (!out || a.pooling == Pooling::none) return out;
  return side_after(where + ", pooling", {*out, a.pool_size, a.pool_size});
}

}  // namespace

Expected<void> resolve_cnn(Architecture& a) {
  if (a.stages.empty()) return fail("a convolutional network needs stages", "the channels of each, such as --set stages=16,32");
  if (a.image < 1) return fail("a convolutional network needs image, the pixels on a side");
  if (a.norm != NormKind::batchnorm && a.norm != NormKind::none) {
    return fail(fmt::format("norm = {} is not for a convolutional network", to_string(a.norm)), "set norm=batchnorm or norm=none");
  }
  if (a.stage_blocks > 0 && (a.conv_size % 2 == 0 || padding_of(a) != a.conv_size / 2)) {
    return fail(fmt::format("residual blocks need convolutions that leave the image as large as it was, not conv_size = {} with {} around",
                            a.conv_size, padding_of(a)),
                "set an odd conv_size and conv_padding=-1");
  }
  double parameters = static_cast<double>(a.colours) * static_cast<double>(a.stages[0]) * static_cast<double>(a.conv_size * a.conv_size);
  Index side = a.image, channels = a.stages[0];
  for (std::size_t s = 0; s < a.stages.size(); ++s) {
    if ((s > 0 || a.stage_blocks > 0) && (channels % a.conv_groups != 0 || a.stages[s] % a.conv_groups != 0)) {
      return fail(
          fmt::format("stage {}: conv_groups = {} does not divide {} and {} channels", s + 1, a.conv_groups, channels, a.stages[s]));
    }
    const auto next = stage_side(a, s, side);
    if (!next) return std::unexpected(next.error());
    side = *next;
    parameters += static_cast<double>(channels) * static_cast<double>(a.stages[s]) * static_cast<double>(a.conv_size * a.conv_size);
    channels = a.stages[s];
  }
  double width = static_cast<double>(channels) * (a.stage_blocks > 0 ? 1.0 : static_cast<double>(side * side));
  for (const Index n : a.dense) parameters += std::exchange(width, static_cast<double>(n)) * static_cast<double>(n);
  parameters += width * static_cast<double>(a.vocab);
  if (!(parameters <= 1e13)) return fail(fmt::format("this description has more than {:.1e} parameters; the limit is 1e13", parameters));
  a.layers = static_cast<Index>(a.stages.size()) * std::max<Index>(a.stage_blocks, 1) + static_cast<Index>(a.dense.size());
  if (a.layers > Architecture::most_layers) return fail(fmt::format("{} layers are more than {}", a.layers, Architecture::most_layers));
  a.width = channels;
  a.positions = 1;  // an image is classified as a whole
  a.heads = a.kv_heads = a.head_dim = a.ffn = 1;
  a.causal = a.tied = a.gated = false;
  return {};
}

Graph build_cnn(const Architecture& a) { return CnnBuilder(a).build(); }

}  // namespace stepzero
