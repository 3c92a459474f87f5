// Which vectors this processor has, as Highway asks. The portable build has this instead of Highway's own library.
#include <hwy/targets.h>

namespace hwy {

int64_t SupportedTargets() {
  int64_t found = HWY_STATIC_TARGET;  // what every processor has that this is compiled for
#if HWY_ARCH_X86
  const bool fused = __builtin_cpu_supports("avx2") != 0 && __builtin_cpu_supports("fma") != 0 && __builtin_cpu_supports("bmi2") != 0;
  const bool wide = fused && __builtin_cpu_supports("avx512f") != 0 && __builtin_cpu_supports("avx512vl") != 0 &&
                    __builtin_cpu_supports("avx512dq") != 0 && __builtin_cpu_supports("avx512bw") != 0;
  if (__builtin_cpu_supports("ssse3") != 0) found |= HWY_SSSE3;
  if (__builtin_cpu_supports("sse4.1") != 0 && __builtin_cpu_supports("pclmul") != 0) found |= HWY_SSE4;
  if (fused) found |= HWY_AVX2;
  if (wide) found |= HWY_AVX3;
#endif
  return found;
}

ChosenTarget& GetChosenTarget() {
  static ChosenTarget chosen;
  return chosen;
}

}  // namespace hwy
