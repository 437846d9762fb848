#include "server/endpoints/chat.h"

#include <algorithm>

#include "server/api/error.h"
#include "server/api/request/prompts.h"
#include "server/api/request/tools.h"
#include "server/endpoints/logprobs.h"

namespace quire {
namespace {

constexpr std::string_view kChatRoles[] = {"system", "developer", "user", "assistant", "tool", "function"};

// Clients send arguments as a string of JSON; templates expect an object.
void read_tool_calls(const JsonField& calls, Json& out) {
  out = Json::array();
  for (const JsonField& call : calls.elements(1024)) {
    const auto id = call.find("id");
    const JsonField function = call.at("function");
    const auto arguments = function.find("arguments");
    out.push_back(tool_call_json(id ? &*id : nullptr, function.at("name"), arguments ? &*arguments : nullptr));
  }
}

// The deprecated form of one call and its result.
void copy_function_call(const JsonField& call, Json& out) {
  const auto arguments = call.find("arguments");
  out["tool_calls"] = Json::array({tool_call_json(nullptr, call.at("name"), arguments ? &*arguments : nullptr)});
  out.erase("function_call");
}

// Clients send back what they got: thoughts under either name or as parts, and refusals, which are text.
void read_answer(const JsonField& message, const std::optional<JsonField>& content, Json& out) {
  if (const auto audio = message.find("audio")) throw audio->error("is not supported; messages are text");
  AnswerContent answer;
  if (content) answer = read_answer_content(*content);
  if (!answer.thoughts.empty()) out["reasoning_content"] = std::move(answer.thoughts);
  for (const char* name : {"reasoning", "reasoning_content"}) {
    if (const auto reasoning = message.find(name)) out["reasoning_content"] = reasoning->string();
  }
  const auto refusal = message.find("refusal");
  if (refusal && answer.text.empty()) answer.text = refusal->string();
  out["content"] = std::move(answer.text);
}

// Checks a message and changes `out`, its copy, to what templates expect.
void read_message(const JsonField& message, Json& out) {
  const JsonField role = message.at("role");
  const bool assistant = role.string() == "assistant";
  if (std::ranges::find(kChatRoles, role.string()) == std::end(kChatRoles)) {
    throw role.error("{} is not a known role; allowed: {}", describe(role.json()), fmt::join(kChatRoles, ", "));
  }
  if (role.string() == "function") out["role"] = "tool";
  if (const auto calls = message.find("tool_calls")) {
    read_tool_calls(*calls, out["tool_calls"]);
    if (out["tool_calls"].empty()) out.erase("tool_calls");
  } else {
    out.erase("tool_calls");  // null
  }
  if (const auto call = message.find("function_call")) {
    if (out.contains("tool_calls")) throw call->error("cannot be combined with tool_calls, which replaces it");
    copy_function_call(*call, out);
  }
  if (const auto id = message.find("tool_call_id")) id->string();
  const auto content = message.find("content");
  if (out["role"] == "tool") {
    out["content"] = read_result(content);
    return;
  }
  if (!content && !assistant) {
    throw bad_request(message.path() + ".content", "expected a string or an array of parts, found nothing");
  }
  if (content && !content->json().is_array() && !content->json().is_string()) {
    throw content->error("expected a string or an array of parts, found {}", describe(content->json()));
  }
  if (assistant) {
    read_answer(message, content, out);
  } else if (content->json().is_array()) {
    out["content"] = join_parts(*content);
  }
}

class ChatBody final : public Answer {
 public:
  ChatBody(ResponseHead head, TokenBytes token_bytes)
      : head_(std::move(head)),
        token_bytes_(std::move(token_bytes)),
        choices_(static_cast<size_t>(head_.choices())),
        reader_(head_.reading, head_.choices()),
        usage_(head_.choices()) {}

  void add(int index, const Output& output, std::string&) override {
    const auto at = static_cast<size_t>(index);
    Choice& choice = choices_.at(at);
    usage_.add(at, output);
    for (const AnswerPiece& piece : reader_.read(index, output)) add(piece, choice);
    if (head_.request.sampling.logprobs || head_.request.return_token_ids) {
      choice.tokens.insert(choice.tokens.end(), output.tokens.begin(), output.tokens.end());
    }
    if (!output.prompt_logprobs.empty()) choice.prompt = output.prompt_logprobs;
    if (output.finish == FinishReason::kNone) return;
    choice.finish = output.finish;
    choice.stop_reason = output.stop_reason;
    choice.by_token = output.stop_token.has_value();
  }

