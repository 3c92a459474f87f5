#include <memory>

#include <fmt/format.h>

#include "stepzero/cli/command.hpp"
#include "stepzero/cli/shell.hpp"
#include "stepzero/core/text.hpp"
#include "stepzero/io/output.hpp"

// web/explorer.html, byte for byte: too large for a compiler to read as numbers.
asm(R"(.section .rodata
.global stepzero_explorer_begin, stepzero_explorer_end
stepzero_explorer_begin:
.incbin ")" STEPZERO_EXPLORER R"("
stepzero_explorer_end:
.byte 0
.previous)");
extern "C" const char stepzero_explorer_begin[], stepzero_explorer_end[];

namespace stepzero::cli {

namespace {

int write_explorer(const std::string& path) {
  const std::string_view page(stepzero_explorer_begin, static_cast<std::size_t>(stepzero_explorer_end - stepzero_explorer_begin));
  if (const auto done = write_file(path, page); !done) return complain(done.error());
  return path == "-"
             ? Exit::fine
             : print(fmt::format("wrote {}  {:.0f} kB: open it in a browser\n", show(path), static_cast<double>(page.size()) * 1e-3));
}

}  // namespace

void declare_explorer(CLI::App& app, int& exit_code) {
  auto* verb = app.add_subcommand("explorer", "the page that computes: a model's signal under sliders, in a browser, offline");
  auto path = std::make_shared<std::string>("explorer.html");
  verb->add_option("-o,--output", *path, "the page")->capture_default_str();
  verb->footer("Examples:\n  stepzero explorer\n  stepzero explorer -o docs/explorer.html\n");
  verb->callback([path, &exit_code] { exit_code = write_explorer(*path); });
}

}  // namespace stepzero::cli
