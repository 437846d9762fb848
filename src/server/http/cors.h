// How web pages of other origins are answered: cross-origin resource sharing, with vLLM's options.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "server/http/local_hosts.h"

namespace quire {

struct CorsOptions {
  std::vector<std::string> origins = {};  // patterns, as for AllowedOrigins; pages of loopback are allowed in any case
  std::vector<std::string> methods = {"*"};
  std::vector<std::string> headers = {"*"};
  bool credentials = false;  // cookies and the like
};

// Throws Error if every page could use the credentials of whoever visits it.
void check(const CorsOptions& options);

// Lines of a response's head for a request from a page of `origin`, each ended by CRLF. Empty without an origin.
std::string cors_lines(const CorsOptions& options, const LocalHosts& local, std::string_view origin);

// A browser's question before the request itself: OPTIONS with these headers.
struct Preflight {
  std::string refusal = {};  // what is not allowed, and the flag that would allow it; empty: the request may be sent
  std::vector<std::pair<std::string, std::string>> headers = {};  // headers of the answer, next to cors_lines
};
// Nothing: it is another kind of OPTIONS.
std::optional<Preflight> preflight(const CorsOptions& options, const LocalHosts& local, std::string_view origin,
                                   std::string_view method, std::string_view headers);

}  // namespace quire
