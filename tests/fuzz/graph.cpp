// libFuzzer's entry for the reader of graph.
#include <cstdio>
#include <cstdlib>

#include "tests/fuzz/architecture.hpp"

extern "C" int LLVMFuzzerTestOneInput(const unsigned char* data, std::size_t size) {
  const std::string wrong = stepzero::fuzz::graph({reinterpret_cast<const char*>(data), size});
  if (wrong.empty()) return 0;
  std::fprintf(stderr, "%s\n", wrong.c_str());
  std::abort();
}
