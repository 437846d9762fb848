// OpenAI's /v1/responses: one message of one text.
#include "server/api/answer_parts.h"

namespace quire {
namespace {

class ResponseAnswer final : public Answer {
 public:
  explicit ResponseAnswer(ResponseHead head)
      : head_(std::move(head)), item_id_("msg_" + head_.id.substr(head_.id.find('_') + 1)) {}

  void add(int, const Output& output, std::string& out) override {
    usage_.add(0, output);
    text_ += output.text;
    if (output.finish != FinishReason::kNone) finish_ = output.finish;
    if (!head_.stream) return;
    if (!begun_) begin(out);
    if (output.text.empty()) return;
    Json delta = of_text("response.output_text.delta");
    delta["delta"] = output.text;
    event(std::move(delta), out);
  }

  void end(std::string& out) override {
    if (!head_.stream) {
      out += dump(response(status()));
      return;
    }
    Json text_done = of_text("response.output_text.done");
    text_done["text"] = text_;
    event(std::move(text_done), out);
    Json part_done = of_part("response.content_part.done");
    part_done["part"] = part(text_);
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
    part_added["part"] = part("");
    event(std::move(part_added), out);
  }

  void event(Json data, std::string& out) {
    data["sequence_number"] = sequence_number_++;
    append_typed_event(data, out);
  }
  Json of_part(const char* type) const {
    return {{"type", type}, {"item_id", item_id_}, {"output_index", 0}, {"content_index", 0}};
  }
  Json of_text(const char* type) const {
    Json json = of_part(type);
    json["logprobs"] = Json::array();
    return json;
  }
  static Json part(std::string_view text) {
    return {{"type", "output_text"}, {"text", text}, {"annotations", Json::array()}, {"logprobs", Json::array()}};
  }

  Json item(std::string_view status) const {
    Json content = Json::array();
    if (status != "in_progress") content.push_back(part(text_));
    return {{"id", item_id_},
            {"type", "message"},
            {"status", status},
            {"role", "assistant"},
            {"content", std::move(content)}};
  }

  Json response(std::string_view status) const {
    const bool ended = status != "in_progress";
    Json json = {{"id", head_.id},
                 {"object", "response"},
                 {"created_at", head_.created},
                 {"status", status},
                 {"background", false},
                 {"error", nullptr},
                 {"incomplete_details", status == "incomplete" ? Json{{"reason", "max_output_tokens"}} : Json()}};
    json.update(head_.repeated);
    json.update({{"model", head_.model},
                 {"output", ended ? Json::array({item(status)}) : Json::array()},
                 {"parallel_tool_calls", false},
                 {"previous_response_id", nullptr},
                 {"reasoning", {{"effort", nullptr}, {"summary", nullptr}}},
                 {"store", false},
                 {"text", {{"format", {{"type", "text"}}}}},
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
  std::string item_id_, text_;
  UsageSum usage_{1};
  FinishReason finish_ = FinishReason::kNone;
  bool begun_ = false;
  int sequence_number_ = 0;
};

}  // namespace

std::unique_ptr<Answer> response_answer(ResponseHead head) { return std::make_unique<ResponseAnswer>(std::move(head)); }

}  // namespace quire
