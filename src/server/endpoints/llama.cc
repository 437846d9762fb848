#include "server/endpoints/llama.h"

#include <algorithm>
#include <cstdint>
#include <utility>

#include "server/api/error.h"
#include "server/api/request/prompts.h"
#include "server/endpoints/logprobs.h"

namespace quire {
namespace {

constexpr size_t kMaxResponseFields = 64;
constexpr uint32_t kRandomSeed = 0xFFFFFFFF;  // how llama.cpp writes that none is set

// Under llama.cpp's names.
Json settings_json(const SamplingParams& s, bool stream, bool has_seed) {
  return {{"n_predict", s.max_tokens.value_or(-1)},
          {"max_tokens", s.max_tokens.value_or(-1)},
          {"seed", has_seed ? s.seed : uint64_t{kRandomSeed}},
          {"temperature", s.temperature},
          {"dynatemp_range", s.dynatemp_range},
          {"dynatemp_exponent", s.dynatemp_exponent},
          {"top_k", s.top_k},
          {"top_p", s.top_p},
          {"min_p", s.min_p},
          {"top_n_sigma", s.top_n_sigma},
          {"xtc_probability", s.xtc_probability},
          {"xtc_threshold", s.xtc_threshold},
          {"typical_p", s.typical_p},
          {"repeat_last_n", s.repeat_last_n},
          {"repeat_penalty", s.repetition_penalty},
          {"presence_penalty", s.presence_penalty},
          {"frequency_penalty", s.frequency_penalty},
          {"dry_multiplier", s.dry_multiplier},
          {"dry_base", s.dry_base},
          {"dry_allowed_length", s.dry_allowed_length},
          {"dry_penalty_last_n", s.dry_penalty_last_n},
          {"dry_sequence_breakers", s.dry_sequence_breakers},
          {"mirostat", s.mirostat},
          {"mirostat_tau", s.mirostat_tau},
          {"mirostat_eta", s.mirostat_eta},
          {"stop", s.stop},
          {"ignore_eos", s.ignore_eos},
          {"n_probs", s.logprobs.value_or(0)},
          {"min_keep", 0},
          {"samplers", Json::parse(kSamplerOrder)},
          {"stream", stream}};
}

// Of the tokens that were computed.
Json timings_json(const Usage& usage, int prompt_tokens) {
  Json json = {{"cache_n", usage.cached_tokens}};
  const auto add = [&](const std::string& name, int tokens, double seconds) {
    json[name + "_n"] = tokens;
    json[name + "_ms"] = seconds * 1e3;
    json[name + "_per_token_ms"] = tokens > 0 ? seconds * 1e3 / tokens : 0.0;
    json[name + "_per_second"] = seconds > 0 ? tokens / seconds : 0.0;
  };
  add("prompt", prompt_tokens - usage.cached_tokens, std::max(0.0, usage.ttft_seconds - usage.queue_seconds));
  add("predicted", usage.completion_tokens, std::max(0.0, usage.seconds - usage.ttft_seconds));
  return json;
}

// "timings/prompt_n" becomes a member of this name. What is missing is left out.
Json picked(const Json& whole, const std::vector<std::string>& paths) {
  Json out = Json::object();
  for (const std::string& path : paths) {
    const Json* at = &whole;
    for (size_t begin = 0; at && begin <= path.size();) {
      const size_t end = std::min(path.find('/', begin), path.size());
      const auto found = at->is_object() ? at->find(path.substr(begin, end - begin)) : at->end();
      at = found != at->end() ? &*found : nullptr;
      begin = end + 1;
    }
    if (at) out[path] = *at;
  }
  return out;
}

class LlamaAnswer final : public Answer {
 public:
  LlamaAnswer(ResponseHead head, TokenBytes token_bytes)
      : head_(std::move(head)), token_bytes_(std::move(token_bytes)), choices_(static_cast<size_t>(head_.choices())) {}

  void add(int choice, const Output& output, std::string& out) override {
    Choice& c = choices_[static_cast<size_t>(choice)];
    const bool stream = head_.request.stream;
    c.text += output.text;
    c.has_new_line |= output.text.find('\n') != output.text.npos;
    c.predicted += static_cast<int>(output.tokens.size());
    if (head_.request.return_token_ids || stream) {
      for (const OutputToken& token : output.tokens) c.tokens.push_back(token.id);
    }
    if (head_.request.sampling.logprobs) add_probabilities(c, output.tokens);
    if (output.finish != FinishReason::kNone) c.last = output;
    if (!stream) return;
    if (output.finish != FinishReason::kNone) {
      out += "data: " + dump(whole(choice)) + "\n\n";
    } else if (!c.text.empty()) {
      out += "data: " + dump(piece(choice)) + "\n\n";
    }
  }

  void end(std::string& out) override {
    if (head_.request.stream) return;
    Json all = Json::array();
    for (int i = 0; i < head_.choices(); ++i) all.push_back(whole(i));
    out += dump(all.size() == 1 ? all[0] : all);
  }

 private:
  struct Choice {
    std::string text;                                            // in a stream: what has not been sent
    Json tokens = Json::array(), probabilities = Json::array();  // likewise
    int predicted = 0;
    bool has_new_line = false;
    Output last;
  };

  int prompt_tokens(const Choice& c) const {
    return head_.prompts == 1 ? head_.prompt_tokens : c.last.usage.prompt_tokens;
  }

