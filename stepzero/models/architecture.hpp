#pragma once
// The architecture description: what every family's config.json is lowered to and the graph is built from.
// 0 in a size or scale means "derived": `resolve` fills it in and checks that everything fits.
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "stepzero/core/error.hpp"
#include "stepzero/core/view.hpp"

namespace stepzero {

struct Graph;
struct OwnFile;

enum class NormKind : std::uint8_t { layernorm, rmsnorm, batchnorm, none };
enum class NormPlacement : std::uint8_t { pre, post, sandwich, branch };
enum class PositionKind : std::uint8_t { learned, sinusoidal, none };
enum class QkNorm : std::uint8_t { none, head, each_head, all };  // one gain for all heads, one for each; all heads as one vector
enum class RopeScaling : std::uint8_t { none, linear, dynamic, yarn, longrope, llama3 };
enum class Activation : std::uint8_t {
  identity,
  relu,
  relu2,
  relu6,
  leaky_relu,
  sigmoid,
  tanh,
  silu,
  quick_gelu,
  gelu,
  gelu_tanh,
  gelu_10,
  mish,
  laplace
};

enum class Pooling : std::uint8_t { none, max, average };

enum class BranchGain : std::uint8_t { none, scalar, channel };

// Fields stand by meaning, not by size.
struct Architecture {  // NOLINT(clang-analyzer-optin.performance.Padding)
  std::string name;
  std::string family;

  static constexpr Index most_layers = 10000;
  static constexpr Index most_experts = 65536;
  Index layers = 12;
  Index width = 768;
  Index heads = 12;
  Index kv_heads = 0;  // heads
  Index head_dim = 0;  // width / heads
  Index ffn = 0;       // 4 width
  Index vocab = 50257;
  Index positions = 1024;
  Index embedding_width = 0;  // of the token table: width; where it differs, two matrices lead in and out (OPT)
  Index token_types = 0;      // rows of a table whose first row is added to every token (BERT); 0: none
  static constexpr Index no_padding = -1;
  Index padding = no_padding;  // the id whose row stays zero and gets no gradient from the lookup

  PositionKind position = PositionKind::learned;
  Index position_offset = 0;            // rows of the table before position 0 (OPT, RoBERTa)
  bool position_skips_padding = false;  // tokens of padding are not counted (RoBERTa)
  static constexpr Index whole_head = -1;
  Index rotary = 0;  // channels of each head that turn; 0: none; whole_head: rotary_fraction of them
  double rotary_fraction = 1;
  bool rotary_interleaved = false;  // pairs are neighbours (GPT-J, Cohere) rather than half a head apart
  double rope_theta = 10000;
  double rope_theta_window = 0;  // in the layers with a window (Gemma 3), which then know no scaling; 0: the same
  RopeScaling rope_scaling = RopeScaling::none;
  double rope_factor = 1;
  Index rope_original_positions = 0;  // positions
  double rope_attention_factor = 0;   // on turned queries and keys; 0: what the scaling says
  double rope_low_freq = 1;           // llama3
  double rope_high_freq = 4;
  double rope_beta_fast = 32;  // yarn
  double rope_beta_slow = 1;
  bool rope_truncate = true;
  std::vector<double> rope_short = {};  // longrope: one factor a pair, up to rope_original_positions tokens
  std::vector<double> rope_long = {};   // ... and beyond
  bool rope_beyond = false;             // the sequence is longer than that
  double alibi = 0;                     // times the usual slopes; 0: none
  bool causal = true;
  Index window = 0;              // 0: sees everything
  std::string layer_types = {};  // a letter a layer, repeated: s has the window, f has none; empty: all have it

  NormKind norm = NormKind::layernorm;
  double norm_eps = 1e-5;
  NormPlacement norm_placement = NormPlacement::pre;
  bool norm_gain = true;
  bool norm_bias = true;     // of LayerNorm; RMSNorm has none
  bool norm_offset = false;  // the stored gain is gain - 1 (Gemma)
  bool embedding_norm = false;
  bool final_norm = true;  // but never after post-norm blocks
  QkNorm qk_norm = QkNorm::none;
  bool qk_norm_bias = false;
  bool parallel_block = false;
  bool shared_norm = false;         // both branches of a parallel block read one norm
  bool residual_from_norm = false;  // the stream goes on from the norm's output (BLOOM's option)

  Activation activation = Activation::gelu_tanh;
  bool gated = false;
  bool attention_bias = true;      // of q, k, v
  bool attention_out_bias = true;  // of the output projection
  bool mlp_bias = true;
  bool head_bias = false;
  bool head_transform = false;  // dense, activation, norm before the head (BERT)
  bool head_gelu = false;       // its activation is gelu, whatever that of the blocks (RoBERTa)
  double clip_qkv = 0;          // 0: none

  double attention_scale = 0;             // 1 / sqrt(head_dim)
  bool attention_scale_by_layer = false;  // further divided by the layer's number, from 1 (GPT-2's option)
  double attention_softcap = 0;           // 0: none
  double residual_scale = 1;
  double embedding_scale = 1;  // 0: sqrt(width)
  double logit_scale = 1;
  double logit_softcap = 0;  // 0: none
  bool tied = true;
  double dropout = 0;
  double init_std = 0.02;

