// Convolutional networks. There is no class of theirs in transformers: the keys are ours, the tensors are called as in torchvision.
#include <fmt/format.h>

#include "stepzero/core/text.hpp"
#include "stepzero/models/families.hpp"

namespace stepzero {

namespace {

std::vector<Index> counts(ConfigReader& c, std::string_view key) {
  std::vector<Index> list;
  const auto* array = c.array(key);
  for (std::size_t i = 0; array != nullptr && i < array->size(); ++i) {
    const auto& entry = (*array)[i];
    const bool fits = entry.is_number_integer() && entry.get<double>() >= 1 && entry.get<double>() <= (1 << 24);
    if (!fits) c.complain(key, fmt::format("{} is not a whole number from 1 to {}", show(entry.dump()), 1 << 24));
    list.push_back(fits ? entry.get<Index>() : 1);
  }
  return list;
}

Expected<Architecture> import_cnn(const nlohmann::json& config, const std::string& file) {
  ConfigReader c(config, file);
  Architecture a;
  a.family = "cnn";
  a.image = c.count({"image_size"}, 32, 1, 1 << 16);
  a.colours = c.count({"num_channels"}, 3, 1, 1 << 16);
  a.vocab = c.count({"num_labels"}, 10);
  a.stages = counts(c, "stages");
  if (a.stages.empty()) c.complain("stages", "must hold the channels of each stage");
  a.stage_blocks = c.count({"blocks_per_stage"}, 0, 0, Architecture::most_layers);
  a.conv_size = c.count({"kernel_size"}, 3, 1, 1 << 16);
  a.conv_stride = c.count({"stride"}, 1, 1, 1 << 16);
  a.conv_padding = c.count({"padding"}, Architecture::same_padding, Architecture::same_padding, 1 << 16);
  a.conv_groups = c.count({"groups"}, 1);
  const auto pooling = parse_pooling(c.text({"pooling"}, "max"));
  if (!pooling) c.complain("pooling", pooling.error().message);
  a.pooling = pooling.value_or(a.pooling);
  a.pool_size = c.count({"pool_size"}, 2, 1, 1 << 16);
  a.dense = counts(c, "dense");
  a.norm = c.flag({"batch_norm"}, false) ? NormKind::batchnorm : NormKind::none;
  a.norm_eps = c.number({"batch_norm_eps"}, 1e-5, 0);
  a.mlp_bias = c.flag({"conv_bias"}, a.norm == NormKind::none);
  a.head_bias = true;
  a.tied = a.causal = false;
  import_activation(c, a, "hidden_act", "relu");
  return finish(c, a);
}

}  // namespace

const Family cnn_family = {.model_type = "cnn", .names = {}, .import = import_cnn};

}  // namespace stepzero
