#include "server/http/cors.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <boost/beast/core/string.hpp>

#include "base/error.h"
#include "json/parse.h"

namespace quire {
namespace {

using boost::beast::iequals;

constexpr std::string_view kAny = "*";

std::string shown(std::string_view header) { return describe(Json(header)); }

// Browsers write methods in capitals.
bool allows(const std::vector<std::string>& list, std::string_view value) {
  return std::ranges::any_of(list, [&](const std::string& item) { return item == kAny || iequals(item, value); });
}

std::string joined(const std::vector<std::string>& list) {
  std::string out;
  for (const std::string& item : list) out += (out.empty() ? "" : ", ") + item;
  return out;
}

// The first of "a, b ,c" that is not allowed; empty: all are.
std::string refused_header(const std::vector<std::string>& allowed, std::string_view asked) {
  while (!asked.empty()) {
    const size_t comma = std::min(asked.find(','), asked.size());
    std::string name(asked.substr(0, comma));
    std::erase_if(name, [](char c) { return c == ' ' || c == '\t'; });
    const auto fits = [&](const std::string& item) { return item == kAny || iequals(item, name); };
    if (!name.empty() && std::ranges::none_of(allowed, fits)) return name;
    asked.remove_prefix(std::min(comma + 1, asked.size()));
  }
  return {};
}

std::string refusal_of(const CorsOptions& options, const LocalHosts& local, std::string_view origin,
                       std::string_view method, std::string_view headers) {
  if (!local.allows_origin(origin))
    return fmt::format("requests from pages of {} are refused; allow them with --allowed-origins", shown(origin));
  if (!allows(options.methods, method))
    return fmt::format("pages may not send {} requests; allow them with --allowed-methods", shown(method));
  if (const std::string header = refused_header(options.headers, headers); !header.empty())
    return fmt::format("pages may not send the header {}; allow it with --allowed-headers", shown(header));
  return {};
}

}  // namespace

void check(const CorsOptions& options) {
  if (!options.credentials || !AllowedOrigins(options.origins).any_site()) return;
  throw invalid(
      "--allowed-origins '{}' with --allow-credentials would let every web page use its visitors' cookies; "
      "list the origins",
      fmt::join(options.origins, " "));
}

std::string cors_lines(const CorsOptions& options, const LocalHosts& local, std::string_view origin) {
  if (origin.empty()) return {};
  std::string lines;
  if (local.allows_any_origin()) {
    lines = "Access-Control-Allow-Origin: *\r\n";
  } else {
    lines = "Vary: Origin\r\n";  // caches must not serve one page's answer to another
    if (!local.allows_origin(origin)) return lines;
    lines += "Access-Control-Allow-Origin: " + std::string(origin) + "\r\n";
  }
  if (options.credentials) lines += "Access-Control-Allow-Credentials: true\r\n";
  return lines + "Access-Control-Expose-Headers: X-Request-Id\r\n";
}

std::optional<Preflight> preflight(const CorsOptions& options, const LocalHosts& local, std::string_view origin,
                                   std::string_view method, std::string_view headers) {
  if (origin.empty() || method.empty()) return std::nullopt;
  Preflight answer{.refusal = refusal_of(options, local, origin, method, headers)};
  if (!answer.refusal.empty()) return answer;
  const bool any_method = std::ranges::find(options.methods, kAny) != options.methods.end();
  answer.headers = {{"Access-Control-Allow-Methods", any_method ? "GET, HEAD, POST" : joined(options.methods)},
                    {"Access-Control-Max-Age", "600"}};
  if (!headers.empty()) answer.headers.emplace_back("Access-Control-Allow-Headers", headers);
  return answer;
}

}  // namespace quire
