// Answers of OpenAI's Responses API.
#include <algorithm>

#include "server/api/request/tools.h"
#include "server/endpoints/logprobs.h"
#include "server/endpoints/responses.h"

namespace quire {
namespace {

// 0.7f as 0.7 and not as 0.699999988079071.
double as_written(float number) { return std::stod(fmt::format("{}", number)); }

// What the answer repeats, and its default.
struct RepeatedParameter {
  std::string_view name, otherwise;
};
constexpr RepeatedParameter kRepeated[] = {
    {"instructions", "null"},
    {"max_output_tokens", "null"},
    {"max_tool_calls", "null"},
    {"metadata", "{}"},
    {"parallel_tool_calls", "true"},
    {"previous_response_id", "null"},
    {"prompt_cache_key", "null"},
    {"prompt_cache_retention", "null"},
    {"reasoning", R"({"effort": null, "summary": null})"},
    {"safety_identifier", "null"},
    {"service_tier", R"("default")"},
    {"text", R"({"format": {"type": "text"}})"},
    {"tool_choice", R"("auto")"},
    {"tools", "[]"},
    {"truncation", R"("disabled")"},
    {"user", "null"},
};

Json repeated_parameters(const Json& as_sent) {
  Json json = Json::object();
  for (const RepeatedParameter& parameter : kRepeated) {
    json[std::string(parameter.name)] = Json::parse(parameter.otherwise);
  }
  for (const auto& [name, value] : as_sent.items()) {
    if (value.is_object() && (name == "reasoning" || name == "text")) {
      for (const auto& [member, setting] : value.items()) {
        if (!setting.is_null()) json[name][member] = setting;
      }
    } else {
      json[name] = value;
    }
  }
  return json;
}

// An item of the output: a message, reasoning or a call.
struct Item {
  AnswerPiece::Kind kind = AnswerPiece::kText;
  std::string id = {};
  std::string text = {};                // or a call's arguments
  std::string name = {}, call_id = {};  // a call's
  std::string name_space = {};          // a call's, if its function is in one
  Json logprobs = Json::array();
};

class ResponseAnswer final : public Answer {
 public:
  ResponseAnswer(ResponseHead head, TokenBytes token_bytes)
      : head_(std::move(head)), token_bytes_(std::move(token_bytes)), reader_(head_.reading, 1) {}

  void add(int, const Output& output, std::string& out) override {
    usage_.add(0, output);
    Json logprobs = Json::array();
    if (head_.request.sampling.logprobs) logprobs = chat_logprobs_json(head_, output.tokens, token_bytes_);
    if (output.finish != FinishReason::kNone) finish_ = output.finish;
    if (head_.request.stream && !begun_) begin(out);
    std::span<const AnswerPiece> pieces = reader_.read(0, output);
    static const AnswerPiece kEmpty;
    const bool in_text = !items_.empty() && items_.back().kind == AnswerPiece::kText;
    if (pieces.empty() && !logprobs.empty() && (in_text || !reader_.parses())) pieces = {&kEmpty, 1};
    for (const AnswerPiece& piece : pieces) {
      if (piece.kind == AnswerPiece::kText) {
        add_text(piece.text, std::exchange(logprobs, Json::array()), out);
      } else {
        add(piece, out);
      }
    }
  }

