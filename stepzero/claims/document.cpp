// docs/claims.md: what the documents say and what is true, from the same rows as the terminal's.
#include <algorithm>
#include <filesystem>
#include <span>

#include <fmt/format.h>

#include "stepzero/claims/report.hpp"
#include "stepzero/core/text.hpp"
#include "stepzero/io/output.hpp"

namespace stepzero::claims {

namespace {

constexpr std::string_view head =
    "# What the source documents say, and what is true\n\n"
    "stepzero was asked for by four short documents on the initialization of transformers: the variance of a matrix product (000), the "
    "scaling of attention scores and the "
    "products behind backpropagation (001, 002), and an analysis of transformer initialization (003). Some of their statements are exact, "
    "some are true under a reading or a "
    "condition, some are wrong. This page takes each as an experiment. It is written by the program (`./dev docs`), from the same numbers "
    "that `stepzero claims` prints.\n\n"
    "A row holds a measured number, the mean over independent draws, against what a formula allows. The interval that decides is "
    "Student's, so wide that it misses the truth once "
    "in a million times: a row agrees if all of the interval is allowed, differs if none of it is. A claim **holds** if its statement "
    "agrees; it **holds if** the statement agrees under "
    "a condition that the document does not state and differs outside it (counter-cases); it **fails** if the statement differs. "
    "Corrections must agree as well, without bias. "
    "Contrasts drop an assumption that the document does state, to show that it is needed.\n\n";

Expected<void> write_file(const std::filesystem::path& path, const std::string& text) {
  auto file = OutputFile::create(path.string(), text.size(), true);
  if (!file) return std::unexpected(file.error());
  if (auto done = file->write(std::as_bytes(std::span(text))); !done) return done;
  return file->commit();
}

}  // namespace

std::string markdown(const std::vector<Result>& results) {
  std::string out(head);
  out += "| claim | verdict | condition or correction |\n|---|---|---|\n";
  for (const Result& r : results) {
    const Claim& c = *r.claim;
    std::string note(c.recorded == Verdict::holds_if ? c.condition : c.recorded == Verdict::fails ? c.correction : "");
    for (std::size_t at = note.find('|'); at != std::string::npos; at = note.find('|', at + 2)) note.insert(at, "\\");
    out += fmt::format("| [{}](#{}-{}) | {} | {} |\n", c.id, c.id, c.recorded == Verdict::holds_if ? "holds-if" : to_string(c.recorded),
                       to_string(r.evidence.verdict()), note);
  }
  out += "\n";
  for (const Result& r : results) out += markdown_section(r);
  return out;
}

Expected<void> write_markdown(const std::vector<Result>& results, const std::string& directory) {
  const std::filesystem::path root(directory);
  std::error_code error;
  std::filesystem::create_directories(root / "figures", error);
  if (error) return fail(fmt::format("{}: {}", show(directory), error.message()), "name a directory that can be written");
  for (const Result& r : results) {
    const std::vector<Plot> plots = r.evidence.plots();
    for (std::size_t i = 0; i < plots.size(); ++i) {
      if (auto done = write_file(root / figure_name(*r.claim, i), plot_svg(plots[i])); !done) return done;
    }
  }
  return write_file(root / "claims.md", markdown(results));
}

}  // namespace stepzero::claims
