// Schemes that look at the fans of a matrix and at nothing else.
#include <array>

#include "stepzero/schemes/rules.hpp"

namespace stepzero {

namespace {

// They speak of products only: a table of embeddings has no fan and keeps the model's own std.
Distribution by_fan(const Architecture& a, const Param& p, Distribution matrix) {
  return with_plain_vectors(p, is_embedding(p) ? Distribution::normal(a.init_std) : matrix);
}

Distribution xavier_normal(const Architecture& a, const Param& p) { return by_fan(a, p, Distribution::normal(xavier_std(p))); }
Distribution xavier_uniform(const Architecture& a, const Param& p) { return by_fan(a, p, Distribution::uniform(std::sqrt(6 / fans(p)))); }
Distribution he(const Architecture& a, const Param& p) { return by_fan(a, p, Distribution::normal(std::sqrt(2 / number_of(p.fan_in)))); }
Distribution he_fan_out(const Architecture& a, const Param& p) {
  return by_fan(a, p, Distribution::normal(std::sqrt(2 / number_of(p.fan_out))));
}
Distribution lecun(const Architecture& a, const Param& p) { return by_fan(a, p, Distribution::normal(std::sqrt(1 / number_of(p.fan_in)))); }

// A matrix and its bias both from U(+-1/sqrt(fan_in)): kaiming_uniform_ with a = sqrt(5).
Distribution torch_linear(const Param& p) { return Distribution::uniform(1 / std::sqrt(number_of(p.fan_in))); }

bool is_projection(const Param& p) {
  return p.role == Role::query || p.role == Role::key || p.role == Role::value || p.role == Role::query_key_value;
}

// nn.MultiheadAttention holds q, k and v in one tensor (3 d, d), and Xavier's rule is applied to that tensor.
Distribution torch_mha(const Architecture& a, const Param& p) {
  const double packed = number_of(a.width + (a.heads + 2 * a.kv_heads) * a.head_dim);
  if (is_projection(p)) return Distribution::uniform(std::sqrt(6 / packed));
  return torch_default(a, p);
}

// Each matrix has orthonormal rows or columns, whichever are fewer, times sqrt(2).
Distribution orthogonal(const Architecture& a, const Param& p) {
  return by_fan(a, p, Distribution::orthogonal(std::sqrt(2.0), p.rows(), p.cols()));
}

constexpr std::array fan_table = std::to_array<Scheme>({
    {"xavier-normal", "N(0, 2/(fan_in + fan_out)); query, key and value one by one", "Glorot and Bengio 2010", xavier_normal, nullptr,
     true},
    {"xavier-uniform", "U(+-sqrt(6/(fan_in + fan_out))); query, key and value one by one", "Glorot and Bengio 2010", xavier_uniform,
     nullptr, true},
    {"he", "N(0, 2/fan_in)", "He et al. 2015", he},
    {"he-fan-out", "N(0, 2/fan_out), which keeps gradients where he keeps activations; fan_out counts a convolution's taps",
     "He et al. 2015; torchvision's ResNet, kaiming_normal_(mode='fan_out')", he_fan_out},
    {"lecun", "N(0, 1/fan_in)", "LeCun et al. 1998", lecun},
    {"torch-default", "U(+-1/sqrt(fan_in)) for matrices and their biases, embeddings N(0, 1)",
     "PyTorch: reset_parameters of nn.Linear and nn.Conv2d (kaiming_uniform_ with a = sqrt 5) and nn.Embedding", torch_default},
    {"torch-mha", "as torch-default, but query, key and value U(+-sqrt(6/(d + 3 d))): half of Xavier's variance",
     "PyTorch: nn.MultiheadAttention applies xavier_uniform_ to the packed in_proj_weight (issue 166378)", torch_mha},
    {"orthogonal", "sqrt(2) times a random matrix with orthonormal rows or columns; query, key and value one by one",
     "Saxe et al. 2014; Q R of a Gaussian matrix, signs as in torch.nn.init.orthogonal_", orthogonal, nullptr, true},
});

}  // namespace

Distribution torch_default(const Architecture&, const Param& p) {
  const bool of_a_norm = p.fan_in == 1;
  if (p.role == Role::bias) return of_a_norm ? Distribution::constant(0) : torch_linear(p);
  return with_plain_vectors(p, is_embedding(p) ? Distribution::normal(1) : torch_linear(p));
}

std::span<const Scheme> fan_schemes() { return fan_table; }

}  // namespace stepzero