  Index experts = 0;  // of each layer from dense_layers on; 0: none
  Index experts_per_token = 0;
  Index shared_experts = 0;
  Index expert_ffn = 0;  // ffn
  Index dense_layers = 0;
  bool router_bias = false;      // a correction of the experts' scores, which only the choice sees (DeepSeek-V3)
  bool router_sigmoid = false;   // scores are sigmoids, else a softmax
  bool router_normalise = true;  // the gates of a token sum to router_scale
  double router_scale = 1;       // on the gates
  Index router_groups = 1;       // of experts, of which router_kept_groups stay
  Index router_kept_groups = 1;
  Index router_group_best = 1;  // a group is as good as the sum of so many of its best scores
  Index query_rank = 0;         // of latent attention (DeepSeek): 0: queries are projected directly
  Index key_value_rank = 0;
  Index key_dim = 0;       // of a head: the part that does not turn
  Index key_rope_dim = 0;  // ... and the part that does
  Index value_dim = 0;
  Index decoder_layers = 0;      // of an encoder-decoder (T5), whose encoder then has `layers`
  Index relative_positions = 0;  // buckets of a relative bias, of which the last holds relative_distance and beyond
  Index relative_distance = 128;
  Index image = 0;  // of vision models: pixels on a side, of a patch (ViT), and colours
  Index patch = 0;
  Index colours = 3;
  Index frames = 0;  // of speech models: frames and channels of what the encoder reads
  Index bands = 0;
  bool pooled = false;    // one target for each sequence
  Index end_id = -1;      // the token that a sequence is pooled at; -1: none
  Index token_vocab = 0;  // of a model that classifies sequences, whose vocab then counts the classes; 0: it does not
  // Convolutional networks: stages of convolutions, then matrices.
  std::vector<Index> stages = {};  // channels of each; empty: a transformer
  Index stage_blocks = 0;          // residual blocks of a stage; 0: one convolution, its activation, a pooling
  Index conv_size = 3;
  Index conv_stride = 1;  // where there are no residual blocks, which halve the image from stage to stage
  static constexpr Index same_padding = -1;
  Index conv_padding = same_padding;  // half the size: a stride of 1 leaves the image as large as it was
  Index conv_groups = 1;              // but for convolutions of the pixels, and for those that lead past a block
  Pooling pooling = Pooling::max;     // where there are no residual blocks, which end in the mean over the image
  Index pool_size = 2;
  std::vector<Index> dense = {};  // widths of the matrices before the head
  // What schemes change in the forward pass.
  double skip_scale = 1;                      // on the stream where a branch is added to it
  std::vector<double> skip_scales = {};       // one for each of the 2 layers branches; empty: skip_scale
  std::vector<double> residual_scales = {};   // likewise, on the branches; empty: residual_scale
  BranchGain branch_gain = BranchGain::none;  // a learned gain on every branch
  bool sub_norm = false;                      // a norm before the last matrix of every branch
  bool norm_scale_by_layer = false;           // norms before the branches of layer l, from 0, divided by sqrt(l + 1)
  bool unit_linear = false;                   // what enters a product divided by sqrt(fan_in)
  Index base_width = 256;                     // the model whose settings muP carries over
  Index base_layers = 2;
  std::vector<double> mixing = {};        // how much of a value's size attention leaves in each layer, as a scheme that asked was told
  std::vector<std::string> changes = {};  // what a scheme has changed, as "field=value"
  std::vector<std::string> notices = {};  // what its configuration says that was not read, or does not say, in words
  std::vector<std::string> sizes_not_given = {};
  // Of a model that is a file of its own rather than of a family: the file, and once it is resolved the graph it builds. What stands
  // above is then read off the graph.
  std::shared_ptr<const OwnFile> own = nullptr;
  std::shared_ptr<const Graph> graph = nullptr;
};

inline bool has_window(const Architecture& a, Index layer) {
  return a.window > 0 && (a.layer_types.empty() || a.layer_types[static_cast<std::size_t>(layer) % a.layer_types.size()] == 's');
}

// Fills in derived sizes; says which field is wrong and what would fit.
Expected<void> resolve(Architecture& a);

// A field that --set can change.
struct Field {
  std::string_view name;
  std::string_view values;  // what it takes, in words
  Expected<void> (*set)(Architecture&, std::string_view value);
};
std::span<const Field> fields();

// "key=value"
Expected<void> set_field(Architecture& a, std::string_view assignment);

Expected<Activation> parse_activation(std::string_view name);
std::string_view to_string(Activation a);
std::string_view to_string(NormKind n);
std::string_view to_string(NormPlacement p);
std::string_view to_string(RopeScaling s);
Expected<RopeScaling> parse_rope_scaling(std::string_view name);
std::string_view to_string(BranchGain g);
std::string_view to_string(Pooling p);
Expected<Pooling> parse_pooling(std::string_view name);
std::string_view to_string(PositionKind p);
std::string_view to_string(QkNorm n);

}  // namespace stepzero
