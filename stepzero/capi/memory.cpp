// Tensors of the caller: filled as init would write them, and audited where they lie.
#include <algorithm>
#include <atomic>
#include <cstring>
#include <numeric>
#include <span>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "stepzero/api/audit_files.hpp"
#include "stepzero/api/checkpoints.hpp"
#include "stepzero/api/setup.hpp"
#include "stepzero/capi/call.hpp"
#include "stepzero/core/parallel.hpp"
#include "stepzero/core/text.hpp"
#include "stepzero/graph/role_names.hpp"
#include "stepzero/kernels/to_half.hpp"
#include "stepzero/models/infer.hpp"
#include "stepzero/schemes/scheme.hpp"
#include "stepzero/weights/tensor_draw.hpp"

namespace stepzero {

namespace {

// ---- which tensors, and their laws

struct Drawable {
  Architecture architecture;
  const Scheme* scheme;
  Graph graph;
};

// Tensors without a model: what they are is told, or seen in their names.
Expected<Drawable> to_draw_inferred(const std::vector<TensorRequest>& tensors, const Scheme& scheme) {
  if (scheme.adapt != nullptr || scheme.learn != nullptr) {
    return fail(fmt::format("scheme {} also changes the forward pass, and tensors alone do not show one", scheme.name),
                "give the model's configuration, or a scheme that draws weights only");
  }
  std::vector<NamedShape> shapes;
  for (const TensorRequest& t : tensors) {
    const auto role = role_called(t.role);
    if (!t.role.empty() && !role) return fail(fmt::format("\"{}\": {} is no role", show(t.name), show(t.role)), "such as attention_out");
    shapes.push_back({t.name, t.shape, role});
  }
  Inferred inferred = infer_model(shapes);
  return Drawable{std::move(inferred.architecture), &scheme, std::move(inferred.graph)};
}

Expected<Drawable> to_draw(const AnyRequest& r) {
  const auto scheme = find_scheme(r.model.scheme);
  if (!scheme) return std::unexpected(scheme.error());
  if (r.model.model.empty()) return to_draw_inferred(r.tensors, **scheme);
  auto a = describe_model(r.model.model, r.model.set, **scheme, r.model.like);
  if (!a) return std::unexpected(a.error());
  auto graph = graph_to_write(r.model, *a);
  if (!graph) return std::unexpected(graph.error());
  return Drawable{std::move(*a), *scheme, std::move(*graph)};
}

Expected<Texts> list_tensors(const AnyRequest& r) {
  const auto drawn = to_draw(r);
  if (!drawn) return std::unexpected(drawn.error());
  const Assignment laws(drawn->graph, drawn->architecture, *drawn->scheme);
  Json list = Json::array();
  for (std::size_t i = 0; i < drawn->graph.params.size(); ++i) {
    const Param& p = drawn->graph.params[i];
    list.push_back({{"name", p.name}, {"shape", p.shape}, {"role", to_string(p.role)}, {"layer", p.layer}, {"std", laws.std(i)}});
  }
  return Texts{{"json", Json{{"tensors", list}, {"changes", drawn->architecture.changes}}.dump()}};
}

// ---- a piece of a tensor: some rows of equal length, at equal or unequal distances

struct Piece {
  std::size_t param;
  DType dtype;
  std::byte* data;
  std::uint64_t count = 0;                              // numbers
  std::uint64_t length = 0;                             // of a row that lies without a gap in the tensor
  std::vector<std::uint64_t> sizes = {}, strides = {};  // how rows are counted, and what each count moves on by
  std::uint64_t first = 0;                              // number of the tensor

