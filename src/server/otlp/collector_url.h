// Where spans are sent, as flags say it.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace quire {

struct CollectorUrl {
  bool secure = false;     // https
  std::string host, port;  // without brackets around an IPv6 address
  std::string target;      // of requests: "/v1/traces"
  std::string authority;   // host and port as written, for the Host header
};

// "http://HOST[:PORT][/PATH]" or https; without a path: /v1/traces. Throws Error.
CollectorUrl parse_collector_url(std::string_view url);

using HeaderList = std::vector<std::pair<std::string, std::string>>;

// "NAME=VALUE,NAME=VALUE", as in OTEL_EXPORTER_OTLP_HEADERS: %20 in a value is a space. Throws Error.
HeaderList parse_collector_headers(std::string_view list);

}  // namespace quire
