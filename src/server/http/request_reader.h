// Reads one HTTP/1.1 request: first its header, then its body, so that a request can be refused between the two.
#pragma once

#include <boost/asio/awaitable.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/string_body.hpp>
#include <functional>
#include <optional>
#include <string_view>

#include "server/api/error.h"
#include "server/api/held_bytes.h"
#include "server/http/channel.h"
#include "server/http/server.h"

namespace quire {

using HttpParser = boost::beast::http::request_parser<boost::beast::http::string_body>;
using HttpRequest = HttpParser::value_type;

// The channel and the options must outlive it.
class RequestReader {
 public:
  enum class Outcome : uint8_t {
    kRead,
    kGone,     // the client left
    kRefused,  // answer with refusal() and close: the next request's beginning is unknown
  };

  RequestReader(Channel& channel, const ServerOptions& options);

  boost::asio::awaitable<Outcome> read_header();
  // After read_header(). `held` grows with the body, as long as its budget lasts.
  boost::asio::awaitable<Outcome> read_body(HeldBytes& held);
  // In its place, for bodies of any length: hands over each piece, of at most 64 KiB, which `take` must have done with when it
  // returns. What it throws comes out here. Each MiB may take body_timeout.
  using TakePiece = std::function<boost::asio::awaitable<void>(std::string_view)>;
  boost::asio::awaitable<Outcome> read_pieces(const TakePiece& take);

  const ApiError& refusal() const { return *refusal_; }
  // nullptr as long as no header could be read.
  const HttpRequest* header() const { return header_known_ ? &parser_.get() : nullptr; }
  bool done() const { return done_ || parser_.is_done(); }  // there is no body, or it has been read
  std::optional<uint64_t> content_length() const;           // as the header says; nothing: it comes in chunks
  HttpRequest release() { return parser_.release(); }

 private:
  using ErrorCode = boost::beast::error_code;

  ApiError header_refusal(ErrorCode error) const;
  std::optional<ApiError> wrong_header() const;
  boost::asio::awaitable<bool> invite_body();
  ApiError too_large_header() const;
  ApiError too_large_body() const;
  Outcome refuse(ApiError error);
  Outcome timed_out(std::string_view part, std::chrono::milliseconds limit);

  Channel& channel_;
  const ServerOptions& options_;
  HttpParser parser_;
  bool header_known_ = false, done_ = false;
  size_t header_bytes_ = 0;  // trailers and chunk extensions included
  std::optional<ApiError> refusal_;
};

}  // namespace quire
