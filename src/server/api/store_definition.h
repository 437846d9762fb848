// An endpoint of stored files and batches as a row. Each of its methods is a row of its own.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "server/api/admission.h"
#include "server/api/answer/reply.h"

namespace quire {

class BatchQueue;

// What a request asks.
struct StoreRequest {
  Tenant tenant = {};
  std::string argument = {};   // what stands in the place of {id} in the path
  std::string query = {};      // of the URL: "limit=2&after=file-1"
  std::string_view body = {};  // of a POST that uploads nothing
};

// A reply, or the bytes of an open file in its place.
struct StoreReply {
  StoreReply() = default;
  StoreReply(Reply whole) : reply(std::move(whole)) {}
  StoreReply(std::string type, int open_file, uint64_t size);  // takes over the descriptor

  Reply reply;                                // with a file: its status, type and headers
  std::shared_ptr<const int> file = nullptr;  // the descriptor, closed with the last copy
  uint64_t bytes = 0;                         // of the file
};

// Receives the form of an upload (multipart/form-data), part by part.
class FormSink {
 public:
  virtual ~FormSink() = default;
  // filename: nullopt for a field. All throw ApiError.
  virtual void begin_part(const std::string& name, const std::optional<std::string>& filename) = 0;
  virtual void add(std::string_view bytes) = 0;
  // After the last part.
  virtual Reply finish() = 0;
};

// Functions run on a thread that may wait for the disk. They throw ApiError and Error.
struct StoreDefinition {
  std::string_view method;  // GET, POST, DELETE
  std::string_view path;    // may have {id} as one of its parts
  std::string_view summary;
  StoreReply (*reply)(BatchQueue&, const StoreRequest&) = nullptr;
  // For an upload, in place of `reply`. The body never is in memory as a whole.
  std::unique_ptr<FormSink> (*receive)(BatchQueue&, const StoreRequest&) = nullptr;

  // In /openapi.json.
  std::string_view query_schema = {};   // parameters of the URL: a JSON array; may be empty
  std::string_view body_schema = {};    // of a POST: a JSON object
  std::string_view answer_schema = {};  // a name of the components; empty: the bytes of a file
  std::string_view schemas = {};        // a JSON object of components; may be empty
};

// All of them. server/endpoints/all.cc defines it.
std::span<const StoreDefinition* const> all_stores();

// Reads the parameters of a URL. nullopt: it has none of that name.
std::optional<std::string> query_parameter(std::string_view query, std::string_view name);

}  // namespace quire
