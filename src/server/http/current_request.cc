#include "server/http/current_request.h"

#include <spdlog/spdlog.h>

#include <algorithm>

#include "server/api/metrics.h"
#include "server/api/routes.h"
#include "server/http/log.h"
#include "server/http/request_tracing.h"

namespace quire {
namespace {

namespace http = boost::beast::http;

constexpr int kClientLeft = 499;  // nginx's status for a client that left before its answer

bool is_request_id(std::string_view id) {
  return !id.empty() && id.size() <= 128 && std::ranges::all_of(id, [](char c) { return c > 0x20 && c < 0x7f; });
}

std::string request_id(std::string_view given) {
  return is_request_id(given) ? std::string(given) : fmt::format("{:016x}{:016x}", random_u64(), random_u64());
}

}  // namespace

CurrentRequest::CurrentRequest(ConnectionContext& context, const HttpRequest* header)
    : id(request_id(header ? std::string_view((*header)["X-Request-Id"]) : std::string_view())),
      route(header ? "unknown" : "unreadable"),
      error_shape(ErrorShape::kOpenAi),
      models(context.models.load(std::memory_order_acquire)),
      body(context.bodies),
      reply(context.replies) {
  if (!header) return;
  method = loggable(header->method_string(), 32);
  path = path_of_target(header->target());
  error_shape = error_shape_of(path);
  cors_lines = quire::cors_lines(context.options.cors, context.local_hosts, (*header)[http::field::origin]);
  keep_alive = header->keep_alive();
  head_only = header->method() == http::verb::head;
  http_1_0 = header->version() < 11;
  if (context.spans) span = begin_span(*header);
}

void CurrentRequest::answered(int http_status) {
  if (models) models->metrics().http_answered(route, http_status);
  status = http_status;
}

void CurrentRequest::count(const Output& output) {
  if (!first_token && !output.tokens.empty()) first_token = Clock::now();
  completion_tokens += static_cast<int>(output.tokens.size());
  if (output.finish == FinishReason::kNone) return;
  finish = finished_reason(output.finish);
  if (output.choice == 0) cached_tokens += output.usage.cached_tokens;
  if (span) note_end(*span, output);
}

int logged_status(const CurrentRequest& request) { return request.status == 0 ? kClientLeft : request.status; }

void log_request(const CurrentRequest& request, const ConnectionContext& context) {
  if (!context.request_log.should_log(spdlog::level::info)) return;
  const std::string path = loggable(request.path, 256);
  const LoggedRequest record{
      .id = request.id,
      .tenant = request.tenant.name,
      .method = request.method,
      .path = path,
      .status = logged_status(request),
      .prompt_tokens = request.prompt_tokens,
      .cached_tokens = request.cached_tokens,
      .completion_tokens = request.completion_tokens,
      .finish = request.finish.empty() && request.prompt_tokens > 0 ? "abort" : request.finish,
      .ttft = request.first_token ? *request.first_token - request.started : std::chrono::nanoseconds(-1),
      .duration = CurrentRequest::Clock::now() - request.started};
  context.request_log.info(request_line(record, context.options.log_format));
}

}  // namespace quire
