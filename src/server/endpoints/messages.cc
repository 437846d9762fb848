#include "server/endpoints/messages.h"

#include <limits>

#include "json/empty_objects.h"
#include "server/api/error.h"
#include "server/api/request/field_readers.h"
#include "server/api/request/prompts.h"
#include "server/api/request/provider_content.h"
#include "server/api/request/structured_output.h"
#include "server/api/request/tools.h"

namespace quire {
namespace {

constexpr std::string_view kUserBlocks = "\"text\", \"document\", \"search_result\", \"tool_result\"",
                           kAssistantBlocks = "\"text\", \"thinking\", \"redacted_thinking\", \"tool_use\"";

// A block of the content: text, thinking or a tool's use.
struct Block {
  AnswerPiece::Kind kind = AnswerPiece::kText;
  std::string text = {};  // or a call's arguments
  std::string name = {}, id = {};
};

Json block_json(const Block& block) {
  switch (block.kind) {
    case AnswerPiece::kReasoning:
      return {{"type", "thinking"}, {"thinking", block.text}, {"signature", ""}};
    case AnswerPiece::kText:
      return {{"type", "text"}, {"text", block.text}};
    default:
      return {{"type", "tool_use"}, {"id", block.id}, {"name", block.name}, {"input", call_arguments_json(block.text)}};
  }
}

class MessageAnswer final : public Answer {
 public:
  explicit MessageAnswer(ResponseHead head) : head_(std::move(head)), reader_(head_.reading, 1) {}

  void add(int, const Output& output, std::string& out) override {
    usage_.add(0, output);
    if (output.finish != FinishReason::kNone) {
      finish_ = output.finish;
      if (!output.stop_token) stop_sequence_ = output.stop_reason;
    }
    if (head_.request.stream && !begun_) begin(out);
    for (const AnswerPiece& piece : reader_.read(0, output)) add(piece, out);
  }

  void end(std::string& out) override {
    if (blocks_.empty() && !head_.request.stream) blocks_.push_back({});
    if (!head_.request.stream) {
      Json content = Json::array();
      for (const Block& block : blocks_) content.push_back(block_json(block));
      out += dump(message(std::move(content), stop_reason(), stop_sequence()));
      return;
    }
    close_block(out);
    append_typed_event({{"type", "message_delta"},
                        {"delta", {{"stop_reason", stop_reason()}, {"stop_sequence", stop_sequence()}}},
                        {"usage", usage()}},
                       out);
    append_typed_event({{"type", "message_stop"}}, out);
  }

  void fail(const ApiError& error, std::string& out) override {
    out += "event: error\ndata: " + error_body(error, ErrorShape::kAnthropic) + "\n\n";
  }

 private:
  void begin(std::string& out) {
    begun_ = true;
    append_typed_event({{"type", "message_start"}, {"message", message(Json::array(), nullptr, nullptr)}}, out);
    if (!reader_.parses()) open_block({}, out);  // otherwise the answer's first piece says what it is
    append_typed_event({{"type", "ping"}}, out);
  }

  void add(const AnswerPiece& piece, std::string& out) {
    if (piece.kind == AnswerPiece::kCallEnd) return close_block(out);
    if (piece.kind == AnswerPiece::kCallBegin) {
      return open_block({.kind = piece.kind, .name = piece.text, .id = random_id("toolu_")}, out);
    }
    const bool of_call = piece.kind == AnswerPiece::kCallArguments;
    if (!open_ || (!of_call && blocks_.back().kind != piece.kind)) open_block({.kind = piece.kind}, out);
    if (!head_.request.stream) {
      blocks_.back().text += piece.text;
      return;
    }
    const Json delta = of_call ? Json{{"type", "input_json_delta"}, {"partial_json", piece.text}}
                       : piece.kind == AnswerPiece::kReasoning
                           ? Json{{"type", "thinking_delta"}, {"thinking", piece.text}}
                           : Json{{"type", "text_delta"}, {"text", piece.text}};
    append_typed_event({{"type", "content_block_delta"}, {"index", index()}, {"delta", delta}}, out);
  }

  void open_block(Block block, std::string& out) {
    close_block(out);
    open_ = true;
    blocks_.push_back(std::move(block));
    if (!head_.request.stream) return;
    append_typed_event(
        {{"type", "content_block_start"}, {"index", index()}, {"content_block", block_json(blocks_.back())}}, out);
  }

