#include "stepzero/audit/audit.hpp"

#include <algorithm>
#include <atomic>

#include "stepzero/api/audit_files.hpp"
#include "stepzero/api/checkpoints.hpp"
#include "stepzero/api/guarded.hpp"
#include "stepzero/report/audit.hpp"
#include "stepzero/stepzero.hpp"

namespace stepzero {

namespace {

// An audit points into the files it has read.
struct Kept {
  CheckpointFiles files;
  Audit audit = {};
};

}  // namespace

const std::vector<Finding>& AuditResult::findings() const { return audit_->findings; }
const std::vector<std::string>& AuditResult::warnings() const { return audit_->warnings; }
const std::string& AuditResult::scheme() const { return audit_->scheme; }
std::string AuditResult::json() const { return audit_json(*audit_); }
std::string AuditResult::html() const { return audit_html(*audit_); }

Expected<AuditResult> audit_files(CheckpointFiles files, const AuditRequest& request, const Watch& watch, bool consequences) {
  return guarded(watch, [&]() -> Expected<AuditResult> {
    AuditOptions options;
    options.consequences = consequences;
    options.moments_only = request.moments;
    if (!request.scheme.empty()) {
      const auto scheme = find_scheme(request.scheme);
      if (!scheme) return std::unexpected(scheme.error());
      options.scheme = *scheme;
    }
    const OpenOptions how{.follow_symlinks = request.follow_symlinks, .lenient = request.lenient};
    const auto kept = std::make_shared<Kept>(std::move(files));
    auto model = model_of_weights(request);
    if (!model) return std::unexpected(model.error());
    options.model = std::move(*model);
    std::optional<CheckpointFiles> baseline;
    if (!request.baseline.empty()) {
      auto other = CheckpointFiles::open(request.baseline, how);
      if (!other) return std::unexpected(other.error());
      options.baseline = &baseline.emplace(std::move(*other));
    }
    Teller tell(watch, "reading");
    const double total = static_cast<double>(std::max<std::uint64_t>(kept->files.bytes(), 1));
    std::atomic<std::uint64_t> done = 0;
    options.progress = [&](std::uint64_t bytes) { tell(static_cast<double>(done += bytes) / total); };
    auto found = audit(kept->files, options);
    if (!found) return std::unexpected(found.error());
    kept->audit = std::move(*found);
    for (const std::string& warning : kept->audit.warnings) {
      if (watch.warn) watch.warn(warning);
    }
    return AuditResult({kept, &kept->audit});
  });
}

Expected<AuditResult> audit(const AuditRequest& request, const Watch& watch) {
  return guarded(watch, [&]() -> Expected<AuditResult> {
    auto files = CheckpointFiles::open(request.path, {.follow_symlinks = request.follow_symlinks, .lenient = request.lenient});
    if (!files) return std::unexpected(files.error());
    return audit_files(std::move(*files), request, watch);
  });
}

}  // namespace stepzero
