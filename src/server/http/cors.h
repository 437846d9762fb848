// Which web pages may send requests: cross-origin resource sharing, with vLLM's options.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace quire {

struct CorsOptions {
  // "https://chat.example.org", or "*" for every page; empty: no pages of other origins.
  std::vector<std::string> origins = {};
  std::vector<std::string> methods = {"*"};
  std::vector<std::string> headers = {"*"};
  bool credentials = false;  // cookies and the like
};

// Throws Error if every page could use the credentials of whoever visits it.
void check(const CorsOptions& options);

// Lines of a response's head for a request from a page of `origin`, each ended by CRLF. Empty without an origin.
std::string cors_lines(const CorsOptions& options, std::string_view origin);

// A browser's question before the request itself: OPTIONS with these headers. Nothing if no origin is allowed at all;
// the request is then answered like any other.
struct Preflight {
  bool allowed = false;
  std::vector<std::pair<std::string, std::string>> headers;  // of the answer, besides cors_lines
};
std::optional<Preflight> preflight(const CorsOptions& options, std::string_view origin, std::string_view method,
                                   std::string_view headers);

}  // namespace quire
