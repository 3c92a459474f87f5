#include "stepzero/report/op_heads.hpp"

#include <algorithm>

#include "stepzero/ops/all.hpp"

namespace stepzero {

namespace {

const OpHead* head_of(const std::string& kind, bool elementwise) {
  for (const OpHead& head : op_heads()) {
    if (elementwise ? head.page == "elementwise" : std::ranges::count(head.kinds, kind) > 0) return &head;
  }
  return nullptr;
}

}  // namespace

const std::vector<ExplainedOp>& explained_ops() {
  static const auto list = []<class... Ops>(const std::variant<Ops...>*) {
    return std::vector<ExplainedOp>{{Ops::kind, Ops::grade, head_of(Ops::kind, requires { typename Ops::phi; })}...};
  }(static_cast<const AnyOp*>(nullptr));
  return list;
}

const char* meaning(Grade grade) {
  switch (grade) {
    case Grade::exact:
      return "no bias at any width, under what the op assumes";
    case Grade::large_width:
      return "a bias that falls like 1/width or faster";
    case Grade::approximate:
      return "a bias that width does not remove; the page says how large";
    case Grade::sampled:
      return "an average over synthetic draws, with their noise";
  }
  return "?";
}

}  // namespace stepzero
