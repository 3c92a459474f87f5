#include <cmath>

#include <fmt/format.h>

#include "stepzero/report/checks.hpp"

namespace stepzero {

namespace {

constexpr std::size_t shallowest = 4;  // growth over fewer layers says nothing

double stream_square(const Stack& stack, std::size_t l) { return best(stack.layers[l].stream->forward.second_moment); }
double stream_gradient(const Stack& stack, std::size_t l) { return best(stack.layers[l].stream->backward.norm); }

// Stages of a convolutional network without a stream that passes them.
bool no_stream(const Architecture& a) { return !a.stages.empty() && a.stage_blocks == 0; }

constexpr const char* second_half = "growth of E[x^2] over the second half";
constexpr const char* gradients = "gradient at the first layers over that at the last";

}  // namespace

// Branches that are independent of each other add their squares, so the second half of the layers at most doubles the
// stream: 4 times (a growth with the square of the depth) means that it multiplies.
void check_signal_growth(const Signal& s, const Stack& stack, Findings& out) {
  const std::size_t last = stack.depth(), middle = last / 2;
  if (last < shallowest) return;
  const double from = stream_square(stack, middle), to = stream_square(stack, last), ratio = to / from;
  const double rate = std::log(ratio) / static_cast<double>(last - middle);
  if (out.want(ratio > 4)) {
    out.push_back({"signal-explodes",
                   ratio > 1e3 ? Severity::error : Severity::warning,
                   stack.stream(last),
                   fmt::format("E[x^2] grows from {:.3g} at {} to {:.3g}, {:.3g} times or e^{:.2g} a layer; over the second half of the "
                               "layers independent branches double it at most, 4 times is the limit",
                               from, stack.stream(middle), to, ratio, rate),
                   "",
                   {second_half, ratio, std::log(ratio / 4)}});
  }
  if (out.want(ratio < 0.25)) {
    out.push_back({"signal-vanishes",
                   ratio < 1e-3 ? Severity::error : Severity::warning,
                   stack.stream(last),
                   fmt::format("E[x^2] falls from {:.3g} at {} to {:.3g}, e^{:.2g} a layer; {} what it has, "
                               "a quarter over the second half of the layers is the limit",
                               from, stack.stream(middle), to, rate,
                               no_stream(s.architecture) ? "a layer of gain 1 keeps" : "a residual stream keeps"),
                   "",
                   {second_half, ratio, std::log(0.25 / ratio)}});
  }
}

// What a power of the depth explains is no explosion: normed branches of equal size give at most a growth with the depth
// itself, so it is 4 times over the second half, or 4 times the number of layers in all. The first block is left out, since
// small embeddings enlarge the gradient there (embedding-drowned).
void check_gradient_growth(const Stack& stack, Findings& out) {
  const std::size_t last = stack.depth();
  if (last < shallowest) return;
  const double top = stream_gradient(stack, last), bottom = stream_gradient(stack, 1), ratio = bottom / top;
  const double half = stream_gradient(stack, last / 2) / top, limit = 4 * static_cast<double>(last);
  const double rate = std::log(ratio) / static_cast<double>(last - 1);
  if (out.want(ratio > limit || half > 4)) {
    out.push_back(
        {"gradient-explodes",
         ratio > 1e4 ? Severity::error : Severity::warning,
         stack.stream(1),
         fmt::format("the gradient's norm is {:.3g} at {} and {:.3g} at {}: {:.3g} times, e^{:.2g} a layer, and {:.3g} times over "
                     "the second half; normed branches give less than the number of layers, and less than 4 over a half",
                     bottom, stack.stream(1), top, stack.stream(last), ratio, rate, half),
         "",
         {gradients, ratio, std::log(std::max(ratio / limit, half / 4))}});
  }
  if (out.want(ratio < 0.1)) {
    out.push_back({"gradient-vanishes",
                   ratio < 1e-4 ? Severity::error : Severity::warning,
                   stack.stream(1),
                   fmt::format("the gradient's norm falls from {:.3g} at {} to {:.3g} at {}, e^{:.2g} a layer; below a tenth the first "
                               "layers learn far slower than the last",
                               top, stack.stream(last), bottom, stack.stream(1), rate),
                   "",
                   {gradients, ratio, std::log(0.1 / ratio)}});
  }
}

// At cosine c only 1 - c of a token's square differs from the other tokens'.
void check_rank(const Stack& stack, Findings& out) {
  const std::size_t last = stack.depth();
  const double first = best(stack.layers[0].stream->forward.token_cosine), cosine = best(stack.layers[last].stream->forward.token_cosine);
  if (!out.want(cosine > 0.95 && cosine - first > 0.05)) return;
  std::size_t at = 0;
  while (at < last && !(best(stack.layers[at].stream->forward.token_cosine) > 0.95)) ++at;
  out.push_back({"rank-collapse",
                 cosine > 0.99 ? Severity::error : Severity::warning,
                 stack.stream(last),
                 fmt::format("the mean cosine between tokens rises from {:.2g} to {:.4g} and passes 0.95 at {}; beyond it less than 5 % of "
                             "a token's size tells it from the others",
                             first, cosine, stack.stream(at)),
                 "",
                 {"mean cosine between tokens at the end", cosine, std::log(0.05 / std::max(1 - cosine, 1e-12))}});
}

void check_branches(const Signal& s, const Stack& stack, Findings& out) {
  const std::size_t last = stack.depth();
  if (last == 0 || no_stream(s.architecture)) return;
  double most = 0, most_inside = 0;
  std::size_t where = 0, where_inside = 0;
  for (std::size_t l = 0; l < last; ++l) {
    const double share = added_share(s, stack, l);
    if (share > most) most = share, where = l;
    if (l > 0 && share > most_inside) most_inside = share, where_inside = l;
  }
  if (out.want(most < 1e-5)) {
    const bool gains = s.architecture.branch_gain != BranchGain::none;  // that begin small and are learned
    out.push_back({"branches-negligible",
                   most == 0 || gains ? Severity::note : Severity::warning,
                   stack.block(where),
                   most == 0 ? std::string("every block adds exactly 0: the scheme starts from the identity")
                             : fmt::format("the block that adds most adds {:.2g} of the stream's square; below 1e-5, 0.3 % of its size, "
                                           "the model starts as if it had no layers",
                                           most),
                   most == 0 ? "as meant by the scheme; only the last matrices or gains learn in the first steps"
                   : gains   ? "as meant by gains that begin small; they learn in the first steps"
                             : "",
                   {"most that a block adds, of the stream's square", most, std::log(1e-5 / std::max(most, 1e-300))}});
  }
  if (const double first = added_share(s, stack, 0); out.want(first > 100)) {
    const double kick = stream_gradient(stack, 0) / stream_gradient(stack, 1);
    out.push_back({"embedding-drowned",
                   Severity::note,
                   stack.stream(0),
                   fmt::format("the first block adds {:.3g} times the embeddings' square ({:.2g}), and their gradient is {:.2g} times that "
                               "of the next layer; beyond 100 times a token's identity is less than a tenth of its size",
                               first, stream_square(stack, 0), kick),
                   "",
                   {"what the first block adds, of the embeddings' square", first, std::log(first / 100)}});
  }
  if (out.want(most_inside > 10)) {
    out.push_back({"branch-dominant",
                   Severity::warning,
                   stack.block(where_inside),
                   fmt::format("the block adds {:.3g} times the square of the stream it reads; beyond 10 times what came before is noise",
                               most_inside),
                   "",
                   {"most that a later block adds, of the stream's square", most_inside, std::log(std::max(most_inside, 1e-300) / 10)}});
  }
}

}  // namespace stepzero
