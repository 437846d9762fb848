#include "server/endpoints/responses.h"

#include "server/api/error.h"
#include "server/api/logprobs.h"
#include "server/api/prompts.h"
#include "server/api/structured_output.h"

namespace quire {
namespace {

constexpr std::string_view kRoles[] = {"user", "assistant", "system", "developer"},
                           kTextTypes[] = {"input_text", "output_text"}, kLogprobs = "message.output_text.logprobs";

// 0.7f as 0.7 and not as 0.699999988079071.
double as_written(float number) { return std::stod(fmt::format("{}", number)); }

class ResponseAnswer final : public Answer {
 public:
  ResponseAnswer(ResponseHead head, TokenBytes token_bytes)
      : head_(std::move(head)),
        token_bytes_(std::move(token_bytes)),
        item_id_("msg_" + head_.id.substr(head_.id.find('_') + 1)) {}

  void add(int, const Output& output, std::string& out) override {
    usage_.add(0, output);
    text_ += output.text;
    Json logprobs = Json::array();
    if (head_.request.sampling.logprobs) {
      logprobs = chat_logprobs_json(head_, output.tokens, token_bytes_);
      logprobs_.insert(logprobs_.end(), logprobs.begin(), logprobs.end());
    }
    if (output.finish != FinishReason::kNone) finish_ = output.finish;
    if (!head_.request.stream) return;
    if (!begun_) begin(out);
    if (output.text.empty() && logprobs.empty()) return;
    Json delta = of_part("response.output_text.delta");
    delta["logprobs"] = std::move(logprobs);
    delta["delta"] = output.text;
    event(std::move(delta), out);
  }

  void end(std::string& out) override {
    if (!head_.request.stream) {
      out += dump(response(status()));
      return;
    }
    Json text_done = of_part("response.output_text.done");
    text_done["logprobs"] = logprobs_;
    text_done["text"] = text_;
    event(std::move(text_done), out);
    Json part_done = of_part("response.content_part.done");
    part_done["part"] = part(text_, logprobs_);
    event(std::move(part_done), out);
    event({{"type", "response.output_item.done"}, {"output_index", 0}, {"item", item(status())}}, out);
    event({{"type", "response." + std::string(status())}, {"response", response(status())}}, out);
  }

  void fail(const ApiError& error, std::string& out) override {
    event({{"type", "error"},
           {"code", error.code.empty() ? error.type : error.code},
           {"message", error.what()},
           {"param", error.param.empty() ? Json() : Json(error.param)}},
          out);
  }

 private:
  std::string_view status() const { return finish_ == FinishReason::kLength ? "incomplete" : "completed"; }

  void begin(std::string& out) {
    begun_ = true;
    for (const char* type : {"response.created", "response.in_progress"}) {
      event({{"type", type}, {"response", response("in_progress")}}, out);
    }
    event({{"type", "response.output_item.added"}, {"output_index", 0}, {"item", item("in_progress")}}, out);
    Json part_added = of_part("response.content_part.added");
    part_added["part"] = part("", Json::array());
    event(std::move(part_added), out);
  }

  void event(Json data, std::string& out) {
    data["sequence_number"] = sequence_number_++;
    append_typed_event(data, out);
  }
  Json of_part(const char* type) const {
    return {{"type", type}, {"item_id", item_id_}, {"output_index", 0}, {"content_index", 0}};
  }
  static Json part(std::string_view text, const Json& logprobs) {
    return {{"type", "output_text"}, {"text", text}, {"annotations", Json::array()}, {"logprobs", logprobs}};
  }

  Json item(std::string_view status) const {
    Json content = Json::array();
    if (status != "in_progress") content.push_back(part(text_, logprobs_));
    return {{"id", item_id_},
            {"type", "message"},
            {"status", status},
            {"role", "assistant"},
            {"content", std::move(content)}};
  }

