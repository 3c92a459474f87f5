#include "stepzero/weights/checkpoint.hpp"

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <mutex>
#include <optional>
#include <system_error>

#include <fmt/format.h>
#include <fnmatch.h>
#include <nlohmann/json.hpp>

#include "stepzero/core/parallel.hpp"
#include "stepzero/core/stop.hpp"
#include "stepzero/core/text.hpp"
#include "stepzero/graph/graph.hpp"
#include "stepzero/io/output.hpp"
#include "stepzero/kernels/to_half.hpp"
#include "stepzero/weights/structured_draw.hpp"
#include "stepzero/weights/tensor_draw.hpp"

namespace stepzero {

namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t kPiece = 1 << 16;  // elements: made, narrowed and written while they are in the cache

struct Shard {
  std::string name;
  std::vector<std::size_t> params;
  std::uint64_t bytes = 0;  // of data
};

std::uint64_t bytes_of(const Param& p, DType dtype) {
  return static_cast<std::uint64_t>(p.size()) * static_cast<std::uint64_t>(dtype_bits(dtype)) / 8;
}

// In the model's order, as many tensors to a shard as fit.
std::vector<Shard> plan_shards(const Graph& graph, const CheckpointOptions& options, bool directory) {
  std::vector<Shard> shards(1);
  for (std::size_t i = 0; i < graph.params.size(); ++i) {
    const Param& p = graph.params[i];
    if (!options.only.empty() && ::fnmatch(options.only.c_str(), p.name.c_str(), 0) != 0) continue;
    const std::uint64_t bytes = bytes_of(p, options.dtype);
    if (directory && !shards.back().params.empty() && shards.back().bytes + bytes > options.max_shard_bytes) shards.emplace_back();
    shards.back().params.push_back(i);
    shards.back().bytes += bytes;
  }
  for (std::size_t i = 0; i < shards.size(); ++i) {
    shards[i].name = shards.size() == 1 ? options.stem + ".safetensors"
                                        : fmt::format("{}-{:05}-of-{:05}.safetensors", options.stem, i + 1, shards.size());
  }
  return shards;
}

Expected<SafetensorsLayout> layout_of(const Graph& graph, const CheckpointOptions& options, const Shard& shard, const std::string& path) {
  std::vector<TensorSpec> specs;
  for (const std::size_t i : shard.params) {
    const Param& p = graph.params[i];
    specs.push_back({p.name, options.dtype, {p.shape.begin(), p.shape.end()}});
  }
  return SafetensorsLayout::make(path, specs, options.metadata);
}

// Whether the file is there and whole: files get their name only when they are, so the head and the size tell. One that is there and
// cannot be read is an error: it may be whole.
Expected<bool> is_whole(const std::string& path, const SafetensorsLayout& layout) {
  std::error_code error;
  if (fs::symlink_status(path, error).type() == fs::file_type::not_found) return false;
  const auto file = InputFile::open(path);
  if (!file) return std::unexpected(file.error());
  if (file->size() != layout.file_bytes) return false;
  std::string head(layout.head.size(), '\0');
  if (auto done = file->read(0, std::as_writable_bytes(std::span(head))); !done) return std::unexpected(done.error());
  return head == layout.head;
}

// What this maker has to do and has done, in bytes written and what takes as long.
struct Work {
  double all = 0, done = 0, bytes = 0;
};

// What making a structured tensor takes on top.
double whole_work(const Assignment& assignment, std::size_t param) {
  double work = 0;
  for (const Assignment::Block& b : assignment.blocks(param)) work += structured_work(b, assignment.heads());
  return work;
}

// Makes and writes the pieces of one file.
class Maker {
 public:
  Maker(const Graph& graph, const Assignment& assignment, const CheckpointOptions& options, Work& work)
      : graph_(graph), assignment_(assignment), options_(options), work_(work) {}

