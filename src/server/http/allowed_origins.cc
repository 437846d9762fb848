#include "server/http/allowed_origins.h"

#include <algorithm>
#include <boost/asio/ip/address_v6.hpp>
#include <charconv>
#include <optional>

#include "base/error.h"
#include "base/text/quote.h"

namespace quire {
namespace {

constexpr std::string_view kStar = "*", kAfterScheme = "://";

std::string lower_case(std::string_view text) {
  std::string out(text);
  for (char& c : out) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c;
  return out;
}

bool is_letter_or_digit(char c) { return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9'); }

// Without the port that the scheme has anyway.
std::string port_of(std::string_view scheme, std::string_view port) {
  const bool usual = (scheme == "http" && port == "80") || (scheme == "https" && port == "443");
  return usual ? std::string() : std::string(port);
}

// "host:port", where an IPv6 address has brackets.
struct Authority {
  std::string_view host;
  std::optional<std::string_view> port;
};
Authority split_authority(std::string_view text) {
  const size_t bracket = text.starts_with('[') ? std::min(text.find(']'), text.size()) : 0;
  const size_t colon = text.find(':', bracket);
  if (colon == text.npos) return {text, std::nullopt};
  return {text.substr(0, colon), text.substr(colon + 1)};
}

// Each * of the pattern stands for any characters, or none. Takes time in proportion to both lengths, because the label
// is a stranger's: only the last * can have to take more.
bool fits_label(std::string_view pattern, std::string_view label) {
  size_t p = 0, at = 0, star = pattern.npos, taken = 0;
  while (at < label.size()) {
    if (p < pattern.size() && pattern[p] == '*') {
      star = p++;
      taken = at;
    } else if (p < pattern.size() && pattern[p] == label[at]) {
      ++p;
      ++at;
    } else if (star != pattern.npos) {
      p = star + 1;
      at = ++taken;
    } else {
      return false;
    }
  }
  return pattern.find_first_not_of('*', p) == pattern.npos;
}

std::string_view take_last_label(std::string_view& host) {
  const size_t dot = host.rfind('.');
  const std::string_view label = dot == host.npos ? host : host.substr(dot + 1);
  host = dot == host.npos ? std::string_view() : host.substr(0, dot);
  return label;
}

// Compares labels from the last one on; a * as the first label stands for one or more.
bool fits_host(std::string_view pattern, std::string_view host) {
  if (pattern == kStar || pattern == host) return true;
  if (pattern.find('*') == pattern.npos) return false;
  while (!pattern.empty() && !host.empty()) {
    if (pattern == kStar) return true;
    if (!fits_label(take_last_label(pattern), take_last_label(host))) return false;
  }
  return pattern.empty() && host.empty();
}

template <class... Args>
Error refused(const std::string& text, fmt::format_string<Args...> format, Args&&... args) {
  return invalid("--allowed-origins {}: {}", quote(text), fmt::format(format, std::forward<Args>(args)...));
}

// As browsers write it: [::1]
std::string canonical_ipv6(std::string_view bracketed) {
  boost::system::error_code error;
  const std::string inside(bracketed.substr(1, bracketed.size() - 2));
  const auto address = boost::asio::ip::make_address_v6(inside, error);
  return error ? std::string() : "[" + address.to_string() + "]";
}

void check_scheme(const std::string& text, std::string_view scheme) {
  const bool right = scheme == kStar || (!scheme.empty() && std::ranges::all_of(scheme, [](char c) {
                       return is_letter_or_digit(c) || c == '+' || c == '-' || c == '.';
                     }));
  if (!right) throw refused(text, "{} is not a scheme, such as https", quote(scheme));
}

std::string checked_host(const std::string& text, std::string_view scheme, std::string_view host) {
  if (host.empty() && scheme != "file")
    throw refused(text, "it names no host; {}://* allows all pages of the scheme", scheme);
  if (host.starts_with('[')) {
    std::string address = host.ends_with(']') ? canonical_ipv6(host) : std::string();
    if (address.empty()) throw refused(text, "{} is not an IPv6 address", quote(host));
    return address;
  }
  for (const char c : host) {
    if (is_letter_or_digit(c) || c == '-' || c == '.' || c == '_' || c == '*') continue;
    if (static_cast<unsigned char>(c) >= 0x80)
      throw refused(text, "browsers send international names in their ASCII form; write it as xn--...");
    throw refused(text, "a host has no {}; a pattern is a host with * for any letters", quote(std::string_view(&c, 1)));
  }
  return std::string(host);
}

void check_port(const std::string& text, std::string_view port) {
  int number = 0;
  const auto [end, error] = std::from_chars(port.data(), port.data() + port.size(), number);
  const bool right = error == std::errc() && end == port.data() + port.size() && number >= 1 && number <= 65535;
  if (port != kStar && !right)
    throw refused(text, "{} is not a port; use a number from 1 to 65535, or * for all ports", quote(port));
}

}  // namespace

AllowedOrigins::Pattern AllowedOrigins::parse(const std::string& text) {
  const std::string low = lower_case(text);
  const size_t end = low.find(kAfterScheme);
  if (end == low.npos) {
    const bool local = low.starts_with("localhost") || low.starts_with("127.");
    throw refused(text, "an origin begins with a scheme, as in {}://{}", local ? "http" : "https",
                  low.empty() ? "chat.example.org" : low);
  }
  const std::string_view scheme = std::string_view(low).substr(0, end);
  std::string_view rest = std::string_view(low).substr(end + kAfterScheme.size());
  const std::string_view site = rest.substr(0, rest.find_first_of("/?#"));
  rest.remove_prefix(site.size());
  if (!rest.empty() && rest != "/" && rest != "/*")
    throw refused(text, "an origin has no path; leave out {}, because all pages of a site are one origin", quote(rest));
  if (site.find('@') != site.npos) throw refused(text, "an origin has no user; leave it out");
  check_scheme(text, scheme);
  const auto [host, port] = split_authority(site);
  if (port) check_port(text, *port);
  Pattern pattern{std::string(scheme), checked_host(text, scheme, host), port_of(scheme, port.value_or(""))};
  if (pattern.host == kStar && !port) pattern.port = kStar;
  return pattern;
}

AllowedOrigins::AllowedOrigins(const std::vector<std::string>& patterns) {
  for (const std::string& text : patterns) {
    const std::string low = lower_case(text);
    if (low == kStar) {
      any_ = true;
    } else if (low == "null") {
      null_ = true;
    } else {
      patterns_.push_back(parse(text));
    }
  }
}

bool AllowedOrigins::allows(std::string_view origin) const {
  if (any_ || origin == "null") return any_ || null_;
  const std::string low = lower_case(origin);
  const size_t end = low.find(kAfterScheme);
  if (end == low.npos) return false;
  const std::string_view scheme = std::string_view(low).substr(0, end);
  const auto [host, given_port] = split_authority(std::string_view(low).substr(end + kAfterScheme.size()));
  const std::string port = port_of(scheme, given_port.value_or(""));
  return std::ranges::any_of(patterns_, [&, host = host](const Pattern& p) {
    return (p.scheme == kStar || p.scheme == scheme) && fits_host(p.host, host) && (p.port == kStar || p.port == port);
  });
}

bool AllowedOrigins::is_of_web(const Pattern& p) {
  return p.scheme == "http" || p.scheme == "https" || p.scheme == kStar;
}

bool AllowedOrigins::any_site() const {
  return any_ || std::ranges::any_of(patterns_, [](const Pattern& p) { return is_of_web(p) && p.host == kStar; });
}

bool AllowedOrigins::allows_host(std::string_view name) const {
  if (any_) return true;
  const std::string bracketed = "[" + std::string(name) + "]";  // how an IPv6 address stands in a pattern
  return std::ranges::any_of(patterns_, [&](const Pattern& p) {
    return is_of_web(p) && !name.empty() && (fits_host(p.host, name) || p.host == bracketed);
  });
}

}  // namespace quire
