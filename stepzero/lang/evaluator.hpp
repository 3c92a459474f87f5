#pragma once
// Runs a parsed file. The host gives it words (functions of C++); what a file may take is limited, and it reads and writes nothing.
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "stepzero/lang/syntax.hpp"
#include "stepzero/lang/value.hpp"

namespace stepzero::lang {

class Evaluator;

// A call of one of the host's words.
struct Call {
  std::vector<Value> values;  // without names
  std::vector<std::pair<std::string, Value>> named;
};
using Word = std::function<Expected<Value>(Call& call)>;

struct Scope;

struct Function {
  std::string name;
  std::shared_ptr<const Definition> definition;  // null: a word of the host's
  std::vector<Value> defaults;
  std::shared_ptr<Scope> around;
  Word word;
};

// The names of a function's call, or of a whole file.
struct Scope {
  std::unordered_map<std::string, Value> names;
  std::shared_ptr<Scope> around;
  const Definition* definition = nullptr;  // whose call it is; null: a file or a comprehension
};

// A file, parsed once to be run as often as one likes. `number` is its place among those an evaluator runs, from 0.
struct Program {
  Source source;
  bool inner = false;
  Block block;
};
Expected<std::shared_ptr<const Program>> compile(Source source, int number, bool inner = false);

struct Limits {
  std::int64_t steps = 5'000'000;  // expressions and elements of lists: well below a second
  int depth = 600;                 // of expressions and calls in each other
};

class Evaluator {
 public:
  explicit Evaluator(Limits limits = {});
  ~Evaluator();
  Evaluator(const Evaluator&) = delete;
  Evaluator& operator=(const Evaluator&) = delete;

  void define(const std::string& name, Word word);
  void set(const std::string& name, Value value) { globals_->names[name] = std::move(value); }
  // A name of the file that runs, rather than of the words it is given.
  void set_in_file(const std::string& name, Value value) { file_scope_->names[name] = std::move(value); }
  [[nodiscard]] const Value* find(const std::string& name) const;

  // Runs a file. One that is `inner` adds words; its errors are told at the place that called them. Any other has names of
  // its own, which the words do not see, and does not see those of theirs that begin with an underscore.
  Expected<void> run(const std::shared_ptr<const Program>& program);
  Expected<void> run(const Source& source);

  // Charges for work that a word does; false: the limit is reached.
  bool charge(std::int64_t steps);

 private:
  enum class Flow : std::uint8_t { on, stop, next, back };

  Flow run_block(const Block& block);
  Flow run_statement(const Statement& s);
  Flow run_loop(const Statement& s);
  void assign(const Expr& target, Value value);
  void store(const Expr& place, Value value);
  void change(const Statement& s);
  std::shared_ptr<Function> close(const std::shared_ptr<const Definition>& definition);

  Value evaluate(const Expr& e);
  Value evaluate_kind(const Expr& e);
  Value name(const Expr& e);
  Value logic(const Expr& e);
  Value compare(const Expr& e);
  Value index(const Expr& e);
  std::optional<std::size_t> position(const Expr& at, const Value& index, std::size_t size);
  Value format(const Expr& e);
  Value comprehend(const Expr& e);
  Value list_of(const Expr& e);
  Value method(const Expr& call);
  Value call_expression(const Expr& e);
  Value apply(const Function& f, Call call, Place place);
  bool bind(const Function& f, Call& call, Scope& scope, Place place);
  Value unary(const Expr& e);
  Value binary(const std::string& sign, const Value& a, const Value& b, Place place);
  Value arithmetic(const std::string& sign, const Value& a, const Value& b, Place place);
  Value whole_arithmetic(const std::string& sign, std::int64_t a, std::int64_t b, Place place);
  Value power(const Value& a, const Value& b, Place place);
  Value repeat(const Value& what, const Value& times, Place place);
  Value percent(const std::string& pattern, const Value& values, Place place);

  [[nodiscard]] Place place() const;
  Value keep(std::vector<Value> values);
  Value refuse(Place place, const std::string& message, std::string hint = {});
  void refuse(Place place, Error error);
  [[nodiscard]] bool failed() const { return error_.has_value(); }
  [[nodiscard]] std::vector<std::string> known_names() const;

  Limits limits_;
  std::int64_t steps_ = 0;
  int depth_ = 0;
  std::vector<std::shared_ptr<const Program>> files_;
  std::vector<Place> calls_;  // that are under way
  std::shared_ptr<Scope> globals_, file_scope_, scope_;
  Value back_;
  Place now_;
  std::optional<Error> error_;
  // All that was made, so that what holds itself, or a list in a list in a list, goes without recursion.
  std::vector<List> lists_;
  std::vector<std::shared_ptr<Scope>> scopes_;
  std::vector<std::shared_ptr<const Function>> functions_;
};

// Whether `if` takes it for yes.
Expected<bool> truth(const Value& value);

// str, len, range, sqrt and the like.
void define_builtins(Evaluator& evaluator);

}  // namespace stepzero::lang
