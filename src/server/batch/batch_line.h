// The lines of batches in OpenAI's format: a request on each line of the input, its result on a line of the output.
//
//   {"custom_id": "a-1", "method": "POST", "url": "/v1/chat/completions", "body": {…}}
//   {"id": "batch_req_…", "custom_id": "a-1", "response": {"status_code": 200, "request_id": "…", "body": {…}}, "error": null}
//   {"id": "batch_req_…", "custom_id": null, "response": null, "error": {"code": "invalid_json_line", "message": "…"}}
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "server/api/definition.h"
#include "server/batch/call_runner.h"

namespace quire {

inline constexpr size_t kMaxCustomIdBytes = 512;

struct BatchLine {
  std::string custom_id;
  const ApiDefinition* api = nullptr;
  std::string body;  // a JSON object
};

// Why a line is no request. It has no answer then, but an error.
struct BatchLineError {
  std::string code;       // "invalid_json_line"
  std::string message;    // without the line's number
  std::string param;      // the member that is wrong; empty: none
  std::string custom_id;  // empty: the line has none
};

// Throws BatchLineError.
BatchLine parse_batch_line(std::string_view text);

// Whether the line has nothing but blanks, and no result.
bool is_blank(std::string_view text);

// Names a line's result, so that a batch that is continued knows which lines are answered.
struct ResultId {
  uint64_t high = 0, low = 0;

  bool operator==(const ResultId&) const = default;
  std::string text() const;  // "batch_req_" and 32 hexadecimal digits
};
inline constexpr size_t kResultIdBytes = 42;  // of its text

// XXH3-128. The same line has the same id wherever it stands, so lines may be added to an input.
ResultId result_id(std::string_view line);
// Of a line that is no request: such lines may be alike.
ResultId result_id_of_wrong_line(size_t number, std::string_view line);
// nullopt: not a result's id.
std::optional<ResultId> parse_result_id(std::string_view text);

// All end in '\n'. custom_id: empty: none.
std::string result_line(const ResultId& id, std::string_view custom_id, const CallResult& result);
std::string error_line(const ResultId& id, std::string_view custom_id, std::string_view code, std::string_view message);
// Whether a line that one of the two has made is an answer, and not an error.
bool is_answered(std::string_view result);

}  // namespace quire

template <>
struct std::hash<quire::ResultId> {
  size_t operator()(const quire::ResultId& id) const noexcept { return id.low; }
};
