#include "server/otlp/collector_url.h"

#include <algorithm>
#include <cctype>
#include <charconv>

#include "base/error.h"
#include "base/text/percent.h"
#include "base/text/quote.h"

namespace quire {
namespace {

constexpr std::string_view kForm = "use http://HOST:4318/v1/traces, or https://";

bool is_target_character(char c) { return c > 0x20 && c < 0x7f && c != '"' && c != '<' && c != '>' && c != '\\'; }

bool is_token(std::string_view name) {
  constexpr std::string_view kMarks = "!#$%&'*+-.^_`|~";
  return !name.empty() && std::ranges::all_of(name, [&](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) || kMarks.find(c) != kMarks.npos;
  });
}

std::string_view without_spaces(std::string_view text) {
  while (!text.empty() && text.front() == ' ') text.remove_prefix(1);
  while (!text.empty() && text.back() == ' ') text.remove_suffix(1);
  return text;
}

}  // namespace

CollectorUrl parse_collector_url(std::string_view url) {
  constexpr std::string_view kHttp = "http://", kHttps = "https://";
  CollectorUrl out;
  std::string_view rest = url;
  if (rest.starts_with(kHttps)) {
    out.secure = true;
    rest.remove_prefix(kHttps.size());
  } else if (rest.starts_with(kHttp)) {
    rest.remove_prefix(kHttp.size());
  } else {
    throw invalid("{} is not supported, only http and https: {} (gRPC is not supported)", quote(url), kForm);
  }
  if (!std::ranges::all_of(rest, is_target_character))
    throw invalid("{} has a character that URLs cannot have", quote(url));
  if (rest.find('#') != rest.npos) throw invalid("{} has a fragment, which cannot be sent; {}", quote(url), kForm);
  const size_t slash = std::min(rest.find_first_of("/?"), rest.size());
  const std::string_view authority = rest.substr(0, slash);
  const std::string_view target = rest.substr(slash);
  if (authority.find('@') != authority.npos)
    throw invalid("{} has a user name or password; send them as a header with --otlp-headers", quote(url));
  out.authority = authority;
  out.host = authority;
  out.port = out.secure ? "443" : "80";
  const size_t colon = authority.rfind(':');
  if (colon != authority.npos && authority.find(']', colon) == authority.npos) {
    out.host = authority.substr(0, colon);
    out.port = authority.substr(colon + 1);
  }
  const bool bracketed = out.host.starts_with('[') && out.host.ends_with(']');
  if (bracketed) out.host = out.host.substr(1, out.host.size() - 2);
  uint16_t port = 0;
  const char* const end = out.port.data() + out.port.size();
  const auto [last, error] = std::from_chars(out.port.data(), end, port);
  if (error != std::errc() || last != end || port == 0)
    throw invalid("{} has the port {}; ports are numbers from 1 to 65535", quote(url), quote(out.port));
  if (out.host.empty() || (!bracketed && out.host.find_first_of("[]:") != out.host.npos))
    throw invalid("{} names no host; {}", quote(url), kForm);
  out.target = target.empty() || target == "/" ? "/v1/traces" : std::string(target);
  if (out.target.front() == '?') out.target.insert(0, "/");
  return out;
}

HeaderList parse_collector_headers(std::string_view list) {
  HeaderList headers;
  for (size_t at = 0; at < list.size();) {
    const size_t comma = std::min(list.find(',', at), list.size());
    const std::string_view item = without_spaces(list.substr(at, comma - at));
    at = comma + 1;
    if (item.empty()) continue;
    const size_t equals = item.find('=');
    const std::string_view name = without_spaces(item.substr(0, equals));
    if (equals == item.npos || !is_token(name))
      throw invalid("headers must have the form NAME=VALUE,NAME=VALUE; one of them has no name or no value");
    std::string text = percent_decoded(without_spaces(item.substr(equals + 1)));
    if (!std::ranges::all_of(text, [](char c) { return c >= 0x20 && c < 0x7f; }))
      throw invalid("the header {} has a value that is not printable ASCII", quote(name));
    headers.emplace_back(name, std::move(text));
  }
  return headers;
}

}  // namespace quire
