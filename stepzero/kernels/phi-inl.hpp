// The elementwise functions, each once, for every kind of scalar: float, double, Dual and SIMD packs.
// No include guard on purpose: included once in namespace stepzero (phi.hpp) and once for each SIMD level
// (vector_math.cpp), because a template compiled for AVX-512 must be *written* inside the AVX-512 region.
//
// Each Phi gives value(x) = f(x) and slope(x) = f'(x). At a kink the slope is that of the left side, as in PyTorch.
// Needs for X: arithmetic, X(double), exp, tanh, normal_cdf, positive_part(x) = max(x, 0), step(x) = [x > 0].

struct Identity {
  static constexpr const char* name = "identity";
  template <class X> static X value(X x) { return x; }
  template <class X> static X slope(X) { return X(1.0); }
};

struct Relu {
  static constexpr const char* name = "relu";
  template <class X> static X value(X x) { return positive_part(x); }
  template <class X> static X slope(X x) { return step(x); }
};

struct ReluSquared {
  static constexpr const char* name = "relu2";
  template <class X> static X value(X x) { return positive_part(x) * positive_part(x); }
  template <class X> static X slope(X x) { return X(2.0) * positive_part(x); }
};

struct Sigmoid {
  static constexpr const char* name = "sigmoid";
  template <class X> static X value(X x) { return X(1.0) / (X(1.0) + exp(-x)); }
  template <class X> static X slope(X x) {
    const X s = value(x);
    return s * value(-x);  // not s (1 - s), which cancels for large x
  }
};

struct Tanh {
  static constexpr const char* name = "tanh";
  template <class X> static X value(X x) { return tanh(x); }
  template <class X> static X slope(X x) { return X(4.0) * Sigmoid::slope(X(2.0) * x); }  // 1 - tanh^2 without cancelling
};

// x sigmoid(b x): SiLU (swish) at b = 1, quick-GELU at b = 1.702
template <int milli>
struct SigmoidGated {
  static constexpr double b = milli / 1000.0;
  template <class X> static X value(X x) { return x * Sigmoid::value(X(b) * x); }
  template <class X> static X slope(X x) {
    const X s = Sigmoid::value(X(b) * x);
    return s + X(b) * x * Sigmoid::slope(X(b) * x);
  }
};

struct Silu : SigmoidGated<1000> {
  static constexpr const char* name = "silu";
};

struct QuickGelu : SigmoidGated<1702> {
  static constexpr const char* name = "quick_gelu";
};

// x P(Z <= x)
struct GeluErf {
  static constexpr const char* name = "gelu";
  template <class X> static X value(X x) { return x * normal_cdf(x); }
  template <class X> static X slope(X x) {
    constexpr double one_over_sqrt_2pi = 0.3989422804014327;
    return normal_cdf(x) + X(one_over_sqrt_2pi) * x * exp(X(-0.5) * x * x);
  }
};

// x/2 (1 + tanh u) = x sigmoid(2 u),  u = sqrt(2/pi) (x + 0.044715 x^3): the sigmoid form does not cancel for x < 0
struct GeluTanh {
  static constexpr const char* name = "gelu_tanh";
  static constexpr double a = 1.5957691216057308;  // 2 sqrt(2/pi)
  static constexpr double c = 0.044715;
  template <class X> static X value(X x) { return x * Sigmoid::value(X(a) * x * (X(1.0) + X(c) * x * x)); }
  template <class X> static X slope(X x) {
    const X u2 = X(a) * x * (X(1.0) + X(c) * x * x);
    return Sigmoid::value(u2) + x * Sigmoid::slope(u2) * X(a) * (X(1.0) + X(3 * c) * x * x);
  }
};
