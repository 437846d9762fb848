#include "server/http/local_hosts.h"

#include <algorithm>
#include <boost/asio/ip/address.hpp>

namespace quire {
namespace {

std::string lower(std::string_view text) {
  std::string out(text);
  for (char& c : out) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c;
  return out;
}

// "localhost" of "LocalHost.:8080", "::1" of "[::1]:8080".
std::string name_of(std::string_view host) {
  if (host.starts_with('[')) return lower(host.substr(1, std::min(host.find(']'), host.size()) - 1));
  host = host.substr(0, host.find(':'));
  if (host.ends_with('.')) host.remove_suffix(1);
  return lower(host);
}

std::string_view host_of_origin(std::string_view origin) {
  const size_t scheme = origin.find("://");
  return scheme == origin.npos ? std::string_view() : origin.substr(scheme + 3);
}

bool is_loopback(const std::string& name) {
  if (name == "localhost" || name.ends_with(".localhost")) return true;
  boost::system::error_code error;
  const auto address = boost::asio::ip::make_address(name, error);
  return !error && address.is_loopback();
}

}  // namespace

LocalHosts::LocalHosts(const std::vector<std::string>& hosts, const std::vector<std::string>& allowed_origins)
    : allowed_(allowed_origins) {
  for (const std::string& host : hosts) names_.push_back(lower(host));
}

bool LocalHosts::is_own(std::string_view host) const {
  const std::string name = name_of(host);
  return is_loopback(name) || (!name.empty() && std::ranges::find(names_, name) != names_.end());
}

bool LocalHosts::allows_host(std::string_view host) const {
  return host.empty() || is_own(host) || allowed_.allows_host(name_of(host));
}

bool LocalHosts::allows_origin(std::string_view origin) const {
  return origin.empty() || allowed_.allows(origin) || is_own(host_of_origin(origin));
}

}  // namespace quire