  void end(std::string& out) override {
    if (items_.empty()) open_item({.id = message_id()}, out);
    close_item(status(), out);
    if (!head_.request.stream) {
      out += dump(response(status()));
      return;
    }
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
  // The first message of a response shares its id.
  std::string message_id() const {
    return items_.empty() ? "msg_" + head_.id.substr(head_.id.find('_') + 1) : random_id("msg_");
  }

  void begin(std::string& out) {
    begun_ = true;
    for (const char* type : {"response.created", "response.in_progress"}) {
      event({{"type", type}, {"response", response("in_progress")}}, out);
    }
    if (!reader_.parses()) open_item({.id = message_id()}, out);  // otherwise the answer's first piece says what it is
  }

  void add_text(const std::string& text, Json logprobs, std::string& out) {
    if (!open_ || items_.back().kind != AnswerPiece::kText) open_item({.id = message_id()}, out);
    Item& item = items_.back();
    item.text += text;
    item.logprobs.insert(item.logprobs.end(), logprobs.begin(), logprobs.end());
    if (!head_.request.stream) return;
    Json delta = of_part("response.output_text.delta");
    delta["logprobs"] = std::move(logprobs);
    delta["delta"] = text;
    event(std::move(delta), out);
  }

  void add(const AnswerPiece& piece, std::string& out) {
    if (piece.kind == AnswerPiece::kCallEnd) return close_item("completed", out);
    if (piece.kind == AnswerPiece::kCallBegin) return open_item(call_of(piece.text), out);
    const bool of_call = piece.kind == AnswerPiece::kCallArguments;
    if (!open_ || (!of_call && items_.back().kind != piece.kind)) {
      open_item({.kind = piece.kind, .id = random_id("rs_")}, out);
    }
    items_.back().text += piece.text;
    if (!head_.request.stream) return;
    Json delta = of_call ? of_item("response.function_call_arguments.delta") : of_part("response.reasoning_text.delta");
    delta["delta"] = piece.text;
    event(std::move(delta), out);
  }

  Item call_of(const std::string& name) const {
    Item call{.kind = AnswerPiece::kCallBegin, .id = random_id("fc_"), .name = name, .call_id = random_id("call_")};
    const auto& rules = head_.request.tool_rules;
    const auto rule = std::ranges::find(rules, name, &ToolRule::name);
    if (rule == rules.end() || rule->name_space.empty()) return call;
    call.name_space = rule->name_space;
    call.name = name.substr(joined_name(rule->name_space, "").size());
    return call;
  }

  void open_item(Item item, std::string& out) {
    close_item("completed", out);
    open_ = true;
    items_.push_back(std::move(item));
    if (!head_.request.stream) return;
    event({{"type", "response.output_item.added"},
           {"output_index", index()},
           {"item", json_of(items_.back(), "in_progress")}},
          out);
    if (items_.back().kind == AnswerPiece::kCallBegin) return;
    Json part_added = of_part("response.content_part.added");
    part_added["part"] = part(items_.back());
    event(std::move(part_added), out);
  }

  void close_item(std::string_view status, std::string& out) {
    if (!std::exchange(open_, false)) return;
    const Item& item = items_.back();
    last_status_ = status;
    if (!head_.request.stream) return;
    if (item.kind == AnswerPiece::kCallBegin) {
      Json done = of_item("response.function_call_arguments.done");
      done["name"] = item.name;
      done["arguments"] = item.text;
      event(std::move(done), out);
    } else {
      const bool text = item.kind == AnswerPiece::kText;
      Json text_done = of_part(text ? "response.output_text.done" : "response.reasoning_text.done");
      if (text) text_done["logprobs"] = item.logprobs;
      text_done["text"] = item.text;
      event(std::move(text_done), out);
      Json part_done = of_part("response.content_part.done");
      part_done["part"] = part(item);
      event(std::move(part_done), out);
    }
    event({{"type", "response.output_item.done"}, {"output_index", index()}, {"item", json_of(item, status)}}, out);
  }

  void event(Json data, std::string& out) {
    data["sequence_number"] = sequence_number_++;
    append_typed_event(data, out);
  }
  size_t index() const { return items_.size() - 1; }
  Json of_item(const char* type) const {
    return {{"type", type}, {"item_id", items_.back().id}, {"output_index", index()}};
  }
  Json of_part(const char* type) const {
    Json json = of_item(type);
    json["content_index"] = 0;
    return json;
  }
  static Json part(const Item& item) {
    if (item.kind == AnswerPiece::kReasoning) return {{"type", "reasoning_text"}, {"text", item.text}};
    return {{"type", "output_text"}, {"text", item.text}, {"annotations", Json::array()}, {"logprobs", item.logprobs}};
  }

  static Json json_of(const Item& item, std::string_view status) {
    if (item.kind == AnswerPiece::kCallBegin) {
      Json call = {{"id", item.id},           {"type", "function_call"}, {"status", status},
                   {"call_id", item.call_id}, {"name", item.name},       {"arguments", item.text}};
      if (!item.name_space.empty()) call["namespace"] = item.name_space;
      return call;
    }
    Json content = Json::array();
    if (status != "in_progress") content.push_back(part(item));
    if (item.kind == AnswerPiece::kReasoning) {
      return {{"id", item.id},
              {"type", "reasoning"},
              {"status", status},
              {"summary", Json::array()},
              {"content", std::move(content)}};
    }
    return {{"id", item.id},
            {"type", "message"},
            {"status", status},
            {"role", "assistant"},
            {"content", std::move(content)}};
  }

  Json output() const {
    Json output = Json::array();
    for (const Item& item : items_)
      output.push_back(json_of(item, &item == &items_.back() ? last_status_ : "completed"));
    return output;
  }

  Json response(std::string_view status) const {
    const bool ended = status != "in_progress";
    const SamplingParams& sampling = head_.request.sampling;
    Json json = {{"id", head_.id},
                 {"object", "response"},
                 {"created_at", head_.created},
                 {"status", status},
                 {"background", false},
                 {"error", nullptr},
                 {"incomplete_details", status == "incomplete" ? Json{{"reason", "max_output_tokens"}} : Json()}};
    json.update(repeated_parameters(head_.request.as_sent));
    json.update({{"temperature", as_written(sampling.temperature)},
                 {"top_p", as_written(sampling.top_p)},
                 {"top_logprobs", sampling.logprobs.value_or(0)},
                 {"model", head_.request.model},
                 {"output", ended ? output() : Json::array()},
                 {"store", false},
                 {"usage", ended ? usage() : Json()}});
    return json;
  }

  Json usage() const {
    const int answered = usage_.completion_tokens();
    return {{"input_tokens", head_.prompt_tokens},
            {"input_tokens_details", {{"cached_tokens", usage_.cached_tokens(1)}, {"cache_write_tokens", 0}}},
            {"output_tokens", answered},
            {"output_tokens_details", {{"reasoning_tokens", reader_.reasoning_tokens().value_or(0)}}},
            {"total_tokens", head_.prompt_tokens + answered}};
  }

  ResponseHead head_;
  TokenBytes token_bytes_;
  AnswerReader reader_;
  std::vector<Item> items_;
  bool open_ = false;                           // the last item
  std::string_view last_status_ = "completed";  // status of the last item
  UsageSum usage_{1};
  FinishReason finish_ = FinishReason::kNone;
  bool begun_ = false;
  int sequence_number_ = 0;
};

}  // namespace

bool is_repeated(std::string_view parameter) {
  return std::ranges::find(kRepeated, parameter, &RepeatedParameter::name) != std::end(kRepeated);
}

std::unique_ptr<Answer> response_answer(ResponseHead head, TokenBytes token_bytes) {
  return std::make_unique<ResponseAnswer>(std::move(head), std::move(token_bytes));
}

}  // namespace quire
