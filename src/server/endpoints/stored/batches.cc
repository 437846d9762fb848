// OpenAI's batches: /v1/batches.
#include <charconv>
#include <optional>
#include <string>
#include <utility>

#include "json/field.h"
#include "server/api/request/request.h"
#include "server/api/routes.h"
#include "server/batch/batch_queue.h"
#include "server/endpoints/stored/stored_json.h"

namespace quire {
namespace {

constexpr int kMostHours = 7 * 24;
constexpr size_t kMostMetadata = 16, kMaxMetadataKey = 64, kMaxMetadataValue = 512;

ApiError no_such_batch(const std::string& id) {
  return {404, fmt::format("there is no batch {}", describe(Json(id))), "invalid_request_error", "id",
          "batch_not_found"};
}

Json time_json(const std::optional<int64_t>& time) { return time ? Json(*time) : Json(); }

Json batch_json(const Batch& batch) {
  const auto when = [&](std::string_view status) {
    return batch.status == status ? time_json(batch.finished) : Json();
  };
  const auto file = [&](const std::string& id) { return batch.ended && !id.empty() ? Json(id) : Json(); };
  Json errors = Json::parse(batch.errors);
  return {{"id", batch.id},
          {"object", "batch"},
          {"endpoint", batch.endpoint},
          {"errors", errors.empty() ? Json() : Json{{"object", "list"}, {"data", std::move(errors)}}},
          {"input_file_id", batch.input_file},
          {"completion_window", fmt::format("{}h", batch.window / 3600)},
          {"status", batch.status},
          {"output_file_id", file(batch.output_file)},
          {"error_file_id", file(batch.error_file)},
          {"created_at", batch.created},
          {"in_progress_at", time_json(batch.in_progress)},
          {"expires_at", batch.expires()},
          {"finalizing_at", time_json(batch.finalizing)},
          {"completed_at", when(batch_status::kCompleted)},
          {"failed_at", when(batch_status::kFailed)},
          {"expired_at", when(batch_status::kExpired)},
          {"cancelling_at", time_json(batch.cancelling)},
          {"cancelled_at", when(batch_status::kCancelled)},
          {"request_counts", {{"total", batch.total}, {"completed", batch.completed}, {"failed", batch.failed}}},
          {"metadata", Json::parse(batch.metadata)}};
}

int64_t read_window(const JsonField& field) {
  const std::string& text = field.string();
  int hours = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), hours);
  if (error != std::errc() || std::string_view(end) != "h" || hours < 1 || hours > kMostHours)
    throw bad_request("completion_window", "must be 24h, or another number of hours from 1h to {}h, not {}", kMostHours,
                      describe(Json(text)));
  return int64_t{hours} * 3600;
}

std::string read_metadata(const JsonField& field) {
  const auto members = field.object().members();
  if (members.size() > kMostMetadata)
    throw bad_request("metadata", "has {} members; at most {} are allowed", members.size(), kMostMetadata);
  for (const auto& [key, value] : members) {
    if (key.size() > kMaxMetadataKey || value.string().size() > kMaxMetadataValue)
      throw bad_request("metadata", "keys have at most {} bytes, values {}", kMaxMetadataKey, kMaxMetadataValue);
  }
  return dump(field.json());
}

BatchOrder read_order(std::string_view body) {
  const JsonField document = parse_body(body);
  BatchOrder order;
  bool has_window = false;
  for (const auto& [name, field] : document.members()) {
    if (field.json().is_null()) continue;
    if (name == "input_file_id") {
      order.input_file = field.string();
    } else if (name == "endpoint") {
      const ApiDefinition* const api = find_api(field.string());
      if (!api || !api->in_batches)
        throw bad_request("endpoint", "{} takes no batches; docs/batches.md lists those that do",
                          describe(field.json()));
      order.endpoint = api->path;
    } else if (name == "completion_window") {
      order.window = read_window(field);
      has_window = true;
    } else if (name == "metadata") {
      order.metadata = read_metadata(field);
    } else if (name == "output_expires_after") {
      const auto seconds = field.object().find("seconds");
      const auto anchor = field.find("anchor");
      order.output_lifetime = read_lifetime(name, anchor ? anchor->string() : std::string(),
                                            seconds ? dump(seconds->json()) : std::string());
    } else {
      throw bad_request(name, "is no parameter of a batch");
    }
  }
  for (const auto& [name, given] : {std::pair("input_file_id", !order.input_file.empty()),
                                    {"endpoint", !order.endpoint.empty()},
                                    {"completion_window", has_window}}) {
    if (!given) throw bad_request(name, "is required");
  }
  return order;
}

