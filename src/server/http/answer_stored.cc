// How a connection answers requests for stored files and batches.
#include <cassert>
#include <functional>
#include <optional>
#include <utility>

#include "server/api/failure.h"
#include "server/batch/batch_queue.h"
#include "server/http/connection.h"
#include "server/http/multipart_reader.h"
#include "server/http/on_disk.h"

namespace quire {
namespace {

namespace asio = boost::asio;

BatchQueue& require_batches(const ConnectionContext& context) {
  BatchQueue* const batches = context.batches.load(std::memory_order_acquire);
  if (batches) return *batches;
  throw ApiError(404, "this server keeps no files: start it with --files-dir DIR for /v1/files and /v1/batches",
                 "invalid_request_error", {}, "files_off");
}

ApiError loading_error() {
  ApiError error(503, "the model is still loading; try again later", "server_error", {}, "loading");
  error.retry_after = 2;
  return error;
}

}  // namespace

asio::awaitable<StoreReply> Connection::answer_stored(const Route& route, const HttpRequest& http) {
  assert(route.store->reply);
  BatchQueue& batches = require_batches(context_);
  if (context_.stopping) throw stopping_error();
  const StoreRequest request{.tenant = request_->tenant,
                             .argument = route.argument,
                             .query = query_of_target(http.target()),
                             .body = http.body()};
  const auto act = [&] { return route.store->reply(batches, request); };
  co_return co_await on_disk(context_.disk, act);
}

asio::awaitable<bool> Connection::receive_upload(const StoreDefinition& store, RequestReader& reader,
                                                 ResponseWriter& writer) {
  constexpr uint64_t kMostAround = 1 << 20;  // of the form, besides the file
  request_->route = store.path;
  std::unique_ptr<FormSink> sink;
  std::optional<MultipartReader> form;
  std::optional<Reply> reply;
  const RequestReader::TakePiece take = [&](std::string_view piece) -> asio::awaitable<void> {
    const auto act = [&] { form->read(piece); };
    co_await on_disk(context_.disk, act);
  };
  bool gone = false;
  try {
    if (!request_->models) throw loading_error();
    if (context_.stopping) throw stopping_error();
    BatchQueue& batches = require_batches(context_);
    const HttpRequest& http = *reader.header();
    const std::string boundary = form_boundary(http[boost::beast::http::field::content_type]);
    const uint64_t most = context_.options.max_file_bytes;
    if (reader.content_length().value_or(0) > most + kMostAround)
      throw ApiError(413, fmt::format("the file is larger than {} MiB (--max-file-size)", most >> 20),
                     "invalid_request_error", "file", "file_too_large");
    sink = store.receive(batches, {.tenant = request_->tenant, .query = query_of_target(http.target())});
    form.emplace(boundary, *sink);
    const RequestReader::Outcome outcome = co_await reader.read_pieces(take);
    gone = outcome == RequestReader::Outcome::kGone;
    if (outcome == RequestReader::Outcome::kRefused) throw ApiError(reader.refusal());
    if (outcome == RequestReader::Outcome::kRead) {
      if (!form->complete()) throw bad_request({}, "the form ends before its last boundary");
      const auto finish = [&] { return sink->finish(); };
      reply = co_await on_disk(context_.disk, finish);
    }
  } catch (...) {
    reply = error_reply(current_api_error(), request_->error_shape);
  }
  const auto clean_up = [&] {
    form.reset();
    sink.reset();
  };
  co_await on_disk(context_.disk, clean_up);
  if (gone) co_return false;
  request_->keep_alive = request_->keep_alive && reader.done();
  const bool more = co_await writer.send(*reply);
  if (!reader.done()) co_await channel_->linger();
  co_return more;
}

}  // namespace quire
