#include "stepzero/kernels/product/libraries.hpp"

#include <dlfcn.h>
#include <fmt/format.h>
#include <omp.h>
#include <sys/mman.h>

#include "stepzero/core/exceptions.hpp"

namespace stepzero::kernels {

namespace {

// Raises NoRoom where a library could not reserve so many megabytes: ulimit -v may leave less.
void want_room(const char* name, std::size_t megabytes) {
  const std::size_t bytes = megabytes << 20;
  void* room = ::mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (room == MAP_FAILED) raise(NoRoom(fmt::format("{} needs {} MB of address space to start, and there is less", name, megabytes)));
  ::munmap(room, bytes);
}

class Library {
 public:
  Library(const char* file, std::size_t megabytes) {
    want_room(file, megabytes);
    handle_ = ::dlopen(file, RTLD_NOW | RTLD_LOCAL);
    if (handle_ == nullptr) raise(NoRoom(fmt::format("{} cannot be opened: {}", file, ::dlerror())));
  }
  template <class F>
  F find(const char* name) const {
    return reinterpret_cast<F>(::dlsym(handle_, name));
  }

 private:
  void* handle_;
};

}  // namespace

const Dnnl& dnnl() {
  static const Dnnl functions = [] {
    const Library library(STEPZERO_DNNL, 64);
    return Dnnl{library.find<decltype(Dnnl::sgemm)>("dnnl_sgemm"),
                library.find<decltype(Dnnl::effective_isa)>("dnnl_get_effective_cpu_isa")};
  }();
  return functions;
}

const OpenBlas& openblas() {
  static const OpenBlas functions = [] {
    // 64 MB a thread at its start and 128 at the thread's first product: where that cannot be had it tries again for ever
    const Library library(STEPZERO_OPENBLAS, 256 + 192 * static_cast<std::size_t>(omp_get_num_procs()));
    return OpenBlas{library.find<decltype(OpenBlas::dgemm)>("cblas_dgemm"), library.find<decltype(OpenBlas::dsyrk)>("cblas_dsyrk"),
                    library.find<decltype(OpenBlas::dsyevd)>("dsyevd_")};
  }();
  return functions;
}

}  // namespace stepzero::kernels
