#pragma once
// Student's t: how wide an interval must be to hold the truth, when its standard error comes from few draws.

namespace stepzero {

// P(|t| > x) with `freedom` degrees of freedom.
double student_tail(double x, double freedom);

// The x with P(|t| > x) = share: an interval of mean +- x * standard error misses the truth that often.
double student_quantile(double share, double freedom);

}  // namespace stepzero