  [[nodiscard]] std::uint64_t row_start(std::uint64_t row) const {
    std::uint64_t at = first;
    for (std::size_t d = sizes.size(); d-- > 0; row /= sizes[d]) at += row % sizes[d] * strides[d];
    return at;
  }
};

std::unexpected<Error> outside(const PieceRequest& r, const Param& p) {
  return fail(fmt::format("\"{}\" is [{}], and the piece from [{}] of [{}] does not lie in it", show(p.name), fmt::join(p.shape, ", "),
                          fmt::join(r.offset, ", "), fmt::join(r.size, ", ")));
}

Expected<void> place_box(const PieceRequest& r, const Param& p, Piece& out) {
  const std::size_t rank = p.shape.size();
  if (r.offset.size() != rank || r.size.size() != rank) return outside(r, p);
  std::uint64_t stride = 1;
  std::vector<std::uint64_t> strides(rank);
  for (std::size_t d = rank; d-- > 0;) {
    const auto extent = static_cast<std::uint64_t>(p.shape[d]);
    if (r.offset[d] > extent || r.size[d] > extent - r.offset[d]) return outside(r, p);
    strides[d] = stride;
    out.first += r.offset[d] * stride;
    stride *= extent;
  }
  out.count = std::accumulate(r.size.begin(), r.size.end(), std::uint64_t{1}, std::multiplies<>());
  // rows reach over all dimensions that are whole, and one more
  std::size_t d = rank;
  out.length = 1;
  while (d > 0) {
    --d;
    out.length *= r.size[d];
    if (r.size[d] != static_cast<std::uint64_t>(p.shape[d])) break;
  }
  out.sizes.assign(r.size.begin(), r.size.begin() + static_cast<std::ptrdiff_t>(d));
  out.strides.assign(strides.begin(), strides.begin() + static_cast<std::ptrdiff_t>(d));
  return {};
}

Expected<Piece> place(const PieceRequest& r, const Graph& graph, void* data) {
  const auto it = std::ranges::find(graph.params, r.tensor, &Param::name);
  if (it == graph.params.end()) return fail(fmt::format("no tensor is called \"{}\"", show(r.tensor)), "sz_tensors lists them");
  const auto dtype = dtype_of(r.dtype);
  if (!dtype) return std::unexpected(dtype.error());
  Piece out{static_cast<std::size_t>(it - graph.params.begin()), *dtype, static_cast<std::byte*>(data)};
  if (!r.size.empty()) {
    if (auto done = place_box(r, *it, out); !done) return std::unexpected(done.error());
  } else {
    const auto size = static_cast<std::uint64_t>(it->size());
    if (r.first > size || r.count > size - r.first)
      return fail(fmt::format("\"{}\" has {} elements, and {} from {} on are asked for", show(r.tensor), size, r.count, r.first));
    out.first = r.first;
    out.count = out.length = r.count;
  }
  if (out.count > 0 && data == nullptr) return fail(fmt::format("\"{}\": the memory to fill is missing", show(r.tensor)));
  return out;
}

// ---- its numbers

constexpr Index kGrain = 1 << 16;  // numbers a thread takes at a time

class Filler {
 public:
  Filler(const Drawable& d, std::uint64_t seed) : d_(d), laws_(d.graph, d.architecture, *d.scheme), seed_(seed) {}

  Expected<void> fill(const Piece& piece) {
    if (laws_.structured(piece.param) && whole_of_ != piece.param) {  // made whole, and kept for the next piece
      whole_ = draw_tensor(d_.graph, laws_, piece.param, seed_);
      whole_of_ = piece.param;
    }
    std::atomic<bool> fits = true;
    parallel_ranges(static_cast<Index>(piece.count), kGrain, [&](Index from, Index to) {
      for (auto at = static_cast<std::uint64_t>(from), end = static_cast<std::uint64_t>(to); at < end;) {
        const std::uint64_t row = at / piece.length, skip = at % piece.length;
        const std::uint64_t n = std::min(piece.length - skip, end - at);
        if (!write(piece, piece.row_start(row) + skip, n, at)) fits = false;
        at += n;
      }
    });
    if (fits) return {};
    return fail(fmt::format("a number of \"{}\" does not fit in f16", show(d_.graph.params[piece.param].name)),
                "f32 and bf16 reach further");
  }

 private:
  void draw(const Piece& piece, std::uint64_t first, std::span<float> out) const {
    if (whole_of_ == piece.param)
      std::copy_n(whole_.begin() + static_cast<std::ptrdiff_t>(first), out.size(), out.begin());
    else
      draw_elements(d_.graph, laws_, piece.param, seed_, first, out);
  }

