#include "server/http/cors.h"

#include <algorithm>
#include <boost/beast/core/string.hpp>

#include "base/error.h"

namespace quire {
namespace {

using boost::beast::iequals;

constexpr std::string_view kAny = "*";

bool allows(const std::vector<std::string>& list, std::string_view value) {
  return std::ranges::any_of(list, [&](const std::string& item) { return item == kAny || item == value; });
}

std::string joined(const std::vector<std::string>& list) {
  std::string out;
  for (const std::string& item : list) out += (out.empty() ? "" : ", ") + item;
  return out;
}

// Whether each of "a, b ,c" is allowed.
bool headers_allowed(const std::vector<std::string>& allowed, std::string_view asked) {
  while (!asked.empty()) {
    const size_t comma = std::min(asked.find(','), asked.size());
    std::string name(asked.substr(0, comma));
    std::erase_if(name, [](char c) { return c == ' ' || c == '\t'; });
    const auto fits = [&](const std::string& item) { return item == kAny || iequals(item, name); };
    if (!name.empty() && std::ranges::none_of(allowed, fits)) return false;
    asked.remove_prefix(std::min(comma + 1, asked.size()));
  }
  return true;
}

}  // namespace

void check(const CorsOptions& options) {
  if (!options.credentials || std::ranges::find(options.origins, kAny) == options.origins.end()) return;
  throw invalid(
      "--allowed-origins '*' with --allow-credentials would let every web page use its visitors' cookies; "
      "list the origins");
}

std::string cors_lines(const CorsOptions& options, std::string_view origin) {
  if (origin.empty() || options.origins.empty()) return {};
  std::string lines;
  if (std::ranges::find(options.origins, kAny) != options.origins.end()) {
    lines = "Access-Control-Allow-Origin: *\r\n";
  } else {
    lines = "Vary: Origin\r\n";  // caches must not serve one page's answer to another
    if (!allows(options.origins, origin)) return lines;
    lines += "Access-Control-Allow-Origin: " + std::string(origin) + "\r\n";
  }
  if (options.credentials) lines += "Access-Control-Allow-Credentials: true\r\n";
  return lines + "Access-Control-Expose-Headers: X-Request-Id\r\n";
}

std::optional<Preflight> preflight(const CorsOptions& options, std::string_view origin, std::string_view method,
                                   std::string_view headers) {
  if (origin.empty() || method.empty() || options.origins.empty()) return std::nullopt;
  Preflight answer{.allowed = allows(options.origins, origin) && allows(options.methods, method) &&
                              headers_allowed(options.headers, headers),
                   .headers = {}};
  if (!answer.allowed) return answer;
  const bool any_method = std::ranges::find(options.methods, kAny) != options.methods.end();
  answer.headers = {{"Access-Control-Allow-Methods", any_method ? "GET, HEAD, POST" : joined(options.methods)},
                    {"Access-Control-Max-Age", "600"}};
  if (!headers.empty()) answer.headers.emplace_back("Access-Control-Allow-Headers", headers);
  return answer;
}

}  // namespace quire