StoreReply create_batch(BatchQueue& queue, const StoreRequest& request) {
  try {
    return Reply{.body = dump(batch_json(queue.create(request.tenant, read_order(request.body))))};
  } catch (const JsonError& error) {
    throw ApiError(400, error.what(), "invalid_request_error", error.field());
  }
}

StoreReply list_batches(BatchQueue& queue, const StoreRequest& request) {
  const ListedPart part = read_part(request.query, 20, 100);
  const auto listed = queue.table().list(request.tenant.name, part);
  if (!listed) throw no_such_batch(*part.after);
  return list_json(*listed, [&](Batch batch) {
    queue.count(batch);
    return batch_json(batch);
  });
}

StoreReply show_batch(BatchQueue& queue, const StoreRequest& request) {
  std::optional<Batch> batch = queue.table().find(request.tenant.name, request.argument);
  if (!batch) throw no_such_batch(request.argument);
  queue.count(*batch);
  return Reply{.body = dump(batch_json(*batch))};
}

StoreReply cancel_batch(BatchQueue& queue, const StoreRequest& request) {
  std::optional<Batch> batch = queue.cancel(request.tenant, request.argument);
  if (!batch) throw no_such_batch(request.argument);
  queue.count(*batch);
  return Reply{.body = dump(batch_json(*batch))};
}

constexpr std::string_view kBatchSchemas = R"json({
  "Batch": {"type": "object", "required": ["id", "object", "endpoint", "input_file_id", "completion_window", "status",
      "created_at", "expires_at", "request_counts"],
    "properties": {"id": {"type": "string"}, "object": {"const": "batch"}, "endpoint": {"type": "string"},
      "errors": {"type": ["object", "null"]}, "input_file_id": {"type": "string"}, "completion_window": {"type": "string"},
      "status": {"enum": ["validating", "failed", "in_progress", "finalizing", "completed", "expired", "cancelling", "cancelled"]},
      "output_file_id": {"type": ["string", "null"]}, "error_file_id": {"type": ["string", "null"]},
      "created_at": {"type": "integer"}, "expires_at": {"type": "integer"},
      "request_counts": {"type": "object", "required": ["total", "completed", "failed"]},
      "metadata": {"type": ["object", "null"]}}},
  "Batches": {"type": "object", "required": ["object", "data", "has_more", "first_id", "last_id"],
    "properties": {"object": {"const": "list"}, "data": {"type": "array", "items": {"$ref": "#/components/schemas/Batch"}},
      "has_more": {"type": "boolean"}, "first_id": {"type": ["string", "null"]}, "last_id": {"type": ["string", "null"]}}}
})json";

constexpr std::string_view kBatchSchema = R"json({"type": "object",
  "required": ["input_file_id", "endpoint", "completion_window"], "additionalProperties": false, "properties": {
    "input_file_id": {"type": "string"}, "endpoint": {"type": "string"},
    "completion_window": {"type": "string", "pattern": "^[0-9]+h$"},
    "metadata": {"type": ["object", "null"], "maxProperties": 16, "additionalProperties": {"type": "string", "maxLength": 512}},
    "output_expires_after": {"type": ["object", "null"], "required": ["anchor", "seconds"], "properties": {
      "anchor": {"enum": ["created_at"]}, "seconds": {"type": "integer", "minimum": 3600, "maximum": 2592000}}}}})json";

constexpr std::string_view kBatchList = R"json([
  {"name": "after", "in": "query", "schema": {"type": "string"}},
  {"name": "limit", "in": "query", "schema": {"type": "integer", "minimum": 1, "maximum": 100}}])json";

constexpr StoreDefinition kBatchRows[] = {
    {.method = "POST",
     .path = "/v1/batches",
     .summary = "Answer the requests of an uploaded file.",
     .reply = create_batch,
     .body_schema = kBatchSchema,
     .answer_schema = "Batch",
     .schemas = kBatchSchemas},
    {.method = "GET",
     .path = "/v1/batches",
     .summary = "the batches of this API key",
     .reply = list_batches,
     .query_schema = kBatchList,
     .answer_schema = "Batches"},
    {.method = "GET",
     .path = "/v1/batches/{id}",
     .summary = "one of them",
     .reply = show_batch,
     .answer_schema = "Batch"},
    {.method = "POST",
     .path = "/v1/batches/{id}/cancel",
     .summary = "Cancel a batch.",
     .reply = cancel_batch,
     .answer_schema = "Batch"},
};

}  // namespace

std::span<const StoreDefinition> batch_stores() { return kBatchRows; }

}  // namespace quire
