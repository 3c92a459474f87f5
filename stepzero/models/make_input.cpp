#include "stepzero/models/make_input.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>

#include <fmt/format.h>

#include "stepzero/core/memory.hpp"
#include "stepzero/core/random.hpp"
#include "stepzero/core/text.hpp"
#include "stepzero/io/file.hpp"
#include "stepzero/kernels/fill.hpp"
#include "stepzero/kernels/random_fill.hpp"

namespace stepzero {

namespace {

// What the classes find out when they run: a model whose router does not fit has tensors all the same.
Expected<void> check_router(const Architecture& a) {
  if (a.experts == 0) return {};
  if (a.experts % a.router_groups != 0 || a.router_kept_groups > a.router_groups) {
    return fail(fmt::format("router_groups = {} must divide experts = {}, and router_kept_groups = {} must be at most router_groups",
                            a.router_groups, a.experts, a.router_kept_groups));
  }
  const Index members = a.experts / a.router_groups;
  if (a.router_group_best > members)
    return fail(fmt::format("router_group_best = {}, and a group has {} experts", a.router_group_best, members));
  if (a.experts_per_token < 1 || a.experts_per_token > a.router_kept_groups * members) {
    return fail(fmt::format("experts_per_token = {} must be from 1 to {}, the experts a token can choose from", a.experts_per_token,
                            a.router_kept_groups * members));
  }
  return {};
}

TokenOptions token_options(const Architecture& a, const InputOptions& o) {
  return {.source = o.tokens,
          .length = o.length,
          .sequences = o.sequences,
          .targets = a.pooled ? Targets::same : o.targets.value_or(a.causal ? Targets::next : Targets::same),
          .seed = o.seed,
          .vocab = a.token_vocab > 0 ? a.token_vocab : a.vocab,
          .positions = a.positions,
          .padding = a.padding};
}

// As many ids as the decoder has. Drawn ones come from a seed of their own.
Expected<void> add_encoder(const Architecture& a, const InputOptions& o, Batch& batch) {
  if (o.encoder_tokens.empty() && !is_drawn(o.tokens)) {
    return fail(fmt::format("{}: the decoder's tokens are from a file, and those of the encoder are missing", show(a.name)),
                "--encoder-tokens FILE, as many ids a line as the decoder reads");
  }
  TokenOptions t = token_options(a, o);
  t.source = o.encoder_tokens.empty() ? o.tokens : o.encoder_tokens;
  t.length = batch.length;
  t.sequences = batch.sequences;
  t.seed = o.seed ^ 0x656e636f646572;
  auto ids = make_inputs(t);
  if (!ids) return std::unexpected(ids.error());
  batch.encoder_ids = std::move(*ids);
  return {};
}

Expected<std::vector<float>> read_floats(const std::string& path, Index one, const char* what, const char* shape) {
  auto text = read_text(path, std::uint64_t{1} << 32);
  if (!text) return std::unexpected(text.error());
  const auto bytes = static_cast<Index>(text->size());
  if (bytes == 0 || bytes % (4 * one) != 0) {
    return fail(fmt::format("{}: {} bytes are not a whole number of {}s of {} floats", show(path), bytes, what, one),
                fmt::format("little-endian float32, {}", shape));
  }
  std::vector<float> pixels(text->size() / 4);
  std::memcpy(pixels.data(), text->data(), text->size());
  for (std::size_t i = 0; i < pixels.size(); ++i) {
    if (!std::isfinite(pixels[i])) return fail(fmt::format("{}: byte {}: {} is no number", show(path), 4 * i, pixels[i]));
  }
  return pixels;
}

Expected<Batch> make_images(const Architecture& a, const InputOptions& o) {
  const Index image = a.colours * a.image * a.image;
  Batch batch;
  batch.length = a.positions;
  batch.seed = o.seed;
  if (o.length > 0 && o.length != batch.length) {
    return fail(fmt::format("an image of {} is {}; --seq-len asks for {}", show(a.name),
                            a.patch > 0 ? fmt::format("{} tokens, a class token and its patches", batch.length) : "classified as a whole",
                            o.length));
  }
  if (o.pixels.empty()) {
    batch.sequences = std::max<Index>(o.sequences, 1);
    const double needed = 4 * static_cast<double>(image) * static_cast<double>(batch.sequences);
    if (needed > 0.5 * static_cast<double>(available_memory())) {
      return fail(fmt::format("{}: {} images of {} x {} pixels and {} colours are {:.1f} GB", show(a.name), batch.sequences, a.image,
                              a.image, a.colours, needed * 1e-9),
                  "a smaller --batch or --set image");
    }
    batch.pixels.resize(static_cast<std::size_t>(batch.sequences * image));
    fill(Distribution::normal(1), make_stream(o.seed, "pixels"), 0, std::span<float>(batch.pixels));
  } else {
    auto pixels = read_floats(o.pixels, image, "image", "[images][colours][height][width]");
    if (!pixels) return std::unexpected(pixels.error());
    batch.sequences = static_cast<Index>(pixels->size()) / image;
    if (o.sequences > batch.sequences) {
      return fail(fmt::format("{}: it holds {} images, --batch asks for {}", show(o.pixels), batch.sequences, o.sequences));
    }
    if (o.sequences > 0) batch.sequences = o.sequences;
    pixels->resize(static_cast<std::size_t>(batch.sequences * image));
    batch.pixels = std::move(*pixels);
  }
  auto labels = read_labels({.source = o.labels, .sequences = batch.sequences, .seed = o.seed, .vocab = a.vocab});
  if (!labels) return std::unexpected(labels.error());
  batch.ids.assign(static_cast<std::size_t>(batch.tokens()), 0);
  if (a.pooled) {
    batch.targets = std::move(*labels);
    return batch;
  }
  batch.targets.assign(static_cast<std::size_t>(batch.tokens()), -1);  // of a ViT the class token alone is scored
  for (Index i = 0; i < batch.sequences; ++i)
    batch.targets[static_cast<std::size_t>(i * batch.length)] = (*labels)[static_cast<std::size_t>(i)];
  return batch;
}

// Tokens of which each sequence has one label. A file's lines are inputs alone.
Expected<Batch> make_classified(const Architecture& a, const InputOptions& o) {
  TokenOptions t = token_options(a, o);
  t.alone = true;
  auto batch = make_batch(t);
  if (!batch) return batch;
  for (Index end = batch->length; a.end_id >= 0 && is_drawn(o.tokens) && end <= batch->tokens(); end += batch->length) {
    batch->ids[static_cast<std::size_t>(end - 1)] = static_cast<std::int32_t>(a.end_id);
  }
  auto labels = read_labels({.source = o.labels, .sequences = batch->sequences, .seed = o.seed, .vocab = a.vocab});
  if (!labels) return std::unexpected(labels.error());
  batch->targets = std::move(*labels);
  return batch;
}

// What the encoder of a speech model hears.
Expected<void> add_features(const Architecture& a, const InputOptions& o, Batch& batch) {
  const Index one = a.bands * a.frames;
  batch.features.resize(static_cast<std::size_t>(batch.sequences * one));
  if (o.features.empty()) {
    fill(Distribution::normal(1), make_stream(o.seed, "features"), 0, std::span<float>(batch.features));
    return {};
  }
  auto features = read_floats(o.features, one, "sequence", "[sequences][channels][frames]");
  if (!features) return std::unexpected(features.error());
  if (features->size() != batch.features.size()) {
    return fail(fmt::format("{}: it holds {} sequences of {} x {}, the batch has {}", show(o.features), std::ssize(*features) / one,
                            a.bands, a.frames, batch.sequences));
  }
  batch.features = std::move(*features);
  return {};
}

}  // namespace

Expected<Batch> make_input(const Architecture& a, const InputOptions& o) {
  const auto unused = [&](const std::string& given, const char* flag, bool used) { return !given.empty() && !used ? flag : nullptr; };
  for (const char* flag :
       {unused(o.encoder_tokens, "--encoder-tokens", a.decoder_layers > 0 && a.frames == 0), unused(o.pixels, "--pixels", a.image > 0),
        unused(o.labels, "--labels", a.image > 0 || a.pooled), unused(o.features, "--features", a.frames > 0)}) {
    if (flag != nullptr) return fail(fmt::format("{}: {} is not for this model", show(a.name), flag));
  }
  if (auto done = check_router(a); !done) return std::unexpected(done.error());
  if (a.image > 0) return make_images(a, o);
  if (a.pooled) return make_classified(a, o);
  auto batch = make_batch(token_options(a, o));
  if (!batch || a.decoder_layers == 0) return batch;
  if (a.frames > 0) {
    if (auto done = add_features(a, o, *batch); !done) return std::unexpected(done.error());
    return batch;
  }
  if (auto done = add_encoder(a, o, *batch); !done) return std::unexpected(done.error());
  return batch;
}

}  // namespace stepzero