  Json response(std::string_view status) const {
    const bool ended = status != "in_progress";
    const ApiRequest& request = head_.request;
    const SamplingParams& sampling = request.sampling;
    Json json = {{"id", head_.id},
                 {"object", "response"},
                 {"created_at", head_.created},
                 {"status", status},
                 {"background", false},
                 {"error", nullptr},
                 {"incomplete_details", status == "incomplete" ? Json{{"reason", "max_output_tokens"}} : Json()}};
    json.update({{"instructions", request.instructions ? Json(*request.instructions) : Json()},
                 {"max_output_tokens", sampling.max_tokens ? Json(*sampling.max_tokens) : Json()},
                 {"temperature", as_written(sampling.temperature)},
                 {"top_p", as_written(sampling.top_p)},
                 {"top_logprobs", sampling.logprobs.value_or(0)},
                 {"model", request.model},
                 {"output", ended ? Json::array({item(status)}) : Json::array()},
                 {"parallel_tool_calls", false},
                 {"previous_response_id", nullptr},
                 {"reasoning", {{"effort", nullptr}, {"summary", nullptr}}},
                 {"store", false},
                 {"text", {{"format", request.text_format}}},
                 {"tool_choice", "none"},
                 {"tools", Json::array()},
                 {"truncation", "disabled"},
                 {"usage", ended ? usage() : Json()},
                 {"user", nullptr},
                 {"metadata", Json::object()}});
    return json;
  }

  Json usage() const {
    const int answered = usage_.completion_tokens();
    return {{"input_tokens", head_.prompt_tokens},
            {"input_tokens_details", {{"cached_tokens", usage_.cached_tokens(1)}, {"cache_write_tokens", 0}}},
            {"output_tokens", answered},
            {"output_tokens_details", {{"reasoning_tokens", 0}}},
            {"total_tokens", head_.prompt_tokens + answered}};
  }

  ResponseHead head_;
  TokenBytes token_bytes_;
  std::string item_id_, text_;
  Json logprobs_ = Json::array();  // of the whole text
  UsageSum usage_{1};
  FinishReason finish_ = FinishReason::kNone;
  bool begun_ = false;
  int sequence_number_ = 0;
};

}  // namespace

void read_items(ApiDraft& draft, const JsonField& field) {
  draft.has_messages = true;
  if (field.json().is_string()) {
    draft.chat.messages.push_back({{"role", "user"}, {"content", field.string()}});
    return;
  }
  if (!field.json().is_array()) {
    throw field.error("expected a string or an array of items, found {}", describe(field.json()));
  }
  for (const JsonField& item : field.elements(kMaxMessages)) {
    const auto type = item.object().find("type");
    if (type && type->string() == "reasoning") continue;  // the model writes its own
    if (type && type->string() != "message") {
      throw type->error("{} is not supported; supported: \"message\", \"reasoning\"", describe(type->json()));
    }
    draft.chat.messages.push_back(read_text_message(item, kRoles, {kTextTypes}));
  }
  if (draft.chat.messages.empty()) throw field.error("must have at least one message");
}

void read_reasoning(ApiDraft& draft, const JsonField& field) {
  for (const auto& [key, value] : field.object().members()) {
    if (value.json().is_null()) continue;
    if (key == "effort") {
      draft.chat.kwargs.emplace("reasoning_effort", value.string());
    } else {
      draft.without_effect.push_back("reasoning." + std::string(key));
    }
  }
}

void read_text_options(ApiDraft& draft, const JsonField& field) {
  for (const auto& [key, value] : field.object().members()) {
    if (value.json().is_null()) continue;
    if (key == "verbosity") {
      draft.chat.kwargs.emplace("verbosity", value.string());
    } else if (key != "format") {
      draft.without_effect.push_back("text." + std::string(key));
    } else {
      read_output_format(draft, value);
      draft.text_format = value.json();
    }
  }
}

void read_truncation(ApiDraft& draft, const JsonField& field) {
  if (field.json() != "disabled" && field.json() != "auto") {
    throw field.error("expected \"disabled\" or \"auto\", found {}", describe(field.json()));
  }
  if (field.json() == "auto") draft.without_effect.emplace_back("truncation");  // what is too long is refused
}

void read_store(ApiDraft& draft, const JsonField& field) {
  if (field.boolean()) draft.without_effect.emplace_back("store");  // the response says "store": false
}

void read_include(ApiDraft& draft, const JsonField& field) {
  for (const JsonField& part : field.elements(64)) {
    if (part.string() == kLogprobs) {
      draft.logprobs = true;
    } else {
      draft.without_effect.push_back("include: " + part.string());
    }
  }
}

std::unique_ptr<Answer> response_answer(ResponseHead head, TokenBytes token_bytes) {
  return std::make_unique<ResponseAnswer>(std::move(head), std::move(token_bytes));
}

}  // namespace quire
