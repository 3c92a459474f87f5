#pragma once
// A scheme assigns a distribution to a parameter, from its role, its fans and the architecture. Where it also asks for
// another forward pass (residual scales, norms, multipliers), it says so by changing the architecture description.
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "stepzero/core/random.hpp"
#include "stepzero/graph/param.hpp"
#include "stepzero/models/architecture.hpp"

namespace stepzero {

struct Graph;
struct SchemeFile;

// What the model does by theory before the scheme's last word.
struct Profile {
  std::vector<double> branch_variances;  // of what each of the 2 layers branches adds
  std::vector<double> mixing;            // E[y^2] of what attention makes of values of E[x^2] = 1, in each layer
};

struct Scheme {
  std::string_view name;
  std::string_view summary;
  std::string_view source;
  Distribution (*assign)(const Architecture& a, const Param& p);
  void (*adapt)(Architecture& a) = nullptr;  // changes a resolved description, before the graph is built
  bool by_part = false;                      // asks about query, key and value one by one where one tensor holds them all
  void (*learn)(Architecture& a, const Profile& profile) = nullptr;  // changes it once more, knowing what it does
  bool zeroes_padding = false;                                       // the row of padding stays zero (Param::zero_row)
  const SchemeFile* file = nullptr;                                  // what it says, where it is a file (scheme_file.hpp)
};

std::span<const Scheme> schemes();
// By its name, or from a file *.json, which is read anew.
Expected<const Scheme*> find_scheme(std::string_view name);

// Applies the scheme's changes, lists them in a.changes, and resolves the description again. A scheme that learns needs
// the profiler (theory/scheme_profile.hpp).
using Profiler = Expected<Profile> (*)(const Architecture& a, const Scheme& scheme);
Expected<void> adapt(Architecture& a, const Scheme& scheme, Profiler profiler = nullptr);

// What a scheme says of every tensor of a graph.
class Assignment {
 public:
  struct Block {
    Index row0, col0, rows, cols;
    Distribution distribution;
    Role role;
    int layer;
    bool in_out;
  };
  struct Heads {
    Index heads, kv_heads, head_dim, width;
  };

  Assignment() = default;
  Assignment(const Graph& graph, const Architecture& a, const Scheme& scheme);
  // Laws found rather than assigned: of a tensor, or of each of its parts.
  using FoundLaws = std::function<Distribution(std::size_t param, const Part* part)>;
  Assignment(const Graph& graph, const Architecture& a, const FoundLaws& laws);

  // Another law for all of a tensor.
  void set(std::size_t param, const Distribution& distribution);

  // The blocks that a tensor is drawn in: together they are the tensor.
  [[nodiscard]] const std::vector<Block>& blocks(std::size_t param) const { return blocks_[param]; }
  // Of the block that an op uses.
  [[nodiscard]] const Distribution& of(const ParamUse& use) const;
  // Over all the entries of a tensor.
  [[nodiscard]] double std(std::size_t param) const;
  [[nodiscard]] double mean(std::size_t param) const;
  // Whether its numbers depend on each other.
  [[nodiscard]] bool structured(std::size_t param) const;
  // The row of padding where the scheme leaves it zero; -1: none.
  [[nodiscard]] Index zero_row(std::size_t param) const { return zero_rows_[param]; }
  [[nodiscard]] const Heads& heads() const { return heads_; }
  [[nodiscard]] std::size_t size() const { return blocks_.size(); }

 private:
  std::vector<std::vector<Block>> blocks_;
  std::vector<Index> zero_rows_;
  Heads heads_ = {};
};

}  // namespace stepzero
