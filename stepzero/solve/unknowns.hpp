#pragma once
// What a solution may move: the logarithms of factors on the stds of groups of tensors, and on multipliers of the forward pass. A point z
// is one number for each; z = 0 is the model as its scheme has it.
#include <memory>
#include <string>
#include <vector>

#include "stepzero/graph/graph.hpp"
#include "stepzero/models/architecture.hpp"
#include "stepzero/schemes/scheme.hpp"
#include "stepzero/schemes/scheme_file.hpp"

namespace stepzero::solve {

struct Unknown {
  // A tensor, or one of its parts, whose std goes as exp(share z).
  struct Member {
    std::size_t param = 0;
    std::optional<std::size_t> part = {};
    double share = 1;
  };
  std::string name;        // "attention_out", "decoder.ffn_out", "value+attention_out", "ffn_out, layer 3"
  std::string field = {};  // a multiplier: "residual_scale"
  std::vector<Member> members = {};
};

// A model at one point.
struct Point {
  Architecture architecture;
  std::shared_ptr<const Graph> graph;
  Assignment laws;
};

enum class By : std::uint8_t { role, layer };

class Unknowns {
 public:
  // `free`: roles ("value"), roles that move together ("value+attention_out"), multipliers ("residual_scale"). `asked`: by the user, so
  // that one which fits nothing is an error rather than left out. By layer every role has a factor of its own at up to `knots` depths,
  // and layers between them lie on straight lines over the logarithm of the depth.
  static Expected<Unknowns> make(const Architecture& a, const Scheme& scheme, const std::vector<std::string>& free, bool asked, By by);

  [[nodiscard]] std::size_t size() const { return list_.size(); }
  [[nodiscard]] const std::vector<Unknown>& list() const { return list_; }
  [[nodiscard]] const Graph& graph() const { return *graph_; }
  [[nodiscard]] const Architecture& architecture() const { return a_; }
  [[nodiscard]] const Scheme& scheme() const { return *scheme_; }

  [[nodiscard]] Expected<Point> at(const std::vector<double>& z) const;
  // The value of a multiplier.
  [[nodiscard]] double multiplier(const Unknown& u, double z) const;
  // As a file of --scheme; its laws are those that are not the scheme's own.
  [[nodiscard]] Expected<SchemeFile> file(const std::vector<double>& z, const std::string& path) const;
  [[nodiscard]] const Distribution& law(std::size_t param, std::optional<std::size_t> part) const;

 private:
  Unknowns() = default;
  Expected<void> add(const std::string& text, bool asked, By by);
  Expected<void> add_field(const std::string& name);
  void add_group(const std::string& name, const std::vector<Unknown::Member>& members, By by);
  [[nodiscard]] std::vector<std::vector<double>> factors(const std::vector<double>& z) const;  // of every tensor, or of its parts

  Architecture a_;
  const Scheme* scheme_ = nullptr;
  std::shared_ptr<const Graph> graph_;
  std::vector<std::vector<Distribution>> laws_;  // likewise
  std::vector<std::string> stacks_;              // of every tensor
  std::vector<Unknown> list_;
};

// Fields that may be unknowns.
std::vector<std::string> multiplier_names();

}  // namespace stepzero::solve
