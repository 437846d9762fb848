#include "load/client.h"

#include <fmt/format.h>

#include <array>
#include <boost/asio/as_tuple.hpp>
#include <boost/asio/connect.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http.hpp>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "load/event_reader.h"

namespace quire {
namespace {

namespace asio = boost::asio;
namespace http = boost::beast::http;
using nlohmann::json;
using ErrorCode = boost::system::error_code;

constexpr auto kTuple = asio::as_tuple(asio::use_awaitable);
constexpr size_t kReadBytes = 64 << 10;
constexpr size_t kMaxErrorBytes = 4096;  // how much of an error response is shown

int count_in(const json& usage, const char* name, int otherwise) {
  const auto found = usage.find(name);
  return found != usage.end() && found->is_number_integer() ? found->get<int>() : otherwise;
}

std::string text_in(const json& object, const char* name) {
  const auto found = object.find(name);
  return found != object.end() && found->is_string() ? found->get<std::string>() : std::string();
}

// The message of {"error": {"message": ...}}; of another shape, the JSON itself.
std::string error_message(const json& body) {
  const auto error = body.is_object() ? body.find("error") : body.end();
  if (!body.is_object() || error == body.end()) return body.is_discarded() ? "" : body.dump();
  if (error->is_object()) return text_in(*error, "message");
  return error->dump();
}

}  // namespace

// Turns the events of one stream into a record.
class LoadClient::Answer {
 public:
  Answer(RequestRecord& record, Clock::time_point start)
      : record_(record), start_(start), reader_([this](std::string_view data) { event(data); }) {}

  void feed(std::string_view bytes) {
    now_ = seconds();
    reader_.feed(bytes);
  }

  void sent() { record_.sent = seconds(); }

  void end() {
    record_.finished = seconds();
    if (!record_.failure.empty()) return;
    if (!finished_) return fail("the stream ended before the answer was complete");
    if (record_.pieces.empty()) return fail("the answer has no text");
    record_.input_tokens = input_tokens_ >= 0 ? input_tokens_ : record_.planned_input;
    record_.output_tokens = output_tokens_ >= 0 ? output_tokens_ : static_cast<int>(record_.pieces.size());
  }

  void fail(std::string reason) {
    record_.finished = seconds();
    record_.failure = std::move(reason);
  }

 private:
  double seconds() const { return std::chrono::duration<double>(Clock::now() - start_).count(); }

  void event(std::string_view data) {
    if (data == "[DONE]") return;
    const json chunk = json::parse(data, nullptr, false);
    if (!chunk.is_object()) return fail("the stream has an event that is not a JSON object");
    if (chunk.contains("error")) return fail("error in the stream: " + error_message(chunk));
    if (const auto usage = chunk.find("usage"); usage != chunk.end() && usage->is_object()) read_usage(*usage);
    const auto choices = chunk.find("choices");
    if (choices == chunk.end() || !choices->is_array() || choices->empty() || !choices->front().is_object()) return;
    const json& choice = choices->front();
    std::string text = text_in(choice, "text");
    if (const auto delta = choice.find("delta"); delta != choice.end() && delta->is_object()) {
      text += text_in(*delta, "content") + text_in(*delta, "reasoning_content");
      if (text.empty() && delta->contains("role")) return;  // announces the answer
    }
    const bool finishes = !text_in(choice, "finish_reason").empty();
    // A finish reason alone is not a piece, unless nothing came before it.
    if (!text.empty() || !finishes || record_.pieces.empty()) record_.pieces.push_back(now_);
    finished_ |= finishes;
  }

  void read_usage(const json& usage) {
    input_tokens_ = count_in(usage, "prompt_tokens", input_tokens_);
    output_tokens_ = count_in(usage, "completion_tokens", output_tokens_);
    const auto details = usage.find("prompt_tokens_details");
    if (details == usage.end() || !details->is_object()) return;
    const int cached = count_in(*details, "cached_tokens", -1);
    if (cached >= 0) record_.cached_tokens = cached;
  }