  // Numbers [first, first + n) of the tensor, to number `at` of the piece.
  [[nodiscard]] bool write(const Piece& piece, std::uint64_t first, std::uint64_t n, std::uint64_t at) const {
    if (piece.dtype == DType::F32) {
      draw(piece, first, std::span(reinterpret_cast<float*>(piece.data) + at, n));
      return true;
    }
    thread_local std::vector<float> numbers;
    numbers.resize(std::max<std::size_t>(numbers.size(), n));
    const auto some = std::span(numbers).first(n);
    draw(piece, first, some);
    auto* to = reinterpret_cast<std::uint16_t*>(piece.data) + at;
    return piece.dtype == DType::BF16 ? kernels::narrow_to_bfloat16(some, to) : kernels::narrow_to_half(some, to);
  }

  const Drawable& d_;
  Assignment laws_;
  std::uint64_t seed_;
  std::optional<std::size_t> whole_of_;
  std::vector<float> whole_;
};

Expected<Texts> fill_pieces(const AnyRequest& r, void* const* data, const Watch& watch) {
  const auto drawn = to_draw(r);
  if (!drawn) return std::unexpected(drawn.error());
  std::vector<Piece> pieces;
  std::uint64_t all = 0, done = 0;
  for (std::size_t i = 0; i < r.pieces.size(); ++i) {
    auto piece = place(r.pieces[i], drawn->graph, data == nullptr ? nullptr : data[i]);
    if (!piece) return std::unexpected(piece.error());
    all += piece->count;
    pieces.push_back(std::move(*piece));
  }
  Filler filler(*drawn, r.init.seed);
  Teller tell(watch, "drawing");
  for (const Piece& piece : pieces) {
    end_if_stopped();
    if (auto filled = filler.fill(piece); !filled) return std::unexpected(filled.error());
    done += piece.count;
    tell(static_cast<double>(done) / static_cast<double>(std::max<std::uint64_t>(1, all)));
  }
  return Texts{};
}

// ---- audits

Expected<DType> stored_type(const TensorRequest& t) {
  constexpr std::array known = {DType::F64, DType::F32, DType::F16, DType::BF16};
  const auto* found = std::ranges::find_if(known, [&](DType d) { return encoding_of(d).name == t.dtype; });
  if (found != known.end()) return *found;
  return fail(fmt::format("tensor \"{}\": dtype {} cannot be read as numbers", show(t.name), show(t.dtype)),
              "F64, F32, F16 and BF16 can be");
}

Expected<Texts> audit_tensors(AnyRequest r, const void* const* data, const Watch& watch) {
  std::vector<MemoryTensor> tensors;
  for (std::size_t i = 0; i < r.tensors.size(); ++i) {
    const auto dtype = stored_type(r.tensors[i]);
    if (!dtype) return std::unexpected(dtype.error());
    tensors.push_back(
        {r.tensors[i].name, r.tensors[i].shape, *dtype, static_cast<const std::byte*>(data[i]), r.tensors[i].whole, r.tensors[i].at});
  }
  if (r.audit.path.empty()) r.audit.path = "the module";
  auto files = CheckpointFiles::of(tensors, r.audit.path);
  if (!files) return std::unexpected(files.error());
  const auto found = audit_files(std::move(*files), r.audit, watch, r.consequences);
  if (!found) return std::unexpected(found.error());
  return Texts{{"json", found->json()}, {"html", found->html()}};
}

}  // namespace

}  // namespace stepzero

using namespace stepzero;  // NOLINT: the functions below are the interface, and C knows no namespaces

sz_result* sz_tensors(const char* request, sz_watch* watch) {
  return call(Call::tensors, request, watch,
              [](const AnyRequest& r, const Watch& w) { return guarded(w, [&] { return list_tensors(r); }); });
}

sz_result* sz_fill(const char* request, void* const* data, sz_watch* watch) {
  return call(Call::fill, request, watch,
              [data](const AnyRequest& r, const Watch& w) { return guarded(w, [&] { return fill_pieces(r, data, w); }); });
}

sz_result* sz_audit_memory(const char* request, const void* const* data, sz_watch* watch) {
  return call(Call::audit_memory, request, watch,
              [data](const AnyRequest& r, const Watch& w) { return guarded(w, [&] { return audit_tensors(r, data, w); }); });
}