  Expected<void> write(const Shard& shard, const SafetensorsLayout& layout, const OutputFile& file) {
    std::vector<Piece> tensors;    // each as one piece
    std::vector<Index> ends = {};  // pieces up to the end of each: a list of all would grow with the model
    for (std::size_t k = 0; k < shard.params.size(); ++k) {
      const std::size_t param = shard.params[k];
      const Piece tensor{param, 0, static_cast<std::uint64_t>(graph_.params[param].size()), layout.offsets[k]};
      if (assignment_.structured(param)) {
        end_if_stopped();
        if (auto done = write_whole(tensor, file); !done) return done;
        work_.done += whole_work(assignment_, param);
        continue;
      }
      tensors.push_back(tensor);
      ends.push_back((ends.empty() ? 0 : ends.back()) + static_cast<Index>((tensor.count + kPiece - 1) / kPiece));
    }
    parallel_for(ends.empty() ? 0 : ends.back(), [&](Index i) {
      if (over_) return;
      const auto k = static_cast<std::size_t>(std::ranges::upper_bound(ends, i) - ends.begin());
      const std::uint64_t first = static_cast<std::uint64_t>(i - (k == 0 ? 0 : ends[k - 1])) * kPiece;
      const Piece& tensor = tensors[k];
      if (auto done = make_piece({tensor.param, first, std::min(kPiece, tensor.count - first), tensor.offset}, file); !done)
        keep(done.error());
    });
    if (error_) return std::unexpected(*error_);
    return {};
  }

 private:
  struct Piece {
    std::size_t param;
    std::uint64_t first, count;
    std::uint64_t offset;  // of the tensor in the file
  };

  // A tensor whose numbers depend on each other is made at once.
  Expected<void> write_whole(const Piece& tensor, const OutputFile& file) {
    const std::vector<float> whole = draw_tensor(graph_, assignment_, tensor.param, options_.seed);
    for (std::uint64_t first = 0; first < tensor.count; first += kPiece) {
      const Piece piece{tensor.param, first, std::min(kPiece, tensor.count - first), tensor.offset};
      if (auto done = write_piece(piece, std::span(whole).subspan(first, piece.count), file); !done) return done;
    }
    return {};
  }

  Expected<void> make_piece(const Piece& piece, const OutputFile& file) {
    thread_local std::vector<float> numbers(kPiece);
    const auto made = std::span(numbers).first(piece.count);
    draw_elements(graph_, assignment_, piece.param, options_.seed, piece.first, made);
    return write_piece(piece, made, file);
  }

  Expected<void> write_piece(const Piece& piece, std::span<const float> made, const OutputFile& file) {
    thread_local std::vector<std::uint16_t> narrow(kPiece);
    std::span<const std::byte> bytes = std::as_bytes(made);
    if (options_.dtype != DType::F32) {
      const bool fits =
          options_.dtype == DType::BF16 ? kernels::narrow_to_bfloat16(made, narrow.data()) : kernels::narrow_to_half(made, narrow.data());
      if (!fits) return does_not_fit(graph_.params[piece.param].name);
      bytes = std::as_bytes(std::span(narrow).first(piece.count));
    }
    const std::uint64_t wide = static_cast<std::uint64_t>(dtype_bits(options_.dtype)) / 8;
    if (auto done = file.write_at(piece.offset + piece.first * wide, bytes); !done) return done;
    report(static_cast<double>(bytes.size()));
    return {};
  }

  [[nodiscard]] std::unexpected<Error> does_not_fit(const std::string& name) const {
    return fail(fmt::format("tensor \"{}\": a number is too large for {}", show(name), dtype_name(options_.dtype)),
                "--dtype f32 holds it; nothing was written");
  }

  void keep(Error& error) {
    const std::lock_guard lock(mutex_);
    if (!error_) error_ = std::move(error);
    over_ = true;
  }

  void report(double bytes) {
    if (!options_.progress) return;
    const std::lock_guard lock(mutex_);
    work_.bytes += bytes, work_.done += bytes;
    options_.progress(work_.done / work_.all, work_.bytes);
  }