  RequestRecord& record_;
  const Clock::time_point start_;
  EventReader reader_;
  double now_ = 0;  // arrival of the bytes being parsed
  int input_tokens_ = -1, output_tokens_ = -1;
  bool finished_ = false;
};

ServerUrl parse_server_url(const std::string& url) {
  constexpr std::string_view kScheme = "http://";
  if (url.starts_with("https://")) throw unsupported("--url {}: https is not supported; use http://HOST:PORT", url);
  if (!url.starts_with(kScheme)) throw invalid("--url {} must have the form http://HOST:PORT", url);
  std::string rest = url.substr(kScheme.size());
  const size_t slash = std::min(rest.find('/'), rest.size());
  ServerUrl out{rest.substr(0, slash), "80", rest.substr(slash), rest.substr(0, slash)};
  while (out.path.ends_with('/')) out.path.pop_back();
  if (out.path.empty()) out.path = "/v1";
  const size_t colon = out.host.rfind(':');
  if (colon != std::string::npos && out.host.find(']', colon) == std::string::npos) {
    out.port = out.host.substr(colon + 1);
    out.host.resize(colon);
  }
  if (out.host.starts_with('[') && out.host.ends_with(']')) out.host = out.host.substr(1, out.host.size() - 2);
  if (out.host.empty() || out.port.empty()) throw invalid("--url {} must have the form http://HOST:PORT", url);
  return out;
}

LoadClient::LoadClient(asio::io_context& io, ServerUrl url, std::string api_key, Clock::duration timeout)
    : io_(io), url_(std::move(url)), api_key_(std::move(api_key)), timeout_(timeout) {
  ErrorCode error;
  addresses_ = asio::ip::tcp::resolver(io_).resolve(url_.host, url_.port, error);
  if (error) throw not_found("cannot resolve {}:{}: {}", url_.host, url_.port, error.message());
}

asio::awaitable<std::string> LoadClient::first_model() {
  Stream stream(io_);
  stream.expires_after(std::min<Clock::duration>(timeout_, std::chrono::seconds(10)));
  if (const auto [error, address] = co_await stream.async_connect(addresses_, kTuple); error)
    throw not_found("cannot connect to http://{}:{}: {}; is a server running there?", url_.host, url_.port,
                    error.message());
  http::request<http::empty_body> request(http::verb::get, url_.path + "/models", 11);
  request.set(http::field::host, url_.authority);
  if (!api_key_.empty()) request.set(http::field::authorization, "Bearer " + api_key_);
  boost::beast::flat_buffer buffer;
  http::response<http::string_body> answer;
  auto [error, bytes] = co_await http::async_write(stream, request, kTuple);
  if (!error) error = std::get<0>(co_await http::async_read(stream, buffer, answer, kTuple));
  if (error) throw invalid("the server does not answer GET {}/models: {}", url_.path, error.message());
  const json body = json::parse(answer.body(), nullptr, false);
  if (answer.result() != http::status::ok)
    throw invalid("GET {}/models failed with HTTP {}: {}", url_.path, answer.result_int(), error_message(body));
  const auto data = body.is_object() ? body.find("data") : body.end();
  if (!body.is_object() || data == body.end() || !data->is_array() || data->empty() || !data->front().is_object())
    throw invalid("GET {}/models lists no models; name one with --model", url_.path);
  co_return text_in(data->front(), "id");
}

asio::awaitable<void> LoadClient::complete(const std::string& endpoint, const std::string& body,
                                           Clock::time_point start, RequestRecord& record) {
  Answer answer(record, start);
  answer.sent();
  const auto deadline = Clock::now() + timeout_;
  for (bool more = true; more;) {
    more = false;
    std::unique_ptr<Stream> stream;
    const bool kept = !idle_.empty();
    if (kept) {
      stream = std::move(idle_.back());
      idle_.pop_back();
    } else {
      stream = std::make_unique<Stream>(io_);
    }
    stream->expires_at(deadline);
    ErrorCode error;
    if (!kept) {
      error = std::get<0>(co_await stream->async_connect(addresses_, kTuple));
      if (!error) stream->socket().set_option(asio::ip::tcp::no_delay(true), error);
    }
    if (error) {
      answer.fail(error == boost::beast::error::timeout ? "timed out" : "cannot connect: " + error.message());
      break;
    }
    bool keep = false;
    if (!co_await exchange(*stream, endpoint, body, answer, keep)) {
      if (kept) more = true;
      if (!kept) answer.fail("the server closed the connection");
    }
    stream->expires_never();
    if (keep) idle_.push_back(std::move(stream));
  }
}

asio::awaitable<bool> LoadClient::exchange(Stream& stream, const std::string& endpoint, const std::string& body,
                                           Answer& answer, bool& keep) {
  std::string head = fmt::format("POST {}{} HTTP/1.1\r\nHost: {}\r\nContent-Type: application/json\r\n", url_.path,
                                 endpoint, url_.authority);
  if (!api_key_.empty()) head += "Authorization: Bearer " + api_key_ + "\r\n";
  head += fmt::format("Content-Length: {}\r\n\r\n", body.size());
  const auto reason = [](const ErrorCode& error) {
    return error == boost::beast::error::timeout ? "timed out" : "connection lost: " + error.message();
  };
  const std::array<asio::const_buffer, 2> message = {asio::buffer(head), asio::buffer(body)};
  auto [write_error, written] = co_await asio::async_write(stream, message, kTuple);
  if (write_error == boost::beast::error::timeout) answer.fail("timed out");
  if (write_error) co_return write_error == boost::beast::error::timeout;

  boost::beast::flat_buffer buffer;
  http::response_parser<http::buffer_body> parser;
  parser.body_limit(boost::none);
  auto [header_error, header_bytes] = co_await http::async_read_header(stream, buffer, parser, kTuple);
  if (header_error == http::error::end_of_stream || header_error == asio::error::connection_reset) co_return false;
  if (header_error) {
    answer.fail(reason(header_error));
    co_return true;
  }
  const bool refused = parser.get().result() != http::status::ok;
  std::string refusal;
  std::array<char, kReadBytes> bytes;
  while (!parser.is_done()) {
    parser.get().body().data = bytes.data();
    parser.get().body().size = bytes.size();
    auto [error, n] = co_await http::async_read_some(stream, buffer, parser, kTuple);
    if (error == http::error::need_buffer) error = {};
    const std::string_view got(bytes.data(), bytes.size() - parser.get().body().size);
    if (refused) {
      refusal += got.substr(0, kMaxErrorBytes - std::min(kMaxErrorBytes, refusal.size()));
    } else {
      try {
        answer.feed(got);
      } catch (const Error& e) {
        answer.fail(e.what());
        co_return true;
      }
    }
    if (error) {
      answer.fail(reason(error));
      co_return true;
    }
  }
  if (refused) {
    const std::string why = error_message(json::parse(refusal, nullptr, false));
    answer.fail(fmt::format("HTTP {}: {}", parser.get().result_int(), why.empty() ? refusal : why));
  } else {
    answer.end();
  }
  keep = parser.keep_alive();
  co_return true;
}

}  // namespace quire
