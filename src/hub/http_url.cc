#include "hub/http_url.h"

#include <arpa/inet.h>
#include <curl/curl.h>
#include <fmt/format.h>

#include <memory>

#include "base/error.h"
#include "base/text/quote.h"
#include "hub/download_source.h"

namespace quire {
namespace {

using UrlHandle = std::unique_ptr<CURLU, void (*)(CURLU*)>;

UrlHandle read_url(const std::string& url) {
  UrlHandle handle(curl_url(), curl_url_cleanup);
  if (curl_url_set(handle.get(), CURLUPART_URL, url.c_str(), CURLU_NON_SUPPORT_SCHEME) != CURLUE_OK)
    throw invalid("{} is not a URL", quote(shown_url(url)));
  return handle;
}

std::string part_of(const UrlHandle& handle, CURLUPart part, unsigned flags = 0) {
  char* text = nullptr;
  if (curl_url_get(handle.get(), part, &text, flags) != CURLUE_OK) return "";
  const std::string copy = text;
  curl_free(text);
  return copy;
}

bool is_this_machine(const std::string& host) {
  in_addr address{};
  return host == "localhost" || host == "[::1]" ||
         (host.starts_with("127.") && ::inet_pton(AF_INET, host.c_str(), &address) == 1);
}

}  // namespace

std::string checked_origin(const std::string& url, bool allow_http) {
  const UrlHandle handle = read_url(url);
  const std::string scheme = in_lower_case(part_of(handle, CURLUPART_SCHEME));
  const std::string host = in_lower_case(part_of(handle, CURLUPART_HOST));
  if (host.empty() || (scheme != "https" && scheme != "http"))
    throw invalid("{} cannot be downloaded; only https URLs can", quote(shown_url(url)));
  if (scheme == "http" && !allow_http && !is_this_machine(host)) {
    throw invalid(
        "{} is not encrypted, so anyone on the way could change the model; use https, or set QUIRE_ALLOW_HTTP=1 for a "
        "network that you trust",
        quote(shown_url(url)));
  }
  return fmt::format("{}://{}:{}", scheme, host, part_of(handle, CURLUPART_PORT, CURLU_DEFAULT_PORT));
}

std::string redirected_url(const std::string& base, const std::string& location, bool allow_http) {
  const UrlHandle handle = read_url(base);
  if (location.empty() ||
      curl_url_set(handle.get(), CURLUPART_URL, location.c_str(), CURLU_NON_SUPPORT_SCHEME) != CURLUE_OK)
    throw invalid("{} redirects to {}, which is not a URL", shown_url(base), quote(shown_url(location)));
  std::string url = part_of(handle, CURLUPART_URL);
  checked_origin(url, allow_http);
  if (base.starts_with("https:") && !url.starts_with("https:"))
    throw invalid("{} redirects to {}, which is not encrypted; nothing was downloaded from there", shown_url(base),
                  quote(shown_url(url)));
  return url;
}

std::string escape_path(std::string_view text, bool keep_slashes) {
  std::string escaped;
  for (const char c : text) {
    const bool is_plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
                          c == '.' || c == '_' || c == '~' || (keep_slashes && c == '/');
    escaped += is_plain ? std::string(1, c) : fmt::format("%{:02X}", static_cast<unsigned char>(c));
  }
  return escaped;
}

std::string shown_url(std::string_view url) { return std::string(url.substr(0, url.find('?'))); }

}  // namespace quire
