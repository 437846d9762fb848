// The page at "/": tells people in a browser what runs here and how to use it.
#pragma once

#include <string_view>

#include "server/api/answer/reply.h"

namespace quire {

struct HomePage {
  std::string_view url;      // the server's: "http://127.0.0.1:8080"
  std::string_view version;  // empty: not shown
  std::string_view model;    // empty: not shown, and an API key is needed
  bool dashboard;            // whether there is one
};

// One HTML document without scripts and without anything from elsewhere.
Reply home_page(const HomePage& page);

}  // namespace quire
