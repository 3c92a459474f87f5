#include "stepzero/report/transfer.hpp"

#include <algorithm>
#include <cmath>
#include <map>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "stepzero/graph/role_names.hpp"
#include "stepzero/report/terminal.hpp"
#include "stepzero/report/train.hpp"
#include "stepzero/schemes/scheme_file.hpp"

namespace stepzero {

namespace {

using Ink = Look::Ink;
using nlohmann::ordered_json;

std::string four_digits(double x) { return fmt::format("{:.4g}", x); }

std::string change(double before, double after, const Look& look) {
  const std::string b = four_digits(before), a = four_digits(after);
  return b == a ? a : fmt::format("{} {} {}", b, look.arrow(), a);
}

std::string law(const Distribution& d) { return d.kind == Distribution::Kind::constant ? four_digits(d.mean) : four_digits(d.std()); }

// Tensors whose row says the same stand together.
struct Row {
  std::vector<std::string> cells;
  int count = 0;
};

std::vector<Row> rows_of(const TransferSubject& s, const Look& look, bool full) {
  std::vector<Row> rows;
  for (const CarriedTensor& c : s.transfer.tensors) {
    const Param& p = s.target_graph.params[c.param];
    for (const CarriedTensor::Block& b : c.blocks) {
      const std::string name = full ? look.name(p.name) : words(b.part.value_or(p.role));
      const std::string before = law(b.base), after = law(b.law);
      const std::vector<std::string> cells = {name,
                                              std::string(to_string(c.kind)),
                                              before == after ? after : fmt::format("{} {} {}", before, look.arrow(), after),
                                              change(c.before.rate, c.after.rate, look),
                                              change(c.before.decay, c.after.decay, look),
                                              change(c.before.eps, c.after.eps, look)};
      const auto it = std::ranges::find(rows, cells, &Row::cells);
      if (it != rows.end())
        ++it->count;
      else
        rows.push_back({cells, 1});
    }
  }
  return rows;
}

std::string table(const std::vector<std::string>& head, const std::vector<Row>& rows, const Look& look) {
  std::vector<std::size_t> widths;
  for (const std::string& h : head) widths.push_back(columns(h));
  for (const Row& r : rows) {
    for (std::size_t i = 0; i < widths.size(); ++i) widths[i] = std::max(widths[i], columns(r.cells[i]));
  }
  const auto line = [&](const std::vector<std::string>& cells) {
    std::string out;
    for (std::size_t i = 0; i < widths.size(); ++i) out += left(cells[i], widths[i] + 2);
    return out.substr(0, out.find_last_not_of(' ') + 1) + "\n";
  };
  std::string out = look.paint(Ink::dim, line(head));
  for (const Row& r : rows) out += line(r.cells);
  return out;
}

std::string of_size(const Architecture& a, const Look& look) {
  return fmt::format("{}: {} layers, width {}, {} heads of {}", look.name(a.name), a.layers + a.decoder_layers, a.width, a.heads,
                     a.head_dim);
}

// The largest and the smallest ratio of each kind.
std::string effects_text(const TransferSubject& s, const Look& look) {
  std::vector<std::string> order;
  std::map<std::string, std::vector<const TransferEffect*>> by_role;
  for (const TransferEffect& e : s.effects) {
    if (e.base == 0 && e.target == 0) continue;
    auto& list = by_role[words(e.role)];
    if (list.empty()) order.emplace_back(words(e.role));
    list.push_back(&e);
  }
  std::vector<Row> rows;
  for (const std::string& role : order) {
    const auto& list = by_role[role];
    const auto [low, high] = std::ranges::minmax_element(list, {}, [](const TransferEffect* e) { return e->ratio(); });
    const TransferEffect& first = *list.front();
    rows.push_back({{role, four_digits(first.base), four_digits(first.target), fmt::format("{:.3f}", (*low)->ratio()),
                     fmt::format("{:.3f}", (*high)->ratio())},
                    1});
  }
  return "\nWhat the first update of a tensor does to the output of its nodes (the first of a kind), and target over base as far as it\n"
         "differs from what is wanted, least and most of the kind\n" +
         table({"tensors", "base", "target", "least", "most"}, rows, look);
}

std::string quoted(const std::string& s) { return ordered_json(s).dump(); }

}  // namespace

std::string transfer_text(const TransferSubject& s, const Look& look, bool full) {
  std::string out = fmt::format("{}\n{}\n", look.paint(Ink::bold, of_size(s.base, look)), look.paint(Ink::bold, of_size(s.target, look)));
  out += fmt::format("parametrization {}, optimizer {}, scheme {}\n\n", to_string(s.transfer.parametrization), s.optimizer, s.scheme->name);
  for (const ChangedScale& c : s.transfer.scales) out += fmt::format("{}  {} {} {}\n", left(c.field, 16), c.base, look.arrow(), c.target);
  if (s.transfer.scales.empty()) out += "the forward pass stays as the scheme has it\n";
  out += "\n" + table({full ? "tensor" : "tensors", "kind", "std", "rate", "decay", "eps"}, rows_of(s, look, full), look);
  if (!s.effects.empty()) out += effects_text(s, look);
  out += "\n";
  for (const std::string& note : s.transfer.notes) out += wrap(note, look.width, 0);
  return out;
}

std::string transfer_json(const TransferSubject& s) {
  const auto model = [](const Architecture& a) {
    return ordered_json{{"name", a.name},   {"family", a.family}, {"layers", a.layers + a.decoder_layers},
                        {"width", a.width}, {"heads", a.heads},   {"head_dim", a.head_dim}};
  };
  ordered_json out = {{"schema", "stepzero.transfer/1"},
                      {"parametrization", to_string(s.transfer.parametrization)},
                      {"base", model(s.base)},
                      {"target", model(s.target)},
                      {"otherwise", s.scheme->name},
                      {"optimizer", json(s.options)},
                      {"set", s.transfer.set()},
                      {"scales", ordered_json::array()},
                      {"tensors", ordered_json::array()},
                      {"notes", s.transfer.notes}};
  out["optimizer"]["name"] = s.optimizer;
  for (const ChangedScale& c : s.transfer.scales) out["scales"].push_back({{"field", c.field}, {"base", c.base}, {"target", c.target}});
  for (const CarriedTensor& c : s.transfer.tensors) {
    const Param& p = s.target_graph.params[c.param];
    for (const CarriedTensor::Block& b : c.blocks) {
      ordered_json row = {{"tensor", p.name}};
      if (b.part) row["part"] = to_string(*b.part);
      row["base_tensor"] = s.base_graph.params[c.base].name;
      row["kind"] = to_string(c.kind);
      row["rule"] = to_string(c.after.rule);
      row["law"] = law_name(b.law);
      row["mean"] = b.law.mean;
      row["std"] = b.law.std();
      if (b.law.kind == Distribution::Kind::truncated_normal) row["cut"] = b.law.cut;
      row["rate"] = c.after.rate;
      row["decay"] = c.after.decay;
      row["eps"] = c.after.eps;
      row["base"] = {
          {"mean", b.base.mean}, {"std", b.base.std()}, {"rate", c.before.rate}, {"decay", c.before.decay}, {"eps", c.before.eps}};
      out["tensors"].push_back(std::move(row));
    }
  }
  if (!s.effects.empty()) {
    out["effects"] = ordered_json::array();
    for (const TransferEffect& e : s.effects)
      out["effects"].push_back({{"tensor", e.tensor}, {"base", e.base}, {"target", e.target}, {"wanted", e.wanted}});
  }
  return out.dump(2) + "\n";
}

std::string transfer_table(const TransferSubject& s) {
  ordered_json out = {{"schema", "stepzero.rates/1"}, {"rates", ordered_json::array()}};
  for (const CarriedTensor& c : s.transfer.tensors)
    out["rates"].push_back(
        {{"tensor", s.target_graph.params[c.param].name}, {"rate", c.after.rate}, {"decay", c.after.decay}, {"eps", c.after.eps}});
  return out.dump(2) + "\n";
}

std::string transfer_torch(const TransferSubject& s, const std::string& command) {
  std::string out = fmt::format("# {}\n# Forward pass: {}\n", command,
                                s.transfer.set().empty() ? "as it is" : fmt::format("{}", fmt::join(s.transfer.set(), ", ")));
  out += "# name of the parameter: (rule, lr, weight_decay, eps, ((rows, columns), mean, std) of each block)\nTENSORS = {\n";
  for (const CarriedTensor& c : s.transfer.tensors) {
    const Param& p = s.target_graph.params[c.param];
    std::string blocks;
    for (const CarriedTensor::Block& b : c.blocks) {
      if (!b.part) {
        blocks += fmt::format("((None, None), {}, {}), ", b.law.mean, b.law.std());
        continue;
      }
      for (const Part& part : p.parts) {
        if (part.role == *b.part)
          blocks += fmt::format("((({0}, {1}), ({2}, {3})), {4}, {5}), ", part.row0, part.row0 + part.rows, part.col0,
                                part.col0 + part.cols, b.law.mean, b.law.std());
      }
    }
    out += fmt::format("    {}: ({}, {}, {}, {}, ({})),\n", quoted(p.name), quoted(std::string(to_string(c.after.rule))), c.after.rate,
                       c.after.decay, c.after.eps, blocks);
  }
  out += R"(}


def parameter_groups(model, rule=None):
    """For torch.optim: parameters of one rate together; of one rule alone where it is named (muon and adam are two optimizers)."""
    groups = {}
    for name, parameter in model.named_parameters():
        kind, lr, weight_decay, eps, _ = TENSORS[name]
        if rule in (None, kind):
            groups.setdefault((lr, weight_decay, eps), []).append(parameter)
    return [dict(params=p, lr=lr, weight_decay=weight_decay, eps=eps) for (lr, weight_decay, eps), p in groups.items()]


def initialize(model):
    """Normal numbers of each tensor's mean and std, in place."""
    for name, parameter in model.named_parameters():
        for (rows, columns), mean, std in TENSORS[name][4]:
            block = parameter.data
            if rows is not None:
                block = block.view(block.shape[0], -1)[rows[0] : rows[1], columns[0] : columns[1]]
            block.normal_(mean, std)
)";
  return out;
}

}  // namespace stepzero