  void close_block(std::string& out) {
    if (!std::exchange(open_, false) || !head_.request.stream) return;
    if (blocks_.back().kind == AnswerPiece::kReasoning) {
      append_typed_event({{"type", "content_block_delta"},
                          {"index", index()},
                          {"delta", {{"type", "signature_delta"}, {"signature", ""}}}},
                         out);
    }
    append_typed_event({{"type", "content_block_stop"}, {"index", index()}}, out);
  }

  size_t index() const { return blocks_.size() - 1; }

  Json stop_reason() const {
    if (finish_ == FinishReason::kLength) return "max_tokens";
    if (!stop_sequence_.empty()) return "stop_sequence";
    return reader_.called(0) ? "tool_use" : "end_turn";
  }
  Json stop_sequence() const { return stop_sequence_.empty() ? Json() : Json(stop_sequence_); }

  Json message(Json content, Json reason, Json sequence) const {
    return {{"id", head_.id},
            {"type", "message"},
            {"role", "assistant"},
            {"model", head_.request.model},
            {"content", std::move(content)},
            {"stop_reason", std::move(reason)},
            {"stop_sequence", std::move(sequence)},
            {"usage", usage()}};
  }

  // input_tokens excludes tokens read from the cache.
  Json usage() const {
    const int cached = usage_.cached_tokens(1);
    return {{"input_tokens", head_.prompt_tokens - cached},
            {"cache_creation_input_tokens", 0},
            {"cache_read_input_tokens", cached},
            {"output_tokens", usage_.completion_tokens()}};
  }

  ResponseHead head_;
  AnswerReader reader_;
  std::vector<Block> blocks_;  // in a stream without their texts
  bool open_ = false;          // the last block
  std::string stop_sequence_;
  UsageSum usage_{1};
  FinishReason finish_ = FinishReason::kNone;
  bool begun_ = false;
};

// What the blocks of a message's content say, apart from results of tools.
struct Blocks {
  std::string text, reasoning;
  bool has_text = false;
  Json calls = Json::array();

