// OpenAI's files: /v1/files.
#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <optional>
#include <string>
#include <utility>

#include "base/error.h"
#include "server/batch/batch_queue.h"
#include "server/endpoints/stored/stored_json.h"

namespace quire {
namespace {

constexpr size_t kMaxFieldBytes = 4 << 10;
constexpr size_t kMaxFilename = 512;

ApiError no_such_file(const std::string& id) {
  return {404, fmt::format("there is no file {}", describe(Json(id))), "invalid_request_error", "id", "file_not_found"};
}

StoredFile require_file(BatchQueue& queue, const StoreRequest& request) {
  std::optional<StoredFile> file = queue.files().find(request.tenant.name, request.argument);
  if (!file) throw no_such_file(request.argument);
  return std::move(*file);
}

Json file_json(const StoredFile& file) {
  Json json = {{"id", file.id},
               {"object", "file"},
               {"bytes", file.bytes},
               {"created_at", file.created},
               {"expires_at", file.expires ? Json(*file.expires) : Json()},
               {"filename", file.filename},
               {"purpose", file.purpose},
               {"status", "processed"}};  // deprecated, but clients' types have it
  return json;
}

// Of the form's fields, which come in any order, the file among them.
class FileForm final : public FormSink {
 public:
  FileForm(BatchQueue& queue, const StoreRequest& request) : queue_(queue), tenant_(request.tenant.name) {}

  void begin_part(const std::string& name, const std::optional<std::string>& filename) override {
    value_ = nullptr;
    for (const auto& [field, value] : {std::pair("purpose", &purpose_),
                                       {"expires_after[anchor]", &anchor_},
                                       {"expires_after[seconds]", &seconds_}}) {
      if (name == field) value_ = value;
    }
    name_ = name;
    if (value_) return value_->emplace().clear();
    if (name != "file") throw bad_request(name, "is no field of an upload; it has file, purpose and expires_after");
    if (upload_) throw bad_request("file", "is there twice; upload one file in a request");
    filename_ = filename.value_or("");
    if (filename_.empty()) filename_ = "upload.jsonl";
    if (filename_.size() > kMaxFilename)
      throw bad_request("file", "its name has {} bytes; at most {} are allowed", filename_.size(), kMaxFilename);
    upload_ = queue_.files().begin_upload(tenant_);
  }

  void add(std::string_view bytes) override {
    if (!value_) return upload_->write(bytes);
    if ((*value_)->size() + bytes.size() > kMaxFieldBytes)
      throw bad_request(name_, "has more than {} bytes", kMaxFieldBytes);
    **value_ += bytes;
  }

  Reply finish() override {
    if (!upload_) throw bad_request("file", "is required");
    if (!purpose_) throw bad_request("purpose", "is required");
    if (*purpose_ != "batch")
      throw bad_request("purpose", "must be batch, not {}: files are here for batches", describe(Json(*purpose_)));
    std::optional<int64_t> expires;
    if (anchor_ || seconds_) {
      const int64_t seconds = read_lifetime("expires_after", anchor_.value_or(""), seconds_.value_or(""));
      expires = unix_seconds() + seconds;
    }
    return {.body = dump(file_json(upload_->commit(valid_text(filename_), *purpose_, expires)))};
  }

