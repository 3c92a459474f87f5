#include <algorithm>

#include <fmt/format.h>

#include "stepzero/core/text.hpp"
#include "stepzero/io/json.hpp"
#include "stepzero/io/tokenizer.hpp"
#include "stepzero/io/unicode.hpp"
#include "stepzero/io/validation.hpp"

namespace stepzero {

using nlohmann::json;

namespace {

constexpr JsonLimits limits = {.max_bytes = Tokenizer::most_bytes, .max_depth = 32, .max_values = 8'000'000};
constexpr std::int64_t most_ids = std::int64_t{1} << 22;
constexpr std::size_t most_added = 100'000, most_literal = 1024, most_steps = 100;

const char* const gpt2_words = R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";
const char* const words = R"([\w\u200C\u200D]+|[^\w\s\u200C\u200D]+)";  // \w with the joiners, as in Rust's regular expressions
const char* const punctuation = R"([\p{P}$+<=>^`|~])";

constexpr std::pair<std::string_view, Behavior> behaviors[] = {{"Removed", Behavior::removed},
                                                               {"Isolated", Behavior::isolated},
                                                               {"MergedWithPrevious", Behavior::merged_with_previous},
                                                               {"MergedWithNext", Behavior::merged_with_next},
                                                               {"Contiguous", Behavior::contiguous}};

}  // namespace

// Walks the document and keeps the first thing that is wrong with it; what is read after that counts for nothing.
class TokenizerReader {
 public:
  explicit TokenizerReader(const std::string& file) : file_(file) {}
  Expected<Tokenizer> read(const json& root);

 private:
  using Where = const std::string&;

  void refuse(Where where, std::string_view what, std::string hint) {
    if (!error_) error_ = Error{.message = fmt::format("{}: {}: {}", show(file_), where, what), .hint = std::move(hint)};
  }
  // The member of an object; null where there is none.
  static const json& member(const json& object, const char* key) {
    static const json none;
    const auto it = object.is_object() ? object.find(key) : object.end();
    return object.is_object() && it != object.end() ? *it : none;
  }
  std::string text(const json& object, Where where, const char* key, bool needed = true);
  bool flag(const json& object, Where where, const char* key, bool otherwise);
  std::optional<TokenId> id(const json& value, Where where);

  Bpe::Tokens vocabulary(const json& vocab);
  void claim(TokenId id, std::string_view token, Where where);
  std::vector<BpeMerge> merges(const json& list, const Bpe::Tokens& tokens, std::size_t prefix);
  std::pair<std::string, std::string> merge_of(const json& value, Where where);
  Bpe model(const json& model);
  void check_model(const json& model);
  std::vector<AddedToken> added(const json& list, const Bpe& model);
  void rewrite(const json& step, Where where, std::vector<Rewrite>& out);
  void cut(const json& step, Where where, std::vector<Cut>& out);
  void cut_marks(const json& step, Where where, std::vector<Cut>& out);
  std::optional<Expression> pattern(const json& step, Where where);
  std::optional<Expression> expression(std::string_view source, Where where);
  std::optional<Expression> literal(const std::string& text, Where where);
  Behavior behavior(const json& step, Where where);
  template <class Step>
  bool each(const json& list, Where where, const Step& step);

