// An endpoint as one row: its paths, its parameters, how a request is read and answered, and what /openapi.json says.
// Each file of server/endpoints defines its rows, and server/endpoints/all.cc lists them. Nothing in server/api knows a
// particular endpoint.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "server/api/answer/answer.h"
#include "server/api/answer/reply.h"
#include "server/api/error.h"
#include "server/api/request/fields.h"
#include "server/api/task.h"

namespace quire {

class LiveFeed;
class Models;
class Service;

// An endpoint whose body has parameters.
struct ApiDefinition {
  std::string_view path;     // empty: no endpoint, but the object that is the member `options` of other bodies
  std::string_view summary;  // a sentence
  std::vector<std::string_view> other_paths = {};  // those of other servers for the same
  std::string_view method = "POST";                // or DELETE
  ErrorShape errors = ErrorShape::kOpenAi;
  bool in_batches = false;     // lines of batches may ask for it
  bool for_operators = false;  // changes what the server serves: needs an admin key, if the server has keys

  // Reading the body. Of several fields with one name the first counts; fields of other endpoints are refused.
  std::vector<ApiField> fields;
  std::vector<RefusedField> refused = {};
  std::vector<std::string_view> required = {};
  const ApiDefinition* options = nullptr;       // the parameters in the member `options`, if it has such a member
  bool generates_text = false;                  // unknown fields that sound as if they limited it are refused
  bool fills_cache = false;                     // max_tokens may be 0, which only computes the prompt
  bool (*repeats)(std::string_view) = nullptr;  // whether the answer repeats this parameter as it was sent
  void (*begin)(ApiDraft&) = nullptr;           // sets defaults of its own, before the first field is read
  void (*settle)(ApiDraft&) = nullptr;          // checks and derives what depends on several fields
  // Checks and changes what the model must be able to do. Throws ApiError.
  void (*adapt)(ApiRequest&, const Service&) = nullptr;

  // Answers a request about a model that need not be loaded. The following do not count then.
  std::string (*manage)(const Models&, const ApiRequest&) = nullptr;
  // What takes too long for that, in its place: if there is a task, the request is the operator's (as for_operators), and it
  // is streamed if the request says so. An empty one leaves the answer to `manage`.
  Task (*task)(const Models&, const ApiRequest&) = nullptr;

  // Answering. `reply` is the body of an answer that needs no engine; without one, the engine generates.
  std::optional<std::string> (*reply)(Service&, ApiRequest&) = nullptr;
  std::unique_ptr<Answer> (*answer)(ResponseHead, TokenBytes) = nullptr;  // nullptr: `reply` answers all requests
  std::string_view id_prefix = "cmpl-";
  std::string_view prompt_field = {};  // that errors of the prompt name; empty: messages, or prompt if it has prompts
  std::string_view instructions_field = "system";
  bool repeats_prompt = false;  // what was asked about the prompt is in each choice of the answer
  bool reply_computes = false;  // `reply` runs the model, so it takes a place among the answers

  // In /openapi.json.
  std::string_view answer_schema = {};  // a name of the components; empty: the answer has no body
  std::string_view stream_type = {};    // the Content-Type of its streams; empty: it has none
  std::string_view body_schema = {};    // a JSON object of more members for the schema of the body; may be empty
  std::string_view schemas = {};        // a JSON object of components; may be empty, or be that of another row
};

// What a GET asks.
struct GetRequest {
  std::string argument = {};  // what stands in the place of {id} in the path
  std::string query = {};     // of the URL: "model=a"
  std::string url = {};       // the server's: "http://127.0.0.1:8080"
  bool plain = false;         // the client wants a line of text rather than a page
  bool stopping = false;      // the server is
};

// An endpoint without a body.
struct GetDefinition {
  std::string_view path;     // may end in {id}
  std::string_view summary;  // empty: not in /openapi.json
  Reply (*reply)(const Models&, const GetRequest&);
  bool needs_key = true;                // if the server has keys
  std::string_view answer_schema = {};  // a name of the components; empty: any object
  std::string_view content_type = "application/json";
  std::string_view error = {};         // the status of an error that it may have, besides those of all
  std::string_view schemas = {};       // as in ApiDefinition
  std::string_view query_schema = {};  // parameters of the URL: a JSON array; may be empty
  LiveFeed& (*live)(const Models&,
                    const GetRequest&) = nullptr;  // after `reply`, unless that throws: an endless stream
};

// All of them, in the order of /openapi.json. server/endpoints/all.cc defines both.
std::span<const ApiDefinition* const> all_apis();
std::span<const GetDefinition* const> all_gets();

}  // namespace quire
