#include "hub/http_request.h"

#include <fmt/format.h>

#include <algorithm>
#include <cassert>
#include <charconv>
#include <string_view>
#include <thread>

#include "base/error.h"
#include "hub/download_source.h"
#include "hub/http_url.h"

namespace quire {
namespace {

using std::chrono::milliseconds;

constexpr int kMostTries = 6;
constexpr int kMostRedirects = 10;
constexpr milliseconds kFirstDelay{250};  // doubled by each failure: 8 s in all before giving up
constexpr milliseconds kLongestDelay{60'000};
constexpr long kConnectSeconds = 20;
constexpr long kStalledSeconds = 30;  // without a byte

size_t read_header(char* data, size_t size, size_t count, void* to) {
  auto& reply = *static_cast<HttpReply*>(to);
  const std::string_view line(data, size * count);
  if (line.starts_with("HTTP/")) {
    reply.headers.clear();  // of a proxy's answer, or of "100 Continue"
    return line.size();
  }
  const size_t colon = line.find(':');
  if (colon == line.npos || reply.headers.size() >= 200) return line.size();
  std::string_view value = line.substr(colon + 1);
  while (!value.empty() && (value.back() == '\n' || value.back() == '\r' || value.back() == ' '))
    value.remove_suffix(1);
  while (value.starts_with(' ') || value.starts_with('\t')) value.remove_prefix(1);
  reply.headers[in_lower_case(line.substr(0, colon))] = value;
  return line.size();
}

struct Body {
  std::string* text;
  size_t most;
};

size_t read_body(char* data, size_t size, size_t count, void* to) {
  auto& body = *static_cast<Body*>(to);
  if (body.text->size() + size * count > body.most) return 0;  // ends the request: CURLE_WRITE_ERROR
  body.text->append(data, size * count);
  return size * count;
}

void wait(const HttpAccess& access, milliseconds time) {
  const auto end = std::chrono::steady_clock::now() + time;
  while (std::chrono::steady_clock::now() < end) {
    access.check();
    std::this_thread::sleep_for(std::min(time, milliseconds(100)));
  }
}

// Runs one request.
CURLcode perform(const HttpAccess& access, CURL* easy) {
  const std::unique_ptr<CURLM, CURLMcode (*)(CURLM*)> multi(curl_multi_init(), curl_multi_cleanup);
  curl_multi_add_handle(multi.get(), easy);
  struct Removing {
    CURLM* multi;
    CURL* easy;
    ~Removing() { curl_multi_remove_handle(multi, easy); }
  } removing{multi.get(), easy};
  while (true) {
    access.check();
    int running = 0, left = 0;
    curl_multi_perform(multi.get(), &running);
    if (const CURLMsg* message = curl_multi_info_read(multi.get(), &left); message && message->msg == CURLMSG_DONE)
      return message->data.result;
    curl_multi_poll(multi.get(), nullptr, 0, 100, nullptr);
  }
}

// range: "0-99"; empty: the whole.
HttpReply request(const HttpAccess& access, std::string url, const std::string& accept, size_t most, bool is_head,
                  Redirects redirects, const std::string& range = {}) {
  RetryDelay delay;
  int redirected = 0;
  while (true) {
    HttpReply reply;
    Body body{&reply.body, most};
    CURLcode code;
    {
      HttpHandle handle(access, url, reply);
      if (!accept.empty()) handle.add_header("Accept: " + accept);
      if (!range.empty()) {
        handle.add_header("Accept-Encoding: identity");
        curl_easy_setopt(handle.get(), CURLOPT_RANGE, range.c_str());
      }
      if (is_head) curl_easy_setopt(handle.get(), CURLOPT_NOBODY, 1L);
      curl_easy_setopt(handle.get(), CURLOPT_WRITEFUNCTION, read_body);
      curl_easy_setopt(handle.get(), CURLOPT_WRITEDATA, &body);
      code = perform(access, handle.get());
      curl_easy_getinfo(handle.get(), CURLINFO_RESPONSE_CODE, &reply.status);
    }
    reply.url = url;
    if (code == CURLE_WRITE_ERROR && !range.empty())
      throw invalid("{} does not send parts of files (Range); download the whole model with `quire pull`",
                    shown_url(url));
    if (code == CURLE_WRITE_ERROR) throw invalid("the answer of {} has more than {} bytes", shown_url(url), most);
    if (code == CURLE_OK && reply.is_redirect()) {
      std::string next = redirected_url(url, reply.header("location"), access.allow_http);
      const bool leaves = checked_origin(next, true) != checked_origin(url, true);
      if (leaves && redirects == Redirects::kSameHost) return reply;
      if (++redirected > kMostRedirects)
        throw invalid("{} redirects more than {} times", shown_url(url), kMostRedirects);
      url = std::move(next);
      continue;
    }
    if (code == CURLE_OK && !may_pass(reply.status)) return reply;
    if (code != CURLE_OK && !may_pass(code)) throw no_resource("{}", describe_failure(code, reply));
    const auto time = delay.after_failure(reply);
    if (!time) throw no_resource("{}; gave up after {} tries", describe_failure(code, reply), kMostTries);
    access.note(fmt::format("{}; trying again in {:.1f} s", describe_failure(code, reply),
                            static_cast<double>(time->count()) / 1e3));
    wait(access, *time);
  }
}

// libcurl is initialised once, and never cleaned up: another thread might still use it.
void initialise_curl() { [[maybe_unused]] static const CURLcode code = curl_global_init(CURL_GLOBAL_DEFAULT); }

}  // namespace

std::string HttpReply::header(const std::string& name) const {
  const auto found = headers.find(name);
  return found == headers.end() ? "" : found->second;
}

bool HttpReply::is_redirect() const {
  return (status == 301 || status == 302 || status == 303 || status == 307 || status == 308) &&
         headers.contains("location");
}

HttpReply http_get(const HttpAccess& access, const std::string& url, const std::string& accept, size_t most) {
  return request(access, url, accept, most, false, Redirects::kFollow);
}

HttpReply http_get_range(const HttpAccess& access, const std::string& url, uint64_t begin, uint64_t end) {
  assert(begin < end);
  return request(access, url, {}, end - begin, false, Redirects::kFollow, fmt::format("{}-{}", begin, end - 1));
}

HttpReply http_head(const HttpAccess& access, const std::string& url, Redirects redirects) {
  return request(access, url, {}, 0, true, redirects);
}

HttpHandle::HttpHandle(const HttpAccess& access, const std::string& url, HttpReply& reply) : easy_(nullptr) {
  const std::string origin = checked_origin(url, access.allow_http);
  initialise_curl();
  easy_ = curl_easy_init();
  if (!easy_) throw no_resource("libcurl cannot be initialised");
  reply.url = url;
  const auto set = [this](CURLoption option, auto value) { curl_easy_setopt(easy_, option, value); };
  set(CURLOPT_URL, url.c_str());
  set(CURLOPT_PROTOCOLS_STR, "http,https");
  set(CURLOPT_FOLLOWLOCATION, 0L);  // ours: each redirect is checked, and may not take the token along
  // One connection for each range: HTTP/2 would send all of them over one, at the rate of one.
  set(CURLOPT_HTTP_VERSION, static_cast<long>(CURL_HTTP_VERSION_1_1));
  set(CURLOPT_BUFFERSIZE, 256L << 10);
  set(CURLOPT_NOSIGNAL, 1L);
  set(CURLOPT_QUICK_EXIT, 1L);  // a request that ends early does not wait for the lookup of its host
  set(CURLOPT_CONNECTTIMEOUT, kConnectSeconds);
  set(CURLOPT_LOW_SPEED_LIMIT, 1L);
  set(CURLOPT_LOW_SPEED_TIME, kStalledSeconds);
  set(CURLOPT_USERAGENT, "quire/" QUIRE_VERSION);
  set(CURLOPT_HEADERFUNCTION, read_header);
  set(CURLOPT_HEADERDATA, &reply);
  set(CURLOPT_NETRC, static_cast<long>(CURL_NETRC_IGNORED));
  // libcurl leaves this variable, which OpenSSL and other programs read, to its callers.
  if (const char* certificates = std::getenv("SSL_CERT_FILE"); certificates && *certificates)
    set(CURLOPT_CAINFO, certificates);
  if (!access.token.empty() && origin == access.token_origin) add_header("Authorization: Bearer " + access.token);
}

HttpHandle::~HttpHandle() {
  curl_easy_cleanup(easy_);
  curl_slist_free_all(headers_);
}

void HttpHandle::add_header(const std::string& line) {
  headers_ = curl_slist_append(headers_, line.c_str());
  curl_easy_setopt(easy_, CURLOPT_HTTPHEADER, headers_);
}

std::optional<milliseconds> RetryDelay::after_failure(const HttpReply& reply) {
  if (++failures_ >= kMostTries) return std::nullopt;
  milliseconds delay = kFirstDelay * (1 << (failures_ - 1));
  const std::string wanted = reply.header("retry-after");
  int seconds = 0;
  const auto [end, error] = std::from_chars(wanted.data(), wanted.data() + wanted.size(), seconds);
  if (error == std::errc() && end == wanted.data() + wanted.size() && seconds >= 0)
    delay = std::max<milliseconds>(delay, std::chrono::seconds(std::min(seconds, 1'000'000)));
  if (delay > kLongestDelay) return std::nullopt;
  return delay;
}

bool may_pass(long status) { return status == 429 || status == 500 || status == 502 || status == 503 || status == 504; }

bool may_pass(CURLcode code) {
  switch (code) {
    case CURLE_COULDNT_CONNECT:
    case CURLE_OPERATION_TIMEDOUT:
    case CURLE_PARTIAL_FILE:
    case CURLE_GOT_NOTHING:
    case CURLE_SEND_ERROR:
    case CURLE_RECV_ERROR:
    case CURLE_HTTP2:
    case CURLE_HTTP2_STREAM:
    case CURLE_SSL_CONNECT_ERROR:
      return true;
    default:
      return false;
  }
}

std::optional<std::pair<uint64_t, uint64_t>> read_content_range(const std::string& text) {
  uint64_t begin = 0, end = 0, size = 0;
  const char* at = text.c_str();
  const char* const last = at + text.size();
  if (!text.starts_with("bytes ")) return std::nullopt;
  const auto number = [&](uint64_t& value, char after) {
    const auto [next, error] = std::from_chars(at, last, value);
    at = next;
    return error == std::errc() && (after == 0 ? at == last : at != last && *at++ == after);
  };
  at += 6;
  if (!number(begin, '-') || !number(end, '/') || !number(size, 0)) return std::nullopt;
  return std::pair(begin, size);
}

std::string describe_failure(CURLcode code, const HttpReply& reply) {
  const std::string url = shown_url(reply.url);
  if (code != CURLE_OK) return fmt::format("no answer from {}: {}", url, curl_easy_strerror(code));
  const std::string wanted = reply.header("retry-after");
  if (reply.status == 429) {
    return fmt::format("too many requests: HTTP 429 of {}{}", url,
                       wanted.empty() ? "" : fmt::format(", which asks to wait {} s", wanted));
  }
  return fmt::format("HTTP {} of {}", reply.status, url);
}

}  // namespace quire
