// Streaming requests to an OpenAI-compatible server, timed.
#pragma once

#include <boost/asio/awaitable.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/beast/core/tcp_stream.hpp>
#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "load/report.h"

namespace quire {

// "http://host:port/v1": the path that endpoints are appended to.
struct ServerUrl {
  std::string host, port, path;
  std::string authority;  // host and port as they were written: the Host header
};

// Throws Error; https is not supported.
ServerUrl parse_server_url(const std::string& url);

class LoadClient {
 public:
  using Clock = std::chrono::steady_clock;

  // Every request may take `timeout`. An empty api_key sends no Authorization.
  LoadClient(boost::asio::io_context& io, ServerUrl url, std::string api_key, Clock::duration timeout);

  // The name of the first model that the server lists. Throws Error when it cannot be asked.
  boost::asio::awaitable<std::string> first_model();

  // POSTs `body`, which asks for a stream, and fills in `sent`, `finished`, `pieces`, the tokens and the failure of
  // `record`; times count from `start`. A connection that was kept alive and turns out closed is replaced once.
  boost::asio::awaitable<void> complete(const std::string& endpoint, const std::string& body, Clock::time_point start,
                                        RequestRecord& record);

 private:
  using Stream = boost::beast::tcp_stream;
  class Answer;

  // False when the connection ends before any byte of an answer: a kept connection may have been closed by then.
  boost::asio::awaitable<bool> exchange(Stream& stream, const std::string& endpoint, const std::string& body,
                                        Answer& answer, bool& keep);

  boost::asio::io_context& io_;
  const ServerUrl url_;
  const std::string api_key_;
  const Clock::duration timeout_;
  boost::asio::ip::tcp::resolver::results_type addresses_;
  std::vector<std::unique_ptr<Stream>> idle_;  // kept alive
};

}  // namespace quire
