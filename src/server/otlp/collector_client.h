// Sends bodies to a collector over HTTP or HTTPS.
#pragma once

#include <boost/asio/awaitable.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "server/otlp/collector_url.h"

namespace quire {

// What became of a request.
struct CollectorAnswer {
  int status = 0;       // HTTP; 0: there was no answer
  std::string failure;  // why not
  std::optional<std::chrono::seconds> retry_after;
  std::string body;  // its beginning
};

// The addresses of a host and a port, which may take long; throws boost::system::system_error.
using ResolvedHost = boost::asio::ip::tcp::resolver::results_type;
using ResolveHost = std::function<ResolvedHost(const std::string& host, const std::string& port)>;
ResolvedHost resolve_host(const std::string& host, const std::string& port);  // as the system does

// Lives on the thread of `io`. A new connection for each request: they are a second apart.
class CollectorClient {
 public:
  // HTTPS trusts the system's certificates, or those that SSL_CERT_FILE and SSL_CERT_DIR name.
  CollectorClient(boost::asio::io_context& io, CollectorUrl url, HeaderList headers, std::chrono::milliseconds timeout,
                  ResolveHost resolve = resolve_host);
  ~CollectorClient();

  // POSTs JSON. At most one at a time.
  boost::asio::awaitable<CollectorAnswer> post(std::string body);
  // Ends the request under way; its answer is a failure.
  void abort();

 private:
  struct Secure;  // what only HTTPS needs
  struct Lookup;
  boost::asio::awaitable<std::string> look_up(ResolvedHost& addresses);
  template <class Stream>
  boost::asio::awaitable<CollectorAnswer> exchange(Stream& stream, std::string body);
  template <class Stream>
  boost::asio::awaitable<std::string> connect(Stream& stream);

  boost::asio::io_context& io_;
  const CollectorUrl url_;
  const HeaderList headers_;
  const std::chrono::milliseconds timeout_;
  const ResolveHost resolve_;
  std::shared_ptr<Lookup> lookup_;  // under way, perhaps since an earlier request
  std::unique_ptr<Secure> secure_;  // nullptr: HTTP
  std::function<void()> abort_;     // empty: nothing is under way
};

}  // namespace quire
