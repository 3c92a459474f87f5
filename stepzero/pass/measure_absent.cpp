// measure.cpp where there are no weights and no room for them (the browser).
#include "stepzero/pass/measure.hpp"

namespace stepzero {

Expected<Signal> measure(const Graph&, const Architecture&, const Batch&, const MeasureOptions&) {
  return fail("a page measures nothing", "stepzero on the command line does");
}

}  // namespace stepzero
