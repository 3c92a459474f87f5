// The predict walk where the answer is known: the limits in which the theory must give closed forms to rounding.
#include "stepzero/theory/predict.hpp"

#include <cmath>
#include <map>
#include <numbers>
#include <thread>

#include <gtest/gtest.h>

#include "stepzero/core/parallel.hpp"
#include "stepzero/models/make_input.hpp"
#include "stepzero/ops/finite/all.hpp"
#include "stepzero/pass/measure.hpp"
#include "stepzero/report/json.hpp"
#include "stepzero/signal/comparison.hpp"
#include "tests/unit/small_model.hpp"

namespace stepzero {
namespace {

SmallModel model(const std::vector<std::string>& set, const std::string& tokens, Index length, Index sequences = 1) {
  std::vector<std::string> all = {"layers=3", "width=64", "heads=4", "kv_heads=4", "ffn=96", "vocab=300"};
  all.insert(all.end(), set.begin(), set.end());
  return small_model("llama-2-7b", all, tokens, length, sequences);
}

Signal predicted(const SmallModel& s, const char* scheme, const PredictOptions& options = {.order = Order::fluctuations}) {
  return predict(s.graph, s.a, s.batch, **find_scheme(scheme), options);
}

Signal both(const SmallModel& s, const char* scheme, int seeds) {
  MeasureOptions options;
  options.scheme = *find_scheme(scheme);
  options.weightless = true;
  options.seeds = seeds;
  return join(predicted(s, scheme), measure(s.graph, s.a, s.batch, options).value());
}

const NodeSignal& node(const Signal& s, const std::string& name) {
  for (const NodeSignal& n : s.nodes) {
    if (n.name == name) return n;
  }
  ADD_FAILURE() << "no node " << name;
  return s.nodes.front();
}

double square(const Signal& s, const std::string& name) { return *node(s, name).forward.second_moment.predicted; }
double cosine(const Signal& s, const std::string& name) { return *node(s, name).forward.token_cosine.predicted; }

const std::vector<std::string> plain_relu = {"norm=none", "gated=false", "activation=relu", "rotary=0", "init_std=1"};

double xavier(Index in, Index out) { return 2.0 * static_cast<double>(in) / static_cast<double>(in + out); }

// One token: attention hands its value on, and the model is an MLP with residuals.
TEST(Predict, OneTokenIsAnMlp) {
  const Signal s = predicted(model(plain_relu, "distinct", 1, 2), "xavier-normal", {.jacobians = true});
  double q = 1, left = 1;
  const double attention = 1 + xavier(64, 64) * xavier(64, 64), ffn = 1 + xavier(64, 96) * 0.5 * xavier(96, 64);
  for (int l = 0; l < 3; ++l) {
    EXPECT_NEAR(square(s, "stream." + std::to_string(l)), q, 1e-6 * q);  // heads are drawn in float
    q *= attention * ffn;
    left *= attention * ffn;
  }
  EXPECT_NEAR(square(s, "stream.3"), q, 1e-6 * q);
  ASSERT_EQ(s.jacobians.size(), 3U);
  EXPECT_EQ(s.jacobians.back().from, "stream.0");
  EXPECT_EQ(s.jacobians.back().to, "stream.3");
  // a ReLU network is linear in a change, and its Jacobian has the signal's own gain
  EXPECT_NEAR(*s.jacobians.back().square.predicted, left, 1e-6 * left);
  EXPECT_NEAR(*s.growth.forward.predicted, std::log(attention * ffn), 1e-6);
  EXPECT_FALSE(s.growth.angle.predicted.has_value());
}

// Exchangeable tokens, uniform attention, no mask: two numbers (q, p) say everything.
TEST(Predict, ExchangeableTokensFollowTheTwoNumberRecursion) {
  const Index length = 12;
  const auto wide = [&](const char* width, const char* ffn) {
    auto set = plain_relu;
    set.insert(set.end(), {"causal=false", "attention_scale=1e-12", width, ffn});
    return predicted(model(set, "distinct", length), "xavier-normal");
  };
  // so wide that one draw's cosine is nearly that of the mean kernel; what it still differs by goes as 1 / width
  const Signal s = wide("width=262144", "ffn=393216"), twice = wide("width=524288", "ffn=786432");
  double q = 1, p = 0;
  for (int l = 0; l <= 3; ++l) {
    const std::string name = "stream." + std::to_string(l);
    EXPECT_NEAR(2 * square(twice, name) - square(s, name), q, 1e-10 * q) << name;
    EXPECT_NEAR(cosine(twice, name), p / q, 2e-5) << name;
    const double mixed = (q + (length - 1) * p) / length;
    q += xavier(64, 64) * xavier(64, 64) * mixed;
    p += xavier(64, 64) * xavier(64, 64) * mixed;
    const double theta = std::acos(p / q), in = xavier(64, 96), out = xavier(96, 64);
    const double relu = in * q * (std::sin(theta) + (std::numbers::pi - theta) * std::cos(theta)) / (2 * std::numbers::pi);
    p += out * relu;
    q += out * in * q / 2;
  }
}

// Equal tokens: whatever the weights of attention are, it hands the value on.
TEST(Predict, AttentionIsTheIdentityOnEqualTokens) {
  for (const char* scale : {"attention_scale=1e-3", "attention_scale=1"}) {  // by series, and by sampled heads
    const Signal s = predicted(model({scale, "rotary=0"}, "equal", 9), "xavier-normal");
    for (const char* block : {"blocks.0.", "blocks.2."}) {
      const std::string at = std::string(block) + "attn.";
      EXPECT_NEAR(square(s, at + "mix") / square(s, at + "v"), 1, 1e-5) << at << scale;
      EXPECT_NEAR(cosine(s, at + "mix"), 1, 1e-6);
    }
  }
}

// Branches that add nothing leave the signal and its gradient as they are.
TEST(Predict, NothingChangesWithoutBranches) {
  const Signal s = predicted(model({"residual_scale=0"}, "zipf", 16), "he", {.jacobians = true});
  for (int l = 1; l <= 3; ++l) {
    const std::string name = "stream." + std::to_string(l);
    EXPECT_EQ(square(s, name), square(s, "stream.0"));
    EXPECT_EQ(cosine(s, name), cosine(s, "stream.0"));
    EXPECT_EQ(*node(s, name).backward.norm.predicted, *node(s, "stream.0").backward.norm.predicted);
  }
  for (const JacobianSignal& j : s.jacobians) EXPECT_NEAR(*j.square.predicted, 1, 1e-12);
  EXPECT_NEAR(*s.growth.forward.predicted, 0, 1e-12);
  EXPECT_NEAR(*s.growth.gradient.predicted, 0, 1e-12);
}

// Adding one vector to all keys changes no softmax: the bias of k has no gradient.
TEST(Predict, KeyBiasHasNoGradient) {
  for (const char* scale : {"attention_scale=1e-2", "attention_scale=0.5"}) {
    const Signal s = predicted(model({"bias=true", "rotary=0", scale}, "zipf", 16), "xavier-normal");
    for (const ParameterSignal& p : s.parameters) {
      if (p.name.ends_with("k_proj.bias")) {
        EXPECT_LT(*p.gradient_norm.predicted, 2e-4 * *s.gradient_norm.predicted) << p.name << scale;
      }
    }
  }
}

// As many channels as tokens, a few more or fewer: the kernel that sampled heads draw stays one.
TEST(Predict, SampledHeadsAreFiniteAtAnyNoise) {
  const SmallModel m = model({"layers=1"}, "distinct", 48);
  const Attention op{.heads = 64, .kv_heads = 64, .key_dim = 16, .value_dim = 16, .scale = 0.5};
  for (const double channels : {0.5, 1.0, 47.0, 48.5, 49.0, 49.3, 50.0, 60.0, 1e6}) {
    DownWire x;
    x.K = Kernel::from(48, [](Index t, Index s) { return t == s ? 1.0 : 0.3; });
    x.f.noise = 1 / channels + 1.0 / 1024;
    x.f.swing = 0.3;
    x.width = 1024;
    const std::vector<const DownWire*> inputs = {&x, &x, &x};
    const DownWire y = push_finite(op, PushDoor{m.batch, inputs, {}, {}});
    EXPECT_TRUE(y.K.trace() > 0 && y.K.trace() < 1e3) << channels;
    const UpWire dy(Kernel::from(48, [](Index t, Index s) { return t == s ? 1.0 : 0.1; }));
    const Pulled up = pull_finite(op, PullDoor{m.batch, inputs, {}, y, dy, {}});
    for (const UpWire& d : up.dx) EXPECT_TRUE(std::isfinite(d.G.trace()) && d.G.trace() > 0) << channels;
  }
}

// Behind forty post-norm layers the tokens are alike but for rounding, and no gradient is less than nothing.
TEST(Predict, GradientsOfTokensThatAreAlikeAreFinite) {
  const SmallModel m = small_model("gpt2", {"layers=48", "width=64", "heads=4", "vocab=512", "norm_placement=post"}, "zipf", 24);
  for (const NodeSignal& n : predicted(m, "xavier-normal").nodes) EXPECT_TRUE(std::isfinite(*n.backward.norm.predicted)) << n.name;
}

// Sampled heads and long kernels are spread over threads; the numbers are the same.
// Draws of kernels ask for the softmax of nearly the same variances, in an order that threads decide.
TEST(Predict, LossDoesNotDependOnWhatWasAskedBefore) {
  const CrossEntropy op{.vocab = 300};
  const Batch batch{.ids = {1}, .targets = {2}};
  const auto loss_at = [&](double variance) {
    Moment x;
    x.K = Kernel::from(1, [&](Index, Index) { return variance; });
    const DownWire wire(x);
    const DownWire* const wires[] = {&wire};
    return op.push({batch, wires, {}}).mean[0];
  };
  const auto alone = [&](const std::vector<double>& variances) {  // by a thread that has been asked nothing yet
    double last = 0;
    std::jthread([&] {
      for (const double v : variances) last = loss_at(v);
    }).join();
    return last;
  };
  for (const double v : {0.5, 9.0, 17.3}) EXPECT_EQ(alone({v * (1 + 4e-13), v}), alone({v})) << v;
}

TEST(Predict, SameBitsForAnyNumberOfThreads) {
  const SmallModel s = model({"layers=2"}, "zipf", 300);
  const int before = threads();
  std::string first;
  for (const int n : {1, 2, 3}) {
    set_threads(n);
    const std::string json = to_json(predicted(s, "xavier-normal"));
    if (first.empty()) first = json;
    EXPECT_TRUE(json == first) << n << " threads";
  }
  set_threads(before);
}

// Aligned tokens at a small width, where what a rule leaves out adds up over tokens: the norm's part along the token (without
// it, gradients of biases and of v are 16 % off) and the noise that q and k feel, which grows with the depth.
TEST(Predict, GradientsOfAlignedTokens) {
  const SmallModel s = model({"layers=6", "width=128", "heads=2", "kv_heads=2", "ffn=256", "norm=layernorm", "gated=false",
                              "activation=relu", "rotary=0", "causal=false", "bias=true", "position=learned"},
                             "distinct", 48);
  const Signal compared = both(s, "he", 96);
  struct Kind {
    const char* suffix;
    double error = 0, noise = 0, count = 0;
  };
  for (Kind kind : {Kind{"v_proj.weight"}, {"o_proj.bias"}, {"down_proj.bias"}, {"q_proj.weight"}, {"k_proj.weight"}}) {
    for (const ParameterSignal& p : compared.parameters) {
      if (!p.name.ends_with(kind.suffix)) continue;
      kind.error += *p.gradient_norm.predicted / *p.gradient_norm.measured - 1;
      kind.noise += *p.gradient_norm.standard_error / *p.gradient_norm.measured;
      ++kind.count;
    }
    const double bound = (kind.suffix[0] == 'q' || kind.suffix[0] == 'k' ? 0.15 : 0.06) + 2 * kind.noise / kind.count;
    EXPECT_TRUE(std::abs(kind.error / kind.count) <= bound)
        << kind.suffix << ": " << 100 * kind.error / kind.count << " % off on the mean over layers, " << 100 * bound << " allowed";
    RecordProperty(kind.suffix, std::to_string(kind.error / kind.count));
  }
}

// The spread of single draws: within a factor of 1.6 of the measured one, for nearly all numbers of each kind.
TEST(Predict, SpreadIsThatOfSingleDraws) {
  const SmallModel s = model({"width=128", "ffn=256", "activation=gelu", "gated=false"}, "zipf", 24);
  const Signal compared = both(s, "xavier-normal", 120);
  std::map<std::string, std::vector<double>> ratios;
  for_each_value(compared, [&](const Value& v, Average, const auto& where, const std::string& what) {
    if (!v.spread || !v.measured || what == "mean" || what == "variance" || what == "std") return;
    const double measured = *v.standard_error * std::sqrt(120.0);
    if (measured < 1e-5 * std::abs(*v.measured) || *v.spread == 0) return;
    if (std::string(where).ends_with(".q_proj.weight") || std::string(where).ends_with(".k_proj.weight")) return;  // heavy tails
    ratios[what].push_back(*v.spread / measured);
  });
  for (auto& [what, list] : ratios) {
    std::ranges::sort(list);
    const double median = list[list.size() / 2];
    EXPECT_TRUE(median > 1 / 1.6 && median < 1.6) << what << ": median ratio " << median << " of " << list.size();
  }
  EXPECT_GE(ratios.size(), 7U);
}

const std::vector<std::string> post_norm = {
    "width=64", "heads=4",          "kv_heads=4", "ffn=256", "norm=layernorm", "norm_placement=post", "gated=false", "activation=gelu_tanh",
    "rotary=0", "position=learned", "bias=true"};

// Behind a norm a gradient has nothing along its token nor along ones, and a centred stream nothing to centre: by forgetting
// that, 24 layers lose a tenth of the gradient at this width.
TEST(Predict, GradientThroughManyNorms) {
  auto set = post_norm;
  set.push_back("layers=24");
  const Signal s = both(model(set, "distinct", 8), "deepnet", 60);
  const Value& norm = node(s, "stream.0").backward.norm;
  EXPECT_NEAR(*norm.predicted / *norm.measured, 1, 0.03) << *norm.standard_error / *norm.measured;
}

// Every norm of a narrow model draws tokens apart (shrink), and makes their cosine differ from draw to draw (swing).
TEST(Predict, CosineThroughManyNorms) {
  auto set = post_norm;
  set.insert(set.end(), {"layers=12", "causal=false"});
  const Signal s = both(model(set, "distinct", 8), "xavier-normal", 200);
  const Value& cosine = node(s, "stream.12").forward.token_cosine;
  const double ratio = (1 - *cosine.predicted) / (1 - *cosine.measured);
  EXPECT_TRUE(ratio > 0.7 && ratio < 1.2) << ratio;
  const double swing = *cosine.spread / (*cosine.standard_error * std::sqrt(200.0));
  EXPECT_TRUE(swing > 0.45 && swing < 1.6) << swing;  // 0.56 of what is seen; 0.37 without it
}

// Sharp attention of few heads. The size of a token that a norm has fixed does not vary in the heads that are drawn (else the
// mix is 3 % too large); one that the heads decide varies on its own (else the cosine is 0.01 too small); and the norm behind
// divides the gradient where the weights were sharp (else that of v is 5 % too large beside the mix's), and leaves it nothing
// along the token (else those of q and k are 6 % too large).
TEST(Predict, SharpAttentionOfFewHeads) {
  const Signal s = both(model({"layers=2", "width=256", "ffn=1024", "norm=layernorm", "gated=false", "activation=relu", "rotary=0",
                               "causal=false", "bias=true", "position=learned"},
                              "distinct", 64),
                        "he", 200);
  const auto off = [](const Value& v) { return *v.predicted / *v.measured - 1; };
  const NodeSignal &mix = node(s, "blocks.0.attn.mix"), &v = node(s, "blocks.0.attn.v");
  EXPECT_NEAR(off(mix.forward.second_moment), 0, 0.015);
  EXPECT_NEAR(*mix.forward.token_cosine.predicted, *mix.forward.token_cosine.measured, 0.005);
  const double value = off(v.backward.second_moment) - off(mix.backward.second_moment);
  EXPECT_TRUE(value > -0.06 && value < 0.02) << value;
  for (const char* side : {"blocks.0.attn.q", "blocks.0.attn.k"}) {
    EXPECT_NEAR(off(node(s, side).backward.second_moment) - off(mix.backward.second_moment), 0, 0.03) << side;
  }
}

// A norm behind a gated feed-forward with none before it: the gradient is small where the product came out large (else those of
// gate and up are 17 % too large beside the product's, and their weights' 20 %).
TEST(Predict, GradientKnowsTheSize) {
  const Signal s = both(model({"layers=1", "width=64", "ffn=128", "norm_placement=branch"}, "distinct", 4), "xavier-normal", 400);
  const auto off = [](const Value& v) { return *v.predicted / *v.measured - 1; };
  const double product = off(node(s, "blocks.0.ffn.product").backward.second_moment);
  for (const char* side : {"blocks.0.ffn.gate", "blocks.0.ffn.up"}) {
    EXPECT_NEAR(off(node(s, side).backward.second_moment) - product, 0, 0.06) << side;
  }
}

// Under a tied head with embeddings of size 1 the gradient has the embeddings in it that the stream has too: a norm's gain feels
// that (53 % more than without), and so does what the norm leaves over for biases (41 %).
TEST(Predict, TiedHeadOfLargeEmbeddings) {
  const SmallModel model =
      small_model("gpt2", {"layers=1", "width=128", "heads=2", "vocab=512", "attention_scale=1", "logit_scale=0.0884"}, "zipf", 32);
  const Signal s = both(model, "t5", 60);
  for (const ParameterSignal& p : s.parameters) {
    if (p.name != "transformer.ln_f.weight" && p.name != "transformer.h.0.mlp.c_proj.bias") continue;
    EXPECT_NEAR(*p.gradient_norm.predicted / *p.gradient_norm.measured, 1, 0.06) << p.name;
  }
}

// The keys' tails do not come through the narrow wire of latent attention: with its noise, q had 17 % too large a gradient.
TEST(Predict, TailsOfLatentKeys) {
  const SmallModel model = small_model("deepseek-v3",
                                       {"layers=1", "dense_layers=1", "width=256", "heads=4", "vocab=1000", "ffn=512", "value_dim=32",
                                        "key_value_rank=32", "query_rank=96", "key_dim=2", "key_rope_dim=32"},
                                       "zipf", 32);
  const Value& q = node(both(model, "hf", 100), "blocks.0.attn.q").backward.second_moment;
  EXPECT_NEAR(*q.predicted / *q.measured, 1, 0.06) << *q.standard_error / *q.measured;
}

// An expert that no token chose has no gradient in this draw, and is not called wrong.
TEST(Predict, ExpertsThatNobodyChose) {
  const SmallModel model = small_model(
      "mixtral-8x7b", {"layers=2", "width=64", "heads=4", "kv_heads=4", "head_dim=16", "ffn=96", "expert_ffn=96", "vocab=300"}, "zipf", 6);
  MeasureOptions options;
  options.scheme = *find_scheme("hf");
  int unchosen = 0;
  for (const Comparison& r : compare(join(predicted(model, "hf"), measure(model.graph, model.a, model.batch, options).value()))) {
    if (r.where.find(".experts.") == std::string::npos) continue;
    if (r.measured == 0) ++unchosen;
    EXPECT_FALSE(r.wrong()) << r.where << ' ' << r.what << ": " << r.predicted << ", measured " << r.measured << ", z " << r.z;
  }
  EXPECT_GT(unchosen, 0);
}

// The same token at several distances: nearly equal, and drawn kernels of them are what the mean kernel says.
TEST(Predict, TokensThatAreNearlyEqual) {
  SmallModel m = small_model("t5-small", {"layers=4", "decoder_layers=1", "vocab=2000"}, "zipf", 1);
  m.batch = make_input(m.a, {.tokens = "zipf", .length = 96, .seed = 1}).value();
  const auto of = [&](Order order) { return predict(m.graph, m.a, m.batch, **find_scheme("hf"), {.order = order, .effort = 0.1}); };
  const Signal limit = of(Order::limit), finite = of(Order::fluctuations);
  for (std::size_t i = 0; i < limit.nodes.size(); ++i) {
    const double x = *limit.nodes[i].forward.second_moment.predicted, y = *finite.nodes[i].forward.second_moment.predicted;
    EXPECT_TRUE(std::abs(y / x - 1) <= 0.1) << limit.nodes[i].name << " " << x << " " << y;
  }
}

// Tokens that are all alike: what tells them apart is 0, or rounding.
TEST(Predict, EqualTokensHaveNumbers) {
  for (const char* rotary : {"rotary=0", "rotary=16"}) {
    for (const char* scheme : {"hf", "xavier-normal"}) {
      const Signal s = predicted(model({rotary}, "equal", 16), scheme);
      ASSERT_TRUE(s.gradient_norm.predicted) << rotary << " " << scheme;
      EXPECT_TRUE(std::isfinite(*s.gradient_norm.predicted)) << rotary << " " << scheme;
      for (const NodeSignal& n : s.nodes) {
        // RoPE alone tells equal tokens apart
        if (n.forward.token_cosine.predicted && !n.name.ends_with("_rot")) {
          EXPECT_NEAR(*n.forward.token_cosine.predicted, 1, 1e-3) << n.name;
        }
        if (n.backward.second_moment.predicted) {
          EXPECT_TRUE(std::isfinite(*n.backward.second_moment.predicted)) << n.name;
        }
      }
    }
  }
}

// The first query sees one key: its gradient is 0, or what rounding leaves, which has no direction.
TEST(Predict, WhatRoundingLeavesHasNoDirection) {
  const SmallModel two = small_model("gpt2", {"layers=6", "width=256", "heads=4", "vocab=2000"}, "zipf", 2, 4);
  const Signal s = predicted(two, "gpt2");
  for (const NodeSignal& n : s.nodes) {
    const auto& found = n.backward.token_cosine.predicted;
    if (!found) continue;
    EXPECT_LE(std::abs(*found), 1 + 1e-9) << n.name;
    if (n.name.ends_with("attn.q")) {
      EXPECT_NEAR(*found, 0, 1e-6) << n.name;
    }
  }
}

// What the spread is for: one measured run is judged by it.
TEST(Predict, OneRunIsJudgedByTheSpread) {
  const SmallModel s = model({}, "zipf", 16);
  MeasureOptions options;
  const Scheme& scheme = **find_scheme("hf");
  options.scheme = &scheme;
  const auto rows = compare(join(predicted(s, "hf"), measure(s.graph, s.a, s.batch, options).value()));
  const auto judged = std::ranges::count_if(rows, [](const Comparison& r) { return r.z != 0; });
  EXPECT_GT(judged, static_cast<long>(rows.size() / 2));
}

}  // namespace
}  // namespace stepzero
