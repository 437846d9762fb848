// LoRA adapters: vLLM's endpoints that load and unload them, and llama.cpp's list.
#include <optional>
#include <string>

#include "server/api/models.h"
#include "server/api/request/field_readers.h"
#include "server/api/service.h"

namespace quire {
namespace {

void read_adapter_name(ApiDraft& draft, const JsonField& field) { draft.adapter = field.string(); }
void read_adapter_path(ApiDraft& draft, const JsonField& field) { draft.adapter_path = field.string(); }

std::optional<std::string> load_adapter(Service& service, ApiRequest& request) {
  service.add_adapter({request.adapter, request.adapter_path});
  return R"({"success":true})";
}
std::optional<std::string> unload_adapter(Service& service, ApiRequest& request) {
  service.remove_adapter(request.adapter);
  return R"({"success":true})";
}

const ApiField kAdapterName = {"lora_name", read_adapter_name, schemas::kText, "the adapter's name in requests"};

Reply list_adapters(const Models& models, const GetRequest&) {
  Json list = Json::array();
  for (const size_t model : models.all()) {
    for (const std::string& name : models.list(model).adapters)
      list.push_back({{"id", list.size()}, {"name", name}, {"model", models.list(model).names.names.front()}});
  }
  return {.body = dump(list)};
}

}  // namespace

const ApiDefinition& load_adapter_api() {
  static const ApiDefinition api{
      .path = "/v1/load_lora_adapter",
      .summary = "Load a LoRA adapter of a model: vLLM's API. Needs --lora-memory or --max-loras.",
      .for_operators = true,
      .fields = {kModelField,
                 kAdapterName,
                 {"lora_path", read_adapter_path, schemas::kText,
                  "a PEFT directory or a GGUF file, on the server's machine"}},
      .required = {"lora_name", "lora_path"},
      .reply = load_adapter,
      .answer_schema = "AdapterChanged",
      .schemas =
          R"({"AdapterChanged": {"type": "object", "required": ["success"], "properties": {"success": {"const": true}}}})"};
  return api;
}

const ApiDefinition& unload_adapter_api() {
  static const ApiDefinition api{
      .path = "/v1/unload_lora_adapter",
      .summary =
          "Unload a LoRA adapter once its running answers have ended: vLLM's API. Needs --lora-memory or --max-loras.",
      .for_operators = true,
      .fields = {kModelField, kAdapterName},
      .required = {"lora_name"},
      .reply = unload_adapter,
      .answer_schema = "AdapterChanged"};
  return api;
}

const GetDefinition& adapters_get() {
  static const GetDefinition get{.path = "/lora-adapters",
                                 .summary = "the LoRA adapters that requests can name as their model",
                                 .reply = list_adapters,
                                 .answer_schema = "Adapters",
                                 .schemas = R"({"Adapters": {"type": "array", "items": {"type": "object",
    "required": ["id", "name", "model"], "properties": {"id": {"type": "integer"}, "name": {"type": "string"},
      "model": {"type": "string"}}}}})"};
  return get;
}

}  // namespace quire