  const Graph& graph_;
  const Assignment& assignment_;
  const CheckpointOptions& options_;
  std::mutex mutex_;
  Work& work_;
  std::atomic<bool> over_ = false;
  std::optional<Error> error_;
};

std::string index_text(const Graph& graph, const std::vector<Shard>& shards, const CheckpointOptions& options) {
  std::uint64_t total = 0;
  nlohmann::json map = nlohmann::json::object();
  for (const Shard& shard : shards) {
    total += shard.bytes;
    for (const std::size_t i : shard.params) map[graph.params[i].name] = shard.name;
  }
  nlohmann::json metadata = options.metadata;
  metadata["total_size"] = total;
  return nlohmann::json{{"metadata", metadata}, {"weight_map", map}}.dump(2) + "\n";
}

// The same text in every run, or it belongs to another checkpoint.
Expected<void> write_config(const CheckpointOptions& options) {
  const std::string path = (fs::path(options.path) / options.config_name).string();
  constexpr std::uint64_t limit = 16 << 20;
  std::error_code ignored;
  if (!options.replace && fs::exists(path, ignored)) {
    const auto text = read_text(path, limit);
    if (text && *text == options.config) return {};
    return fail(fmt::format("{}: the file exists and says something else", show(path)), "choose another directory, or --force replaces it");
  }
  return write_file(path, options.config);
}

Expected<void> make_directory(const std::string& path) {
  std::error_code error;
  make_directories(path, error);
  if (error)
    return fail(fmt::format("{}: cannot make the directory: {}", show(path), error.message()), "check the path and its permissions");
  return {};
}

// A run that ends before its first file is whole, also where it is stopped, leaves no configuration either. Where several makers
// write, it may be another's.
class NewConfig {
 public:
  NewConfig(const CheckpointOptions& options, const CheckpointReport& report)
      : path_(fs::path(options.path) / options.config_name), report_(report) {
    std::error_code ignored;
    is_new_ = options.makers == 1 && !fs::exists(path_, ignored);
  }
  ~NewConfig() {
    std::error_code ignored;
    if (is_new_ && report_.files.empty()) fs::remove(path_, ignored);
  }
  NewConfig(const NewConfig&) = delete;
  NewConfig& operator=(const NewConfig&) = delete;

 private:
  fs::path path_;
  const CheckpointReport& report_;
  bool is_new_;
};

class Checkpoint {
 public:
  Checkpoint(const Graph& graph, const Assignment& assignment, const CheckpointOptions& options)
      : graph_(graph),
        assignment_(assignment),
        options_(options),
        directory_(!options.path.ends_with(".safetensors")),
        shards_(plan_shards(graph, options, directory_)) {}

  Expected<CheckpointReport> write() {
    const NewConfig config(options_, report_);
    return write_all();
  }

 private:
  Expected<CheckpointReport> write_all() {
    if (shards_[0].params.empty()) return fail(fmt::format("--only \"{}\" matches no tensor", show(options_.only)), names_hint());
    if (directory_) {
      if (auto done = make_directory(options_.path); !done) return std::unexpected(done.error());
      remove_leftovers(options_.path);
      if (auto done = clear_the_way(); !done) return std::unexpected(done.error());
      if (!late_config()) {
        if (auto done = put_config(); !done) return std::unexpected(done.error());
      }
    }
    Work work;
    for (std::size_t i = 0; i < shards_.size(); ++i) work.all += mine(i) ? work_of(shards_[i]) : 0;
    for (std::size_t i = 0; i < shards_.size(); ++i) {
      if (!mine(i)) continue;
      const Work before = work;
      if (auto done = write_shard(shards_[i], work); !done) return std::unexpected(done.error());
      work.done = before.done + work_of(shards_[i]), work.bytes = before.bytes + static_cast<double>(shards_[i].bytes);
    }
    if (auto done = finish(); !done) return std::unexpected(done.error());
    return report_;
  }

  [[nodiscard]] bool mine(std::size_t shard) const {
    return shard % static_cast<std::size_t>(options_.makers) + 1 == static_cast<std::size_t>(options_.maker);
  }
  [[nodiscard]] std::string path_of(const Shard& shard) const {
    return directory_ ? (fs::path(options_.path) / shard.name).string() : options_.path;
  }
  [[nodiscard]] double work_of(const Shard& shard) const {
    double work = static_cast<double>(shard.bytes);
    for (const std::size_t i : shard.params) work += whole_work(assignment_, i);
    return work;
  }
  [[nodiscard]] std::string names_hint() const {
    return fmt::format("names look like \"{}\"; * stands for any letters, ? for one", show(graph_.params.back().name));
  }