  std::string file_;
  std::optional<Error> error_;
  std::vector<bool> taken_;  // ids
  std::size_t steps_ = 0;
};

std::string TokenizerReader::text(const json& object, Where where, const char* key, bool needed) {
  const json& value = member(object, key);
  if (value.is_string()) return value.get<std::string>();
  if (rejects("tokenizer.text", needed || !value.is_null()))
    refuse(where, fmt::format("\"{}\" is {}, not a text", key, show(value.dump())), "the file may not have been written completely");
  return {};
}

bool TokenizerReader::flag(const json& object, Where where, const char* key, bool otherwise) {
  const json& value = member(object, key);
  if (value.is_boolean()) return value.get<bool>();
  if (rejects("tokenizer.flag", !value.is_null())) refuse(where, fmt::format("\"{}\" is {}", key, show(value.dump())), "true or false");
  return otherwise;
}

std::optional<TokenId> TokenizerReader::id(const json& value, Where where) {
  if (value.is_number_unsigned() && value.get<std::uint64_t>() < most_ids) return static_cast<TokenId>(value.get<std::uint64_t>());
  refuse(where, fmt::format("{} is no id", show(value.dump())), fmt::format("ids are whole numbers from 0 to below {}", most_ids));
  return std::nullopt;
}

void TokenizerReader::claim(TokenId id, std::string_view token, Where where) {
  const auto at = static_cast<std::size_t>(id);
  if (at >= taken_.size()) taken_.resize(at + 1, false);
  if (rejects("tokenizer.id-twice", taken_[at]))
    refuse(where, fmt::format("the id {} of \"{}\" is that of another token too", id, show(token)), "every token has an id of its own");
  taken_[at] = true;
}

Bpe::Tokens TokenizerReader::vocabulary(const json& vocab) {
  const std::string where = "model.vocab";
  Bpe::Tokens tokens;
  if (rejects("tokenizer.vocab", !vocab.is_object() || vocab.empty()))
    refuse(where, "it is missing or empty", "it maps every token to its id");
  if (!vocab.is_object()) return tokens;
  for (const auto& [token, value] : vocab.items()) {  // in the order of their bytes
    const auto number = id(value, where);
    if (!number) break;
    claim(*number, token, where);
    tokens.emplace_back(token, *number);
  }
  return tokens;
}

// "a b" or ["a", "b"]
std::pair<std::string, std::string> TokenizerReader::merge_of(const json& value, Where where) {
  if (value.is_array() && value.size() == 2 && value[0].is_string() && value[1].is_string())
    return {value[0].get<std::string>(), value[1].get<std::string>()};
  const std::string both = value.is_string() ? value.get<std::string>() : "";
  const std::size_t space = both.find(' ');
  if (rejects("tokenizer.merge", space == std::string::npos || both.find(' ', space + 1) != std::string::npos)) {
    refuse(where, fmt::format("{} is no merge", show(value.dump())), R"(a merge is "left right" or ["left", "right"])");
    return {};
  }
  return {both.substr(0, space), both.substr(space + 1)};
}

std::vector<BpeMerge> TokenizerReader::merges(const json& list, const Bpe::Tokens& tokens, std::size_t prefix) {
  std::vector<BpeMerge> out;
  if (rejects("tokenizer.merges", !list.is_array())) refuse("model.merges", "it is missing or no list", "it holds pairs of tokens");
  if (!list.is_array()) return out;
  for (std::size_t i = 0; i < list.size() && !error_; ++i) {
    if (i == 0 && list[i].is_string() && list[i].get_ref<const std::string&>().starts_with("#version")) continue;
    const std::string where = fmt::format("model.merges[{}]", i);
    const auto [left, right] = merge_of(list[i], where);
    const auto find = [&](const std::string& token) -> TokenId {
      const auto it = std::ranges::lower_bound(tokens, token, {}, &Bpe::Tokens::value_type::first);
      if (it != tokens.end() && it->first == token) return it->second;
      refuse(where, fmt::format("the vocabulary has no token \"{}\"", show(token)),
             "a merge joins two tokens to a third; all are in model.vocab");
      return 0;
    };
    if (rejects("tokenizer.merge-prefix", right.size() < prefix))
      refuse(where, "its right side is shorter than the prefix", "see continuing_subword_prefix");
    out.push_back({find(left), find(right), find(left + right.substr(std::min(prefix, right.size()))), static_cast<std::uint32_t>(i)});
  }
  return out;
}

void TokenizerReader::check_model(const json& model) {
  const json& type = member(model, "type");
  const bool old = type.is_null() && model.is_object() && model.contains("merges");  // files from before other models
  if (rejects("tokenizer.type", !old && type != "BPE")) {
    refuse("model.type", fmt::format("{} is not BPE, the one that is read", show(type.dump())),
           "--level byte and --level char need no tokenizer; token ids made elsewhere are read by --tokens FILE");
  }
  const json& dropout = member(model, "dropout");
  if (rejects("tokenizer.dropout", !dropout.is_null() && dropout != 0.0))
    refuse("model.dropout", "merges left out at random would give other tokens every time", "set it to null");
}

Bpe TokenizerReader::model(const json& model) {
  check_model(model);
  BpeSettings settings{.fuse_unknown = flag(model, "model", "fuse_unk", false),
                       .byte_fallback = flag(model, "model", "byte_fallback", false),
                       .whole_words = flag(model, "model", "ignore_merges", false),
                       .prefix = text(model, "model", "continuing_subword_prefix", false),
                       .suffix = text(model, "model", "end_of_word_suffix", false)};
  Bpe::Tokens tokens = vocabulary(member(model, "vocab"));
  auto joins = merges(member(model, "merges"), tokens, settings.prefix.size());
  const std::string unknown = text(model, "model", "unk_token", false);
  if (error_) return Bpe({}, {}, {});
  Bpe out(std::move(tokens), std::move(joins), std::move(settings));
  const auto id = out.find(unknown);
  if (id) out.set_unknown(*id);
  if (rejects("tokenizer.unknown", !id && !unknown.empty()))
    refuse("model.unk_token", fmt::format("the vocabulary has no token \"{}\"", show(unknown)), "name a token of model.vocab, or null");
  return out;
}

std::vector<AddedToken> TokenizerReader::added(const json& list, const Bpe& model) {
  std::vector<AddedToken> out;
  if (list.is_null()) return out;
  if (rejects("tokenizer.added", !list.is_array() || list.size() > most_added)) {
    refuse("added_tokens", fmt::format("no list of at most {} tokens", most_added), "a list of objects with id and content");
    return out;
  }
  for (std::size_t i = 0; i < list.size() && !error_; ++i) {
    const std::string where = fmt::format("added_tokens[{}]", i);
    AddedToken token{.content = text(list[i], where, "content"),
                     .id = id(member(list[i], "id"), where).value_or(0),
                     .single_word = flag(list[i], where, "single_word", false),
                     .strip_left = flag(list[i], where, "lstrip", false),
                     .strip_right = flag(list[i], where, "rstrip", false),
                     .normalized = flag(list[i], where, "normalized", !flag(list[i], where, "special", false))};
    if (rejects("tokenizer.added-length", token.content.size() > most_literal))
      refuse(where, fmt::format("a token of more than {} bytes", most_literal), "is this the file that was meant?");
    const auto known = model.find(token.content);
    if (rejects("tokenizer.added-id", known && *known != token.id))
      refuse(where, fmt::format("\"{}\" has the id {}, in model.vocab {}", show(token.content), token.id, *known),
             "one of the two is wrong");
    if (!known) claim(token.id, token.content, where);
    out.push_back(std::move(token));
  }
  return out;
}

std::optional<Expression> TokenizerReader::expression(std::string_view source, Where where) {
  auto compiled = Expression::compile(source);
  if (compiled) return std::move(*compiled);
  refuse(where, compiled.error().message, compiled.error().hint);
  return std::nullopt;
}

std::optional<Expression> TokenizerReader::literal(const std::string& text, Where where) {
  if (rejects("tokenizer.literal", text.empty() || text.size() > most_literal)) {
    refuse(where, fmt::format("what it looks for has {} bytes, must have 1 to {}", text.size(), most_literal),
           R"(a pattern is {"String": ..} or {"Regex": ..})");
    return std::nullopt;
  }
  return Expression::literal(text);
}

// {"String": ..} or {"Regex": ..}
std::optional<Expression> TokenizerReader::pattern(const json& step, Where where) {
  const json& given = member(step, "pattern");
  if (member(given, "Regex").is_string()) return expression(member(given, "Regex").get<std::string>(), where);
  const std::string literal = text(given, where + ".pattern", "String");
  return this->literal(literal, where);
}

Behavior TokenizerReader::behavior(const json& step, Where where) {
  const std::string name = text(step, where, "behavior");
  for (const auto& [known, meaning] : behaviors) {
    if (name == known) return meaning;
  }
  refuse(where, fmt::format("the behavior \"{}\" is not known", show(name)),
         "Removed, Isolated, MergedWithPrevious, MergedWithNext, Contiguous");
  return Behavior::isolated;
}

// The members of a Sequence. They may be Sequences, to the depth of the document.
template <class Step>
bool TokenizerReader::each(const json& list, Where where, const Step& step) {
  if (rejects("tokenizer.sequence", !list.is_array()))
    refuse(where, "its list is missing", "the file may not have been written completely");
  if (!list.is_array()) return false;
  for (std::size_t i = 0; i < list.size() && !error_; ++i) {
    if (rejects("tokenizer.steps", ++steps_ > most_steps))
      refuse(where, fmt::format("more than {} steps", most_steps), "no tokenizer needs that");
    if (!error_) step(list[i], fmt::format("{}[{}]", where, i));
  }
  return true;
}

void TokenizerReader::rewrite(const json& step, Where where, std::vector<Rewrite>& out) {
  if (step.is_null() || error_) return;
  const std::string type = text(step, where, "type");
  if (type == "Sequence") {
    each(member(step, "normalizers"), where, [&](const json& inner, Where place) { rewrite(inner, place, out); });
  } else if (type == "NFC" || type == "NFD") {
    const NormalForm form = type == "NFC" ? NormalForm::composed : NormalForm::decomposed;
    out.emplace_back([form](std::string_view t, Budget&) -> Expected<std::string> { return normalized(t, form); });
  } else if (type == "Lowercase") {
    out.emplace_back([](std::string_view t, Budget&) -> Expected<std::string> { return lower_case(t); });
  } else if (type == "Prepend") {
    out.push_back(prepend(text(step, where, "prepend")));
  } else if (type == "Strip") {
    out.push_back(strip(flag(step, where, "strip_left", true), flag(step, where, "strip_right", true)));
  } else if (type == "Replace") {
    if (auto found = pattern(step, where)) out.push_back(replace(std::move(*found), text(step, where, "content")));
  } else {
    refuse(where, fmt::format("the normalizer \"{}\" is not known here", show(type)),
           "NFC, NFD, Lowercase, Prepend, Replace, Strip and Sequence are");
  }
}

void TokenizerReader::cut_marks(const json& step, Where where, std::vector<Cut>& out) {
  const std::string mark = text(step, where, "replacement");
  const std::string scheme = member(step, "prepend_scheme").is_null() ? "always" : text(step, where, "prepend_scheme");
  const bool fronts = flag(step, where, "add_prefix_space", true);
  if (rejects("tokenizer.mark", mark.empty() || decode(mark, 0).length != mark.size()))
    return refuse(where, "\"replacement\" is not one character", "it stands for a space");
  if (rejects("tokenizer.scheme", scheme != "always" && scheme != "first" && scheme != "never"))
    return refuse(where, fmt::format("\"prepend_scheme\" is \"{}\"", show(scheme)), "always, first or never");
  const bool none = !fronts || scheme == "never";
  out.push_back(mark_spaces(mark, none ? MarkFront::none : scheme == "first" ? MarkFront::first : MarkFront::all));
  if (flag(step, where, "split", true)) out.push_back(split(Expression::literal(mark), Behavior::merged_with_next));
}

void TokenizerReader::cut(const json& step, Where where, std::vector<Cut>& out) {
  if (step.is_null() || error_) return;
  const std::string type = text(step, where, "type");
  const auto by = [&](std::string_view source, Behavior behavior, bool inverted = false) {
    if (auto compiled = expression(source, where)) out.push_back(split(std::move(*compiled), behavior, inverted));
  };
  if (type == "Sequence") {
    each(member(step, "pretokenizers"), where, [&](const json& inner, Where place) { cut(inner, place, out); });
  } else if (type == "ByteLevel") {
    if (flag(step, where, "add_prefix_space", true)) out.push_back(prefix_space());
    if (flag(step, where, "use_regex", true)) by(gpt2_words, Behavior::isolated);
    out.push_back(spell_bytes());
  } else if (type == "Split") {
    const Behavior how = behavior(step, where);
    if (auto found = pattern(step, where)) out.push_back(split(std::move(*found), how, flag(step, where, "invert", false)));
  } else if (type == "Digits") {
    by(R"(\p{N})", flag(step, where, "individual_digits", false) ? Behavior::isolated : Behavior::contiguous);
  } else if (type == "Punctuation") {
    by(punctuation, member(step, "behavior").is_null() ? Behavior::isolated : behavior(step, where));
  } else if (type == "Whitespace") {
    by(words, Behavior::removed, true);
  } else if (type == "WhitespaceSplit") {
    by(R"(\s)", Behavior::removed);
  } else if (type == "BertPreTokenizer") {
    by(R"(\s)", Behavior::removed);
    by(punctuation, Behavior::isolated);
  } else if (type == "CharDelimiterSplit") {
    if (auto found = literal(text(step, where, "delimiter"), where)) out.push_back(split(std::move(*found), Behavior::removed));
  } else if (type == "Metaspace") {
    cut_marks(step, where, out);
  } else {
    refuse(where, fmt::format("the pre-tokenizer \"{}\" is not known here", show(type)),
           "ByteLevel, Split, Digits, Punctuation, Whitespace, WhitespaceSplit, BertPreTokenizer, CharDelimiterSplit, Metaspace and "
           "Sequence are");
  }
}

Expected<Tokenizer> TokenizerReader::read(const json& root) {
  if (rejects("tokenizer.model", !member(root, "model").is_object())) {
    refuse("model", "it is missing",
           "a tokenizer.json is written by Hugging Face's tokenizers; vocab.json and merges.txt alone are not read");
    return std::unexpected(*error_);
  }
  Tokenizer out(model(member(root, "model")), 0);
  if (error_) return std::unexpected(*error_);
  auto tokens = added(member(root, "added_tokens"), out.model_);
  rewrite(member(root, "normalizer"), "normalizer", out.rewrites_);
  cut(member(root, "pre_tokenizer"), "pre_tokenizer", out.cuts_);
  if (error_) return std::unexpected(*error_);
  out.vocab_ = std::ssize(taken_);
  std::vector<AddedToken> plain, rewritten;
  for (AddedToken& token : tokens) {
    if (!token.normalized) {
      plain.push_back(std::move(token));
      continue;
    }
    Budget budget(token.content.size());
    auto content = out.rewritten(token.content, budget);
    if (!content) return std::unexpected(content.error());
    token.content = std::move(*content);
    rewritten.push_back(std::move(token));
  }
  out.added_ = AddedTokens(std::move(plain));
  out.added_to_rewritten_ = AddedTokens(std::move(rewritten));
  return out;
}

Expected<Tokenizer> Tokenizer::parse(std::string_view text, const std::string& file_name) {
  const auto root = parse_json(text, file_name, limits);
  if (!root) return std::unexpected(root.error());
  return TokenizerReader(file_name).read(*root);
}

}  // namespace stepzero
