#pragma once
// How predict, measure, compare and report show a signal: the same flags, the same views, the same exit codes.
#include <functional>
#include <string>

#include "stepzero/cli/command.hpp"
#include "stepzero/report/json.hpp"
#include "stepzero/report/terminal_style.hpp"
#include "stepzero/theory/predict.hpp"

namespace stepzero::cli {

// What standard output takes: its width, colour unless NO_COLOR or a pipe, more than ASCII where the locale has it.
Look look_of_output();

struct ViewFlags {
  bool full = false;
  std::string csv;
  std::string markdown;
  std::string fail_on;

  // Whether one of the files is standard output: then nothing else goes there.
  [[nodiscard]] bool to_output() const { return csv == "-" || markdown == "-"; }

  void declare(CLI::App& app);
};

using TextView = std::function<std::string(const Signal&, const Look&, bool full)>;
using JsonView = std::function<std::string(const Signal&)>;

// Diagnoses the signal, writes the files that were asked for and prints it as text or JSON. Exit::findings where --fail-on
// says so. `options` are those that remedies are predicted with.
int present(
    Signal& signal, const CommonFlags& common, const ViewFlags& view, const TextView& text, const PredictOptions& options = {},
    const JsonView& json = [](const Signal& s) { return to_json(s); });

// The parts, for a verb that prints something else.
int write_tables(const Signal& signal, const CommonFlags& common, const ViewFlags& view);
int judge(const Signal& signal, const ViewFlags& view);  // Exit::numerical where a number is not finite

// A whole file or none; an existing one is replaced. "-" is standard output.
Expected<void> write_file(const std::string& path, std::string_view text);

}  // namespace stepzero::cli
