#pragma once
// The page of `stepzero report`: one file that needs no network and nothing installed.
#include <string>
#include <string_view>
#include <vector>

#include "stepzero/signal/signal.hpp"

namespace stepzero {

struct Page {
  Signal signal;                     // diagnosed
  std::vector<Signal> alternatives;  // the same model under other schemes, diagnosed
  std::string command;               // that made it
  std::string version;
};

// The template (web/, bundled by esbuild) with the page's numbers in it. Everything untrusted is in one block of JSON in
// which no character can end it or begin a tag; the page's script only ever sets text.
std::string to_html(const Page& page);

// What goes into that block.
std::string page_data(const Page& page);

// The built template (generated at configure time from web/page.html).
std::string_view page_template();

}  // namespace stepzero