  // Where one file of weights replaces another, its configuration waits until it is made: the old pair stays as long as it can, and a
  // new configuration never stands beside old weights.
  [[nodiscard]] bool late_config() const { return options_.replace && shards_.size() == 1; }
  Expected<void> put_config() const { return options_.config.empty() ? Expected<void>() : write_config(options_); }
  Expected<void> replace_config(const std::string& weights) const {
    constexpr std::uint64_t limit = 16 << 20;
    const auto there = read_text((fs::path(options_.path) / options_.config_name).string(), limit);
    if (options_.config.empty() || (there && *there == options_.config)) return {};
    if (auto done = remove_file(weights); !done) return done;
    return put_config();
  }

  // An index, or a file without one, that another checkpoint left here would be taken for ours.
  Expected<void> clear_the_way() const {
    const std::string index = index_path();
    const std::string single = (fs::path(options_.path) / (options_.stem + ".safetensors")).string();
    const std::string ours = shards_.size() > 1 ? index_text(graph_, shards_, options_) : "";
    std::error_code ignored;
    for (const std::string& path : {index, single}) {
      if ((path == single && shards_.size() == 1) || !fs::exists(path, ignored)) continue;
      constexpr std::uint64_t limit = 256 << 20;
      if (path == index && !ours.empty() && read_text(path, limit).value_or("") == ours) continue;
      if (!options_.replace) {
        return fail(fmt::format("{}: the file exists and belongs to another checkpoint", show(path)),
                    "choose another directory, or --force replaces it");
      }
      if (auto done = remove_file(path); !done) return done;
    }
    return {};
  }

  [[nodiscard]] std::string index_path() const { return (fs::path(options_.path) / (options_.stem + ".safetensors.index.json")).string(); }

  Expected<void> write_shard(const Shard& shard, Work& work) {
    const std::string path = path_of(shard);
    const auto layout = layout_of(graph_, options_, shard, path);
    if (!layout) return std::unexpected(layout.error());
    report_.tensors += shard.params.size();
    if (directory_ && !options_.replace && is_whole(path, *layout).value_or(false)) {
      report_.files.push_back({path, layout->file_bytes, true});
      return {};
    }
    auto file = OutputFile::create(path, layout->file_bytes, options_.replace);
    if (!file) return std::unexpected(file.error());
    if (auto done = file->write_at(0, std::as_bytes(std::span(layout->head))); !done) return done;
    Maker maker(graph_, assignment_, options_, work);
    if (auto done = maker.write(shard, *layout, *file); !done) return done;
    if (directory_ && late_config()) {
      if (auto done = replace_config(path); !done) return done;
    }
    const auto done = file->commit(layout->file_bytes);
    const bool kept = !done && directory_ && !options_.replace && is_whole(path, *layout).value_or(false);  // another maker was faster
    if (!done && !kept) return done;
    report_.files.push_back({path, layout->file_bytes, kept});
    return {};
  }

  // The index comes last: whoever finds every shard in its place writes it, always the same.
  Expected<void> finish() {
    if (!directory_) return {};
    for (const Shard& shard : shards_) {
      const auto layout = layout_of(graph_, options_, shard, path_of(shard));
      if (!layout) return std::unexpected(layout.error());
      const auto whole = is_whole(path_of(shard), *layout);
      if (!whole) return std::unexpected(whole.error());
      if (!*whole) ++report_.shards_missing;
    }
    if (report_.shards_missing > 0 || shards_.size() == 1) return {};
    return write_file(index_path(), index_text(graph_, shards_, options_));
  }

  const Graph& graph_;
  const Assignment& assignment_;
  const CheckpointOptions& options_;
  bool directory_;
  std::vector<Shard> shards_;
  CheckpointReport report_;
};

}  // namespace

Expected<CheckpointReport> write_checkpoint(const Graph& graph, const Assignment& assignment, const CheckpointOptions& options) {
  return Checkpoint(graph, assignment, options).write();
}

}  // namespace stepzero
