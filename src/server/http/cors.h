// Which web pages may ask: cross-origin resource sharing, with vLLM's options.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace quire {

struct CorsOptions {
  std::vector<std::string> origins =
      {};  // "https://chat.example.org", or "*": every page; none: pages of no other site
  std::vector<std::string> methods = {"*"};
  std::vector<std::string> headers = {"*"};
  bool credentials = false;  // cookies and the like
};

// Lines of a response's head for a request from a page of `origin`, each ended by CRLF. None without an origin.
std::string cors_lines(const CorsOptions& options, std::string_view origin);

// What a browser asks before the request itself: OPTIONS with these headers. Nothing where no origin is allowed at all,
// so that the request is answered like any other.
struct Preflight {
  bool allowed = false;
  std::vector<std::pair<std::string, std::string>> headers;  // of the answer, beside cors_lines
};
std::optional<Preflight> preflight(const CorsOptions& options, std::string_view origin, std::string_view method,
                                   std::string_view headers);

}  // namespace quire
