// The rows of llama.cpp's own API. (/infill: infill.cc.)
#include <optional>
#include <string>

#include "server/api/models.h"
#include "server/api/request/field_readers.h"
#include "server/api/request/prompts.h"
#include "server/endpoints/chat.h"
#include "server/endpoints/llama.h"

namespace quire {
namespace {

// Its clients repeat a seed of -1 in 32 bits.
void read_llama_seed(ApiDraft& draft, const JsonField& field) {
  if (field.json() != UINT32_MAX) read_seed(draft, field);
}

constexpr ApiField kLlamaFields[] = {
    {"n_probs", read_n_probs, schemas::kUpToLogprobs, "logprobs; 0: none"},
    {"return_tokens", &ApiRequest::return_token_ids, {}, "also return the ids of the answer"},
    {"response_fields", read_response_fields, R"({"type": "array", "maxItems": 64, "items": {"type": "string"}})",
     "return only these members; timings/prompt_n is one of another"},
    {"seed", read_llama_seed,
     R"({"type": "integer", "minimum": -9223372036854775808, "maximum": 18446744073709551615})",
     "the same seed gives the same answer; the server draws one by default and for -1"},
};

constexpr RefusedField kRefusedByLlama[] = {
    {"n_indent", "[0]", ""},
    {"lora", "[[]]", ""},
    {"post_sampling_probs", "[false]", "n_probs gives probabilities before sampling"},
};

std::string unload_model(const Models& models, const ApiRequest& request) {
  models.unload(models.find(request.model));
  return R"({"success":true})";
}

std::optional<std::string> say_success(Service&, ApiRequest&) { return R"({"success":true})"; }

std::optional<std::string> apply_template(Service& service, ApiRequest& request) {
  service.prepare_chat(request);
  return dump({{"prompt", service.text().render_chat(request.chat)}});
}

LlamaServer llama_server(const Service& service) {
  const EngineStats stats = service.stats();
  const Json tokens = service.text().tokenizer_info();
  LlamaServer server{.info = service.model(),
                     .name = service.names().front(),
                     .version = service.options().version,
                     .slots = service.options().max_running,
                     .busy = stats.running,
                     .speculates = !stats.drafters.empty(),
                     .chat_template = service.text().chat_template_source(),
                     .bos_token = tokens.value("bos_token", Json()),
                     .eos_token = tokens.value("eos_token", Json()),
                     .sampling = {}};
  apply_defaults(server.sampling, server.info.sampling_defaults);
  return server;
}

}  // namespace

std::span<const ApiField> llama_fields() { return kLlamaFields; }
std::span<const RefusedField> refused_llama_fields() { return kRefusedByLlama; }

const ApiDefinition& llama_completion_api() {
  static const ApiDefinition api{.path = "/completion",
                                 .summary = "Continue texts: llama.cpp's API.",
                                 .fields = join({kModelField,
                                                 kMaxTokensField,
                                                 kPredictField,
                                                 {"prompt", read_prompt, schemas::kPrompts},
                                                 {"n_cmpl", &sampling_parameter("n"), {}, "n"},
                                                 kStopField,
                                                 kStreamField,
                                                 kParseSpecialField},
                                                {kLlamaFields, sampling_fields(), engine_fields()}),
                                 .refused = join({{"image_data", "[[]]", "prompts are text"},
                                                  {"system_prompt", R"(["", {}])", "put it into the prompt"},
                                                  kSamplersField,
                                                  kThinkingField,
                                                  kOwnTemplateField},
                                                 {kRefusedByLlama, refused_sampling_fields(), refused_wrappers()}),
                                 .required = {"prompt"},
                                 .generates_text = true,
                                 .fills_cache = true,
                                 .answer = llama_answer,
                                 .answer_schema = "LlamaAnswer",
                                 .stream_type = "text/event-stream",
                                 .schemas = llama_schemas()};
  return api;
}

const ApiDefinition& apply_template_api() {
  static const ApiDefinition api{
      .path = "/apply-template",
      .summary = "Render a chat's prompt: llama.cpp's API.",
      .fields = join({kModelField, kParseSpecialField, kTemplateKwargsField}, {chat_input_fields()}),
      .refused = {kOwnTemplateField},
      .required = {"messages"},
      .reply = apply_template,
      .answer_schema = "RenderedChat"};
  return api;
}

const ApiDefinition& load_model_api() {
  static const ApiDefinition api{.path = "/models/load",
                                 .summary = "Load a model: llama.cpp's API. The answer comes when it is loaded.",
                                 .for_operators = true,
                                 .fields = {kModelField},
                                 .required = {"model"},
                                 .reply = say_success,
                                 .answer_schema = "ModelChanged"};
  return api;
}

const ApiDefinition& unload_model_api() {
  static const ApiDefinition api{
      .path = "/models/unload",
      .summary = "Unload a model once its running answers have ended: llama.cpp's API. The answer comes at once.",
      .for_operators = true,
      .fields = {kModelField},
      .required = {"model"},
      .manage = unload_model,
      .answer_schema = "ModelChanged",
      .schemas =
          R"({"ModelChanged": {"type": "object", "required": ["success"], "properties": {"success": {"const": true}}}})"};
  return api;
}

const GetDefinition& llama_props_get() {
  static const GetDefinition get{
      .path = "/props",
      .summary = "the server's properties, as llama.cpp gives them",
      .reply = [](const Models& models, const GetRequest&) -> Reply {
        return {.body = dump(llama_props_json(llama_server(*models.first_loaded().service)))};
      },
      .answer_schema = "LlamaProps"};
  return get;
}

const GetDefinition& llama_slots_get() {
  static const GetDefinition get{
      .path = "/slots",
      .summary = "the sequences that run, as llama.cpp's slots",
      .reply = [](const Models& models, const GetRequest&) -> Reply {
        return {.body = dump(llama_slots_json(llama_server(*models.first_loaded().service)))};
      },
      .answer_schema = "LlamaSlots"};
  return get;
}

}  // namespace quire
