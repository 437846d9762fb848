// Sends streaming requests to an OpenAI-compatible server and times the answers.
#pragma once

#include <boost/asio/awaitable.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/beast/core/tcp_stream.hpp>
#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "load/request_record.h"

namespace quire {

struct ServerUrl {
  std::string host, port;
  std::string path;       // prefix of all endpoints: "/v1"
  std::string authority;  // host and port as written in the URL, for the Host header
};

// "http://HOST[:PORT][/PATH]". Throws Error; https is not supported.
ServerUrl parse_server_url(const std::string& url);

class LoadClient {
 public:
  using Clock = std::chrono::steady_clock;

  // `timeout` is per request. An empty api_key sends no Authorization header. Throws Error if the host is unknown.
  LoadClient(boost::asio::io_context& io, ServerUrl url, std::string api_key, Clock::duration timeout);

  // The name of the first model that the server lists. Throws Error if the server does not answer or lists none.
  boost::asio::awaitable<std::string> first_model();

  // POSTs `body`, which must ask for a stream, and fills in the times (since `start`), tokens and failure of `record`.
  // Replaces a kept-alive connection that turns out to be closed.
  boost::asio::awaitable<void> complete(const std::string& endpoint, const std::string& body, Clock::time_point start,
                                        RequestRecord& record);

 private:
  using Stream = boost::beast::tcp_stream;
  class Answer;

  // False if the connection closes before the first byte of an answer: a kept connection may have been closed earlier.
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