  bool empty() const { return !has_text && reasoning.empty() && calls.empty(); }
};

void add_assistant(Blocks blocks, Json& messages) {
  Json made = {{"role", "assistant"}, {"content", blocks.text}};
  if (!blocks.reasoning.empty()) made["reasoning_content"] = blocks.reasoning;
  if (!blocks.calls.empty()) made["tool_calls"] = std::move(blocks.calls);
  messages.push_back(std::move(made));
}

// The result of a tool that the provider ran, in the middle of its model's message.
bool is_provider_result(std::string_view type) { return type.ends_with("_tool_result"); }

Blocks read_blocks(const JsonField& content, bool assistant, Json& messages, CallNames& names) {
  Blocks blocks;
  const auto add_text = [&](const std::string& text) {
    if (blocks.has_text) blocks.text += '\n';
    blocks.text += text;
    blocks.has_text = true;
  };
  for (const JsonField& block : content.elements()) {
    if (block.json().is_string()) {
      add_text(block.string());
      continue;
    }
    const auto type_field = block.find("type");
    if (!type_field) throw block.error("has no type; supported: {}", assistant ? kAssistantBlocks : kUserBlocks);
    const std::string& type = type_field->string();
    if (type == "text") {
      if (!block.has("text")) throw block.error("has no text");
      add_text(block.at("text").string());
    } else if (assistant && type == "thinking") {
      const auto thought = block.find("thinking");
      if (thought) blocks.reasoning += thought->string();
    } else if (const auto document = document_text(block)) {
      add_text(*document);
    } else if (assistant && type == "compaction") {  // what its provider wrote in place of an older history
      if (const auto summary = block.find("content")) add_text(summary->string());
    } else if (assistant && is_provider_result(type)) {
      if (!blocks.empty()) add_assistant(std::exchange(blocks, {}), messages);
      const auto result = block.find("content");
      messages.push_back(tool_result_json(names, block.at("tool_use_id"), result ? result_text(*result) : ""));
    } else if (assistant && (type == "tool_use" || type == "server_tool_use" || type == "mcp_tool_use")) {
      const JsonField id = block.at("id");
      const auto input = block.find("input");
      blocks.calls.push_back(tool_call_json(&id, block.at("name"), input ? &*input : nullptr));
      names[id.string()] = block.at("name").string();
    } else if (!assistant && type == "tool_result") {
      messages.push_back(tool_result_json(names, block.at("tool_use_id"), read_result(block.find("content"))));
    } else if (!assistant || type != "redacted_thinking") {
      throw type_field->error("{} is not supported; supported: {}", describe(type_field->json()),
                              assistant ? kAssistantBlocks : kUserBlocks);
    }
  }
  return blocks;
}

// Removes the line that Claude Code puts first. Returns whether there was one.
bool leave_out_billing(std::string& system) {
  const size_t start = std::min(system.find_first_not_of(" \t\r\n"), system.size());
  if (!std::string_view(system).substr(start).starts_with("x-anthropic-billing-header:")) return false;
  const size_t next = system.find_first_not_of("\r\n", std::min(system.find('\n', start), system.size()));
  system.erase(0, next);
  return true;
}

void read_turn(const JsonField& message, Json& messages, CallNames& names) {
  const JsonField role = message.at("role");
  const bool assistant = role.string() == "assistant";
  if (!assistant && role.string() != "user" && role.string() != "system") {  // "system": Claude Code's reminders
    throw role.error("{} is not a known role; allowed: \"user\", \"assistant\", \"system\"", describe(role.json()));
  }
  const JsonField content = message.at("content");
  if (content.json().is_string()) {
    messages.push_back({{"role", role.string()}, {"content", content.string()}});
    return;
  }
  if (!content.json().is_array()) {
    throw content.error("expected a string or an array of parts, found {}", describe(content.json()));
  }
  const size_t before = messages.size();
  Blocks blocks = read_blocks(content, assistant, messages, names);
  if (messages.size() > before && blocks.empty()) return;  // only results of tools
  if (assistant) return add_assistant(std::move(blocks), messages);
  messages.push_back({{"role", role.string()}, {"content", blocks.text}});
}

}  // namespace

void read_text_messages(ApiDraft& draft, const JsonField& field) {
  if (field.array(kMaxMessages).size() == 0) throw field.error("must have at least one message");
  draft.has_messages = true;
  CallNames names;
  size_t item = 0;
  for (const JsonField& message : field.elements(kMaxMessages)) {
    read_turn(message, draft.chat.messages, names);
    draft.chat_items.resize(draft.chat.messages.size(), item++);
  }
  draft.chat.continue_final_message = draft.chat.messages.back()["role"] == "assistant";
}

void read_system(ApiDraft& draft, const JsonField& field) {
  if (!field.json().is_string() && !field.json().is_array()) {
    throw field.error("expected a string or an array of text blocks, found {}", describe(field.json()));
  }
  std::string text = field.json().is_string() ? field.string() : join_parts(field);
  if (leave_out_billing(text)) {
    add_note(
        draft,
        "the line x-anthropic-billing-header at the beginning of system is left out: it changes with each request, so "
        "that no prompt would have a cached prefix");
    if (text.empty()) return;
  }
  draft.instructions = std::move(text);
}

void read_thinking(ApiDraft& draft, const JsonField& field) {
  const JsonField type = field.at("type");
  const std::string& name = type.string();
  if (name != "enabled" && name != "disabled" && name != "adaptive") {
    throw type.error("{} is not supported; allowed: \"enabled\", \"disabled\", \"adaptive\"", describe(type.json()));
  }
  // Templates of models that can think know this variable; chat_template_kwargs wins.
  if (name != "adaptive") set_thinking(draft, name == "enabled");
  if (const auto budget = field.find("budget_tokens")) {
    draft.max_reasoning_tokens = static_cast<int>(budget->integer(0, std::numeric_limits<int>::max()));
  }
}

void read_context_management(ApiDraft& draft, const JsonField& field) {
  if (const auto edits = field.object().find("edits")) {
    for (const JsonField& edit : edits->elements(64)) {
      const JsonField type = edit.at("type");
      if (type.string().starts_with("clear_")) continue;  // tool uses and thinking: all of them stay
      throw type.error("{} is not supported; shorten the messages instead", describe(type.json()));
    }
  }
  draft.without_effect.emplace_back("context_management");
}

void read_output_config(ApiDraft& draft, const JsonField& field) {
  if (const auto format = field.object().find("format")) read_output_format(draft, *format);
  // The chat template decides what it means.
  if (const auto effort = field.find("effort")) set_effort(draft, effort->string());
}

std::unique_ptr<Answer> message_answer(ResponseHead head) { return std::make_unique<MessageAnswer>(std::move(head)); }

}  // namespace quire
