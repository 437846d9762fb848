#include "server/endpoints/infill.h"

#include <algorithm>

#include "server/api/error.h"

namespace quire {
namespace {

constexpr size_t kMaxFiles = 1024;

void refuse_with_suffix(bool given, const char* field) {
  if (given) throw bad_request(field, "cannot be combined with suffix");
}

}  // namespace

void read_suffix(ApiDraft& draft, const JsonField& field) {
  if (!field.string().empty()) draft.suffix = field.string();  // clients send "" for none
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
  if (draft.api == Api::kInfill) {
    const std::string typed = draft.prompts.empty() ? "" : std::get<std::string>(draft.prompts.back());
    draft.prompts = {*draft.input_prefix + typed};
  }
  if (!draft.suffix) return;
  const auto is_text = [](const Prompt& prompt) { return std::holds_alternative<std::string>(prompt); };
  if (!std::ranges::all_of(draft.prompts, is_text)) {
    throw bad_request("suffix", "needs a prompt that is a text, not token ids");
  }
  refuse_with_suffix(draft.echo, "echo");
  refuse_with_suffix(draft.truncate_prompt_tokens.has_value(), "truncate_prompt_tokens");
  refuse_with_suffix(draft.parse_special.value_or(false), "parse_special");
}

}  // namespace quire