  void end(std::string& out) override {
    const bool chat = is_chat(head_);
    Json choices = Json::array();
    for (size_t i = 0; i < choices_.size(); ++i) choices.push_back(choice_json(i));
    Json body = {{"id", head_.id},
                 {"object", chat ? "chat.completion" : "text_completion"},
                 {"created", head_.created},
                 {"model", head_.request.model},
                 {"choices", std::move(choices)},
                 {"usage", usage_json(head_, usage_, reader_.reasoning_tokens())}};
    if (chat) add_prompt(0, body);
    out += dump(body);
  }

 private:
  struct Call {
    std::string name, arguments;
  };
  struct Choice {
    std::string text, reasoning, stop_reason;
    std::vector<Call> calls;
    std::vector<OutputToken> tokens, prompt;
    FinishReason finish = FinishReason::kNone;
    bool by_token = false;  // stop_reason is a token's id
  };

  static void add(const AnswerPiece& piece, Choice& choice) {
    switch (piece.kind) {
      case AnswerPiece::kText:
        choice.text += piece.text;
        break;
      case AnswerPiece::kReasoning:
        choice.reasoning += piece.text;
        break;
      case AnswerPiece::kCallBegin:
        choice.calls.push_back({piece.text, {}});
        break;
      case AnswerPiece::kCallArguments:
        choice.calls.back().arguments += piece.text;
        break;
      case AnswerPiece::kCallEnd:
        break;
    }
  }

  Json message_json(const Choice& choice) const {
    const bool only_calls = choice.text.empty() && !choice.calls.empty();
    Json message = {{"role", "assistant"}, {"content", only_calls ? Json() : Json(choice.text)}, {"refusal", nullptr}};
    if (!choice.reasoning.empty()) message["reasoning_content"] = message["reasoning"] = choice.reasoning;
    if (head_.request.functions && !choice.calls.empty()) {
      const Call& call = choice.calls.front();
      message["function_call"] = {{"name", call.name}, {"arguments", call.arguments}};
    } else if (!choice.calls.empty()) {
      for (const Call& call : choice.calls) {
        message["tool_calls"].push_back({{"id", random_id("call_")},
                                         {"type", "function"},
                                         {"function", {{"name", call.name}, {"arguments", call.arguments}}}});
      }
    }
    return message;
  }

  size_t prompt_of(size_t choice) const { return choice / static_cast<size_t>(head_.n()); }

  // Adds what was asked for about a prompt; it came with the first of its choices.
  void add_prompt(size_t choice, Json& json) const {
    const size_t prompt = prompt_of(choice);
    if (head_.request.prompt_logprobs) {
      json["prompt_logprobs"] =
          prompt_logprobs_json(choices_[prompt * static_cast<size_t>(head_.n())].prompt, token_bytes_);
    }
    if (head_.request.return_token_ids) json["prompt_token_ids"] = head_.prompt_ids[prompt];
  }

  Json choice_json(size_t index) const {
    const Choice& choice = choices_[index];
    const bool echo = !head_.echo.empty();
    Json json = {{"index", index}};
    if (is_chat(head_)) {
      json["message"] = message_json(choice);
    } else {
      json["text"] = (echo ? head_.echo[prompt_of(index)] : "") + choice.text;
    }
    json["logprobs"] = nullptr;
    if (head_.request.sampling.logprobs) {
      TextOffset offset = 0;
      const Choice& first = choices_[prompt_of(index) * static_cast<size_t>(head_.n())];
      json["logprobs"] = logprobs_json(head_, choice.tokens, token_bytes_, offset, echo ? &first.prompt : nullptr);
    }
    json["finish_reason"] = chat_finish_name(head_, choice.finish, !choice.calls.empty());
    if (!choice.stop_reason.empty()) json["stop_reason"] = stop_reason_json(choice.stop_reason, choice.by_token);
    if (head_.request.return_token_ids) json["token_ids"] = token_ids_json(choice.tokens);
    if (!is_chat(head_)) add_prompt(index, json);
    return json;
  }

  ResponseHead head_;
  TokenBytes token_bytes_;
  std::vector<Choice> choices_;
  AnswerReader reader_;
  UsageSum usage_;
};

}  // namespace

std::string_view chat_finish_name(const ResponseHead& head, FinishReason reason, bool called) {
  if (!called || reason != FinishReason::kStop) return finish_name(reason);
  return head.request.functions ? "function_call" : "tool_calls";
}

void read_chat_messages(ApiDraft& draft, const JsonField& field) {
  if (field.array(kMaxMessages).size() == 0) throw field.error("must have at least one message");
  draft.has_messages = true;
  draft.chat.messages = field.json();
  for (size_t i = 0; i < field.size(); ++i) read_message(field.at(i), draft.chat.messages[i]);
}

std::unique_ptr<Answer> chat_body(ResponseHead head, TokenBytes token_bytes) {
  return std::make_unique<ChatBody>(std::move(head), std::move(token_bytes));
}

}  // namespace quire
