#include "server/batch/batch_line.h"

#include <fmt/format.h>
#include <xxhash.h>

#include <algorithm>
#include <charconv>

#include "json/field.h"
#include "json/quote.h"
#include "server/api/answer/answer.h"
#include "server/api/request/request.h"
#include "server/api/routes.h"

namespace quire {
namespace {

constexpr std::string_view kResultPrefix = "batch_req_";
constexpr std::string_view kAnswerMark = R"("response":{"status_code":200,)";

std::string text_member(const JsonField& line, std::string_view name, const std::string& custom_id) {
  const auto found = line.find(name);
  if (!found)
    throw BatchLineError{"missing_required_parameter", fmt::format("{} is missing", name), std::string(name),
                         custom_id};
  if (!found->json().is_string())
    throw BatchLineError{"invalid_request", fmt::format("{} must be a string, not {}", name, describe(found->json())),
                         std::string(name), custom_id};
  return found->string();
}

const ApiDefinition& api_of(const std::string& url, const std::string& custom_id) {
  const ApiDefinition* const api = find_api(url);
  if (api && api->in_batches) return *api;
  std::string known;
  for (const ApiDefinition* other : all_apis()) {
    if (other->in_batches) known += fmt::format("{}{}", known.empty() ? "" : ", ", other->path);
  }
  throw BatchLineError{"invalid_url", fmt::format("the url {} is not one of {}", describe(Json(url)), known), "url",
                       custom_id};
}

BatchLine read_batch_line(const JsonField& line) {
  BatchLine read;
  if (!line.json().is_object())
    throw BatchLineError{
        "invalid_json_line", fmt::format("expected an object, found {}", describe(line.json())), {}, {}};
  read.custom_id = text_member(line, "custom_id", {});
  if (read.custom_id.empty() || read.custom_id.size() > kMaxCustomIdBytes)
    throw BatchLineError{
        "invalid_request",
        fmt::format("custom_id must have 1 to {} bytes, not {}", kMaxCustomIdBytes, read.custom_id.size()),
        "custom_id",
        {}};
  const std::string method = text_member(line, "method", read.custom_id);
  if (method != "POST")
    throw BatchLineError{"invalid_method", fmt::format("the method must be POST, not {}", describe(Json(method))),
                         "method", read.custom_id};
  read.api = &api_of(text_member(line, "url", read.custom_id), read.custom_id);
  const auto body = line.find("body");
  if (!body || !body->json().is_object())
    throw BatchLineError{
        body ? "invalid_request" : "missing_required_parameter",
        body ? fmt::format("body must be an object, not {}", describe(body->json())) : "body is missing", "body",
        read.custom_id};
  const auto stream = body->json().find("stream");
  if (stream != body->json().end() && !stream->is_null() && *stream != false)
    throw BatchLineError{"invalid_request", "body.stream: answers of batches are whole; leave it out", "body.stream",
                         read.custom_id};
  read.body = dump(body->json());
  return read;
}

}  // namespace

BatchLine parse_batch_line(std::string_view text) {
  try {
    // The bounds of a request's body, and room for the members around it.
    return read_batch_line(JsonField::parse(text, "", {.values = kMaxBodyValues + 16, .replace_surrogates = true}));
  } catch (const JsonError& error) {
    throw BatchLineError{"invalid_json_line", error.what(), {}, {}};
  }
}

bool is_blank(std::string_view text) { return text.find_first_not_of(" \t\r\n") == text.npos; }

std::string ResultId::text() const { return fmt::format("{}{:016x}{:016x}", kResultPrefix, high, low); }

ResultId result_id(std::string_view line) {
  const XXH128_hash_t hash = XXH3_128bits(line.data(), line.size());
  return {hash.high64, hash.low64};
}

ResultId result_id_of_wrong_line(size_t number, std::string_view line) {
  return result_id(fmt::format("{} {}", number, line.substr(0, size_t{64} << 10)));
}

std::optional<ResultId> parse_result_id(std::string_view text) {
  if (text.size() != kResultIdBytes || !text.starts_with(kResultPrefix)) return std::nullopt;
  ResultId id;
  const char* const digits = text.data() + kResultPrefix.size();
  for (const auto& [number, at] : {std::pair(&id.high, digits), std::pair(&id.low, digits + 16)}) {
    const auto [end, error] = std::from_chars(at, at + 16, *number, 16);
    if (error != std::errc() || end != at + 16) return std::nullopt;
  }
  return id;
}

std::string result_line(const ResultId& id, std::string_view custom_id, const CallResult& result) {
  std::string line = fmt::format(R"({{"id":"{}","custom_id":)", id.text());
  append_json_string(custom_id, line);
  fmt::format_to(std::back_inserter(line), R"(,"response":{{"status_code":{},"request_id":"{}","body":)", result.status,
                 result.request_id);
  line += result.body;
  line += "},\"error\":null}\n";
  return line;
}

std::string error_line(const ResultId& id, std::string_view custom_id, std::string_view code,
                       std::string_view message) {
  std::string line = fmt::format(R"({{"id":"{}","custom_id":)", id.text());
  if (custom_id.empty()) {
    line += "null";
  } else {
    append_json_string(custom_id, line);
  }
  line += R"(,"response":null,"error":{"code":)";
  append_json_string(code, line);
  line += R"(,"message":)";
  append_json_string(message, line);
  line += "}}\n";
  return line;
}

// In a string the mark's quotes would be escaped, and the member "response" comes before all that has members of its own.
bool is_answered(std::string_view result) { return result.find(kAnswerMark) != result.npos; }

}  // namespace quire