  // As in chats, with ids.
  void add_probabilities(Choice& c, const std::vector<OutputToken>& tokens) const {
    Json all = chat_logprobs_json(head_, tokens, token_bytes_);
    for (size_t i = 0; i < tokens.size(); ++i) {
      all[i]["id"] = tokens[i].id;
      for (size_t top = 0; top < tokens[i].top_logprobs.size(); ++top)
        all[i]["top_logprobs"][top]["id"] = tokens[i].top_logprobs[top].first;
      c.probabilities.push_back(std::move(all[i]));
    }
  }

  void move_content(Choice& c, Json& json) const {
    json["content"] = std::exchange(c.text, {});
    json["tokens"] = std::exchange(c.tokens, Json::array());
    if (head_.request.sampling.logprobs)
      json["completion_probabilities"] = std::exchange(c.probabilities, Json::array());
  }

  Json piece(int choice) {
    Choice& c = choices_[static_cast<size_t>(choice)];
    Json json = {{"index", choice}, {"id_slot", -1}, {"stop", false}, {"tokens_predicted", c.predicted}};
    if (head_.prompts == 1) json["tokens_evaluated"] = head_.prompt_tokens;
    move_content(c, json);
    return json;
  }

  Json whole(int choice) {
    Choice& c = choices_[static_cast<size_t>(choice)];
    const ApiRequest& asked = head_.request;
    const Usage& usage = c.last.usage;
    const bool word = !c.last.stop_reason.empty() && !c.last.stop_token, limit = c.last.finish == FinishReason::kLength;
    Json json = {{"index", choice},
                 {"id_slot", -1},
                 {"stop", true},
                 {"model", asked.model},
                 {"tokens_predicted", usage.completion_tokens},
                 {"tokens_evaluated", prompt_tokens(c)},
                 {"tokens_cached", usage.cached_tokens},
                 {"has_new_line", c.has_new_line},
                 // The context was full before n_predict was reached.
                 {"truncated", limit && usage.completion_tokens < asked.sampling.max_tokens.value_or(INT32_MAX)},
                 {"stop_type", limit  ? "limit"
                               : word ? "word"
                                      : "eos"},
                 {"stopping_word", word ? c.last.stop_reason : ""},
                 {"timings", timings_json(usage, prompt_tokens(c))}};
    // Once, because thousands of choices would repeat its stop strings.
    if (choice == 0) json["generation_settings"] = settings_json(asked.sampling, asked.stream, asked.has_seed);
    move_content(c, json);
    return asked.response_fields.empty() ? json : picked(json, asked.response_fields);
  }

  ResponseHead head_;
  TokenBytes token_bytes_;
  std::vector<Choice> choices_;
};

Json slot_json(const LlamaServer& server, int id) {
  return {{"id", id},
          {"id_task", -1},
          {"n_ctx", server.info.max_model_len},
          {"speculative", server.speculates},
          {"is_processing", id < server.busy}};
}

}  // namespace

void read_n_probs(ApiDraft& draft, const JsonField& field) {
  if (const auto count = static_cast<int>(field.integer(0, kMaxLogprobs)); count > 0) draft.sampling.logprobs = count;
}

void read_response_fields(ApiDraft& draft, const JsonField& field) {
  for (const JsonField& name : field.elements(kMaxResponseFields)) draft.response_fields.push_back(name.string());
}

std::unique_ptr<Answer> llama_answer(ResponseHead head, TokenBytes token_bytes) {
  return std::make_unique<LlamaAnswer>(std::move(head), std::move(token_bytes));
}

Json llama_props_json(const LlamaServer& server) {
  Json settings = slot_json(server, 0);
  settings["params"] = settings_json(server.sampling, true, false);
  return {{"default_generation_settings", std::move(settings)},
          {"total_slots", server.slots},
          {"model_alias", server.name},
          {"model_path", server.info.name},
          {"modalities", {{"vision", false}, {"audio", false}}},
          {"chat_template", server.chat_template},
          {"chat_template_caps", Json::object()},
          {"bos_token", server.bos_token},
          {"eos_token", server.eos_token},
          {"build_info", fmt::format("quire-{}", server.version)},
          {"is_sleeping", false}};
}

Json llama_slots_json(const LlamaServer& server) {
  Json slots = Json::array();
  for (int id = 0; id < server.slots; ++id) slots.push_back(slot_json(server, id));
  return slots;
}

std::string_view llama_schemas() {
  return R"({
    "LlamaAnswer": {"anyOf": [{"$ref": "#/components/schemas/LlamaText"},
      {"type": "array", "items": {"$ref": "#/components/schemas/LlamaText"}}]},
    "LlamaText": {"type": "object", "description": "all members, unless response_fields names some",
      "properties": {"content": {"type": "string"}, "tokens": {"type": "array", "items": {"type": "integer"}},
        "stop": {"type": "boolean"}, "stop_type": {"enum": ["eos", "word", "limit"]}, "timings": {"type": "object"}}},
    "RenderedChat": {"type": "object", "required": ["prompt"], "properties": {"prompt": {"type": "string"}}},
    "LlamaProps": {"type": "object", "required": ["default_generation_settings", "total_slots", "model_path", "chat_template"]},
    "LlamaSlots": {"type": "array", "items": {"type": "object", "required": ["id", "n_ctx", "is_processing"]}}})";
}

}  // namespace quire
