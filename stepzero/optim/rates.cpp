#include "stepzero/optim/rates.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <string_view>

#include <fmt/format.h>
#include <fnmatch.h>
#include <nlohmann/json.hpp>

#include "stepzero/core/text.hpp"
#include "stepzero/graph/role_names.hpp"
#include "stepzero/io/file.hpp"
#include "stepzero/io/json.hpp"

namespace stepzero {

namespace {

constexpr const char* form =
    R"({"schema": "stepzero.rates/1", "rates": [{"tensor": "*.weight", "role": "query", "layer": 0, "rate": 1e-3, "times": 0.5, "decay": 0, "eps": 1e-8}]})";

std::optional<Role> role_of(std::string_view name) {
  for (int r = 0; r <= static_cast<int>(Role::branch_gain); ++r) {
    if (name == to_string(static_cast<Role>(r))) return static_cast<Role>(r);
  }
  return {};
}

// Reads one row; the first complaint ends it.
class RowReader {
 public:
  // carried: a row of a transfer, which also says other things
  RowReader(const nlohmann::json& object, std::string where, bool carried) : object_(object), where_(std::move(where)), carried_(carried) {}

  Expected<RateRow> read() {
    if (!object_.is_object()) return complain("is no object");
    RateRow row;
    for (const auto& [key, value] : object_.items()) {
      if (carried_ && key != "tensor" && key != "rate" && key != "decay" && key != "eps") continue;
      if (auto done = member(row, key, value); !done) return std::unexpected(done.error());
    }
    if (!row.rate && !row.times && !row.decay && !row.eps) return complain("says neither rate nor times nor decay nor eps");
    return row;
  }

 private:
  Expected<void> member(RateRow& row, const std::string& key, const nlohmann::json& value) {
    if (key == "tensor" && value.is_string()) {
      row.tensor = value.get<std::string>();
      return {};
    }
    if (key == "role" && value.is_string()) {
      row.role = role_of(value.get<std::string>());
      if (!row.role) return complain(fmt::format("\"{}\" is no role", show(value.get<std::string>())));
      return {};
    }
    if (key == "layer" && value.is_number_integer()) {
      row.layer = value.get<int>();
      return {};
    }
    const std::array<std::pair<std::string_view, std::optional<double>*>, 4> numbers{
        {{"rate", &row.rate}, {"times", &row.times}, {"decay", &row.decay}, {"eps", &row.eps}}};
    const auto it = std::ranges::find(numbers, std::string_view(key), [](const auto& n) { return n.first; });
    if (it == numbers.end()) return complain(fmt::format("\"{}\" is unknown, or not of its type", show(key)));
    const double number = value.is_number() ? value.get<double>() : -1;
    if (!(number >= 0) || !std::isfinite(number)) return complain(fmt::format("\"{}\" is not a number from 0 on", key));
    *it->second = number;
    return {};
  }

  [[nodiscard]] std::unexpected<Error> complain(const std::string& what) const {
    return fail(fmt::format("{}: {}", where_, what), fmt::format("a table of rates looks like {}", form));
  }

  const nlohmann::json& object_;
  std::string where_;
  bool carried_;
};

}  // namespace

bool RateRow::fits(const Param& param) const {
  return (tensor.empty() || ::fnmatch(tensor.c_str(), param.name.c_str(), 0) == 0) && (!role || *role == param.role) &&
         (!layer || *layer == param.layer);
}

TensorRate RateTable::apply(const Param& param, TensorRate rate) const {
  for (const RateRow& row : rows) {
    if (!row.fits(param)) continue;
    rate.rate = row.rate.value_or(rate.rate) * row.times.value_or(1);
    rate.decay = row.decay.value_or(rate.decay);
    rate.eps = row.eps.value_or(rate.eps);
  }
  return rate;
}

Expected<RateTable> read_rates(const std::string& path, const std::vector<Param>& params) {
  const auto text = read_text(path, JsonLimits().max_bytes);
  if (!text) return std::unexpected(text.error());
  const auto json = parse_json(*text, path);
  if (!json) return std::unexpected(json.error());
  const std::string schema = json->is_object() ? json->value("schema", "") : "";
  const bool carried = schema == "stepzero.transfer/1";
  const char* const list = carried ? "tensors" : "rates";
  const auto rows = json->is_object() ? json->find(list) : json->end();
  if ((schema != "stepzero.rates/1" && !carried) || rows == json->end() || !rows->is_array()) {
    return fail(fmt::format("{}: this is no table of rates", show(path)), fmt::format("it looks like {}", form));
  }
  RateTable table;
  for (std::size_t i = 0; i < rows->size(); ++i) {
    const std::string where = fmt::format("{}: row {} of \"{}\"", show(path), i + 1, list);
    auto row = RowReader((*rows)[i], where, carried).read();
    if (!row) return std::unexpected(row.error());
    if (std::ranges::none_of(params, [&](const Param& p) { return row->fits(p); })) {
      return fail(fmt::format("{}: it fits no tensor of the model", where),
                  fmt::format("tensors are named like \"{}\"", params.empty() ? "" : show(params.back().name)));
    }
    table.rows.push_back(std::move(*row));
  }
  return table;
}

}  // namespace stepzero
