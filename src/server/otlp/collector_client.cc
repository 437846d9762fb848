#include "server/otlp/collector_client.h"

#include <fmt/format.h>
#include <openssl/ssl.h>

#include <algorithm>
#include <boost/asio/as_tuple.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/ssl.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/core/tcp_stream.hpp>
#include <boost/beast/http.hpp>
#include <boost/beast/ssl/ssl_stream.hpp>
#include <charconv>
#include <exception>
#include <mutex>
#include <thread>
#include <utility>

namespace quire {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = boost::beast::http;
using asio::ip::tcp;
using CollectorError = boost::system::error_code;
using PlainStream = beast::tcp_stream;
using SecureStream = beast::ssl_stream<beast::tcp_stream>;

constexpr auto kValues = asio::as_tuple(asio::use_awaitable);  // errors are values
constexpr size_t kMostHead = 16 << 10, kMostBody = 64 << 10;   // bytes of an answer
constexpr std::chrono::seconds kLongestPause{60};

// Only the number of seconds; a date would need the collector's clock to be ours.
std::optional<std::chrono::seconds> retry_after_of(std::string_view header) {
  int seconds = 0;
  const auto [end, error] = std::from_chars(header.data(), header.data() + header.size(), seconds);
  if (error != std::errc() || end != header.data() + header.size() || seconds < 0) return std::nullopt;
  return std::min(std::chrono::seconds(seconds), kLongestPause);
}

}  // namespace

struct CollectorClient::Secure {
  asio::ssl::context context{asio::ssl::context::tls_client};
};

// The resolver of the system cannot be interrupted. So it runs on a thread of its own, which is left behind if it takes too
// long; there is one at most.
struct CollectorClient::Lookup {
  std::mutex mutex;
  bool done = false;
  ResolvedHost addresses;
  std::string failure;
  std::function<void()> wake;  // empty: nobody waits
};

ResolvedHost resolve_host(const std::string& host, const std::string& port) {
  asio::io_context io;
  return tcp::resolver(io).resolve(host, port);
}

CollectorClient::CollectorClient(asio::io_context& io, CollectorUrl url, HeaderList headers,
                                 std::chrono::milliseconds timeout, ResolveHost resolve)
    : io_(io), url_(std::move(url)), headers_(std::move(headers)), timeout_(timeout), resolve_(std::move(resolve)) {
  if (!url_.secure) return;
  secure_ = std::make_unique<Secure>();
  secure_->context.set_default_verify_paths();
  secure_->context.set_verify_mode(asio::ssl::verify_peer);
}
CollectorClient::~CollectorClient() = default;

void CollectorClient::abort() {
  if (abort_) abort_();
}

asio::awaitable<CollectorAnswer> CollectorClient::post(std::string body) {
  if (!secure_) {
    PlainStream stream(io_);
    co_return co_await exchange(stream, std::move(body));
  }
  SecureStream stream(io_, secure_->context);
  co_return co_await exchange(stream, std::move(body));
}

// Returns why it failed; nothing if it did not.
asio::awaitable<std::string> CollectorClient::look_up(ResolvedHost& addresses) {
  const auto timer = std::make_shared<asio::steady_timer>(io_, timeout_);
  if (!lookup_) {
    auto lookup = std::make_shared<Lookup>();
    std::thread([lookup, resolve = resolve_, host = url_.host, port = url_.port] {
      ResolvedHost found;
      std::string failure;
      try {
        found = resolve(host, port);
      } catch (const std::exception& e) {
        failure = e.what();
      }
      const std::lock_guard lock(lookup->mutex);
      lookup->done = true;
      lookup->addresses = std::move(found);
      lookup->failure = std::move(failure);
      if (lookup->wake) lookup->wake();
    }).detach();
    lookup_ = std::move(lookup);
  }
  const auto is_done = [&] {
    const std::lock_guard lock(lookup_->mutex);
    return lookup_->done;
  };
  {
    const std::lock_guard lock(lookup_->mutex);
    lookup_->wake = [this, timer] { asio::post(io_, [timer] { timer->cancel(); }); };
  }
  bool aborted = false;
  abort_ = [&] {
    aborted = true;
    timer->cancel();
  };
  while (!is_done() && !aborted && timer->expiry() > std::chrono::steady_clock::now())
    co_await timer->async_wait(kValues);
  abort_ = nullptr;
  const std::shared_ptr<Lookup> lookup = lookup_;
  const std::lock_guard lock(lookup->mutex);
  lookup->wake = nullptr;
  if (!lookup->done) co_return fmt::format("cannot resolve {}: timed out", url_.host);
  lookup_ = nullptr;  // the next request asks again
  addresses = lookup->addresses;
  co_return lookup->failure.empty() ? "" : fmt::format("cannot resolve {}: {}", url_.host, lookup->failure);
}

// The same.
template <class Stream>
asio::awaitable<std::string> CollectorClient::connect(Stream& stream) {
  auto& lowest = beast::get_lowest_layer(stream);
  ResolvedHost addresses;
  std::string unknown = co_await look_up(addresses);
  if (!unknown.empty()) co_return unknown;
  abort_ = [&lowest] { lowest.close(); };
  lowest.expires_after(timeout_);
  const auto [refused, address] = co_await lowest.async_connect(addresses, kValues);
  if (refused) co_return "cannot connect: " + refused.message();
  if constexpr (std::is_same_v<Stream, SecureStream>) {
    if (SSL_set_tlsext_host_name(stream.native_handle(), url_.host.c_str()) != 1) co_return "cannot begin TLS";
    stream.set_verify_callback(asio::ssl::host_name_verification(url_.host));
    const auto [failed] = co_await stream.async_handshake(asio::ssl::stream_base::client, kValues);
    if (failed) co_return "TLS failed: " + failed.message();
  }
  co_return std::string();
}

template <class Stream>
asio::awaitable<CollectorAnswer> CollectorClient::exchange(Stream& stream, std::string body) {
  struct Reset {
    std::function<void()>& abort;
    ~Reset() { abort = nullptr; }
  };
  const Reset reset{abort_};
  CollectorAnswer answer;
  answer.failure = co_await connect(stream);
  if (!answer.failure.empty()) co_return answer;
  http::request<http::string_body> request(http::verb::post, url_.target, 11);
  request.set(http::field::host, url_.authority);
  request.set(http::field::user_agent, "quire");
  request.set(http::field::content_type, "application/json");
  request.set(http::field::connection, "close");
  for (const auto& [name, value] : headers_) request.set(name, value);
  request.body() = std::move(body);
  request.prepare_payload();
  beast::get_lowest_layer(stream).expires_after(timeout_);  // for all that follows
  const auto [lost, sent] = co_await http::async_write(stream, request, kValues);
  // A collector may refuse a request before it has read all of it; its answer says why.
  beast::flat_buffer buffer;
  http::response_parser<http::string_body> parser;
  parser.header_limit(kMostHead);
  parser.body_limit(kMostBody);
  auto [error, received] = co_await http::async_read(stream, buffer, parser, kValues);
  if (!parser.is_header_done()) {
    const CollectorError why = lost ? lost : error;
    answer.failure = "no answer: " + (why == beast::error::timeout ? std::string("timed out") : why.message());
    co_return answer;
  }
  const auto& response = parser.get();
  answer.status = response.result_int();
  answer.retry_after = retry_after_of(response[http::field::retry_after]);
  if (!error) answer.body = response.body();  // the status counts, even if the rest of the answer is lost
  co_return answer;
}

}  // namespace quire
