# The public headers: stepzero.hpp, and what it includes. A test of the docs compares the list with the includes.
set(STEPZERO_PUBLIC_HEADERS
  stepzero/stepzero.hpp
  stepzero/core/batch.hpp
  stepzero/core/error.hpp
  stepzero/core/memory.hpp
  stepzero/core/random.hpp
  stepzero/core/view.hpp
  stepzero/graph/param.hpp
  stepzero/io/tokens.hpp
  stepzero/models/architecture.hpp
  stepzero/models/make_input.hpp
  stepzero/report/json.hpp
  stepzero/signal/comparison.hpp
  stepzero/signal/finding.hpp
  stepzero/signal/order.hpp
  stepzero/signal/signal.hpp)
