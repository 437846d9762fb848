// The rows of Ollama's API.
#include <optional>
#include <string>

#include "server/api/models.h"
#include "server/api/request/field_readers.h"
#include "server/api/request/prompts.h"
#include "server/api/request/structured_output.h"
#include "server/api/request/tools.h"
#include "server/endpoints/infill.h"
#include "server/endpoints/ollama.h"

namespace quire {
namespace {

constexpr ApiField kOllamaFields[] = {
    {"model", read_ollama_model, R"({"$ref": "#/components/schemas/OllamaModelName"})",
     "one of GET /api/tags, with or without :latest; the first by default"},
    {"options", read_options, R"({"$ref": "#/components/schemas/OllamaOptions"})", "parameters of sampling"},
    {"keep_alive", read_keep_alive, R"({"anyOf": [{"type": "number"}, {"type": "string"}]})",
     "how long the model stays loaded afterwards: seconds, 5m, 0, or -1 for as long as there is memory"},
};

// Of chats and prompts.
constexpr ApiField kOllamaTextFields[] = {
    {"stream", &ApiRequest::stream, {}, "true by default: one JSON object on each line"},
    {"format", read_format, R"({"anyOf": [{"enum": ["", "json"]}, {"type": "object"}]})",
     "json, or a JSON Schema that the answer matches"},
    {"think", read_think, R"({"anyOf": [{"type": "boolean"}, {"enum": ["low", "medium", "high", "max"]}]})",
     "sets enable_thinking and reasoning_effort for the chat template; true only for models that think"},
    {"logprobs", read_logprobs, schemas::kSwitch},
    {"top_logprobs", read_top_logprobs, schemas::kUpToLogprobs, "needs logprobs"},
};

// The member `options`.
const ApiDefinition& options_api() {
  static const ApiDefinition api{
      .path = {},
      .summary = {},
      .fields = join({{"num_predict", read_num_predict, R"({"type": "integer", "minimum": -2, "maximum": 2147483647})",
                       "the most tokens; 0, -1 and -2: no limit"},
                      {"num_ctx", read_num_ctx, R"({"type": "integer", "minimum": 0})",
                       "the server's context counts in any case; a larger number is logged once"},
                      kStopField},
                     {sampling_fields()}),
      .refused = join({kSamplersField, kThinkingField, kOwnTemplateField}, {refused_sampling_fields()}),
      .generates_text = true};
  return api;
}

void stream_by_default(ApiDraft& draft) { draft.stream = true; }
void truncate_by_default(ApiDraft& draft) { draft.truncate_end = true; }

// `service` of a model that is not loaded is empty: then less is known.
OllamaModel ollama_model(const ListedModel& model, const ServiceLease& service) {
  static const ModelInfo kUnknown{};
  return {.info = service      ? service->model()
                  : model.info ? *model.info
                               : kUnknown,
          .names = model.all_names(),
          .loaded = model.created,
          .chat_template = service ? service->text().chat_template_source() : std::string(),
          .thinks = service && service->format().format().reasoning != nullptr,
          .infills = service && service->text().can_infill()};
}

std::optional<std::string> say_loaded(Service&, ApiRequest& request) {
  return request.only_loads ? std::optional(dump(ollama_loaded_json(request))) : std::nullopt;
}

std::string show(const Models& models, const ApiRequest& request) {
  const size_t model = models.find(request.model);
  const ListedModel listed = models.list(model);
  return dump(ollama_show_json(ollama_model(listed, models.look(model))));
}

std::unique_ptr<Answer> embeddings(ResponseHead head, TokenBytes) { return ollama_embeddings(std::move(head)); }

Json ollama_list(const Models& models, bool loaded, void (*add)(const OllamaModel&, Json&)) {
  Json list = Json::array();
  for (const size_t i : models.all()) {
    const ListedModel model = models.list(i);
    const ServiceLease service = models.look(i);
    if (service || !loaded) add(ollama_model(model, service), list);
  }
  return {{"models", std::move(list)}};
}

}  // namespace

const ApiDefinition& ollama_chat_api() {
  static const ApiDefinition api{
      .path = "/api/chat",
      .summary = "Answer a chat: Ollama's API.",
      .errors = ErrorShape::kOllama,
      .fields = join(
          {
              {"messages", read_ollama_messages,
               R"({"type": "array", "items": {"$ref": "#/components/schemas/OllamaMessage"}})",
               "none: the answer says that the model is loaded; a trailing assistant message is continued"},
              {"tools", read_tools,
               R"({"type": "array", "maxItems": 512, "items": {"$ref": "#/components/schemas/Tool"}})"},
          },
          {kOllamaFields, kOllamaTextFields, engine_fields()}),
      .refused = join({}, {refused_wrappers()}),
      .options = &options_api(),
      .generates_text = true,
      .begin = stream_by_default,
      .settle = settle_ollama_chat,
      .adapt = adapt_ollama,
      .reply = say_loaded,
      .answer = ollama_answer,
      .answer_schema = "OllamaChatAnswer",
      .stream_type = "application/x-ndjson",
      .schemas = ollama_schemas()};
  return api;
}

const ApiDefinition& ollama_generate_api() {
  static const ApiDefinition api{
      .path = "/api/generate",
      .summary = "Answer a text, or continue one: Ollama's API.",
      .errors = ErrorShape::kOllama,
      .fields = join(
          {
              {"prompt", read_one_text, schemas::kText, "empty: the answer says that the model is loaded"},
              {"system", read_ollama_system, schemas::kText, "a system message before the prompt"},
              {"raw", read_raw, schemas::kSwitch, "true: without the chat template"},
              {"suffix", read_suffix, schemas::kText, "fill in the middle: the answer goes between prompt and suffix"},
          },
          {kOllamaFields, kOllamaTextFields, engine_fields()}),
      .refused = join({{"template", R"([""])", kOwnTemplateField.advice},
                       {"context", "[[]]", "send the whole conversation to /api/chat"},
                       {"images", "[[]]", "prompts are text"}},
                      {refused_wrappers()}),
      .options = &options_api(),
      .generates_text = true,
      .begin = stream_by_default,
      .settle = settle_generate,
      .adapt = adapt_ollama,
      .reply = say_loaded,
      .answer = ollama_answer,
      .prompt_field = "prompt",
      .answer_schema = "OllamaTextAnswer",
      .stream_type = "application/x-ndjson"};
  return api;
}

const ApiDefinition& ollama_embed_api() {
  static const ApiDefinition api{
      .path = "/api/embed",
      .summary = "Embed texts: Ollama's API.",
      .errors = ErrorShape::kOllama,
      .fields = join(
          {
              {"input", read_prompt, schemas::kPrompts},
              {"truncate", read_truncate, schemas::kSwitch,
               "false: texts that are too long are refused; by default only their first tokens count"},
              {"dimensions", read_dimensions, R"({"$ref": "#/components/schemas/Dimensions"})"},
          },
          {kOllamaFields, engine_fields()}),
      .required = {"input"},
      .options = &options_api(),
      .begin = truncate_by_default,
      .settle = settle_embed,
      .answer = embeddings,
      .prompt_field = "input",
      .answer_schema = "OllamaEmbeddings"};
  return api;
}

const ApiDefinition& ollama_embeddings_api() {
  static const ApiDefinition api{.path = "/api/embeddings",
                                 .summary = "Embed a text: Ollama's older API.",
                                 .errors = ErrorShape::kOllama,
                                 .fields = join(
                                     {
                                         {"prompt", read_one_text, schemas::kText},
                                     },
                                     {kOllamaFields, engine_fields()}),
                                 .required = {"prompt"},
                                 .options = &options_api(),
                                 .begin = truncate_by_default,
                                 .settle = settle_embed,
                                 .answer = embeddings,
                                 .answer_schema = "OllamaEmbedding"};
  return api;
}

const ApiDefinition& ollama_show_api() {
  static const ApiDefinition api{.path = "/api/show",
                                 .summary = "Describe the model: Ollama's API.",
                                 .errors = ErrorShape::kOllama,
                                 .fields = {std::begin(kOllamaFields), std::end(kOllamaFields)},
                                 .options = &options_api(),
                                 .manage = show,
                                 .answer_schema = "OllamaModel"};
  return api;
}

const GetDefinition& ollama_tags_get() {
  static const GetDefinition get{.path = "/api/tags",
                                 .summary = "the served models, as Ollama lists them",
                                 .reply = [](const Models& models, const GetRequest&) -> Reply {
                                   return {.body = dump(ollama_list(models, false, add_ollama_tags))};
                                 },
                                 .answer_schema = "OllamaModels"};
  return get;
}

const GetDefinition& ollama_ps_get() {
  static const GetDefinition get{.path = "/api/ps",
                                 .summary = "the loaded models, as Ollama lists them",
                                 .reply = [](const Models& models, const GetRequest&) -> Reply {
                                   return {.body = dump(ollama_list(models, true, add_ollama_ps))};
                                 },
                                 .answer_schema = "OllamaModels"};
  return get;
}

const GetDefinition& ollama_version_get() {
  static const GetDefinition get{.path = "/api/version",
                                 .summary = "the version of Ollama whose API this is",
                                 .reply = [](const Models&, const GetRequest&) -> Reply {
                                   return {.body = dump({{"version", kOllamaVersion}})};
                                 }};
  return get;
}

}  // namespace quire
