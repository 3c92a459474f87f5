#include "stepzero/ops/attention_heads.hpp"

#include "stepzero/kernels/statistics.hpp"
#include "stepzero/ops/attention_expect.hpp"

namespace stepzero {

HeadMaker::HeadMaker(const Attention& op, const Batch& batch, std::span<const DownWire* const> x, std::span<const Law> theta, Draws draws)
    : op_(op),
      batch_(batch),
      draws_(draws),
      tokens_(batch.tokens()),
      q_(*x[0]),
      k_(*x[1]),
      v_(*x[2]),
      of_q_(head_note(q_)),
      of_k_(head_note(k_)),
      stem_(stem_of(q_, of_k_)),
      values_(v_, v_.shared_noise() - (of_k_.tail ? stem_.f.noise : 0), batch.length, draws.place),
      one_(op) {
  one_.heads = one_.kv_heads = 1;
  if (op.buckets > 0) bias_ = theta[0];
  if (op.sinks) sink_ = theta.back();
  if (apart()) queries_.emplace(stem_, stem_.f.noise, batch.length, draws.place + (1ULL << 32));
}

HeadMaker::Head HeadMaker::head(Index i) const {
  Tensor<float> stem = queries_ ? queries_->root(i) : Tensor<float>();
  Head h{of_k_.tail ? values_.root(i, stem) : values_.root(i),
         std::move(stem),
         {},
         {},
         Tensor<float>(tokens_, batch_.length),
         Tensor<float>(op_.softcap > 0 ? tokens_ : 0, batch_.length),
         Tensor<float>(tokens_, one_.keep()),
         one_,
         normals(op_.buckets, 1, "bias", stream_of_query(i)),
         0,
         {}};
  for (Index u = 0; u < op_.buckets; ++u) {
    h.table(u, 0) = static_cast<float>(bias_.mean + std::sqrt(bias_.variance) * static_cast<double>(h.table(u, 0)));
  }
  if (op_.sinks) {
    const auto z = static_cast<double>(normals(1, 1, "sink", stream_of_query(i))(0, 0));
    h.sink = static_cast<float>(sink_.mean + std::sqrt(sink_.variance) * z);
  }
  if (!op_.alibi.empty() && draws_.of_one()) {
    h.op.alibi = {op_.alibi[static_cast<std::size_t>(i)]};
  } else if (!op_.alibi.empty()) {
    const double golden = static_cast<double>(i) * 0.6180339887498949;  // spreads any number of heads over the slopes
    h.op.alibi = {op_.alibi[static_cast<std::size_t>((golden - std::floor(golden)) * static_cast<double>(op_.heads))]};
  }
  h.q = draw_side(h.query_factor(), queries_from(), q_, of_q_, "q", stream_of_query(i));
  // scores of opposite signs in draws that are each other's opposite
  for (Index j = 0; draws_.of_one() && draws_.single % 2 == 1 && j < h.q.size(); ++j) h.q.data()[j] = -h.q.data()[j];
  h.k = draw_side(h.factor, v_, k_, of_k_, "k", stream_of_key(i));
  if (of_k_.tail) draw_tail(h.queries, h.k, stream_of_key(i));
  if (of_q_.rotary != nullptr) h.q = turned(h.q, *of_q_.rotary, batch_, 1);
  if (of_k_.rotary != nullptr) h.k = turned(h.k, *of_k_.rotary, batch_, 1);
  for (Index b = 0; b < batch_.sequences; ++b) {
    gemm(Trans::no, Trans::yes, static_cast<float>(op_.scale), of(h.q, b), of(h.k, b), 0.0F, rows(h.a, b));
  }
  for (Index t = 0; t < tokens_; ++t)
    h.op.weights(h.a.view().row(t), h.keep.view().row(t), batch_.position(t), batch_.length, slope_row(h, t),
                 View<const float>(h.table.view()), op_.sinks ? &h.sink : nullptr);
  return h;
}

void HeadMaker::draw_values(Head& h, Index i) const {
  const Tensor<float> z = normals(h.factor.cols(), op_.value_dim, "v", draws_.single * op_.kv_heads + shared_by(i));
  h.drawn_values = Tensor<float>(tokens_, op_.value_dim);
  gemm(Trans::no, Trans::no, 1 / std::sqrt(static_cast<float>(op_.value_dim)), View<const float>(h.factor), View<const float>(z), 0.0F,
       h.drawn_values.view());
}

Tensor<float> HeadMaker::mixed(const Head& h) const {
  Tensor<float> out(tokens_, h.values().cols());
  for (Index b = 0; b < batch_.sequences; ++b) gemm(Trans::no, Trans::no, 1.0F, of(h.a, b), of(h.values(), b), 0.0F, rows(out, b));
  return out;
}

void HeadMaker::reach(const Head& h, const Tensor<float>& up, const Tensor<float>& field, const OutputProjection& projection,
                      Reached& to) const {
  gram(to_values(h, up), to.gv);
  // the softmax takes out what all values share, and without a cap what all keys share: floats could not. Where a sink takes a part of
  // the weights nothing is taken out.
  const bool capped = h.slope.rows() > 0, plain = capped || op_.sinks;
  const Tensor<float> keys = plain ? Tensor<float>() : centred(h.k, batch_);
  const GivenHead given{whole(h.a, batch_), capped ? whole(by_entry(h.a, h.slope), batch_) : Tensor<float>(), h.q, plain ? h.k : keys,
                        static_cast<float>(op_.scale)};
  expected_grams(given, op_.sinks ? gram(h.values()) : gram(centred(h.values(), batch_)), field, to.gq, to.gk);
  if (projection.active) take_out_along(given, gram(h.values()), projection.along, projection.others, field, to.gq, to.gk);
}

// A head of q or k: the kernel drawn for `from` scaled token by token to theirs, then the norm that the model has.
Tensor<float> HeadMaker::draw_side(const Tensor<float>& factor, const Moment& from, const Moment& m, const HeadNote& heads,
                                   const char* name, Index i) const {
  const Index dk = op_.key_dim;
  Tensor<float> x = product(Trans::no, Trans::no, factor, normals(factor.cols(), dk, name, i));
  const Kernel& base = heads.before;
  const Index tail = heads.tail ? heads.tail->channels : 0;
  for (Index t = 0; t < tokens_; ++t) {
    float* row = x.view().row(t);
    const double v = from.K(t, t), end = heads.tail ? heads.tail->K(t, t) : 0;
    const double front = (static_cast<double>(dk) * base(t, t) - static_cast<double>(tail) * end) / static_cast<double>(dk - tail);
    auto a = static_cast<float>(v > 0 ? std::sqrt(std::max(front, 0.0) / v) : 0);
    if (heads.unit) {
      const float square = dot_row(row, row, dk);
      a = square > 0 ? std::sqrt(static_cast<float>(m.K(t, t) * static_cast<double>(dk)) / square) : 0;
    }
    for (Index c = 0; c < dk; ++c) row[c] *= a;
  }
  return x;
}

// The tail's own channels of k.
void HeadMaker::draw_tail(const Tensor<float>& factor, Tensor<float>& k, Index i) const {
  const Index tail = of_k_.tail->channels;
  const Tensor<float> x = product(Trans::no, Trans::no, factor, normals(factor.cols(), tail, "tail", i));
  for (Index t = 0; t < tokens_; ++t) std::copy_n(x.view().row(t), tail, k.view().row(t) + (op_.key_dim - tail));
}

// A' R
Tensor<float> HeadMaker::to_values(const Head& h, const Tensor<float>& up) const {
  Tensor<float> out(tokens_, tokens_);
  for (Index b = 0; b < batch_.sequences; ++b) {
    gemm(Trans::yes, Trans::yes, 1.0F, of(h.a, b), up.view().columns(b * batch_.length, batch_.length), 0.0F, rows(out, b));
  }
  return out;
}

HeadMaker::Sides HeadMaker::to_scores(const Head& h, const Tensor<float>& up, Index i) const {
  const Tensor<float> dy = product(Trans::yes, Trans::no, up, normals(tokens_, h.values().cols(), "dy", i));
  Tensor<float> d(tokens_, batch_.length);
  Sides out{Tensor<float>(tokens_, op_.key_dim), Tensor<float>(tokens_, op_.key_dim)};
  const auto c = static_cast<float>(op_.scale);
  std::vector<double> bias(static_cast<std::size_t>(op_.buckets), 0.0);
  double sink = 0;
  for (Index b = 0; b < batch_.sequences; ++b) {
    gemm(Trans::no, Trans::yes, 1.0F, of(dy, b), of(h.values(), b), 0.0F, rows(d, b));
    for (Index t = b * batch_.length; t < (b + 1) * batch_.length; ++t) {
      Attention::through_softmax(h.a.view().row(t), d.view().row(t), slope_row(h, t), batch_.length);
      for (Index j = 0; op_.buckets > 0 && j < batch_.length; ++j) {
        bias[static_cast<std::size_t>(op_.bucket(j - batch_.position(t)))] += static_cast<double>(d(t, j));
      }
      for (Index j = 0; op_.sinks && j < batch_.length; ++j) sink -= static_cast<double>(d(t, j));
    }
    gemm(Trans::no, Trans::no, c, of(d, b), of(h.k, b), 0.0F, rows(out.q, b));
    gemm(Trans::yes, Trans::no, c, of(d, b), of(h.q, b), 0.0F, rows(out.k, b));
  }
  for (const double g : bias) out.table += g * g;
  out.sink = sink * sink;
  return out;
}

HeadMaker::Sides HeadMaker::turned_back(Sides d) const {
  if (of_q_.rotary != nullptr) d.q = turned(d.q, *of_q_.rotary, batch_, -1);
  if (of_k_.rotary != nullptr) d.k = turned(d.k, *of_k_.rotary, batch_, -1);
  return d;
}

}  // namespace stepzero
