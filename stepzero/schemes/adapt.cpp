// What a scheme changes in the architecture, said in the words of --set.
#include <array>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "stepzero/schemes/scheme.hpp"

namespace stepzero {

namespace {

struct Changeable {
  std::string_view field;
  std::string (*value)(const Architecture& a);
};

template <auto member>
std::string text(const Architecture& a) {
  if constexpr (requires { to_string(a.*member); })
    return std::string(to_string(a.*member));
  else
    return fmt::format("{}", a.*member);
}

using A = Architecture;

constexpr std::array changeable = std::to_array<Changeable>({
    {"norm", text<&A::norm>},
    {"norm_placement", text<&A::norm_placement>},
    {"attention_scale", text<&A::attention_scale>},
    {"skip_scale", text<&A::skip_scale>},
    {"residual_scale", text<&A::residual_scale>},
    {"embedding_scale", text<&A::embedding_scale>},
    {"logit_scale", text<&A::logit_scale>},
});

}  // namespace

Expected<void> adapt(Architecture& a, const Scheme& scheme) {
  if (scheme.adapt == nullptr) return {};
  const Architecture before = a;
  scheme.adapt(a);
  for (const Changeable& c : changeable) {
    if (c.value(a) != c.value(before)) a.changes.push_back(fmt::format("{}={}", c.field, c.value(a)));
  }
  if (auto done = resolve(a); !done) {
    return fail(fmt::format("scheme {}: {}", scheme.name, done.error().message),
                fmt::format("the scheme sets {}", fmt::join(a.changes, ", ")));
  }
  return {};
}

}  // namespace stepzero
