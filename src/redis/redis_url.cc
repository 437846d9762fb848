#include "redis/redis_url.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cstdint>

#include "base/error.h"
#include "base/text/percent.h"

namespace quire {
namespace {

// Messages quote nothing: in a URL with a mistake, anything may be the password.
constexpr std::string_view kPlain = "redis://", kTls = "rediss://";
constexpr std::string_view kUrlForm = "use redis://HOST:PORT/DATABASE, or rediss:// for TLS";
constexpr int kMostDatabase = 1 << 20;

template <class Number>
bool parse_number(std::string_view digits, Number& number) {
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), number);
  return error == std::errc() && end == digits.data() + digits.size();
}

}  // namespace

bool is_redis_url(std::string_view text) { return text.starts_with(kPlain) || text.starts_with(kTls); }

RedisUrl parse_redis_url(std::string_view text) {
  RedisUrl url;
  url.tls = text.starts_with(kTls);
  std::string_view rest = text.substr((url.tls ? kTls : kPlain).size());
  if (const size_t at = rest.rfind('@'); at != rest.npos) {
    const std::string_view login = rest.substr(0, at);
    rest.remove_prefix(at + 1);
    const size_t colon = login.find(':');
    if (colon == login.npos)
      throw invalid(
          "the Redis URL has a user but no password; write USER:PASSWORD@HOST, or :PASSWORD@HOST without a user");
    url.user = percent_decoded(login.substr(0, colon));
    url.password = percent_decoded(login.substr(colon + 1));
  }
  const size_t slash = std::min(rest.find('/'), rest.size());
  std::string_view authority = rest.substr(0, slash), database = rest.substr(slash);
  if (database.size() > 1 &&
      (!parse_number(database.substr(1), url.database) || url.database < 0 || url.database > kMostDatabase))
    throw invalid("the Redis URL has a database that is not a number from 0; {}", kUrlForm);
  const size_t colon = authority.rfind(':');
  if (colon != authority.npos && authority.find(']', colon) == authority.npos) {
    url.port = authority.substr(colon + 1);
    authority = authority.substr(0, colon);
  }
  uint16_t port = 0;
  if (!parse_number(std::string_view(url.port), port) || port == 0)
    throw invalid("the Redis URL has a port that is not a number from 1 to 65535; {}", kUrlForm);
  const bool bracketed = authority.starts_with('[') && authority.ends_with(']');
  if (bracketed) authority = authority.substr(1, authority.size() - 2);
  const auto is_of_host = [&](char c) {
    return bracketed ? std::isxdigit(static_cast<unsigned char>(c)) || c == ':' || c == '.' || c == '%'
                     : c > ' ' && c < 0x7f && c != '[' && c != ']' && c != ':';
  };
  if (authority.empty() || !std::ranges::all_of(authority, is_of_host))
    throw invalid("the Redis URL has no host name; {}", kUrlForm);
  url.host = authority;
  return url;
}

std::string public_text(const RedisUrl& url) {
  const bool bracketed = url.host.find(':') != url.host.npos;
  return fmt::format("{}{}{}{}:{}/{}", url.tls ? kTls : kPlain, bracketed ? "[" : "", url.host, bracketed ? "]" : "",
                     url.port, url.database);
}

}  // namespace quire
