#include "server/endpoints/infill.h"

#include <algorithm>

#include "server/api/error.h"
#include "server/api/service.h"
#include "server/endpoints/llama.h"

namespace quire {
namespace {

constexpr size_t kMaxFiles = 1024;

void refuse_with_suffix(bool given, const char* field) {
  if (given) throw bad_request(field, "cannot be combined with suffix");
}

void read_input_prefix(ApiDraft& draft, const JsonField& field) {
  draft.has_prompt = true;
  draft.input_prefix = field.string();
}

void read_typed_prompt(ApiDraft& draft, const JsonField& field) { draft.prompts.emplace_back(field.string()); }

void read_input_suffix(ApiDraft& draft, const JsonField& field) { draft.suffix = field.string(); }

void read_input_extra(ApiDraft& draft, const JsonField& field) {
  for (const JsonField& file : field.elements(kMaxFiles)) {
    const std::string text = file.object().at("text").string();
    draft.infill_files.push_back({.name = file.get_or<std::string>("filename", "file"), .text = text});
  }
}

void settle_infill(ApiDraft& draft) {
  const std::string typed = draft.prompts.empty() ? "" : std::get<std::string>(draft.prompts.back());
  draft.prompts = {*draft.input_prefix + typed};
  settle_suffix(draft);
}

}  // namespace

void read_suffix(ApiDraft& draft, const JsonField& field) {
  if (!field.string().empty()) draft.suffix = field.string();  // clients send "" for none
}

void settle_suffix(ApiDraft& draft) {
  if (!draft.suffix) return;
  const auto is_text = [](const Prompt& prompt) { return std::holds_alternative<std::string>(prompt); };
  if (!std::ranges::all_of(draft.prompts, is_text)) {
    throw bad_request("suffix", "needs a prompt that is a text, not token ids");
  }
  refuse_with_suffix(draft.echo, "echo");
  refuse_with_suffix(draft.truncate_prompt_tokens.has_value(), "truncate_prompt_tokens");
  refuse_with_suffix(draft.parse_special.value_or(false), "parse_special");
}

void require_infill(ApiRequest& request, const Service& service) {
  if (!request.suffix || service.text().can_infill()) return;
  throw bad_request(request.api == &infill_api() ? "input_suffix" : "suffix",
                    "this model cannot fill in the middle: its vocabulary has no tokens for it");
}

const ApiDefinition& infill_api() {
  static const ApiDefinition api{
      .path = "/infill",
      .summary = "Fill in the middle: the text between two others, llama.cpp's API.",
      .fields = join({kModelField,
                      kPredictField,
                      {"input_prefix", read_input_prefix, schemas::kText, "before the gap"},
                      {"prompt", read_typed_prompt, schemas::kText, "continues input_prefix"},
                      {"input_suffix", read_input_suffix, schemas::kText, "after the gap"},
                      {"input_extra", read_input_extra,
                       R"({"type": "array", "maxItems": 1024, "items": {"type": "object", "required": ["text"],
         "properties": {"text": {"type": "string"}, "filename": {"type": ["string", "null"]}}}})",
                       "other files, which come before the prefix"},
                      kStopField,
                      kStreamField},
                     {llama_fields(), sampling_fields(), engine_fields()}),
      .refused = join({kThinkingField, kOwnTemplateField},
                      {refused_llama_fields(), refused_sampling_fields(), refused_wrappers()}),
      .required = {"input_prefix", "input_suffix"},
      .generates_text = true,
      .fills_cache = true,
      .settle = settle_infill,
      .adapt = require_infill,
      .answer = llama_answer,
      .prompt_field = "input_prefix",
      .answer_schema = "LlamaAnswer",
      .stream_type = "text/event-stream"};
  return api;
}

}  // namespace quire
