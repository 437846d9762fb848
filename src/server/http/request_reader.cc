#include "server/http/request_reader.h"

#include <fmt/format.h>

#include <boost/asio/use_awaitable.hpp>
#include <boost/beast/http/error.hpp>

#include "server/http/connection_context.h"

namespace quire {
namespace {

namespace asio = boost::asio;
namespace http = boost::beast::http;
using boost::beast::iequals;

// The line of a chunk's size: the CRLF that ends the chunk before, 16 digits, CRLF. Longer ones have extensions.
constexpr size_t kChunkLineBytes = 20;
constexpr std::string_view kContinue = "HTTP/1.1 100 Continue\r\n\r\n";

double seconds(std::chrono::milliseconds time) { return std::chrono::duration<double>(time).count(); }

ApiError not_http(const boost::beast::error_code& error) {
  return {400, fmt::format("this is not HTTP/1.1: {}", error.message())};
}

}  // namespace

RequestReader::RequestReader(Channel& channel, const ServerOptions& options) : channel_(channel), options_(options) {
  parser_.header_limit(static_cast<uint32_t>(options.max_header_bytes));
  parser_.body_limit(options.max_body_bytes);
}

asio::awaitable<RequestReader::Outcome> RequestReader::read_header() {
  const auto deadline = Channel::Clock::now() + options_.header_timeout;
  for (ErrorCode error; !parser_.is_header_done();) {
    const size_t used = parser_.put(channel_.input().data(), error);
    channel_.input().consume(used);
    header_bytes_ += used;
    if (error == http::error::need_more && !parser_.is_header_done()) {
      const Channel::Wait read = co_await channel_.read_more(deadline);
      if (read == Channel::Wait::kTimeout) co_return timed_out("header", options_.header_timeout);
      if (read == Channel::Wait::kGone) co_return Outcome::kGone;
    } else if (error && error != http::error::need_more) {
      header_known_ = error == http::error::body_limit;
      co_return refuse(*header_refusal(error));
    }
  }
  header_known_ = true;
  if (std::optional<ApiError> error = wrong_header()) co_return refuse(std::move(*error));
  co_return Outcome::kRead;
}

std::optional<ApiError> RequestReader::header_refusal(ErrorCode error) const {
  if (error == http::error::header_limit) return too_large_header();
  if (error == http::error::body_limit) return too_large_body();
  return not_http(error);
}

// What HTTP forbids and the parser lets pass.
std::optional<ApiError> RequestReader::wrong_header() const {
  const HttpRequest& request = parser_.get();
  // The parser takes a body in an unknown coding for an empty one, and its bytes for the next request.
  if (request.count(http::field::transfer_encoding) > 0 &&
      !iequals(request[http::field::transfer_encoding], "chunked")) {
    return ApiError(501, "Transfer-Encoding: only chunked is supported");
  }
  const size_t hosts = request.count(http::field::host);
  if (hosts > 1) return ApiError(400, "the request has several Host headers; send one");
  if (hosts == 0 && request.version() >= 11) return ApiError(400, "an HTTP/1.1 request needs a Host header");
  return std::nullopt;
}

asio::awaitable<RequestReader::Outcome> RequestReader::read_body(HeldBytes& held) {
  if (parser_.is_done()) co_return Outcome::kRead;
  const auto deadline = Channel::Clock::now() + options_.body_timeout;
  const HttpRequest& request = parser_.get();
  auto& input = channel_.input();
  if (request.version() >= 11 && input.size() == 0 && iequals(request[http::field::expect], "100-continue")) {
    if (!co_await channel_.write(kContinue, options_.write_timeout)) co_return Outcome::kGone;
  }
  // The parser consumes a body's bytes at once, but the line of a chunk's size and the trailers only when complete.
  for (ErrorCode error; !parser_.is_done();) {
    const size_t body_before = request.body().size();
    size_t used = 0;
    if (input.size() > 0) {
      used = parser_.put(input.data(), error);
      input.consume(used);
    }
    const size_t framing = used - (request.body().size() - body_before);
    if (framing > kChunkLineBytes) header_bytes_ += framing - kChunkLineBytes;
    const size_t body_bytes = request.body().size();
    const size_t spared = body_bytes > kSmallBody ? options_.max_bodies_bytes / kSparedPart : 0;
    if (!held.grow_to(body_bytes, spared)) {
      ApiError overloaded(503, "the server is receiving as many bytes of requests as it may hold; try again later",
                          "server_error", "", "overloaded");
      overloaded.retry_after = 1;
      co_return refuse(std::move(overloaded));
    }
    if (error == http::error::body_limit) co_return refuse(too_large_body());
    if (error && error != http::error::need_more) co_return refuse(not_http(error));
    const size_t unfinished = used == 0 ? input.size() : 0;
    if (header_bytes_ + unfinished > options_.max_header_bytes + kChunkLineBytes) co_return refuse(too_large_header());
    if (!parser_.is_done() && (used == 0 || input.size() == 0)) {
      const Channel::Wait read = co_await channel_.read_more(deadline);
      if (read == Channel::Wait::kTimeout) co_return timed_out("body", options_.body_timeout);
      if (read == Channel::Wait::kGone) co_return Outcome::kGone;
    }
  }
  co_return Outcome::kRead;
}

ApiError RequestReader::too_large_header() const {
  return {431, fmt::format("the header (with trailers and chunk extensions) is larger than {} bytes",
                           options_.max_header_bytes)};
}

ApiError RequestReader::too_large_body() const {
  return {413, fmt::format("the body is larger than {} bytes", options_.max_body_bytes)};
}

RequestReader::Outcome RequestReader::refuse(ApiError error) {
  refusal_.emplace(std::move(error));
  return Outcome::kRefused;
}

RequestReader::Outcome RequestReader::timed_out(std::string_view part, std::chrono::milliseconds limit) {
  return refuse({408, fmt::format("the {} did not arrive within {} seconds", part, seconds(limit))});
}

}  // namespace quire
