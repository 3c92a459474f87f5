// What a scheme changes in the architecture, said in the words of --set.
#include <array>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "stepzero/core/text.hpp"
#include "stepzero/models/own_file.hpp"
#include "stepzero/schemes/scheme_file.hpp"

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
  else if constexpr (requires { (a.*member).begin(); })
    return fmt::format("{}", fmt::join(a.*member, ","));
  else
    return fmt::format("{}", a.*member);
}

using A = Architecture;

constexpr std::array changeable = std::to_array<Changeable>({
    {"norm", text<&A::norm>},
    {"norm_placement", text<&A::norm_placement>},
    {"attention_scale", text<&A::attention_scale>},
    {"position", text<&A::position>},
    {"skip_scale", text<&A::skip_scale>},
    {"skip_scales", text<&A::skip_scales>},
    {"residual_scale", text<&A::residual_scale>},
    {"residual_scales", text<&A::residual_scales>},
    {"branch_gain", text<&A::branch_gain>},
    {"sub_norm", text<&A::sub_norm>},
    {"norm_scale_by_layer", text<&A::norm_scale_by_layer>},
    {"unit_linear", text<&A::unit_linear>},
    {"qk_norm", text<&A::qk_norm>},
    {"embedding_scale", text<&A::embedding_scale>},
    {"logit_scale", text<&A::logit_scale>},
});

std::vector<std::string> changes_of(const Architecture& before, const Architecture& a) {
  std::vector<std::string> out;
  for (const Changeable& c : changeable) {
    if (c.value(a) != c.value(before)) out.push_back(fmt::format("{}={}", c.field, c.value(a)));
  }
  return out;
}

// Derives what follows from the changes. Of a model that is a file of its own they are made in its graph.
Expected<void> settle(Architecture& a, const Architecture& before) {
  if (!a.own) return resolve(a);
  Architecture changed = before;
  for (const std::string& change : changes_of(before, a)) change_own(changed, change);
  if (auto done = resolve(changed); !done) return done;
  changed.mixing = a.mixing;
  a = std::move(changed);
  return {};
}

}  // namespace

Expected<void> adapt(Architecture& a, const Scheme& scheme, Profiler profiler) {
  if (scheme.adapt == nullptr && (scheme.file == nullptr || scheme.file->set.empty())) return {};
  if (!a.stages.empty()) {
    return fail(fmt::format("scheme {} changes the forward pass of a transformer, and this is a convolutional network", scheme.name),
                "schemes that look at fans alone fit: torch-default, he, he-fan-out, xavier-normal, lecun, orthogonal");
  }
  const Architecture before = a;
  if (scheme.file != nullptr) {
    if (auto done = set_fields(a, *scheme.file); !done) return done;
  } else {
    scheme.adapt(a);
  }
  auto done = settle(a, before);
  if (done && scheme.learn != nullptr) {
    STEPZERO_CHECK(profiler != nullptr);
    const auto profile = profiler(a, scheme);
    if (!profile)
      return fail(fmt::format("scheme {} has to know what the model does; {}", scheme.name, profile.error().message), profile.error().hint);
    scheme.learn(a, *profile);
    done = settle(a, before);
  }
  a.changes = changes_of(before, a);
  if (!done) {
    return fail(fmt::format("scheme {}: {}", scheme.name, done.error().message),
                fmt::format("the scheme sets {}", fmt::join(a.changes, ", ")));
  }
  return {};
}

}  // namespace stepzero
