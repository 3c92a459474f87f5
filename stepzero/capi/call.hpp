#pragma once
// How every function of c.h runs: it reads its request, works under the caller's watch, and gives texts or an error.
#include <atomic>
#include <map>
#include <memory>
#include <string>

#include <nlohmann/json.hpp>

#include "stepzero/api/guarded.hpp"
#include "stepzero/capi/c.h"
#include "stepzero/capi/requests.hpp"
#include "stepzero/core/lock.hpp"

struct sz_result {
  int32_t status = SZ_FINE;
  std::map<std::string, std::string, std::less<>> texts;
};

namespace stepzero {

using Texts = std::map<std::string, std::string, std::less<>>;
using Json = nlohmann::ordered_json;

inline sz_result* result_of(Expected<Texts> texts, std::string warnings = {}) {
  auto out = std::make_unique<sz_result>();
  if (texts) {
    out->texts = std::move(*texts);
  } else {
    const Error& e = texts.error();
    out->status = e.stopped ? SZ_STOPPED : e.busy ? SZ_BUSY : SZ_FAILED;
    out->texts = {{"error", e.message}, {"hint", e.hint}};
  }
  if (!warnings.empty()) out->texts.emplace("warnings", std::move(warnings));
  return out.release();
}

// Reads the request and runs `run` on it under the caller's watch; nothing thrown passes.
template <class Run>
sz_result* call(Call kind, const char* request, sz_watch* words, const Run& run) {
  std::string warnings;
  Lock lock;
  Watch watch;
  watch.warn = [&](const std::string& text) {
    const Hold hold(lock);
    warnings += text + "\n";
  };
  if (words != nullptr) {
    watch.threads = words->threads;
    watch.progress = [words](double share, const std::string&) {
      std::atomic_ref(words->progress).store(share, std::memory_order_relaxed);
    };
    watch.stop = [words] { return std::atomic_ref(words->stop).load(std::memory_order_relaxed) != 0; };
  }
  auto texts = guarded({}, [&]() -> Expected<Texts> {
    auto r = read_request(kind, request == nullptr ? "" : request);
    if (!r) return std::unexpected(r.error());
    return run(*r, watch);
  });
  return result_of(std::move(texts), std::move(warnings));
}

}  // namespace stepzero
