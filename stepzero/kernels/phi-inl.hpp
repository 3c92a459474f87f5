// The elementwise functions, each once, for every kind of scalar: float, double, Dual and SIMD packs.
// No include guard on purpose: included once in namespace stepzero (phi.hpp) and once for each SIMD level
// (vector_math.cpp), because a template compiled for AVX-512 must be *written* inside the AVX-512 region.
//
// Each Phi gives value(x) = f(x) and slope(x) = f'(x). At a kink the slope is that of the left side, as in PyTorch.
// Needs for X: arithmetic, X(double), exp, tanh, normal_cdf, positive_part(x) = max(x, 0), step(x) = [x > 0],
// at_most(x, c) = min(x, c).

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

struct Relu6 {
  static constexpr const char* name = "relu6";
  static constexpr double top = 6;
  template <class X> static X value(X x) { return at_most(positive_part(x), top); }
  template <class X> static X slope(X x) { return step(x) * step(X(top) - x); }
};

struct LeakyRelu {
  static constexpr const char* name = "leaky_relu";
  static constexpr double leak = 0.01;
  template <class X> static X value(X x) { return positive_part(x) - X(leak) * positive_part(-x); }
  template <class X> static X slope(X x) { return X(leak) + X(1 - leak) * step(x); }
};

struct Sigmoid {
  static constexpr const char* name = "sigmoid";
  template <class X> static X value(X x) { return X(1.0) / (X(1.0) + exp(-x)); }
  template <class X> static X slope(X x) {
    const auto [s, rest] = both(x);
    return s * rest;
  }

  // s = sigmoid(x) and sigmoid(-x) from one exp and one division: as e s where that is small, since 1 - s would cancel, else as
  // 1 - s, since e may be infinite
  template <class X> struct Both {
    X s, rest;
  };
  template <class X> static Both<X> both(X x) {
    const X e = exp(-x), s = X(1.0) / (X(1.0) + e), right = step(x);
    return {s, right * (at_most(e, 1) * s) + (X(1.0) - right) * (X(1.0) - s)};
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
    const auto [s, rest] = Sigmoid::both(X(b) * x);
    return s + X(b) * x * (s * rest);
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
    const auto [s, rest] = Sigmoid::both(X(a) * x * (X(1.0) + X(c) * x * x));
    return s + x * (s * rest) * X(a) * (X(1.0) + X(3 * c) * x * x);
  }
};

// gelu, never above 10: the clip of quantised models
struct Gelu10 {
  static constexpr const char* name = "gelu_10";
  static constexpr double top = 10;
  template <class X> static X value(X x) { return at_most(GeluErf::value(x), top); }
  template <class X> static X slope(X x) { return step(X(top) - GeluErf::value(x)) * GeluErf::slope(x); }
};

// x tanh(ln(1 + exp(x))) = x n/d, with w = exp(-|x|): n = 1 + 2w, d = n + 2w^2 for x > 0; n = w (w + 2), d = n + 2 else
struct Mish {
  static constexpr const char* name = "mish";
  template <class X> static X value(X x) {
    const auto [n, gap] = parts(x);
    return x * (n / (n + gap));
  }
  template <class X> static X slope(X x) {
    const auto [n, gap] = parts(x);
    const X d = n + gap;
    const X square = gap * (n + d) / (d * d);  // 1 - tanh^2 without cancelling
    return n / d + x * square * Sigmoid::value(x);
  }

 private:
  template <class X> struct Parts {
    X n, gap;
  };
  template <class X> static Parts<X> parts(X x) {
    const X right = step(x);
    const X left = X(1.0) - right;
    const X w = exp(-(positive_part(x) + positive_part(-x)));
    return {right * (X(1.0) + X(2.0) * w) + left * (w * (w + X(2.0))), X(2.0) * (right * w * w + left)};
  }
};

// P(mu + sigma Z <= x): the attention function of MEGA, standing in for a squared ReLU
struct Laplace {
  static constexpr const char* name = "laplace";
  static constexpr double mu = 0.707107;
  static constexpr double sigma = 0.282095;
  template <class X> static X value(X x) { return normal_cdf((x - X(mu)) * X(1 / sigma)); }
  template <class X> static X slope(X x) {
    constexpr double one_over_sqrt_2pi = 0.3989422804014327;
    const X z = (x - X(mu)) * X(1 / sigma);
    return X(one_over_sqrt_2pi / sigma) * exp(X(-0.5) * z * z);
  }
};
