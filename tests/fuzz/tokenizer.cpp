// libFuzzer's entry for the reader of tokenizer.
#include <cstdio>
#include <cstdlib>

#include "tests/fuzz/compare.hpp"

extern "C" int LLVMFuzzerTestOneInput(const unsigned char* data, std::size_t size) {
  const std::string wrong = stepzero::fuzz::tokenizer({reinterpret_cast<const char*>(data), size});
  if (wrong.empty()) return 0;
  std::fprintf(stderr, "%s\n", wrong.c_str());
  std::abort();
}
