// Which hosts and web pages count as this machine's own, and which others the operator allows.
//
// A browser lets any page send requests to 127.0.0.1 (cross-site request forgery). If the page's own name resolves to
// 127.0.0.1 (DNS rebinding), it lets the page read the answers too. The browser tells the truth in two headers, which
// a page cannot forge: Origin names the page, Host the name that it asked for. A server without API keys that listens on
// loopback keeps pages of other sites away.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "server/http/allowed_origins.h"

namespace quire {

class LocalHosts {
 public:
  // hosts: names that the server listens on. allowed_origins: as for AllowedOrigins. Throws as it does.
  LocalHosts(const std::vector<std::string>& hosts, const std::vector<std::string>& allowed_origins);

  // host: of a Host header, like "localhost:8080". Loopback addresses and names, `hosts`, the hosts of allowed origins,
  // and no host at all, which no browser sends.
  bool allows_host(std::string_view host) const;
  // origin: of an Origin header; empty if the request comes from no page. Allowed origins, and pages of loopback or
  // `hosts`.
  bool allows_origin(std::string_view origin) const;
  bool allows_any_origin() const { return allowed_.any(); }

 private:
  bool is_own(std::string_view host) const;

  AllowedOrigins allowed_;
  std::vector<std::string> names_;
};

}  // namespace quire
