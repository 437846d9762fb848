// What a connection knows about the request it is answering. Each request has a new one.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "server/api/exchange.h"
#include "server/api/held_bytes.h"
#include "server/http/connection_context.h"
#include "server/http/request_reader.h"
#include "server/otlp/request_span.h"

namespace quire {

struct CurrentRequest {
  using Clock = std::chrono::steady_clock;

  // header: nullptr if it could not be read.
  CurrentRequest(ConnectionContext& context, const HttpRequest* header);

  // Counts the answer and remembers its status for the log.
  void answered(int http_status);
  void count(const Output& output);

  std::string id;  // X-Request-Id
  std::string method = "-", path = "-";
  Tenant tenant = {};           // whose API key it is
  std::string cors_lines = {};  // lines of the response's head
  std::string_view route;       // in metrics
  ErrorShape error_shape;       // the shape that the path's API has
  const Models* models;         // as the request found them; nullptr: loading
  bool keep_alive = false;      // the connection can take another request
  bool head_only = false;       // HEAD
  bool http_1_0 = false;
  Clock::time_point started = Clock::now(), deadline = Clock::time_point::max();
  ServiceLease lease = {};                       // of its model
  std::shared_ptr<Exchange> exchange = nullptr;  // only for a generation
  HeldBytes body, reply;                         // bytes of both in memory
  int status = 0;                                // 0: not answered yet
  int prompt_tokens = 0, cached_tokens = 0, completion_tokens = 0;
  std::string_view finish = {};
  std::optional<Clock::time_point> first_token = {};
  std::unique_ptr<RequestSpan> span = nullptr;  // nullptr: the request is not traced
};

// The status in the log and in spans; 499 for a client that left before its answer.
int logged_status(const CurrentRequest& request);

// The request's line in the log.
void log_request(const CurrentRequest& request, const ConnectionContext& context);

}  // namespace quire
