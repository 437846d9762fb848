#include "server/http/response_writer.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <boost/asio/use_awaitable.hpp>
#include <boost/beast/http/status.hpp>
#include <vector>

#include "server/api/failure.h"
#include "server/http/on_disk.h"

namespace quire {
namespace {

namespace asio = boost::asio;
namespace http = boost::beast::http;

constexpr size_t kSmallReply = 4 << 10;  // not counted, and sent in one write with its head
constexpr std::chrono::milliseconds kLiveTimeout{10'000};

}  // namespace

asio::awaitable<bool> ResponseWriter::send(const Reply& whole) {
  const bool held = whole.body.size() <= kSmallReply || request_.reply.grow_to(whole.body.size());
  const Reply refusal = held ? Reply{} : error_reply(overloaded_error(), request_.error_shape);
  const Reply& reply = held ? whole : refusal;
  if (context_.draining) request_.keep_alive = false;
  request_.answered(reply.status);
  auto headers = reply.headers;
  headers.emplace_back("Content-Length", std::to_string(reply.body.size()));
  std::string out = head(reply.status, reply.content_type, headers);
  const std::string_view body = request_.head_only ? std::string_view() : reply.body;
  const auto time = context_.options.write_timeout;
  if (body.size() <= kSmallReply) {
    out += body;
    co_return co_await channel_.write(out, time) && request_.keep_alive;
  }
  if (!co_await channel_.write(out, time)) co_return false;
  co_return co_await channel_.write(body, time) && request_.keep_alive;
}

asio::awaitable<bool> ResponseWriter::send_file(const StoreReply& stored, asio::thread_pool& disk) {
  constexpr size_t kPiece = size_t{256} << 10;
  if (!request_.reply.grow_to(kPiece)) {
    const Reply refusal = error_reply(overloaded_error(), request_.error_shape);
    co_return co_await send(refusal);
  }
  if (context_.draining) request_.keep_alive = false;
  request_.answered(stored.reply.status);
  const std::string begin =
      head(stored.reply.status, stored.reply.content_type, {{"Content-Length", std::to_string(stored.bytes)}});
  if (!co_await channel_.write(begin, context_.options.write_timeout)) co_return false;
  std::vector<char> piece(kPiece);
  for (uint64_t at = 0; at < stored.bytes && !request_.head_only;) {
    const size_t wanted = std::min<uint64_t>(kPiece, stored.bytes - at);
    const auto read = [&] { return ::pread(*stored.file, piece.data(), wanted, static_cast<off_t>(at)); };
    const ssize_t count = co_await on_disk(disk, read);
    if (count <= 0) co_return false;
    at += static_cast<uint64_t>(count);
    const std::string_view bytes(piece.data(), static_cast<size_t>(count));
    if (!co_await channel_.write(bytes, context_.options.write_timeout)) co_return false;
  }
  co_return request_.keep_alive;
}

asio::awaitable<bool> ResponseWriter::send_events(std::string_view events, std::string_view content_type, bool last) {
  const bool chunked = !request_.http_1_0;
  if (!chunked) request_.keep_alive = false;  // the connection's end is the response's
  if (!begun() && context_.draining) request_.keep_alive = false;
  out_.clear();
  if (!begun()) out_ = stream_head(content_type);
  if (chunked) fmt::format_to(std::back_inserter(out_), "{:x}\r\n", events.size());
  out_ += events;
  if (chunked) out_ += "\r\n";
  if (last && chunked) out_ += "0\r\n\r\n";
  const bool written = co_await channel_.write(out_, context_.options.write_timeout);
  request_.reply.release();
  co_return written&& request_.keep_alive;
}

asio::awaitable<bool> ResponseWriter::send_live(const LiveEvent& event) {
  const auto time = std::min(kLiveTimeout, context_.options.write_timeout);
  if (!begun()) {
    request_.keep_alive = false;  // the stream has no end
    out_ = stream_head("text/event-stream");
    if (!co_await channel_.write(out_, time)) co_return false;
  }
  co_return co_await channel_.write(request_.http_1_0 ? event.event() : event.chunk(), time);
}

asio::awaitable<bool> ResponseWriter::end_live() {
  if (request_.http_1_0) co_return true;
  co_return co_await channel_.write("0\r\n\r\n", context_.options.write_timeout);
}

// Of a body whose length is not known yet: its frame is that of chunks, or the connection's end.
std::string ResponseWriter::stream_head(std::string_view content_type) {
  std::vector<std::pair<std::string, std::string>> headers = {{"Cache-Control", "no-cache"},
                                                              {"X-Accel-Buffering", "no"}};
  if (!request_.http_1_0) headers.emplace_back("Transfer-Encoding", "chunked");
  request_.answered(200);
  return head(200, content_type, headers);
}

std::string ResponseWriter::head(int status, std::string_view content_type,
                                 const std::vector<std::pair<std::string, std::string>>& headers) const {
  const std::string_view reason = http::obsolete_reason(static_cast<http::status>(status));
  std::string text =
      fmt::format("HTTP/1.1 {} {}\r\nServer: quire\r\nContent-Type: {}\r\nX-Request-Id: {}\r\nConnection: {}\r\n",
                  status, reason, content_type, request_.id, request_.keep_alive ? "keep-alive" : "close");
  text += request_.cors_lines;
  for (const auto& [name, value] : headers) text += name + ": " + value + "\r\n";
  return text + "\r\n";
}

}  // namespace quire
