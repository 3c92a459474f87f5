#pragma once
#include "stepzero/core/view.hpp"

namespace stepzero {

// The largest singular value, to about seven digits: products with A and A' span a space that soon holds its direction (Golub, Kahan
// and Lanczos, every vector made orthogonal to all before it). NaN where A holds a number that is not finite. The bits do not depend
// on the number of threads.
template <class S>
double spectral_norm(View<const S> a);

}  // namespace stepzero