 private:
  BatchQueue& queue_;
  const std::string tenant_;
  std::optional<std::string> purpose_, anchor_, seconds_;
  std::optional<std::string>* value_ = nullptr;  // of the field that is being read; null: the file is
  std::string name_, filename_;
  std::unique_ptr<FileStore::Upload> upload_;
};

std::unique_ptr<FormSink> receive_file(BatchQueue& queue, const StoreRequest& request) {
  return std::make_unique<FileForm>(queue, request);
}

StoreReply list_files(BatchQueue& queue, const StoreRequest& request) {
  constexpr int kMostFiles = 10'000;
  const ListedPart part = read_part(request.query, kMostFiles, kMostFiles);
  const auto listed =
      queue.files().list(request.tenant.name, query_parameter(request.query, "purpose").value_or(""), part);
  if (!listed) throw no_such_file(*part.after);
  return list_json(*listed, file_json);
}

StoreReply show_file(BatchQueue& queue, const StoreRequest& request) {
  return Reply{.body = dump(file_json(require_file(queue, request)))};
}

StoreReply delete_file(BatchQueue& queue, const StoreRequest& request) {
  if (!queue.files().remove(request.tenant.name, request.argument)) throw no_such_file(request.argument);
  return Reply{.body = dump({{"id", request.argument}, {"object", "file"}, {"deleted", true}})};
}

StoreReply file_content(BatchQueue& queue, const StoreRequest& request) {
  const StoredFile file = require_file(queue, request);
  const std::filesystem::path path = queue.files().content(file.id);
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (descriptor < 0) throw no_resource("the file {} cannot be read: {}", file.id, std::strerror(errno));
  return {"application/octet-stream", descriptor, static_cast<uint64_t>(file.bytes)};
}

constexpr std::string_view kFileSchemas = R"json({
  "File": {"type": "object", "required": ["id", "object", "bytes", "created_at", "filename", "purpose"],
    "properties": {"id": {"type": "string"}, "object": {"const": "file"}, "bytes": {"type": "integer"},
      "created_at": {"type": "integer"}, "expires_at": {"type": ["integer", "null"]}, "filename": {"type": "string"},
      "purpose": {"enum": ["batch", "batch_output"]}, "status": {"const": "processed"}}},
  "Files": {"type": "object", "required": ["object", "data", "has_more", "first_id", "last_id"],
    "properties": {"object": {"const": "list"}, "data": {"type": "array", "items": {"$ref": "#/components/schemas/File"}},
      "has_more": {"type": "boolean"}, "first_id": {"type": ["string", "null"]}, "last_id": {"type": ["string", "null"]}}},
  "Deleted": {"type": "object", "required": ["id", "object", "deleted"], "properties": {"id": {"type": "string"},
    "object": {"const": "file"}, "deleted": {"const": true}}}
})json";

constexpr std::string_view kUploadSchema = R"json({"type": "object", "required": ["file", "purpose"], "properties": {
  "file": {"type": "string", "contentMediaType": "application/octet-stream"}, "purpose": {"enum": ["batch"]},
  "expires_after[anchor]": {"enum": ["created_at"]},
  "expires_after[seconds]": {"type": "integer", "minimum": 3600, "maximum": 2592000}}})json";

constexpr std::string_view kFileList = R"json([
  {"name": "purpose", "in": "query", "schema": {"type": "string"}},
  {"name": "after", "in": "query", "schema": {"type": "string"}},
  {"name": "limit", "in": "query", "schema": {"type": "integer", "minimum": 1, "maximum": 10000}},
  {"name": "order", "in": "query", "schema": {"enum": ["asc", "desc"]}}])json";

constexpr StoreDefinition kFileRows[] = {
    {.method = "POST",
     .path = "/v1/files",
     .summary = "Upload a file for a batch. Needs --files-dir, as all of these do.",
     .receive = receive_file,
     .body_schema = kUploadSchema,
     .answer_schema = "File",
     .schemas = kFileSchemas},
    {.method = "GET",
     .path = "/v1/files",
     .summary = "the files of this API key",
     .reply = list_files,
     .query_schema = kFileList,
     .answer_schema = "Files"},
    {.method = "GET", .path = "/v1/files/{id}", .summary = "one of them", .reply = show_file, .answer_schema = "File"},
    {.method = "DELETE",
     .path = "/v1/files/{id}",
     .summary = "Delete a file that no unfinished batch reads.",
     .reply = delete_file,
     .answer_schema = "Deleted"},
    {.method = "GET", .path = "/v1/files/{id}/content", .summary = "its bytes", .reply = file_content},
};

}  // namespace

std::span<const StoreDefinition> file_stores() { return kFileRows; }

}  // namespace quire
