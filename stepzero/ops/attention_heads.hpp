#pragma once
// One synthetic head of an attention: how it is drawn from the kernels of its inputs, and what goes through it up and down.
#include <cmath>
#include <optional>
#include <string>
#include <vector>

#include "stepzero/ops/attention.hpp"
#include "stepzero/ops/head_tools.hpp"
#include "stepzero/ops/kernel_draw.hpp"

namespace stepzero {

class HeadMaker {
 public:
  HeadMaker(const Attention& op, const Batch& batch, std::span<const DownWire* const> x, std::span<const Law> theta, Draws draws);

  struct Head {
    Tensor<float> factor;   // of the redrawn kernel of v, (T, rank)
    Tensor<float> queries;  // the same of q, where its tokens are others or v is made from a narrow wire of its own
    Tensor<float> q, k, a;  // a: (T, L), the weights of each token over its own sequence
    Tensor<float> slope;    // of the softcap, like a
    Tensor<float> keep;
    Attention op;
    Tensor<float> table;         // of learned biases
    float sink = 0;              // the learned score without a value
    Tensor<float> drawn_values;  // the head's own, over sqrt(their channels), in one draw of a model
    [[nodiscard]] const Tensor<float>& query_factor() const { return queries.rows() > 0 ? queries : factor; }
    [[nodiscard]] const Tensor<float>& values() const { return drawn_values.rows() > 0 ? drawn_values : factor; }
  };
  // Numbered by i: the same every time.
  [[nodiscard]] Head head(Index i) const;
  // The values of head i's own, where one draw of a model is made.
  void draw_values(Head& h, Index i) const;

  [[nodiscard]] bool turns() const { return of_q_.rotary != nullptr || of_k_.rotary != nullptr || of_k_.tail; }

  // A F
  [[nodiscard]] Tensor<float> mixed(const Head& h) const;

  // A norm behind attention takes out the gradient's part along the output of all heads.
  struct OutputProjection {
    bool active;
    double along;
    std::vector<double> others;  // the squared output of the other heads

    OutputProjection(const HeadMaker& s, const Moment& y, const Response& r)
        : active(1 - r.along > 0.01 * static_cast<double>(s.op_.heads)), along(r.along) {  // below, it is a hundredth of a part
      for (Index t = 0; t < s.tokens_; ++t) others.push_back(static_cast<double>(s.op_.heads - 1) * y.K(t, t));
    }
  };

  // Gram matrices of the gradients of q, k and v of one head, in the mean over gradients of its output.
  struct Reached {
    Tensor<float> gq, gk, gv;
    Reached() = default;
    explicit Reached(Index n) : gq(n, n), gk(n, n), gv(n, n) {}
  };
  // up: the root of the gradient's kernel, field: the kernel itself
  void reach(const Head& h, const Tensor<float>& up, const Tensor<float>& field, const OutputProjection& projection, Reached& to) const;

  // The gradients of q and k for one drawn gradient of the output.
  struct Sides {
    Tensor<float> q, k;
    double table = 0;  // squared norm of the biases' gradient
    double sink = 0;   // ... and of the sink's
  };
  [[nodiscard]] Sides to_scores(const Head& h, const Tensor<float>& up, Index i) const;
  // The same before the rotation.
  [[nodiscard]] Sides turned_back(Sides d) const;

 protected:
  [[nodiscard]] View<const float> of(const Tensor<float>& x, Index b) const { return x.view().slice(b * batch_.length, batch_.length); }
  [[nodiscard]] View<float> rows(Tensor<float>& x, Index b) const { return x.view().slice(b * batch_.length, batch_.length); }
  static float* slope_row(Head& h, Index t) { return h.slope.rows() > 0 ? h.slope.view().row(t) : nullptr; }
  static const float* slope_row(const Head& h, Index t) { return h.slope.rows() > 0 ? h.slope.view().row(t) : nullptr; }

  [[nodiscard]] Tensor<float> normals(Index n, Index columns, const char* name, Index i) const {
    return node_normals(draws_.place, name, i, n, columns);
  }
  // Where the numbers of head i come from: in one draw of a model heads share keys and values, and opposite draws their numbers.
  [[nodiscard]] Index shared_by(Index i) const { return i / (op_.heads / op_.kv_heads); }
  [[nodiscard]] Index stream_of_query(Index i) const { return draws_.of_one() ? draws_.single / 2 * op_.heads + i : i; }
  [[nodiscard]] Index stream_of_key(Index i) const { return draws_.of_one() ? draws_.single / 2 * op_.kv_heads + shared_by(i) : i; }

  // Whether q is drawn from a kernel of its own: in a cross attention that of its tokens, in a latent one that of the narrow wire's input.
  [[nodiscard]] bool apart() const { return op_.cross || of_k_.tail; }
  [[nodiscard]] const DownWire& queries_from() const { return apart() ? stem_ : v_; }

  [[nodiscard]] Tensor<float> draw_side(const Tensor<float>& factor, const Moment& from, const Moment& m, const HeadNote& heads,
                                        const char* name, Index i) const;
  void draw_tail(const Tensor<float>& factor, Tensor<float>& k, Index i) const;
  [[nodiscard]] Tensor<float> to_values(const Head& h, const Tensor<float>& up) const;

  const Attention& op_;
  const Batch& batch_;
  Draws draws_;
  Index tokens_;
  const DownWire& q_;
  const DownWire& k_;
  const DownWire& v_;
  HeadNote of_q_, of_k_;  // what happened to them since the projection
  DownWire stem_;         // what q is drawn from, where it is not what v is
  KernelDraw values_;
  std::optional<KernelDraw> queries_;
  Law bias_, sink_;
  Attention one_;
};

}  // namespace stepzero
