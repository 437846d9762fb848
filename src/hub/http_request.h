// Requests over HTTP: what a request may do, one request with its answer, and when to try again.
#pragma once

#include <curl/curl.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>

namespace quire {

// What requests may do and carry. Proxies are those of the environment: https_proxy, http_proxy, no_proxy.
struct HttpAccess {
  std::string token = {};         // sent as a bearer token to token_origin, never to another host
  std::string token_origin = {};  // as checked_origin() gives it
  bool allow_http = false;        // not only https (checked_origin)
  // Called ten times a second while a request runs or waits; may throw, which ends the request.
  std::function<void()> check = [] {};
  // Told what delays a request: "HTTP 503 of HOST; trying again in 2 s".
  std::function<void(const std::string&)> note = [](const std::string&) {};
};

struct HttpReply {
  long status = 0;
  std::map<std::string, std::string> headers = {};  // names in lower case
  std::string body = {};
  std::string url = {};  // that answered, after redirects

  std::string header(const std::string& name) const;  // empty: there is none
  bool is_redirect() const;                           // and says where to
};

enum class Redirects : uint8_t {
  kFollow,
  kSameHost,  // stops at a redirect to another host, which is then the reply: its headers describe the file
};

// Follows redirects, and tries again after answers that may pass: 429, 500, 502, 503, 504, a connection that cannot be made or
// is cut. Any other status is returned. Throws Error (kResource) if no answer comes, or if the last one is one of those;
// kInvalid if the body has more than `most` bytes or a redirect is not allowed.
HttpReply http_get(const HttpAccess& access, const std::string& url, const std::string& accept = {},
                   size_t most = size_t{64} << 20);
// The same for the bytes from `begin` up to `end`, of which fewer come if the file ends before. Throws Error (kInvalid), too, if the
// server does not send ranges, but the whole of a larger file.
HttpReply http_get_range(const HttpAccess& access, const std::string& url, uint64_t begin, uint64_t end);
HttpReply http_head(const HttpAccess& access, const std::string& url, Redirects redirects);

// The rest is for transfers of several requests at a time (transfer.h).

// An easy handle with what all requests have in common: protocols, time limits, the token. Its answer goes to `reply`,
// which must outlive it, except for the body.
class HttpHandle {
 public:
  HttpHandle(const HttpAccess& access, const std::string& url, HttpReply& reply);
  ~HttpHandle();
  HttpHandle(const HttpHandle&) = delete;
  HttpHandle& operator=(const HttpHandle&) = delete;

  CURL* get() const { return easy_; }
  void add_header(const std::string& line);  // before the request starts

 private:
  CURL* easy_;
  curl_slist* headers_ = nullptr;
};

// Counts failures in a row, and says how long to wait.
class RetryDelay {
 public:
  // The time before the next try after an answer that may pass. nullopt: it is time to give up. A server that asks for
  // more than a minute (Retry-After) is not waited for.
  std::optional<std::chrono::milliseconds> after_failure(const HttpReply& reply);
  void reset() { failures_ = 0; }  // bytes came

 private:
  int failures_ = 0;
};

bool may_pass(long status);    // 429, 500, 502, 503, 504
bool may_pass(CURLcode code);  // not: a bad certificate, a host without name, ...
// The first byte and the file's size that a Content-Range header names: "bytes 0-99/1234".
std::optional<std::pair<uint64_t, uint64_t>> read_content_range(const std::string& text);
std::string describe_failure(CURLcode code, const HttpReply& reply);  // "HTTP 503 of HOST", "the connection was cut"

}  // namespace quire
