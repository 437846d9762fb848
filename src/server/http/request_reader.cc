#include "server/http/request_reader.h"

#include <fmt/format.h>

#include <boost/asio/use_awaitable.hpp>
#include <boost/beast/http/buffer_body.hpp>
#include <boost/beast/http/error.hpp>
#include <utility>
#include <vector>

#include "server/api/routes.h"
#include "server/http/connection_context.h"

namespace quire {
namespace {

namespace asio = boost::asio;
namespace http = boost::beast::http;
using boost::beast::iequals;

using HttpPieceParser = http::request_parser<http::buffer_body>;

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
  parser_.body_limit(boost::none);  // checked here: bodies in pieces have another limit
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
      co_return refuse(header_refusal(error));
    }
  }
  header_known_ = true;
  if (std::optional<ApiError> error = wrong_header()) co_return refuse(std::move(*error));
  co_return Outcome::kRead;
}

ApiError RequestReader::header_refusal(ErrorCode error) const {
  return error == http::error::header_limit ? too_large_header() : not_http(error);
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
  const auto length = parser_.content_length();
  if (length && *length > options_.max_body_bytes &&
      !find_upload(request.method_string(), path_of_target(request.target())))
    return too_large_body();
  return std::nullopt;
}

std::optional<uint64_t> RequestReader::content_length() const {
  const auto length = parser_.content_length();
  return length ? std::optional<uint64_t>(*length) : std::nullopt;
}

// false: the client has gone.
asio::awaitable<bool> RequestReader::invite_body() {
  const HttpRequest& request = parser_.get();
  const bool waits =
      request.version() >= 11 && channel_.input().size() == 0 && iequals(request[http::field::expect], "100-continue");
  if (!waits) co_return true;
  co_return co_await channel_.write(kContinue, options_.write_timeout);
}

asio::awaitable<RequestReader::Outcome> RequestReader::read_pieces(const TakePiece& take) {
  constexpr size_t kPiece = size_t{64} << 10, kTimed = size_t{1} << 20;
  if (!co_await invite_body()) co_return Outcome::kGone;
  HttpPieceParser parser(std::move(parser_));  // the header is copied
  std::vector<char> piece(kPiece);
  auto& input = channel_.input();
  auto deadline = Channel::Clock::now() + options_.body_timeout;
  size_t since = 0;  // bytes
  for (ErrorCode error; !parser.is_done();) {
    auto& body = parser.get().body();
    body.data = piece.data();
    body.size = piece.size();
    body.more = true;
    const size_t used = input.size() > 0 ? parser.put(input.data(), error) : 0;
    input.consume(used);
    const size_t bytes = piece.size() - body.size;
    if (error && error != http::error::need_more && error != http::error::need_buffer)
      co_return refuse(not_http(error));
    const size_t framing = used - std::min(used, bytes);
    if (framing > kChunkLineBytes) header_bytes_ += framing - kChunkLineBytes;
    const size_t unfinished = used == 0 ? input.size() : 0;
    if (header_bytes_ + unfinished > options_.max_header_bytes + kChunkLineBytes) co_return refuse(too_large_header());
    if (bytes > 0) co_await take(std::string_view(piece.data(), bytes));
    since += bytes;
    if (since >= kTimed) {
      since = 0;
      deadline = Channel::Clock::now() + options_.body_timeout;
    }
    if (!parser.is_done() && (used == 0 || input.size() == 0)) {
      const Channel::Wait read = co_await channel_.read_more(deadline);
      if (read == Channel::Wait::kTimeout) co_return timed_out("next MiB of the body", options_.body_timeout);
      if (read == Channel::Wait::kGone) co_return Outcome::kGone;
    }
  }
  done_ = true;
  co_return Outcome::kRead;
}

asio::awaitable<RequestReader::Outcome> RequestReader::read_body(HeldBytes& held) {
  if (parser_.is_done()) co_return Outcome::kRead;
  const auto deadline = Channel::Clock::now() + options_.body_timeout;
  const HttpRequest& request = parser_.get();
  auto& input = channel_.input();
  if (!co_await invite_body()) co_return Outcome::kGone;
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
    if (body_bytes > options_.max_body_bytes) co_return refuse(too_large_body());
    const size_t spared = body_bytes > kSmallBody ? options_.max_bodies_bytes / kSparedPart : 0;
    if (!held.grow_to(body_bytes, spared)) {
      ApiError overloaded(503, "the server is receiving as many bytes of requests as it may hold; try again later",
                          "server_error", "", "overloaded");
      overloaded.retry_after = 1;
      co_return refuse(std::move(overloaded));
    }
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
