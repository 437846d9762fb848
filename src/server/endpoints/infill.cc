#include "server/endpoints/infill.h"

#include <algorithm>

#include "server/api/error.h"

namespace quire {
namespace {

constexpr size_t kMaxFiles = 1024;

class InfillAnswer final : public Answer {
 public:
  explicit InfillAnswer(ResponseHead head) : head_(std::move(head)) {}

  void add(int, const Output& output, std::string& out) override {
    text_ += output.text;
    if (output.finish != FinishReason::kNone) {
      last_ = output;
      return;
    }
    if (!head_.request.stream || text_.empty()) return;
    out += "data: " + dump({{"index", 0}, {"content", std::exchange(text_, {})}, {"stop", false}}) + "\n\n";
  }

  void end(std::string& out) override {
    const std::string body = dump(whole());
    out += head_.request.stream ? "data: " + body + "\n\n" : body;
  }

 private:
  Json whole() const {
    const Usage& usage = last_.usage;
    const bool word = !last_.stop_reason.empty() && !last_.stop_token;
    return {{"index", 0},
            {"content", text_},
            {"stop", true},
            {"model", head_.request.model},
            {"tokens_predicted", usage.completion_tokens},
            {"tokens_evaluated", head_.prompt_tokens},
            {"tokens_cached", usage.cached_tokens},
            {"truncated", false},
            {"stop_type", last_.finish == FinishReason::kLength ? "limit"
                          : word                                ? "word"
                                                                : "eos"},
            {"stopping_word", word ? last_.stop_reason : ""},
            {"timings", timings(usage)}};
  }

  // Of the tokens that were computed.
  Json timings(const Usage& usage) const {
    Json json = Json::object();
    const auto add = [&](const std::string& name, int tokens, double seconds) {
      json[name + "_n"] = tokens;
      json[name + "_ms"] = seconds * 1e3;
      json[name + "_per_token_ms"] = tokens > 0 ? seconds * 1e3 / tokens : 0.0;
      json[name + "_per_second"] = seconds > 0 ? tokens / seconds : 0.0;
    };
    add("prompt", head_.prompt_tokens - usage.cached_tokens, std::max(0.0, usage.ttft_seconds - usage.queue_seconds));
    add("predicted", usage.completion_tokens, std::max(0.0, usage.seconds - usage.ttft_seconds));
    return json;
  }

  ResponseHead head_;
  std::string text_;  // of a stream: not sent yet
  Output last_;
};

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

std::unique_ptr<Answer> infill_answer(ResponseHead head) { return std::make_unique<InfillAnswer>(std::move(head)); }

}  // namespace quire
